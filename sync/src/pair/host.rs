//! The device of the account.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bailey_model::AccountId;
use bailey_session::lan::Service;
use bailey_session::pair::{
    Attempt, MAX_WRONG, PairConfig, PairEnd, PairEvent, PairFailure, Pairing, PasswordKind,
    refusal, refusal_of_version_1,
};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::line::{Line, flush};
use super::memory::Proved;
use super::post::{PostConfig, PostTask, PostTold, Side};
use super::{
    DevicePublic, PEOPLE, PairCode, PairError, PairSecret, PairStartError, QUEUE, ShortCode,
    Welcome, WrongStep, exporter, name_fits, random,
};
use crate::accept::{Accepted, Handshakes, Network};
use crate::io::{self, IoEvent, code};
use crate::lan::{Link, Responder};
use crate::mail::MailAddress;
use crate::socket::bind_udp;
use crate::tls::{Identity, Trust, protocol};
use crate::{ALPN_PAIR, ALPN_PAIR_BEFORE};

/// Connections that did not prove the code yet; the next throws out the oldest.
const MAX_GUESTS: usize = 8;
/// Pieces of streams that may wait for the task.
const INTERNAL_QUEUE: usize = 16;
/// How long the last frame may take before the endpoint closes.
const CLOSING: Duration = Duration::from_secs(1);

/// What a pairing host starts from.
#[derive(Clone)]
pub struct PairHostConfig {
    /// Our Ed25519 seed.
    pub ed25519_secret: [u8; 32],
    /// Our public keys.
    pub device: DevicePublic,
    /// Our name, 1 to 64 characters.
    pub name: String,
    /// Where to listen; port 0 is any free one.
    pub listen: SocketAddr,
    /// Our addresses for the code, the likeliest first; at most three are used.
    pub advertise: Vec<IpAddr>,
    /// The mailbox that the long code names.
    pub mailbox: Option<MailAddress>,
    /// Whether there is a short code too.
    pub short: bool,
    /// Where a short code's number is answered for.
    pub links: Vec<Link>,
    /// How long the codes are good for ([`super::VALID_FOR`]).
    pub valid_for: Duration,
}

impl fmt::Debug for PairHostConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PairHostConfig")
            .field("device", &self.device)
            .field("name", &self.name)
            .field("listen", &self.listen)
            .field("advertise", &self.advertise)
            .finish_non_exhaustive()
    }
}

/// What the node tells a pairing host. A command that is not the next step ends
/// the pairing.
#[derive(Debug, Clone)]
pub enum HostCommand {
    /// A person compared the words; `false` ends it.
    Confirm(bool),
    /// After yes: the record that adds the new device.
    Offer {
        /// The account.
        account: AccountId,
        /// The record's bytes.
        record: Vec<u8>,
    },
    /// After the second signature: what the new device needs.
    Welcome(Welcome),
    /// Ends it.
    Cancel,
}

/// What a pairing host tells the node. [`HostEvent::Done`] and
/// [`HostEvent::Failed`] are the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostEvent {
    /// Somebody tried a wrong long code.
    WrongTry {
        /// Tries left before the code is burnt.
        left: u8,
    },
    /// Somebody tried a wrong short code: it is worthless from now on. The long one
    /// is not.
    ShortBurnt,
    /// A device of an earlier release came, and was told so.
    Older,
    /// The code's mailbox is not reached now: which, and why.
    Away(String),
    /// Somebody knew the code: show this; [`HostCommand::Confirm`] follows.
    Words {
        /// To be compared with those on the other screen.
        words: [&'static str; 4],
        /// The new device's keys; the Ed25519 one is that of the connection.
        device: DevicePublic,
        /// Its own word for its name: untrusted text.
        name: String,
        /// Where it is; `None` if it comes through the mailbox.
        remote: Option<SocketAddr>,
    },
    /// The new device's signature over the offered record.
    Cosigned(Vec<u8>),
    /// The new device has what it needs.
    Done,
    /// It ended without success.
    Failed(PairError),
}

/// A pairing that waits for a new device. It ends with the pairing, when the
/// code expires, or when the command sender or the receiver is dropped.
#[derive(Debug)]
pub struct PairHost {
    code: PairCode,
    short: Option<ShortCode>,
    /// Why the short code's number is not answered for in the network, if it is not.
    unfound: Option<String>,
    port: u16,
}

