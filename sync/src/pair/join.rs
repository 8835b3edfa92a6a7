//! The new device.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bailey_model::AccountId;
use bailey_session::pair::{PairConfig, PairEvent, PairFailure, Pairing, Role};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::{
    DevicePublic, PEOPLE, PairCode, PairError, PairStartError, QUEUE, Welcome, exporter, name_fits,
    random,
};
use crate::endpoint::dial::{Dialled, dial};
use crate::io::{self, IoEvent, Writer, code};
use crate::socket::bind_udp;
use crate::tls::{Identity, Trust, peer_key};
use crate::{ALPN_PAIR, HANDSHAKE_TIMEOUT};

/// How long the host may take from the connection to its proof.
const PROOF: Duration = HANDSHAKE_TIMEOUT;
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
    pub code: PairCode,
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
/// The code's addresses are tried one after the other until one knows the code.
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
    let client = identity.client(Trust::Anyone, ALPN_PAIR)?;
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
    let addrs = config.code.addrs();
    let text = addrs
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    let mut end = Err(PairError::Unreachable(text));
    for addr in addrs {
        let dialled = tokio::select! {
            () = events.closed() => return,
            dialled = dial(quic.clone(), client.clone(), vec![*addr]) => dialled,
        };
        let Some(dialled) = dialled else { continue };
        let attempt = Attempt {
            config: &config,
            addr: *addr,
            events: &events,
            words: false,
        };
        let (tried, words) = attempt.run(dialled, &mut commands).await;
        end = tried;
        // Another machine may have the first address of the code in our network.
        if words || end != Err(PairFailure::WrongCode.into()) {
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
            (Some(peer_key), Some(exporter), Ok(nonce)) => Pairing::new(PairConfig {
                role: Role::Joiner,
                secret: self.config.code.secret(),
                exporter,
                peer_key,
                device: self.config.device,
                name: self.config.name.clone(),
                nonce,
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
