use super::*;

#[test]
fn a_refused_syn_gets_a_reset_at_once_and_one_entry() {
    let mut rig = Rig::new("internet");
    for _ in 0..5 {
        rig.send(40000, LAN, 100, 0, SYN, b"");
        let reset = rig.seen();
        assert_eq!(
            (reset.flags, reset.ack, reset.src),
            (RST | ACK, 101, at(LAN))
        );
    }
    let refused = rig.refused();
    assert_eq!(refused.refusal, Refusal::OutsideReach);
    assert_eq!((refused.dst, refused.count), (Some(at(LAN)), 1));
    rig.pass(Duration::from_secs(10));
    assert_eq!(rig.refused().count, 4);
    assert_eq!(rig.gate.flows(), 0);
}

#[test]
fn a_refused_syn_over_ipv6_gets_a_reset_too() {
    let mut rig = Rig::new("nothing");
    let (src, dst) = (
        SocketAddr::new(IpAddr::V6(BOX_V6), 7),
        at("[2606:2800:220:1::1]:80"),
    );
    rig.tun(&segment_of(src, dst, 9, 0, SYN, b""));
    let reset = rig.seen();
    assert_eq!((reset.flags, reset.ack, reset.src), (RST | ACK, 10, dst));
}

#[test]
fn a_syn_is_parked_until_its_entry_stands_and_its_dial_succeeded() {
    let mut rig = Rig::new("internet");
    let (ticket, opened) = rig.asked(40000);
    assert_eq!(opened.tuple.dst, at(SHOP));
    assert_eq!(opened.granted.0, "internet");
    assert!(rig.actions().is_empty() && rig.sink.packets.is_empty());
    rig.word(ticket, true);
    rig.word(ticket, true);
    assert_eq!(
        rig.actions(),
        [Action::Dial {
            flow: opened.flow,
            dst: at(SHOP)
        }]
    );
    // The box repeats itself: one flow, one dial, no answer yet.
    for _ in 0..3 {
        rig.pass(Duration::from_secs(1));
        rig.send(40000, SHOP, 100, 0, SYN, b"");
    }
    assert!(rig.actions().is_empty() && rig.events().is_empty() && rig.sink.packets.is_empty());
    rig.dialled(opened.flow, Ok(()));
    rig.turns(&mut Far::default());
    assert_eq!(rig.seen().flags, SYN | ACK);
    assert_eq!(rig.gate.flows(), 1);
}

#[test]
fn an_entry_that_cannot_be_written_refuses_and_dials_nothing() {
    let mut rig = Rig::new("internet");
    let (ticket, _) = rig.asked(40000);
    rig.word(ticket, false);
    assert_eq!(rig.seen().flags, RST | ACK);
    assert_eq!(rig.refused().refusal, Refusal::StoreUnavailable);
    assert!(rig.actions().is_empty());
    assert_eq!(rig.gate.flows(), 0);
}

#[test]
fn an_entry_that_takes_too_long_refuses() {
    let mut rig = Rig::new("internet");
    let (ticket, _) = rig.asked(40000);
    for _ in 0..ENTRY_TIMEOUT.as_secs() {
        rig.send(40000, SHOP, 100, 0, SYN, b"");
        rig.pass(Duration::from_secs(1));
    }
    assert_eq!(rig.seen().flags, RST | ACK);
    assert_eq!(rig.gate.flows(), 0);
    rig.word(ticket, true);
    assert!(rig.actions().is_empty());
}

#[test]
fn a_failed_dial_looks_like_what_it_met() {
    for (fault, icmp, end) in [
        (DialFault::Refused, None, EndReason::DialRefused),
        (DialFault::TimedOut, Some(1), EndReason::DialTimeout),
        (
            DialFault::HostUnreachable,
            Some(1),
            EndReason::DialUnreachable,
        ),
        (
            DialFault::NetworkUnreachable,
            Some(0),
            EndReason::DialUnreachable,
        ),
    ] {
        let mut rig = Rig::new("internet");
        let flow = rig.dialling(40000);
        rig.dialled(flow, Err(fault));
        match icmp {
            None => assert_eq!(rig.seen().flags, RST | ACK),
            Some(code) => {
                assert_eq!(read_icmp(&rig.sink.packets[0]), (at(SHOP).ip(), 3, code));
            }
        }
        assert_eq!(rig.ended().end, end, "{fault:?}");
        assert_eq!(rig.gate.flows(), 0);
    }
}

