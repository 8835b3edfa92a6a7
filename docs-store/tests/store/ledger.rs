//! What a store must hold, kept beside it: a plain list of each document.

use std::collections::BTreeMap;

use crate::common::*;
use bailey_docs_store::{Checked, DocId, Head, OsEntropy, Reader, Store, Urgency};
use bailey_model::{Event, Timestamp};

/// Entries of one document, by their numbers from 1.
#[derive(Debug, Clone, Default)]
pub(crate) struct Written {
    /// Acknowledged.
    pub(crate) texts: Vec<String>,
    /// How many of them a power cut must leave.
    durable: usize,
    /// Appended since.
    pending: Vec<String>,
    /// What commits that failed since then would have added: of one the end may
    /// have come after its last write.
    ghosts: Vec<Vec<String>>,
}

impl Written {
    /// That what was found is what was promised; and it counts from then on.
    fn holds(&mut self, found: Vec<String>, power_cut: bool) {
        let promised = match power_cut {
            true => self.durable,
            false => self.texts.len(),
        };
        assert!(
            found.len() >= promised,
            "{} of {promised} promised entries are there",
            found.len()
        );
        let known = found.len().min(self.texts.len());
        assert_eq!(found[..known], self.texts[..known]);
        let more = &found[known..];
        assert!(
            more.is_empty() || self.ghosts.iter().any(|ghost| ghost == more),
            "never appended: {more:?}, {:?}",
            self.ghosts
        );
        self.pending.clear();
        self.ghosts.clear();
        self.durable = self.durable.min(found.len());
        self.texts = found;
    }
}

/// What one device wrote, and what it let others see.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    pub(crate) docs: BTreeMap<DocId, Written>,
    pub(crate) told: Vec<Head>,
}

impl Ledger {
    /// Appends a text; `false` where it was refused.
    pub(crate) fn append(
        &mut self,
        store: &mut Store,
        doc: DocId,
        text: &str,
        now: Timestamp,
        urgency: Urgency,
    ) -> bool {
        self.append_event(store, doc, gap(text), now, urgency)
    }

    /// Appends any event; `false` where it was refused.
    pub(crate) fn append_event(
        &mut self,
        store: &mut Store,
        doc: DocId,
        event: Event,
        now: Timestamp,
        urgency: Urgency,
    ) -> bool {
        let text = text_of(&event);
        let Ok(no) = store.append(doc, event, now, urgency) else {
            return false;
        };
        let written = self.docs.entry(doc).or_default();
        let before = written.texts.len() + written.pending.len();
        assert_eq!(no, before as u64 + 1, "numbers go on without holes");
        written.pending.push(text);
        true
    }

    pub(crate) fn commit(&mut self, store: &mut Store, durable: bool) -> bool {
        let done = store.commit(durable).is_ok();
        let wrote = self.docs.values().any(|it| !it.pending.is_empty());
        for written in self.docs.values_mut() {
            let pending = std::mem::take(&mut written.pending);
            match done {
                true if wrote => {
                    written.texts.extend(pending);
                    written.ghosts.clear();
                }
                true => {}
                false if pending.is_empty() => {}
                false => written.ghosts.push(pending),
            }
        }
        self.look(store);
        done
    }

    /// Notes what others may see of it from now on.
    pub(crate) fn look(&mut self, store: &Store) {
        if store.is_synced() {
            self.told = store.heads();
            for written in self.docs.values_mut() {
                written.durable = written.texts.len();
            }
        }
    }

    /// That a store which was opened again holds it: everything that was promised,
    /// nothing that was not written, in order. From then on what is there counts.
    pub(crate) fn holds(&mut self, dir: &TempDir, store: &Store, power_cut: bool) {
        for (doc, written) in &mut self.docs {
            let found = texts(&read_own(dir, store, *doc));
            written.holds(found.into_iter().map(|(_, text)| text).collect(), power_cut);
        }
        for head in &self.told {
            let there = store.range(&head.chain, head.seq, 1, usize::MAX).unwrap();
            let there = there.first().expect("what others have seen is gone");
            let seen = bailey_envelope::Verified::from_stored(there).unwrap();
            assert_eq!(seen.hash, head.hash, "what others have seen is another");
        }
        sound(dir);
        self.look(store);
    }
}

/// The entries that this device wrote itself; their numbers have no hole.
fn read_own(
    dir: &TempDir,
    store: &Store,
    doc: DocId,
) -> Vec<(bailey_model::DeviceId, bailey_model::Entry)> {
    let mut reader = Reader::open(dir.path(), keys(1)).unwrap();
    let reading = reader.read(doc, Some(store.device())).unwrap();
    assert_eq!((reading.aside, reading.waiting), (vec![], vec![]));
    let entries = reading.entries;
    let numbered = entries
        .iter()
        .zip(1..)
        .all(|((_, entry), no)| entry.no == no);
    assert!(numbered, "{doc}: a hole");
    entries
}

/// That a look at the whole store finds nothing.
pub(crate) fn sound(dir: &TempDir) {
    let mut reader = Reader::open(dir.path(), keys(1)).unwrap();
    for chain in reader.chains().unwrap() {
        let Checked { faults, .. } = reader.check_chain(&chain).unwrap();
        assert_eq!(faults, [], "{chain:?}");
    }
    let rest = reader.check_rest().unwrap();
    assert_eq!(rest.faults, Vec::<String>::new());
}

/// Opens a store that may be on a failing disk.
pub(crate) fn try_open(dir: &TempDir, now: Timestamp) -> Option<Store> {
    Store::open(dir.path(), keys(1), now, Box::new(OsEntropy)).ok()
}

/// A copy of a store that nobody has open.
pub(crate) fn copy(from: &TempDir) -> TempDir {
    let to = TempDir::new();
    for entry in std::fs::read_dir(from.path()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            std::fs::copy(entry.path(), to.path().join(entry.file_name())).unwrap();
        }
    }
    to
}
