use bailey_envelope::{BLOB_SIZES, verify_blob};
use proptest::prelude::*;

use super::*;

const SECRET: PairSecret = PairSecret([7; 10]);
const MAILBOX: [u8; 32] = [9; 32];
const STORE: [u8; 16] = [1; 16];
const ZERO: Duration = Duration::ZERO;

fn attempt(n: u8) -> Attempt {
    Attempt([n; 16])
}

fn host() -> Post {
    Post::host(SECRET, &MAILBOX)
}

fn joiner(n: u8) -> Post {
    Post::joiner(SECRET, &MAILBOX, attempt(n))
}

/// All that an end has to put, each stored at once.
fn puts(post: &mut Post) -> Vec<Vec<u8>> {
    let mut blobs = Vec::new();
    while let Some((id, topic, blob)) = post.poll_put(ZERO) {
        assert_eq!(verify_blob(&blob), Ok(topic));
        assert!(BLOB_SIZES.contains(&blob.len()));
        post.handle_stored(id);
        blobs.push(blob);
    }
    blobs
}

fn give(post: &mut Post, blobs: &[Vec<u8>]) {
    for blob in blobs {
        post.handle_blob(post.next, blob);
    }
}

fn events(post: &mut Post) -> Vec<PostEvent> {
    std::iter::from_fn(|| post.poll_event()).collect()
}

/// What came of one attempt, and whether anything else did.
fn bytes_of(post: &mut Post, of: Attempt) -> Vec<u8> {
    let mut whole = Vec::new();
    for event in events(post) {
        match event {
            PostEvent::Bytes(attempt, bytes) if attempt == of => whole.extend(bytes),
            PostEvent::Opened(attempt) if attempt == of => {}
            other => panic!("{other:?}"),
        }
    }
    whole
}

/// A blob that only somebody with the code can make.
fn forged(way: PairWay, content: &[u8]) -> Vec<u8> {
    let key = MailKey::of_pairing(&SECRET.0, &MAILBOX, way);
    key.seal(content).unwrap()
}

fn piece_of(n: u8, number: u32, bytes: &[u8]) -> Vec<u8> {
    let head = head(KIND_BYTES, attempt(n));
    [&head[..], &number.to_be_bytes(), bytes].concat()
}

/// So many pieces of one byte: 0, 1, 2, ...
fn pieces(n: u8, count: u8) -> Vec<Vec<u8>> {
    let piece = |number: u8| forged(PairWay::ToHost, &piece_of(n, number.into(), &[number]));
    (0..count).map(piece).collect()
}

#[test]
fn bytes_of_any_number_cross_both_ways_in_order() {
    let (mut host, mut joiner) = (host(), joiner(1));
    assert_ne!(host.topic(), joiner.topic());
    joiner.write(attempt(1), b"hello");
    give(&mut host, &puts(&mut joiner));
    assert_eq!(bytes_of(&mut host, attempt(1)), b"hello");
    host.keep(ZERO, Some(attempt(1)));
    joiner.keep(ZERO, Some(attempt(1)));
    let long: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    host.write(attempt(1), &long);
    let blobs = puts(&mut host);
    assert_eq!(blobs.len(), 1 + 4, "the mark and four pieces");
    give(&mut joiner, &blobs);
    assert_eq!(bytes_of(&mut joiner, attempt(1)), long);
    joiner.write(attempt(1), &long);
    give(&mut host, &puts(&mut joiner));
    assert_eq!(bytes_of(&mut host, attempt(1)), long);
    assert!(host.is_idle() && joiner.is_idle());
}

#[test]
fn another_secret_or_mailbox_is_another_topic() {
    let mut topics = vec![host().topic(), joiner(1).topic()];
    topics.push(Post::host(PairSecret([8; 10]), &MAILBOX).topic());
    topics.push(Post::host(SECRET, &[8; 32]).topic());
    topics.sort_unstable();
    topics.dedup();
    assert_eq!(topics.len(), 4);
}

