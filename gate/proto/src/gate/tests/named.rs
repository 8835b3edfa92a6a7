//! Flows whose ClientHello is for a host that the reach grants, or not.

use bailey_model::{FlowNamed, HostFrom, Sni};

use super::*;
use crate::flow::MAX_PEEKED_BYTES;
use crate::peek::tests::quic::{crypto, datagram};
use crate::peek::tests::{ech, hello_for, hello_of, records_of, server_name};

const NAMED: &str = "shop.example:443";

fn host(name: &str) -> Host {
    Host::new(name).unwrap()
}

/// A rig whose gate gave the shop's address for these names, the last one last.
fn rig_with(reach: &str, names: &[&str]) -> Rig {
    let mut rig = Rig::new(reach);
    for name in names {
        let names = &mut rig.gate.common.names;
        names.give(
            rig.now,
            at(SHOP).ip(),
            &host(name),
            Duration::from_secs(300),
        );
    }
    rig
}

fn tls(hello: &[u8]) -> Vec<u8> {
    records_of(hello, 1 << 14)
}

/// What the gate tells of a flow's name.
#[track_caller]
fn named(rig: &mut Rig) -> Option<Sni> {
    match rig.events().as_slice() {
        [] => None,
        [(None, GateEvent::FlowNamed(FlowNamed { sni, .. }))] => Some(sni.clone()),
        other => panic!("{other:?}"),
    }
}

/// The refusal and the end of a flow whose entry stood.
#[track_caller]
fn refused_and_over(rig: &mut Rig) -> (FlowRefused, FlowEnded) {
    match rig.events().as_slice() {
        [
            (None, GateEvent::FlowRefused(refused)),
            (None, GateEvent::FlowEnded(ended)),
        ] => (refused.clone(), ended.clone()),
        other => panic!("{other:?}"),
    }
}

/// What comes of a flow of this reach that begins with these segments: what the
/// far end got, and what was told of its name.
#[track_caller]
fn begun(mut rig: Rig, segments: &[&[u8]]) -> (Vec<u8>, Option<Sni>) {
    let mut far = Far::default();
    let (_, next) = rig.established(&mut far);
    let mut seq = 101;
    for data in segments {
        rig.send(40000, SHOP, seq, next, ACK, data);
        rig.turns(&mut far);
        seq += u32::try_from(data.len()).unwrap();
    }
    (far.from_box, named(&mut rig))
}

#[test]
fn a_named_grant_refuses_another_hosts_hello() {
    // The control: its own passes, and there is nothing to say.
    let own = tls(&hello_for("shop.example"));
    let (got, said) = begun(rig_with(NAMED, &["shop.example"]), &[&own]);
    assert_eq!((got, said), (own, None));
    let mut rig = rig_with(NAMED, &["shop.example"]);
    let mut far = Far::default();
    let (flow, next) = rig.established(&mut far);
    let other = tls(&hello_for("other.example"));
    rig.send(40000, SHOP, 101, next, ACK, &other);
    rig.turns(&mut far);
    assert_eq!(far.from_box, b"");
    assert!(rig.seen().flags & RST != 0);
    rig.closed(flow, true);
    let (refused, ended) = refused_and_over(&mut rig);
    assert_eq!(refused.refusal, Refusal::OtherHost);
    assert_eq!(
        (refused.host, refused.host_from, refused.dst),
        (Some(host("other.example")), HostFrom::Sni, Some(at(SHOP)))
    );
    assert_eq!((ended.end, ended.bytes_out), (EndReason::Refused, 0));
    assert_eq!(rig.gate.flows(), 0);
}

#[test]
fn equal_refusals_of_hellos_are_counted() {
    let mut rig = rig_with(NAMED, &["shop.example"]);
    for _ in 0..3 {
        let mut far = Far::default();
        let (_, next) = rig.established(&mut far);
        let other = tls(&hello_for("other.example"));
        rig.send(40000, SHOP, 101, next, ACK, &other);
        rig.turns(&mut far);
        rig.actions();
        rig.sink.packets.clear();
        let told = rig.events();
        assert!(matches!(told.last(), Some((None, GateEvent::FlowEnded(_)))));
    }
    rig.pass(Duration::from_secs(10));
    assert_eq!(rig.refused().count, 2);
}

