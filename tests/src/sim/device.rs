//! One device: its store, its sessions, and what it was told is written.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bailey_docs_store::{
    ChainId, DeviceKeys, DevicePublic, DocId, Entropy as _, Head, IngestError, Reader, Role, Store,
    Urgency,
};
use bailey_model::{AccountId, DeviceId, Event, Gap, Timestamp};
use bailey_session::{Claims, IngestFailure, Session, SessionConfig, SessionEvent};

use super::dice::Dice;
use super::judge::SECRET;

/// When histories begin, in milliseconds since 1970.
const BEGIN: u64 = 1_796_000_000_000;
/// What a power cut may take is not asked here: every commit is synced at last by then.
const SYNC_EVERY: Duration = Duration::from_millis(250);
/// Most envelopes of one answer.
const MAX_RANGE: usize = 2048;
/// Most frames of one connection under way, as a link's own buffer would have.
const MAX_ON_LINE: usize = 16;

/// An entry that was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Acked {
    /// Whether nothing may take it: the folder it stands in was not put back since.
    pub(super) sure: bool,
    /// What it says.
    pub(super) text: u64,
}

#[derive(Debug)]
struct Line {
    session: Session,
    /// Pieces on their way here, and when each is there.
    coming: VecDeque<(Duration, Vec<u8>)>,
    closed: bool,
}

/// What the other side of a connection is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer {
    pub(super) device: DeviceId,
}

pub(super) struct Device {
    pub(super) at: usize,
    pub(super) skew: i64,
    pub(super) dir: PathBuf,
    keys: DeviceKeys,
    dice: Dice,
    store: Option<Store>,
    account: Option<AccountId>,
    claims: Claims,
    lines: BTreeMap<usize, Line>,
    told: BTreeMap<ChainId, u64>,
    synced: Duration,
    /// What was acknowledged, by document and this device's own text of it.
    pub(super) acked: BTreeMap<(DocId, u64), Acked>,
    /// What it gave to its store at all.
    pub(super) given: BTreeMap<(DocId, u64), ()>,
    next_text: u64,
    copied_at: Option<u64>,
    /// Whether its chains may have grown since it told others.
    grown: bool,
    /// The last fork that it was told of.
    pub(super) fork: Option<String>,
}

impl Device {
    pub(super) fn new(dice: &mut Dice, dir: &Path, at: usize) -> Self {
        let mut secret = [0; DeviceKeys::LEN];
        let mut own = Dice::new(dice.roll());
        own.fill(&mut secret).expect("dice always roll");
        let dir = dir.join(format!("{at}"));
        fs::create_dir_all(&dir).expect("a folder for a device");
        Self {
            at,
            skew: 0,
            dir,
            keys: DeviceKeys::generate(secret),
            dice: own,
            store: None,
            account: None,
            claims: Claims::new(),
            lines: BTreeMap::new(),
            told: BTreeMap::new(),
            synced: Duration::ZERO,
            acked: BTreeMap::new(),
            given: BTreeMap::new(),
            next_text: 0,
            copied_at: None,
            grown: true,
            fork: None,
        }
    }

    pub(super) fn id(&self) -> DeviceId {
        self.keys.id()
    }

    fn clock(&self, now: Duration) -> Timestamp {
        let ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        Timestamp((BEGIN + ms).saturating_add_signed(self.skew))
    }

    /// Starts it, unless it runs. Each start has its own chance.
    pub(super) fn open(&mut self, now: Duration) {
        if self.store.is_some() {
            return;
        }
        let entropy = Box::new(Dice::new(self.dice.roll()));
        let store = Store::open(&self.dir, self.keys.clone(), self.clock(now), entropy);
        let store = store.unwrap_or_else(|error| panic!("device {}: {error}", self.at));
        self.account = store.account();
        self.store = Some(store);
        self.told.clear();
        self.grown = true;
    }

    /// The first device of the account.
    pub(super) fn begin(&mut self, now: Duration) {
        let at = self.clock(now);
        let store = self.store.as_mut().expect("it was opened");
        self.account = Some(store.create_account("first", at).expect("a first account"));
    }

    /// Ends it with whatever it was about to do.
    pub(super) fn kill(&mut self) {
        self.store = None;
        self.claims = Claims::new();
    }

