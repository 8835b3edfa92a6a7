//! A pairing through a mailbox: one task that puts and takes its pieces, and runs the TLS
//! in them. What it tells is as of a connection.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use bailey_session::pair::{Attempt, PairSecret, Post, PostEvent};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::line::Line;
use super::memory::{Memory, Proved};
use super::{PairStartError, random};
use crate::io::IoEvent;
use crate::mail::{MailAddress, MailCommand, MailDevice, MailEvent};
use crate::tls::{Identity, TlsError};

/// How long a mailbox may be away before what goes through it is over.
const AWAY: Duration = Duration::from_secs(if cfg!(test) { 6 } else { 20 });
/// How long the last pieces may take to get there.
const LINGER: Duration = Duration::from_secs(10);
/// Words of the pairing that may wait: one that it proved, one that it is over.
const WORDS: usize = 4;

/// Which end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Host,
    Joiner,
}

/// What a way through a mailbox starts from.
pub(super) struct PostConfig {
    pub(super) mailbox: MailAddress,
    pub(super) secret: PairSecret,
    pub(super) identity: Identity,
    pub(super) side: Side,
}

/// What it tells.
#[derive(Debug)]
pub(super) enum PostTold {
    /// An attempt's handshake is over.
    Met(Attempt, Proved, Line),
    /// As of a connection.
    Io(Attempt, IoEvent),
    /// The mailbox is not reached; it is tried again.
    Away(String),
    /// Joiner: the host goes on without us.
    Closed,
}

/// A running one. Once it is dropped, what was written is put, and it ends.
#[derive(Debug)]
pub(super) struct PostTask {
    words: mpsc::Sender<Option<Attempt>>,
    task: JoinHandle<()>,
}

impl PostTask {
    /// Starts it, on the current tokio runtime. `tag` marks what it tells.
    pub(super) fn start<T: Send + 'static>(
        config: PostConfig,
        tell: mpsc::Sender<T>,
        tag: impl Fn(PostTold) -> T + Send + Sync + 'static,
    ) -> Result<Self, PairStartError> {
        let entropy = random().map_err(PairStartError::Entropy)?;
        let (secret, key) = (config.secret, config.mailbox.key);
        let mut ends = BTreeMap::new();
        let post = match config.side {
            Side::Host => Post::host(secret, &key),
            Side::Joiner => {
                let attempt = Attempt(random().map_err(PairStartError::Entropy)?);
                let mut post = Post::joiner(secret, &key, attempt);
                let mut tls = Memory::joiner(&config.identity)?;
                let hello = tls.write(&[]).map_err(|_| TlsError::Key)?;
                post.write(attempt, &hello);
                ends.insert(attempt, End { tls, frames: None });
                post
            }
        };
        let (commands, mail) = MailDevice::start(config.mailbox.clone(), &entropy);
        let (words, word) = mpsc::channel(WORDS);
        let running = Running {
            place: config.mailbox.place(),
            identity: config.identity,
            origin: Instant::now(),
            post,
            ends,
            commands,
            mail,
            connection: None,
            away: Some(Instant::now()),
            why: "it does not answer".to_owned(),
            word,
            finishing: None,
            tell: Teller { tell, tag },
        };
        let task = tokio::spawn(running.run());
        Ok(Self { words, task })
    }

    /// Somebody proved the code: this attempt, or another way's with `None`. Nobody else
    /// is heard.
    pub(super) fn keep(&self, attempt: Option<Attempt>) {
        // A pairing has fewer words than there is room for.
        let _full = self.words.try_send(attempt);
    }

    /// Waits until what was written is there, or cannot be.
    pub(super) async fn finish(self) {
        drop(self.words);
        let _ended = self.task.await;
    }
}

/// One end of TLS in a mailbox.
struct End {
    tls: Memory,
    /// What the pairing writes, once there is one.
    frames: Option<mpsc::Receiver<Vec<u8>>>,
}

struct Teller<T, F> {
    tell: mpsc::Sender<T>,
    tag: F,
}

impl<T: Send, F: Fn(PostTold) -> T + Send + Sync> Teller<T, F> {
    async fn say(&self, told: PostTold) {
        // Whoever is gone needs to hear nothing.
        let _gone = self.tell.send((self.tag)(told)).await;
    }
}

