//! What detached boxes write: kept by a task a box, shown by a task a reader.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use tokio::net::unix::pipe::Receiver;
use tokio::sync::{mpsc, oneshot, watch};

use super::Node;
use super::event::{Answer, ConnId, NodeEvent, RunId};
use super::log_file::{LogFile, LogReader, MAX_FRAME, Piece};
use crate::api::{Failure, Tell};
use crate::log::log;

/// Most bytes that a pipe can hold (pipe-max-size, see pipe(7)).
const MAX_PIPE: usize = 1 << 20;
/// Pieces read in one go.
const BATCH: usize = 16;

/// The node's handle of a box's log.
#[derive(Debug)]
pub(super) struct LogHandle {
    /// Says that nobody writes any more; what is in the pipes is the rest.
    over: Option<oneshot::Sender<()>>,
    /// Bytes kept so far; closed when all are.
    kept: watch::Receiver<u64>,
}

impl LogHandle {
    /// Nobody of the box is left: what is in the pipes is the rest.
    pub(super) fn finish(&mut self) {
        if let Some(over) = self.over.take() {
            // A task that has ended has read the rest.
            let _ended = over.send(());
        }
    }
}

/// Keeps what comes by two pipes until [`LogHandle::finish`], then says so.
///
/// # Errors
/// When the pipes cannot be waited on.
pub(super) fn keep(
    run: RunId,
    log: LogFile,
    [out, err]: [OwnedFd; 2],
    events: mpsc::Sender<NodeEvent>,
) -> io::Result<LogHandle> {
    let pipes = [
        Some(Receiver::from_owned_fd(out)?),
        Some(Receiver::from_owned_fd(err)?),
    ];
    let (over, is_over) = oneshot::channel();
    let (count, kept) = watch::channel(0);
    let task = Keeper {
        pipes,
        log: Some(log),
        count,
    };
    tokio::spawn(async move {
        task.run(is_over).await;
        // Without its loop the node is gone.
        let _gone = events.send(NodeEvent::LogOver { run }).await;
    });
    Ok(LogHandle {
        over: Some(over),
        kept,
    })
}

/// The task of one log.
#[derive(Debug)]
struct Keeper {
    /// Stdout and stderr; `None` when closed.
    pipes: [Option<Receiver>; 2],
    /// Away while a thread writes to it.
    log: Option<LogFile>,
    count: watch::Sender<u64>,
}

impl Keeper {
    async fn run(mut self, mut is_over: oneshot::Receiver<()>) {
        loop {
            let [out, err] = &self.pipes;
            let at = tokio::select! {
                // Sent, or its run is gone.
                _ = &mut is_over => break,
                () = readable(out.as_ref()) => 0,
                () = readable(err.as_ref()) => 1,
            };
            self.take(at, false).await;
        }
        // The box has ended, so whatever it wrote is in the pipes by now. Others
        // may hold an end and write for ever: no more is read than a pipe holds.
        for at in [0, 1] {
            let mut taken = 0;
            while taken <= MAX_PIPE {
                match self.take(at, true).await {
                    0 => break,
                    count => taken += count,
                }
            }
        }
    }

    /// Reads once and keeps it; 0 when there is nothing now. `last`: the
    /// runtime's own note of what is there may be late, the pipe is asked.
    async fn take(&mut self, at: usize, last: bool) -> usize {
        let Some(pipe) = self.pipes.get_mut(at) else {
            return 0;
        };
        let Some(open) = pipe else {
            return 0;
        };
        let mut bytes = vec![0; MAX_FRAME];
        let got = if last {
            rustix::io::read(&*open, &mut bytes).map_err(io::Error::from)
        } else {
            open.try_read(&mut bytes)
        };
        let count = match got {
            Ok(0) => 0,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return 0,
            Err(_) => 0,
        };
        if count == 0 {
            *pipe = None;
            return 0;
        }
        bytes.truncate(count);
        self.append(at, bytes).await;
        count
    }

    /// On a thread that may wait for the disk.
    async fn append(&mut self, at: usize, bytes: Vec<u8>) {
        let Some(mut log) = self.log.take() else {
            return;
        };
        let (stream, count) = (if at == 0 { 1 } else { 2 }, bytes.len() as u64);
        let written = tokio::task::spawn_blocking(move || {
            log.append(stream, &bytes);
            log
        });
        match written.await {
            Ok(log) => self.log = Some(log),
            Err(error) => log!("log of a box: {error}"),
        }
        self.count.send_modify(|kept| *kept += count);
    }
}

