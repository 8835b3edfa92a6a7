//! One device: its store, what a person does at it, and what it was told is written.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use bailey_docs_store::{
    AccountError, ChainId, DeviceKeys, DevicePublic, DocId, Head, Reader, Reading, Role, Store,
    Urgency,
};
use bailey_model::{AccountId, DeviceId, Event, Gap, Timestamp};
use bailey_session::{Claims, IngestFailure, Session};

use super::dice::{Chance, Dice, Made};
use super::evil::Evil;
use super::lines::failure;
use super::post::Post;
use super::secrets::SECRET;

/// When histories begin, in milliseconds since 1970.
const BEGIN: u64 = 1_796_000_000_000;
/// The store's files, as far as a copy of one at rest has them.
const LOG: &str = "store.db-wal";

/// An entry that was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Acked {
    /// Whether nothing may take it: the folder it stands in was not put back since.
    pub(super) sure: bool,
    /// What it says.
    pub(super) text: u64,
}

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) session: Session,
    /// Pieces on their way here, and when each is there.
    pub(super) coming: VecDeque<(Duration, Vec<u8>)>,
    pub(super) closed: bool,
    /// The other is no member: it only hears so.
    pub(super) parting: bool,
}

/// What no power cut takes.
#[derive(Debug, Clone, Copy, Default)]
struct Safe {
    /// Bytes of the write-ahead log.
    log: u64,
    /// Entries below this.
    text: u64,
}

pub(super) struct Device {
    pub(super) at: usize,
    /// How far its clock is off, in milliseconds.
    pub(super) skew: i64,
    pub(super) dir: PathBuf,
    pub(super) keys: DeviceKeys,
    pub(super) dice: Dice,
    pub(super) store: Option<Store>,
    pub(super) account: Option<AccountId>,
    pub(super) claims: Claims,
    pub(super) lines: BTreeMap<usize, Line>,
    pub(super) told: BTreeMap<ChainId, u64>,
    /// When it last had everything on its disk.
    pub(super) synced: Duration,
    safe: Safe,
    /// What was acknowledged, by document and this device's own text of it.
    pub(super) acked: BTreeMap<(DocId, u64), Acked>,
    /// What it gave to its store at all.
    pub(super) given: BTreeSet<(DocId, u64)>,
    pub(super) next_text: u64,
    copied_at: Option<u64>,
    /// Whether its chains may have grown since it told others.
    pub(super) grown: bool,
    /// Chains of which it was told two envelopes of one number.
    pub(super) forks: BTreeSet<ChainId>,
    /// Writers of which it was told that they went back.
    pub(super) back: BTreeSet<DeviceId>,
    /// Whether its folder was ever put back, or lost what was not on the disk.
    pub(super) went_back: bool,
    pub(super) made: Made,
    /// Who is handed keys, and who is no longer: from which text on.
    readers: BTreeSet<DeviceId>,
    pub(super) barred: BTreeMap<DeviceId, u64>,
    pub(super) evil: Option<Evil>,
    pub(super) post: Post,
}

impl Device {
    pub(super) fn new(dice: &mut Dice, dir: &Path, at: usize) -> Self {
        let mut own = Dice::new(dice.roll());
        let keys = DeviceKeys::generate(own.bytes());
        let dir = dir.join(format!("{at}"));
        fs::create_dir_all(&dir).expect("a folder for a device");
        Self {
            at,
            skew: 0,
            dir,
            keys,
            dice: own,
            store: None,
            account: None,
            claims: Claims::new(),
            lines: BTreeMap::new(),
            told: BTreeMap::new(),
            synced: Duration::ZERO,
            safe: Safe::default(),
            acked: BTreeMap::new(),
            given: BTreeSet::new(),
            next_text: 0,
            copied_at: None,
            grown: true,
            forks: BTreeSet::new(),
            back: BTreeSet::new(),
            went_back: false,
            made: Made::default(),
            readers: BTreeSet::new(),
            barred: BTreeMap::new(),
            evil: None,
            post: Post::default(),
        }
    }

    pub(super) fn id(&self) -> DeviceId {
        self.keys.id()
    }

    pub(super) fn public(&self) -> DevicePublic {
        self.keys.public()
    }

    pub(super) fn clock(&self, now: Duration) -> Timestamp {
        let ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        Timestamp((BEGIN + ms).saturating_add_signed(self.skew))
    }

