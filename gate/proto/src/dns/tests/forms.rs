//! Messages that are not plain questions, sizes, and what resolvers send.

use super::*;

fn sent(bytes: &[u8]) -> Vec<Message> {
    let mut bench = Bench::new("internet");
    bench.send(Transport::Udp, bytes);
    assert!(bench.asks().is_empty());
    bench.replies()
}

fn code(bytes: &[u8]) -> ResponseCode {
    let replies = sent(bytes);
    assert_eq!(replies.len(), 1);
    assert!(replies[0].metadata.recursion_available);
    replies[0].metadata.response_code
}

#[test]
fn what_is_no_query_gets_no_answer() {
    let query = question(1, "a.example", RecordType::A, None);
    assert!(sent(&[]).is_empty());
    assert!(sent(&query[..11]).is_empty());
    let mut response = query;
    response[2] |= 0x80;
    assert!(sent(&response).is_empty());
}

#[test]
fn malformed_and_foreign_questions_are_answered_by_their_form() {
    let query = question(1, "a.example", RecordType::A, None);
    assert_eq!(code(&query[..12]), ResponseCode::FormErr);
    assert_eq!(code(&query[..query.len() - 1]), ResponseCode::FormErr);
    let mut none = query.clone();
    none[5] = 0;
    assert_eq!(code(&none[..12]), ResponseCode::FormErr);
    let mut two = query.clone();
    two[5] = 2;
    two.extend_from_slice(&query[12..]);
    assert_eq!(code(&two), ResponseCode::FormErr);
    for op_code in [1_u8, 2, 4, 5, 6, 15] {
        let mut other = query.clone();
        other[2] = other[2] & 0x87 | op_code << 3;
        assert_eq!(code(&other), ResponseCode::NotImp, "opcode {op_code}");
    }
    let mut chaos = query.clone();
    let at = chaos.len() - 1;
    chaos[at] = 3;
    assert_eq!(code(&chaos), ResponseCode::Refused);
    for qtype in [251_u16, 252, 250, 249, 0] {
        let mut transfer = query.clone();
        transfer[at - 3..at - 1].copy_from_slice(&qtype.to_be_bytes());
        assert_eq!(code(&transfer), ResponseCode::Refused, "type {qtype}");
    }
    let mut version = Message::from_vec(&query).unwrap();
    let mut edns = Edns::new();
    edns.set_version(1);
    version.set_edns(edns);
    // 16, which hickory reads as the other code of that number.
    assert_eq!(u16::from(code(&version.to_vec().unwrap())), 16);
}

#[test]
fn odd_octets_in_a_name_are_kept_apart() {
    let odd = |labels: &[&[u8]]| {
        let mut name = Name::from_labels(labels.iter().copied()).unwrap();
        name.set_fqdn(true);
        host_of(&name)
    };
    assert_eq!(odd(&[b"A b", b"example"]), Some(host("a\\032b.example")));
    assert_eq!(
        odd(&[b"a.shop", b"example"]),
        Some(host("a\\046shop.example"))
    );
    assert_eq!(odd(&[b"a\\", b"example"]), Some(host("a\\092.example")));
    assert_eq!(odd(&["é".as_bytes()]), Some(host("\\195\\169")));
    assert_eq!(odd(&[&[0, 255]]), Some(host("\\000\\255")));
    assert_eq!(odd(&[]), None);
    // A dot inside a label is not a dot between labels.
    let mut bench = Bench::new("*.shop.example");
    let mut message = Message::new(3, MessageType::Query, OpCode::Query);
    let mut name = Name::from_labels([b"evil.shop".as_slice(), b"example"]).unwrap();
    name.set_fqdn(true);
    message.add_query(Query::query(name, RecordType::A));
    bench.send(Transport::Udp, &message.to_vec().unwrap());
    assert!(is_nxdomain(&bench.reply()));
}