#[test]
fn pieces_that_come_twice_or_in_another_order_make_the_same_bytes() {
    let blobs = pieces(1, 6);
    for order in [[5, 4, 3, 2, 1, 0], [0, 2, 1, 5, 3, 4], [3, 0, 1, 2, 4, 5]] {
        let mut host = host();
        for at in order {
            give(
                &mut host,
                &[blobs[at].clone(), blobs[at].clone(), blobs[0].clone()],
            );
        }
        assert_eq!(bytes_of(&mut host, attempt(1)), [0, 1, 2, 3, 4, 5]);
    }
}

#[test]
fn the_first_of_two_pieces_with_one_number_stays() {
    let mut host = host();
    let later = forged(PairWay::ToHost, &piece_of(1, 1, b"first"));
    let other = forged(PairWay::ToHost, &piece_of(1, 1, b"second"));
    give(&mut host, &[later, other, pieces(1, 1).remove(0)]);
    assert_eq!(bytes_of(&mut host, attempt(1)), b"\0first");
}

#[test]
fn pieces_far_ahead_break_an_attempt_off() {
    let mut host = host();
    let blobs = pieces(1, 10);
    give(&mut host, &blobs[1..8]);
    assert_eq!(events(&mut host), [PostEvent::Opened(attempt(1))]);
    give(&mut host, &blobs[8..9]);
    let gap = PostEvent::Broken(attempt(1), PostFault::Gap);
    assert_eq!(events(&mut host), [gap]);
    // It does not begin anew.
    give(&mut host, &blobs);
    assert_eq!(events(&mut host), []);
}

#[test]
fn what_is_no_piece_is_nothing_and_there_is_an_end_of_it() {
    let mut host = host();
    let good = pieces(1, 2);
    give(&mut host, &good[..1]);
    assert_eq!(bytes_of(&mut host, attempt(1)), [0]);
    let mut flipped = good[1].clone();
    flipped[500] ^= 1;
    let noise = [
        Vec::new(),
        vec![0; 1024],
        flipped,
        forged(PairWay::ToJoiner, &piece_of(1, 1, b"x")),
        forged(PairWay::ToHost, b""),
        forged(PairWay::ToHost, b"BLY\x01 an envelope"),
        forged(PairWay::ToHost, &piece_of(1, 1, b"")),
        forged(
            PairWay::ToHost,
            &[&head(2, attempt(1))[..], b"abc"].concat(),
        ),
        forged(
            PairWay::ToHost,
            &[&head(KIND_CLOSED, attempt(2))[..], b"x"].concat(),
        ),
        // A host is told by nobody that it is over.
        forged(PairWay::ToHost, &head(KIND_CLOSED, attempt(2))),
    ];
    give(&mut host, &noise);
    assert_eq!(events(&mut host), []);
    give(&mut host, &good[1..]);
    assert_eq!(bytes_of(&mut host, attempt(1)), [1]);
    for _ in 0..MAX_BLOBS {
        give(&mut host, &noise[1..2]);
    }
    let noisy = PostEvent::Broken(attempt(1), PostFault::Noise);
    assert_eq!(events(&mut host), [noisy]);
    give(&mut host, &pieces(2, 1));
    assert_eq!(events(&mut host), []);
}

#[test]
fn a_joiner_hears_its_own_attempt_alone() {
    let (mut host, mut first, mut again) = (host(), joiner(1), joiner(2));
    first.write(attempt(1), b"one");
    give(&mut host, &puts(&mut first));
    host.write(attempt(1), b"to one");
    again.write(attempt(2), b"two");
    give(&mut host, &puts(&mut again));
    host.write(attempt(2), b"to two");
    let blobs = puts(&mut host);
    give(&mut again, &blobs);
    assert_eq!(bytes_of(&mut again, attempt(2)), b"to two");
    give(&mut first, &blobs);
    assert_eq!(bytes_of(&mut first, attempt(1)), b"to one");
}

