//! The store's own thread: takes the loop's asks, commits what came together
//! in one go, seals what is due, and answers each ask once.
//!
//! An ask is answered only after its entry is committed, so an answered ticket
//! may be dialled.

mod mail;
mod pace;
mod thinning;
mod thread;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as blocking;
use std::time::Duration;

use bailey_docs_store::{
    AddOffer, ChainId, Checkpointer, DbError, DeviceKeys, DevicePublic, DocId, Early, Fork, Hash,
    Head, Members, Misuse, OpenDbError, OpenError, OsEntropy, Reader, Role, Store, Urgency,
};
use bailey_model::{AccountId, DeviceId, Entry, Event, Incarnation};
use bailey_sync::IngestFailure;
use tokio::sync::mpsc;

pub(crate) use self::mail::{MailAsk, MailTell, Took};
use self::thinning::Thinner;
use self::thread::Thread;
pub(crate) use self::thread::flat;
use super::clock;
use super::event::{ConnId, RunId};
use crate::account;
use crate::api::Failure;
use crate::config::Audit;
use crate::log::log;
use crate::paths::Paths;

/// Asks under way at once; the loop takes no further event past it.
pub(crate) const IN_FLIGHT: usize = 1024;
/// Room in the channel beyond that: what one event, or a start, may ask for.
const SLACK: usize = 65_536;
/// Between two checkpoints of the write-ahead log.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(2);

/// An entry to append.
#[derive(Debug)]
pub(crate) struct Entering {
    pub(crate) doc: DocId,
    pub(crate) event: Event,
    pub(crate) urgency: Urgency,
    pub(crate) tag: Tag,
}

/// What the loop wants of the store.
#[derive(Debug)]
pub(crate) enum StoreAsk {
    /// Append entries in one commit, in this order. Each is answered.
    Append(Vec<Entering>),
    /// Take an envelope of another device.
    Ingest {
        peer: DeviceId,
        chain: ChainId,
        bytes: Vec<u8>,
    },
    /// Read envelopes for a peer.
    Range {
        peer: DeviceId,
        chain: ChainId,
        from_seq: u64,
        max_bytes: u32,
    },
    /// Make an account of this device alone.
    CreateAccount { name: String },
    /// Offer to add a device.
    Offer {
        conn: ConnId,
        device: DevicePublic,
        role: Role,
    },
    /// Add a device that signed the offer.
    Add {
        conn: ConnId,
        offer: Box<AddOffer>,
        cosignature: [u8; 64],
    },
    /// Change the account.
    Change { conn: ConnId, change: AccountChange },
    /// Be one of an account, from its records.
    Join {
        conn: ConnId,
        account: AccountId,
        envelopes: Vec<Vec<u8>>,
        host: DeviceId,
        addrs: Vec<SocketAddr>,
    },
    /// Something of the recovery key, or of the account's copy.
    Recovery {
        conn: ConnId,
        step: super::recovery::Step,
    },
    /// Something for a mailbox, or of one.
    Mail(MailAsk),
    /// Seal all that is in the journal: nothing comes after it.
    Seal,
}

/// What is changed about the account.
#[derive(Debug)]
pub(crate) enum AccountChange {
    /// These are no members any more.
    Remove(Vec<DeviceId>),
    /// The same, by the recovery key of these words.
    RemoveByRecovery(Vec<DeviceId>, String),
    /// This one may do so much.
    Role(DeviceId, Role),
    /// New keys for what comes.
    Rotate,
}

