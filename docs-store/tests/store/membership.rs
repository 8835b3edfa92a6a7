//! Devices that are removed, lowered, brought back: what is sealed to whom.

use bailey_docs_store::{
    AccountError, AppendError, DevicePublic, DocId, Hash, IngestError, JoinError, Outcome, Reader,
    RecoverySeed, Role, Store, Urgency,
};
use bailey_envelope::{KeyId, Verified, peek};
use bailey_model::DeviceId;

use crate::common::*;

fn id(no: u8) -> DeviceId {
    keys(no).id()
}

/// Three devices of one account, all full, which have all of each other.
fn three() -> [(TempDir, Store); 3] {
    let (dir_a, mut a) = laptop();
    write(&mut a, BOX, &["before"], NOW);
    a.seal_all(NOW).unwrap();
    let (dir_b, dir_c) = (TempDir::new(), TempDir::new());
    let (mut b, mut c) = (open(&dir_b, 2, NOW), open(&dir_c, 3, NOW));
    pair(&mut a, &mut b, 2, Role::Full, NOW);
    pair(&mut a, &mut c, 3, Role::Full, NOW);
    let mut all = [(dir_a, a), (dir_b, b), (dir_c, c)];
    meet(&mut all, &[0, 1, 2]);
    all
}

/// All that these have goes to each of them.
fn meet(all: &mut [(TempDir, Store)], who: &[usize]) {
    for _ in 0..3 {
        for from in who {
            for to in who.iter().filter(|to| *to != from) {
                let (one, other) = match from < to {
                    true => {
                        let (low, high) = all.split_at_mut(*to);
                        (&low[*from].1, &mut high[0].1)
                    }
                    false => {
                        let (low, high) = all.split_at_mut(*from);
                        (&high[0].1, &mut low[*to].1)
                    }
                };
                sync(one, other, NOW);
            }
        }
    }
}

fn members(store: &Store) -> Vec<DeviceId> {
    store.members().iter().map(|(id, _)| *id).collect()
}

/// The keys that a store's own envelopes of a document name, in order.
fn keys_of(store: &Store, doc: DocId) -> Vec<KeyId> {
    let own =
        |chain: &bailey_docs_store::ChainId| chain.doc == doc && chain.writer == store.device();
    let heads = store.heads().into_iter().filter(|head| own(&head.chain));
    let bytes = heads.flat_map(|head| store.range(&head.chain, 1, usize::MAX, usize::MAX).unwrap());
    bytes.map(|bytes| peek(&bytes).unwrap().key_id).collect()
}

/// Bodies of a store's own records of the keys' document from an index on.
fn key_records(store: &Store, from: usize) -> Vec<Vec<u8>> {
    let own = |chain: &bailey_docs_store::ChainId| {
        chain.doc == DocId::Keys && chain.writer == store.device()
    };
    let heads = store.heads().into_iter().filter(|head| own(&head.chain));
    let bytes = heads.flat_map(|head| store.range(&head.chain, 1, usize::MAX, usize::MAX).unwrap());
    let body = |bytes: Vec<u8>| {
        let verified = Verified::from_stored(&bytes).unwrap();
        verified.plain().unwrap().to_vec()
    };
    bytes.skip(from).map(body).collect()
}

fn names(bodies: &[Vec<u8>], device: DeviceId) -> bool {
    let named = |body: &Vec<u8>| body.windows(32).any(|part| part == device.0);
    bodies.iter().any(named)
}

#[test]
fn nothing_is_sealed_to_a_removed_device_from_the_removal_on() {
    let mut all = three();
    // What is entered and not sealed yet is sealed under new keys too.
    write(&mut all[0].1, BOX, &["waits"], NOW);
    write(&mut all[1].1, BOX, &["waits at b"], NOW);
    let before: Vec<usize> = [0, 1].map(|at| key_records(&all[at].1, 0).len()).into();
    let old: Vec<Vec<KeyId>> = [0, 1].map(|at| keys_of(&all[at].1, BOX)).into();
    all[0].1.remove(&[id(3)], NOW).unwrap();
    let old_heads = all[2].1.heads();
    meet(&mut all, &[0, 1]);
    for at in [0, 1] {
        let (dir, store) = &mut all[at];
        write(store, BOX, &["after"], NOW);
        store.seal_all(NOW).unwrap();
        let fresh = key_records(store, before[at]);
        assert!(!fresh.is_empty() && names(&fresh, id(1)), "{at}");
        assert!(!names(&fresh, id(3)), "{at}: keys for a removed device");
        let sealed = keys_of(store, BOX);
        let later = &sealed[old[at].len()..];
        assert!(!later.is_empty() && later.iter().all(|key| !old[at].contains(key)));
        drop(read(dir, u8::try_from(at).unwrap() + 1, BOX));
    }
    // Should it get the bytes all the same, it reads none of them.
    let had = texts(&read(&all[2].0, 3, BOX)).len();
    let (low, high) = all.split_at_mut(2);
    sync(&low[0].1, &mut high[0].1, NOW);
    let reading = Reader::open(high[0].0.path(), keys(3))
        .unwrap()
        .read(BOX, None);
    assert_eq!(texts(&reading.unwrap().entries).len(), had);
    assert!(high[0].1.heads().len() >= old_heads.len());
    assert!(matches!(
        high[0]
            .1
            .append(BOX, gap("more"), NOW, bailey_docs_store::Urgency::Normal),
        Err(AppendError::NotMember)
    ));
}