    /// Somebody keeps a copy of its folder; only of one at rest, as a backup is.
    pub(super) fn copy(&mut self) {
        if self.store.is_none() {
            let copy = self.dir.with_extension("copy");
            let _ = fs::remove_dir_all(&copy);
            copy_dir(&self.dir, &copy);
            self.copied_at = Some(self.next_text);
        }
    }

    /// The copy takes the folder's place. What was acknowledged since may be gone
    /// here; the number of its next entry is remembered by the person, not by it.
    pub(super) fn restore(&mut self) {
        let Some(copied_at) = self.copied_at else {
            return;
        };
        self.store = None;
        let _ = fs::remove_dir_all(&self.dir);
        copy_dir(&self.dir.with_extension("copy"), &self.dir);
        for ((_, text), acked) in &mut self.acked {
            acked.sure &= *text < copied_at;
        }
    }

    /// Writes entries; how many were acknowledged. A device that may not write yet,
    /// or does not run, writes none.
    pub(super) fn write(&mut self, now: Duration, doc: DocId, count: u64) -> Result<usize, String> {
        let clock = self.clock(now);
        let Some(store) = self.store.as_mut() else {
            return Ok(0);
        };
        if store.members().get(&self.keys.id()).is_none() {
            return Ok(0);
        }
        let urgency = match self.dice.below(3) {
            0 => Urgency::Normal,
            1 => Urgency::Prompt,
            _ => Urgency::Urgent,
        };
        let mut written = Vec::new();
        for _ in 0..count {
            let text = self.next_text;
            self.next_text += 1;
            let reason = format!("{SECRET} {} {text}", self.at);
            store
                .append(doc, Event::Gap(Gap { reason }), clock, urgency)
                .map_err(|error| format!("device {} appends: {error}", self.at))?;
            self.given.insert((doc, text), ());
            written.push(text);
        }
        if self.dice.one_in(10) {
            // Killed before it is committed: nobody was told.
            return Ok(0);
        }
        store
            .commit(urgency == Urgency::Urgent)
            .map_err(|error| format!("device {} commits: {error}", self.at))?;
        for text in &written {
            let acked = Acked {
                sure: true,
                text: *text,
            };
            self.acked.insert((doc, *text), acked);
        }
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
        self.grown = true;
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
        // Put back to before that, it would not know whom it added, and nobody else may
        // know it yet either: then the two have to be joined anew by a person.
        self.copied_at = None;
        Ok(true)
    }

    pub(super) fn peer(&self) -> Peer {
        Peer { device: self.id() }
    }

    pub(super) fn speaks_with(&self, other: usize) -> bool {
        self.lines.contains_key(&other)
    }

    /// Whether it runs and holds another, by its keys, for a member.
    pub(super) fn trusts(&self, other: &Self) -> bool {
        let store = self.store.as_ref();
        store.is_some_and(|store| store.members().get(&other.id()).is_some())
    }

    pub(super) fn member(&self, device: DeviceId) -> Option<Role> {
        let store = self.store.as_ref()?;
        store.members().get(&device).map(|member| member.role)
    }

    pub(super) fn public(&self) -> DevicePublic {
        self.keys.public()
    }

    /// A connection with another begins.
    pub(super) fn call(&mut self, other: usize, peer: Peer, now: Duration) {
        let (Some(store), Some(account)) = (&self.store, self.account) else {
            return;
        };
        let config = SessionConfig {
            account,
            peer: peer.device,
            incarnation: store.incarnation(),
            listen_port: 1,
        };
        let mut session = Session::new(config, now);
        match store.is_synced() {
            true => session.handle_local_heads(&store.heads()),
            // All of them, once they are.
            false => self.told.clear(),
        }
        self.grown = true;
        let line = Line {
            session,
            coming: VecDeque::new(),
            closed: false,
        };
        self.lines.insert(other, line);
    }

    /// It is over, with all that was under way.
    pub(super) fn hang_up(&mut self, other: usize) {
        if let Some(line) = self.lines.remove(&other) {
            self.claims.release_all(line.session.peer());
        }
    }