/// Whom an appended entry concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tag {
    /// Nobody waits.
    None,
    /// A run's entry in the node's document, by which it is listed.
    Listed(RunId),
    /// A run's first entry in its own document.
    Started(RunId),
    /// What it is given, entered with it.
    Given(RunId),
    /// What was measured of a run.
    Report(RunId),
    /// An entry of a run that its gate waits for.
    Ticket(RunId, u64),
    /// A flow of a run that is noted and dialled, by the note's number.
    Noted(RunId, u64),
    /// An entry of a run that nothing waits for.
    Told(RunId),
    /// That so many entries of a run are missing.
    Missing(RunId, u64),
    /// One of the entries of a run's changed reach.
    Reach(RunId, DocId),
    /// One of these that could not be written before.
    ReachAgain(RunId, DocId),
    /// One of the entries that a run is paused, or goes on.
    Pause(RunId, DocId),
    /// A receipt.
    Receipt,
    /// That a run's headers are captured.
    Capture(RunId),
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
    NotAppended {
        tag: Tag,
        why: String,
        event: Box<Event>,
    },
    /// An envelope was taken.
    Ingested {
        peer: DeviceId,
        chain: ChainId,
        seq: u64,
        opened: Vec<(DocId, DeviceId, Entry)>,
    },
    /// An envelope was not taken.
    NotIngested {
        peer: DeviceId,
        chain: ChainId,
        failure: IngestFailure,
        why: String,
    },
    /// Envelopes for a peer.
    Range {
        peer: DeviceId,
        chain: ChainId,
        from_seq: u64,
        envelopes: Vec<Vec<u8>>,
    },
    /// There is an account, or it could not be made.
    Account(Result<AccountId, String>),
    /// An offer, or why there is none.
    Offered {
        conn: ConnId,
        offer: Result<Box<AddOffer>, String>,
    },
    /// The device is added: the account and its records.
    Added {
        conn: ConnId,
        added: Result<(AccountId, Vec<Vec<u8>>), String>,
    },
    /// The account is changed: the record, if there is one.
    Changed {
        conn: ConnId,
        changed: Result<Option<Hash>, String>,
    },
    /// This device is one of the account now.
    Joined(super::pairing::Joined),
    /// What came of a [`StoreAsk::Recovery`].
    Recovery {
        conn: ConnId,
        result: Result<super::recovery::Told, String>,
    },
    /// What came of a [`StoreAsk::Mail`].
    Mail(MailTell),
    /// [`StoreAsk::Seal`] was tried; heads that grew are told before.
    Sealed,
    /// Chains grew. Not an answer to an ask.
    Heads(Vec<Head>),
    /// Chains of which only a tombstone is left. Not an answer to an ask.
    Spent(Vec<Head>),
    /// Devices dropped what they should still have. Not an answer to an ask.
    Early(Vec<Early>),
    /// Keys that other devices misused.
    Misused(Vec<Misuse>),
    /// A writer goes on from an older copy of its store, or writes twice. Not an
    /// answer to an ask; once a writer.
    WentBack { writer: DeviceId },
    /// A writer signed two envelopes with one number. Not an answer to an ask; once a
    /// chain.
    TwoOfOne(Fork),
    /// Who is a member now. Not an answer to an ask.
    Members(Box<Members>),
    /// What had waited for a key, or in vain for one, can be read. Not an answer to an ask.
    Opened(Vec<(DocId, DeviceId, Entry)>),
}

impl StoreTell {
    /// Whether it answers an ask.
    pub(crate) fn is_answer(&self) -> bool {
        !matches!(
            self,
            Self::Heads(_)
                | Self::Spent(_)
                | Self::Members(_)
                | Self::Early(_)
                | Self::Misused(_)
                | Self::WentBack { .. }
                | Self::Opened(_)
                | Self::TwoOfOne(_)
        )
    }
}

/// A store that is open, and its thread.
pub(crate) struct Opened {
    /// Each as many as came together, in order.
    pub(crate) asks: blocking::SyncSender<Vec<StoreAsk>>,
    pub(crate) tells: mpsc::Receiver<Vec<StoreTell>>,
    pub(crate) keys: Arc<DeviceKeys>,
    pub(crate) account: Option<AccountId>,
    pub(crate) incarnation: Incarnation,
    /// Entries of the documents that the node folds.
    pub(crate) history: Vec<(DocId, DeviceId, Entry)>,
    pub(crate) heads: Vec<Head>,
    pub(crate) members: Members,
}

/// Refuses where there is a store and no key of it: keys made anew would be a
/// stranger's to what it holds.
pub(crate) fn not_without_its_key(paths: &Paths, key_file: &Path) -> Result<(), Failure> {
    if paths.state.join("store.db").exists() && !key_file.exists() {
        let text = format!("{}: the key of this store is gone", key_file.display());
        return Err(Failure::host(text));
    }
    Ok(())
}

