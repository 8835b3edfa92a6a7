//! Flows that come in by a published port.

use bailey_model::link::{GATE_V4, GATE_V6};
use bailey_model::{Direction, FiveTuple};

use super::*;
use crate::flow::{KNOCK_TIMEOUT, MAX_INBOUND_TCP};

const CLIENT: &str = "127.0.0.1:51000";

fn publish() -> Publish {
    "80:8080".parse().unwrap()
}

impl Rig {
    fn came(&mut self) -> Option<FlowId> {
        let (now, client) = (self.now, at(CLIENT));
        self.gate.handle_accepted(now, publish(), client)
    }

    /// A flow that waits for its entry.
    #[track_caller]
    fn entering(&mut self) -> (u64, FlowOpened) {
        let flow = self.came().unwrap();
        let (ticket, opened) = self.opened();
        assert_eq!(opened.flow, flow);
        (ticket, opened)
    }

    /// A flow whose entry stands, and the SYN that went into the box.
    #[track_caller]
    fn knocked(&mut self, far: &mut Far) -> (FlowId, Seen) {
        let (ticket, FlowOpened { flow, .. }) = self.entering();
        assert!(self.sink.packets.is_empty() && self.actions().is_empty());
        self.word(ticket, true);
        self.turns(far);
        let syn = self.seen();
        assert_eq!((syn.flags, syn.src.ip()), (SYN, IpAddr::V4(GATE_V4)));
        (flow, syn)
    }

    /// The box answers from one of its ends.
    fn answer(&mut self, from: SocketAddr, to: &Seen, seq: u32, ack: u32, flags: u8, data: &[u8]) {
        self.tun(&segment_of(from, to.src, seq, ack, flags, data));
    }

    /// An established one: its flow, its SYN, and the gate's next number. The
    /// box's next is 501.
    fn inside(&mut self, far: &mut Far) -> (FlowId, Seen, u32) {
        let (flow, syn) = self.knocked(far);
        let next = syn.seq.wrapping_add(1);
        self.answer(own(8080), &syn, 500, next, SYN | ACK, b"");
        self.turns(far);
        let ack = self.seen();
        assert_eq!((ack.flags, ack.seq, ack.ack), (ACK, next, 501));
        (flow, syn, next)
    }
}

#[test]
fn nothing_goes_in_before_its_entry_stands() {
    let mut rig = Rig::new("nothing");
    let (ticket, opened) = rig.entering();
    let client = at(CLIENT);
    assert_eq!(opened.direction, Direction::In { client });
    assert_eq!(opened.granted.0, "publish 80:8080");
    let FiveTuple { proto, src, dst } = opened.tuple;
    assert_eq!((proto, dst), (Proto::Tcp, own(8080)));
    assert_eq!(src.ip(), IpAddr::V4(GATE_V4));
    rig.gate.handle_ready(opened.flow, true, true);
    let mut far = Far::default();
    far.to_box.extend(b"hello");
    rig.turns(&mut far);
    assert!(rig.sink.packets.is_empty() && far.to_box.len() == 5);
    // A box that guesses the ends learns no more than of a closed port.
    rig.tun(&segment_of(own(8080), src, 500, 1, SYN | ACK, b""));
    assert_eq!(rig.seen().flags, RST);
    rig.word(ticket, true);
    rig.turns(&mut far);
    let syn = rig.seen();
    assert_eq!((syn.flags, syn.src), (SYN, src));
    assert_eq!(rig.gate.flows(), 1);
}

#[test]
fn an_entry_that_cannot_be_written_turns_them_away() {
    let mut rig = Rig::new("internet");
    let (ticket, FlowOpened { flow, .. }) = rig.entering();
    rig.word(ticket, false);
    rig.closed(flow, true);
    let refused = rig.refused();
    assert_eq!(refused.refusal, Refusal::StoreUnavailable);
    assert_eq!(refused.direction.client(), Some(at(CLIENT)));
    assert_eq!((refused.src, refused.dst), (None, Some(own(8080))));
    assert!(rig.sink.packets.is_empty() && rig.gate.flows() == 0);
    // One that nobody answers for.
    let (ticket, FlowOpened { flow, .. }) = rig.entering();
    rig.pass(ENTRY_TIMEOUT);
    rig.closed(flow, true);
    assert_eq!(rig.events().len(), 2);
    rig.word(ticket, true);
    assert!(rig.sink.packets.is_empty() && rig.gate.flows() == 0);
}

