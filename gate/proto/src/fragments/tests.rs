use super::*;
use proptest::prelude::*;
use std::net::SocketAddr;

fn datagram(v6: bool, len: usize) -> Vec<u8> {
    let (src, dst): (SocketAddr, SocketAddr) = if v6 {
        (
            "[fd00:ba11:e700::2]:5".parse().unwrap(),
            "[2606::1]:7".parse().unwrap(),
        )
    } else {
        (
            "192.0.0.2:5".parse().unwrap(),
            "93.184.216.34:7".parse().unwrap(),
        )
    };
    let data: Vec<u8> = (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect();
    let mut packet = Vec::new();
    assert!(packet::write_udp(&mut packet, src, dst, &data));
    packet
}

/// One fragment of a packet: what lies between two places of its payload.
fn cut(whole: &[u8], id: u16, from: usize, to: usize) -> Vec<u8> {
    let ip = packet::parse(whole).unwrap();
    let more = u16::from(to < ip.payload.len());
    let data = &ip.payload[from..to.min(ip.payload.len())];
    let at = u16::try_from(from).unwrap();
    let mut out = whole[..whole.len() - ip.payload.len()].to_vec();
    if ip.dst.is_ipv4() {
        packet::put_u16(&mut out, 2, u16::try_from(20 + data.len()).unwrap());
        packet::put_u16(&mut out, 4, id);
        packet::put_u16(&mut out, 6, at >> 3 | more << 13);
    } else {
        packet::put_u16(&mut out, 4, u16::try_from(8 + data.len()).unwrap());
        out[6] = FRAGMENT;
        out.extend([ip.proto, 0, 0, 0, 0, 0]);
        packet::put_u16(&mut out, 42, at | more);
        out.extend(id.to_be_bytes());
    }
    out.extend(data);
    out
}

pub(crate) fn cuts(whole: &[u8], id: u16, step: usize) -> Vec<Vec<u8>> {
    let len = packet::parse(whole).unwrap().payload.len();
    (0..len)
        .step_by(step)
        .map(|from| cut(whole, id, from, from + step))
        .collect()
}

fn take(fragments: &mut Fragments, packet: &[u8]) -> Option<Vec<u8>> {
    let ip = packet::parse(packet).unwrap();
    assert!(ip.fragment);
    fragments.take(Now::ZERO, &ip)
}

/// The UDP payload of what came out.
fn payload(packet: &[u8]) -> Vec<u8> {
    let ip = packet::parse(packet).unwrap();
    assert!(!ip.fragment && ip.proto == packet::UDP);
    packet::datagram(ip.payload).unwrap().2.to_vec()
}

proptest! {
    #[test]
    fn fragments_in_any_order_and_doubled_make_the_datagram(
        v6: bool,
        len in 1_usize..9000,
        step in 1_usize..200,
        order: u64,
    ) {
        let step = step.max(len / 900 + 9) * 8;
        let whole = datagram(v6, len);
        let mut pieces = cuts(&whole, 7, step);
        prop_assume!(pieces.len() > 1);
        let mut state = order | 1;
        for at in (1..pieces.len()).rev() {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            pieces.swap(at, usize::try_from(state >> 33).unwrap() % (at + 1));
        }
        let mut fragments = Fragments::default();
        let last = pieces.pop().unwrap();
        for piece in &pieces {
            prop_assert!(take(&mut fragments, piece).is_none());
            prop_assert!(take(&mut fragments, piece).is_none());
        }
        let made = take(&mut fragments, &last).unwrap();
        prop_assert_eq!(payload(&made), payload(&whole));
        let ip = packet::parse(&made).unwrap();
        if !v6 {
            prop_assert_eq!(packet::checksum(&made[..20]), 0);
        }
        prop_assert_eq!(ip.whole.len(), made.len());
        prop_assert_eq!((fragments.bytes, fragments.sets.len()), (0, 0));
        prop_assert!(fragments.order.is_empty());
    }
}

#[test]
fn a_fragment_that_overlaps_spoils_its_datagram_for_good() {
    for v6 in [false, true] {
        let whole = datagram(v6, 4000);
        let good = cuts(&whole, 7, 1000);
        let mut changed = good[1].clone();
        *changed.last_mut().unwrap() ^= 1;
        for overlap in [
            // Across two, within one, around one, the same place with other octets.
            cut(&whole, 7, 504, 1504),
            cut(&whole, 7, 1008, 1016),
            cut(&whole, 7, 992, 2008),
            changed,
        ] {
            let mut fragments = Fragments::default();
            assert!(take(&mut fragments, &good[0]).is_none());
            assert!(take(&mut fragments, &good[1]).is_none());
            assert!(take(&mut fragments, &overlap).is_none());
            for piece in &good {
                assert!(take(&mut fragments, piece).is_none());
            }
            assert_eq!(fragments.bytes, 0);
        }
        // The control.
        let mut fragments = Fragments::default();
        let made = good.iter().filter_map(|piece| take(&mut fragments, piece));
        assert_eq!(made.count(), 1);
    }
}

#[test]
fn two_ends_and_what_lies_beyond_the_end_spoil_it() {
    let long = datagram(false, 4000);
    let short = datagram(false, 1992);
    let mut fragments = Fragments::default();
    take(&mut fragments, &cut(&long, 7, 3000, 4008));
    assert!(take(&mut fragments, &cut(&short, 7, 1000, 2000)).is_none());
    assert!(fragments.sets.values().all(|set| set.spoilt));
    let mut fragments = Fragments::default();
    take(&mut fragments, &cut(&short, 7, 1000, 2000));
    assert!(take(&mut fragments, &cut(&long, 7, 2000, 3000)).is_none());
    assert!(fragments.sets.values().all(|set| set.spoilt));
}

#[test]
fn what_no_sender_makes_is_not_kept() {
    let whole = datagram(false, 4000);
    for bad in [
        cut(&whole, 7, 0, 999),
        cut(&whole, 7, 1000, 1000),
        // Beyond the longest datagram.
        {
            let mut far = cut(&whole, 7, 3000, 4008);
            packet::put_u16(&mut far, 6, 0x1fff);
            far
        },
    ] {
        let mut fragments = Fragments::default();
        assert!(take(&mut fragments, &bad).is_none());
        assert_eq!(fragments.bytes, 0);
    }
}

#[test]
fn sets_bytes_and_time_are_bounded() {
    let whole = datagram(false, 60_000);
    let mut fragments = Fragments::default();
    for id in 0..1000 {
        take(&mut fragments, &cut(&whole, id, 0, 50_000));
        assert!(fragments.sets.len() <= MAX_FRAGMENT_SETS);
        assert!(fragments.bytes <= MAX_FRAGMENT_BYTES);
        assert_eq!(fragments.order.len(), fragments.sets.len());
    }
    // The newest is whole all the same; the oldest is not.
    assert!(take(&mut fragments, &cut(&whole, 999, 50_000, 60_008)).is_some());
    assert!(take(&mut fragments, &cut(&whole, 0, 50_000, 60_008)).is_none());
    // Of one datagram, so many and no more.
    let mut fragments = Fragments::default();
    for at in 0..MAX_FRAGMENTS + 1 {
        take(&mut fragments, &cut(&whole, 1, at * 16, at * 16 + 8));
    }
    assert_eq!(fragments.bytes, 0);
    let due = fragments.poll_timeout().unwrap();
    assert_eq!(due, FRAGMENT_TIMEOUT);
    fragments.expire(due);
    assert!(fragments.sets.is_empty() && fragments.poll_timeout().is_none());
}

#[test]
fn datagrams_of_two_identities_do_not_mix() {
    let whole = datagram(false, 4000);
    let mut fragments = Fragments::default();
    take(&mut fragments, &cut(&whole, 1, 0, 2000));
    assert!(take(&mut fragments, &cut(&whole, 2, 2000, 4008)).is_none());
    let mut other = cut(&whole, 1, 2000, 4008);
    other[19] = 35;
    assert!(take(&mut fragments, &other).is_none());
    assert!(take(&mut fragments, &cut(&whole, 1, 2000, 4008)).is_some());
}
