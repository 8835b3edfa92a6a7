use bailey_docs_store::DocId;
use bailey_model::{AccountId, Incarnation};

use super::*;

const WRITER: DeviceId = DeviceId([1; 32]);
const OTHER: DeviceId = DeviceId([2; 32]);
const CLOCK: Timestamp = Timestamp(1_796_000_000_000);
const START: Duration = Duration::ZERO;

fn head(n: u8, seq: u64) -> Head {
    Head {
        chain: ChainId {
            doc: DocId::Node,
            writer: WRITER,
            incarnation: Incarnation([n; 16]),
        },
        seq,
        hash: Hash([1; 32]),
    }
}

fn word(signer: DeviceId, heads: Vec<Head>, lacks: Vec<Head>) -> Heads {
    Heads {
        account: AccountId([1; 32]),
        signer,
        made: CLOCK,
        heads,
        lacks,
    }
}

/// Whose word it is that the mailbox tells less, and of which chain.
fn older(words: &Words, now: Duration) -> Vec<(DeviceId, ChainId)> {
    words.older(now, |_| false).into_iter().collect()
}

fn map(heads: &[Head]) -> BTreeMap<ChainId, Head> {
    heads.iter().map(|head| (head.chain, *head)).collect()
}

#[test]
fn what_another_saw_and_the_mailbox_does_not_tell_is_noticed_in_time() {
    let mut words = Words::default();
    let have = map(&[head(1, 3)]);
    let seen = word(WRITER, vec![head(1, 5), head(2, 1)], Vec::new());
    let asked = words.heard(&seen, &have, |_| true, (START, CLOCK));
    assert_eq!(asked, []);
    assert_eq!(older(&words, START), [], "it may be on its way");
    assert_eq!(older(&words, OWN_LATE), [(WRITER, head(2, 1).chain)]);
    assert_eq!(words.older(OWN_LATE, |it| it == WRITER).len(), 0);
    let (_, lacks) = words.say(OWN_LATE, &have);
    let none = Head {
        seq: 0,
        hash: Hash::NONE,
        ..head(2, 1)
    };
    assert_eq!(lacks, [head(1, 3), none]);
    words.heads(&[head(1, 5)]);
    assert_eq!(older(&words, OWN_LATE), [(WRITER, head(2, 1).chain)]);
    words.heads(&[head(2, 1)]);
    assert_eq!(older(&words, OWN_LATE), []);
}

#[test]
fn what_somebody_else_put_may_take_longer_and_what_was_refused_is_not_missed() {
    let mut words = Words::default();
    let seen = word(OTHER, vec![head(1, 5)], Vec::new());
    words.heard(&seen, &map(&[]), |_| true, (START, CLOCK));
    assert_eq!(older(&words, OWN_LATE), []);
    assert_eq!(older(&words, OTHERS_LATE).len(), 1);
    words.fault(head(1, 5).chain);
    words.heard(&seen, &map(&[]), |_| true, (START, CLOCK));
    assert_eq!(older(&words, OTHERS_LATE), []);
    let gone = word(OTHER, vec![head(2, 5)], Vec::new());
    words.heard(&gone, &map(&[]), |_| false, (START, CLOCK));
    assert_eq!(older(&words, OTHERS_LATE), [], "its writer is no member");
}

#[test]
fn a_device_is_given_what_it_says_it_lacks_unless_that_was_long_ago() {
    let mut words = Words::default();
    let have = map(&[head(1, 5), head(2, 2)]);
    let lacks = word(OTHER, Vec::new(), vec![head(1, 3), head(2, 2)]);
    let asked = words.heard(&lacks, &have, |_| true, (START, CLOCK));
    assert_eq!(asked, [(head(1, 3).chain, 3)]);
    let later = Timestamp(CLOCK.0 + STALE_MS + 1);
    assert_eq!(words.heard(&lacks, &have, |_| true, (START, later)), []);
}

#[test]
fn words_are_of_all_at_first_and_then_of_what_changed_and_seldom() {
    let mut words = Words::default();
    let mut heads = map(&[head(1, 3), head(2, 7)]);
    assert!(words.is_due(START));
    assert_eq!(words.say(START, &heads).0.len(), 2);
    assert!(!words.is_due(START + EVERY), "nothing changed");
    heads.insert(head(2, 8).chain, head(2, 8));
    words.heads(&[head(2, 8)]);
    assert!(!words.is_due(START));
    assert!(words.is_due(START + EVERY));
    assert_eq!(words.say(START + EVERY, &heads).0, [head(2, 8)]);
    let many: Vec<Head> = (0..4000_u32)
        .map(|n| {
            let mut it = head(0, 1);
            it.chain.incarnation.0[..4].copy_from_slice(&n.to_be_bytes());
            it
        })
        .collect();
    words.heads(&many);
    assert_eq!(words.say(START, &map(&many)).0.len(), MAX_HEADS);
}