/// Opens the store and starts its thread.
pub(crate) fn open(paths: &Paths, keys: DeviceKeys, audit: Audit) -> Result<Opened, Failure> {
    let host = |error: &dyn std::fmt::Display| Failure::host(format!("store: {error}"));
    let mut store = Store::open(
        &paths.state,
        keys.clone(),
        clock::now(),
        Box::new(OsEntropy),
    )
    .map_err(|error| Failure {
        hint: hint(&error),
        ..host(&error)
    })?;
    let keys = Arc::new(keys);
    let (account, incarnation) = (store.account(), store.incarnation());
    let (heads, members) = (synced_heads(&store), store.members().clone());
    let mut history = Vec::new();
    if account.is_some() {
        let mut reader = reader(paths, &keys)?;
        for doc in [
            DocId::Node,
            DocId::Notices,
            DocId::HereNotices,
            DocId::Requests,
        ] {
            let entries = reader.entries(doc, None).map_err(|error| host(&error))?;
            history.extend(
                entries
                    .into_iter()
                    .map(|(writer, entry)| (doc, writer, entry)),
            );
        }
    }
    // A node that ended before it had emptied the log does it now.
    let forgot = Arc::new(AtomicBool::new(true));
    let durable = audit.durable;
    let thinner = Thinner::new(audit, &mut store, Arc::clone(&forgot));
    let this = store.device();
    for (doc, writer, entry) in &history {
        if (*doc, *writer) == (DocId::Node, this) {
            thinner.on_start(&mut store, &entry.event);
        }
    }
    super::slates::recover(&mut store, paths, &keys);
    let checkpointer = store.checkpointer().map_err(|error| host(&error))?;
    let (asks, incoming) = blocking::sync_channel(IN_FLIGHT + SLACK);
    let (outgoing, tells) = mpsc::channel(IN_FLIGHT);
    std::thread::Builder::new()
        .name("store".to_owned())
        .spawn(move || Thread::new(store, thinner, outgoing, durable).serve(&incoming))
        .map_err(|error| host(&error))?;
    checkpoint(checkpointer, forgot).map_err(|error| host(&error))?;
    Ok(Opened {
        asks,
        tells,
        keys,
        account,
        incarnation,
        history,
        heads,
        members,
    })
}

/// What would help where a store does not open.
fn hint(error: &OpenError) -> Option<String> {
    match error {
        OpenError::InUse { .. }
        | OpenError::Lock { .. }
        | OpenError::Entropy(_)
        | OpenError::Query(DbError::Full)
        | OpenError::Db(
            OpenDbError::Older { .. }
            | OpenDbError::Newer { .. }
            | OpenDbError::Gone(_)
            | OpenDbError::Io { .. },
        ) => None,
        _ => Some(account::command(
            "store repair puts it in order, and deletes nothing",
        )),
    }
}

/// Moves the write-ahead log into the database beside the writer, which then
/// never waits for it, and empties it once keys are forgotten. Ends with the process.
fn checkpoint(checkpointer: Checkpointer, forgot: Arc<AtomicBool>) -> std::io::Result<()> {
    let run = move || loop {
        std::thread::sleep(CHECKPOINT_EVERY);
        if let Err(error) = checkpointer.run() {
            log!("store: checkpoint: {error}");
        }
        if forgot.swap(false, Ordering::Relaxed) && !matches!(checkpointer.truncate(), Ok(true)) {
            // Somebody reads or writes just now.
            forgot.store(true, Ordering::Relaxed);
        }
    };
    std::thread::Builder::new()
        .name("checkpoint".to_owned())
        .spawn(run)
        .map(drop)
}

/// Waits until the thread has sealed what is left and is gone.
pub(crate) async fn finish(tells: &mut mpsc::Receiver<Vec<StoreTell>>) {
    while tells.recv().await.is_some() {}
}

/// A reader of its own connection.
pub(crate) fn reader(paths: &Paths, keys: &DeviceKeys) -> Result<Reader, Failure> {
    Reader::open(&paths.state, keys.clone())
        .map_err(|error| Failure::host(format!("store: {error}")))
}

/// Heads that others may see: none while a power cut could take one of them.
fn synced_heads(store: &Store) -> Vec<Head> {
    match store.is_synced() {
        true => store.heads(),
        false => Vec::new(),
    }
}

/// How many answers an ask gets.
pub(crate) fn answers_of(ask: &StoreAsk) -> usize {
    match ask {
        StoreAsk::Append(entries) => entries.len(),
        _ => 1,
    }
}
