//! What a store must hold, kept beside it: a plain list of each document.

use std::collections::BTreeMap;

use crate::common::*;
use crate::disk::Random;
use bailey_docs_store::{Checked, DocId, Head, OsEntropy, Reader, Store, Urgency};
use bailey_model::Timestamp;

/// Entries of one document, by their numbers from 1.
#[derive(Debug, Clone, Default)]
pub(crate) struct Written {
    /// Acknowledged.
    texts: Vec<String>,
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
        let Ok(no) = store.append(doc, gap(text), now, urgency) else {
            return false;
        };
        let written = self.docs.entry(doc).or_default();
        let before = written.texts.len() + written.pending.len();
        assert_eq!(no, before as u64 + 1, "numbers go on without holes");
        written.pending.push(text.to_owned());
        true
    }

    pub(crate) fn commit(&mut self, store: &mut Store, durable: bool) -> bool {
        let done = store.commit(durable).is_ok();
        for written in self.docs.values_mut() {
            let pending = std::mem::take(&mut written.pending);
            match done {
                true => {
                    written.texts.extend(pending);
                    written.ghosts.clear();
                }
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
fn read_own(dir: &TempDir, store: &Store, doc: DocId) -> Vec<(bailey_model::DeviceId, bailey_model::Entry)> {
    let mut entries = read(dir, 1, doc);
    entries.retain(|(writer, _)| *writer == store.device());
    let numbered = entries.iter().zip(1..).all(|((_, entry), no)| entry.no == no);
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

/// A text of its own for each entry.
pub(crate) fn text(random: &mut Random) -> String {
    let len = 1 + random.below(40);
    (0..len)
        .map(|_| char::from(b'a' + u8::try_from(random.below(26)).unwrap()))
        .collect()
}

