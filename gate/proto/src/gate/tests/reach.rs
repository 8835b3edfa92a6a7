use super::dns::{answer, question, upstream};
use super::*;

impl Rig {
    fn reach(&mut self, reach: &str) -> u32 {
        self.gate
            .set_reach(self.now, reach.parse().unwrap(), &mut self.sink)
    }

    fn ends(&mut self) -> Vec<(FlowId, EndReason)> {
        let ended = |(_, event)| match event {
            GateEvent::FlowEnded(ended) => (ended.flow, ended.end),
            other => panic!("{other:?}"),
        };
        self.events().into_iter().map(ended).collect()
    }
}

#[test]
fn a_flow_that_the_new_reach_does_not_grant_is_reset_on_both_sides() {
    let mut rig = Rig::new("internet,local");
    let mut far = Far::default();
    let (flow, next) = rig.established(&mut far);
    // The control: what it still grants goes on.
    assert_eq!(rig.reach("internet"), 0);
    assert_eq!(rig.reach("93.184.216.0/24:443"), 0);
    far.to_box.extend(b"still there");
    rig.gate.handle_ready(flow, true, true);
    rig.turns(&mut far);
    assert_eq!(rig.seen().data, b"still there");
    assert!(rig.events().is_empty() && rig.actions().is_empty());
    assert_eq!(rig.reach("local"), 1);
    let reset = rig.seen();
    assert_eq!((reset.flags & RST, reset.src), (RST, at(SHOP)));
    assert_eq!(rig.ends(), [(flow, EndReason::ReachChanged)]);
    rig.closed(flow, true);
    assert_eq!(rig.gate.flows(), 0);
    rig.send(40000, SHOP, 101, next, ACK, b"late");
    assert_eq!(rig.seen().flags & RST, RST);
}

#[test]
fn a_dial_under_way_is_cancelled_and_one_that_waits_for_its_entry_is_never_begun() {
    let mut rig = Rig::new("internet");
    let dialling = rig.dialling(40000);
    let (ticket, waiting) = rig.asked(40001);
    assert_eq!(rig.reach("nothing"), 2);
    let ends = [dialling, waiting.flow].map(|flow| (flow, EndReason::ReachChanged));
    assert_eq!(rig.ends(), ends);
    rig.closed(dialling, true);
    for _ in 0..2 {
        let reset = read(&rig.sink.packets.pop_front().unwrap());
        assert_eq!((reset.flags, reset.ack), (RST | ACK, 101));
    }
    // What comes late changes nothing, also when it is granted again.
    assert_eq!(rig.reach("internet"), 0);
    rig.word(ticket, true);
    rig.dialled(dialling, Ok(()));
    assert!(rig.actions().is_empty() && rig.events().is_empty());
    assert!(rig.sink.packets.is_empty());
    rig.dialling(40002);
}

#[test]
fn datagrams_stop_with_the_reach_and_their_program_is_told() {
    let mut rig = Rig::new("internet");
    for (src, stands) in [(9000, true), (9001, false)] {
        rig.tun(&datagram_of(own(src), at("93.184.216.34:9000"), b"x"));
        let (ticket, _) = rig.opened();
        if stands {
            rig.word(ticket, true);
        }
    }
    let (port, _, _) = rig.sink.datagrams.pop_front().unwrap();
    assert_eq!(rig.reach("93.184.216.34:9000/udp"), 0);
    assert_eq!(rig.reach("93.184.216.34:9000/tcp"), 2);
    for _ in 0..2 {
        let told = read_icmp(&rig.sink.packets.pop_front().unwrap());
        assert_eq!(told, ("93.184.216.34".parse().unwrap(), 3, 3));
    }
    assert!(
        rig.ends()
            .iter()
            .all(|end| end.1 == EndReason::ReachChanged)
    );
    assert!(rig.actions().contains(&Action::CloseUdp(port)));
    // Neither out nor in.
    rig.tun(&datagram_of(own(9000), at("93.184.216.34:9000"), b"x"));
    assert_eq!(rig.refused().refusal, Refusal::OutsideReach);
    rig.sink.packets.clear();
    rig.gate
        .handle_datagram(rig.now, port, at("93.184.216.34:9000"), b"y", &mut rig.sink);
    assert!(rig.sink.packets.is_empty() && rig.sink.datagrams.is_empty());
}