#[test]
fn a_dial_without_an_answer_ends_by_itself() {
    let mut rig = Rig::new("internet");
    let flow = rig.dialling(40000);
    for second in [1, 1, 1, 1, 1, 2, 4, 8] {
        rig.pass(Duration::from_secs(second));
        rig.send(40000, SHOP, 100, 0, SYN, b"");
    }
    assert_eq!(rig.gate.flows(), 1);
    rig.pass(DIAL_TIMEOUT);
    let told = rig.sink.packets.pop_front().unwrap();
    assert_eq!(read_icmp(&told), (at(SHOP).ip(), 3, 1));
    assert_eq!(rig.ended().end, EndReason::DialTimeout);
    rig.closed(flow, true);
}

#[test]
fn a_box_that_gives_up_cancels_its_dial() {
    // By a reset.
    let mut rig = Rig::new("internet");
    let flow = rig.dialling(40000);
    rig.send(40000, SHOP, 101, 0, RST, b"");
    rig.closed(flow, true);
    assert_eq!(rig.ended().end, EndReason::ResetByBox);
    rig.dialled(flow, Ok(()));
    assert!(rig.sink.packets.is_empty());
    // By silence: its kernel repeats a SYN as long as somebody waits for it.
    let flow = rig.dialling(40001);
    rig.pass(Duration::from_secs(3));
    rig.closed(flow, true);
    assert_eq!(rig.ended().end, EndReason::ResetByBox);
    // Before its entry stands: then nothing is dialled.
    let (ticket, _) = rig.asked(40002);
    rig.send(40002, SHOP, 101, 0, RST, b"");
    rig.word(ticket, true);
    assert!(rig.actions().is_empty());
    assert_eq!(rig.ended().end, EndReason::ResetByBox);
}

#[test]
fn a_dial_that_meets_itself_is_a_refusal() {
    let mut rig = Rig::new("internet,local");
    let flow = rig.dialling(40000);
    let ends = Dialled {
        local: at(SHOP),
        peer: at(SHOP),
    };
    rig.gate
        .handle_dialled(rig.now, flow, Ok(ends), &mut rig.sink);
    assert_eq!(rig.seen().flags, RST | ACK);
    assert_eq!(
        rig.refused_late(),
        (Refusal::SelfConnect, EndReason::Refused)
    );
    rig.closed(flow, true);
}

#[test]
fn a_verdict_is_judged_again_when_the_node_moved() {
    for after_dial in [false, true] {
        let mut rig = Rig::new("internet");
        let (ticket, opened) = rig.asked(40000);
        if after_dial {
            rig.word(ticket, true);
            rig.actions();
        }
        // The address turns out to be on the node's own network.
        rig.gate.set_addrs(NodeAddrs {
            on_link: vec![("93.184.216.0".parse().unwrap(), 24)],
            ..NodeAddrs::default()
        });
        if after_dial {
            rig.dialled(opened.flow, Ok(()));
        } else {
            rig.word(ticket, true);
            assert!(rig.actions().is_empty());
        }
        assert_eq!(rig.seen().flags, RST | ACK);
        assert_eq!(rig.events().len(), 2);
        assert_eq!(rig.gate.flows(), 0);
    }
}

