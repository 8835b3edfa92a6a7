use core::net::SocketAddr;

use bailey_model::AccountId;

use super::wire::{END_CANCELLED, PairFrame};
use super::*;
use crate::DevicePublic;
use crate::mail::MailAddress;
use crate::wire::{decode, encode};

const SECRET: PairSecret = PairSecret([0x17, 0xff, 0, 3, 0x80, 9, 77, 1, 2, 250]);

fn code(addrs: &[&str]) -> PairCode {
    let addrs: Vec<SocketAddr> = addrs.iter().map(|addr| addr.parse().unwrap()).collect();
    PairCode::new(&addrs, SECRET).unwrap()
}

#[test]
fn a_code_is_read_back_as_typed_by_people() {
    for addrs in [
        &["192.168.1.7:4001"][..],
        &["10.0.0.1:1", "192.168.1.7:65535", "172.16.0.9:4001"],
        &["[2606:2800:220:1::1]:4001"],
        &["192.168.1.7:4001", "[fd00::1]:4001"],
        &["[fd00::1]:4001", "192.168.1.7:4001", "[fd00::2]:9"],
    ] {
        let code = code(addrs);
        let text = code.to_string();
        assert_eq!(text.parse(), Ok(code.clone()), "{text}");
        assert_eq!(
            text.to_lowercase().replace('-', " ").parse(),
            Ok(code.clone())
        );
        assert_eq!(
            text.replace('0', "o").replace('1', "l").parse(),
            Ok(code.clone())
        );
        assert_eq!(format!("  {text}\n").parse(), Ok(code));
    }
    assert_eq!(code(&["192.168.1.7:4001"]).to_string().len(), 8 * 4 + 7);
}

fn mailbox(host: &str) -> MailAddress {
    let key = core::array::from_fn(|at| u8::try_from(at * 7 % 256).unwrap());
    let host = host.to_owned();
    MailAddress {
        key,
        host,
        port: 7000,
    }
}

#[test]
fn a_code_may_name_a_mailbox_and_then_needs_no_address() {
    let longest = format!("{}.example", "a".repeat(253 - 8));
    for host in ["mail.example", "192.0.2.7", "2001:db8::7", "x", &longest] {
        for addrs in [
            &[][..],
            &["192.168.1.7:4001"],
            &["[fd00::1]:4001", "192.168.1.7:4001", "[fd00::2]:9"],
        ] {
            let addrs: Vec<SocketAddr> = addrs.iter().map(|addr| addr.parse().unwrap()).collect();
            let named = Some(mailbox(host));
            let code = PairCode::with_mailbox(&addrs, named, SECRET).unwrap();
            let text = code.to_string();
            assert_eq!(text.parse(), Ok(code.clone()), "{text}");
            assert_eq!(
                text.to_lowercase().replace('-', " ").parse(),
                Ok(code.clone())
            );
            assert_eq!(code.mailbox(), Some(&mailbox(host)));
            assert!(matches!(text.parse(), Ok(AnyCode::Long(read)) if read == code));
            let cut = &text[..text.len() - 1];
            assert!(cut.parse::<PairCode>().is_err(), "{cut}");
        }
    }
    let code = |host| PairCode::with_mailbox(&[], Some(mailbox(host)), SECRET);
    let symbols = code("192.0.2.7").unwrap().to_string().len();
    assert_eq!(symbols, 85 + 21, "53 bytes");
    let too_long = format!("{longest}a");
    for host in ["", "a b", "mail.example/", &too_long] {
        assert_eq!(code(host), Err(CodeError::Mailbox), "{host}");
    }
}

