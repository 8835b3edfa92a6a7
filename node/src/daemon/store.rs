//! The store's own thread: takes the loop's asks, commits what came together
//! in one go, seals what is due, and answers each ask once.
//!
//! An ask is answered only after its entry is committed, so an answered ticket
//! may be dialled.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::time::{Duration, Instant};

use bailey_docs_store::{
    AddOffer, ChainId, Checkpointer, DeviceKeys, DevicePublic, DocId, Head, IngestError, OsEntropy,
    Reader, Role, Store, Urgency, load_or_create_device_keys,
};
use bailey_model::{AccountId, DeviceId, Entry, Event, Incarnation};
use bailey_sync::IngestFailure;
use tokio::sync::mpsc;

use super::clock;
use super::event::{ConnId, RunId};
use crate::api::Failure;
use crate::paths::Paths;

/// Asks under way at once; the loop takes no further event past it.
pub(crate) const IN_FLIGHT: usize = 1024;
/// Room in the channel beyond that: what one event, or a start, may ask for.
const SLACK: usize = 65_536;
/// Most asks committed together.
const BATCH: usize = 256;
/// Between two synchronous commits: what a power cut can lose at most.
const DURABLE_EVERY: Duration = Duration::from_millis(250);
/// Between two checkpoints of the write-ahead log.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(2);
/// Longest sleep of the thread; it then looks at what is due.
const NAP: Duration = Duration::from_secs(60);
/// Most envelopes in one answer to a peer.
const MAX_RANGE: usize = 2048;
/// Most envelopes of the account's document in a welcome.
const MAX_WELCOME: usize = 4096;
/// Most bytes of them.
const MAX_WELCOME_BYTES: usize = 1 << 20;

/// What the loop wants of the store.
#[derive(Debug)]
pub(crate) enum StoreAsk {
    /// Append an entry.
    Append { doc: DocId, event: Event, urgency: Urgency, tag: Tag },
    /// Take an envelope of another device.
    Ingest { peer: DeviceId, chain: ChainId, bytes: Vec<u8> },
    /// Read envelopes for a peer.
    Range { peer: DeviceId, chain: ChainId, from_seq: u64, max_bytes: u32 },
    /// Make an account of this device alone.
    CreateAccount { name: String },
    /// Offer to add a device.
    Offer { conn: ConnId, device: DevicePublic },
    /// Add a device that signed the offer.
    Add { conn: ConnId, offer: Box<AddOffer>, cosignature: [u8; 64] },
    /// Be one of an account, from its records.
    Join { conn: ConnId, account: AccountId, envelopes: Vec<Vec<u8>> },
}

/// Whom an appended entry concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tag {
    /// Nobody waits.
    None,
    /// A run's first entry in its own document.
    Started(RunId),
    /// An entry of a run that its gate waits for.
    Ticket(RunId, u64),
    /// An entry of a run that nothing waits for.
    Told(RunId),
    /// A run's last entry.
    Ended(RunId),
    /// A request by a connection of this node.
    Request(ConnId),
}

/// What the store says.
#[derive(Debug)]
pub(crate) enum StoreTell {
    /// An entry stands in the journal.
    Appended { doc: DocId, entry: Entry, tag: Tag },
    /// An entry could not be written.
    NotAppended { tag: Tag, why: String },
    /// An envelope was taken.
    Ingested { peer: DeviceId, chain: ChainId, seq: u64, opened: Vec<(DocId, DeviceId, Entry)> },
    /// An envelope was not taken.
    NotIngested { peer: DeviceId, chain: ChainId, failure: IngestFailure, why: String },
    /// Envelopes for a peer.
    Range { peer: DeviceId, chain: ChainId, from_seq: u64, envelopes: Vec<Vec<u8>> },
    /// There is an account, or it could not be made.
    Account(Result<AccountId, String>),
    /// An offer, or why there is none.
    Offered { conn: ConnId, offer: Result<Box<AddOffer>, String> },
    /// The device is added: the account and its records.
    Added { conn: ConnId, added: Result<(AccountId, Vec<Vec<u8>>), String> },
    /// This device is one of the account now.
    Joined { conn: ConnId, joined: Result<AccountId, String> },
    /// Chains grew. Not an answer to an ask.
    Heads(Vec<Head>),
    /// Who is a member now. Not an answer to an ask.
    Members(Vec<(DeviceId, DevicePublic, Role)>),
}

impl StoreTell {
    /// Whether it answers an ask.
    pub(crate) fn is_answer(&self) -> bool {
        !matches!(self, Self::Heads(_) | Self::Members(_))
    }
}