#[test]
fn a_dribbled_hello_goes_out_as_far_as_nobody_can_act_on_it() {
    for pause in [Duration::ZERO, Duration::from_secs(60)] {
        let mut rig = rig_with(NAMED, &["shop.example"]);
        let mut far = Far::default();
        let (flow, next) = rig.established(&mut far);
        let other = tls(&hello_for("other.example"));
        for (at, octet) in (0_u32..).zip(&other) {
            rig.send(40000, SHOP, 101 + at, next, ACK, &[*octet]);
            rig.turns(&mut far);
            rig.pass(pause);
        }
        assert_eq!(far.from_box, other[..other.len() - 1]);
        rig.closed(flow, true);
        let (refused, _) = refused_and_over(&mut rig);
        assert_eq!(refused.refusal, Refusal::OtherHost);
    }
}

#[test]
fn a_hello_for_another_granted_host_passes_and_is_told() {
    let hello = tls(&hello_for("neighbour.example"));
    for reach in [
        "shop.example:443,neighbour.example:443",
        "shop.example:443,*.example",
    ] {
        let (got, said) = begun(rig_with(reach, &["shop.example"]), &[&hello]);
        assert_eq!(got, hello);
        assert_eq!(said, Some(Sni::Host(host("neighbour.example"))));
    }
    // Granted on another port only.
    let mut rig = rig_with("shop.example:443,neighbour.example:80", &["shop.example"]);
    let mut far = Far::default();
    let (_, next) = rig.established(&mut far);
    rig.send(40000, SHOP, 101, next, ACK, &hello);
    rig.turns(&mut far);
    assert_eq!(refused_and_over(&mut rig).0.refusal, Refusal::OtherHost);
}

#[test]
fn with_any_other_grant_a_hello_is_only_told() {
    let shop = tls(&hello_for("shop.example"));
    let bad = tls(&hello_for("no name"));
    for reach in ["internet", "93.184.216.0/24", "shop.example:443,internet"] {
        let rig = |names: &[&str]| rig_with(reach, names);
        let told = Some(Sni::Host(host("shop.example")));
        assert_eq!(
            begun(rig(&["shop.example"]), &[&shop]),
            (shop.clone(), None)
        );
        assert_eq!(
            begun(rig(&["other.example"]), &[&shop]),
            (shop.clone(), told)
        );
        assert_eq!(begun(rig(&["shop.example"]), &[&bad]), (bad.clone(), None));
        assert_eq!(
            begun(rig(&["shop.example"]), &[b"GET /"]),
            (b"GET /".to_vec(), None)
        );
    }
    let told = Some(Sni::Host(host("shop.example")));
    assert_eq!(
        begun(rig_with("internet", &[]), &[&shop]),
        (shop.clone(), told.clone())
    );
    // In pieces too.
    let (head, tail) = shop.split_at(30);
    assert_eq!(
        begun(rig_with("internet", &[]), &[head, tail]),
        (shop.clone(), told)
    );
}

#[test]
fn what_names_no_host_passes_a_named_grant_as_unproven() {
    let nameless = tls(&hello_of(&[]));
    for first in [
        &nameless[..],
        b"GET / HTTP/1.1\r\n",
        b"\x16",
        b"SSH-2.0-x\r\n",
    ] {
        let (got, said) = begun(rig_with(NAMED, &["shop.example"]), &[first]);
        assert_eq!(got, first, "nothing waits");
        // One octet may still become a hello.
        let want = (first.len() > 1).then_some(Sni::Unproven);
        assert_eq!(said, want, "{first:?}");
    }
    // The far end of the box's direction.
    let mut rig = rig_with(NAMED, &["shop.example"]);
    let mut far = Far::default();
    let (_, next) = rig.established(&mut far);
    rig.send(40000, SHOP, 101, next, ACK | FIN, b"");
    rig.turns(&mut far);
    assert_eq!(named(&mut rig), Some(Sni::Unproven));
}