/// Worked out apart, by the format as it is written down.
#[test]
fn codes_are_as_they_were_frozen() {
    let old = "930A-G087-1YGH-FZR0-0E00-JK81-0BXA-VJXX";
    assert_eq!(code(&["192.168.1.7:4001"]).to_string(), old);
    assert_eq!(old.parse(), Ok(code(&["192.168.1.7:4001"])));
    let new = "C000-E3GN-3GHJ-MC9R-7X34-TN2V-C9MQ-0XVY-GP69-76N1-N2QV-DFE4-SF9D-J33D-C5MP-\
               RBK5-F1GP-TW3C-CMDN-G5ZZ-001R-02AD-041F-MH59-68";
    let named = PairCode::with_mailbox(&[], Some(mailbox("mail.example")), SECRET).unwrap();
    assert_eq!(named.to_string(), new);
    // Another version, and an address that is written as a name.
    let later = "H30A-G087-1YGH-FZR0-0E00-JK81-0BX2-82YV";
    assert_eq!(later.parse::<PairCode>(), Err(CodeError::Version(4)));
    let form = "C000-E3GN-3GHJ-MC9R-7X34-TN2V-C9MQ-0XVY-GP69-76N1-N2QV-DFE4-SF9D-J29H-74S2-\
                WC1E-68Q3-E6TR-2ZZG-00W0-156G-20QT-9EHG-G";
    assert_eq!(form.parse::<PairCode>(), Err(CodeError::Check));
}

#[test]
fn every_single_typo_and_swap_is_found() {
    let text = code(&["192.168.1.7:4001", "[fd00::1]:4001"]).to_string();
    let symbols: Vec<char> = text.chars().collect();
    for at in 0..symbols.len() {
        for other in "0123456789ABCDEFGHJKMNPQRSTVWXYZ".chars() {
            let mut typed = symbols.clone();
            if typed[at] == '-' || typed[at] == other {
                continue;
            }
            typed[at] = other;
            let typed: String = typed.into_iter().collect();
            assert_eq!(typed.parse::<PairCode>(), Err(CodeError::Check), "{typed}");
        }
        if at > 0 && symbols[at] != symbols[at - 1] && symbols[at] != '-' && symbols[at - 1] != '-'
        {
            let mut typed = symbols.clone();
            typed.swap(at, at - 1);
            let typed: String = typed.into_iter().collect();
            assert_eq!(typed.parse::<PairCode>(), Err(CodeError::Check), "{typed}");
        }
        let mut typed = symbols.clone();
        if typed.remove(at) != '-' {
            let typed: String = typed.into_iter().collect();
            assert!(
                matches!(typed.parse::<PairCode>(), Err(CodeError::Length { .. })),
                "{typed}"
            );
        }
    }
}

#[test]
fn what_is_no_code_is_refused_with_the_place() {
    let symbol = |symbol, at| Err(CodeError::Symbol { symbol, at });
    assert_eq!(
        "".parse::<PairCode>(),
        Err(CodeError::Length { symbols: 0 })
    );
    assert_eq!(
        "ABC".parse::<PairCode>(),
        Err(CodeError::Length { symbols: 3 })
    );
    assert_eq!("AB-U".parse::<PairCode>(), symbol('U', 4));
    assert_eq!("AB\u{e9}".parse::<PairCode>(), symbol('\u{e9}', 3));
    assert!(matches!(
        "A".repeat(5000).parse::<PairCode>(),
        Err(CodeError::Length { .. })
    ));
    for bad in [
        "0.0.0.0:1",
        "1.2.3.4:0",
        "224.0.0.1:1",
        "[fe80::1]:1",
        "[::]:1",
    ] {
        let addr = bad.parse().unwrap();
        assert_eq!(
            PairCode::new(&[addr], SECRET),
            Err(CodeError::Addresses),
            "{bad}"
        );
    }
    assert_eq!(PairCode::new(&[], SECRET), Err(CodeError::Addresses));
    assert!(!format!("{:?}", code(&["1.2.3.4:5"])).contains("77"));
}

#[test]
fn the_words_are_distinct() {
    let mut sorted = WORDS.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), 256);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Host,
    Joiner,
}

