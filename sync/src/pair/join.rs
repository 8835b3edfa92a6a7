//! The new device.

use std::collections::VecDeque;
use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bailey_model::AccountId;
use bailey_session::lan::{Asked, Service};
use bailey_session::pair::{PairConfig, PairEnd, PairEvent, PairFailure, Pairing};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::{
    AnyCode, DevicePublic, PEOPLE, PairError, PairStartError, QUEUE, Welcome, exporter, name_fits,
    random,
};
use crate::endpoint::dial::{Dialled, dial};
use crate::io::{self, IoEvent, Writer, code};
use crate::lan::{Link, find};
use crate::socket::bind_udp;
use crate::tls::{Identity, Trust, peer_key, protocol};
use crate::{ALPN_PAIR, ALPN_PAIR_BEFORE, HANDSHAKE_TIMEOUT};

/// How long the host may take from the connection to its proof.
const PROOF: Duration = HANDSHAKE_TIMEOUT;
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
        /// Where the host is, with the port of its sessions.
        host: SocketAddr,
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
/// it, those that answer for a short one until one speaks the protocol.
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
    tokio::spawn(run(config, client, quic, command_rx, events));
    Ok((commands, event_rx))
}

async fn run(
    config: JoinConfig,
    client: quinn::ClientConfig,
    quic: quinn::Endpoint,
    mut commands: mpsc::Receiver<JoinCommand>,
    events: mpsc::Sender<JoinEvent>,
) {
    let (mut places, none) = match Places::of(&config) {
        Ok(places) => places,
        Err(error) => {
            let _gone = events.send(JoinEvent::Failed(error)).await;
            return;
        }
    };
    let mut end = Err(none);
    loop {
        let addr = tokio::select! {
            () = events.closed() => return,
            addr = places.next() => addr,
        };
        let Some(addr) = addr else { break };
        let dialled = tokio::select! {
            () = events.closed() => return,
            dialled = dial(quic.clone(), client.clone(), vec![addr]) => dialled,
        };
        let Some(dialled) = dialled else { continue };
        if protocol(&dialled.connection).as_deref() != Some(ALPN_PAIR) {
            end = Err(PairFailure::Version.into());
            break;
        }
        let attempt = Attempt {
            config: &config,
            addr,
            events: &events,
            words: false,
        };
        let (tried, words) = attempt.run(dialled, &mut commands).await;
        end = tried;
        // Another machine may have the first address of a long code in our network.
        // With a short one each is a guess for whoever answers: there is but one.
        let next =
            matches!(config.code, AnyCode::Long(_)) && end == Err(PairFailure::WrongCode.into());
        if words || !next {
            break;
        }
    }
    let event = match end {
        Ok(()) => JoinEvent::Done,
        Err(error) => JoinEvent::Failed(error),
    };
    // The node may be gone; then nobody needs to hear it.
    let _ = events.send(event).await;
    let _ = timeout(CLOSING, quic.wait_idle()).await;
    quic.close(code::LEAVING, b"");
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

struct Attempt<'a> {
    config: &'a JoinConfig,
    addr: SocketAddr,
    events: &'a mpsc::Sender<JoinEvent>,
    words: bool,
}

impl Attempt<'_> {
    /// Goes through one connection; says also whether it came to the words.
    async fn run(
        mut self,
        dialled: Dialled,
        commands: &mut mpsc::Receiver<JoinCommand>,
    ) -> (Result<(), PairError>, bool) {
        let Dialled {
            connection,
            send,
            recv,
        } = dialled;
        let pairing = match (peer_key(&connection), exporter(&connection), random()) {
            (Some(peer_key), Some(exporter), Ok(entropy)) => Pairing::new(PairConfig {
                end: PairEnd::Joiner(self.config.code.password()),
                exporter,
                peer_key,
                device: self.config.device,
                name: self.config.name.clone(),
                entropy,
            }),
            _ => return (Err(PairError::Lost("no random bytes".to_owned())), false),
        };
        let mut pairing = match pairing {
            Ok(pairing) => pairing,
            Err(step) => return (Err(step.into()), false),
        };
        let (tell, mut told) = mpsc::channel(QUEUE);
        let writer = io::start(connection, send, recv, tell, |event| event);
        let end = self.talk(&mut pairing, &writer, &mut told, commands).await;
        if end.is_err() {
            pairing.cancel();
        }
        flush(&mut pairing, &writer);
        (end, self.words)
    }

    async fn talk(
        &mut self,
        pairing: &mut Pairing,
        writer: &Writer,
        told: &mut mpsc::Receiver<IoEvent>,
        commands: &mut mpsc::Receiver<JoinCommand>,
    ) -> Result<(), PairError> {
        let mut deadline = Instant::now() + PROOF;
        loop {
            flush(pairing, writer);
            tokio::select! {
                () = sleep_until(deadline) => return Err(PairError::Expired),
                () = self.events.closed() => return Err(PairFailure::CancelledHere.into()),
                command = commands.recv() => match command {
                    Some(JoinCommand::Cosign(cosignature)) => pairing.cosign(cosignature)?,
                    Some(JoinCommand::Cancel) | None => {
                        return Err(PairFailure::CancelledHere.into());
                    }
                },
                event = told.recv() => match event {
                    Some(IoEvent::Bytes(bytes)) => pairing.handle_bytes(&bytes),
                    Some(IoEvent::Written) => {}
                    Some(IoEvent::Gone(why)) => return Err(PairError::Lost(why)),
                    None => return Err(PairError::Lost("the connection's task ended".to_owned())),
                },
            }
            while let Some(event) = pairing.poll_event() {
                let event = match event {
                    PairEvent::Words {
                        words,
                        device,
                        name,
                    } => {
                        self.words = true;
                        deadline = Instant::now() + PEOPLE;
                        JoinEvent::Words {
                            words,
                            device,
                            name,
                        }
                    }
                    PairEvent::Offer { account, record } => JoinEvent::Offer { account, record },
                    PairEvent::Welcome(welcome) => {
                        let host = SocketAddr::new(self.addr.ip(), welcome.session_port);
                        JoinEvent::Welcome { welcome, host }
                    }
                    PairEvent::Done => return Ok(()),
                    PairEvent::Failed(failure) => return Err(failure.into()),
                    PairEvent::Proved | PairEvent::Cosigned(_) => continue,
                };
                if self.events.send(event).await.is_err() {
                    return Err(PairFailure::CancelledHere.into());
                }
            }
        }
    }
}

fn flush(pairing: &mut Pairing, writer: &Writer) {
    while let Some(room) = writer.room() {
        let Some(frame) = pairing.poll_transmit() else {
            break;
        };
        room.send(frame);
    }
}
