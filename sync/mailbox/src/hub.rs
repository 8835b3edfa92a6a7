//! The task that owns the index and every connection.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bailey_envelope::TopicId;
use bailey_sync::StartError;
use bailey_sync::mail::{
    ByeReason, Incoming, Line, LineEvent, Listener, MailAddress, MailServer, MailServerEvent,
    Refusal,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, interval, sleep_until};

use crate::clock::unix_ms;
use crate::identity::{Identity, IdentityError};
use crate::index::{Index, Placed, Quotas};
use crate::kept::{Kept, KeptError, hash_of};
use crate::rates::{Rates, Source};
use crate::{Args, StorePlace, say};

/// Connections in all. Each holds at most a blob that comes and one that goes, and
/// what [`Listener`] lets QUIC keep of each.
const MAX_CONNECTIONS: usize = 4096;
/// Pieces that connections may have waiting; then QUIC holds their peers back.
const QUEUE: usize = 64;
/// Blobs read, and written, at once.
const MAX_READS: usize = 16;
const MAX_WRITES: usize = 16;
/// Between two looks at what is too old, and how much of it goes each time.
const EXPIRE_EVERY: Duration = Duration::from_secs(60);
const EXPIRE_MOST: usize = 4096;
/// A day in milliseconds.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Why the mailbox does not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Its key cannot be had.
    #[error(transparent)]
    Identity(IdentityFault),
    /// What is kept cannot be.
    #[error(transparent)]
    Kept(KeptFault),
    /// The port cannot be had.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The runtime, or signals.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// `--key` is wanted.
    #[error("--store s3:// wants --key FILE: where its own key is kept")]
    NoKey,
}

/// What is wrong with the key, as text.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct IdentityFault(String);

/// What is wrong with the store, as text.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct KeptFault(String);

impl From<IdentityError> for RunError {
    fn from(error: IdentityError) -> Self {
        Self::Identity(IdentityFault(error.to_string()))
    }
}

impl From<KeptError> for RunError {
    fn from(error: KeptError) -> Self {
        Self::Kept(KeptFault(error.to_string()))
    }
}

/// What tasks tell the hub.
enum Told {
    Line(u64, LineEvent),
    /// The blob at this index of a topic was written, or not.
    Written {
        topic: TopicId,
        index: u64,
        result: Result<(), KeptError>,
    },
    /// What a connection asked to read.
    Read {
        line: u64,
        topic: TopicId,
        from: u64,
        index: u64,
        found: Result<Option<Vec<u8>>, KeptError>,
    },
}

struct Connected {
    source: Source,
    server: MailServer,
    line: Line,
}

struct Hub {
    kept: Kept,
    name: [u8; 16],
    index: Index,
    rates: Rates,
    /// Each is its own piece of memory: a table of them would take twice as much while it
    /// grows.
    lines: HashMap<u64, Box<Connected>>,
    last_line: u64,
    /// Topics, and the connections that follow each.
    followers: BTreeSet<(TopicId, u64)>,
    /// Who waits for a blob that is being written: connection and put.
    waiting: HashMap<(TopicId, u64), Vec<(u64, u64)>>,
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
    tell: mpsc::Sender<Told>,
    origin: Instant,
    /// No connection has anything to do before this.
    next: Duration,
    /// Whether the disk's refusal was said.
    full: bool,
}

/// Runs until it is told to end (SIGTERM, SIGINT).
///
/// # Errors
/// [`RunError`]: it did not start.
pub async fn run(args: Args) -> Result<(), RunError> {
    let kept = Kept::open(&args.store)?;
    let key = match (&args.key, &args.store) {
        (Some(key), _) => key.clone(),
        (None, StorePlace::Folder(folder)) => folder.join("mailbox.key"),
        (None, StorePlace::S3 { .. }) => return Err(RunError::NoKey),
    };
    let identity = Identity::load(&key)?;
    let name = kept.name().await?;
    let mut index = Index::new(Quotas {
        bytes: args.quota,
        topic_bytes: args.topic_quota,
        keep_ms: u64::from(args.keep) * DAY_MS,
    });
    kept.list(&mut index).await?;
    let listener = Listener::bind(&identity.seed, args.listen)?;
    say(&format!(
        "{} blobs of {} topics, {} bytes",
        index.blobs(),
        index.topics(),
        index.bytes()
    ));
    let local = listener.local_addr();
    let address = MailAddress {
        key: listener.key(),
        host: args.host.unwrap_or_else(|| local.ip().to_string()),
        port: local.port(),
    };
    print(&address)?;
    let (tell, told) = mpsc::channel(QUEUE);
    let hub = Hub {
        kept,
        name,
        index,
        rates: Rates::new(args.topics),
        lines: HashMap::new(),
        last_line: 0,
        followers: BTreeSet::new(),
        waiting: HashMap::new(),
        reads: Arc::new(Semaphore::new(MAX_READS)),
        writes: Arc::new(Semaphore::new(MAX_WRITES)),
        tell,
        origin: Instant::now(),
        next: Duration::ZERO,
        full: false,
    };
    hub.run(listener, told).await?;
    // Held until nothing is written any more.
    drop(identity);
    Ok(())
}

