//! A device's end: one task that keeps one connection to one mailbox.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bailey_envelope::TopicId;
use bailey_session::CloseReason;
use bailey_session::mail::{MailClient, MailClientEvent, Refusal};
use tokio::net::lookup_host;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::MailAddress;
use crate::endpoint::dial::{Dialled, dial};
use crate::io::{self, IoEvent, Writer, code};
use crate::links::{Here, Links};
use crate::socket::bind_udp;
use crate::tls::{Identity, Trust};
use crate::{ALPN_MAIL, Dice, HANDSHAKE_TIMEOUT};

/// Commands that may wait.
const COMMANDS: usize = 256;
/// Events that may wait: each holds a longest blob at most.
const EVENTS: usize = 16;
/// Addresses of one name that are tried.
const MAX_ADDRS: usize = 8;
/// How long a name may take.
const LOOKUP: Duration = Duration::from_secs(5);
/// Wait after the first failure; doubles.
const FIRST_WAIT: Duration = Duration::from_millis(300);
/// Longest wait between two connections.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// A connection that lasted this long was a good one.
const GOOD: Duration = Duration::from_secs(10);
/// How long closing may take at the end.
const CLOSING: Duration = Duration::from_secs(1);

/// What the node tells it. What is meant for another connection than the present
/// one, by the number that came with [`MailEvent::Up`], is passed over.
#[derive(Debug, Clone)]
pub enum MailCommand {
    /// Put a blob.
    Put {
        /// The connection.
        connection: u64,
        /// Comes back with the answer.
        id: u64,
        /// The blob's topic.
        topic: TopicId,
        /// The blob.
        blob: Vec<u8>,
    },
    /// Follow a topic.
    Follow {
        /// The connection.
        connection: u64,
        /// The topic.
        topic: TopicId,
        /// From this index on.
        from: u64,
    },
    /// Follow it no longer.
    Unfollow {
        /// The connection.
        connection: u64,
        /// The topic.
        topic: TopicId,
    },
}

/// What it tells the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MailEvent {
    /// The mailbox answered. Nothing of earlier connections goes on.
    Up {
        /// The number of this connection.
        connection: u64,
        /// The name of the mailbox's store.
        store: [u8; 16],
        /// Where it is.
        remote: SocketAddr,
    },
    /// The connection is over, or could not be had (the first time of several).
    Down {
        /// What is known of it.
        why: String,
    },
    /// A put is on the mailbox's disk.
    Stored {
        /// Its number.
        id: u64,
    },
    /// A put is not kept.
    Refused {
        /// Its number.
        id: u64,
        /// Why.
        refusal: Refusal,
    },
    /// A blob, not judged in any way.
    Blob {
        /// The topic that was followed.
        topic: TopicId,
        /// Its index.
        index: u64,
        /// Its bytes.
        blob: Vec<u8>,
    },
    /// All that a topic held is told.
    CaughtUp {
        /// The topic.
        topic: TopicId,
        /// The index that the next one gets.
        next: u64,
    },
}

/// A running end. It ends when the sender or the receiver is dropped.
#[derive(Debug)]
pub struct MailDevice {
    address: MailAddress,
    dice: Dice,
    commands: mpsc::Receiver<MailCommand>,
    events: mpsc::Sender<MailEvent>,
    links: Links,
    connections: u64,
    fails: u32,
    told_down: bool,
}

/// Why a connection is over.
enum Over {
    /// The node wants no other.
    Node,
    /// This device is at another address.
    Moved,
    Lost(String),
}

impl MailDevice {
    /// Starts one, on the current tokio runtime. `entropy` is for jitter.
    #[must_use]
    pub fn start(
        address: MailAddress,
        entropy: &[u8; 32],
    ) -> (mpsc::Sender<MailCommand>, mpsc::Receiver<MailEvent>) {
        let (command_tx, commands) = mpsc::channel(COMMANDS);
        let (events, event_rx) = mpsc::channel(EVENTS);
        let device = Self {
            address,
            dice: Dice::new(entropy),
            commands,
            events,
            links: Links::watch(),
            connections: 0,
            fails: 0,
            told_down: false,
        };
        tokio::spawn(device.run());
        (command_tx, event_rx)
    }

    async fn run(mut self) {
        loop {
            let (lasted, why) = match self.connect().await {
                Ok((dialled, quic)) => {
                    let since = Instant::now();
                    let over = self.serve(dialled).await;
                    if matches!(over, Over::Moved) {
                        // Nothing that is left to say arrives.
                        quic.close(code::LEAVING, b"");
                        continue;
                    }
                    // What is left to say is said, or given up.
                    let _ = timeout(CLOSING, quic.wait_idle()).await;
                    match over {
                        Over::Node | Over::Moved => return,
                        Over::Lost(why) => (since.elapsed(), why),
                    }
                }
                Err(why) => (Duration::ZERO, why),
            };
            let good = lasted >= GOOD;
            self.fails = if good {
                0
            } else {
                self.fails.saturating_add(1)
            };
            if !std::mem::replace(&mut self.told_down, true)
                && self.events.send(MailEvent::Down { why }).await.is_err()
            {
                return;
            }
            if !self.wait().await {
                return;
            }
        }
    }