#[test]
fn each_device_says_once_that_it_applied_a_removal() {
    let mut all = three();
    let record = all[0].1.remove(&[id(3)], NOW).unwrap();
    let removal = |store: &Store| store.members().removals()[0].clone();
    assert_eq!(removal(&all[0].1).record, record);
    let open: Vec<_> = all[0]
        .1
        .members()
        .unconfirmed(&removal(&all[0].1))
        .collect();
    assert_eq!(open, [id(2)]);
    meet(&mut all, &[0, 1]);
    for at in [0, 1] {
        let store = &all[at].1;
        assert_eq!(members(store), members(&all[0].1));
        assert_eq!(store.members().unconfirmed(&removal(store)).count(), 0);
    }
    let before = all[1].1.heads();
    meet(&mut all, &[0, 1]);
    all[1].1.seal_all(NOW).unwrap();
    assert_eq!(all[1].1.heads(), before, "said again");
}

#[test]
fn removed_keys_are_not_offered_again_and_another_device_reads_the_whole_window() {
    let mut all = three();
    all[0].1.remove(&[id(3)], NOW).unwrap();
    meet(&mut all, &[0, 1]);
    let refused = all[0].1.offer_add(keys(3).public(), Role::Watch);
    assert!(matches!(refused, Err(AccountError::RemovedKeys(_))));
    write(&mut all[1].1, BOX, &["after"], NOW);
    all[1].1.seal_all(NOW).unwrap();
    meet(&mut all, &[0, 1]);
    let dir = TempDir::new();
    let mut fourth = open(&dir, 4, NOW);
    pair(&mut all[0].1, &mut fourth, 4, Role::Watch, NOW);
    meet(&mut all, &[0, 1]);
    sync(&all[1].1, &mut fourth, NOW);
    let read: Vec<String> = texts(&read(&dir, 4, BOX))
        .into_iter()
        .map(|it| it.1)
        .collect();
    assert!(read.contains(&"before".to_owned()) && read.contains(&"after".to_owned()));
}

#[test]
fn what_a_device_wrote_before_it_was_removed_still_reaches_others() {
    let mut all = three();
    write(&mut all[2].1, BOX, &["by c"], NOW);
    all[2].1.seal_all(NOW).unwrap();
    meet(&mut all, &[0, 2]);
    all[0].1.remove(&[id(3)], NOW).unwrap();
    // B hears of the removal first, and of the entries from A alone.
    meet(&mut all, &[0, 1]);
    let read: Vec<String> = texts(&read(&all[1].0, 2, BOX))
        .into_iter()
        .map(|it| it.1)
        .collect();
    assert!(read.contains(&"by c".to_owned()), "{read:?}");
}

#[test]
fn what_a_removed_device_says_of_the_account_goes_no_further() {
    let mut all = three();
    all[0].1.remove(&[id(3)], NOW).unwrap();
    // It has not heard, and removes the remover.
    all[2].1.remove(&[id(1)], NOW).unwrap();
    let before = members(&all[0].1);
    let (low, high) = all.split_at_mut(2);
    sync(&high[0].1, &mut low[0].1, NOW);
    assert_eq!(members(&low[0].1), before);
    let of_c = |store: &Store| {
        let heads = store.heads().into_iter();
        let own =
            heads.filter(|head| head.chain.doc == DocId::Account && head.chain.writer == id(3));
        own.map(|head| head.seq).sum::<u64>()
    };
    assert!(of_c(&low[0].1) < of_c(&high[0].1), "it is passed on");
    meet(&mut all, &[0, 1]);
    assert_eq!(members(&all[1].1), before);
    // It is there all the same, and shown.
    let quarrels = all[0]
        .1
        .members()
        .removals()
        .iter()
        .filter(|it| !it.against.is_empty());
    assert_eq!(quarrels.count(), 2);
    // A store that is opened again sees the same.
    let (dir, store) = std::mem::replace(&mut all[0], (TempDir::new(), laptop().1));
    let heads = store.heads();
    drop(store);
    let again = open(&dir, 1, NOW);
    assert_eq!((members(&again), again.heads()), (before, heads));
}

