//! The account's devices: the sync endpoint, who is connected, where peers are.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Instant;

use bailey_docs_store::{ChainId, DocId, Head, Members};
use bailey_model::{DeviceId, Entry, Event, Timestamp, Transport};
use bailey_sync::{Endpoint, EndpointConfig, IngestFailure, SyncCommand, SyncEvent};
use tokio::sync::mpsc;

use super::event::NodeEvent;
use super::heads::{Clocks, Missing, Said};
use super::membership::Heard;
use super::store::StoreAsk;
use super::{Node, clock};
use crate::api::Failure;
use crate::log::log;
use crate::rows;

/// Commands that wait for the endpoint. The sessions' credit keeps answers far
/// below it; heads are what changed.
const COMMANDS: usize = 16_384;
/// Addresses remembered for one peer.
pub(super) const MAX_ADDRS: usize = 8;
/// Writers remembered that have more chains than a session is about.
const MAX_LEFT_OUT: usize = 1024;
/// Longest file of remembered addresses.
const MAX_FILE: u64 = 256 << 10;

/// Sync, as far as the loop minds.
#[derive(Debug, Default)]
pub(super) struct Devices {
    members: Members,
    heard: Heard,
    clocks: Clocks,
    pub(super) said: Said,
    endpoint: Option<Running>,
    up: BTreeSet<DeviceId>,
    addrs: BTreeMap<DeviceId, Vec<SocketAddr>>,
    /// How far every chain is here.
    heads: BTreeMap<ChainId, Head>,
    /// The chains in the order in which they began here.
    began: Vec<ChainId>,
    /// Those of which only a tombstone is left, and how far they went.
    spent: BTreeMap<ChainId, Head>,
    /// Writers that have more chains than a session is about.
    left_out: BTreeSet<DeviceId>,
}

#[derive(Debug)]
struct Running {
    port: u16,
    endpoint: Endpoint,
    commands: mpsc::Sender<SyncCommand>,
}

impl Devices {
    /// What the store had at the start.
    pub(super) fn begin(&mut self, heads: Vec<Head>, members: Members) {
        self.said.begin(&heads);
        self.began = heads.iter().map(|head| head.chain).collect();
        self.heads = heads.into_iter().map(|head| (head.chain, head)).collect();
        self.members = members;
    }

    /// The account's members.
    pub(super) fn members(&self) -> &Members {
        &self.members
    }

    /// When a device was heard last.
    pub(super) fn heard(&self, device: DeviceId) -> Option<Timestamp> {
        match self.is_up(device) {
            true => Some(clock::now()),
            false => self.heard.of(device),
        }
    }

    pub(super) fn note_heard(&mut self, device: DeviceId, at: Timestamp, now: Timestamp) {
        self.heard.note(device, at, now);
        self.clocks.note(device, at, Instant::now());
    }

    pub(super) fn is_up(&self, device: DeviceId) -> bool {
        self.up.contains(&device)
    }

    /// The devices that have a session with this one.
    pub(super) fn up_now(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.up.iter().copied()
    }

    /// What was said of chains, and how far they are here.
    pub(super) fn said_and_heads(&mut self) -> (&mut Said, &BTreeMap<ChainId, Head>) {
        (&mut self.said, &self.heads)
    }

    /// What is not here of a device's chains although somebody saw it.
    pub(super) fn missing(&self, writer: DeviceId, now: (Timestamp, Instant)) -> Vec<Missing> {
        let is_up = |device| self.is_up(device);
        self.said.missing(writer, &self.heads, is_up, now)
    }

    pub(super) fn any_up(&self) -> bool {
        !self.up.is_empty()
    }

    /// How far every chain is here.
    pub(super) fn local_heads(&self) -> &BTreeMap<ChainId, Head> {
        &self.heads
    }

    pub(super) fn is_member(&self, device: DeviceId) -> bool {
        self.members.get(&device).is_some()
    }

    /// The other devices of the account.
    pub(super) fn others(
        &self,
        this: DeviceId,
    ) -> Vec<(DeviceId, bailey_docs_store::DevicePublic)> {
        let others = self.members.iter().filter(|(id, _)| **id != this);
        others.map(|(id, member)| (*id, member.public)).collect()
    }

    /// Where the peers are, as far as that is known.
    pub(super) fn addrs(&self) -> &BTreeMap<DeviceId, Vec<SocketAddr>> {
        &self.addrs
    }

    /// What a device's clock says now at least, by what was heard of it.
    pub(super) fn time_at(&self, device: DeviceId, now: Instant) -> Option<Timestamp> {
        self.clocks.at(device, now)
    }

