//! The two programs of a box: launcher and gate, each behind one channel.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use bailey_channel::{AsyncChannel, Channel, ChannelError, Message, Step};
use bailey_fence_plan::channel::{FromFence, ToFence};
use bailey_gate_proto::channel::{FromGate, ToGate};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};
use tokio::sync::{Semaphore, mpsc};

use crate::log::log;

use super::event::{COMMANDS, FenceId, NodeEvent, RunId};

/// Bytes of one line that a program says of its faults.
const MAX_SAID: usize = 1024;

/// A command and its descriptors.
pub(crate) type Outgoing<T> = (T, Vec<OwnedFd>);

/// The node's end of a program of a box. Dropping it ends the program.
#[derive(Debug)]
pub(crate) struct Program<T> {
    commands: mpsc::Sender<Outgoing<T>>,
}

impl<T> Program<T> {
    /// Queues one command; `false` if the program is gone or does not read.
    pub(crate) fn send(&self, command: T, fds: Vec<OwnedFd>) -> bool {
        self.offer(command, fds).is_ok()
    }

    /// As [`Program::send`], but gives back what was not taken.
    pub(crate) fn offer(&self, command: T, fds: Vec<OwnedFd>) -> Result<(), Outgoing<T>> {
        self.commands
            .try_send((command, fds))
            .map_err(mpsc::error::TrySendError::into_inner)
    }
}

/// Starts a launcher, which waits for its order.
///
/// # Errors
/// When the program is not there or cannot be started.
pub(crate) fn fence(
    fence: FenceId,
    events: mpsc::Sender<NodeEvent>,
) -> io::Result<Program<ToFence>> {
    start::<ToFence, FromFence>("bailey-fence", events, None, move |message| match message {
        Some(Message { value, fds }) => NodeEvent::Fence {
            fence,
            said: value,
            fds,
        },
        None => NodeEvent::FenceGone { fence },
    })
}

/// Starts a box's gate.
///
/// # Errors
/// When the program is not there or cannot be started.
pub(crate) fn gate(
    run: RunId,
    events: mpsc::Sender<NodeEvent>,
    credit: Arc<Semaphore>,
) -> io::Result<Program<ToGate>> {
    start::<ToGate, FromGate>(
        "bailey-gate",
        events,
        Some(credit),
        move |message| match message {
            Some(Message { value, .. }) => NodeEvent::Gate { run, said: value },
            None => NodeEvent::GateGone { run },
        },
    )
}

/// Starts a program with a channel as its standard input, and a task that
/// stands between that channel and the loop.
fn start<T, F>(
    name: &str,
    events: mpsc::Sender<NodeEvent>,
    credit: Option<Arc<Semaphore>>,
    event: impl Fn(Option<Message<F>>) -> NodeEvent + Send + Sync + 'static,
) -> io::Result<Program<T>>
where
    T: Serialize + Send + Sync + 'static,
    F: DeserializeOwned + Send + 'static,
{
    let (own, theirs) = Channel::pair().map_err(io::Error::other)?;
    let program = beside(name)?;
    let mut child = Command::new(&program)
        // A box sees the words of its pid 1, and no path of this machine in them.
        .arg0(name)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(match credit {
            // What a box may make of its gate writes no file.
            Some(_) => Stdio::piped(),
            None => Stdio::inherit(),
        })
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", program.display())))?;
    if let Some(stderr) = child.stderr.take() {
        tokio::spawn(copy_to_log(name.to_owned(), stderr));
    }
    let channel = AsyncChannel::new(own)?;
    let (commands, outgoing) = mpsc::channel(COMMANDS);
    tokio::spawn(async move {
        attend(channel, outgoing, child, &events, credit, &event).await;
        let _loop_gone = events.send(event(None)).await;
    });
    Ok(Program { commands })
}

/// What a program says of its faults, a part a line; the log bounds how much.
async fn copy_to_log(name: String, mut stderr: tokio::process::ChildStderr) {
    let mut bytes = vec![0; MAX_SAID];
    while let Ok(count @ 1..) = stderr.read(&mut bytes).await {
        let said = bytes.get(..count).unwrap_or_default();
        log!("{name}: {}", String::from_utf8_lossy(said).trim_end());
    }
}

async fn attend<T, F>(
    mut channel: AsyncChannel,
    mut outgoing: mpsc::Receiver<Outgoing<T>>,
    mut child: Child,
    events: &mpsc::Sender<NodeEvent>,
    credit: Option<Arc<Semaphore>>,
    event: &(impl Fn(Option<Message<F>>) -> NodeEvent + Send + Sync),
) where
    T: Serialize,
    F: DeserializeOwned,
{
    /// Frames are gathered to this many bytes before they are sent.
    const GATHER: usize = 64 << 10;
    // Taken before a message is read, and given back once it is answered for.
    let mut may_say = credit.is_none();
    loop {
        let room = channel.queued_bytes() < GATHER;
        let is_flushed = channel.queued_bytes() == 0;
        let result = tokio::select! {
            biased;
            command = outgoing.recv(), if room => match command {
                Some((command, fds)) => channel.queue(&command, fds),
                None => break,
            },
            () = take(credit.as_ref()), if !may_say => {
                may_say = true;
                Ok(())
            }
            step = step::<F>(&mut channel, may_say), if may_say || !is_flushed => match step {
                Ok(Step::Flushed) => Ok(()),
                Ok(Step::Message(message)) => {
                    may_say = credit.is_none();
                    events.send(event(Some(message))).await.map_err(|_| ChannelError::Closed)
                }
                Err(error) => Err(error),
            },
        };
        if result.is_err() {
            break;
        }
    }
    // The end of the channel is the program's order to end. A program that
    // does not is killed when its handle is dropped.
    drop(channel);
    let limit = std::time::Duration::from_secs(5);
    if tokio::time::timeout(limit, child.wait()).await.is_err() {
        let _gone = child.kill().await;
    }
}

/// Reads and writes, or only writes.
async fn step<F: DeserializeOwned>(
    channel: &mut AsyncChannel,
    reads: bool,
) -> Result<Step<F>, ChannelError> {
    match reads {
        true => channel.step().await,
        false => channel.flush().await.map(|()| Step::Flushed),
    }
}

/// Takes one, which somebody else gives back.
async fn take(credit: Option<&Arc<Semaphore>>) {
    if let Some(credit) = credit
        && let Ok(permit) = credit.acquire().await
    {
        permit.forget();
    }
}

/// The program in the folder of this one.
fn beside(name: &str) -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.with_file_name(name))
}