    /// Until the next try; `false` if the node is gone.
    async fn wait(&mut self) -> bool {
        let wait = FIRST_WAIT
            .saturating_mul(1 << self.fails.saturating_sub(1).min(8))
            .min(LONGEST_WAIT);
        let now = Instant::now();
        let soonest = now + FIRST_WAIT;
        let mut until = now + wait - wait / 4 + self.dice.part_of(wait / 2);
        loop {
            tokio::select! {
                () = sleep_until(until) => return true,
                // There may be a way now.
                () = self.links.changed() => until = until.min(soonest.max(Instant::now())),
                command = self.commands.recv() => if command.is_none() {
                    return false;
                },
                () = self.events.closed() => return false,
            }
        }
    }

    /// A connection under a key and from a port that were never used before.
    async fn connect(&self) -> Result<(Dialled, quinn::Endpoint), String> {
        let fault = |error: &dyn std::fmt::Display| error.to_string();
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| fault(&error))?;
        let identity = Identity::new(&seed).map_err(|error| fault(&error))?;
        let trust = Trust::Key(self.address.key);
        let config = identity
            .client(trust, &[ALPN_MAIL])
            .map_err(|error| fault(&error))?;
        let place = (self.address.host.as_str(), self.address.port);
        let found = timeout(LOOKUP, lookup_host(place)).await;
        let found = found.map_err(|_| "its name is not answered".to_owned())?;
        let addrs: Vec<SocketAddr> = found
            .map_err(|error| fault(&error))?
            .take(MAX_ADDRS)
            .collect();
        let socket = bind_udp(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0))
            .map_err(|error| fault(&error))?;
        let only_v4 = socket.local_addr().is_ok_and(|local| local.is_ipv4());
        let addrs = addrs
            .into_iter()
            .filter(|addr| addr.is_ipv4() || !only_v4)
            .collect();
        let quic = quinn::Endpoint::new(
            quinn::EndpointConfig::default(),
            None,
            socket,
            Arc::new(quinn::TokioRuntime),
        )
        .map_err(|error| fault(&error))?;
        let dialled = dial(quic.clone(), config, addrs).await;
        let dialled = dialled.ok_or_else(|| {
            format!("it does not answer with its key within {HANDSHAKE_TIMEOUT:?}")
        })?;
        Ok((dialled, quic))
    }

    async fn serve(&mut self, dialled: Dialled) -> Over {
        let Dialled {
            connection,
            send,
            recv,
        } = dialled;
        self.connections += 1;
        let remote = connection.remote_address();
        let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
        let (tell, mut told) = mpsc::channel(1);
        let here = Here::of(&connection);
        let writer = io::start(connection, send, recv, tell, |event| event);
        let origin = Instant::now();
        let mut client = MailClient::new(Duration::ZERO);
        loop {
            transmit(&mut client, &writer, origin.elapsed());
            while let Some(event) = client.poll_event() {
                if let MailClientEvent::Closed(reason) = event {
                    // The last word goes out when the writer is dropped.
                    transmit(&mut client, &writer, origin.elapsed());
                    return Over::Lost(over(reason));
                }
                if let Some(event) = self.event(event, remote)
                    && self.events.send(event).await.is_err()
                {
                    return Over::Node;
                }
            }
            let deadline = client
                .poll_timeout()
                .unwrap_or_else(|| origin.elapsed() + LONGEST_WAIT);
            tokio::select! {
                event = told.recv() => match event {
                    Some(IoEvent::Bytes(bytes)) => client.handle_bytes(origin.elapsed(), &bytes),
                    Some(IoEvent::Written) => {}
                    Some(IoEvent::Gone(why)) => return Over::Lost(why),
                    None => return Over::Lost("the connection is gone".to_owned()),
                },
                // While the link takes none, the node's wait in the channel.
                command = self.commands.recv() => match command {
                    Some(command) => self.command(command, &mut client),
                    None => return Over::Node,
                },
                () = self.events.closed() => return Over::Node,
                () = self.links.changed() => if here.has_moved(remote) {
                    return Over::Moved;
                },
                () = sleep_until(origin + deadline) => client.handle_timeout(origin.elapsed()),
            }
        }
    }

    fn command(&self, command: MailCommand, client: &mut MailClient) {
        let this = self.connections;
        match command {
            MailCommand::Put {
                connection,
                id,
                topic,
                blob,
            } if connection == this => {
                // The node keeps to the room that there is.
                let _ = client.put(id, topic, blob);
            }
            MailCommand::Follow {
                connection,
                topic,
                from,
            } if connection == this => {
                let _ = client.follow(topic, from);
            }
            MailCommand::Unfollow { connection, topic } if connection == this => {
                client.unfollow(topic);
            }
            _ => {}
        }
    }

    fn event(&mut self, event: MailClientEvent, remote: SocketAddr) -> Option<MailEvent> {
        Some(match event {
            MailClientEvent::Up { store } => {
                self.told_down = false;
                MailEvent::Up {
                    connection: self.connections,
                    store,
                    remote,
                }
            }
            MailClientEvent::Stored { id } => MailEvent::Stored { id },
            MailClientEvent::Refused { id, refusal } => MailEvent::Refused { id, refusal },
            MailClientEvent::Blob { topic, index, blob } => MailEvent::Blob { topic, index, blob },
            MailClientEvent::CaughtUp { topic, next } => MailEvent::CaughtUp { topic, next },
            MailClientEvent::Closed(_) => return None,
        })
    }
}

fn over(reason: CloseReason) -> String {
    match reason {
        CloseReason::Ours(reason) => format!("left: {reason}"),
        CloseReason::Theirs(reason) => format!("sent away: {reason}"),
    }
}

fn transmit(client: &mut MailClient, writer: &Writer, now: Duration) {
    while let Some(room) = writer.room() {
        let Some(frame) = client.poll_transmit(now) else {
            return;
        };
        room.send(frame);
    }
}