#[test]
fn bytes_pass_both_ways_and_each_half_closes_by_itself() {
    let mut rig = Rig::new("nothing");
    let mut far = Far::default();
    let (flow, syn, gate_seq) = rig.inside(&mut far);
    far.to_box.extend(b"question");
    far.ended = true;
    rig.gate.handle_ready(flow, true, true);
    rig.turns(&mut far);
    let mut sent = Vec::new();
    let mut fin = false;
    while let Some(packet) = rig.sink.packets.pop_front() {
        let seen = read(&packet);
        sent.extend(seen.data);
        fin |= seen.flags & FIN != 0;
    }
    assert!(sent == b"question" && fin);
    // The client has said all, and still listens.
    let next = gate_seq.wrapping_add(9);
    rig.answer(own(8080), &syn, 501, next, ACK, b"a long answer");
    rig.turns(&mut far);
    assert_eq!(far.from_box, b"a long answer");
    assert!(!far.finished && rig.events().is_empty());
    rig.sink.packets.clear();
    rig.answer(own(8080), &syn, 514, next, FIN | ACK, b"");
    rig.turns(&mut far);
    assert_eq!(rig.seen().ack, 515);
    let ended = rig.ended();
    assert_eq!(
        (ended.end, ended.bytes_out, ended.bytes_in),
        (EndReason::Closed, 13, 8)
    );
    assert_eq!(ended.outer_src, Some(at(CLIENT)));
    rig.closed(flow, false);
    // Its last segment again is still answered, and not with a reset.
    rig.answer(own(8080), &syn, 514, next, FIN | ACK, b"");
    assert_eq!(rig.seen().flags, ACK);
}

#[test]
fn the_box_may_close_first() {
    let mut rig = Rig::new("nothing");
    let mut far = Far::default();
    let (flow, syn, next) = rig.inside(&mut far);
    rig.answer(own(8080), &syn, 501, next, FIN | ACK, b"banner");
    rig.turns(&mut far);
    assert!(far.finished && far.from_box == b"banner");
    rig.sink.packets.clear();
    far.to_box.extend(b"late");
    far.ended = true;
    rig.gate.handle_ready(flow, true, true);
    rig.turns(&mut far);
    let sent: Vec<u8> = rig.sink.packets.iter().flat_map(|p| read(p).data).collect();
    assert_eq!(sent, b"late");
    rig.answer(own(8080), &syn, 508, next.wrapping_add(5), ACK, b"");
    rig.turns(&mut far);
    assert_eq!(rig.ended().end, EndReason::Closed);
}

#[test]
fn resets_cross_both_ways() {
    let mut rig = Rig::new("nothing");
    let mut far = Far::default();
    let (flow, syn, _) = rig.inside(&mut far);
    rig.answer(own(8080), &syn, 501, 0, RST, b"");
    rig.turns(&mut far);
    rig.closed(flow, true);
    assert_eq!(rig.ended().end, EndReason::ResetByBox);
    let (flow, _, _) = rig.inside(&mut far);
    far.broken = true;
    rig.gate.handle_ready(flow, true, true);
    rig.turns(&mut far);
    assert_ne!(rig.seen().flags & RST, 0);
    rig.closed(flow, true);
    assert_eq!(rig.ended().end, EndReason::ResetByPeer);
}