#[test]
fn what_is_established_ends_when_its_address_becomes_the_nodes_own_or_its_network_goes() {
    let on_link = |net: &str| NodeAddrs {
        on_link: vec![(net.parse().unwrap(), 24)],
        ..NodeAddrs::default()
    };
    // What becomes one's own is no more of the internet, what was is no more local.
    for (reach, before, after) in [
        ("internet", "10.9.9.0", "93.184.216.0"),
        ("local", "93.184.216.0", "10.9.9.0"),
    ] {
        let mut rig = Rig::new(reach);
        rig.gate.set_addrs(on_link(before));
        let mut far = Far::default();
        let (flow, _) = rig.established(&mut far);
        rig.tun(&datagram_of(own(9000), at("93.184.216.34:9000"), b"x"));
        let (ticket, datagrams) = rig.opened();
        rig.word(ticket, true);
        let (port, _, _) = rig.sink.datagrams.pop_front().unwrap();
        // The control: a change that is none to them.
        rig.gate.set_addrs(NodeAddrs {
            own: vec!["192.168.1.5".parse().unwrap()],
            ..on_link(before)
        });
        rig.gate.judge_anew(rig.now, &mut rig.sink);
        assert!(rig.events().is_empty() && rig.actions().is_empty());
        rig.gate.set_addrs(on_link(after));
        rig.gate.judge_anew(rig.now, &mut rig.sink);
        let reset = read(&rig.sink.packets.pop_front().unwrap());
        assert_eq!((reset.flags & RST, reset.src), (RST, at(SHOP)));
        let told = read_icmp(&rig.sink.packets.pop_front().unwrap());
        assert_eq!(told, ("93.184.216.34".parse().unwrap(), 3, 3));
        let ends = [flow, datagrams.flow].map(|flow| (flow, EndReason::NetworkChanged));
        assert_eq!(rig.ends(), ends);
        let actions = rig.actions();
        let closes = |action: &Action| {
            *action == Action::Close { flow, reset: true } || *action == Action::CloseUdp(port)
        };
        assert_eq!(actions.iter().filter(|action| closes(action)).count(), 2);
        assert_eq!(rig.gate.flows(), 0);
    }
}

#[test]
fn a_name_whose_time_ran_out_is_no_change_of_the_network() {
    let mut rig = Rig::new("shop.example");
    let shop = Host::new("shop.example").unwrap();
    let ttl = Duration::from_secs(1);
    let names = &mut rig.gate.common.names;
    names.give(rig.now, at(SHOP).ip(), &shop, ttl);
    let mut far = Far::default();
    let (flow, _) = rig.established(&mut far);
    rig.now += Duration::from_secs(3600);
    rig.gate.set_addrs(NodeAddrs {
        own: vec!["192.168.1.5".parse().unwrap()],
        ..NodeAddrs::default()
    });
    rig.gate.judge_anew(rig.now, &mut rig.sink);
    assert_eq!((rig.gate.flows(), rig.events().len()), (1, 0));
    far.to_box.extend(b"still there");
    rig.gate.handle_ready(flow, true, true);
    rig.turns(&mut far);
    assert_eq!(rig.seen().data, b"still there");
}

#[test]
fn those_who_came_in_are_no_part_of_the_reach() {
    let mut rig = Rig::new("internet");
    let publish = Publish {
        transport: bailey_model::Transport::Tcp,
        host_port: 80,
        box_port: 80,
    };
    let came = rig
        .gate
        .handle_accepted(rig.now, publish, at("127.0.0.1:5"));
    assert_eq!(rig.reach("nothing"), 0);
    assert!(came.is_some() && rig.gate.flows() == 1);
}