    /// Starts it, unless it runs. Each start has its own chance.
    pub(super) fn open(&mut self, now: Duration) {
        if self.store.is_some() {
            return;
        }
        let file = self.dir.join("store.db");
        if !file.exists() {
            // Making the tables is another test's; each store begins as a copy.
            fs::write(&file, empty()).expect("an empty store");
        }
        self.safe.log = self.log_len();
        let chance = Chance {
            dice: Dice::new(self.dice.roll()),
            made: self.made.clone(),
        };
        let store = Store::open(
            &self.dir,
            self.keys.clone(),
            self.clock(now),
            Box::new(chance),
        );
        let store = store.unwrap_or_else(|error| panic!("device {}: {error}", self.at));
        self.account = store.account();
        self.store = Some(store);
        self.told.clear();
        self.grown = true;
        self.note_safe();
        self.note_readers();
    }

    /// The first device of the account.
    pub(super) fn begin(&mut self, now: Duration) -> Vec<u8> {
        let at = self.clock(now);
        let store = self.store.as_mut().expect("it was opened");
        self.account = Some(store.create_account("first", at).expect("a first account"));
        let seed = store.recovery_seed().expect("the seed is kept");
        self.note_safe();
        self.note_readers();
        seed.expect("there is one").entropy().to_vec()
    }

    /// Ends it with whatever it was about to do.
    pub(super) fn kill(&mut self) {
        self.store = None;
        self.claims = Claims::new();
        self.post.hang_up();
    }

    /// Somebody keeps a copy of its folder; only of one at rest, as a backup is.
    pub(super) fn copy(&mut self) {
        if self.store.is_none() && self.account.is_some() {
            let copy = self.dir.with_extension("copy");
            let _ = fs::remove_dir_all(&copy);
            copy_dir(&self.dir, &copy, None);
            self.copied_at = Some(self.next_text);
        }
    }

    /// The copy takes the folder's place. What was acknowledged since may be gone
    /// here; the number of its next entry is remembered by the person, not by it.
    pub(super) fn restore(&mut self) -> bool {
        let Some(copied_at) = self.copied_at else {
            return false;
        };
        self.kill();
        let copy = self.dir.with_extension("copy");
        self.put_back(&copy, copied_at);
        true
    }

    /// The power goes: what was committed and not synced is gone with it.
    pub(super) fn lose_power(&mut self) -> bool {
        if self.store.is_none() {
            return false;
        }
        let cut = self.dir.with_extension("cut");
        copy_dir(&self.dir, &cut, Some(self.safe.log));
        self.kill();
        self.put_back(&cut, self.safe.text);
        let _ = fs::remove_dir_all(&cut);
        true
    }

    fn put_back(&mut self, from: &Path, text: u64) {
        let _ = fs::remove_dir_all(&self.dir);
        copy_dir(from, &self.dir, None);
        for ((_, own), acked) in &mut self.acked {
            acked.sure &= *own < text;
        }
        self.went_back = true;
        self.barred.clear();
        self.readers.clear();
        self.post = Post::default();
    }

    /// Writes entries; how many were acknowledged. A device that may not write yet,
    /// or does not run, writes none.
    pub(super) fn write(&mut self, now: Duration, doc: DocId, count: u64) -> Result<usize, String> {
        let clock = self.clock(now);
        let at = self.at;
        let failed = |what: &str, why: &dyn std::fmt::Display| format!("device {at} {what}: {why}");
        let Some(store) = self.store.as_mut() else {
            return Ok(0);
        };
        if store.members().get(&self.keys.id()).is_none() {
            return Ok(0);
        }
        let urgency = self
            .dice
            .pick(&[Urgency::Normal, Urgency::Prompt, Urgency::Urgent]);
        let mut written = Vec::new();
        for _ in 0..count {
            let text = self.next_text;
            self.next_text += 1;
            let reason = format!("{SECRET} {at} {text}");
            store
                .append(doc, Event::Gap(Gap { reason }), clock, urgency)
                .map_err(|error| failed("appends", &error))?;
            self.given.insert((doc, text));
            written.push(text);
        }
        if self.dice.one_in(10) {
            // Not committed yet: nobody was told.
            return Ok(0);
        }
        store
            .commit(urgency == Urgency::Urgent)
            .map_err(|error| failed("commits", &error))?;
        for text in &written {
            let acked = Acked {
                sure: true,
                text: *text,
            };
            self.acked.insert((doc, *text), acked);
        }
        self.note_safe();
        Ok(written.len())
    }