#[test]
fn every_door_of_the_box_is_tried_before_the_client_is_refused() {
    let loopback = at("127.0.0.1:8080");
    let v6 = SocketAddr::new(IpAddr::V6(BOX_V6), 8080);
    // Nobody listens anywhere.
    let mut rig = Rig::new("nothing");
    let mut far = Far::default();
    let (flow, syn) = rig.knocked(&mut far);
    for (door, last) in [(own(8080), false), (loopback, false), (v6, true)] {
        let to = match door {
            SocketAddr::V4(_) => syn.src,
            SocketAddr::V6(_) => SocketAddr::new(GATE_V6.into(), syn.src.port()),
        };
        let seq = rig.sink.packets.pop_front().map_or(syn.seq, |packet| {
            let seen = read(&packet);
            assert_eq!((seen.flags, seen.src), (SYN, to));
            seen.seq
        });
        rig.tun(&segment_of(
            door,
            to,
            0,
            seq.wrapping_add(1),
            RST | ACK,
            b"",
        ));
        assert_eq!(rig.gate.flows(), usize::from(!last), "{door}");
    }
    rig.closed(flow, true);
    assert_eq!(rig.ended().end, EndReason::DialRefused);
    // Somebody listens on the box's own loopback.
    let (_, syn) = rig.knocked(&mut far);
    rig.answer(own(8080), &syn, 0, syn.seq.wrapping_add(1), RST | ACK, b"");
    let syn = rig.seen();
    rig.answer(loopback, &syn, 9, syn.seq.wrapping_add(1), SYN | ACK, b"");
    rig.answer(loopback, &syn, 10, syn.seq.wrapping_add(1), ACK, b"inner");
    rig.turns(&mut far);
    assert_eq!(far.from_box, b"inner");
    rig.events();
    // Nothing can begin from there.
    rig.sink.packets.clear();
    rig.tun(&segment_of(loopback, at(SHOP), 1, 0, SYN, b""));
    assert!(rig.sink.packets.is_empty());
    assert_eq!(rig.refused().refusal, Refusal::Protocol);
}

#[test]
fn a_box_that_does_not_answer_ends_the_flow_in_time() {
    let mut rig = Rig::new("nothing");
    let mut far = Far::default();
    let (flow, _) = rig.knocked(&mut far);
    for _ in 0..KNOCK_TIMEOUT.as_secs() {
        rig.pass(Duration::from_secs(1));
        rig.turns(&mut far);
    }
    rig.closed(flow, true);
    assert_eq!(rig.ended().end, EndReason::DialTimeout);
    let repeats = rig.sink.packets.iter().filter(|p| read(p).flags == SYN);
    assert!(repeats.count() >= 3);
}

#[test]
fn a_dial_that_meets_an_older_connection_starts_over_at_once_and_not_for_ever() {
    let mut rig = Rig::new("nothing");
    let mut far = Far::default();
    let (_, mut syn) = rig.knocked(&mut far);
    // The box's kernel still holds a closed one with these ends (TIME-WAIT).
    for _ in 0..3 {
        rig.answer(own(8080), &syn, 77, syn.seq.wrapping_add(9000), ACK, b"");
        let packets: Vec<Seen> = rig.sink.packets.drain(..).map(|p| read(&p)).collect();
        let [reset, again] = packets.as_slice() else {
            panic!("{packets:?}")
        };
        assert_eq!((reset.flags, again.flags), (RST, SYN));
        assert_eq!(
            (reset.seq, again.src),
            (syn.seq.wrapping_add(9000), syn.src)
        );
        assert_ne!(again.seq, syn.seq);
        syn = again.clone();
    }
    rig.answer(own(8080), &syn, 77, syn.seq.wrapping_add(9000), ACK, b"");
    assert_eq!(rig.seen().flags, RST);
}

#[test]
fn a_simultaneous_open_of_the_box_gives_it_no_more_than_the_flow() {
    let mut rig = Rig::new("nothing");
    let mut far = Far::default();
    let (flow, syn) = rig.knocked(&mut far);
    rig.answer(own(8080), &syn, 500, 0, SYN, b"");
    rig.turns(&mut far);
    // The reset is a refusal, and the next door is tried.
    rig.sink.packets.clear();
    rig.answer(own(8080), &syn, 501, 0, RST, b"");
    assert_eq!(rig.seen().flags, SYN);
    assert!(rig.actions().is_empty() && far.from_box.is_empty());
    rig.gate.stop(rig.now, &mut rig.sink);
    rig.closed(flow, true);
    rig.sink.packets.clear();
    // The engine listens for nobody.
    rig.send(8080, SHOP, 1, 0, SYN, b"");
    assert_eq!(rig.seen().flags, RST | ACK);
}