/// A store that is open, and its thread.
pub(crate) struct Opened {
    pub(crate) asks: blocking::SyncSender<StoreAsk>,
    pub(crate) tells: mpsc::Receiver<StoreTell>,
    pub(crate) keys: Arc<DeviceKeys>,
    pub(crate) account: Option<AccountId>,
    pub(crate) incarnation: Incarnation,
    /// Entries of the documents that the node folds.
    pub(crate) history: Vec<(DocId, DeviceId, Entry)>,
    pub(crate) heads: Vec<Head>,
    pub(crate) members: Vec<(DeviceId, DevicePublic, Role)>,
}

/// Opens the store and starts its thread.
pub(crate) fn open(paths: &Paths) -> Result<Opened, Failure> {
    let host = |error: &dyn std::fmt::Display| Failure::host(format!("store: {error}"));
    let keys = load_or_create_device_keys(&paths.state.join("device.key"), &mut OsEntropy)
        .map_err(|error| host(&error))?;
    let store = Store::open(&paths.state, keys.clone(), clock::now(), Box::new(OsEntropy))
        .map_err(|error| host(&error))?;
    let keys = Arc::new(keys);
    let (account, incarnation) = (store.account(), store.incarnation());
    let (heads, members) = (store.heads(), members(&store));
    let mut history = Vec::new();
    if account.is_some() {
        let mut reader = reader(paths, &keys)?;
        for doc in [DocId::Node, DocId::Notices, DocId::Requests] {
            let entries = reader.entries(doc, None).map_err(|error| host(&error))?;
            history.extend(entries.into_iter().map(|(writer, entry)| (doc, writer, entry)));
        }
    }
    let (asks, incoming) = blocking::sync_channel(IN_FLIGHT + SLACK);
    let (outgoing, tells) = mpsc::channel(IN_FLIGHT);
    std::thread::Builder::new()
        .name("store".to_owned())
        .spawn(move || Thread::new(store, outgoing).serve(&incoming))
        .map_err(|error| host(&error))?;
    checkpoint(paths).map_err(|error| host(&error))?;
    Ok(Opened { asks, tells, keys, account, incarnation, history, heads, members })
}

/// Moves the write-ahead log into the database beside the writer, which then
/// never waits for it. Ends with the process.
fn checkpoint(paths: &Paths) -> std::io::Result<()> {
    let checkpointer = Checkpointer::open(&paths.state).map_err(std::io::Error::other)?;
    let run = move || loop {
        std::thread::sleep(CHECKPOINT_EVERY);
        if let Err(error) = checkpointer.run() {
            eprintln!("store: checkpoint: {error}");
        }
    };
    std::thread::Builder::new().name("checkpoint".to_owned()).spawn(run).map(drop)
}

/// Waits until the thread has sealed what is left and is gone.
pub(crate) async fn finish(tells: &mut mpsc::Receiver<StoreTell>) {
    while tells.recv().await.is_some() {}
}

/// One writer's entries of a document, in order. For another thread.
pub(crate) fn entries(
    paths: &Paths,
    keys: &DeviceKeys,
    doc: DocId,
    writer: DeviceId,
) -> Result<Vec<Entry>, Failure> {
    let entries = reader(paths, keys)?
        .entries(doc, Some(writer))
        .map_err(|error| Failure::host(format!("store: {error}")))?;
    Ok(entries.into_iter().map(|(_, entry)| entry).collect())
}

/// A reader of its own connection.
pub(crate) fn reader(paths: &Paths, keys: &DeviceKeys) -> Result<Reader, Failure> {
    Reader::open(&paths.state, keys.clone()).map_err(|error| Failure::host(format!("store: {error}")))
}

fn members(store: &Store) -> Vec<(DeviceId, DevicePublic, Role)> {
    store.members().iter().map(|(id, member)| (*id, member.public, member.role)).collect()
}

fn flat(opened: Vec<bailey_docs_store::Opened>) -> Vec<(DocId, DeviceId, Entry)> {
    let of = |opened: bailey_docs_store::Opened| {
        let (doc, writer) = (opened.chain.doc, opened.chain.writer);
        opened.entries.into_iter().map(move |entry| (doc, writer, entry))
    };
    opened.into_iter().flat_map(of).collect()
}

/// Whether it is worth offering an envelope again in the same session.
fn failure(error: &IngestError) -> IngestFailure {
    match error {
        IngestError::Gap { .. }
        | IngestError::NotMember(_)
        | IngestError::NoAccount
        | IngestError::Db(_) => IngestFailure::Gap,
        IngestError::TooLarge(_)
        | IngestError::Malformed(_)
        | IngestError::OtherAccount
        | IngestError::BadSignature(_)
        | IngestError::Fork { .. }
        | IngestError::Misfit(_)
        | IngestError::TooManyChains(_)
        | IngestError::Record(_)
        | IngestError::KeyRecord(_)
        | IngestError::Quarantined { .. } => IngestFailure::Permanent,
    }
}