fn short(text: &str) -> ShortCode {
    match text.parse().unwrap() {
        AnyCode::Short(code) => code,
        AnyCode::Long(code) => panic!("{code}"),
    }
}

const SHORT: &str = "417-falcon-teapot";

fn config(role: Role, secret: PairSecret, exporter: u8) -> PairConfig {
    let (me, peer) = if role == Role::Host { (1, 2) } else { (2, 1) };
    let end = match role {
        Role::Host => PairEnd::Host {
            long: secret,
            short: Some(short(SHORT)),
        },
        Role::Joiner => PairEnd::Joiner(PairPassword::Long(secret)),
    };
    PairConfig {
        end,
        exporter: [exporter; 32],
        peer_key: [peer; 32],
        device: DevicePublic {
            ed25519: [me; 32],
            x25519: [me + 10; 32],
        },
        name: format!("device {me}"),
        entropy: [me + 20; 64],
    }
}

fn with_short(text: &str, exporter: u8) -> PairConfig {
    PairConfig {
        end: PairEnd::Joiner(PairPassword::Short(short(text))),
        ..config(Role::Joiner, SECRET, exporter)
    }
}

/// Frames in turn until the host has seen this many of the joiner's.
fn steps(host: &mut Pairing, joiner: &mut Pairing, frames: usize) {
    for at in 0..frames {
        host.handle_bytes(&joiner.poll_transmit().unwrap());
        if at + 1 < frames {
            joiner.handle_bytes(&host.poll_transmit().unwrap());
        }
    }
}

fn relay(host: &mut Pairing, joiner: &mut Pairing) {
    loop {
        let (to_host, to_joiner) = (joiner.poll_transmit(), host.poll_transmit());
        if to_host.is_none() && to_joiner.is_none() {
            break;
        }
        // In small pieces, to show that any split will do.
        for (bytes, to) in [(to_host, &mut *host), (to_joiner, &mut *joiner)] {
            for piece in bytes.unwrap_or_default().chunks(7) {
                to.handle_bytes(piece);
            }
        }
    }
}

fn pair() -> (Pairing, Pairing) {
    let host = Pairing::new(config(Role::Host, SECRET, 5)).unwrap();
    let joiner = Pairing::new(config(Role::Joiner, SECRET, 5)).unwrap();
    (host, joiner)
}

fn words(pairing: &mut Pairing) -> [&'static str; 4] {
    match pairing.poll_event() {
        Some(PairEvent::Words { words, .. }) => words,
        other => panic!("{other:?}"),
    }
}

#[test]
fn both_see_the_same_words_and_go_through_every_step() {
    let (mut host, mut joiner) = pair();
    relay(&mut host, &mut joiner);
    assert_eq!(host.poll_event(), Some(PairEvent::Proved));
    let Some(PairEvent::Words {
        words: ours,
        device,
        name,
    }) = host.poll_event()
    else {
        panic!()
    };
    assert_eq!(
        device,
        DevicePublic {
            ed25519: [2; 32],
            x25519: [12; 32]
        }
    );
    assert_eq!(name, "device 2");
    assert_eq!(words(&mut joiner), ours);
    let account = AccountId([7; 32]);
    assert_eq!(
        host.offer(account, vec![1]),
        Err(WrongStep),
        "nobody compared the words yet"
    );
    host.confirm(true).unwrap();
    assert_eq!(host.confirm(true), Err(WrongStep));
    host.offer(account, vec![1, 2, 3]).unwrap();
    relay(&mut host, &mut joiner);
    assert_eq!(
        joiner.poll_event(),
        Some(PairEvent::Offer {
            account,
            record: vec![1, 2, 3]
        })
    );
    joiner.cosign(vec![4; 64]).unwrap();
    relay(&mut host, &mut joiner);
    assert_eq!(host.poll_event(), Some(PairEvent::Cosigned(vec![4; 64])));
    let welcome = Welcome {
        envelopes: vec![vec![1; 3000], vec![2; 5]],
        addrs: vec![
            "10.0.0.1:4001".parse().unwrap(),
            "[fd00::1]:2".parse().unwrap(),
        ],
        session_port: 4001,
    };
    host.welcome(welcome.clone()).unwrap();
    relay(&mut host, &mut joiner);
    assert_eq!(joiner.poll_event(), Some(PairEvent::Welcome(welcome)));
    assert_eq!(joiner.poll_event(), Some(PairEvent::Done));
    assert_eq!(host.poll_event(), Some(PairEvent::Done));
    assert!(host.is_over() && joiner.is_over());
    host.cancel();
    assert_eq!(host.poll_event(), None);
}