    /// The port of the endpoint, on every address of the node.
    pub(super) fn listeners(&self) -> Vec<(Transport, SocketAddr)> {
        let Some(running) = &self.endpoint else {
            return Vec::new();
        };
        let any = [
            SocketAddr::from((Ipv4Addr::UNSPECIFIED, running.port)),
            SocketAddr::from((Ipv6Addr::UNSPECIFIED, running.port)),
        ];
        any.into_iter().map(|addr| (Transport::Udp, addr)).collect()
    }

    /// How many devices the account has.
    pub(super) fn known(&self) -> usize {
        self.members.len()
    }

    /// How many of them have a session with this one.
    pub(super) fn connected(&self) -> usize {
        self.up.len()
    }

    /// The port of the endpoint, if it runs.
    pub(super) fn port(&self) -> Option<u16> {
        self.endpoint.as_ref().map(|running| running.port)
    }

    /// Takes the endpoint, for whoever waits until it has said goodbye: a process that
    /// ends before that is missed by its peers for as long as they wait for silence.
    pub(super) fn take_endpoint(&mut self) -> Option<Endpoint> {
        self.endpoint.take().map(|running| running.endpoint)
    }

    /// The endpoint is gone; the loop's tick starts another.
    pub(super) fn gone(&mut self, port: u16) {
        if self.port() == Some(port) {
            log!("sync: the endpoint is gone");
            self.endpoint = None;
            self.up.clear();
        }
    }

    pub(super) fn command(&mut self, command: SyncCommand) {
        let Some(running) = &self.endpoint else {
            return;
        };
        if running.commands.try_send(command).is_err() {
            // Without its answers the endpoint is of no use; the loop starts a
            // new one.
            log!("sync: the endpoint does not take commands");
            let port = running.port;
            self.gone(port);
        }
    }

    /// Chains grew.
    pub(super) fn heads(&mut self, heads: Vec<Head>) {
        for head in &heads {
            if self.heads.insert(head.chain, *head).is_none() {
                self.began.push(head.chain);
            }
        }
        self.command(SyncCommand::Heads(heads));
    }

    /// Chains of which only a tombstone is left: others are not told of them.
    pub(super) fn spent(&mut self, spent: Vec<Head>) {
        self.said.is_said(&spent);
        self.spent = spent.iter().map(|head| (head.chain, *head)).collect();
        self.command(SyncCommand::Spent(spent));
    }

    /// How far every chain is here that others are told of.
    pub(super) fn told_heads(&self) -> Cow<'_, BTreeMap<ChainId, Head>> {
        if self.spent.is_empty() {
            return Cow::Borrowed(&self.heads);
        }
        let spent = |head: &Head| {
            let spent = self.spent.get(&head.chain);
            spent.is_some_and(|spent| spent.seq >= head.seq)
        };
        let told = self.heads.iter().filter(|(_, head)| !spent(head));
        Cow::Owned(told.map(|(chain, head)| (*chain, *head)).collect())
    }

    /// Whether a device has more chains than a session is about.
    pub(super) fn is_left_out(&self, device: DeviceId) -> bool {
        self.left_out.contains(&device)
    }

    pub(super) fn ingested(&mut self, peer: DeviceId, chain: ChainId, seq: u64) {
        self.command(SyncCommand::Ingested { peer, chain, seq });
    }

    pub(super) fn not_ingested(&mut self, peer: DeviceId, chain: ChainId, failure: IngestFailure) {
        self.command(SyncCommand::IngestFailed {
            peer,
            chain,
            failure,
        });
    }

    pub(super) fn range(
        &mut self,
        peer: DeviceId,
        chain: ChainId,
        from_seq: u64,
        envelopes: Vec<Vec<u8>>,
    ) {
        self.command(SyncCommand::Range {
            peer,
            chain,
            from_seq,
            envelopes,
        });
    }

    fn tell_members(&mut self) {
        let former = self.members.former().chain(self.members.undone());
        let former = former.map(|(id, public)| (*id, public.ed25519)).collect();
        self.command(SyncCommand::Former(former));
        let members = self
            .members
            .iter()
            .map(|(id, member)| (*id, member.public.ed25519))
            .collect();
        self.command(SyncCommand::Members(members));
    }

    /// Adds addresses of a peer, newest first; `true` if that changed anything.
    fn learn(&mut self, device: DeviceId, found: &[SocketAddr]) -> bool {
        let known = self.addrs.entry(device).or_default();
        let before = known.clone();
        for addr in found.iter().rev() {
            known.retain(|other| other != addr);
            known.insert(0, *addr);
        }
        known.truncate(MAX_ADDRS);
        *known != before
    }
}