struct Thread {
    store: Store,
    tells: mpsc::Sender<StoreTell>,
    known_heads: BTreeMap<ChainId, u64>,
    known_members: usize,
    /// Whether heads or members may have changed.
    changed: bool,
    last_durable: Instant,
    unsynced: bool,
}

impl Thread {
    fn new(store: Store, tells: mpsc::Sender<StoreTell>) -> Self {
        let known_heads = store.heads().iter().map(|head| (head.chain, head.seq)).collect();
        let known_members = store.members().len();
        let last_durable = Instant::now();
        Self { store, tells, known_heads, known_members, changed: false, last_durable, unsynced: false }
    }

    /// Until the loop is gone. What it left is sealed.
    fn serve(&mut self, asks: &blocking::Receiver<StoreAsk>) {
        loop {
            let batch = match asks.recv_timeout(self.nap()) {
                Ok(first) => std::iter::once(first).chain(asks.try_iter().take(BATCH - 1)).collect(),
                Err(blocking::RecvTimeoutError::Timeout) => Vec::new(),
                Err(blocking::RecvTimeoutError::Disconnected) => break,
            };
            if !self.turn(batch) {
                break;
            }
        }
        if let Err(error) = self.store.seal_all(clock::now()) {
            eprintln!("store: the last entries stay in the journal: {error}");
        }
        if let Err(error) = self.store.commit(true) {
            eprintln!("store: the last commit: {error}");
        }
    }

    /// How long nothing is due.
    fn nap(&self) -> Duration {
        let now = clock::now();
        let seal = self.store.seal_due(now).map(|due| Duration::from_millis(due.0.saturating_sub(now.0)));
        let sync = self.unsynced.then(|| DURABLE_EVERY.saturating_sub(self.last_durable.elapsed()));
        seal.into_iter().chain(sync).min().unwrap_or(NAP).min(NAP)
    }

    /// One commit for everything that came together. `false` when the loop is
    /// gone.
    fn turn(&mut self, batch: Vec<StoreAsk>) -> bool {
        let mut appended = Vec::new();
        let mut answers = Vec::new();
        let (mut urgent, mut at_once) = (false, false);
        for ask in batch {
            match ask {
                StoreAsk::Append { doc, event, urgency, tag } => {
                    urgent |= urgency == Urgency::Urgent;
                    at_once |= doc == DocId::Requests;
                    self.append(doc, event, urgency, tag, &mut appended, &mut answers);
                }
                other => {
                    // What was appended before stands before what comes after.
                    self.commit(false, &mut appended, &mut answers);
                    answers.push(self.other(other));
                }
            }
        }
        let due = self.unsynced && self.last_durable.elapsed() >= DURABLE_EVERY;
        self.commit(urgent || due, &mut appended, &mut answers);
        let tells = self.tells.clone();
        if !answers.into_iter().all(|tell| tells.blocking_send(tell).is_ok()) {
            return false;
        }
        self.seal(at_once);
        self.changes().into_iter().all(|tell| tells.blocking_send(tell).is_ok())
    }

    fn append(
        &mut self,
        doc: DocId,
        event: Event,
        urgency: Urgency,
        tag: Tag,
        appended: &mut Vec<(DocId, Entry, Tag)>,
        answers: &mut Vec<StoreTell>,
    ) {
        let now = clock::now();
        match self.store.append(doc, event.clone(), now, urgency) {
            Ok(no) => appended.push((doc, Entry { no, ts: now, event }, tag)),
            Err(error) => answers.push(StoreTell::NotAppended { tag, why: error.to_string() }),
        }
    }

    fn commit(
        &mut self,
        durable: bool,
        appended: &mut Vec<(DocId, Entry, Tag)>,
        answers: &mut Vec<StoreTell>,
    ) {
        if appended.is_empty() && !durable {
            return;
        }
        let result = self.store.commit(durable);
        self.unsynced = match (&result, durable) {
            (Ok(()), true) => false,
            (Ok(()), false) => true,
            (Err(_), _) => self.unsynced,
        };
        if durable {
            self.last_durable = Instant::now();
        }
        answers.extend(appended.drain(..).map(|(doc, entry, tag)| match &result {
            Ok(()) => StoreTell::Appended { doc, entry, tag },
            Err(error) => StoreTell::NotAppended { tag, why: error.to_string() },
        }));
    }