#[test]
fn a_wrong_secret_or_another_connection_proves_nothing() {
    let other = PairSecret([0; 10]);
    for (secret, exporter) in [(other, 5), (SECRET, 6)] {
        let mut host = Pairing::new(config(Role::Host, SECRET, 5)).unwrap();
        let mut joiner = Pairing::new(config(Role::Joiner, secret, exporter)).unwrap();
        relay(&mut host, &mut joiner);
        let failed = Some(PairEvent::Failed(PairFailure::WrongCode));
        assert_eq!(host.poll_event(), failed);
        assert_eq!(joiner.poll_event(), failed);
        assert_eq!(host.poll_event(), None);
    }
}

#[test]
fn a_host_that_does_not_know_the_code_is_found_out_and_learns_one_guess() {
    // Whatever it answers: as an honest one with another code, with its peer's own
    // element, with what an honest host said on another connection.
    let mut liar = Pairing::new(config(Role::Host, PairSecret([0; 10]), 5)).unwrap();
    let (mut honest, mut joiner) = pair();
    steps(&mut liar, &mut joiner, 2);
    let refused = Some(PairEvent::Failed(PairFailure::WrongCode));
    assert_eq!(liar.poll_event(), refused);
    let proof_of = |host: &mut Pairing, exporter| {
        let mut other = Pairing::new(config(Role::Joiner, SECRET, exporter)).unwrap();
        steps(host, &mut other, 2);
        host.poll_transmit().unwrap()
    };
    joiner.handle_bytes(&proof_of(&mut honest, 5));
    assert_eq!(joiner.poll_event(), refused, "a proof of another exchange");

    let (_, mut joiner) = pair();
    let Some(PairFrame::Open { element, .. }) = decode(&joiner.poll_transmit().unwrap()[4..])
    else {
        panic!()
    };
    joiner.handle_bytes(&encode(&PairFrame::Answer { element }, usize::MAX).unwrap());
    let Some(PairFrame::Prove { mac, .. }) = decode(&joiner.poll_transmit().unwrap()[4..]) else {
        panic!()
    };
    let proof = PairFrame::Proof {
        mac,
        nonce: [1; 32],
        host: super::wire::Introduction::new(
            &DevicePublic {
                ed25519: [1; 32],
                x25519: [11; 32],
            },
            "device 1",
        ),
    };
    joiner.handle_bytes(&encode(&proof, usize::MAX).unwrap());
    assert_eq!(joiner.poll_event(), refused, "its own messages come back");
}

#[test]
fn a_short_code_goes_through_and_a_wrong_word_does_not() {
    for (text, right) in [
        (SHORT, true),
        ("417 FALCON teapot", true),
        ("417-falcon-temple", false),
        ("417-teapot-falcon", false),
        ("418-falcon-teapot", false),
    ] {
        let (mut host, _) = pair();
        let mut joiner = Pairing::new(with_short(text, 5)).unwrap();
        relay(&mut host, &mut joiner);
        assert_eq!(host.kind(), Some(PasswordKind::Short));
        if right {
            assert_eq!(host.poll_event(), Some(PairEvent::Proved));
            assert_eq!(words(&mut host), words(&mut joiner));
        } else {
            let refused = Some(PairEvent::Failed(PairFailure::WrongCode));
            assert_eq!(
                (host.poll_event(), joiner.poll_event()),
                (refused.clone(), refused)
            );
        }
    }
}

