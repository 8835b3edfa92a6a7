//! What these tests share.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use bailey_docs_store::{
    DeviceKeys, DocId, Entropy, IngestError, Ingested, NoEntropy, OsEntropy, Reader, Role, Store,
    Urgency,
};
use bailey_model::{BoxId, DeviceId, Entry, Event, Gap, Timestamp};

pub(crate) const NOW: Timestamp = Timestamp(1_796_000_000_000);
pub(crate) const BOX: DocId = DocId::Box(BoxId([9; 16]));

pub(crate) fn at(ms: u64) -> Timestamp {
    Timestamp(NOW.0 + ms)
}

pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let no = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("bailey-docs-{}-{no}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

pub(crate) fn keys(no: u8) -> DeviceKeys {
    DeviceKeys::generate([no; 64])
}

pub(crate) fn open(dir: &TempDir, no: u8, now: Timestamp) -> Store {
    Store::open(dir.path(), keys(no), now, Box::new(OsEntropy)).unwrap()
}

/// xorshift64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap() % bound.max(1)
    }
}

/// Entropy that is the same in each run, so that a failure can be made smaller.
struct Seeded(Random);

impl Entropy for Seeded {
    fn fill(&mut self, out: &mut [u8]) -> Result<(), NoEntropy> {
        for byte in out {
            *byte = u8::try_from(self.0.below(256)).unwrap();
        }
        Ok(())
    }
}

/// A store that is the same in each run; `start` is its own for each start of it.
pub(crate) fn open_seeded(dir: &TempDir, no: u8, now: Timestamp, start: u64) -> Store {
    let seed = (u64::from(no) << 32 | start).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let entropy = Box::new(Seeded(Random(seed | 1)));
    Store::open(dir.path(), keys(no), now, entropy).unwrap()
}

/// The first device of an account.
pub(crate) fn laptop() -> (TempDir, Store) {
    let dir = TempDir::new();
    let mut store = open(&dir, 1, NOW);
    store.create_account("laptop", NOW).unwrap();
    (dir, store)
}

pub(crate) fn gap(text: impl Into<String>) -> Event {
    Event::Gap(Gap {
        reason: text.into(),
    })
}

/// Appends, commits and gives the numbers.
pub(crate) fn write(store: &mut Store, doc: DocId, texts: &[&str], now: Timestamp) -> Vec<u64> {
    let numbers = texts
        .iter()
        .map(|text| store.append(doc, gap(*text), now, Urgency::Normal).unwrap())
        .collect();
    store.commit(false).unwrap();
    numbers
}

/// What a store's folder holds of a document, read beside the writer.
pub(crate) fn read(dir: &TempDir, no: u8, doc: DocId) -> Vec<(DeviceId, Entry)> {
    let reading = Reader::open(dir.path(), keys(no))
        .unwrap()
        .read(doc, None)
        .unwrap();
    assert_eq!((reading.aside.len(), reading.waiting.len()), (0, 0));
    reading.entries
}

pub(crate) fn texts(entries: &[(DeviceId, Entry)]) -> Vec<(u64, String)> {
    entries
        .iter()
        .map(|(_, entry)| (entry.no, text_of(&entry.event)))
        .collect()
}

pub(crate) fn text_of(event: &Event) -> String {
    match event {
        Event::Gap(gap) => gap.reason.clone(),
        other => format!("{other:?}"),
    }
}

/// Everything `from` has and `to` lacks, by heads, ranges and ingest, until
/// nothing more goes over. Gives what was ingested, and what was refused.
pub(crate) fn sync(
    from: &Store,
    to: &mut Store,
    now: Timestamp,
) -> (Vec<Ingested>, Vec<IngestError>) {
    let (mut taken, mut refused) = (Vec::new(), Vec::new());
    for head in from.heads() {
        let have = to
            .heads()
            .iter()
            .find(|have| have.chain == head.chain)
            .map_or(0, |it| it.seq);
        let mut next = have + 1;
        while next <= head.seq {
            let envelopes = from.range(&head.chain, next, 16, 64 * 1024).unwrap();
            assert!(!envelopes.is_empty());
            for envelope in envelopes {
                match to.ingest(&envelope, now) {
                    Ok(ingested) => taken.push(ingested),
                    Err(error) => refused.push(error),
                }
                next += 1;
            }
        }
    }
    (taken, refused)
}

/// The records of a store's account, as a new device gets them.
pub(crate) fn records(from: &Store) -> Vec<Vec<u8>> {
    let heads = from.heads().into_iter();
    heads
        .filter(|head| head.chain.doc == DocId::Account)
        .flat_map(|head| from.range(&head.chain, 1, usize::MAX, usize::MAX).unwrap())
        .collect()
}

/// Makes `to` a member of `from`'s account and lets it read everything.
pub(crate) fn pair(from: &mut Store, to: &mut Store, to_keys: u8, role: Role, now: Timestamp) {
    let offer = from.offer_add(keys(to_keys).public(), role).unwrap();
    let signed = offer.sign(&keys(to_keys)).unwrap();
    from.complete_add(&offer, signed, now).unwrap();
    to.join(from.account().unwrap(), &records(from), now)
        .unwrap();
    let (_, refused) = sync(from, to, now);
    assert!(refused.is_empty(), "{refused:?}");
}