fn long_answer(transport: Transport, payload: Option<u16>) -> (Vec<u8>, Message) {
    let mut bench = Bench::new("internet");
    bench.send(
        transport,
        &question(7, "shop.example", RecordType::TXT, payload),
    );
    bench.commit_all();
    let (id, server, _, asked) = bench.exchanges().remove(0);
    let text = |number: u32| {
        let data = RData::TXT(TXT::new(vec![format!("{number:050}")]));
        Record::from_rdata(name("shop.example"), 300, data)
    };
    let records: Vec<Record> = (0..60).map(text).collect();
    bench.answer(id, server, &with(&asked, &records));
    let bytes = bench.out.iter().find_map(|output| match output {
        DnsOutput::Reply { bytes, .. } => Some(bytes.clone()),
        _ => None,
    });
    let bytes = bytes.unwrap();
    let message = Message::from_vec(&bytes).unwrap();
    (bytes, message)
}

#[test]
fn a_long_answer_is_cut_to_what_the_box_takes_over_udp() {
    for (payload, limit) in [(None, 512), (Some(100), 512), (Some(1_232), 1_232)] {
        let (bytes, message) = long_answer(Transport::Udp, payload);
        assert!(bytes.len() <= limit);
        assert!(message.metadata.truncation);
        assert!(
            bytes.len() > limit - 80,
            "as many answers as fit: {}",
            bytes.len()
        );
        assert!(!message.answers.is_empty());
        assert_eq!(message.edns.is_some(), payload.is_some());
    }
    for (transport, payload) in [(Transport::Tcp, None), (Transport::Udp, Some(u16::MAX))] {
        let (bytes, message) = long_answer(transport, payload);
        assert!(bytes.len() <= 4_096);
        assert!(!message.metadata.truncation);
        assert_eq!(message.answers.len(), 60);
    }
}

#[test]
fn a_truncated_upstream_answer_is_fetched_over_tcp_from_the_same_resolver() {
    let mut bench = Bench::new("internet");
    let (udp, server, _, asked) = bench.asked("shop.example", RecordType::A);
    let mut cut = answer_to(&asked);
    cut.metadata.truncation = true;
    bench.answer(udp, server, &cut);
    assert_eq!(bench.cancels(), [udp]);
    let (tcp, again, over, asked) = bench.exchanges().remove(0);
    assert_eq!((again, over), (server, Transport::Tcp));
    assert!(bench.replies().is_empty());
    bench.answer(
        tcp,
        again,
        &with(&asked, &[addr_record("shop.example", "93.184.216.34")]),
    );
    assert_eq!(addrs(&bench.reply()), ["93.184.216.34"]);
}

#[test]
fn only_the_answer_to_the_question_from_the_resolver_asked_counts() {
    let mut bench = Bench::new("internet");
    let (id, server, _, asked) = bench.asked("shop.example", RecordType::A);
    let good = with(&asked, &[addr_record("shop.example", "93.184.216.34")]);
    let mut forged = Vec::new();
    let mut wrong_id = good.clone();
    wrong_id.metadata.id ^= 1;
    forged.push(wrong_id);
    let mut query = good.clone();
    query.metadata.message_type = MessageType::Query;
    forged.push(query);
    let mut other_name = good.clone();
    other_name.queries[0].set_name(name("other.example"));
    forged.push(other_name);
    let mut other_type = good.clone();
    other_type.queries[0].set_query_type(RecordType::AAAA);
    forged.push(other_type);
    let mut other_class = good.clone();
    other_class.queries[0].set_query_class(DNSClass::CH);
    forged.push(other_class);
    let mut no_question = good.clone();
    no_question.queries.clear();
    forged.push(no_question);
    for message in forged {
        bench.answer(id, server, &message);
        assert!(bench.replies().is_empty(), "{message:?}");
    }
    bench.answer(id, resolver(77), &good);
    assert!(bench.replies().is_empty());
    bench.answer(id, server, &good);
    assert_eq!(addrs(&bench.reply()), ["93.184.216.34"]);
    // The exchange is over: nothing more counts.
    bench.answer(id, server, &good);
    assert!(bench.replies().is_empty());
}

#[test]
fn message_ids_follow_from_the_seed_and_spread() {
    let ids = |seed| {
        let mut ids = Ids::new([seed; 32]);
        (0..2_000).map(|_| ids.next_id()).collect::<Vec<u16>>()
    };
    assert_eq!(ids(1), ids(1));
    assert_ne!(ids(1), ids(2));
    let distinct: std::collections::HashSet<u16> = ids(1).into_iter().collect();
    assert!(distinct.len() > 1_900);
}