#[test]
fn what_passed_before_proves_nothing_on_another_connection() {
    // A joiner's frames of one connection, again on the next: the host has drawn
    // another element, and the exporter is another.
    let (mut host, mut joiner) = pair();
    let open = joiner.poll_transmit().unwrap();
    host.handle_bytes(&open);
    joiner.handle_bytes(&host.poll_transmit().unwrap());
    let prove = joiner.poll_transmit().unwrap();
    host.handle_bytes(&prove);
    assert_eq!(host.poll_event(), Some(PairEvent::Proved));
    for (exporter, entropy) in [(5, 99), (6, 21)] {
        let mut again = config(Role::Host, SECRET, exporter);
        again.entropy = [entropy; 64];
        let mut host = Pairing::new(again).unwrap();
        host.handle_bytes(&open);
        host.handle_bytes(&prove);
        let refused = Some(PairEvent::Failed(PairFailure::WrongCode));
        assert_eq!(host.poll_event(), refused, "{exporter} {entropy}");
    }
}

#[test]
fn one_between_gets_one_guess_a_connection_and_nothing_to_search_after() {
    // He passes both ways on two connections: two exporters, so neither side comes to
    // the other's key although both have the right code.
    let (mut host, _) = pair();
    let mut joiner = Pairing::new(with_short(SHORT, 6)).unwrap();
    relay(&mut host, &mut joiner);
    let refused = Some(PairEvent::Failed(PairFailure::WrongCode));
    assert_eq!(
        (host.poll_event(), joiner.poll_event()),
        (refused.clone(), refused)
    );
    // What he has seen fits every code alike: an element of another code is none the
    // less an element, and leads to a key.
    for text in ["1-acorn-acorn", "999-zipper-zebra", SHORT] {
        let (mut host, _) = pair();
        let mut joiner = Pairing::new(with_short(text, 5)).unwrap();
        host.handle_bytes(&joiner.poll_transmit().unwrap());
        let answer: Option<PairFrame> = decode(&host.poll_transmit().unwrap()[4..]);
        assert!(matches!(answer, Some(PairFrame::Answer { .. })));
        assert_eq!(host.poll_event(), None, "nothing is said before the proof");
    }
}

#[test]
fn what_is_no_element_ends_it() {
    // y = 2 is on no point of the curve.
    let mut element = [0; 32];
    element[0] = 2;
    let (mut host, mut joiner) = pair();
    let open = PairFrame::Open {
        code: PasswordKind::Short,
        element,
    };
    host.handle_bytes(&encode(&open, usize::MAX).unwrap());
    joiner.handle_bytes(&encode(&PairFrame::Answer { element }, usize::MAX).unwrap());
    let protocol = Some(PairEvent::Failed(PairFailure::Protocol));
    assert_eq!(
        (host.poll_event(), joiner.poll_event()),
        (protocol.clone(), protocol)
    );
}

#[test]
fn a_burnt_short_code_is_refused_at_every_step_and_the_long_one_is_not() {
    for frames in 0..=2 {
        let (mut host, _) = pair();
        let mut joiner = Pairing::new(with_short(SHORT, 5)).unwrap();
        if frames == 0 {
            host.burn_short();
        }
        if frames > 0 {
            host.handle_bytes(&joiner.poll_transmit().unwrap());
            host.burn_short();
        }
        relay(&mut host, &mut joiner);
        let refused = Some(PairEvent::Failed(PairFailure::WrongCode));
        assert_eq!(
            (host.poll_event(), joiner.poll_event()),
            (refused.clone(), refused)
        );
    }
    let (mut host, mut joiner) = pair();
    host.burn_short();
    relay(&mut host, &mut joiner);
    assert_eq!(host.poll_event(), Some(PairEvent::Proved));
    host.burn_short();
    assert_eq!(words(&mut host), words(&mut joiner));
}

