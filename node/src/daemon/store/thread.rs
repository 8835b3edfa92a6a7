//! The thread itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc as blocking;
use std::time::{Duration, Instant};

use bailey_docs_store::{
    ChainId, DocId, Fork, Hash, Head, IngestError, Ingested, Members, Outcome, Store, Urgency,
    seed_of_words,
};
use bailey_model::{AccountId, DeviceId, Entry};
use bailey_sync::IngestFailure;
use tokio::sync::mpsc;

use super::super::clock;
use super::super::pairing::Joined;
use super::pace::Pace;
use super::{AccountChange, Entering, StoreAsk, StoreTell, Tag, Thinner, synced_heads};
use crate::config::Durable;
use crate::log::log;

/// Most asks committed together, and as many again as one turn of the loop has.
const BATCH: usize = 256;
/// Longest sleep of the thread; it then looks at what is due.
const NAP: Duration = Duration::from_secs(60);
/// Between two looks for what waits for a key in vain, where nothing comes.
const VAIN_EVERY: Duration = Duration::from_secs(10 * 60);
/// Between two looks for chains of which only a tombstone is left.
const SPENT_EVERY: Duration = Duration::from_secs(60 * 60);
/// Most envelopes in one answer to a peer.
const MAX_RANGE: usize = 2048;
/// Most envelopes of the account's document in a welcome.
const MAX_WELCOME: usize = 4096;
/// Most bytes of them.
const MAX_WELCOME_BYTES: usize = 1 << 20;

pub(crate) fn flat(opened: Vec<bailey_docs_store::Opened>) -> Vec<(DocId, DeviceId, Entry)> {
    let of = |opened: bailey_docs_store::Opened| {
        let (doc, writer) = (opened.chain.doc, opened.chain.writer);
        opened
            .entries
            .into_iter()
            .map(move |entry| (doc, writer, entry))
    };
    opened.into_iter().flat_map(of).collect()
}

/// Whether it is worth offering an envelope again in the same session.
pub(super) fn failure(error: &IngestError) -> IngestFailure {
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
        | IngestError::EarlyTombstone(_)
        | IngestError::Quarantined { .. } => IngestFailure::Permanent,
    }
}

pub(super) struct Thread {
    pub(super) store: Store,
    tells: mpsc::Sender<Vec<StoreTell>>,
    known_heads: BTreeMap<ChainId, u64>,
    /// When it was looked which chains are over, and how many were then.
    spent: Option<(Instant, usize)>,
    known_members: Members,
    /// Whether heads or members may have changed.
    changed: bool,
    pace: Pace,
    durable: Durable,
    thinner: Thinner,
    /// Whether something is to be sealed that other devices wait for.
    prompt: bool,
    /// Writers that went back behind what they had written, told or not.
    back: BTreeSet<DeviceId>,
    untold_back: Vec<DeviceId>,
    looked_for_vain: Instant,
    /// Chains that part, told or not; no more than there are chains.
    forked: BTreeSet<ChainId>,
    untold_forks: Vec<Fork>,
}

impl Thread {
    pub(super) fn new(
        store: Store,
        thinner: Thinner,
        tells: mpsc::Sender<Vec<StoreTell>>,
        durable: Durable,
    ) -> Self {
        let known_heads = synced_heads(&store)
            .iter()
            .map(|head| (head.chain, head.seq))
            .collect();
        let known_members = store.members().clone();
        Self {
            store,
            tells,
            known_heads,
            spent: None,
            known_members,
            changed: true,
            pace: Pace::new(Instant::now()),
            durable,
            thinner,
            prompt: false,
            back: BTreeSet::new(),
            untold_back: Vec::new(),
            looked_for_vain: Instant::now(),
            forked: BTreeSet::new(),
            untold_forks: Vec::new(),
        }
    }

    /// Until the loop is gone. What it left is sealed.
    pub(super) fn serve(&mut self, asks: &blocking::Receiver<Vec<StoreAsk>>) {
        loop {
            let batch = match asks.recv_timeout(self.nap()) {
                Ok(mut batch) => {
                    while let (true, Ok(more)) = (batch.len() < BATCH, asks.try_recv()) {
                        batch.extend(more);
                    }
                    batch
                }
                Err(blocking::RecvTimeoutError::Timeout) => Vec::new(),
                Err(blocking::RecvTimeoutError::Disconnected) => break,
            };
            if !self.turn(batch) {
                break;
            }
            self.changed |= self.thinner.turn(&mut self.store);
        }
        if let Err(error) = self.store.seal_all(clock::now()) {
            log!("store: the last entries stay in the journal: {error}");
        }
        if let Err(error) = self.store.commit(true) {
            log!("store: the last commit: {error}");
        }
    }

