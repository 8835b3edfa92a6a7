//! Two and three devices: what one writes the others read, and nothing else.

use std::collections::BTreeSet;

use crate::common::*;
use bailey_docs_store::{
    AccountError, AppendError, DocId, Head, IngestError, Outcome, Reader, Role, Store, Urgency,
};
use bailey_model::{BoxId, DeviceId, Event};

/// Two devices of one account; the first has written before the second came.
fn two() -> (TempDir, Store, TempDir, Store) {
    let (dir_a, mut a) = laptop();
    let dir_b = TempDir::new();
    write(&mut a, BOX, &["before pairing"], NOW);
    a.seal_all(NOW).unwrap();
    let mut b = open(&dir_b, 2, NOW);
    pair(&mut a, &mut b, 2, Role::Full, NOW);
    (dir_a, a, dir_b, b)
}

fn refused(result: Result<bailey_docs_store::Ingested, IngestError>) -> IngestError {
    result.expect_err("it was taken")
}

/// How far each chain goes, whatever the order in which they came.
fn reached(store: &Store) -> BTreeSet<Head> {
    store.heads().into_iter().collect()
}

#[test]
fn devices_converge_and_read_the_same() {
    let (dir_a, mut a, dir_b, mut b) = two();
    for round in 0..5 {
        write(&mut a, BOX, &["from a", "again"], at(round * 10));
        write(&mut b, BOX, &["from b"], at(round * 10 + 5));
        write(&mut b, DocId::Requests, &["request"], at(round * 10 + 5));
        a.seal_all(at(round * 10 + 6)).unwrap();
        b.seal_all(at(round * 10 + 6)).unwrap();
        assert!(sync(&a, &mut b, NOW).1.is_empty());
        assert!(sync(&b, &mut a, NOW).1.is_empty());
    }
    assert_eq!(reached(&a), reached(&b));
    for doc in [BOX, DocId::Requests, DocId::Node] {
        assert_eq!(read(&dir_a, 1, doc), read(&dir_b, 2, doc));
    }
    let entries = read(&dir_b, 2, BOX);
    assert_eq!(entries.len(), 16);
    assert!(entries.is_sorted_by_key(|(_, entry)| entry.ts));
    assert_eq!(texts(&entries)[0].1, "before pairing");
    // Nothing more goes over.
    let (taken, _) = sync(&a, &mut b, NOW);
    assert_eq!(taken, []);
}

#[test]
fn ingesting_says_what_was_opened() {
    let (_dir_a, mut a, _dir_b, mut b) = two();
    write(&mut b, DocId::Requests, &["stop it"], NOW);
    b.seal_all(NOW).unwrap();
    let (taken, _) = sync(&b, &mut a, NOW);
    let opened: Vec<_> = taken.iter().flat_map(|ingested| &ingested.opened).collect();
    let request = opened
        .iter()
        .find(|opened| opened.chain.doc == DocId::Requests)
        .unwrap();
    assert_eq!(request.chain.writer, keys(2).id());
    assert!(matches!(&request.entries[0].event, Event::Gap(gap) if gap.reason == "stop it"));
}

#[test]
fn envelopes_of_one_device_reach_a_third_through_another_byte_for_byte() {
    let (_dir_a, mut a, _dir_b, mut b) = two();
    let dir_c = TempDir::new();
    let mut c = open(&dir_c, 3, NOW);
    pair(&mut a, &mut c, 3, Role::Watch, NOW);
    assert!(sync(&a, &mut b, NOW).1.is_empty());
    write(&mut b, BOX, &["by b"], NOW);
    b.seal_all(NOW).unwrap();
    assert!(sync(&b, &mut a, NOW).1.is_empty());
    let (_, errors) = sync(&a, &mut c, NOW);
    assert!(errors.is_empty(), "{errors:?}");
    let head = b
        .heads()
        .into_iter()
        .find(|h| h.chain.doc == BOX && h.chain.writer == keys(2).id());
    let chain = head.unwrap().chain;
    assert_eq!(
        c.range(&chain, 1, 9, usize::MAX).unwrap(),
        b.range(&chain, 1, 9, usize::MAX).unwrap()
    );
    assert!(texts(&read(&dir_c, 3, BOX)).contains(&(1, "by b".to_owned())));
}