#[test]
fn an_encrypted_hello_is_told_and_judged_by_what_it_has_in_the_clear() {
    let hello = |name: &str| tls(&hello_of(&[ech(), server_name(name.as_bytes())]));
    let named_rig = || rig_with(NAMED, &["shop.example"]);
    let outer = Some(Sni::Encrypted(Some(host("shop.example"))));
    let own = hello("shop.example");
    assert_eq!(begun(named_rig(), &[&own]), (own.clone(), outer.clone()));
    let nameless = tls(&hello_of(&[ech()]));
    let told = Some(Sni::Encrypted(None));
    assert_eq!(begun(named_rig(), &[&nameless]), (nameless.clone(), told));
    assert_eq!(
        begun(rig_with("internet", &["shop.example"]), &[&own]),
        (own, outer)
    );
    let mut rig = named_rig();
    let mut far = Far::default();
    let (_, next) = rig.established(&mut far);
    rig.send(40000, SHOP, 101, next, ACK, &hello("other.example"));
    rig.turns(&mut far);
    assert_eq!(refused_and_over(&mut rig).0.refusal, Refusal::OtherHost);
    assert_eq!(far.from_box, b"");
}

#[test]
fn a_hello_that_cannot_be_read_is_refused_where_a_name_must_be_proven() {
    let unreadable = tls(&hello_for("no name"));
    let endless = [&[22, 3, 1, 0x40, 0, 1][..], &[0; 20_000]].concat();
    for first in [unreadable, endless] {
        let mut rig = rig_with(NAMED, &["shop.example"]);
        let mut far = Far::default();
        let (flow, next) = rig.established(&mut far);
        rig.send(40000, SHOP, 101, next, ACK, &first);
        rig.turns(&mut far);
        assert_eq!(far.from_box, b"");
        rig.closed(flow, true);
        let (refused, ended) = refused_and_over(&mut rig);
        assert_eq!(
            (refused.refusal, refused.host, refused.host_from),
            (
                Refusal::UnreadableHello,
                Some(host("shop.example")),
                HostFrom::Dns
            )
        );
        assert_eq!(ended.end, EndReason::Refused);
    }
}

#[test]
fn a_server_that_speaks_first_is_heard_at_once_and_the_flow_is_unproven() {
    let mut rig = rig_with(NAMED, &["shop.example"]);
    let mut far = Far::default();
    let (flow, next) = rig.established(&mut far);
    far.to_box.extend(b"220 ready\r\n");
    rig.gate.handle_ready(flow, true, false);
    rig.turns(&mut far);
    assert_eq!(rig.seen().data, b"220 ready\r\n");
    assert_eq!(named(&mut rig), None);
    // It ends without a word of the box.
    rig.send(40000, SHOP, 101, next + 11, RST, b"");
    rig.turns(&mut far);
    match rig.events().as_slice() {
        [
            (None, GateEvent::FlowNamed(FlowNamed { sni, .. })),
            (None, GateEvent::FlowEnded(_)),
        ] => assert_eq!(*sni, Sni::Unproven),
        other => panic!("{other:?}"),
    }
}

/// A datagram of a client's first packet for this host.
fn quic(id: u8, name: &str) -> Vec<u8> {
    datagram(id, 0, &crypto(0, &hello_for(name)))
}

fn sent(rig: &mut Rig, data: &[u8]) {
    rig.tun(&datagram_of(own(5000), at(SHOP), data));
}

/// The answer to a datagram that is refused.
#[track_caller]
fn unreachable(rig: &mut Rig) {
    let packet = rig.sink.packets.pop_front().expect("an answer");
    assert_eq!(read_icmp(&packet), (at(SHOP).ip(), 3, 3));
}

/// Lets the flow that waits go on.
#[track_caller]
fn stands(rig: &mut Rig) -> FlowId {
    let (ticket, opened) = rig.opened();
    rig.word(ticket, true);
    opened.flow
}