#[test]
fn an_attempt_that_was_left_is_not_opened_again() {
    let mut host = host();
    give(&mut host, &pieces(1, 2));
    host.write(attempt(1), b"a last word");
    host.leave(attempt(1));
    let _seen = events(&mut host);
    give(&mut host, &pieces(1, 5));
    assert_eq!(puts(&mut host).len(), 1, "what was written is put");
    give(&mut host, &pieces(1, 5));
    assert_eq!(events(&mut host), []);
    assert!(host.is_idle() && host.strands.is_empty());
}

#[test]
fn the_ninth_attempt_throws_out_the_oldest_and_the_sixty_fifth_is_not_heard() {
    let mut host = host();
    // The oldest is not the one with the least number.
    give(&mut host, &pieces(200, 1));
    for n in 1..8 {
        give(&mut host, &pieces(n, 1));
    }
    assert_eq!(events(&mut host).len(), 16);
    give(&mut host, &pieces(8, 1));
    let out = PostEvent::Broken(attempt(200), PostFault::Replaced);
    assert_eq!(events(&mut host)[0], out);
    for n in 9..64 {
        give(&mut host, &pieces(n, 1));
        assert_eq!(host.strands.len(), MAX_ATTEMPTS);
        assert_eq!(events(&mut host).len(), 3);
    }
    give(&mut host, &pieces(64, 1));
    assert_eq!(events(&mut host), []);
}

#[test]
fn once_one_has_proved_the_code_nobody_else_is_heard_and_is_told_so() {
    let (mut host, mut first, mut second) = (host(), joiner(1), joiner(2));
    give(&mut host, &pieces(1, 1));
    host.keep(ZERO, Some(attempt(1)));
    let _opened = events(&mut host);
    give(&mut host, &pieces(2, 1));
    assert_eq!(events(&mut host), []);
    let told = puts(&mut host);
    give(&mut first, &told);
    assert_eq!(events(&mut first), []);
    give(&mut second, &told);
    assert_eq!(events(&mut second), [PostEvent::Closed]);
    // Over for all: by expiry, or by another way.
    let mut host = super::Post::host(SECRET, &MAILBOX);
    host.keep(ZERO, None);
    give(&mut first, &puts(&mut host));
    assert_eq!(events(&mut first), [PostEvent::Closed]);
}

#[test]
fn before_the_proof_a_stream_is_short_and_after_it_a_welcome_fits() {
    let mut host = host();
    let half = vec![1; MAX_UNPROVED / 2];
    for (number, more) in [(0, true), (1, true), (2, false)] {
        give(
            &mut host,
            &[forged(PairWay::ToHost, &piece_of(1, number, &half))],
        );
        let broken = PostEvent::Broken(attempt(1), PostFault::TooLong);
        assert_eq!(!events(&mut host).contains(&broken), more);
    }
    let mut host = super::Post::host(SECRET, &MAILBOX);
    give(&mut host, &pieces(1, 1));
    host.keep(ZERO, Some(attempt(1)));
    let big = vec![1; MAX_PIECE];
    for number in 1..=12 {
        give(
            &mut host,
            &[forged(PairWay::ToHost, &piece_of(1, number, &big))],
        );
    }
    let _all = bytes_of(&mut host, attempt(1));
    give(
        &mut host,
        &[forged(PairWay::ToHost, &piece_of(1, 13, &big))],
    );
    let broken = PostEvent::Broken(attempt(1), PostFault::TooLong);
    assert_eq!(events(&mut host), [broken]);
}