#[test]
fn a_device_added_later_reads_what_others_wrote_before() {
    let (_dir_a, mut a, _dir_b, mut b) = two();
    write(&mut b, BOX, &["early, by b"], NOW);
    b.seal_all(NOW).unwrap();
    let dir_c = TempDir::new();
    let mut c = open(&dir_c, 3, NOW);
    pair(&mut a, &mut c, 3, Role::Watch, NOW);
    // C has B's envelopes before B has heard of C: they wait for B's keys.
    assert!(sync(&b, &mut a, NOW).1.is_empty());
    let (taken, errors) = sync(&a, &mut c, NOW);
    assert!(errors.is_empty(), "{errors:?}");
    assert!(
        taken
            .iter()
            .any(|ingested| ingested.outcome == Outcome::Waiting)
    );
    let reading = Reader::open(dir_c.path(), keys(3))
        .unwrap()
        .read(BOX, None)
        .unwrap();
    assert_eq!(reading.waiting.len(), 1);
    // B hears of C and wraps its keys to it; they open what waited.
    let (taken, _) = sync(&a, &mut b, NOW);
    assert!(taken.iter().any(|ingested| ingested.members_changed));
    let (taken, errors) = sync(&b, &mut c, NOW);
    assert!(errors.is_empty(), "{errors:?}");
    let opened: Vec<_> = taken.iter().flat_map(|ingested| &ingested.opened).collect();
    assert!(
        opened
            .iter()
            .any(|it| it.chain.doc == BOX && it.chain.writer == keys(2).id())
    );
    assert!(texts(&read(&dir_c, 3, BOX)).contains(&(1, "early, by b".to_owned())));
}

#[test]
fn a_device_that_only_runs_gets_no_keys_of_others() {
    let (_dir_a, mut a, _dir_b, _b) = two();
    let dir_c = TempDir::new();
    let mut c = open(&dir_c, 3, NOW);
    pair(&mut a, &mut c, 3, Role::Runs, NOW);
    let reading = Reader::open(dir_c.path(), keys(3))
        .unwrap()
        .read(BOX, None)
        .unwrap();
    assert_eq!((reading.entries.len(), reading.waiting.len()), (0, 1));
    // What it writes itself, the others read.
    write(&mut c, BOX, &["by the server"], NOW);
    c.seal_all(NOW).unwrap();
    let (_, errors) = sync(&c, &mut a, NOW);
    assert!(errors.is_empty(), "{errors:?}");
    assert!(texts(&read(&_dir_a, 1, BOX)).contains(&(1, "by the server".to_owned())));
}

#[test]
fn strangers_and_other_accounts_are_refused() {
    let (dir_a, mut a, _dir_b, _b) = two();
    let dir_x = TempDir::new();
    let mut x = open(&dir_x, 9, NOW);
    x.create_account("stranger", NOW).unwrap();
    write(&mut x, BOX, &["hello"], NOW);
    x.seal_all(NOW).unwrap();
    let (taken, errors) = sync(&x, &mut a, NOW);
    assert!(taken.is_empty());
    assert!(
        errors
            .iter()
            .all(|error| matches!(error, IngestError::OtherAccount))
    );
    // A stranger with the whole store can write nothing, and forges in vain.
    a.seal_all(NOW).unwrap();
    drop(a);
    let dir_y = TempDir::new();
    for entry in std::fs::read_dir(dir_a.path()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), dir_y.path().join(entry.file_name())).unwrap();
    }
    let mut a = open(&dir_a, 1, NOW);
    let mut y = open(&dir_y, 8, NOW);
    let refused_entry = y.append(BOX, gap("x"), NOW, Urgency::Normal);
    assert!(matches!(refused_entry, Err(AppendError::NotMember)));
    let reading = Reader::open(dir_y.path(), keys(8))
        .unwrap()
        .read(BOX, None)
        .unwrap();
    assert_eq!(
        reading.entries,
        [],
        "a stranger with every byte reads nothing"
    );
    let fields = bailey_envelope::Fields {
        account: a.account().unwrap(),
        chain: bailey_docs_store::ChainId {
            doc: BOX,
            writer: keys(8).id(),
            incarnation: y.incarnation(),
        },
        kind: bailey_envelope::Kind::Tail,
        segment: 1,
        seq: 1,
        prev: bailey_docs_store::Hash::NONE,
        before: None,
    };
    let key = bailey_envelope::EpochKey::generate([1; 32]).segment_key(BOX, 1);
    let forged = bailey_envelope::seal(&keys(8), fields, 1, &key, b"x", [0; 24]).unwrap();
    assert!(matches!(
        refused(a.ingest(&forged.bytes, NOW)),
        IngestError::NotMember(_)
    ));
}