    fn other(&mut self, ask: StoreAsk) -> StoreTell {
        let now = clock::now();
        self.changed = true;
        match ask {
            StoreAsk::Append { tag, .. } => {
                StoreTell::NotAppended { tag, why: "appended out of its place".to_owned() }
            }
            StoreAsk::Ingest { peer, chain, bytes } => match self.store.ingest(&bytes, now) {
                Ok(ingested) => {
                    let mut opened = flat(ingested.opened);
                    opened.extend(self.waiting());
                    StoreTell::Ingested { peer, chain, seq: ingested.seq, opened }
                }
                // Kept and served as it is; its chain goes on.
                Err(IngestError::Quarantined { seq, reason, .. }) => {
                    eprintln!("envelope {seq} of {} set aside: {reason}", chain.writer);
                    StoreTell::Ingested { peer, chain, seq, opened: Vec::new() }
                }
                Err(error) => {
                    StoreTell::NotIngested { peer, chain, failure: failure(&error), why: error.to_string() }
                }
            },
            StoreAsk::Range { peer, chain, from_seq, max_bytes } => {
                let bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX);
                let found = self.store.range(&chain, from_seq, MAX_RANGE, bytes);
                let envelopes = found.unwrap_or_else(|error| {
                    eprintln!("store: {error}");
                    Vec::new()
                });
                StoreTell::Range { peer, chain, from_seq, envelopes }
            }
            StoreAsk::CreateAccount { name } => {
                let made = self.store.create_account(&name, now);
                StoreTell::Account(made.map_err(|error| error.to_string()))
            }
            StoreAsk::Offer { conn, device } => {
                let offer = self.store.offer_add(device, Role::Full);
                let offer = offer.map(Box::new).map_err(|error| error.to_string());
                StoreTell::Offered { conn, offer }
            }
            StoreAsk::Add { conn, offer, cosignature } => {
                let added = self.store.complete_add(&offer, cosignature, now);
                let added = added.map_err(|error| error.to_string());
                StoreTell::Added { conn, added: added.and_then(|()| self.welcome(offer.account)) }
            }
            StoreAsk::Join { conn, account, envelopes } => {
                StoreTell::Joined { conn, joined: self.join(account, &envelopes) }
            }
        }
    }

    /// Entries that waited for a key which is here now.
    fn waiting(&mut self) -> Vec<(DocId, DeviceId, Entry)> {
        let mut all = Vec::new();
        loop {
            match self.store.open_waiting(clock::now()) {
                Ok(opened) if opened.is_empty() => return all,
                Ok(opened) => all.extend(flat(opened)),
                Err(error) => {
                    eprintln!("store: {error}");
                    return all;
                }
            }
        }
    }

    /// The records with which a new device begins.
    fn welcome(&self, account: AccountId) -> Result<(AccountId, Vec<Vec<u8>>), String> {
        let mut envelopes = Vec::new();
        for head in self.store.heads().iter().filter(|head| head.chain.doc == DocId::Account) {
            let chain = self.store.range(&head.chain, 1, MAX_WELCOME, MAX_WELCOME_BYTES);
            envelopes.extend(chain.map_err(|error| error.to_string())?);
        }
        Ok((account, envelopes))
    }

    fn join(&mut self, account: AccountId, envelopes: &[Vec<u8>]) -> Result<AccountId, String> {
        self.store.join(account).map_err(|error| error.to_string())?;
        for bytes in envelopes {
            self.store.ingest(bytes, clock::now()).map_err(|error| error.to_string())?;
        }
        match self.store.members().get(&self.store.device()) {
            Some(_) => Ok(account),
            None => Err("the records do not make this device a member".to_owned()),
        }
    }

    fn seal(&mut self, at_once: bool) {
        let now = clock::now();
        let due = self.store.seal_due(now).is_some_and(|due| due <= now);
        let sealed = match (at_once, due) {
            (true, _) => self.store.seal_all(now),
            (false, true) => self.store.seal(now),
            (false, false) => return,
        };
        self.changed = true;
        if let Err(error) = sealed {
            eprintln!("store: sealing is tried again: {error}");
        }
    }

    /// What changed since it was last said.
    fn changes(&mut self) -> Vec<StoreTell> {
        if !std::mem::take(&mut self.changed) {
            return Vec::new();
        }
        let grown: Vec<Head> = self
            .store
            .heads()
            .into_iter()
            .filter(|head| self.known_heads.insert(head.chain, head.seq) != Some(head.seq))
            .collect();
        let mut tells = Vec::new();
        if self.store.members().len() != self.known_members {
            self.known_members = self.store.members().len();
            tells.push(StoreTell::Members(members(&self.store)));
        }
        if !grown.is_empty() {
            tells.push(StoreTell::Heads(grown));
        }
        tells
    }
}