#[test]
fn a_device_that_reads_no_more_gets_no_keys_and_all_of_them_when_it_reads_again() {
    let mut all = three();
    let count = key_records(&all[0].1, 0).len();
    all[0].1.set_role(id(3), Role::Runs, NOW).unwrap();
    write(&mut all[0].1, BOX, &["meanwhile"], NOW);
    all[0].1.seal_all(NOW).unwrap();
    assert!(!names(&key_records(&all[0].1, count), id(3)));
    meet(&mut all, &[0, 1, 2]);
    let waiting = Reader::open(all[2].0.path(), keys(3))
        .unwrap()
        .read(BOX, None);
    assert!(!waiting.unwrap().waiting.is_empty());
    all[0].1.set_role(id(3), Role::Watch, NOW).unwrap();
    meet(&mut all, &[0, 1, 2]);
    let read: Vec<String> = texts(&read(&all[2].0, 3, BOX))
        .into_iter()
        .map(|it| it.1)
        .collect();
    assert!(read.contains(&"meanwhile".to_owned()), "{read:?}");
    // One that watches changes nothing.
    let refused = all[2].1.remove(&[id(1)], NOW);
    assert!(matches!(refused, Err(AccountError::NotAllowed)));
}

#[test]
fn keys_change_on_demand() {
    let (_dir, mut a) = laptop();
    write(&mut a, BOX, &["one"], NOW);
    a.seal_all(NOW).unwrap();
    a.rotate(NOW).unwrap();
    write(&mut a, BOX, &["two"], NOW);
    a.seal_all(NOW).unwrap();
    let keys = keys_of(&a, BOX);
    assert_ne!(keys.first(), keys.last());
}

#[test]
fn a_device_leaves_with_what_it_had_written() {
    let mut all = three();
    all[2].1.set_role(id(3), Role::Watch, NOW).unwrap();
    write(&mut all[2].1, BOX, &["last words"], NOW);
    all[2].1.remove(&[id(3)], NOW).unwrap();
    assert_eq!(all[2].1.members().get(&id(3)), None);
    meet(&mut all, &[0, 1, 2]);
    for at in [0, 1] {
        assert_eq!(all[at].1.members().get(&id(3)), None);
        let no = u8::try_from(at).unwrap() + 1;
        let read = texts(&read(&all[at].0, no, BOX));
        assert!(
            read.iter().any(|(_, text)| text == "last words"),
            "{read:?}"
        );
    }
}

/// The keys that were on paper, and the next ones.
fn seeds(store: &mut Store) -> (RecoverySeed, RecoverySeed) {
    (
        store.recovery_seed().unwrap().unwrap(),
        RecoverySeed([77; 32]),
    )
}

#[test]
fn recovery_undoes_a_thief_and_the_old_keys_are_worth_nothing_afterwards() {
    let mut all = three();
    let (seed, next) = seeds(&mut all[0].1);
    // C's thief removes both others before anybody hears.
    all[2].1.remove(&[id(1), id(2)], NOW).unwrap();
    meet(&mut all, &[0, 2]);
    assert!(members(&all[0].1).is_empty() || members(&all[0].1) == [id(3)]);
    let wrong = all[0].1.reset(&next, &[id(2)], &next, NOW);
    assert!(matches!(wrong, Err(AccountError::NotRecovery)));
    all[0].1.reset(&seed, &[id(2)], &next, NOW).unwrap();
    let mut kept = vec![id(1), id(2)];
    kept.sort_unstable();
    meet(&mut all, &[0, 1, 2]);
    for (_, store) in &all {
        assert_eq!(members(store), kept);
    }
    // What comes now, the thief does not read; the two do.
    write(&mut all[0].1, BOX, &["ours again"], NOW);
    all[0].1.seal_all(NOW).unwrap();
    meet(&mut all, &[0, 1, 2]);
    assert!(
        texts(&read(&all[1].0, 2, BOX))
            .iter()
            .any(|it| it.1 == "ours again")
    );
    let theirs = Reader::open(all[2].0.path(), keys(3))
        .unwrap()
        .read(BOX, None)
        .unwrap();
    assert!(!theirs.waiting.is_empty());
    let again = all[1].1.remove_by_recovery(&seed, &[id(1)], NOW);
    assert!(matches!(again, Err(AccountError::NotRecovery)));
    all[1].1.remove_by_recovery(&next, &[id(1)], NOW).unwrap();
    assert_eq!(members(&all[1].1), [id(2)]);
}

