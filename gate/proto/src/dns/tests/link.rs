//! Names of the link, asked for by multicast DNS where the reach has `mdns`.

use super::*;

const GROUP: &str = "224.0.0.251:5353";
const PRINTER: &str = "192.168.1.20:5353";

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A responder's answer (RFC 6762 §6.7).
fn told(asked: &Message, ips: &[&str]) -> Message {
    let owner = asked.queries[0].name().to_ascii();
    let records: Vec<Record> = ips.iter().map(|ip| addr_record(&owner, ip)).collect();
    with(asked, &records)
}

#[test]
fn a_name_of_the_link_is_refused_without_mdns_and_asked_in_the_group_with_it() {
    for reach in ["internet", "internet,local", "local", "printer.local"] {
        let mut bench = Bench::new(reach);
        bench.query("printer.local", RecordType::A);
        assert!(is_nxdomain(&bench.reply()), "{reach}");
        assert!(bench.asks().is_empty(), "{reach}");
        assert_eq!(bench.refusals().len(), 1, "{reach}");
    }
    let mut bench = Bench::new("mdns,local");
    bench.query("printer.local", RecordType::A);
    assert!(bench.exchanges().is_empty(), "no entry, no ask");
    let (ask, entry) = bench.asks().remove(0);
    assert_eq!((entry.host, entry.qtype), (host("printer.local"), 1));
    bench.dns.handle_committed(bench.now, ask, &bench.policy);
    bench.drain();
    let (id, to, over, asked) = bench.exchanges().remove(0);
    assert_eq!((to, over), (addr(GROUP), Transport::Udp));
    assert!(!asked.metadata.recursion_desired && asked.edns.is_none());
    bench.answer(id, addr(PRINTER), &told(&asked, &["192.168.1.20"]));
    assert_eq!(addrs(&bench.reply()), ["192.168.1.20"]);
    assert_eq!(bench.cancels(), [id]);
}

#[test]
fn only_who_is_on_the_link_answers_for_it() {
    let mut bench = Bench::new("mdns,local");
    let (id, _, _, asked) = bench.asked("printer.local", RecordType::A);
    let answer = told(&asked, &["192.168.1.66"]);
    for from in [
        "93.184.216.34:5353",
        "192.168.1.20:53",
        "10.0.0.5:5353",
        "127.0.0.1:5353",
    ] {
        bench.answer(id, addr(from), &answer);
    }
    // Nor who does not know what was asked.
    let mut other = answer.clone();
    other.metadata.id ^= 1;
    bench.answer(id, addr(PRINTER), &other);
    assert!(bench.replies().is_empty());
    bench.answer(id, addr(PRINTER), &told(&asked, &["192.168.1.20"]));
    assert_eq!(addrs(&bench.reply()), ["192.168.1.20"]);
}

#[test]
fn what_it_leads_to_is_judged_and_only_the_link_itself_is_led_to() {
    // What the reach grants of what was answered.
    for (reach, given) in [
        ("mdns", &[][..]),
        ("mdns,internet", &[]),
        ("mdns,local", &["192.168.1.20"]),
        ("mdns,internet,local", &["192.168.1.20"]),
        ("mdns,192.168.1.20:631", &["192.168.1.20"]),
        ("mdns,192.168.1.21,10.0.0.5,93.184.216.34", &[]),
    ] {
        let mut bench = Bench::new(reach);
        let (id, _, _, asked) = bench.asked("printer.local", RecordType::A);
        let all = ["192.168.1.20", "93.184.216.34", "10.0.0.5", "127.0.0.1"];
        bench.answer(id, addr(PRINTER), &told(&asked, &all));
        let reply = bench.reply();
        assert_eq!(addrs(&reply), given, "{reach}");
        let refusals = bench.refusals();
        assert_eq!(refusals.len(), 1, "{reach}");
        assert_eq!(refusals[0].refusal, Refusal::AnswerWithheld);
        assert_eq!(is_nodata(&reply), given.is_empty());
    }
}

#[test]
fn a_name_that_nobody_on_the_link_answers_to_is_not_there() {
    let mut bench = Bench::new("mdns,local");
    let (id, ..) = bench.asked("nobody.local", RecordType::A);
    bench.wait(SECOND - Duration::from_millis(1));
    assert!(bench.replies().is_empty() && bench.exchanges().is_empty());
    bench.wait(Duration::from_millis(1));
    assert!(is_nxdomain(&bench.reply()));
    assert_eq!(bench.cancels(), [id]);
    // One type is never said not to be there while another has data.
    let (id, _, _, asked) = bench.asked("printer.local", RecordType::A);
    bench.answer(id, addr(PRINTER), &told(&asked, &["192.168.1.20"]));
    bench.replies();
    bench.asked("printer.local", RecordType::AAAA);
    bench.wait(SECOND);
    assert!(is_nodata(&bench.reply()));
    // The zone itself is there.
    bench.query("local", RecordType::A);
    assert!(is_nodata(&bench.reply()));
}

#[test]
fn the_link_is_asked_without_a_resolver_and_no_more_once_its_word_is_taken_back() {
    let mut bench = Bench::new("mdns,internet");
    bench.dns.set_facts(DnsFacts::default());
    bench.asked("printer.local", RecordType::A);
    bench.policy.reach = "internet".parse().unwrap();
    bench.dns.handle_reach(bench.now, &bench.policy);
    bench.drain();
    assert!(is_nxdomain(&bench.reply()));
    assert_eq!(bench.dns.questions(), 0);
}

#[test]
fn equal_questions_for_the_link_are_one_in_the_group() {
    let mut bench = Bench::new("mdns,local");
    let (id, _, _, asked) = bench.asked("printer.local", RecordType::A);
    bench.query("printer.local", RecordType::A);
    assert!(bench.exchanges().is_empty());
    bench.answer(id, addr(PRINTER), &told(&asked, &["192.168.1.20"]));
    assert_eq!(bench.replies().len(), 2);
}