#[test]
fn a_dial_under_way_is_refused_when_its_address_turns_out_to_be_local() {
    let mut rig = Rig::new("internet");
    let (ticket, opened) = rig.asked(40000);
    rig.word(ticket, true);
    assert_eq!(rig.actions().len(), 1);
    // The control: nothing has changed.
    rig.gate.judge_anew(rig.now, &mut rig.sink);
    assert!(rig.events().is_empty() && rig.gate.flows() == 1);
    rig.gate.set_addrs(NodeAddrs {
        on_link: vec![("93.184.216.0".parse().unwrap(), 24)],
        ..NodeAddrs::default()
    });
    rig.gate.judge_anew(rig.now, &mut rig.sink);
    assert_eq!(rig.seen().flags, RST | ACK);
    let closed =
        |action: &Action| matches!(action, Action::Close { flow, .. } if *flow == opened.flow);
    assert!(rig.actions().iter().any(closed), "its socket goes too");
    assert_eq!((rig.events().len(), rig.gate.flows()), (2, 0));
}

#[test]
fn pending_dials_are_capped_and_the_newest_is_refused() {
    let mut rig = Rig::new("internet");
    let first = 20_000_u16;
    for index in 0..u16::try_from(MAX_PENDING_TCP).unwrap() {
        rig.send(first + index, SHOP, 1, 0, SYN, b"");
    }
    let tickets: Vec<u64> = rig
        .events()
        .into_iter()
        .filter_map(|(ticket, _)| ticket)
        .collect();
    assert_eq!(tickets.len(), MAX_PENDING_TCP);
    rig.send(10_000, SHOP, 1, 0, SYN, b"");
    assert_eq!(rig.seen().flags, RST | ACK);
    assert_eq!(rig.refused().refusal, Refusal::Limit);
    // One that ends makes room for one.
    rig.send(first, SHOP, 2, 0, RST, b"");
    rig.events();
    rig.send(10_000, SHOP, 1, 0, SYN, b"");
    rig.opened();
}

#[test]
fn bytes_pass_both_ways_and_both_directions_close_by_themselves() {
    let mut rig = Rig::new("internet");
    let mut far = Far::default();
    let (flow, gate_seq) = rig.established(&mut far);
    rig.send(40000, SHOP, 101, gate_seq, ACK, b"question");
    rig.turns(&mut far);
    assert_eq!(far.from_box, b"question");
    assert_eq!(rig.seen().ack, 109);
    // The box has said all, and still listens.
    rig.send(40000, SHOP, 109, gate_seq, FIN | ACK, b"");
    rig.turns(&mut far);
    assert!(far.finished);
    assert_eq!(rig.seen().ack, 110);
    far.to_box.extend(b"answer");
    rig.gate.handle_ready(flow, true, false);
    rig.turns(&mut far);
    let answer = rig.seen();
    assert_eq!(
        (answer.data.as_slice(), answer.seq),
        (&b"answer"[..], gate_seq)
    );
    far.ended = true;
    rig.send(40000, SHOP, 110, gate_seq + 6, ACK, b"");
    rig.gate.handle_ready(flow, true, false);
    rig.turns(&mut far);
    let fin = rig.seen();
    assert_eq!((fin.flags, fin.seq), (FIN | ACK, gate_seq + 6));
    rig.send(40000, SHOP, 110, gate_seq + 7, ACK, b"");
    rig.turns(&mut far);
    let ended = rig.ended();
    assert_eq!(
        (ended.end, ended.bytes_out, ended.bytes_in),
        (EndReason::Closed, 8, 6)
    );
    assert_eq!(ended.outer_src, Some(at("192.168.1.5:50000")));
    rig.closed(flow, false);
}