impl Node {
    /// Starts the endpoint where the account has another device to speak to, or
    /// is about to have one.
    pub(super) fn start_sync(&mut self) -> Result<(), Failure> {
        let members = self.devices.members.iter();
        let former = self.devices.members.former();
        let former = former.chain(self.devices.members.undone());
        let devices = members.map(|(id, _)| id).chain(former.map(|(id, _)| id));
        let alone = !devices.into_iter().any(|device| *device != self.this);
        if alone && self.pairings.is_empty() {
            return Ok(());
        }
        self.start_endpoint()
    }

    pub(super) fn start_endpoint(&mut self) -> Result<(), Failure> {
        let Some(account) = self.account else {
            return Ok(());
        };
        if self.devices.endpoint.is_some() {
            return Ok(());
        }
        let entropy =
            clock::random().map_err(|error| Failure::host(format!("entropy: {error}")))?;
        let port_file = self.paths.state.join("sync.port");
        let kept = std::fs::read_to_string(&port_file)
            .ok()
            .and_then(|text| text.trim().parse().ok());
        let config = |port: u16| EndpointConfig {
            ed25519_secret: *self.keys.ed25519_secret(),
            device: self.this,
            account,
            incarnation: self.incarnation,
            listen: SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
            entropy,
        };
        // The port that peers know, unless somebody else has it now.
        let started =
            Endpoint::start(config(kept.unwrap_or(0))).or_else(|_| Endpoint::start(config(0)));
        let (endpoint, commands, events) =
            started.map_err(|error| Failure::host(format!("sync: {error}")))?;
        let port = endpoint.local_port();
        if kept != Some(port)
            && let Err(error) = write_private(&port_file, &port.to_string())
        {
            log!("{}: {error}", port_file.display());
        }
        self.devices.endpoint = Some(Running {
            port,
            endpoint,
            commands: forward(commands),
        });
        tokio::spawn(hand_on(events, self.events.clone(), port));
        self.note_listeners();
        self.devices.addrs = read_addrs(&self.paths.state.join("peers"));
        self.devices.tell_members();
        let began = self.devices.began.iter();
        let heads = began.filter_map(|chain| self.devices.heads.get(chain).copied());
        let heads = heads.collect();
        let spent = self.devices.spent.values().copied().collect();
        self.devices.command(SyncCommand::Spent(spent));
        self.devices.command(SyncCommand::Heads(heads));
        for (device, addrs) in self.devices.addrs.clone() {
            self.devices.command(SyncCommand::Peer { device, addrs });
        }
        Ok(())
    }

    /// Where a peer is; remembered for later starts.
    pub(super) fn learn_addrs(&mut self, device: DeviceId, addrs: &[SocketAddr]) {
        if !self.devices.learn(device, addrs) {
            return;
        }
        let all = self.devices.addrs.get(&device).cloned().unwrap_or_default();
        self.devices
            .command(SyncCommand::Peer { device, addrs: all });
        self.keep_addrs();
    }

    fn keep_addrs(&self) {
        let path = self.paths.state.join("peers");
        if let Err(error) = write_private(&path, &addr_lines(&self.devices.addrs)) {
            log!("{}: {error}", path.display());
        }
    }

    pub(super) fn on_sync(&mut self, event: SyncEvent) {
        match event {
            SyncEvent::Up {
                peer,
                remote,
                listen_port,
                ..
            } => {
                self.devices.up.insert(peer);
                self.devices.said.up(peer);
                let now = clock::now();
                self.devices.heard.note(peer, now, now);
                if listen_port != 0 {
                    let addr = SocketAddr::new(remote.ip().to_canonical(), listen_port);
                    if self.devices.learn(peer, &[addr]) {
                        self.keep_addrs();
                    }
                }
            }
            SyncEvent::Down { peer, reason } => {
                self.devices.up.remove(&peer);
                self.devices.said.down(peer);
                self.nearby.want();
                let now = clock::now();
                self.devices.heard.note(peer, now, now);
                log!("session with {} over: {reason}", rows::short(&peer));
            }
            SyncEvent::NeedRange {
                peer,
                chain,
                from_seq,
                max_bytes,
            } => {
                self.ask_store(StoreAsk::Range {
                    peer,
                    chain,
                    from_seq,
                    max_bytes,
                });
            }
            SyncEvent::Envelope { peer, chain, bytes } => {
                self.ask_store(StoreAsk::Ingest { peer, chain, bytes });
            }
            SyncEvent::Fork {
                peer, chain, seq, ..
            } => {
                let writer = rows::short(&chain.writer);
                log!(
                    "{} has another envelope {seq} of {writer} than is here",
                    rows::short(&peer)
                );
            }
            SyncEvent::LeftOut { peer, writer } => {
                if self.devices.left_out.len() < MAX_LEFT_OUT {
                    self.devices.left_out.insert(writer);
                }
                log!(
                    "session with {}: {} has more chains than one is about; the rest of \
                     them is left out",
                    rows::short(&peer),
                    rows::short(&writer)
                );
            }
            SyncEvent::CaughtUp { peer } => self.devices.said.caught_up(peer, Instant::now()),
        }
    }

