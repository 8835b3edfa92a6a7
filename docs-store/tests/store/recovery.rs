//! The recovery key: on paper, erased, and what it opens of a copy.

use bailey_docs_store::{
    CopyReader, DocId, RecoverySeed, Role, Store, recovery_words, seed_of_words,
};

use crate::common::*;

fn copy(dir: &TempDir, n: u8) -> Vec<u8> {
    let mut reader = bailey_docs_store::Reader::open(dir.path(), keys(n)).unwrap();
    let mut bytes = Vec::new();
    let copied = reader.copy_to(b"a note", &mut bytes).unwrap();
    assert!(copied.envelopes > 0);
    bytes
}

fn take(store: &mut Store, bytes: &[u8]) -> bailey_docs_store::Taken {
    let reader = CopyReader::new(bytes).unwrap();
    assert_eq!(reader.note(), b"a note");
    store.take_copy(reader, NOW).unwrap()
}

#[test]
fn what_a_person_has_on_paper_is_kept_here_no_more() {
    let (dir, mut store) = laptop();
    let seed = store.recovery_seed().unwrap().unwrap();
    let words = recovery_words(&seed);
    assert_eq!(words.len(), 12);
    let file = dir.path().join("recovery.seed");
    let other = RecoverySeed::new([1; 16]);
    assert!(!store.confirm_recovery(&other).unwrap());
    assert!(file.exists(), "another key confirms nothing");
    let typed = seed_of_words(&words.join(" ")).unwrap();
    assert!(store.confirm_recovery(&typed).unwrap());
    assert!(!file.exists());
    assert!(store.recovery_seed().unwrap().is_none());
    // And again, as often as a person likes to check the paper.
    assert!(store.confirm_recovery(&typed).unwrap());
    drop(store);
    assert!(open(&dir, 1, NOW).recovery_seed().unwrap().is_none());
}

#[test]
fn a_copy_holds_what_others_may_have_and_the_recovery_key_opens_it() {
    let (dir_a, mut a) = laptop();
    write(&mut a, BOX, &["in the window"], NOW);
    a.seal_all(NOW).unwrap();
    let seed = a.recovery_seed().unwrap().unwrap();
    // Taken before the other device came: no key in it is wrapped to that one.
    let bytes = copy(&dir_a, 1);
    let (dir_c, mut c) = {
        let dir = TempDir::new();
        let store = open(&dir, 3, NOW);
        (dir, store)
    };
    let offer = a.offer_add(keys(3).public(), Role::Watch).unwrap();
    let signature = offer.sign(&keys(3)).unwrap();
    a.complete_add(&offer, signature, NOW).unwrap();
    c.join(a.account().unwrap(), &records(&a), NOW).unwrap();
    let taken = take(&mut c, &bytes);
    assert_eq!((taken.refused, taken.opened.len()), (0, 0), "{taken:?}");
    assert!(taken.new > 0);
    assert_eq!(c.adopt_keys(&RecoverySeed::new([1; 16]), NOW).unwrap(), 0);
    assert!(c.adopt_keys(&seed, NOW).unwrap() > 0);
    assert_eq!(c.adopt_keys(&seed, NOW).unwrap(), 0, "once is enough");
    let opened = c.open_waiting(NOW).unwrap();
    assert!(opened.iter().any(|opened| opened.chain.doc == BOX));
    assert_eq!(texts(&read(&dir_c, 3, BOX))[0].1, "in the window");
    // It outlives the start, without the recovery key.
    drop(c);
    let mut c = open(&dir_c, 3, NOW);
    assert_eq!(read(&dir_c, 3, BOX), read(&dir_a, 1, BOX));
    assert!(c.recovery_seed().unwrap().is_none());
    // Again it brings nothing.
    drop(c);
    let mut c = open(&dir_c, 3, NOW);
    assert_eq!(take(&mut c, &bytes).new, 0);
}

#[test]
fn what_is_kept_here_is_in_no_copy() {
    let (dir, mut store) = laptop();
    let here = DocId::Here(bailey_model::BoxId([9; 16]));
    write(&mut store, here, &["at home"], NOW);
    store.seal_all(NOW).unwrap();
    let bytes = copy(&dir, 1);
    let docs: Vec<DocId> = CopyReader::new(&bytes[..])
        .unwrap()
        .map(|part| part.unwrap())
        .filter_map(|part| Some(bailey_envelope::peek(&part).ok()?.fields.chain.doc))
        .collect();
    assert!(!docs.is_empty() && docs.iter().all(|doc| !doc.is_here()));
}