#[test]
fn the_host_may_close_first_and_the_last_segment_may_come_twice() {
    let mut rig = Rig::new("internet");
    let mut far = Far::default();
    let (flow, gate_seq) = rig.established(&mut far);
    far.ended = true;
    rig.gate.handle_ready(flow, true, false);
    rig.turns(&mut far);
    assert_eq!(rig.seen().flags, FIN | ACK);
    rig.send(40000, SHOP, 101, gate_seq + 1, ACK, b"late");
    rig.turns(&mut far);
    assert_eq!(far.from_box, b"late");
    rig.sink.packets.clear();
    rig.send(40000, SHOP, 105, gate_seq + 1, FIN | ACK, b"");
    rig.turns(&mut far);
    assert_eq!(rig.seen().ack, 106);
    assert_eq!(rig.ended().end, EndReason::Closed);
    rig.send(40000, SHOP, 105, gate_seq + 1, FIN | ACK, b"");
    let again = rig.seen();
    assert_eq!((again.flags, again.ack), (ACK, 106));
    rig.pass(Duration::from_secs(3));
    rig.send(40000, SHOP, 105, gate_seq + 1, FIN | ACK, b"");
    assert_eq!(rig.seen().flags, RST);
}

#[test]
fn what_the_host_has_not_taken_outlives_the_boxs_end() {
    let mut rig = Rig::new("internet");
    let mut far = Far {
        room: Some(0),
        ..Far::default()
    };
    let (flow, gate_seq) = rig.established(&mut far);
    far.ended = true;
    rig.gate.handle_ready(flow, true, false);
    rig.turns(&mut far);
    rig.send(40000, SHOP, 101, gate_seq + 1, ACK, b"slow");
    rig.send(40000, SHOP, 105, gate_seq + 1, FIN | ACK, b"");
    rig.turns(&mut far);
    rig.pass(Duration::from_secs(60));
    rig.turns(&mut far);
    assert_eq!(rig.gate.flows(), 1);
    far.room = None;
    rig.gate.handle_ready(flow, false, true);
    rig.turns(&mut far);
    assert_eq!(far.from_box, b"slow");
    assert!(far.finished);
    assert_eq!(rig.ended().bytes_out, 4);
}

#[test]
fn a_reset_of_the_box_resets_the_host() {
    let mut rig = Rig::new("internet");
    let mut far = Far::default();
    let (flow, _) = rig.established(&mut far);
    rig.send(40000, SHOP, 101, 0, RST, b"");
    rig.turns(&mut far);
    rig.closed(flow, true);
    assert_eq!(rig.ended().end, EndReason::ResetByBox);
    assert_eq!(rig.gate.flows(), 0);
}

#[test]
fn what_the_box_said_before_its_reset_goes_out_before_it() {
    let mut rig = Rig::new("internet");
    let mut far = Far::default();
    let (flow, next) = rig.established(&mut far);
    rig.send(40000, SHOP, 101, next, ACK, b"the last words");
    rig.send(40000, SHOP, 115, next, RST, b"");
    rig.turns(&mut far);
    assert_eq!(far.from_box, b"the last words");
    rig.closed(flow, true);
    let ended = rig.ended();
    assert_eq!((ended.end, ended.bytes_out), (EndReason::ResetByBox, 14));
}

#[test]
fn a_dial_that_nobody_answers_makes_room_for_a_further_one() {
    let mut rig = Rig::new("internet");
    let dials = u16::try_from(MAX_PENDING_TCP).unwrap();
    let first = rig.dialling(10_000);
    rig.pass(Duration::from_millis(10));
    for port in 1..dials {
        rig.dialling(10_000 + port);
    }
    // None of them has waited for long.
    rig.send(9, SHOP, 7, 0, SYN, b"");
    assert_eq!(rig.refused().refusal, Refusal::Limit);
    assert_eq!(rig.seen().flags, RST | ACK);
    rig.pass(Duration::from_millis(995));
    rig.sink.packets.clear();
    rig.send(8, SHOP, 7, 0, SYN, b"");
    assert_eq!(rig.seen().flags, RST | ACK);
    assert_eq!(rig.gate.flows(), MAX_PENDING_TCP);
    let told = rig.events();
    assert!(
        matches!(&told[..], [(Some(_), GateEvent::FlowOpened(_)), (None, GateEvent::FlowEnded(ended))]
            if ended.flow == first && ended.end == EndReason::Evicted),
        "{told:?}"
    );
}