#[test]
fn a_name_that_lost_its_reach_is_refused_at_once_whatever_a_resolver_still_says() {
    let mut rig = Rig::new("shop.example");
    let ask = |rig: &mut Rig, id| {
        let packet = datagram_of(own(5353), at("8.8.8.8:53"), &question(id, "shop.example."));
        rig.tun(&packet);
    };
    let code = |rig: &mut Rig| {
        let packet = rig.sink.packets.pop_front().expect("an answer");
        let ip = packet::parse(&packet).unwrap();
        packet::datagram(ip.payload).unwrap().2[3] & 15
    };
    ask(&mut rig, 1);
    let (ticket, _) = rig.events().remove(0);
    rig.word(ticket.unwrap(), true);
    let (id, bytes) = upstream(&mut rig);
    assert_eq!(rig.reach("nothing"), 0);
    assert_eq!(code(&mut rig), 3);
    assert_eq!(rig.refused().refusal, Refusal::NameOutsideReach);
    let late = answer(&bytes, [93, 184, 216, 34]);
    rig.gate
        .handle_upstream(rig.now, id, at("9.9.9.9:53"), &late, &mut rig.sink);
    assert!(rig.sink.packets.is_empty());
    ask(&mut rig, 2);
    assert_eq!(code(&mut rig), 3);
    // Granted again it is asked for again.
    rig.reach("shop.example");
    rig.actions();
    ask(&mut rig, 3);
    let (_, bytes) = upstream(&mut rig);
    assert!(!bytes.is_empty());
}

#[test]
fn an_equal_reach_changes_nothing() {
    let mut rig = Rig::new("internet");
    let generation = rig.gate.common.policy.generation;
    assert_eq!(rig.reach("internet"), 0);
    assert_eq!(rig.gate.common.policy.generation, generation);
    rig.reach("local");
    assert_eq!(rig.gate.common.policy.generation, generation + 1);
}

#[test]
fn a_host_that_is_refused_stays_refused_through_a_hundred_changes() {
    let mut rig = Rig::new("internet");
    let mut far = Far::default();
    let (flow, _) = rig.established(&mut far);
    for change in 0..100_u16 {
        let reach = ["internet,10.0.0.1:80", "internet", "93.184.216.34:443"];
        rig.reach(reach[usize::from(change) % 3]);
        rig.pass(Duration::from_secs(11));
        rig.sink.packets.clear();
        rig.events();
        rig.send(20_000 + change, LAN, 7, 0, SYN, b"");
        let reset = rig.seen();
        assert_eq!((reset.flags, reset.src), (RST | ACK, at(LAN)));
        assert_eq!(rig.refused().refusal, Refusal::OutsideReach);
        // What is granted all the time goes on all the time.
        far.to_box.extend(b"tick");
        rig.gate.handle_ready(flow, true, true);
        rig.turns(&mut far);
        assert!(
            rig.sink
                .packets
                .iter()
                .any(|packet| read(packet).data.ends_with(b"tick"))
        );
        assert_eq!(rig.gate.flows(), 1);
    }
}

proptest::proptest! {
    /// Whatever was open, and at whatever stage: after a change every flow that is
    /// left is one that the new reach grants.
    #[test]
    fn no_flow_outlives_the_reach_that_granted_it(
        reaches in proptest::collection::vec(0..4_usize, 1..6),
        dials in proptest::collection::vec((0..3_u8, 0..3_u8), 1..12),
    ) {
        const REACHES: [&str; 4] = ["internet", "local", "93.184.0.0/16:443", "internet,local"];
        let mut rig = Rig::new("internet,local");
        for (at, (whom, stage)) in dials.iter().enumerate() {
            let dst = [SHOP, LAN, "1.1.1.1:443"][usize::from(*whom)];
            rig.send(30_000 + u16::try_from(at).unwrap(), dst, 5, 0, SYN, b"");
            for (ticket, event) in rig.events() {
                if let (Some(ticket), GateEvent::FlowOpened(opened), 1..) = (ticket, event, *stage) {
                    rig.word(ticket, true);
                    if *stage == 2 {
                        rig.dialled(opened.flow, Ok(()));
                    }
                }
            }
        }
        for reach in reaches {
            let before = rig.gate.flows();
            rig.events();
            let reset = rig.reach(REACHES[reach]);
            proptest::prop_assert_eq!(rig.ends().len(), usize::try_from(reset).unwrap());
            proptest::prop_assert_eq!(before - usize::try_from(reset).unwrap(), rig.gate.flows());
            // A second look finds nothing that the first left.
            rig.gate.common.policy.generation += 1;
            let common = &mut rig.gate.common;
            proptest::prop_assert_eq!(rig.gate.tcp.revoke(common, rig.now, EndReason::ReachChanged, &mut rig.sink), 0);
        }
    }
}
