//! The new device.

use std::collections::VecDeque;
use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bailey_model::AccountId;
use bailey_session::lan::{Asked, Service};
use bailey_session::pair::{
    Attempt, PairConfig, PairEnd, PairEvent, PairFailure, PairSecret, Pairing,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::line::{Line, flush};
use super::memory::Proved;
use super::post::{PostConfig, PostTask, PostTold, Side};
use super::{
    AnyCode, DevicePublic, PEOPLE, PairCode, PairError, PairStartError, QUEUE, Welcome, WrongStep,
    exporter, name_fits, random,
};
use crate::endpoint::dial::{Dialled, dial};
use crate::io::{self, IoEvent, code};
use crate::lan::{Link, find};
use crate::mail::MailAddress;
use crate::socket::bind_udp;
use crate::tls::{Identity, Trust, peer_key, protocol};
use crate::{ALPN_PAIR, ALPN_PAIR_BEFORE, HANDSHAKE_TIMEOUT};

/// How long the host may take from the connection to its proof.
const PROOF: Duration = HANDSHAKE_TIMEOUT;
/// How long a host may take to its proof through a mailbox: some ten blobs, one after the
/// other.
const MAILBOX_PROOF: Duration = Duration::from_secs(if cfg!(test) { 9 } else { 45 });
/// The mailbox is tried this long after the addresses, unless one of them has led to the
/// host by then, or none can.
const MAILBOX_AFTER: Duration = Duration::from_secs(2);
/// How long the local network is asked for the device that shows a short code.
const SEARCH: Duration = Duration::from_secs(10);
/// Addresses that are tried of those that answer for a short code.
const MAX_FOUND: usize = 8;
/// How long the last frame may take before the endpoint closes.
const CLOSING: Duration = Duration::from_secs(1);

/// What joining starts from.
#[derive(Clone)]
pub struct JoinConfig {
    /// Our Ed25519 seed.
    pub ed25519_secret: [u8; 32],
    /// Our public keys.
    pub device: DevicePublic,
    /// Our name, 1 to 64 characters.
    pub name: String,
    /// The code that the person typed.
    pub code: AnyCode,
    /// Addresses that the person typed; tried before the code's own, and in the
    /// place of a search.
    pub addrs: Vec<SocketAddr>,
    /// Where the device that shows a short code is searched for.
    pub links: Vec<Link>,
}

impl fmt::Debug for JoinConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinConfig")
            .field("device", &self.device)
            .field("name", &self.name)
            .field("code", &self.code)
            .finish_non_exhaustive()
    }
}

/// What the node tells a joining side.
#[derive(Debug, Clone)]
pub enum JoinCommand {
    /// Our signature over the offered record.
    Cosign(Vec<u8>),
    /// Ends it.
    Cancel,
}

/// What a joining side tells the node. [`JoinEvent::Done`] and
/// [`JoinEvent::Failed`] are the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JoinEvent {
    /// The host knows the code too: show this, to be compared on the host.
    Words {
        /// To be compared with those on the other screen.
        words: [&'static str; 4],
        /// The host's keys; the Ed25519 one is that of the connection.
        device: DevicePublic,
        /// Its own word for its name: untrusted text.
        name: String,
    },
    /// Sign this record; [`JoinCommand::Cosign`] follows.
    Offer {
        /// The account.
        account: AccountId,
        /// The record that adds us.
        record: Vec<u8>,
    },
    /// We are of the account.
    Welcome {
        /// What the host gave.
        welcome: Welcome,
        /// Where the host is, with the port of its sessions; `None` if the two met in
        /// the mailbox.
        host: Option<SocketAddr>,
    },
    /// It is complete.
    Done,
    /// It ended without success.
    Failed(PairError),
}

/// Joins by a code, on the current tokio runtime. It ends with the pairing, or
/// when the command sender or the receiver is dropped.
///
/// The addresses are tried one after the other: those of a long code until one knows
/// it, those that answer for a short one until one speaks the protocol. Where the code
/// names a mailbox, it is tried beside them unless one of them was quick.
///
/// # Errors
/// [`PairStartError`].
pub fn join(
    config: JoinConfig,
) -> Result<(mpsc::Sender<JoinCommand>, mpsc::Receiver<JoinEvent>), PairStartError> {
    if !name_fits(&config.name) {
        return Err(PairStartError::Name);
    }
    let identity = Identity::new(&config.ed25519_secret)?;
    let client = identity.client(Trust::Anyone, &[ALPN_PAIR, ALPN_PAIR_BEFORE])?;
    let quic = quinn::Endpoint::new(
        quinn::EndpointConfig::default(),
        None,
        bind_udp(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0))?,
        Arc::new(quinn::TokioRuntime),
    )?;
    let (commands, command_rx) = mpsc::channel(QUEUE);
    let (events, event_rx) = mpsc::channel(QUEUE);
    let joining = Joining {
        config,
        identity,
        client,
        quic,
    };
    tokio::spawn(joining.run(command_rx, events));
    Ok((commands, event_rx))
}