/// A kernel that let go of its half, which no program held, says so when it is
/// asked (RFC 1122 §4.2.3.6); the far end never says that it is done.
#[test]
fn a_half_closed_flow_is_asked_for_until_the_box_has_let_go_of_it() {
    let mut rig = Rig::new("internet");
    let mut far = Far::default();
    let (flow, next) = rig.established(&mut far);
    rig.send(40000, SHOP, 101, next, FIN | ACK, b"");
    rig.turns(&mut far);
    assert!(far.finished);
    rig.sink.packets.clear();
    rig.pass(Duration::from_secs(59));
    rig.turns(&mut far);
    assert!(rig.sink.packets.is_empty());
    for _ in 0..3 {
        rig.pass(Duration::from_secs(60));
        rig.turns(&mut far);
        let asked = rig.seen();
        assert_eq!((asked.seq, asked.data.len()), (next.wrapping_sub(1), 1));
        rig.sink.packets.clear();
        // One that still reads.
        rig.send(40000, SHOP, 102, next, ACK, b"");
        rig.turns(&mut far);
    }
    rig.send(40000, SHOP, 102, next, RST, b"");
    rig.turns(&mut far);
    rig.closed(flow, true);
    assert_eq!(rig.ended().end, EndReason::ResetByBox);
}

#[test]
fn a_reset_of_the_host_resets_the_box() {
    let mut rig = Rig::new("internet");
    let mut far = Far::default();
    let (flow, _) = rig.established(&mut far);
    far.broken = true;
    rig.gate.handle_ready(flow, true, true);
    rig.turns(&mut far);
    assert_ne!(rig.seen().flags & RST, 0);
    assert_eq!(rig.ended().end, EndReason::ResetByPeer);
    rig.closed(flow, true);
}

#[test]
fn a_reset_within_the_handshake_leaves_nothing_that_listens() {
    let mut rig = Rig::new("internet");
    let flow = rig.dialling(40000);
    rig.dialled(flow, Ok(()));
    rig.turns(&mut Far::default());
    assert_eq!(rig.seen().flags, SYN | ACK);
    rig.send(40000, SHOP, 101, 0, RST, b"");
    assert_eq!(rig.ended().end, EndReason::ResetByBox);
    rig.closed(flow, true);
    // The next one from another port is a flow of its own, with its own verdict.
    rig.send(40001, SHOP, 7, 0, SYN, b"");
    assert!(rig.sink.packets.is_empty());
    rig.opened();
}

#[test]
fn a_handshake_that_the_box_leaves_half_open_ends() {
    let mut rig = Rig::new("internet");
    let flow = rig.dialling(40000);
    rig.dialled(flow, Ok(()));
    let mut far = Far::default();
    for _ in 0..12 {
        rig.turns(&mut far);
        rig.pass(Duration::from_secs(1));
    }
    assert_eq!(rig.gate.flows(), 0);
    assert_eq!(rig.ended().end, EndReason::ResetByBox);
}

#[test]
fn a_segment_of_no_flow_is_answered_as_a_closed_port_does() {
    let mut rig = Rig::new("internet");
    rig.send(40000, SHOP, 100, 777, ACK, b"stray");
    let reset = rig.seen();
    assert_eq!((reset.flags, reset.seq), (RST, 777));
    rig.send(40000, SHOP, 100, 0, RST, b"");
    assert!(rig.sink.packets.is_empty() && rig.events().is_empty());
}

#[test]
fn out_of_descriptors_is_a_refusal_that_says_limit() {
    let mut rig = Rig::new("internet");
    let flow = rig.dialling(40000);
    rig.dialled(flow, Err(DialFault::NoSocket));
    assert_eq!(rig.seen().flags, RST | ACK);
    assert_eq!(rig.refused_late(), (Refusal::Limit, EndReason::Evicted));
}