impl PairHost {
    /// Starts one, on the current tokio runtime, with a new secret.
    ///
    /// # Errors
    /// [`PairStartError`].
    pub fn start(
        config: PairHostConfig,
    ) -> Result<(Self, mpsc::Sender<HostCommand>, mpsc::Receiver<HostEvent>), PairStartError> {
        if !name_fits(&config.name) {
            return Err(PairStartError::Name);
        }
        let secret = PairSecret(random().map_err(PairStartError::Entropy)?);
        let identity = Identity::new(&config.ed25519_secret)?;
        let server = identity.server(Trust::Anyone, &[ALPN_PAIR, ALPN_PAIR_BEFORE])?;
        let quic = quinn::Endpoint::new(
            quinn::EndpointConfig::default(),
            Some(server),
            bind_udp(config.listen)?,
            Arc::new(quinn::TokioRuntime),
        )?;
        let port = quic.local_addr()?.port();
        let addrs: Vec<_> = config
            .advertise
            .iter()
            .take(3)
            .map(|ip| SocketAddr::new(*ip, port))
            .collect();
        let code = PairCode::with_mailbox(&addrs, config.mailbox.clone(), secret)?;
        let bytes = config.short.then(random).transpose();
        let short = bytes
            .map_err(PairStartError::Entropy)?
            .map(ShortCode::of_random);
        let responder = short.map(|code| {
            // Nothing changes while the code is good: the sender may go.
            let (_, label) = watch::channel(vec![code.slot().to_string()]);
            Responder::start(&config.links, Service::Pair, &label, port)
        });
        let (responder, unfound) = match responder {
            None => (None, None),
            Some(Ok(responder)) => (Some(responder), None),
            Some(Err(error)) => (None, Some(error.to_string())),
        };
        let (commands, command_rx) = mpsc::channel(QUEUE);
        let (events, event_rx) = mpsc::channel(QUEUE);
        let (tell, told) = mpsc::channel(INTERNAL_QUEUE);
        let post = config.mailbox.clone().map(|mailbox| PostConfig {
            mailbox,
            secret,
            identity,
            side: Side::Host,
        });
        let start = |post| PostTask::start(post, tell.clone(), Internal::Post);
        let post = post.map(start).transpose()?;
        let task = Task {
            deadline: Instant::now() + config.valid_for,
            config,
            secret,
            short,
            responder,
            quic,
            post,
            events,
            tell,
            handshakes: Handshakes::default(),
            guests: BTreeMap::new(),
            last_guest: 0,
            proved: None,
            wrong: 0,
        };
        tokio::spawn(task.run(command_rx, told));
        let host = Self {
            code,
            short,
            unfound,
            port,
        };
        Ok((host, commands, event_rx))
    }

    /// What the person can say aloud.
    #[must_use]
    pub fn short(&self) -> Option<&ShortCode> {
        self.short.as_ref()
    }

    /// Why the short code works with a typed address only, if it does.
    #[must_use]
    pub fn unfound(&self) -> Option<&str> {
        self.unfound.as_deref()
    }

    /// What the person carries to the new device.
    #[must_use]
    pub fn code(&self) -> &PairCode {
        &self.code
    }

    /// The UDP port that it listens on.
    #[must_use]
    pub fn local_port(&self) -> u16 {
        self.port
    }
}

enum Internal {
    Handshake(u64, Option<Box<Accepted>>),
    Io(u64, IoEvent),
    Post(PostTold),
}

struct Guest {
    pairing: Pairing,
    line: Line,
    /// Of whom comes through the mailbox.
    attempt: Option<Attempt>,
}

/// The task goes on, or ends with this.
type Step = Result<(), Result<(), PairError>>;

struct Task {
    config: PairHostConfig,
    secret: PairSecret,
    /// Until it is burnt.
    short: Option<ShortCode>,
    responder: Option<Responder>,
    quic: quinn::Endpoint,
    post: Option<PostTask>,
    events: mpsc::Sender<HostEvent>,
    tell: mpsc::Sender<Internal>,
    handshakes: Handshakes,
    /// Oldest first.
    guests: BTreeMap<u64, Guest>,
    last_guest: u64,
    /// Who proved the code: the only one from then on.
    proved: Option<u64>,
    wrong: u8,
    deadline: Instant,
}