#[test]
fn those_who_come_in_are_counted_and_the_next_is_refused() {
    let mut rig = Rig::new("internet");
    for _ in 0..MAX_INBOUND_TCP {
        rig.came().unwrap();
    }
    let entries = rig.events();
    let mut sources: Vec<SocketAddr> = entries
        .iter()
        .map(|(_, event)| match event {
            GateEvent::FlowOpened(opened) => opened.tuple.src,
            other => panic!("{other:?}"),
        })
        .collect();
    sources.sort_unstable();
    sources.dedup();
    assert_eq!(sources.len(), MAX_INBOUND_TCP);
    assert_eq!(rig.came(), None);
    assert_eq!(rig.refused().refusal, Refusal::Limit);
    // What the box dials is bounded apart.
    rig.send(40000, SHOP, 100, 0, SYN, b"");
    rig.opened();
    // One that ends makes room for one.
    let (ticket, _) = entries.into_iter().next().unwrap();
    rig.word(ticket.unwrap(), false);
    rig.events();
    assert!(rig.came().is_some());
}

#[test]
fn a_stop_resets_those_who_came_in_at_every_stage() {
    let mut rig = Rig::new("nothing");
    let mut far = Far::default();
    let (inside, _, _) = rig.inside(&mut far);
    let (knocking, _) = rig.knocked(&mut far);
    let (ticket, FlowOpened { flow: entering, .. }) = rig.entering();
    assert_eq!(rig.gate.stop(rig.now, &mut rig.sink), 3);
    let closed = rig.actions();
    for flow in [inside, knocking, entering] {
        assert!(closed.contains(&Action::Close { flow, reset: true }));
    }
    let ends = rig.events();
    assert_eq!(ends.len(), 3);
    rig.sink.packets.clear();
    rig.word(ticket, true);
    assert!(rig.sink.packets.is_empty() && rig.came().is_none());
    assert_eq!(rig.refused().refusal, Refusal::BoxStopping);
}

#[test]
fn while_the_box_is_paused_nobody_comes_in_or_goes_out_and_who_is_there_stays() {
    let mut rig = Rig::new("internet");
    let mut far = Far::default();
    let (inside, _, _) = rig.inside(&mut far);
    rig.gate.set_paused(true);
    assert!(rig.came().is_none());
    assert_eq!(rig.refused().refusal, Refusal::BoxPaused);
    rig.send(40000, SHOP, 100, 0, SYN, b"");
    assert!(rig.actions().is_empty());
    assert_eq!(rig.refused().refusal, Refusal::BoxPaused);
    assert_eq!(rig.gate.flows(), 1);
    rig.gate.set_paused(false);
    assert!(rig.came().is_some());
    rig.send(40001, SHOP, 100, 0, SYN, b"");
    assert_eq!(rig.gate.stop(rig.now, &mut rig.sink), 3);
    assert!(rig.actions().contains(&Action::Close {
        flow: inside,
        reset: true
    }));
}

#[test]
fn a_slow_client_holds_the_box_up_and_loses_nothing() {
    let mut rig = Rig::new("nothing");
    let mut far = Far {
        room: Some(100),
        ..Far::default()
    };
    let (flow, syn, next) = rig.inside(&mut far);
    let mut seq = 501_u32;
    let piece = vec![7; 60_000];
    // It sends as long as its window lets it, and then some.
    for _ in 0..40 {
        rig.answer(own(8080), &syn, seq, next, ACK, &piece);
        seq = seq.wrapping_add(60_000);
        rig.turns(&mut far);
    }
    let last = read(rig.sink.packets.back().unwrap());
    let taken = last.ack.wrapping_sub(501);
    assert!(taken < 2_000_000, "the gate took {taken} bytes for nobody");
    assert_eq!(far.from_box.len(), 100);
    far.room = None;
    rig.gate.handle_ready(flow, false, true);
    rig.turns(&mut far);
    assert_eq!(far.from_box.len(), usize::try_from(taken).unwrap());
}