#[test]
fn forged_flipped_reordered_and_missing_envelopes_are_refused() {
    let (_dir_a, mut a, _dir_b, mut b) = two();
    for no in 0..4 {
        write(&mut a, BOX, &["entry"], at(no));
        a.seal_all(at(no)).unwrap();
    }
    let head = a
        .heads()
        .into_iter()
        .find(|head| head.chain.doc == BOX)
        .unwrap();
    let chain = head.chain;
    let have = b
        .heads()
        .iter()
        .find(|head| head.chain == chain)
        .unwrap()
        .seq;
    let rest = a.range(&chain, have + 1, 10, usize::MAX).unwrap();
    assert_eq!(rest.len(), 4);
    let gap = refused(b.ingest(&rest[1], NOW));
    assert!(
        matches!(gap, IngestError::Gap { have: it, found, .. } if it == have && found == have + 2)
    );
    for at in (0..rest[0].len()).step_by(7) {
        let mut flipped = rest[0].clone();
        flipped[at] ^= 0x10;
        assert!(b.ingest(&flipped, NOW).is_err(), "byte {at}");
    }
    assert!(matches!(
        refused(b.ingest(&[], NOW)),
        IngestError::Malformed(_)
    ));
    let large = vec![0; bailey_envelope::MAX_ENVELOPE + 1];
    assert!(matches!(
        refused(b.ingest(&large, NOW)),
        IngestError::TooLarge(_)
    ));
    for envelope in &rest {
        assert_eq!(b.ingest(envelope, NOW).unwrap().outcome, Outcome::New);
        assert_eq!(b.ingest(envelope, NOW).unwrap().outcome, Outcome::Duplicate);
    }
    assert_eq!(
        b.heads().iter().find(|head| head.chain == chain),
        Some(&head)
    );
}

#[test]
fn two_envelopes_of_one_number_are_told_as_a_fork() {
    let (_dir_a, a, _dir_b, mut b) = two();
    let head = a
        .heads()
        .into_iter()
        .find(|head| head.chain.doc == DocId::Node)
        .unwrap();
    let fields = bailey_envelope::Fields {
        account: a.account().unwrap(),
        chain: head.chain,
        kind: bailey_envelope::Kind::Tail,
        segment: 1,
        seq: head.seq,
        prev: bailey_docs_store::Hash::NONE,
        before: None,
    };
    let key = bailey_envelope::EpochKey::generate([1; 32]).segment_key(DocId::Node, 1);
    let other = bailey_envelope::seal(&keys(1), fields, 1, &key, b"x", [0; 24]).unwrap();
    match refused(b.ingest(&other.bytes, NOW)) {
        IngestError::Fork(fork) => {
            assert_eq!(
                (fork.seq, fork.ours, fork.theirs),
                (head.seq, head.hash, other.hash)
            );
        }
        error => panic!("{error}"),
    }
    // One that follows another past than ours is a fork as well.
    let after = bailey_envelope::Fields {
        seq: head.seq + 1,
        prev: other.hash,
        ..fields
    };
    let after = bailey_envelope::seal(&keys(1), after, 1, &key, b"x", [0; 24]).unwrap();
    let IngestError::Fork(fork) = refused(b.ingest(&after.bytes, NOW)) else {
        panic!("no fork")
    };
    let both = (head.seq, head.hash, other.hash);
    assert_eq!((fork.seq, fork.ours, fork.theirs), both);
    // Both are there to be shown, and the store holds.
    let mut reader = bailey_docs_store::Reader::open(_dir_b.path(), keys(2)).unwrap();
    let forks = reader.check_rest().unwrap().forks;
    let listed = |fork: &bailey_docs_store::Fork| (fork.seq, fork.ours, fork.theirs);
    assert_eq!(forks.iter().map(listed).collect::<Vec<_>>(), [both, both]);
    let of_chain = reader.check_chain(&head.chain).unwrap();
    assert_eq!(of_chain.faulty, 0, "{:?}", of_chain.faults);
}