#[test]
fn a_named_grant_refuses_another_hosts_quic() {
    let mut rig = rig_with(NAMED, &["shop.example"]);
    // A client repeats itself: one refusal, no flow.
    for _ in 0..4 {
        sent(&mut rig, &quic(1, "other.example"));
        unreachable(&mut rig);
    }
    let refused = rig.refused();
    assert_eq!(
        (
            refused.proto,
            refused.refusal,
            refused.host,
            refused.host_from
        ),
        (
            Proto::Udp,
            Refusal::OtherHost,
            Some(host("other.example")),
            HostFrom::Sni
        )
    );
    assert!(rig.sink.datagrams.is_empty() && rig.actions().is_empty());
    assert_eq!(rig.gate.flows(), 0);
    rig.pass(Duration::from_secs(10));
    assert_eq!(rig.refused().count, 3);
    // The control: its own passes, and there is nothing to say.
    let own = quic(2, "shop.example");
    sent(&mut rig, &own);
    stands(&mut rig);
    assert_eq!(rig.sink.datagrams.pop_front().map(|sent| sent.2), Some(own));
    assert_eq!(named(&mut rig), None);
    // A second connection in the same flow is judged too.
    sent(&mut rig, &quic(3, "other.example"));
    unreachable(&mut rig);
    assert_eq!(refused_and_over(&mut rig).0.refusal, Refusal::OtherHost);
    assert!(rig.sink.datagrams.is_empty());
    assert!(matches!(rig.actions()[..], [Action::CloseUdp(_)]));
}

#[test]
fn a_quic_hello_over_two_datagrams_is_judged_before_the_one_that_makes_it_whole() {
    for (name, passes) in [("shop.example", true), ("other.example", false)] {
        let mut rig = rig_with(NAMED, &["shop.example"]);
        let hello = hello_for(name);
        let (head, tail) = hello.split_at(70);
        // The end of it first.
        sent(&mut rig, &datagram(1, 0, &crypto(70, tail)));
        stands(&mut rig);
        assert_eq!(rig.sink.datagrams.len(), 1, "nothing waits");
        sent(&mut rig, &datagram(1, 1, &crypto(0, head)));
        assert_eq!(rig.sink.datagrams.len(), 1 + usize::from(passes));
        if passes {
            assert_eq!(named(&mut rig), None);
        } else {
            unreachable(&mut rig);
            assert_eq!(refused_and_over(&mut rig).0.refusal, Refusal::OtherHost);
        }
    }
}

#[test]
fn datagrams_that_name_no_host_pass_a_named_grant_as_unproven() {
    for first in [
        b"\0\x01\0\0stun".to_vec(),
        datagram(1, 0, &crypto(0, &hello_of(&[]))),
    ] {
        let mut rig = rig_with(NAMED, &["shop.example"]);
        for _ in 0..3 {
            sent(&mut rig, &first);
        }
        stands(&mut rig);
        assert_eq!(rig.sink.datagrams.len(), 3);
        assert_eq!(named(&mut rig), Some(Sni::Unproven));
        // What begins later is judged all the same.
        sent(&mut rig, &quic(2, "other.example"));
        unreachable(&mut rig);
        assert_eq!(refused_and_over(&mut rig).0.refusal, Refusal::OtherHost);
    }
    // A hello that never becomes whole.
    let mut rig = rig_with(NAMED, &["shop.example"]);
    sent(&mut rig, &datagram(1, 0, &crypto(5, b"some")));
    stands(&mut rig);
    assert_eq!(named(&mut rig), None);
    rig.pass(UDP_SINGLE);
    let told = rig.events();
    assert!(
        matches!(&told[0].1, GateEvent::FlowNamed(named) if named.sni == Sni::Unproven),
        "{told:?}"
    );
}