#[test]
fn a_refused_piece_is_put_again_for_a_while() {
    let mut joiner = joiner(1);
    joiner.write(attempt(1), b"hello");
    let (mut now, mut blobs) = (ZERO, Vec::new());
    for round in 0..MAX_REFUSALS {
        let (id, _, blob) = joiner.poll_put(now).unwrap();
        blobs.push(blob);
        assert_eq!(joiner.poll_put(now), None, "one at a time");
        joiner.handle_refused(now, id, Refusal::Rate);
        assert_eq!(joiner.poll_put(now), None);
        if round + 1 < MAX_REFUSALS {
            assert_eq!(events(&mut joiner), []);
            now = joiner.poll_timeout().unwrap();
        }
    }
    assert!(now < Duration::from_secs(30), "{now:?}");
    blobs.dedup();
    assert_eq!(blobs.len(), 1, "always the same bytes");
    let refused = PostFault::Refused(Refusal::Rate);
    assert_eq!(
        events(&mut joiner),
        [PostEvent::Broken(attempt(1), refused)]
    );
}

#[test]
fn what_was_not_answered_is_put_again_by_the_next_connection() {
    let mut joiner = joiner(1);
    assert_eq!(joiner.handle_up(STORE), 0);
    joiner.write(attempt(1), b"hello");
    let (_, _, blob) = joiner.poll_put(ZERO).unwrap();
    joiner.handle_blob(41, &forged(PairWay::ToJoiner, &piece_of(1, 0, b"x")));
    joiner.handle_down();
    assert_eq!(joiner.handle_up(STORE), 42);
    let (id, _, again) = joiner.poll_put(ZERO).unwrap();
    assert_eq!(again, blob);
    joiner.handle_stored(id);
    assert!(joiner.is_idle());
    let _bytes = events(&mut joiner);
    // Another store has nothing of what was there.
    assert_eq!(joiner.handle_up([2; 16]), 0);
    let lost = PostEvent::Broken(attempt(1), PostFault::Lost);
    assert_eq!(events(&mut joiner), [lost]);
}

#[test]
fn no_more_puts_are_unanswered_than_a_mailbox_allows() {
    let mut host = host();
    for n in 1..=8 {
        give(&mut host, &pieces(n, 1));
        host.write(attempt(n), b"answer");
    }
    let mut ids = Vec::new();
    while let Some((id, ..)) = host.poll_put(ZERO) {
        ids.push(id);
    }
    assert_eq!(ids.len(), MAX_PUTS);
    // Whose put is on its way goes, and another begins: the mailbox still counts it.
    give(&mut host, &pieces(9, 1));
    host.write(attempt(9), b"answer");
    assert_eq!(host.poll_put(ZERO), None);
    host.handle_stored(ids[0]);
    assert!(host.poll_put(ZERO).is_some());
}

#[test]
fn the_document_says_these_numbers() {
    let document = include_str!("../../../../../docs/mailbox.md");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let document = words(document);
    let grouped = |number: usize| {
        let (thousands, rest) = (number / 1000, number % 1000);
        match thousands {
            0 => rest.to_string(),
            1..1000 => format!("{thousands},{rest:03}"),
            _ => format!("{},{:03},{rest:03}", thousands / 1000, thousands % 1000),
        }
    };
    for said in [
        format!("more than {} bytes before the proof", grouped(MAX_UNPROVED)),
        format!("{} in all", grouped(MAX_STREAM)),
        format!("A host has {MAX_ATTEMPTS} attempts open"),
        format!("hears {MAX_ATTEMPTS_EVER} of one code"),
        format!("reads {} blobs of a topic", grouped(MAX_BLOBS as usize)),
        "a piece eight or more ahead".to_owned(),
        "refused eight times".to_owned(),
    ] {
        assert!(document.contains(&said), "{said}");
    }
    assert_eq!((MAX_AHEAD, MAX_REFUSALS), (8, 8));
}