fn print(address: &MailAddress) -> std::io::Result<()> {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{address}")?;
    out.flush()
}

impl Hub {
    async fn run(
        mut self,
        mut listener: Listener,
        mut told: mpsc::Receiver<Told>,
    ) -> Result<(), RunError> {
        let mut term = signal(SignalKind::terminate())?;
        let mut int = signal(SignalKind::interrupt())?;
        let mut expire = interval(EXPIRE_EVERY);
        loop {
            let deadline = self.origin + self.next;
            tokio::select! {
                incoming = listener.next() => match incoming {
                    Some(incoming) => self.accept(incoming),
                    None => break,
                },
                Some(told) = told.recv() => self.handle(told),
                () = sleep_until(deadline) => self.handle_timeouts(),
                _ = expire.tick() => self.expire(),
                _ = term.recv() => break,
                _ = int.recv() => break,
            }
        }
        listener.close();
        Ok(())
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn handle_timeouts(&mut self) {
        let now = self.now();
        let due: Vec<u64> = self
            .lines
            .iter()
            .filter(|(_, line)| line.server.poll_timeout().is_some_and(|at| at <= now))
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            if let Some(line) = self.lines.get_mut(&id) {
                line.server.handle_timeout(now);
            }
            self.pump(id);
        }
        let all = self.lines.values();
        let next = all.filter_map(|line| line.server.poll_timeout()).min();
        self.next = next.unwrap_or(now + EXPIRE_EVERY);
    }

    /// Notes when a connection has something to do. One that has it later than before
    /// only wakes the task in vain.
    fn note_deadline(&mut self, id: u64) {
        let line = self.lines.get(&id);
        if let Some(at) = line.and_then(|line| line.server.poll_timeout()) {
            self.next = self.next.min(at);
        }
    }

    fn accept(&mut self, incoming: Incoming) {
        let (now, source) = (self.now(), Source::of(incoming.remote.ip()));
        if self.lines.len() >= MAX_CONNECTIONS || !self.rates.connect(source, now) {
            return incoming.refuse();
        }
        self.last_line += 1;
        let id = self.last_line;
        let line = incoming.start(self.tell.clone(), move |event| Told::Line(id, event));
        let server = MailServer::new(self.name, now);
        let connected = Connected {
            source,
            server,
            line,
        };
        self.lines.insert(id, Box::new(connected));
        self.note_deadline(id);
    }

    fn handle(&mut self, told: Told) {
        let now = self.now();
        match told {
            Told::Line(id, LineEvent::Bytes(bytes)) => {
                if let Some(line) = self.lines.get_mut(&id) {
                    line.server.handle_bytes(now, &bytes);
                }
                self.pump(id);
            }
            Told::Line(id, LineEvent::Written) => self.pump(id),
            Told::Line(id, LineEvent::Gone(_)) => self.leave(id),
            Told::Written {
                topic,
                index,
                result,
            } => self.handle_written(topic, index, result),
            Told::Read {
                line,
                topic,
                from,
                index,
                found,
            } => {
                self.handle_read(line, topic, (from, index), found);
                self.pump(line);
            }
        }
    }

    fn handle_read(
        &mut self,
        id: u64,
        topic: TopicId,
        (from, index): (u64, u64),
        found: Result<Option<Vec<u8>>, KeptError>,
    ) {
        match found {
            Ok(Some(blob)) => {
                if let Some(line) = self.lines.get_mut(&id) {
                    line.server.handle_read(topic, Some((index, blob)));
                }
            }
            // What is not there is passed over, for whoever asks again too.
            Ok(None) => {
                self.index.lost(topic, index);
                self.read(id, topic, from);
            }
            // What cannot be read now is not passed over: the device comes again.
            Err(error) => {
                say(&format!("a blob cannot be read: {error}"));
                if let Some(line) = self.lines.get_mut(&id) {
                    line.server.close(ByeReason::Leaving);
                }
            }
        }
    }

    /// Does what a connection asks, and sends what it says.
    fn pump(&mut self, id: u64) {
        self.serve(id);
        self.note_deadline(id);
    }

    fn serve(&mut self, id: u64) {
        loop {
            let now = self.now();
            let Some(line) = self.lines.get_mut(&id) else {
                return;
            };
            if let Some(event) = line.server.poll_event() {
                let source = line.source;
                match event {
                    MailServerEvent::Put { put, topic, blob } => {
                        self.put(id, source, put, topic, blob);
                    }
                    MailServerEvent::Follow { topic } => {
                        self.followers.insert((topic, id));
                        let end = self.index.end(topic);
                        self.grown(id, topic, end);
                    }
                    MailServerEvent::Unfollow { topic } => {
                        self.followers.remove(&(topic, id));
                    }
                    MailServerEvent::Read { topic, from } => self.read(id, topic, from),
                    MailServerEvent::Closed(_) => {
                        self.send(id, now);
                        return self.leave(id);
                    }
                }
                continue;
            }
            if !self.send(id, now) {
                return;
            }
        }
    }