#[test]
fn a_megabyte_passes_each_way_unchanged() {
    let mut rig = Rig::new("internet");
    let mut far = Far::default();
    let (flow, mut gate_seq) = rig.established(&mut far);
    let sent: Vec<u8> = (0..3_000_000_u32)
        .map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1])
        .collect();
    far.to_box.extend(&sent);
    rig.gate.handle_ready(flow, true, false);
    let (mut got, mut seq) = (Vec::new(), 101_u32);
    for piece in sent.chunks(60_000) {
        rig.send(40000, SHOP, seq, gate_seq, ACK, piece);
        seq = seq.wrapping_add(u32::try_from(piece.len()).unwrap());
        rig.turns(&mut far);
        while let Some(packet) = rig.sink.packets.pop_front() {
            let seen = read(&packet);
            if !seen.data.is_empty() {
                assert_eq!(seen.seq, gate_seq);
                gate_seq = gate_seq.wrapping_add(u32::try_from(seen.data.len()).unwrap());
                got.extend(seen.data);
            }
        }
    }
    while got.len() < sent.len() {
        rig.send(40000, SHOP, seq, gate_seq, ACK, b"");
        rig.turns(&mut far);
        let before = got.len();
        while let Some(packet) = rig.sink.packets.pop_front() {
            let seen = read(&packet);
            gate_seq = gate_seq.wrapping_add(u32::try_from(seen.data.len()).unwrap());
            got.extend(seen.data);
        }
        assert!(got.len() > before, "stuck at {before}");
    }
    assert!(got == sent && far.from_box == sent);
}

#[test]
fn a_granted_port_of_the_nodes_loopback_is_dialled_there() {
    let mut rig = Rig::new("lo:5432");
    rig.send(40000, "192.0.0.1:5432", 100, 0, SYN, b"");
    let (ticket, FlowOpened { flow, class, .. }) = rig.opened();
    assert_eq!(class, bailey_model::AddrClass::Loopback);
    rig.word(ticket, true);
    let dst = at("127.0.0.1:5432");
    assert_eq!(rig.actions(), [Action::Dial { flow, dst }]);
    rig.dialled(flow, Ok(()));
    rig.turns(&mut Far::default());
    assert_eq!(rig.seen().src, at("192.0.0.1:5432"));
    // Another port is refused at once.
    rig.send(40001, "192.0.0.1:5433", 100, 0, SYN, b"");
    assert_eq!(rig.seen().flags, RST | ACK);
    assert_eq!(rig.refused().refusal, Refusal::OutsideReach);
}

#[test]
fn half_open_connections_are_bounded_and_an_end_of_one_makes_room() {
    let mut rig = Rig::new("internet");
    let mut far = Far::default();
    for src in 0..u16::try_from(MAX_PENDING_TCP).unwrap() {
        let flow = rig.dialling(10_000 + src);
        rig.dialled(flow, Ok(()));
        rig.turns(&mut far);
        assert_eq!(rig.seen().flags, SYN | ACK);
    }
    rig.send(9999, SHOP, 100, 0, SYN, b"");
    assert_eq!(rig.seen().flags, RST | ACK);
    assert_eq!(rig.refused().refusal, Refusal::Limit);
    // One that the box resets, and those whose time is up.
    rig.send(10_000, SHOP, 101, 0, RST, b"");
    rig.turns(&mut far);
    rig.events();
    rig.actions();
    rig.dialling(9999);
    for _ in 0..=crate::flow::HANDSHAKE_TIMEOUT.as_secs() {
        rig.pass(Duration::from_secs(1));
        rig.turns(&mut far);
    }
    rig.events();
    rig.actions();
    rig.sink.packets.clear();
    // One that is done is none of them.
    for src in 0..u16::try_from(MAX_PENDING_TCP).unwrap() + 5 {
        let flow = rig.dialling(30_000 + src);
        rig.dialled(flow, Ok(()));
        rig.turns(&mut far);
        let next = rig.seen().seq.wrapping_add(1);
        rig.send(30_000 + src, SHOP, 101, next, ACK, b"");
        rig.turns(&mut far);
    }
}