impl Task {
    async fn run(
        mut self,
        mut commands: mpsc::Receiver<HostCommand>,
        mut told: mpsc::Receiver<Internal>,
    ) {
        let end = loop {
            let step = tokio::select! {
                () = sleep_until(self.deadline) => Err(Err(PairError::Expired)),
                () = self.events.closed() => break None,
                command = commands.recv() => self.handle_command(command),
                told = told.recv() => match told {
                    Some(told) => self.handle_internal(told),
                    None => Ok(()),
                },
                incoming = self.quic.accept() => match incoming {
                    None => Err(Err(PairError::Lost("the socket failed".to_owned()))),
                    Some(incoming) => {
                        self.handle_incoming(incoming);
                        Ok(())
                    }
                },
            };
            let step = match step {
                Ok(()) => self.pump().await,
                Err(end) => Err(end),
            };
            if let Err(end) = step {
                break Some(end);
            }
        };
        if let Some(end) = end {
            let event = match end {
                Ok(()) => HostEvent::Done,
                Err(error) => HostEvent::Failed(error),
            };
            // The node may be gone; then nobody needs to hear it.
            let _ = self.events.send(event).await;
        }
        // Last frames go out before the writers close their connections.
        for (_, mut guest) in std::mem::take(&mut self.guests) {
            guest.pairing.cancel();
            flush(&mut guest.pairing, &guest.line);
        }
        // What goes through the mailbox goes on by itself for a while.
        drop(self.post);
        drop(self.handshakes);
        let _ = timeout(CLOSING, self.quic.wait_idle()).await;
        self.quic.close(code::LEAVING, b"");
    }

    fn handle_incoming(&mut self, incoming: quinn::Incoming) {
        if self.proved.is_some() {
            return incoming.refuse();
        }
        let network = Network::of_incoming(&incoming, |_| false);
        self.handshakes
            .take_up(incoming, network, self.tell.clone(), Internal::Handshake);
    }

    fn handle_command(&mut self, command: Option<HostCommand>) -> Step {
        let guest = self.proved.and_then(|id| self.guests.get_mut(&id));
        let Some(command) = command else {
            return Err(Err(PairFailure::CancelledHere.into()));
        };
        let done = match (command, guest) {
            (HostCommand::Cancel, _) => {
                return Err(Err(PairFailure::CancelledHere.into()));
            }
            (_, None) => Err(WrongStep),
            (HostCommand::Confirm(same), Some(guest)) => guest.pairing.confirm(same),
            (HostCommand::Offer { account, record }, Some(guest)) => {
                guest.pairing.offer(account, record)
            }
            (HostCommand::Welcome(welcome), Some(guest)) => guest.pairing.welcome(welcome),
        };
        done.map_err(|step| Err(step.into()))
    }

    fn handle_internal(&mut self, told: Internal) -> Step {
        match told {
            Internal::Handshake(id, accepted) => {
                if self.handshakes.over(id)
                    && let Some(accepted) = accepted
                {
                    return self.greet(*accepted);
                }
            }
            Internal::Io(id, event) => return self.handle_io(id, event),
            Internal::Post(PostTold::Met(attempt, proved, line)) => {
                if self.proved.is_none() {
                    self.last_guest += 1;
                    self.admit(self.last_guest, proved, line, Some(attempt));
                }
            }
            Internal::Post(PostTold::Io(attempt, event)) => {
                let mut guests = self.guests.iter();
                let guest = guests.find(|(_, guest)| guest.attempt == Some(attempt));
                if let Some((&id, _)) = guest {
                    return self.handle_io(id, event);
                }
            }
            Internal::Post(PostTold::Away(why)) => {
                // Nobody who takes no events needs this one.
                let _full = self.events.try_send(HostEvent::Away(why));
            }
            // Said to a joiner alone.
            Internal::Post(PostTold::Closed) => {}
        }
        Ok(())
    }

    fn handle_io(&mut self, id: u64, event: IoEvent) -> Step {
        match event {
            IoEvent::Bytes(bytes) => {
                if let Some(guest) = self.guests.get_mut(&id) {
                    guest.pairing.handle_bytes(&bytes);
                }
            }
            IoEvent::Written => {}
            IoEvent::Gone(why) => {
                let gone = self.guests.remove(&id).filter(|_| self.proved == Some(id));
                return match gone {
                    None => Ok(()),
                    Some(guest) if guest.attempt.is_some() => Err(Err(PairError::ByMailbox(why))),
                    Some(_) => Err(Err(PairError::Lost(why))),
                };
            }
        }
        Ok(())
    }

    fn greet(&mut self, accepted: Accepted) -> Step {
        let Accepted {
            connection,
            key,
            send,
            recv,
        } = accepted;
        self.last_guest += 1;
        let id = self.last_guest;
        let tag = move |event| Internal::Io(id, event);
        if protocol(&connection).as_deref() != Some(ALPN_PAIR) {
            let writer = io::start(connection, send, recv, self.tell.clone(), tag);
            if let Some(room) = writer.room() {
                room.send(refusal_of_version_1());
            }
            // Nobody who takes no events needs this one.
            let _full = self.events.try_send(HostEvent::Older);
            return Ok(());
        }
        let exporter = exporter(&connection).filter(|_| self.proved.is_none());
        let Some(exporter) = exporter else {
            connection.close(code::REFUSED, b"");
            return Ok(());
        };
        let writer = io::start(connection, send, recv, self.tell.clone(), tag);
        self.admit(id, Proved { key, exporter }, Line::Direct(writer), None);
        Ok(())
    }