    /// Makes another device a member; false if this one may not, or does not run.
    pub(super) fn admit(
        &mut self,
        now: Duration,
        new: &mut Self,
        role: Role,
    ) -> Result<bool, String> {
        let (clock, theirs) = (self.clock(now), new.clock(now));
        let Some(store) = self.store.as_mut() else {
            return Ok(false);
        };
        let Ok(offer) = store.offer_add(new.keys.public(), role) else {
            return Ok(false);
        };
        let at = self.at;
        let failed = |what: &str, why: String| format!("device {at} {what}: {why}");
        let signed = offer
            .sign(&new.keys)
            .map_err(|error| failed("signs", error.to_string()))?;
        store
            .complete_add(&offer, signed, clock)
            .map_err(|error| failed("adds", error.to_string()))?;
        let account = store
            .account()
            .ok_or_else(|| failed("adds", "no account".to_owned()))?;
        let mut records = Vec::new();
        for head in store
            .heads()
            .iter()
            .filter(|head| head.chain.doc == DocId::Account)
        {
            let range = store.range(&head.chain, 1, usize::MAX, usize::MAX);
            records.extend(range.map_err(|error| failed("reads", error.to_string()))?);
        }
        let joining = new.store.as_mut().expect("it was opened");
        joining
            .join(account, &records, theirs)
            .map_err(|error| failed("is joined", error.to_string()))?;
        new.account = Some(account);
        new.note_safe();
        new.note_readers();
        self.acted(now)?;
        Ok(true)
    }

    /// Changes the account, as far as this device may: a removal, a role, new keys.
    pub(super) fn change(
        &mut self,
        now: Duration,
        change: impl FnOnce(&mut Store, Timestamp) -> Result<(), AccountError>,
    ) -> Result<bool, String> {
        let clock = self.clock(now);
        let Some(store) = self.store.as_mut() else {
            return Ok(false);
        };
        match change(store, clock) {
            Ok(()) => {}
            Err(AccountError::NotAllowed | AccountError::NoMember(_) | AccountError::NoAccount) => {
                return Ok(false);
            }
            Err(error) => return Err(format!("device {} changes: {error}", self.at)),
        }
        self.acted(now)?;
        Ok(true)
    }

    /// A record of this device stands.
    fn acted(&mut self, now: Duration) -> Result<(), String> {
        // Put back to before that, it would not know what it did, and nobody else may
        // know it yet either: a person would have to do it anew.
        self.copied_at = None;
        self.grown = true;
        self.sync(now)?;
        self.note_readers();
        self.part_with_removed(now);
        Ok(())
    }

    pub(super) fn sync(&mut self, now: Duration) -> Result<(), String> {
        if let Some(store) = &mut self.store {
            let synced = store.commit(true);
            synced.map_err(|error| format!("device {} commits: {error}", self.at))?;
            self.synced = now;
        }
        self.note_safe();
        Ok(())
    }

    /// If all that it committed is on its disk, no power cut takes it from here on.
    pub(super) fn note_safe(&mut self) {
        if self.store.as_ref().is_some_and(Store::is_synced) {
            self.safe = Safe {
                log: self.log_len(),
                text: self.next_text,
            };
        }
    }

    fn log_len(&self) -> u64 {
        let log = fs::metadata(self.dir.join(LOG));
        log.map_or(0, |log| log.len())
    }

    /// Whoever reads no more: nothing that is written from here on is for it.
    pub(super) fn note_readers(&mut self) {
        let Some(store) = &self.store else { return };
        let members = store.members().iter();
        let readers = members.filter(|(_, member)| member.role.reads());
        let readers: BTreeSet<DeviceId> = readers.map(|(device, _)| *device).collect();
        let own = self.keys.id();
        for gone in self.readers.difference(&readers).filter(|it| **it != own) {
            self.barred.insert(*gone, self.next_text);
        }
        self.barred.retain(|device, _| !readers.contains(device));
        self.readers = readers;
    }

    /// Whether it runs and holds another, by its keys, for a member.
    pub(super) fn trusts(&self, other: &Self) -> bool {
        self.member(other.id()).is_some()
    }

    pub(super) fn member(&self, device: DeviceId) -> Option<Role> {
        let store = self.store.as_ref()?;
        store.members().get(&device).map(|member| member.role)
    }