    /// Membership changed: who may connect, who may read, who is shown.
    pub(super) fn on_members(&mut self, members: Members) {
        let before = std::mem::replace(&mut self.devices.members, members);
        let Devices { members, said, .. } = &mut self.devices;
        said.keep(|device| members.get(device).is_some());
        self.mail_members(&before);
        if let Err(failure) = self.start_sync() {
            log!("{}", failure.text);
        }
        self.devices.tell_members();
        self.finish_confirmed(Instant::now());
    }

    /// Entries of other devices that can be read now.
    pub(super) fn on_opened(&mut self, opened: Vec<(DocId, DeviceId, Entry)>) {
        let now = clock::now();
        for (doc, writer, entry) in opened {
            self.devices.note_heard(writer, entry.ts, now);
            if doc.box_id().is_none() {
                self.fold.push(writer, &entry);
            }
            self.follow(writer, doc, &entry);
            match &entry.event {
                Event::Receipt(receipt) => self.on_receipt(receipt, writer),
                Event::HeadsSeen(seen) => self.on_heads_seen(writer, entry.ts, seen),
                _ => {}
            }
        }
        self.answer_requests();
    }
}

/// A queue in front of the endpoint's own, so that the loop never waits.
pub(super) fn forward<T: Send + 'static>(endpoint: mpsc::Sender<T>) -> mpsc::Sender<T> {
    let (commands, mut queued) = mpsc::channel(COMMANDS);
    tokio::spawn(async move {
        while let Some(command) = queued.recv().await {
            if endpoint.send(command).await.is_err() {
                return;
            }
        }
    });
    commands
}

async fn hand_on(mut events: mpsc::Receiver<SyncEvent>, to: mpsc::Sender<NodeEvent>, port: u16) {
    while let Some(event) = events.recv().await {
        if to.send(NodeEvent::Sync(event)).await.is_err() {
            return;
        }
    }
    // The loop may be gone first: then nobody needs another endpoint.
    let _gone = to.send(NodeEvent::SyncGone { port }).await;
}

/// A line a device: its id and its addresses.
pub(super) fn addr_lines(addrs: &BTreeMap<DeviceId, Vec<SocketAddr>>) -> String {
    let line = |(device, addrs): (&DeviceId, &Vec<SocketAddr>)| {
        let addrs: Vec<String> = addrs.iter().map(ToString::to_string).collect();
        format!("{device} {}\n", addrs.join(" "))
    };
    addrs.iter().map(line).collect()
}

fn read_addrs(path: &Path) -> BTreeMap<DeviceId, Vec<SocketAddr>> {
    use std::io::Read as _;
    let mut text = String::new();
    if let Ok(file) = std::fs::File::open(path) {
        let _partial = file.take(MAX_FILE).read_to_string(&mut text);
    }
    read_addr_lines(&text)
}

/// Reads [`addr_lines`]. Lines that do not parse are passed over: they are hints, and
/// who answers must still prove its key.
pub(super) fn read_addr_lines(text: &str) -> BTreeMap<DeviceId, Vec<SocketAddr>> {
    let line = |line: &str| {
        let mut words = line.split(' ');
        let device = words.next()?.parse().ok()?;
        let addrs = words
            .filter_map(|word| word.parse().ok())
            .take(MAX_ADDRS)
            .collect();
        Some((device, addrs))
    };
    text.lines().filter_map(line).collect()
}

/// Written whole under another name, then put in place.
pub(super) fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    write_private_bytes(path, text.as_bytes())
}

/// The same of bytes.
pub(super) fn write_private_bytes(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let fresh = path.with_extension("new");
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)?;
    file.write_all(bytes)?;
    std::fs::rename(fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_kept_newest_first_and_bounded() {
        let mut devices = Devices::default();
        let device = DeviceId([1; 32]);
        let addr = |n: u8| SocketAddr::from(([192, 168, 1, n], 4000));
        assert!(devices.learn(device, &[addr(1), addr(2)]));
        assert!(!devices.learn(device, &[addr(1), addr(2)]));
        assert!(devices.learn(device, &[addr(2)]));
        assert_eq!(devices.addrs[&device], [addr(2), addr(1)]);
        (3..40).for_each(|n| {
            devices.learn(device, &[addr(n)]);
        });
        assert_eq!(devices.addrs[&device].len(), MAX_ADDRS);
    }
}