#[test]
fn a_restored_copy_goes_on_in_a_chain_of_its_own() {
    let (dir_a, mut a, _dir_b, mut b) = two();
    write(&mut a, BOX, &["common past"], NOW);
    a.seal_all(NOW).unwrap();
    drop(a);
    let (copy, idle_copy) = (TempDir::new(), TempDir::new());
    for entry in std::fs::read_dir(dir_a.path()).unwrap() {
        let entry = entry.unwrap();
        for copy in [&copy, &idle_copy] {
            std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
    }
    let mut a = open(&dir_a, 1, at(1_000));
    write(&mut a, BOX, &["original"], at(1_000));
    a.seal_all(at(1_000)).unwrap();
    drop(a);
    let mut a = open(&dir_a, 1, at(2_000));
    write(&mut a, BOX, &["original again"], at(2_000));
    a.seal_all(at(2_000)).unwrap();
    let (taken, errors) = sync(&a, &mut b, NOW);
    assert!(errors.is_empty() && taken.iter().all(|it| !it.restored));
    let mut restored = open(&copy, 1, at(3_000));
    write(&mut restored, BOX, &["restored"], at(3_000));
    restored.seal_all(at(3_000)).unwrap();
    let (taken, errors) = sync(&restored, &mut b, NOW);
    assert!(errors.is_empty(), "{errors:?}");
    assert!(taken.iter().any(|it| it.restored), "the fork is seen");
    let all: Vec<String> = texts(&read(&_dir_b, 2, BOX))
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    for text in [
        "before pairing",
        "common past",
        "original",
        "original again",
        "restored",
    ] {
        assert!(all.iter().any(|it| it == text), "{text} of {all:?}");
    }
    // The copy takes what its other life wrote, and its own chain goes on.
    assert!(sync(&b, &mut restored, NOW).1.is_empty());
    assert_eq!(write(&mut restored, BOX, &["after both"], at(4_000)), [4]);
    restored.seal_all(at(4_000)).unwrap();
    assert!(sync(&restored, &mut b, NOW).1.is_empty());
    assert_eq!(reached(&restored), reached(&b));
    // A copy that hears of its other lives first numbers after them.
    let mut idle = open(&idle_copy, 1, at(5_000));
    assert!(sync(&b, &mut idle, NOW).1.is_empty());
    assert_eq!(write(&mut idle, BOX, &["later"], at(5_000)), [5]);
    // And so does the next start of one that had not.
    drop(restored);
    let mut restored = open(&copy, 1, at(6_000));
    assert_eq!(write(&mut restored, BOX, &["later still"], at(6_000)), [5]);
}

/// What the copy wrote came before anything that it goes on from, and then the chain that
/// it left: at the first envelope behind that place it shows, and at none before.
#[test]
fn a_restored_copy_is_seen_whichever_of_its_lives_comes_first() {
    let (dir_a, mut a, _dir_b, mut b) = two();
    let more = |a: &mut Store, text: &str| {
        write(a, BOX, &[text], NOW);
        a.seal_all(NOW).unwrap();
    };
    more(&mut a, "one");
    more(&mut a, "two");
    a.commit(true).unwrap();
    let copy = TempDir::new();
    for entry in std::fs::read_dir(dir_a.path()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    more(&mut a, "three");
    more(&mut a, "four");
    let mut restored = open(&copy, 1, at(1_000));
    more(&mut restored, "by the copy");
    let of_box = |store: &Store| {
        let chain = store.heads().into_iter().map(|head| head.chain);
        let mut own = chain.filter(|it| it.doc == BOX && it.incarnation == store.incarnation());
        let chain = own.next().unwrap();
        store.range(&chain, 1, 9, usize::MAX).unwrap()
    };
    let mut seen = |envelopes: Vec<Vec<u8>>| -> Vec<bool> {
        let taken = envelopes.iter().map(|bytes| b.ingest(bytes, NOW).unwrap());
        taken.map(|it| it.restored).collect()
    };
    assert_eq!(seen(of_box(&restored)), [false]);
    assert_eq!(seen(of_box(&a)), [false, false, false, true, true]);
}

#[test]
fn adding_needs_the_role_the_signature_and_a_fresh_offer() {
    let (_dir_a, mut a, _dir_b, mut b) = two();
    let offer = a.offer_add(keys(3).public(), Role::Stop).unwrap();
    assert_eq!(
        bailey_docs_store::AddOffer::from_bytes(&offer.to_bytes().unwrap()).unwrap(),
        offer
    );
    assert!(offer.sign(&keys(4)).is_err());
    let refused = a.complete_add(&offer, [0; 64], NOW);
    assert!(matches!(refused, Err(AccountError::Cosignature)));
    let other = a.offer_add(keys(4).public(), Role::Watch).unwrap();
    a.complete_add(&other, other.sign(&keys(4)).unwrap(), NOW)
        .unwrap();
    let signature = offer.sign(&keys(3)).unwrap();
    let refused = a.complete_add(&offer, signature, NOW);
    assert!(matches!(refused, Err(AccountError::StaleOffer)));
    let known = a.offer_add(keys(2).public(), Role::Watch);
    assert!(matches!(known, Err(AccountError::AlreadyMember(_))));
    let weak = bailey_docs_store::DevicePublic {
        x25519: [0; 32],
        ..keys(5).public()
    };
    assert!(matches!(
        a.offer_add(weak, Role::Watch),
        Err(AccountError::Weak(_))
    ));
    // A watcher may not; the other full device may, and both then agree.
    let dir_d = TempDir::new();
    let mut d = open(&dir_d, 4, NOW);
    d.join(a.account().unwrap(), &records(&a), NOW).unwrap();
    assert!(sync(&a, &mut d, NOW).1.is_empty());
    assert!(matches!(
        d.offer_add(keys(5).public(), Role::Watch),
        Err(AccountError::NotAllowed)
    ));
    assert!(sync(&a, &mut b, NOW).1.is_empty());
    let offer = b.offer_add(keys(5).public(), Role::Stop).unwrap();
    b.complete_add(&offer, offer.sign(&keys(5)).unwrap(), NOW)
        .unwrap();
    assert!(sync(&b, &mut a, NOW).1.is_empty());
    assert_eq!(a.members(), b.members());
    let roles: Vec<(DeviceId, Role)> = a.members().iter().map(|(id, m)| (*id, m.role)).collect();
    assert_eq!(roles.len(), 4);
    assert!(roles.contains(&(keys(5).id(), Role::Stop)));
}

#[test]
fn an_account_is_the_one_it_began_as() {
    let dir = TempDir::new();
    let mut store = open(&dir, 1, NOW);
    let account = store.create_account("laptop", NOW).unwrap();
    assert!(matches!(
        store.create_account("again", NOW),
        Err(AccountError::HasAccount)
    ));
    let members = store.members().clone();
    let seed = store.recovery_seed().unwrap().unwrap();
    assert_eq!(members.recovery(), Some(&seed.keys().public()));
    drop(store);
    let store = open(&dir, 1, NOW);
    assert_eq!(
        (store.account(), store.members()),
        (Some(account), &members)
    );
}

#[test]
fn documents_are_listed_with_their_writers() {
    let (dir_a, mut a, _dir_b, mut b) = two();
    write(&mut b, BOX, &["by b"], NOW);
    b.seal_all(NOW).unwrap();
    assert!(sync(&b, &mut a, NOW).1.is_empty());
    let unsealed = DocId::Box(BoxId([7; 16]));
    write(&mut a, unsealed, &["only in the journal"], NOW);
    let docs = Reader::open(dir_a.path(), keys(1)).unwrap().docs().unwrap();
    let writers = |doc| {
        docs.iter()
            .find(|it| it.doc == doc)
            .map(|it| it.writers.len())
    };
    assert_eq!(writers(BOX), Some(2));
    assert_eq!(writers(unsealed), Some(1));
    assert_eq!(writers(DocId::Account), None);
}

/// Written before the second device came and after, sealed and not, and after another
/// start: the device that wrote it reads it, and nothing of it goes over.
#[test]
fn what_is_kept_here_goes_to_no_other_device() {
    let here = DocId::Here(BoxId([7; 16]));
    let (dir_a, mut a) = laptop();
    write(&mut a, here, &["before pairing"], NOW);
    write(&mut a, DocId::HereNotices, &["notice"], NOW);
    a.seal_all(NOW).unwrap();
    let dir_b = TempDir::new();
    let mut b = open(&dir_b, 2, NOW);
    pair(&mut a, &mut b, 2, Role::Full, NOW);
    write(&mut a, here, &["after pairing"], at(1));
    a.seal_all(at(1)).unwrap();
    drop(a);
    let mut a = open(&dir_a, 1, at(2));
    write(&mut a, here, &["after a start"], at(2));
    a.seal_all(at(2)).unwrap();
    write(&mut a, here, &["in the journal"], at(3));
    assert!(a.heads().iter().all(|head| !head.chain.doc.is_here()));
    let (taken, refused) = sync(&a, &mut b, at(4));
    assert!(refused.is_empty(), "{refused:?}");
    assert!(taken.iter().all(|taken| !taken.chain.doc.is_here()));
    let own: Vec<String> = texts(&read(&dir_a, 1, here))
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    let written = [
        "before pairing",
        "after pairing",
        "after a start",
        "in the journal",
    ];
    assert_eq!(own, written);
    assert_eq!(read(&dir_a, 1, DocId::HereNotices).len(), 1);
    assert_eq!(read(&dir_b, 2, here), []);
    // Who has the bytes all the same, and is of the account, has no key for them.
    a.seal_all(at(5)).unwrap();
    let mut stranger = Reader::open(dir_a.path(), keys(2)).unwrap();
    let reading = stranger.read(here, None).unwrap();
    assert_eq!((reading.entries.len(), reading.waiting.len()), (0, 2));
}