/// A closed one is never readable.
async fn readable(pipe: Option<&Receiver>) {
    match pipe {
        // What is wrong with it shows when it is read.
        Some(pipe) => drop(pipe.readable().await),
        None => std::future::pending().await,
    }
}

impl Node {
    /// A detached box's log, begun; an older one of that name is gone.
    pub(super) fn begin_log(
        &self,
        id: RunId,
        name: &str,
        outputs: Option<[OwnedFd; 2]>,
    ) -> Result<Option<LogHandle>, Failure> {
        let folder = self.paths.boxed(name);
        let fault = |error: std::io::Error| Failure::host(format!("log of {name}: {error}"));
        let Some(outputs) = outputs else {
            LogFile::remove(&folder).map_err(fault)?;
            return Ok(None);
        };
        let file = LogFile::create(&folder).map_err(fault)?;
        let log = keep(id, file, outputs, self.events.clone());
        log.map(Some).map_err(fault)
    }

    pub(super) fn on_log_over(&mut self, id: RunId) {
        if let Some(run) = self.runs.get_mut(&id) {
            run.log = None;
        }
        self.close_if_over(id);
    }

    /// Shows what a detached box wrote, and what it writes.
    pub(super) fn on_logs(
        &mut self,
        conn: ConnId,
        target: &str,
        follow: bool,
    ) -> Result<(), Failure> {
        let state = self.fold.resolve(target, self.this)?;
        if state.writer != self.this {
            let device = self.fold.device_name(state.writer);
            return Err(Failure::usage(format!(
                "{} runs on {device}; what it writes is kept there alone",
                state.name
            )));
        }
        let run = self
            .runs
            .values()
            .find(|run| run.incarnation == state.incarnation);
        if run.is_some_and(|run| !run.detached) {
            return Err(Failure::usage(format!(
                "{} is attached: what it writes goes to its own terminal and is not kept",
                state.name
            )));
        }
        let folder = self.paths.boxed(&state.name);
        if run.is_none() && !folder.join("log").exists() {
            return Err(Failure::usage(format!("no log of {} is kept", state.name))
                .hint("only what boxes with --detach write is kept"));
        }
        let kept = run
            .and_then(|run| run.log.as_ref())
            .map(|log| log.kept.clone())
            // One that has been ended is shown whole.
            .filter(|_| follow || state.ended.is_some());
        if let Some(answers) = self.conns.get(&conn).cloned() {
            tokio::spawn(show(folder, kept, answers));
        }
        Ok(())
    }
}

/// Sends what is there, then what comes, until the log is closed.
async fn show(
    folder: PathBuf,
    mut kept: Option<watch::Receiver<u64>>,
    answers: mpsc::Sender<Answer>,
) {
    let mut reader = LogReader::new(&folder);
    loop {
        // Whether it is closed is asked before the last of it is read.
        let closed = kept.as_mut().is_none_or(|kept| {
            kept.mark_unchanged();
            kept.has_changed().is_err()
        });
        loop {
            let read = tokio::task::spawn_blocking(move || {
                let pieces = read_some(&mut reader);
                (reader, pieces)
            });
            let (again, pieces) = match read.await {
                Ok((again, Ok(pieces))) => (again, pieces),
                Ok((_, Err(error))) => {
                    let failure = Failure::host(format!("log: {error}"));
                    let _gone = answers.send((Tell::Failed(failure), Vec::new())).await;
                    return;
                }
                Err(error) => {
                    let failure = Failure::internal(format!("log: {error}"));
                    let _gone = answers.send((Tell::Failed(failure), Vec::new())).await;
                    return;
                }
            };
            reader = again;
            let last = pieces.len() < BATCH;
            for piece in pieces {
                if answers.send((said(piece), Vec::new())).await.is_err() {
                    return;
                }
            }
            if last {
                break;
            }
        }
        match &mut kept {
            Some(kept) if !closed => {
                tokio::select! {
                    // Closed: one more round shows the rest.
                    _ = kept.changed() => {}
                    () = answers.closed() => return,
                }
            }
            _ => break,
        }
    }
    let _gone = answers.send((Tell::Done, Vec::new())).await;
}

fn read_some(reader: &mut LogReader) -> io::Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    while pieces.len() < BATCH {
        match reader.next()? {
            Some(piece) => pieces.push(piece),
            None => break,
        }
    }
    Ok(pieces)
}

fn said(piece: Piece) -> Tell {
    match piece {
        Piece::Said { stream, bytes } => Tell::Log { stream, bytes },
        Piece::Lost(Some(count)) => Tell::Note(format!("{count} bytes could not be kept here")),
        Piece::Lost(None) => Tell::Note("older output was replaced before it was read".to_owned()),
    }
}