struct Joining {
    config: JoinConfig,
    identity: Identity,
    client: quinn::ClientConfig,
    quic: quinn::Endpoint,
}

/// A host that knows the code.
struct Proven {
    pairing: Pairing,
    line: Line,
    told: mpsc::Receiver<PostTold>,
    /// Of a way through the mailbox.
    post: Option<PostTask>,
    words: JoinEvent,
}

impl Joining {
    async fn run(self, mut commands: mpsc::Receiver<JoinCommand>, events: mpsc::Sender<JoinEvent>) {
        let found = tokio::select! {
            () = events.closed() => return,
            command = commands.recv() => Err(match command {
                Some(JoinCommand::Cosign(_)) => WrongStep.into(),
                Some(JoinCommand::Cancel) | None => PairFailure::CancelledHere.into(),
            }),
            found = self.find() => found,
        };
        let end = match found {
            Ok(proven) => proven.talk(&mut commands, &events).await,
            Err(error) => Err(error),
        };
        let event = match end {
            Ok(()) => JoinEvent::Done,
            Err(error) => JoinEvent::Failed(error),
        };
        // The node may be gone; then nobody needs to hear it.
        let _ = events.send(event).await;
        let _ = timeout(CLOSING, self.quic.wait_idle()).await;
        self.quic.close(code::LEAVING, b"");
    }

    /// By the addresses, and through the mailbox: whichever comes to the proof first.
    async fn find(&self) -> Result<Proven, PairError> {
        let long = match &self.config.code {
            AnyCode::Long(code) => Some(code),
            AnyCode::Short(_) => None,
        };
        let named = long.and_then(|code| Some((code.mailbox()?, code.secret())));
        let Some((mailbox, secret)) = named else {
            return self.by_address().await;
        };
        let addressed = !self.config.addrs.is_empty() || long.is_some_and(PairCode::is_addressed);
        if !addressed {
            return self.by_mailbox(mailbox, secret).await;
        }
        let mut direct = pin!(self.by_address());
        // The mailbox hears of it only where the addresses take their time.
        match timeout(MAILBOX_AFTER, &mut direct).await {
            Ok(Ok(proven)) => return Ok(proven),
            Ok(Err(error)) => {
                let by_mailbox = self.by_mailbox(mailbox, secret).await;
                return by_mailbox.map_err(|other| neither(error, other));
            }
            Err(_) => {}
        }
        let mut by_mailbox = pin!(self.by_mailbox(mailbox, secret));
        tokio::select! {
            found = &mut direct => match found {
                Ok(proven) => Ok(proven),
                Err(error) => by_mailbox.await.map_err(|other| neither(error, other)),
            },
            found = &mut by_mailbox => match found {
                Ok(proven) => Ok(proven),
                // The code is over, or the host goes on with us by an address: then its
                // proof is on its way.
                Err(closed) if closed == PairFailure::WrongCode.into() => {
                    match timeout(PROOF, direct).await {
                        Ok(found) => found.map_err(|error| neither(error, closed)),
                        Err(_) => Err(closed),
                    }
                }
                Err(other) => direct.await.map_err(|error| neither(error, other)),
            },
        }
    }

    async fn by_address(&self) -> Result<Proven, PairError> {
        let (mut places, none) = Places::of(&self.config)?;
        let mut end = none;
        while let Some(addr) = places.next().await {
            let dialled = dial(self.quic.clone(), self.client.clone(), vec![addr]).await;
            let Some(dialled) = dialled else { continue };
            if protocol(&dialled.connection).as_deref() != Some(ALPN_PAIR) {
                return Err(PairFailure::Version.into());
            }
            end = match self.prove_to(dialled).await {
                Ok(proven) => return Ok(proven),
                Err(error) => error,
            };
            // Another machine may have the first address of a long code in our network.
            // With a short one each is a guess for whoever answers: there is but one.
            let long = matches!(self.config.code, AnyCode::Long(_));
            if !long || end != PairFailure::WrongCode.into() {
                break;
            }
        }
        Err(end)
    }