    /// How long nothing is due.
    fn nap(&self) -> Duration {
        let now = clock::now();
        let seal = self
            .store
            .seal_due(now)
            .map(|due| Duration::from_millis(due.0.saturating_sub(now.0)));
        let sync = (!self.store.is_synced()).then(|| self.pace.due_in(Instant::now()));
        let due = seal.into_iter().chain(sync).min().unwrap_or(NAP);
        due.min(self.thinner.due_in()).min(NAP)
    }

    /// One commit for everything that came together. `false` when the loop is
    /// gone.
    fn turn(&mut self, batch: Vec<StoreAsk>) -> bool {
        let mut appended = Vec::new();
        let mut answers = Vec::new();
        let (mut urgent, mut at_once, mut sealed) = (false, false, false);
        for ask in batch {
            match ask {
                StoreAsk::Append(all) => {
                    for it in all {
                        urgent |= it.urgency == Urgency::Urgent;
                        self.prompt |= it.urgency != Urgency::Normal;
                        // Whoever waits for these is a person.
                        let persons = [DocId::Requests, DocId::Notices, DocId::HereNotices];
                        at_once |= persons.contains(&it.doc);
                        self.append(it, &mut appended, &mut answers);
                    }
                }
                StoreAsk::Seal => (urgent, at_once, sealed) = (true, true, true),
                other => {
                    // What was appended before stands before what comes after.
                    self.commit(false, &mut appended, &mut answers);
                    answers.extend(self.other(other));
                }
            }
        }
        let due = !self.store.is_synced() && self.pace.is_due(Instant::now());
        self.commit(urgent || due, &mut appended, &mut answers);
        // Who is a member comes before what members ask for.
        let first = self.new_members().into_iter().chain(self.early());
        let first = first.chain(self.misused());
        let first: Vec<_> = first.chain(answers).collect();
        // Before more is sealed, which is not on the disk yet: with a box that fills an
        // envelope each turn there would be no other time.
        let grown = self.grown_heads();
        let told = self.tell(first.into_iter().chain(grown).collect());
        self.seal(at_once);
        let back = std::mem::take(&mut self.untold_back).into_iter();
        let back = back.map(|writer| StoreTell::WentBack { writer });
        let forks = std::mem::take(&mut self.untold_forks).into_iter();
        let back = back.chain(forks.map(StoreTell::TwoOfOne));
        let grown = self.grown_heads().into_iter().chain(self.spent());
        let after = back.chain(grown).chain(self.vain());
        let after = after.chain(sealed.then_some(StoreTell::Sealed)).collect();
        told && self.tell(after)
    }

    /// Says all of it in one go, so that the loop wakes once. `false` when it is gone.
    fn tell(&self, tells: Vec<StoreTell>) -> bool {
        tells.is_empty() || self.tells.blocking_send(tells).is_ok()
    }

    fn vain(&mut self) -> Option<StoreTell> {
        if self.looked_for_vain.elapsed() < VAIN_EVERY {
            return None;
        }
        self.looked_for_vain = Instant::now();
        self.store.look_again();
        let opened = self.waiting();
        (!opened.is_empty()).then_some(StoreTell::Opened(opened))
    }

    fn misused(&mut self) -> Option<StoreTell> {
        let misused = self.store.take_misuses();
        (!misused.is_empty()).then_some(StoreTell::Misused(misused))
    }

    fn early(&mut self) -> Option<StoreTell> {
        let early = self.store.take_early();
        (!early.is_empty()).then_some(StoreTell::Early(early))
    }