struct Running<T, F> {
    place: String,
    identity: Identity,
    origin: Instant,
    post: Post,
    ends: BTreeMap<Attempt, End>,
    commands: mpsc::Sender<MailCommand>,
    mail: mpsc::Receiver<MailEvent>,
    connection: Option<u64>,
    /// Since when the mailbox is not reached, and why.
    away: Option<Instant>,
    why: String,
    word: mpsc::Receiver<Option<Attempt>>,
    /// Until when the last pieces may get there.
    finishing: Option<Instant>,
    tell: Teller<T, F>,
}

/// What the task woke up for.
enum Woke {
    Mail(Option<MailEvent>),
    Word(Option<Option<Attempt>>),
    Frame(Attempt, Option<Vec<u8>>),
    Time,
}

impl<T: Send, F: Fn(PostTold) -> T + Send + Sync> Running<T, F> {
    async fn run(mut self) {
        loop {
            self.pump().await;
            if self.is_over() {
                return;
            }
            let deadline = self.deadline();
            let heard = self.finishing.is_none();
            let Self {
                ends,
                post,
                mail,
                word,
                ..
            } = &mut self;
            let woke = tokio::select! {
                event = mail.recv() => Woke::Mail(event),
                said = word.recv(), if heard => Woke::Word(said),
                (attempt, frame) = next_frame(ends, post) => Woke::Frame(attempt, frame),
                () = sleep_until(deadline) => Woke::Time,
            };
            match woke {
                Woke::Mail(Some(event)) => self.handle_mail(event).await,
                // It ends with us and not before.
                Woke::Mail(None) => return,
                Woke::Word(Some(kept)) => self.post.keep(self.now(), kept),
                Woke::Word(None) => self.finish(),
                Woke::Frame(attempt, Some(frame)) => self.handle_frame(attempt, &frame).await,
                Woke::Frame(attempt, None) => {
                    self.ends.remove(&attempt);
                    self.post.leave(attempt);
                }
                Woke::Time => self.handle_time().await,
            }
        }
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn is_over(&self) -> bool {
        let settled = self.ends.is_empty() && self.post.is_idle();
        self.finishing
            .is_some_and(|until| settled || Instant::now() >= until)
    }

    /// Whoever is in between is told that nobody is heard any more.
    fn finish(&mut self) {
        self.finishing = Some(Instant::now() + LINGER);
        self.post.keep(self.now(), None);
        let unmet = self.ends.iter().filter(|(_, end)| end.frames.is_none());
        for attempt in unmet.map(|(attempt, _)| *attempt).collect::<Vec<_>>() {
            self.ends.remove(&attempt);
            self.post.leave(attempt);
        }
    }

    fn deadline(&self) -> Instant {
        let again = self.post.poll_timeout().map(|at| self.origin + at);
        let again = again.filter(|_| self.connection.is_some());
        let away = self.away.filter(|_| !self.ends.is_empty());
        let away = away.map(|since| since + AWAY);
        let all = [again, away, self.finishing].into_iter().flatten();
        all.min().unwrap_or_else(|| Instant::now() + AWAY)
    }

    async fn handle_time(&mut self) {
        if self.away.is_some_and(|since| since.elapsed() >= AWAY) {
            let why = self.why.clone();
            for attempt in self.ends.keys().copied().collect::<Vec<_>>() {
                self.gone(attempt, &why).await;
            }
        }
    }

    async fn handle_mail(&mut self, event: MailEvent) {
        let now = self.now();
        match event {
            MailEvent::Up {
                connection, store, ..
            } => {
                (self.connection, self.away) = (Some(connection), None);
                let from = self.post.handle_up(store);
                let topic = self.post.topic();
                self.command(MailCommand::Follow {
                    connection,
                    topic,
                    from,
                });
            }
            MailEvent::Down { why } => {
                self.connection = None;
                self.post.handle_down();
                self.away.get_or_insert_with(Instant::now);
                self.why = format!("it is not reached: {why}");
                let said = format!("{}: {why}", self.place);
                if self.finishing.is_none() {
                    self.tell.say(PostTold::Away(said)).await;
                }
            }
            MailEvent::Stored { id } => self.post.handle_stored(id),
            MailEvent::Refused { id, refusal } => self.post.handle_refused(now, id, refusal),
            MailEvent::Blob { topic, index, blob } => {
                if topic == self.post.topic() {
                    self.post.handle_blob(index, &blob);
                }
            }
            MailEvent::CaughtUp { .. } => {}
        }
    }

    fn command(&mut self, command: MailCommand) {
        // There is room for all that may be under way; without it the connection is as
        // good as lost.
        if self.commands.try_send(command).is_err() {
            self.connection = None;
            self.away.get_or_insert_with(Instant::now);
        }
    }

    async fn pump(&mut self) {
        while let Some(event) = self.post.poll_event() {
            match event {
                PostEvent::Opened(attempt) => match Memory::host(&self.identity) {
                    Ok(tls) => {
                        self.ends.insert(attempt, End { tls, frames: None });
                    }
                    Err(_) => self.post.leave(attempt),
                },
                PostEvent::Bytes(attempt, bytes) => self.handle_bytes(attempt, &bytes).await,
                PostEvent::Broken(attempt, fault) => self.gone(attempt, &fault.to_string()).await,
                PostEvent::Closed if self.finishing.is_none() => {
                    self.tell.say(PostTold::Closed).await;
                }
                PostEvent::Closed => {}
            }
        }
        let now = self.now();
        while let Some(connection) = self.connection {
            let Some((id, topic, blob)) = self.post.poll_put(now) else {
                break;
            };
            self.command(MailCommand::Put {
                connection,
                id,
                topic,
                blob,
            });
        }
    }

    async fn handle_bytes(&mut self, attempt: Attempt, bytes: &[u8]) {
        let Some(end) = self.ends.get_mut(&attempt) else {
            return;
        };
        let read = end.tls.read(bytes).and_then(|plain| {
            self.post.write(attempt, &end.tls.write(&[])?);
            Ok((plain, end.tls.proved().transpose()?))
        });
        let (plain, proved) = match read {
            Ok(read) => read,
            Err(broken) => return self.gone(attempt, &broken.to_string()).await,
        };
        if let Some(proved) = proved
            && end.frames.is_none()
        {
            let (frames, waiting) = mpsc::channel(1);
            end.frames = Some(waiting);
            let met = PostTold::Met(attempt, proved, Line::Post(frames));
            self.tell.say(met).await;
        }
        if !plain.is_empty() {
            let bytes = IoEvent::Bytes(Bytes::from(plain));
            self.tell.say(PostTold::Io(attempt, bytes)).await;
        }
    }

    async fn handle_frame(&mut self, attempt: Attempt, frame: &[u8]) {
        let Some(end) = self.ends.get_mut(&attempt) else {
            return;
        };
        match end.tls.write(frame) {
            Ok(sealed) => self.post.write(attempt, &sealed),
            Err(broken) => return self.gone(attempt, &broken.to_string()).await,
        }
        if self.finishing.is_none() {
            self.tell.say(PostTold::Io(attempt, IoEvent::Written)).await;
        }
    }

    /// Nothing more comes of an attempt.
    async fn gone(&mut self, attempt: Attempt, why: &str) {
        self.post.leave(attempt);
        if self.ends.remove(&attempt).is_some() && self.finishing.is_none() {
            let gone = IoEvent::Gone(format!("{}: {why}", self.place));
            self.tell.say(PostTold::Io(attempt, gone)).await;
        }
    }
}

/// The next frame that a pairing writes, once all that it wrote before is in the mailbox;
/// `None` where it is over.
async fn next_frame(ends: &mut BTreeMap<Attempt, End>, post: &Post) -> (Attempt, Option<Vec<u8>>) {
    poll_fn(|context| {
        for (attempt, end) in ends.iter_mut() {
            let Some(frames) = end.frames.as_mut().filter(|_| !post.is_behind(*attempt)) else {
                continue;
            };
            if let Poll::Ready(frame) = frames.poll_recv(context) {
                return Poll::Ready((*attempt, frame));
            }
        }
        Poll::Pending
    })
    .await
}