    /// Sends one frame; `false` if there is none or no room.
    fn send(&mut self, id: u64, now: Duration) -> bool {
        let Some(line) = self.lines.get_mut(&id) else {
            return false;
        };
        let Some(room) = line.line.room() else {
            return false;
        };
        match line.server.poll_transmit(now) {
            Some(frame) => {
                room.send(frame);
                true
            }
            None => false,
        }
    }

    fn grown(&mut self, id: u64, topic: TopicId, end: u64) {
        if let Some(line) = self.lines.get_mut(&id) {
            line.server.handle_grown(topic, end);
        }
    }

    fn put(&mut self, id: u64, source: Source, put: u64, topic: TopicId, blob: Vec<u8>) {
        let now = self.now();
        let refusal = if !self.rates.put(source, now) {
            Some(Refusal::Rate)
        } else if !self.index.knows(topic) && !self.rates.topic(source, now) {
            Some(Refusal::Topics)
        } else {
            None
        };
        let hash = hash_of(&blob);
        let placed = match refusal {
            Some(refusal) => Placed::Refused(refusal),
            None => self.index.place(topic, hash, blob.len(), unix_ms()),
        };
        match placed {
            Placed::Refused(refusal) => self.refuse(id, put, refusal),
            Placed::There(index) => self.stored(id, put, topic, index),
            Placed::Pending(index) => {
                self.waiting
                    .entry((topic, index))
                    .or_default()
                    .push((id, put));
            }
            Placed::Write(index) => {
                self.waiting.insert((topic, index), vec![(id, put)]);
                let (kept, tell) = (self.kept.clone(), self.tell.clone());
                let writes = Arc::clone(&self.writes);
                tokio::spawn(async move {
                    let _turn = writes.acquire_owned().await;
                    let result = kept.put(topic, index, hash, blob).await;
                    let written = Told::Written {
                        topic,
                        index,
                        result,
                    };
                    let _leaving = tell.send(written).await;
                });
            }
        }
    }

    fn refuse(&mut self, id: u64, put: u64, refusal: Refusal) {
        if let Some(line) = self.lines.get_mut(&id) {
            line.server.handle_refused(put, refusal);
        }
    }

    fn stored(&mut self, id: u64, put: u64, topic: TopicId, index: u64) {
        if let Some(line) = self.lines.get_mut(&id) {
            line.server.handle_stored(put, topic, index);
        }
    }

    fn handle_written(&mut self, topic: TopicId, index: u64, result: Result<(), KeptError>) {
        let waiting = self.waiting.remove(&(topic, index)).unwrap_or_default();
        let end = match &result {
            Ok(()) => self.index.written(topic, index),
            Err(error) => {
                if !std::mem::replace(&mut self.full, true) {
                    say(&format!("a blob cannot be kept, and is refused: {error}"));
                }
                self.index.failed(topic, index)
            }
        };
        self.full &= result.is_err();
        for (id, put) in &waiting {
            match result {
                Ok(()) => self.stored(*id, *put, topic, index),
                Err(_) => self.refuse(*id, *put, Refusal::Full),
            }
        }
        let followers = self.followers.range((topic, 0)..=(topic, u64::MAX));
        let followers: Vec<u64> = followers.map(|(_, id)| *id).collect();
        for id in &followers {
            if let Some(end) = end {
                self.grown(*id, topic, end);
            }
        }
        for id in waiting.iter().map(|(id, _)| *id).chain(followers) {
            self.pump(id);
        }
    }

    fn read(&mut self, id: u64, topic: TopicId, from: u64) {
        let Some(slot) = self.index.first_from(topic, from) else {
            if let Some(line) = self.lines.get_mut(&id) {
                line.server.handle_read(topic, None);
            }
            return;
        };
        let (kept, tell) = (self.kept.clone(), self.tell.clone());
        let reads = Arc::clone(&self.reads);
        tokio::spawn(async move {
            let _turn = reads.acquire_owned().await;
            let found = kept.get(topic, slot.index, slot.hash).await;
            let read = Told::Read {
                line: id,
                topic,
                from,
                index: slot.index,
                found,
            };
            let _leaving = tell.send(read).await;
        });
    }

    /// A connection is over.
    fn leave(&mut self, id: u64) {
        if let Some(mut line) = self.lines.remove(&id) {
            self.rates.left(line.source);
            line.server.close(ByeReason::Leaving);
            for topic in line.server.followed() {
                self.followers.remove(&(*topic, id));
            }
        }
    }

    /// What is too old goes: out of the index first, so that nobody is told of it.
    fn expire(&mut self) {
        let gone = self.index.expire(unix_ms(), EXPIRE_MOST);
        if gone.is_empty() {
            return;
        }
        let kept = self.kept.clone();
        tokio::spawn(async move {
            for (topic, slot) in gone {
                if let Err(error) = kept.delete(topic, slot.index, slot.hash).await {
                    // The next start finds it, and tries again.
                    return say(&format!("a blob cannot be removed: {error}"));
                }
            }
        });
    }
}