    fn append(
        &mut self,
        Entering {
            doc,
            event,
            urgency,
            tag,
        }: Entering,
        appended: &mut Vec<(DocId, Entry, Tag)>,
        answers: &mut Vec<StoreTell>,
    ) {
        let now = clock::now();
        if doc.box_id().is_some() {
            self.thinner.on_start(&mut self.store, &event);
        }
        match self.store.append(doc, event.clone(), now, urgency) {
            Ok(no) => appended.push((doc, Entry { no, ts: now, event }, tag)),
            Err(error) => answers.push(StoreTell::NotAppended {
                tag,
                why: error.to_string(),
                event: Box::new(event),
            }),
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
        let durable = durable || self.durable == Durable::Each;
        let result = self.store.commit(durable);
        if durable {
            self.pace.tried(Instant::now(), result.is_ok());
        }
        answers.extend(appended.drain(..).map(|(doc, entry, tag)| match &result {
            Ok(()) => StoreTell::Appended { doc, entry, tag },
            Err(error) => StoreTell::NotAppended {
                tag,
                why: error.to_string(),
                event: Box::new(entry.event),
            },
        }));
    }

    fn other(&mut self, ask: StoreAsk) -> Option<StoreTell> {
        let now = clock::now();
        self.changed = true;
        Some(match ask {
            // They have their own road.
            StoreAsk::Append(_) | StoreAsk::Seal => return None,
            StoreAsk::Ingest { peer, chain, bytes } => self.ingest(peer, chain, &bytes),
            StoreAsk::Range {
                peer,
                chain,
                from_seq,
                max_bytes,
            } => self.range(peer, chain, from_seq, max_bytes),
            StoreAsk::CreateAccount { name } => {
                let made = self.store.create_account(&name, now);
                StoreTell::Account(made.map_err(|error| error.to_string()))
            }
            StoreAsk::Offer { conn, device, role } => {
                let offer = self.store.offer_add(device, role);
                let offer = offer.map(Box::new).map_err(|error| error.to_string());
                StoreTell::Offered { conn, offer }
            }
            StoreAsk::Add {
                conn,
                offer,
                cosignature,
            } => {
                let added = self.store.complete_add(&offer, cosignature, now);
                let added = added.map_err(|error| error.to_string());
                StoreTell::Added {
                    conn,
                    added: added.and_then(|()| self.welcome(offer.account)),
                }
            }
            StoreAsk::Change { conn, change } => {
                let changed = self.change(change);
                StoreTell::Changed { conn, changed }
            }
            StoreAsk::Join {
                conn,
                account,
                envelopes,
                host,
                addrs,
            } => {
                let account = self.join(account, &envelopes);
                StoreTell::Joined(Joined {
                    conn,
                    host,
                    addrs,
                    account,
                })
            }
            StoreAsk::Recovery { conn, step } => {
                let result = step.take(&mut self.store, now);
                StoreTell::Recovery { conn, result }
            }
            StoreAsk::Mail(ask) => StoreTell::Mail(self.mail(ask)),
        })
    }

    fn change(&mut self, change: AccountChange) -> Result<Option<Hash>, String> {
        let now = clock::now();
        // Others hear of it at once.
        self.prompt = true;
        let changed = match change {
            AccountChange::Remove(devices) => self.store.remove(&devices, now).map(Some),
            AccountChange::RemoveByRecovery(devices, words) => {
                let seed = seed_of_words(&words).map_err(|error| error.to_string())?;
                let removed = self.store.remove_by_recovery(&seed, &devices, now);
                removed.map(Some)
            }
            AccountChange::Role(device, role) => self.store.set_role(device, role, now).map(Some),
            AccountChange::Rotate => self.store.rotate(now).map(|()| None),
        };
        changed.map_err(|error| error.to_string())
    }

    fn ingest(&mut self, peer: DeviceId, chain: ChainId, bytes: &[u8]) -> StoreTell {
        match self.store.ingest_from(&peer, bytes, clock::now()) {
            Ok(ingested) => {
                self.look_back(&ingested);
                let seq = ingested.seq;
                let mut opened = flat(ingested.opened);
                opened.extend(self.waiting());
                StoreTell::Ingested {
                    peer,
                    chain,
                    seq,
                    opened,
                }
            }
            // Kept and served as it is; its chain goes on.
            Err(IngestError::Quarantined { seq, reason, .. }) => {
                log!("envelope {seq} of {} set aside: {reason}", chain.writer);
                StoreTell::Ingested {
                    peer,
                    chain,
                    seq,
                    opened: Vec::new(),
                }
            }
            Err(error) => {
                if let IngestError::Fork(fork) = &error
                    && self.forked.insert(fork.chain)
                {
                    self.untold_forks.push(**fork);
                }
                let (failure, why) = (failure(&error), error.to_string());
                StoreTell::NotIngested {
                    peer,
                    chain,
                    failure,
                    why,
                }
            }
        }
    }

    /// Whether a writer's store is a copy of an older one, or runs twice. Where it
    /// is this one, others bring what it does not know of itself.
    pub(super) fn look_back(&mut self, ingested: &Ingested) {
        let writer = ingested.chain.writer;
        let unknown = writer == self.store.device() && ingested.outcome != Outcome::Duplicate;
        if (ingested.restored || unknown) && self.back.insert(writer) {
            self.untold_back.push(writer);
        }
    }

    fn range(&self, peer: DeviceId, chain: ChainId, from_seq: u64, max_bytes: u32) -> StoreTell {
        let bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX);
        let found = self.store.range(&chain, from_seq, MAX_RANGE, bytes);
        let envelopes = found.unwrap_or_else(|error| {
            log!("store: {error}");
            Vec::new()
        });
        StoreTell::Range {
            peer,
            chain,
            from_seq,
            envelopes,
        }
    }