#[test]
fn short_codes_are_read_as_people_say_them() {
    let code = short(SHORT);
    assert_eq!((code.slot(), code.to_string()), (417, SHORT.to_owned()));
    for text in [
        " 417 falcon teapot ",
        "417-Falcon Teapot",
        "417 - falcon - teapot",
    ] {
        assert_eq!(short(text), code, "{text}");
    }
    let refused = |text: &str| text.parse::<AnyCode>().unwrap_err();
    assert_eq!(refused("417"), CodeError::Words(0));
    assert_eq!(refused("417-falcon"), CodeError::Words(1));
    assert_eq!(refused("417-falcon-teapot-teapot"), CodeError::Words(3));
    assert_eq!(
        refused("417-falcon-teapots"),
        CodeError::Word("teapots".to_owned())
    );
    assert_eq!(refused("0-falcon-teapot"), CodeError::Slot);
    // A long code never looks like one.
    let long = self::code(&["192.168.1.7:4001"]);
    assert_eq!(long.to_string().parse(), Ok(AnyCode::Long(long)));
    assert!(!format!("{code:?}").contains("falcon"));
    for seed in 0..=255 {
        let code = ShortCode::of_random([seed, 255 - seed, 1, 2, seed, 4, seed, 255 - seed]);
        assert!((1..=999).contains(&code.slot()));
        assert_eq!(short(&code.to_string()), code);
    }
}

#[test]
fn a_device_makes_five_short_codes_an_hour() {
    let (mut budget, minute) = (ShortCodeBudget::default(), 60_000);
    for at in 0..5 {
        assert_eq!(budget.take(at * minute), Ok(()));
    }
    assert_eq!(budget.take(5 * minute), Err(55 * minute));
    assert_eq!(budget.take(60 * minute - 1), Err(1));
    assert_eq!(budget.take(60 * minute), Ok(()));
    assert_eq!(budget.take(60 * minute), Err(minute));
}

#[test]
fn a_joiner_of_version_1_is_told_in_its_own_words() {
    // Length 2, tag 7 (`End` there), reason 3.
    assert_eq!(refusal_of_version_1(), [2, 0, 0, 0, 7, 3]);
}

#[test]
fn a_code_of_the_version_before_is_named_as_such() {
    // 192.168.1.7:4001 and the secret of these tests, by the release before.
    let old = "530A-G087-1YGH-FZR0-0E00-JK81-0BX6-S181";
    assert_eq!(old.parse::<AnyCode>(), Err(CodeError::Version(1)));
}

#[test]
fn what_was_committed_to_cannot_be_changed_after() {
    for field in 0..3 {
        let (mut host, mut joiner) = pair();
        steps(&mut host, &mut joiner, 2);
        joiner.handle_bytes(&host.poll_transmit().unwrap());
        let reveal = joiner.poll_transmit().unwrap();
        let Some(PairFrame::Reveal {
            mut nonce,
            mut joiner,
        }) = decode(&reveal[4..])
        else {
            panic!()
        };
        match field {
            0 => nonce[0] ^= 1,
            1 => joiner.x25519[0] ^= 1,
            _ => joiner.name.push('!'),
        }
        let frame = PairFrame::Reveal { nonce, joiner };
        host.handle_bytes(&encode(&frame, usize::MAX).unwrap());
        assert_eq!(host.poll_event(), Some(PairEvent::Proved));
        assert_eq!(
            host.poll_event(),
            Some(PairEvent::Failed(PairFailure::Protocol))
        );
    }
}