/// What a mailbox, and whoever has the code beside it, may do with one blob.
#[derive(Debug, Clone)]
enum Deed {
    /// One of those that were put so far, perhaps once more.
    Give(prop::sample::Index),
    Flip(prop::sample::Index, usize),
    Forge(u8, u32, Vec<u8>),
    Noise(Vec<u8>),
    Write(usize),
    Down(bool),
    Refuse,
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        6 => any::<prop::sample::Index>().prop_map(Deed::Give),
        1 => (any::<prop::sample::Index>(), any::<usize>())
            .prop_map(|(which, at)| Deed::Flip(which, at)),
        1 => (2_u8..20, any::<u32>(), prop::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(n, number, bytes)| Deed::Forge(n, number, bytes)),
        1 => prop::collection::vec(any::<u8>(), 0..2000).prop_map(Deed::Noise),
        4 => (1_usize..900).prop_map(Deed::Write),
        1 => any::<bool>().prop_map(Deed::Down),
        1 => Just(Deed::Refuse),
    ];
    prop::collection::vec(deed, 0..120)
}

proptest! {
    /// Whatever is done to blobs, what comes of an attempt is a beginning of what its
    /// joiner wrote, and nothing grows beyond its bounds.
    #[test]
    fn what_comes_is_a_beginning_of_what_was_written(deeds in deeds()) {
        let (mut host, mut joiner) = (host(), joiner(1));
        let (mut put, mut written, mut came) = (Vec::new(), Vec::new(), Vec::new());
        let mut index = 0;
        for deed in deeds {
            index += 1;
            match deed {
                Deed::Write(count) => {
                    let bytes: Vec<u8> = (0..count)
                        .map(|at| u8::try_from((written.len() + at) % 251).unwrap())
                        .collect();
                    written.extend_from_slice(&bytes);
                    joiner.write(attempt(1), &bytes);
                    put.extend(puts(&mut joiner));
                }
                Deed::Give(which) if !put.is_empty() => {
                    let blob: &Vec<u8> = which.get(&put);
                    host.handle_blob(index, blob);
                }
                Deed::Flip(which, at) if !put.is_empty() => {
                    let mut blob = which.get(&put).clone();
                    let at = at % blob.len();
                    blob[at] ^= 1;
                    host.handle_blob(index, &blob);
                }
                Deed::Give(_) | Deed::Flip(..) => {}
                Deed::Forge(n, number, bytes) => {
                    let content = piece_of(n, number % 12, &bytes);
                    host.handle_blob(index, &forged(PairWay::ToHost, &content));
                }
                Deed::Noise(bytes) => host.handle_blob(index, &bytes),
                Deed::Down(same) => {
                    host.handle_down();
                    let _from = host.handle_up(if same { STORE } else { [2; 16] });
                }
                Deed::Refuse => {
                    if let Some((id, ..)) = host.poll_put(ZERO) {
                        host.handle_refused(ZERO, id, Refusal::Full);
                    }
                }
            }
            for event in events(&mut host) {
                if let PostEvent::Bytes(of, bytes) = event
                    && of == attempt(1)
                {
                    came.extend(bytes);
                }
            }
            prop_assert!(written.starts_with(&came));
            prop_assert!(host.strands.len() <= MAX_ATTEMPTS);
            for strand in host.strands.values() {
                prop_assert!(strand.ahead.len() < MAX_AHEAD as usize);
                prop_assert!(strand.taken <= MAX_UNPROVED);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn an_honest_mailbox_brings_all(
        lengths in prop::collection::vec(1_usize..200_000, 1..8),
    ) {
        let (mut host, mut joiner) = (host(), joiner(1));
        joiner.write(attempt(1), b"x");
        give(&mut host, &puts(&mut joiner));
        host.keep(ZERO, Some(attempt(1)));
        let mut written = b"x".to_vec();
        for length in lengths {
            let bytes = vec![u8::try_from(length % 251).unwrap(); length];
            written.extend_from_slice(&bytes);
            joiner.write(attempt(1), &bytes);
            give(&mut host, &puts(&mut joiner));
        }
        prop_assert_eq!(bytes_of(&mut host, attempt(1)), written);
    }
}