    /// Entries that waited for a key which is here now.
    pub(super) fn waiting(&mut self) -> Vec<(DocId, DeviceId, Entry)> {
        let mut all = Vec::new();
        loop {
            match self.store.open_waiting(clock::now()) {
                Ok(opened) if opened.is_empty() => return all,
                Ok(opened) => all.extend(flat(opened)),
                Err(error) => {
                    log!("store: {error}");
                    return all;
                }
            }
        }
    }

    /// The records with which a new device begins.
    fn welcome(&self, account: AccountId) -> Result<(AccountId, Vec<Vec<u8>>), String> {
        let mut envelopes = Vec::new();
        for head in self
            .store
            .heads()
            .iter()
            .filter(|head| head.chain.doc == DocId::Account)
        {
            let chain = self
                .store
                .range(&head.chain, 1, MAX_WELCOME, MAX_WELCOME_BYTES);
            let chain = chain.map_err(|error| error.to_string())?;
            if u64::try_from(chain.len()) != Ok(head.seq) {
                return Err("the account's records do not fit into one welcome".to_owned());
            }
            envelopes.extend(chain);
        }
        Ok((account, envelopes))
    }

    fn join(&mut self, account: AccountId, envelopes: &[Vec<u8>]) -> Result<AccountId, String> {
        let joined = self.store.join(account, envelopes, clock::now());
        joined.map(|()| account).map_err(|error| error.to_string())
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
        match sealed {
            Ok(grown) if grown.is_empty() => {}
            // Others see only what no power cut takes: at once where they wait, once
            // what they wait for is among it.
            Ok(_) if at_once || (self.prompt && !self.store.is_prompt_due()) => {
                self.prompt = false;
                self.commit(true, &mut Vec::new(), &mut Vec::new());
            }
            Ok(_) => {}
            Err(error) => log!("store: sealing is tried again: {error}"),
        }
    }

    /// The members, if they are others than was last said.
    fn new_members(&mut self) -> Option<StoreTell> {
        if !self.changed {
            return None;
        }
        let now = self.store.members();
        if *now == self.known_members {
            return None;
        }
        self.known_members.clone_from(now);
        Some(StoreTell::Members(Box::new(now.clone())))
    }

    /// The chains of which only a tombstone is left, if they are others than before.
    fn spent(&mut self) -> Option<StoreTell> {
        let last = self.spent.filter(|(at, _)| at.elapsed() < SPENT_EVERY);
        if last.is_some() {
            return None;
        }
        let before = self.spent.map_or(0, |(_, count)| count);
        let spent = self.store.spent_heads();
        let spent = spent.inspect_err(|error| log!("store: {error}")).ok();
        self.spent = Some((Instant::now(), spent.as_ref().map_or(before, Vec::len)));
        // One that is over is so for good, but where it grows: then it is told as grown.
        spent
            .filter(|spent| spent.len() != before)
            .map(StoreTell::Spent)
    }

    /// Chains that grew since it was last said.
    fn grown_heads(&mut self) -> Option<StoreTell> {
        if !self.changed || !self.store.is_synced() {
            return None;
        }
        self.changed = false;
        let known = &mut self.known_heads;
        let fresh = |head: &Head| known.insert(head.chain, head.seq) != Some(head.seq);
        let grown: Vec<Head> = self.store.heads().into_iter().filter(fresh).collect();
        (!grown.is_empty()).then_some(StoreTell::Heads(grown))
    }
}

#[cfg(test)]
mod tests;