    async fn prove_to(&self, dialled: Dialled) -> Result<Proven, PairError> {
        let Dialled {
            connection,
            send,
            recv,
        } = dialled;
        let proved = match (peer_key(&connection), exporter(&connection)) {
            (Some(key), Some(exporter)) => Proved { key, exporter },
            _ => return Err(PairError::Lost("it proved no key".to_owned())),
        };
        let (tell, mut told) = mpsc::channel(QUEUE);
        let tag = |event| PostTold::Io(Attempt([0; 16]), event);
        let line = Line::Direct(io::start(connection, send, recv, tell, tag));
        let mut pairing = self.pairing(proved)?;
        let words = timeout(PROOF, prove(&mut pairing, &line, &mut told)).await;
        if !matches!(words, Ok(Ok(_))) {
            pairing.cancel();
            flush(&mut pairing, &line);
        }
        Ok(Proven {
            words: words.map_err(|_| PairError::Expired)??,
            pairing,
            line,
            told,
            post: None,
        })
    }

    async fn by_mailbox(
        &self,
        mailbox: &MailAddress,
        secret: PairSecret,
    ) -> Result<Proven, PairError> {
        let place = mailbox.place();
        let lost = |why: &dyn fmt::Display| PairError::ByMailbox(format!("{place}: {why}"));
        let (tell, mut told) = mpsc::channel(QUEUE);
        let post = PostConfig {
            mailbox: mailbox.clone(),
            secret,
            identity: self.identity.clone(),
            side: Side::Joiner,
        };
        let post = PostTask::start(post, tell, |told| told).map_err(|error| lost(&error))?;
        let until = Instant::now() + MAILBOX_PROOF;
        let silent = |_| lost(&"nobody answers there; the code may be used or expired");
        let met = timeout_at(until, met(&mut told)).await;
        let (attempt, proved, line) = met.map_err(silent)??;
        let mut pairing = self.pairing(proved)?;
        let words = timeout_at(until, prove(&mut pairing, &line, &mut told)).await;
        if !matches!(words, Ok(Ok(_))) {
            pairing.cancel();
            flush(&mut pairing, &line);
        }
        let words = words.map_err(silent)??;
        post.keep(Some(attempt));
        Ok(Proven {
            pairing,
            line,
            told,
            post: Some(post),
            words,
        })
    }

    fn pairing(&self, proved: Proved) -> Result<Pairing, PairError> {
        let entropy = random().map_err(|_| PairError::Lost("no random bytes".to_owned()))?;
        Ok(Pairing::new(PairConfig {
            end: PairEnd::Joiner(self.config.code.password()),
            exporter: proved.exporter,
            peer_key: proved.key,
            device: self.config.device,
            name: self.config.name.clone(),
            entropy,
        })?)
    }
}

fn neither(direct: PairError, by_mailbox: PairError) -> PairError {
    PairError::Neither(Box::new(direct), Box::new(by_mailbox))
}

/// What an event of a line's end means.
fn lost(line: &Line, why: String) -> PairError {
    match line {
        Line::Direct(_) => PairError::Lost(why),
        Line::Post(_) => PairError::ByMailbox(why),
    }
}

/// Until somebody who has the code is at the other end of a mailbox.
async fn met(told: &mut mpsc::Receiver<PostTold>) -> Result<(Attempt, Proved, Line), PairError> {
    loop {
        match told.recv().await {
            Some(PostTold::Met(attempt, proved, line)) => return Ok((attempt, proved, line)),
            Some(PostTold::Io(_, IoEvent::Gone(why))) => return Err(PairError::ByMailbox(why)),
            Some(PostTold::Closed) => return Err(PairFailure::WrongCode.into()),
            Some(PostTold::Io(..) | PostTold::Away(_)) => {}
            None => return Err(PairError::Lost("its task ended".to_owned())),
        }
    }
}

/// Up to the words: the host knows the code too.
async fn prove(
    pairing: &mut Pairing,
    line: &Line,
    told: &mut mpsc::Receiver<PostTold>,
) -> Result<JoinEvent, PairError> {
    loop {
        flush(pairing, line);
        match told.recv().await {
            Some(PostTold::Io(_, IoEvent::Bytes(bytes))) => pairing.handle_bytes(&bytes),
            Some(PostTold::Io(_, IoEvent::Gone(why))) => return Err(lost(line, why)),
            Some(PostTold::Closed) => return Err(PairFailure::WrongCode.into()),
            Some(_) => {}
            None => return Err(PairError::Lost("the connection's task ended".to_owned())),
        }
        match pairing.poll_event() {
            Some(PairEvent::Words {
                words,
                device,
                name,
            }) => {
                flush(pairing, line);
                return Ok(JoinEvent::Words {
                    words,
                    device,
                    name,
                });
            }
            Some(PairEvent::Failed(failure)) => return Err(failure.into()),
            _ => {}
        }
    }
}