    pub(super) fn arrive(&mut self, from: usize, at: Duration, pieces: [Vec<u8>; 2]) {
        if let Some(line) = self.lines.get_mut(&from) {
            for piece in pieces {
                let last = line.coming.back().map_or(Duration::ZERO, |(at, _)| *at);
                line.coming.push_back((at.max(last), piece));
            }
        }
    }

    /// Everything that is due here.
    pub(super) fn work(&mut self, now: Duration) -> Result<(), String> {
        if self.store.is_none() {
            return Ok(());
        }
        let peers: Vec<usize> = self.lines.keys().copied().collect();
        for peer in peers {
            self.hear(now, peer);
            self.answer(now, peer)?;
        }
        self.tend(now)
    }

    fn hear(&mut self, now: Duration, peer: usize) {
        let Some(line) = self.lines.get_mut(&peer) else {
            return;
        };
        while line.coming.front().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, piece)) = line.coming.pop_front() {
                line.session.handle_bytes(now, &piece, &mut self.claims);
            }
        }
        if line.session.poll_timeout().is_some_and(|(at, _)| at <= now) {
            line.session.handle_timeout(now);
        }
    }

    fn answer(&mut self, now: Duration, peer: usize) -> Result<(), String> {
        let clock = self.clock(now);
        while let (Some(line), Some(store)) = (self.lines.get_mut(&peer), self.store.as_mut()) {
            let Some(event) = line.session.poll_event() else {
                break;
            };
            match event {
                SessionEvent::NeedRange {
                    chain,
                    from,
                    max_bytes,
                } => {
                    let bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX);
                    let range = store.range(&chain, from, MAX_RANGE, bytes);
                    let range = range.map_err(|error| error.to_string())?;
                    line.session.handle_range(chain, from, range);
                }
                SessionEvent::Envelope { chain, bytes } => {
                    let taken = match store.ingest(&bytes, clock) {
                        Ok(ingested) => Ok(ingested.seq),
                        Err(IngestError::Quarantined { seq, .. }) => Ok(seq),
                        Err(error) => Err(failure(&error)),
                    };
                    self.grown = true;
                    self.ingested(now, peer, chain, taken);
                }
                SessionEvent::Fork { chain, seq, .. } => {
                    self.fork = Some(format!("device {} sees a fork: {chain:?} {seq}", self.at));
                }
                SessionEvent::Closed(_) => line.closed = true,
                SessionEvent::Up { .. } | SessionEvent::CaughtUp => {}
            }
        }
        Ok(())
    }

    fn ingested(
        &mut self,
        now: Duration,
        peer: usize,
        chain: ChainId,
        taken: Result<u64, IngestFailure>,
    ) {
        for (other, line) in &mut self.lines {
            match taken {
                Ok(seq) if *other == peer => {
                    line.session
                        .handle_ingested(now, chain, seq, &mut self.claims);
                }
                Ok(seq) => line.session.handle_have(chain, seq),
                Err(failure) if *other == peer => {
                    let claims = &mut self.claims;
                    line.session
                        .handle_ingest_failed(now, chain, failure, claims);
                }
                Err(_) => {}
            }
        }
    }

    /// What its own loop does: opens what waited, seals, syncs, tells what grew.
    fn tend(&mut self, now: Duration) -> Result<(), String> {
        let clock = self.clock(now);
        let at = self.at;
        let failed = |what: &str, why: &dyn std::fmt::Display| format!("device {at} {what}: {why}");
        let Some(store) = self.store.as_mut() else {
            return Ok(());
        };
        while self.grown
            && !store
                .open_waiting(clock)
                .map_err(|error| failed("opens", &error))?
                .is_empty()
        {}
        if store.seal_due(clock).is_some_and(|due| due <= clock) {
            store.seal(clock).map_err(|error| failed("seals", &error))?;
            self.grown = true;
        }
        if !store.is_synced() && now >= self.synced + SYNC_EVERY {
            store
                .commit(true)
                .map_err(|error| failed("commits", &error))?;
            self.synced = now;
        }
        if self.grown && store.is_synced() {
            self.grown = false;
            let heads = store.heads().into_iter();
            let told = &mut self.told;
            let grown: Vec<Head> = heads
                .filter(|head| told.insert(head.chain, head.seq) != Some(head.seq))
                .collect();
            if !grown.is_empty() {
                for line in self.lines.values_mut() {
                    line.session.handle_local_heads(&grown);
                }
            }
        }
        Ok(())
    }

    /// Frames for others, as far as the links take them.
    pub(super) fn take_frames(&mut self, now: Duration) -> Vec<(usize, Vec<u8>)> {
        let mut frames = Vec::new();
        for (peer, line) in &mut self.lines {
            for _ in 0..MAX_ON_LINE {
                let Some(frame) = line.session.poll_transmit(now, &mut self.claims) else {
                    break;
                };
                frames.push((*peer, frame));
            }
        }
        frames
    }

    /// Connections that one side ended.
    pub(super) fn take_closed(&mut self) -> Vec<usize> {
        let closed = self.lines.iter().filter(|(_, line)| line.closed);
        closed.map(|(peer, _)| *peer).collect()
    }

    /// When something is due here.
    pub(super) fn due(&self, now: Duration) -> Option<Duration> {
        let clock = self.clock(now);
        let store = self.store.as_ref()?;
        let lines = self.lines.values().flat_map(|line| {
            let coming = line.coming.front().map(|(at, _)| *at);
            let timer = line.session.poll_timeout().map(|(at, _)| at);
            coming.into_iter().chain(timer)
        });
        let seal = store
            .seal_due(clock)
            .map(|due| now + Duration::from_millis(due.0.saturating_sub(clock.0)));
        let sync = (!store.is_synced()).then_some(self.synced + SYNC_EVERY);
        lines.chain(seal).chain(sync).min()
    }

    /// Whether nothing is under way to it and it has nothing to do.
    pub(super) fn is_quiet(&self, now: Duration) -> bool {
        let clock = self.clock(now);
        let store = self.store.as_ref();
        store.is_some_and(|store| store.is_synced() && store.seal_due(clock).is_none())
            && self.lines.values().all(|line| line.coming.is_empty())
    }

    /// What it still has to do.
    pub(super) fn busy(&self, now: Duration) -> String {
        let coming: usize = self.lines.values().map(|line| line.coming.len()).sum();
        let clock = self.clock(now);
        let Some(store) = &self.store else {
            return format!("{}: does not run", self.at);
        };
        let due = store.seal_due(clock).map(|due| due.0.abs_diff(clock.0));
        let synced = store.is_synced();
        format!(
            "{}: {coming} pieces coming, synced {synced}, seals in {due:?} ms",
            self.at
        )
    }

    /// How far it has every chain.
    pub(super) fn heads(&self) -> BTreeMap<ChainId, Head> {
        let heads = self.store.as_ref().map(Store::heads).unwrap_or_default();
        heads.into_iter().map(|head| (head.chain, head)).collect()
    }

    /// Everything that it can read of a document: writer and text. Each entry once.
    pub(super) fn read(&self, doc: DocId) -> Result<Vec<(DeviceId, u64, Event)>, String> {
        let failed =
            |why: &dyn std::fmt::Display| format!("device {} reads {doc:?}: {why}", self.at);
        let mut reader =
            Reader::open(&self.dir, self.keys.clone()).map_err(|error| failed(&error))?;
        let reading = reader.read(doc, None).map_err(|error| failed(&error))?;
        if let Some((chain, seq, reason)) = reading.aside.first() {
            return Err(failed(&format!(
                "envelope {seq} of {chain:?} is set aside: {reason}"
            )));
        }
        let waiting = !reading.waiting.is_empty();
        if waiting && self.member(self.id()).is_some_and(Role::reads) {
            return Err(failed(&format!("a key never came: {:?}", reading.waiting)));
        }
        let entries = reading.entries.into_iter();
        Ok(entries
            .map(|(writer, entry)| (writer, entry.no, entry.event))
            .collect())
    }
}

/// Whether it is worth offering an envelope again, as the node judges it.
fn failure(error: &IngestError) -> IngestFailure {
    match error {
        IngestError::Gap { .. }
        | IngestError::NotMember(_)
        | IngestError::NoAccount
        | IngestError::Db(_) => IngestFailure::Gap,
        _ => IngestFailure::Permanent,
    }
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder for a copy");
    for file in fs::read_dir(from).expect("the folder of a device") {
        let file = file.expect("a file of a device");
        fs::copy(file.path(), to.join(file.file_name())).expect("a copy of a file");
    }
}