#[test]
fn an_account_comes_back_on_a_fresh_device_by_its_keys_on_paper() {
    let mut all = three();
    let (seed, next) = seeds(&mut all[0].1);
    let account = all[0].1.account().unwrap();
    let dir = TempDir::new();
    let mut fresh = open(&dir, 8, NOW);
    let wrong = fresh.recover(
        account,
        &records(&all[0].1),
        &next,
        |_| Vec::new(),
        &next,
        NOW,
    );
    assert!(matches!(wrong, Err(JoinError::Recovery(_))), "{wrong:?}");
    assert_eq!(fresh.account(), None);
    let keep = |members: &bailey_docs_store::Members| {
        members
            .iter()
            .map(|(id, _)| *id)
            .filter(|it| *it != id(3))
            .collect()
    };
    fresh
        .recover(account, &records(&all[0].1), &seed, keep, &next, NOW)
        .unwrap();
    let mut kept = vec![id(1), id(2), id(8)];
    kept.sort_unstable();
    assert_eq!(members(&fresh), kept);
    sync(&fresh, &mut all[0].1, NOW);
    sync(&fresh, &mut all[1].1, NOW);
    sync(&all[0].1, &mut fresh, NOW);
    assert_eq!(members(&all[0].1), kept);
    let read = texts(&read(&dir, 8, BOX));
    assert!(read.iter().any(|(_, text)| text == "before"), "{read:?}");
}

#[test]
fn a_removed_device_hands_over_nothing_but_records() {
    let mut all = three();
    all[0].1.remove(&[id(3)], NOW).unwrap();
    write(&mut all[2].1, BOX, &["later"], NOW);
    all[2].1.seal_all(NOW).unwrap();
    let heads = all[2].1.heads().into_iter();
    let own: Vec<_> = heads.filter(|head| head.chain.writer == id(3)).collect();
    let mut docs = 0;
    for head in own {
        let envelopes = all[2].1.range(&head.chain, 1, 99, usize::MAX).unwrap();
        for bytes in envelopes {
            let taken = all[0].1.ingest_from(&id(3), &bytes, NOW);
            let refused = matches!(taken, Err(IngestError::NotMember(_)));
            assert_eq!(
                refused,
                head.chain.doc != DocId::Account,
                "{}",
                head.chain.doc
            );
            docs += u8::from(refused);
        }
    }
    assert!(docs > 0);
}

#[test]
fn whoever_was_added_by_a_removed_device_is_known_and_hears_that_it_is_none() {
    let mut all = three();
    all[0].1.remove(&[id(2)], NOW).unwrap();
    // Two has not heard; it adds four, and what it says of that comes to one later.
    let dir = TempDir::new();
    let mut four = open(&dir, 4, NOW);
    pair(&mut all[1].1, &mut four, 4, Role::Full, NOW);
    assert_eq!(members(&four).len(), 4);
    for bytes in records(&all[1].1) {
        all[0].1.ingest_from(&id(2), &bytes, NOW).unwrap();
    }
    let one = &mut all[0].1;
    let told: Vec<_> = one.members().undone().map(|(id, _)| *id).collect();
    assert_eq!(told, [id(4)]);
    assert!(one.members().former().all(|(device, _)| *device != id(4)));
    // One is its member by what it knows; what one tells it says otherwise.
    for bytes in records(one) {
        four.ingest_from(&id(1), &bytes, NOW).unwrap();
    }
    assert_eq!(members(&four), members(one));
    let refused = four.append(BOX, gap("nothing more"), NOW, Urgency::Normal);
    assert!(matches!(refused, Err(AppendError::NotMember)));
    // Its keys were never taken away: a member may add it.
    four = {
        drop(four);
        let dir = TempDir::new();
        let mut fresh = open(&dir, 4, NOW);
        pair(one, &mut fresh, 4, Role::Watch, NOW);
        fresh
    };
    assert_eq!(members(&four), members(one));
    assert_eq!(one.members().undone().count(), 0);
}

#[test]
fn a_device_that_nobody_ever_added_signs_nothing() {
    let all = three();
    let stranger: DevicePublic = keys(9).public();
    assert!(all[0].1.members().get(&stranger.id()).is_none());
    let dir = TempDir::new();
    let mut other = open(&dir, 9, NOW);
    other.create_account("elsewhere", NOW).unwrap();
    let mut a = all.into_iter().next().unwrap();
    for bytes in records(&other) {
        let refused = a.1.ingest(&bytes, NOW);
        assert!(matches!(refused, Err(IngestError::OtherAccount)));
    }
    let again = records(&a.1);
    let taken = a.1.ingest(&again[0], NOW).unwrap();
    assert_eq!(taken.outcome, Outcome::Duplicate);
    assert_eq!(peek(&again[0]).unwrap().fields.prev, Hash::NONE);
}