#[test]
fn a_device_that_comes_is_answered_and_two_that_stay_hear_each_other_now_and_then() {
    let have = map(&[head(1, 3)]);
    let mut words = Words::default();
    let said = |words: &mut Words, now| {
        assert!(words.is_due(now), "{now:?}");
        words.say(now, &have).0
    };
    said(&mut words, START);
    assert!(!words.is_due(BEAT * 100), "nobody is there to hear it");
    let hears = |words: &mut Words, now| {
        let asked = words.heard(
            &word(OTHER, Vec::new(), Vec::new()),
            &have,
            |_| true,
            (now, CLOCK),
        );
        assert_eq!(asked, []);
    };
    // It came: it hears this one soon, and no word of its own makes that any sooner.
    let came = BEAT * 100;
    hears(&mut words, came);
    assert_eq!(said(&mut words, came), [], "nothing changed");
    for later in 1..30 {
        let now = came + Duration::from_secs(later * 10);
        hears(&mut words, now);
        assert!(!words.is_due(now.min(came + BEAT - LACKING)));
    }
    said(&mut words, came + BEAT);
    assert!(!words.is_due(came + BEAT * 3), "it is gone again");
    // Who is no member makes nothing be said.
    words.heard(
        &word(WRITER, Vec::new(), Vec::new()),
        &have,
        |_| false,
        (came + BEAT * 3, CLOCK),
    );
    assert!(!words.is_due(came + BEAT * 3));
}

fn boxed(n: u16, seq: u64) -> Head {
    let mut it = head(1, seq);
    let mut id = [0; 16];
    id[..2].copy_from_slice(&n.to_be_bytes());
    it.chain.doc = DocId::Box(bailey_model::BoxId(id));
    it
}

#[test]
fn what_one_device_makes_up_is_in_the_way_of_no_other() {
    let (liar, honest) = (OTHER, DeviceId([3; 32]));
    let have = map(&[head(1, 3), head(2, 3)]);
    let mut words = Words::default();
    let hears = |words: &mut Words, by, heads| {
        let word = word(by, heads, Vec::new());
        words.heard(&word, &have, |_| true, (START, CLOCK));
    };
    hears(&mut words, liar, vec![head(1, 1 << 62), head(2, 1 << 62)]);
    hears(&mut words, liar, (0..2000).map(|n| boxed(n, 9)).collect());
    assert_eq!(words.lacks[&liar].len(), MAX_LACKS);
    hears(&mut words, honest, vec![head(1, 5)]);
    let late = older(&words, OTHERS_LATE);
    let by: Vec<DeviceId> = late.iter().map(|(by, _)| *by).collect();
    assert_eq!(by, [liar, honest]);
    // What the honest one saw is asked for with the first.
    let (_, lacks) = words.say(OTHERS_LATE, &have);
    assert!(lacks.contains(&head(1, 3)), "{lacks:?}");
    words.heads(&[head(1, 5)]);
    assert_eq!(
        older(&words, OTHERS_LATE).len(),
        1,
        "the liar's is not here"
    );
    // Many that lie leave a word with room for heads, and each is said in its turn.
    for n in 4..20 {
        let by = DeviceId([n; 32]);
        let from = u16::from(n) * 1000;
        hears(
            &mut words,
            by,
            (from..from + 999).map(|n| boxed(n, 9)).collect(),
        );
    }
    hears(&mut words, honest, vec![head(2, 7)]);
    let (_, lacks) = words.say(OTHERS_LATE, &have);
    assert_eq!(lacks.len(), MAX_SAID);
    assert!(lacks.contains(&head(2, 3)), "the first of each goes first");
    let all = MAX_LACKS * 17 / MAX_SAID;
    for _ in 0..all {
        assert!(words.is_due(OTHERS_LATE + LACKING));
        words.say(OTHERS_LATE, &have);
    }
    assert!(!words.is_due(OTHERS_LATE + LACKING), "all of it was said");
}

#[test]
fn room_for_faults_is_each_writers_own() {
    let mut words = Words::default();
    for n in 0..2000 {
        let mut it = boxed(n, 1).chain;
        it.writer = OTHER;
        words.fault(it);
    }
    words.fault(head(1, 1).chain);
    assert!(words.is_faulty(&head(1, 1).chain));
    assert_eq!(words.faults[&OTHER].len(), MAX_FAULTS);
}