    /// Whether it knows that another was a member, or passed for one, and is none.
    pub(super) fn knows_removed(&self, device: DeviceId) -> bool {
        let Some(store) = &self.store else {
            return false;
        };
        let mut gone = store.members().former().chain(store.members().undone());
        gone.any(|(id, _)| *id == device)
    }

    /// Whether nothing is under way to it and it has nothing to do.
    pub(super) fn is_quiet(&self, now: Duration) -> bool {
        let clock = self.clock(now);
        let store = self.store.as_ref();
        store.is_some_and(|store| store.is_synced() && store.seal_due(clock).is_none())
            && self.lines.values().all(|line| line.coming.is_empty())
            && self.post.is_quiet()
    }

    /// What it still has to do.
    pub(super) fn busy(&self, now: Duration) -> String {
        let coming: usize = self.lines.values().map(|line| line.coming.len()).sum();
        let clock = self.clock(now);
        let Some(store) = &self.store else {
            return format!("{}: does not run", self.at);
        };
        let due = store.seal_due(clock).map(|due| due.0.abs_diff(clock.0));
        let (synced, waits) = (store.is_synced(), self.post.waits());
        format!(
            "{}: {coming} pieces coming, {waits} letters wait, synced {synced}, seals in {due:?} ms",
            self.at
        )
    }

    /// How far it has every chain.
    pub(super) fn heads(&self) -> BTreeMap<ChainId, Head> {
        let heads = self.store.as_ref().map(Store::heads).unwrap_or_default();
        heads.into_iter().map(|head| (head.chain, head)).collect()
    }

    /// Every envelope that it has of a chain.
    pub(super) fn envelopes(&self, chain: &ChainId) -> Result<Vec<Vec<u8>>, String> {
        let Some(store) = &self.store else {
            return Ok(Vec::new());
        };
        let range = store.range(chain, 1, usize::MAX, usize::MAX);
        range.map_err(|error| format!("device {} reads {chain:?}: {error}", self.at))
    }

    /// Is given everything that there is, in any order, and takes what it can.
    pub(super) fn take_all(&mut self, now: Duration, mut envelopes: Vec<Vec<u8>>) {
        let clock = self.clock(now);
        let Some(store) = &mut self.store else { return };
        loop {
            let before = envelopes.len();
            envelopes.retain(|bytes| {
                let taken = store.ingest(bytes, clock);
                taken.is_err_and(|error| failure(&error) == IngestFailure::Gap)
            });
            if envelopes.len() == before {
                break;
            }
        }
        while store
            .open_waiting(clock)
            .is_ok_and(|opened| !opened.is_empty())
        {}
    }

    /// Everything that it can read of some documents.
    pub(super) fn read(&self, docs: &[DocId]) -> Result<Vec<Reading>, String> {
        let failed = |why: &dyn std::fmt::Display| format!("device {} reads: {why}", self.at);
        let mut reader =
            Reader::open(&self.dir, self.keys.clone()).map_err(|error| failed(&error))?;
        let read = |doc: &DocId| reader.read(*doc, None).map_err(|error| failed(&error));
        docs.iter().map(read).collect()
    }
}

/// A store without an account, as a file.
fn empty() -> &'static [u8] {
    static EMPTY: OnceLock<Vec<u8>> = OnceLock::new();
    EMPTY.get_or_init(|| {
        let dir = super::TempDir::new("empty");
        let keys = DeviceKeys::generate([1; DeviceKeys::LEN]);
        let chance = Chance {
            dice: Dice::new(0),
            made: Made::default(),
        };
        let store = Store::open(&dir.0, keys, Timestamp(BEGIN), Box::new(chance));
        drop(store.expect("an empty store"));
        fs::read(dir.0.join("store.db")).expect("its file")
    })
}

/// Copies a folder's files; of the write-ahead log, so many bytes where it is said.
fn copy_dir(from: &Path, to: &Path, log: Option<u64>) {
    fs::create_dir_all(to).expect("a folder for a copy");
    for file in fs::read_dir(from).expect("the folder of a device") {
        let file = file.expect("a file of a device");
        let name = file.file_name();
        let target = to.join(&name);
        if log.is_some() && name.to_string_lossy().ends_with("-shm") {
            continue;
        }
        fs::copy(file.path(), &target).expect("a copy of a file");
        if let (Some(len), true) = (log, name == LOG) {
            let file = fs::OpenOptions::new().write(true).open(&target);
            let cut = file.and_then(|file| file.set_len(len));
            cut.expect("the log is cut");
        }
    }
}