impl Proven {
    /// From the words to the end.
    async fn talk(
        mut self,
        commands: &mut mpsc::Receiver<JoinCommand>,
        events: &mpsc::Sender<JoinEvent>,
    ) -> Result<(), PairError> {
        let end = self.steps(commands, events).await;
        if end.is_err() {
            self.pairing.cancel();
        }
        flush(&mut self.pairing, &self.line);
        let Self {
            line, told, post, ..
        } = self;
        drop((line, told));
        // The last frame is there before anybody hears that it is complete.
        if let Some(post) = post.filter(|_| end.is_ok()) {
            post.finish().await;
        }
        end
    }

    async fn steps(
        &mut self,
        commands: &mut mpsc::Receiver<JoinCommand>,
        events: &mpsc::Sender<JoinEvent>,
    ) -> Result<(), PairError> {
        let tell = async |event| {
            let sent = events.send(event).await;
            sent.map_err(|_| PairError::from(PairFailure::CancelledHere))
        };
        tell(self.words.clone()).await?;
        let deadline = Instant::now() + PEOPLE;
        loop {
            while let Some(event) = self.pairing.poll_event() {
                tell(match event {
                    PairEvent::Offer { account, record } => JoinEvent::Offer { account, record },
                    PairEvent::Welcome(welcome) => {
                        let remote = self.line.remote();
                        let at =
                            |addr: SocketAddr| SocketAddr::new(addr.ip(), welcome.session_port);
                        let host = remote.map(at);
                        JoinEvent::Welcome { welcome, host }
                    }
                    PairEvent::Done => return Ok(()),
                    PairEvent::Failed(failure) => return Err(failure.into()),
                    PairEvent::Words { .. } | PairEvent::Proved | PairEvent::Cosigned(_) => {
                        continue;
                    }
                })
                .await?;
            }
            flush(&mut self.pairing, &self.line);
            tokio::select! {
                () = sleep_until(deadline) => return Err(PairError::Expired),
                () = events.closed() => return Err(PairFailure::CancelledHere.into()),
                command = commands.recv() => match command {
                    Some(JoinCommand::Cosign(cosignature)) => self.pairing.cosign(cosignature)?,
                    Some(JoinCommand::Cancel) | None => {
                        return Err(PairFailure::CancelledHere.into());
                    }
                },
                event = self.told.recv() => match event {
                    Some(PostTold::Io(_, IoEvent::Bytes(bytes))) => {
                        self.pairing.handle_bytes(&bytes);
                    }
                    Some(PostTold::Io(_, IoEvent::Gone(why))) => return Err(lost(&self.line, why)),
                    Some(_) => {}
                    None => return Err(PairError::Lost("the connection's task ended".to_owned())),
                },
            }
        }
    }
}

/// Where the host may be.
enum Places {
    Known(VecDeque<SocketAddr>),
    Search {
        found: mpsc::Receiver<SocketAddr>,
        tried: Vec<SocketAddr>,
    },
}

impl Places {
    /// With what is to be said if none of them answers.
    fn of(config: &JoinConfig) -> Result<(Self, PairError), PairError> {
        let mut known: VecDeque<_> = config.addrs.iter().copied().collect();
        let short = match &config.code {
            AnyCode::Short(code) if known.is_empty() => *code,
            AnyCode::Short(_) => return Ok(Self::known(known)),
            AnyCode::Long(code) => {
                known.extend(code.addrs());
                return Ok(Self::known(known));
            }
        };
        let no_network = |why: &dyn fmt::Display| PairError::NoNetwork(why.to_string());
        let id = random().map_err(|error| no_network(&error))?;
        let asked = Asked {
            id: u16::from_be_bytes(id),
            service: Service::Pair,
            label: short.slot().to_string(),
        };
        let until = Instant::now() + SEARCH;
        let found = find(&config.links, &asked, until).map_err(|error| no_network(&error))?;
        let search = Self::Search {
            found,
            tried: Vec::new(),
        };
        Ok((search, PairError::NotFound(short.slot())))
    }

    fn known(addrs: VecDeque<SocketAddr>) -> (Self, PairError) {
        let text: Vec<String> = addrs.iter().map(ToString::to_string).collect();
        let unreachable = PairError::Unreachable(text.join(", "));
        (Self::Known(addrs), unreachable)
    }

    async fn next(&mut self) -> Option<SocketAddr> {
        match self {
            Self::Known(addrs) => addrs.pop_front(),
            Self::Search { found, tried } => loop {
                let addr = found.recv().await?;
                if tried.len() >= MAX_FOUND {
                    return None;
                }
                if !tried.contains(&addr) {
                    tried.push(addr);
                    return Some(addr);
                }
            },
        }
    }
}