#[test]
fn with_internet_quic_is_only_told() {
    for (names, sni) in [
        (&["shop.example"][..], None),
        (&["other.example"], Some(Sni::Host(host("shop.example")))),
        (&[], Some(Sni::Host(host("shop.example")))),
    ] {
        let mut rig = rig_with("internet", names);
        sent(&mut rig, &quic(1, "shop.example"));
        stands(&mut rig);
        assert_eq!(named(&mut rig), sni);
        sent(&mut rig, &quic(2, "third.example"));
        assert_eq!((named(&mut rig), rig.sink.datagrams.len()), (None, 2));
    }
    let mut rig = rig_with("internet", &["shop.example"]);
    let hello = hello_of(&[server_name(b"shop.example"), ech()]);
    sent(&mut rig, &datagram(1, 0, &crypto(0, &hello)));
    stands(&mut rig);
    let told = Some(Sni::Encrypted(Some(host("shop.example"))));
    assert_eq!(named(&mut rig), told);
}

#[test]
fn half_said_hellos_are_bounded_over_all_flows_of_a_box() {
    for (reach, refused) in [(NAMED, true), ("internet", false)] {
        let mut rig = rig_with(reach, &["shop.example"]);
        let far_part = crypto(16_000, b"x");
        let flows = u16::try_from(MAX_PEEKED_BYTES / 64_000).unwrap() + 10;
        let mut limits = 0;
        for port in 1..=flows {
            for id in 0..4 {
                let data = datagram(id, 0, &far_part);
                rig.tun(&datagram_of(own(port), at(SHOP), &data));
                for (ticket, event) in rig.events() {
                    if let Some(ticket) = ticket {
                        rig.word(ticket, true);
                    }
                    let limit = |refused: &FlowRefused| refused.refusal == Refusal::Limit;
                    limits += u16::from(matches!(&event, GateEvent::FlowRefused(it) if limit(it)));
                }
            }
        }
        assert_eq!(limits > 0, refused, "{reach}");
    }
}

impl Rig {
    fn narrow(&mut self, reach: &str) {
        let reach = reach.parse().unwrap();
        self.gate.set_reach(self.now, reach, &mut self.sink);
    }
}

/// The TCP flows of a box that lost `internet`, and kept the shop's name.
fn left_of(begins: &[u8]) -> usize {
    let mut rig = rig_with("internet,shop.example:443", &["shop.example"]);
    let mut far = Far::default();
    let (_, next) = rig.established(&mut far);
    rig.send(40000, SHOP, 101, next, ACK, begins);
    rig.turns(&mut far);
    assert_eq!(far.from_box, begins);
    rig.narrow(NAMED);
    rig.gate.flows()
}

#[test]
fn a_narrower_reach_judges_flows_by_what_they_said() {
    // The controls: its own host, and what has no name to prove.
    assert_eq!(left_of(&tls(&hello_for("shop.example"))), 1);
    assert_eq!(left_of(b"SSH-2.0-client\r\n"), 1);
    assert_eq!(left_of(&tls(&hello_for("other.example"))), 0);
    assert_eq!(left_of(&tls(&hello_for("no name"))), 0);
}

#[test]
fn a_narrower_reach_ends_datagram_flows_that_nobody_looked_at() {
    for (reach, left) in [("internet,shop.example:443", 0), (NAMED, 1)] {
        let mut rig = rig_with(reach, &["shop.example"]);
        sent(&mut rig, &quic(1, "shop.example"));
        stands(&mut rig);
        rig.narrow("shop.example:443,93.184.216.35:80");
        assert_eq!(rig.gate.flows(), left, "{reach}");
    }
}

#[test]
fn a_hello_half_said_is_held_to_the_narrower_reach() {
    let hello = hello_for("other.example");
    let (first, rest) = hello.split_at(hello.len() / 2);
    let later = first.len();
    for (narrower, passed) in [(NAMED, 1), ("internet", 2)] {
        let mut rig = rig_with("internet,shop.example:443", &["shop.example"]);
        sent(&mut rig, &datagram(1, 0, &crypto(0, first)));
        stands(&mut rig);
        rig.narrow(narrower);
        sent(&mut rig, &datagram(1, 1, &crypto(later, rest)));
        assert_eq!(rig.sink.datagrams.len(), passed, "{narrower}");
    }
}
