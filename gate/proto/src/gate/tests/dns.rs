use super::*;
use bailey_model::NameAnswer;
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{Name, RData, Record, RecordType};

const ANYWHERE: &str = "8.8.8.8:53";

pub(super) fn question(id: u16, name: &str) -> Vec<u8> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
    message.to_vec().unwrap()
}

/// A resolver's answer to what was asked.
pub(super) fn answer(asked: &[u8], ip: [u8; 4]) -> Vec<u8> {
    let mut message = Message::from_vec(asked).unwrap();
    message.metadata.message_type = MessageType::Response;
    message.metadata.recursion_available = true;
    let name = message.queries[0].name().clone();
    message
        .answers
        .push(Record::from_rdata(name, 300, RData::A(A(ip.into()))));
    message.to_vec().unwrap()
}

pub(super) fn upstream(rig: &mut Rig) -> (ExchangeId, Vec<u8>) {
    let found = rig.actions().into_iter().find_map(|action| match action {
        Action::Upstream { id, bytes, .. } => Some((id, bytes)),
        _ => None,
    });
    found.expect("a question to a resolver")
}

#[test]
fn a_question_to_any_address_is_answered_after_its_entry_and_names_the_flow() {
    let mut rig = Rig::new("shop.example:443");
    rig.tun(&datagram_of(
        own(5353),
        at(ANYWHERE),
        &question(7, "shop.example."),
    ));
    let events = rig.events();
    let [(Some(ticket), GateEvent::NameAsked(asked))] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(asked.host, Host::new("shop.example").unwrap());
    assert!(rig.actions().is_empty());
    rig.word(*ticket, true);
    let (id, bytes) = upstream(&mut rig);
    let reply = answer(&bytes, [93, 184, 216, 34]);
    rig.gate
        .handle_upstream(rig.now, id, at("9.9.9.9:53"), &reply, &mut rig.sink);
    let packet = rig.sink.packets.pop_front().unwrap();
    let ip = packet::parse(&packet).unwrap();
    let (src, dst, data) = packet::datagram(ip.payload).unwrap();
    assert_eq!((SocketAddr::new(ip.src, src), dst), (at(ANYWHERE), 5353));
    let message = Message::from_vec(data).unwrap();
    assert_eq!((message.metadata.id, message.answers.len()), (7, 1));
    // What it was answered is told in company: nothing waits for it.
    assert!(rig.gate.events_due() > Some(rig.now));
    // The address is open for the name, on its port only.
    rig.send(40000, SHOP, 1, 0, SYN, b"");
    let events = rig.events();
    let [
        (Some(_), GateEvent::FlowOpened(opened)),
        (None, GateEvent::NameAnswered(answered)),
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    let shop = at(SHOP).ip();
    assert_eq!(
        (&answered.host, &answered.addrs),
        (&asked.host, &vec![shop])
    );
    assert_eq!((answered.answer, answered.ttl), (NameAnswer::Records, 300));
    assert_eq!(opened.host, Host::new("shop.example"));
    rig.send(40001, "93.184.216.34:80", 1, 0, SYN, b"");
    assert_eq!(rig.refused().refusal, Refusal::OutsideReach);
}

#[test]
fn a_name_outside_reach_does_not_exist_and_is_asked_nowhere() {
    let mut rig = Rig::new("shop.example");
    rig.tun(&datagram_of(
        own(5353),
        at(ANYWHERE),
        &question(9, "evil.example."),
    ));
    let packet = rig.sink.packets.pop_front().unwrap();
    let ip = packet::parse(&packet).unwrap();
    let (_, _, data) = packet::datagram(ip.payload).unwrap();
    let message = Message::from_vec(data).unwrap();
    assert_eq!(message.metadata.response_code, ResponseCode::NXDomain);
    assert_eq!(rig.refused().refusal, Refusal::NameOutsideReach);
    assert!(rig.actions().is_empty());
}

#[test]
fn a_connection_to_port_53_ends_at_the_gate_and_carries_questions() {
    let mut rig = Rig::new("shop.example");
    rig.send(40000, ANYWHERE, 100, 0, SYN, b"");
    let synack = rig.seen();
    assert_eq!((synack.flags, synack.src), (SYN | ACK, at(ANYWHERE)));
    assert!(rig.events().is_empty() && rig.actions().is_empty());
    let gate_seq = synack.seq.wrapping_add(1);
    let mut stream = Vec::new();
    for (id, name) in [(1, "evil.example."), (2, "shop.example.")] {
        let message = question(id, name);
        stream.extend(u16::try_from(message.len()).unwrap().to_be_bytes());
        stream.extend(message);
    }
    // Cut in the middle of a question.
    let (head, tail) = stream.split_at(9);
    rig.send(40000, ANYWHERE, 101, gate_seq, ACK, head);
    rig.send(40000, ANYWHERE, 110, gate_seq, ACK, tail);
    let refused: Vec<Seen> = rig
        .sink
        .packets
        .drain(..)
        .map(|packet| read(&packet))
        .collect();
    let reply: Vec<u8> = refused.iter().flat_map(|seen| seen.data.clone()).collect();
    let message = Message::from_vec(&reply[2..]).unwrap();
    assert_eq!(
        (message.metadata.id, message.metadata.response_code),
        (1, ResponseCode::NXDomain)
    );
    let ticket = rig
        .events()
        .into_iter()
        .find_map(|(ticket, _)| ticket)
        .unwrap();
    rig.word(ticket, true);
    let (id, bytes) = upstream(&mut rig);
    // The box has asked all that it wants to.
    let end = 101 + u32::try_from(stream.len()).unwrap();
    let acked = gate_seq + u32::try_from(reply.len()).unwrap();
    rig.send(40000, ANYWHERE, end, acked, FIN | ACK, b"");
    rig.sink.packets.clear();
    let far = answer(&bytes, [93, 184, 216, 34]);
    rig.gate
        .handle_upstream(rig.now, id, at("9.9.9.9:53"), &far, &mut rig.sink);
    let last: Vec<Seen> = rig
        .sink
        .packets
        .drain(..)
        .map(|packet| read(&packet))
        .collect();
    let reply: Vec<u8> = last.iter().flat_map(|seen| seen.data.clone()).collect();
    assert_eq!(Message::from_vec(&reply[2..]).unwrap().answers.len(), 1);
    assert!(last.iter().any(|seen| seen.flags & FIN != 0), "{last:?}");
    assert_eq!(rig.gate.flows(), 0);
}

#[test]
fn a_silent_connection_to_port_53_is_reset() {
    let mut rig = Rig::new("internet");
    rig.send(40000, ANYWHERE, 100, 0, SYN, b"");
    let gate_seq = rig.seen().seq.wrapping_add(1);
    rig.send(40000, ANYWHERE, 101, gate_seq, ACK, b"");
    rig.pass(crate::flow::DNS_TCP_IDLE);
    assert_ne!(rig.seen().flags & RST, 0);
}

#[test]
fn a_stream_of_no_questions_is_reset() {
    let mut rig = Rig::new("internet");
    rig.send(40000, ANYWHERE, 100, 0, SYN, b"");
    let gate_seq = rig.seen().seq.wrapping_add(1);
    rig.send(40000, ANYWHERE, 101, gate_seq, ACK, b"GET / HTTP/1.1\r\n");
    assert_ne!(read(rig.sink.packets.back().unwrap()).flags & RST, 0);
}

/// What gets no answer is waited for by nobody: an empty message, one that is an
/// answer itself, a question that is being answered already.
#[test]
fn a_connection_ends_with_its_last_answer_whatever_else_came_by_it() {
    let framed = |message: &[u8]| {
        let len = u16::try_from(message.len()).unwrap();
        [&len.to_be_bytes(), message].concat()
    };
    let refused = question(1, "evil.example.");
    let mut answers = question(2, "shop.example.");
    answers[2] |= 0x80;
    let asked = question(3, "shop.example.");
    for odd in [framed(b""), framed(&answers), framed(&asked).repeat(2)] {
        let mut rig = Rig::new("shop.example");
        rig.send(40000, ANYWHERE, 100, 0, SYN, b"");
        let gate_seq = rig.seen().seq.wrapping_add(1);
        let stream = [odd, framed(&refused)].concat();
        rig.send(40000, ANYWHERE, 101, gate_seq, ACK, &stream);
        let end = 101 + u32::try_from(stream.len()).unwrap();
        let said = read(rig.sink.packets.back().unwrap());
        let acked = said
            .seq
            .wrapping_add(u32::try_from(said.data.len()).unwrap());
        rig.send(40000, ANYWHERE, end, acked, FIN | ACK, b"");
        for (ticket, _) in rig.events() {
            if let Some(ticket) = ticket {
                rig.word(ticket, true);
                let (id, bytes) = upstream(&mut rig);
                let far = answer(&bytes, [93, 184, 216, 34]);
                rig.gate
                    .handle_upstream(rig.now, id, at("9.9.9.9:53"), &far, &mut rig.sink);
            }
        }
        let last = rig.sink.packets.iter().map(|packet| read(packet).flags);
        assert!(last.clone().any(|flags| flags & FIN != 0), "{stream:?}");
        assert!(last.into_iter().all(|flags| flags & RST == 0), "{stream:?}");
    }
}

#[test]
fn an_answer_that_was_lost_on_its_way_to_the_box_is_said_again() {
    let mut rig = Rig::new("shop.example");
    rig.send(40000, ANYWHERE, 100, 0, SYN, b"");
    let gate_seq = rig.seen().seq.wrapping_add(1);
    let refused = question(1, "evil.example.");
    let len = u16::try_from(refused.len()).unwrap();
    let stream = [&len.to_be_bytes(), &refused[..]].concat();
    rig.send(40000, ANYWHERE, 101, gate_seq, ACK, &stream);
    let said = |rig: &mut Rig| {
        let packets = rig.sink.packets.drain(..);
        let data: Vec<Vec<u8>> = packets.map(|packet| read(&packet).data).collect();
        data.into_iter().find(|data| !data.is_empty())
    };
    let first = said(&mut rig);
    assert!(first.is_some());
    rig.pass(Duration::from_secs(2));
    assert_eq!(said(&mut rig), first);
}