    /// Another guest, whose handshake is over. A short code does not go through a
    /// mailbox.
    fn admit(&mut self, id: u64, proved: Proved, line: Line, attempt: Option<Attempt>) {
        let pairing = random().ok().and_then(|entropy| {
            let config = PairConfig {
                end: PairEnd::Host {
                    long: self.secret,
                    short: self.short.filter(|_| attempt.is_none()),
                },
                exporter: proved.exporter,
                peer_key: proved.key,
                device: self.config.device,
                name: self.config.name.clone(),
                entropy,
            };
            Pairing::new(config).ok()
        });
        // Without one the connection ends with its line.
        let Some(pairing) = pairing else { return };
        if self.guests.len() >= MAX_GUESTS {
            self.guests.pop_first();
        }
        let guest = Guest {
            pairing,
            line,
            attempt,
        };
        self.guests.insert(id, guest);
    }

    /// One guess was made: whoever is at another is refused.
    fn burn_short(&mut self) {
        self.short = None;
        self.responder = None;
        for guest in self.guests.values_mut() {
            guest.pairing.burn_short();
            flush(&mut guest.pairing, &guest.line);
        }
    }

    /// Takes what the guests say; those that are over leave.
    async fn pump(&mut self) -> Step {
        let ids: Vec<u64> = self.guests.keys().copied().collect();
        for id in ids {
            while let Some(event) = self
                .guests
                .get_mut(&id)
                .and_then(|g| g.pairing.poll_event())
            {
                self.handle_event(id, event).await?;
            }
            if let Some(guest) = self.guests.get_mut(&id) {
                flush(&mut guest.pairing, &guest.line);
                if guest.pairing.is_over() && self.proved != Some(id) {
                    self.guests.remove(&id);
                }
            }
        }
        Ok(())
    }

    fn kind_of(&self, id: u64) -> Option<PasswordKind> {
        self.guests.get(&id)?.pairing.kind()
    }

    async fn handle_event(&mut self, id: u64, event: PairEvent) -> Step {
        let event = match event {
            PairEvent::Proved => {
                self.proved = Some(id);
                self.responder = None;
                self.deadline = Instant::now() + PEOPLE;
                if let Some(post) = &self.post {
                    post.keep(self.guests.get(&id).and_then(|guest| guest.attempt));
                }
                for (other, mut guest) in std::mem::take(&mut self.guests) {
                    if other == id {
                        self.guests.insert(other, guest);
                    } else if let Some(room) = guest.line.room() {
                        guest.pairing.cancel();
                        room.send(refusal());
                    }
                }
                return Ok(());
            }
            PairEvent::Words {
                words,
                device,
                name,
            } => {
                let Some(guest) = self.guests.get(&id) else {
                    return Ok(());
                };
                let remote = guest.line.remote();
                HostEvent::Words {
                    words,
                    device,
                    name,
                    remote,
                }
            }
            PairEvent::Cosigned(cosignature) => HostEvent::Cosigned(cosignature),
            PairEvent::Done => return Err(Ok(())),
            PairEvent::Failed(failure) if self.proved == Some(id) => {
                return Err(Err(failure.into()));
            }
            PairEvent::Failed(PairFailure::WrongCode)
                if self.kind_of(id) == Some(PasswordKind::Short) =>
            {
                // Through the mailbox there is none that could be guessed.
                let mailed = self.guests.get(&id).is_some_and(|it| it.attempt.is_some());
                if self.short.is_none() || mailed {
                    return Ok(());
                }
                self.burn_short();
                HostEvent::ShortBurnt
            }
            PairEvent::Failed(PairFailure::WrongCode) => {
                self.wrong += 1;
                if self.wrong >= MAX_WRONG {
                    return Err(Err(PairError::Burnt));
                }
                HostEvent::WrongTry {
                    left: MAX_WRONG - self.wrong,
                }
            }
            // Said by guests that proved nothing, or by the joining side only.
            PairEvent::Failed(_) | PairEvent::Offer { .. } | PairEvent::Welcome(_) => {
                return Ok(());
            }
        };
        let sent = self.events.send(event).await;
        sent.map_err(|_| Err(PairFailure::CancelledHere.into()))
    }
}