#[test]
fn keys_other_than_those_of_the_connection_are_refused() {
    let mut stolen = config(Role::Joiner, SECRET, 5);
    stolen.device.ed25519 = [9; 32];
    let mut joiner = Pairing::new(stolen).unwrap();
    let mut host = Pairing::new(config(Role::Host, SECRET, 5)).unwrap();
    relay(&mut host, &mut joiner);
    assert_eq!(
        host.poll_event(),
        Some(PairEvent::Failed(PairFailure::WrongCode))
    );
}

#[test]
fn one_between_who_knows_the_code_cannot_make_the_words_equal() {
    let mut seen = std::collections::HashSet::new();
    for nonce in 0..50 {
        // Key 3 is in the middle: host to the joiner (2), joiner to the host (1).
        let mut to_host = config(Role::Joiner, SECRET, 5);
        to_host.device = DevicePublic {
            ed25519: [3; 32],
            x25519: [nonce; 32],
        };
        to_host.entropy = [nonce; 64];
        let mut to_joiner = config(Role::Host, SECRET, 6);
        to_joiner.device = to_host.device;
        to_joiner.entropy = [nonce; 64];
        let mut at_host = config(Role::Host, SECRET, 5);
        at_host.peer_key = [3; 32];
        let mut at_joiner = config(Role::Joiner, SECRET, 6);
        at_joiner.peer_key = [3; 32];
        let (mut host, mut near_host) = (
            Pairing::new(at_host).unwrap(),
            Pairing::new(to_host).unwrap(),
        );
        let (mut near_joiner, mut joiner) = (
            Pairing::new(to_joiner).unwrap(),
            Pairing::new(at_joiner).unwrap(),
        );
        relay(&mut host, &mut near_host);
        relay(&mut near_joiner, &mut joiner);
        assert_eq!(host.poll_event(), Some(PairEvent::Proved));
        let (shown_at_host, shown_at_joiner) = (words(&mut host), words(&mut joiner));
        assert_ne!(shown_at_host, shown_at_joiner);
        assert!(seen.insert(shown_at_host) && seen.insert(shown_at_joiner));
    }
}

#[test]
fn no_from_a_person_ends_it_on_both_sides() {
    let (mut host, mut joiner) = pair();
    relay(&mut host, &mut joiner);
    words(&mut joiner);
    host.confirm(false).unwrap();
    relay(&mut host, &mut joiner);
    assert_eq!(
        joiner.poll_event(),
        Some(PairEvent::Failed(PairFailure::Cancelled))
    );
    assert_eq!(host.offer(AccountId([0; 32]), vec![1]), Err(WrongStep));
}

#[test]
fn frames_out_of_place_end_it() {
    for frame in [
        PairFrame::Done,
        PairFrame::Cosign(crate::wire::Blob(vec![1])),
        PairFrame::Offer {
            account: [0; 32],
            record: crate::wire::Blob(vec![1]),
        },
        PairFrame::End(END_CANCELLED),
    ] {
        for role in [Role::Host, Role::Joiner] {
            let mut pairing = Pairing::new(config(role, SECRET, 5)).unwrap();
            pairing.handle_bytes(&encode(&frame, usize::MAX).unwrap());
            assert!(matches!(pairing.poll_event(), Some(PairEvent::Failed(_))));
            assert!(pairing.is_over());
        }
    }
    let mut host = Pairing::new(config(Role::Host, SECRET, 5)).unwrap();
    host.handle_bytes(&(u32::try_from(MAX_FIRST_PAYLOAD).unwrap() + 1).to_le_bytes());
    assert_eq!(
        host.poll_event(),
        Some(PairEvent::Failed(PairFailure::Protocol))
    );
}

#[test]
fn names_are_one_to_sixty_four_characters() {
    for (length, fits) in [(0, false), (1, true), (64, true), (65, false)] {
        let mut config = config(Role::Host, SECRET, 5);
        config.name = "\u{e9}".repeat(length);
        assert_eq!(Pairing::new(config).is_ok(), fits, "{length}");
    }
}
