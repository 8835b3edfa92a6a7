//! What is told of what the box was answered.

use super::*;
use bailey_model::NameAnswer;

impl Bench {
    fn answered(&mut self) -> Vec<NameAnswered> {
        self.take(|output| match output {
            DnsOutput::Answered(it) => Some(it.clone()),
            _ => None,
        })
    }
}

fn told(text: &str, answer: NameAnswer, addrs: &[&str], count: u32) -> NameAnswered {
    NameAnswered {
        host: host(text),
        qtype: 1,
        answer,
        addrs: addrs.iter().map(|ip| ip.parse().unwrap()).collect(),
        more: 0,
        ttl: if addrs.is_empty() { 0 } else { 300 },
        count,
    }
}

#[test]
fn each_end_of_a_question_is_told_with_what_was_given() {
    let mut bench = Bench::new("internet");
    let zone = |asked: &Message| match asked.queries[0].name().to_ascii().as_str() {
        "shop.example." => with(
            asked,
            &[
                addr_record("shop.example", "93.184.216.35"),
                addr_record("shop.example", "93.184.216.34"),
            ],
        ),
        // One that a part of is kept back, and one whose all is.
        "mixed.example." => with(
            asked,
            &[
                addr_record("mixed.example", "93.184.216.34"),
                addr_record("mixed.example", "192.168.1.9"),
            ],
        ),
        "inner.example." => with(asked, &[addr_record("inner.example", "192.168.1.9")]),
        "empty.example." => negative_to(asked, ResponseCode::NoError),
        "away.example." => with(asked, &[cname("away.example", "shop.example")]),
        _ => negative_to(asked, ResponseCode::NXDomain),
    };
    for (name, answer, addrs) in [
        (
            "shop.example",
            NameAnswer::Records,
            &["93.184.216.34", "93.184.216.35"][..],
        ),
        ("mixed.example", NameAnswer::Records, &["93.184.216.34"]),
        ("inner.example", NameAnswer::Withheld, &[]),
        ("empty.example", NameAnswer::NoRecords, &[]),
        ("none.example", NameAnswer::NoName, &[]),
        // By the name that was asked, whatever the gate followed.
        (
            "away.example",
            NameAnswer::Records,
            &["93.184.216.34", "93.184.216.35"],
        ),
    ] {
        let reply = bench.resolve(name, RecordType::A, &zone);
        let given = bench.answered();
        assert_eq!(given, [told(name, answer, addrs, 1)]);
        let mut shown = super::addrs(&reply);
        shown.sort();
        let listed: Vec<String> = given[0].addrs.iter().map(ToString::to_string).collect();
        assert_eq!(listed, shown, "{name}");
        let rcode = reply.metadata.response_code == ResponseCode::NXDomain;
        assert_eq!(rcode, answer.rcode() == "NXDOMAIN", "{name}");
    }
    bench.query("silent.example", RecordType::A);
    bench.commit_all();
    bench.wait(ANSWER_WITHIN);
    assert_eq!(
        bench.answered(),
        [told("silent.example", NameAnswer::Failed, &[], 1)]
    );
}

#[test]
fn equal_answers_within_ten_seconds_are_one_entry_and_a_count() {
    let mut bench = Bench::new("internet");
    let turn = std::cell::Cell::new(0_u32);
    let zone = |asked: &Message| {
        turn.set(turn.get() + 1);
        let mut records = vec![
            addr_record("shop.example", "93.184.216.34"),
            addr_record("shop.example", "93.184.216.35"),
        ];
        // Turned round, and with less time left: the same answer.
        records.rotate_left(usize::try_from(turn.get()).unwrap() % 2);
        records
            .iter_mut()
            .for_each(|record| record.ttl -= turn.get());
        with(asked, &records)
    };
    for _ in 0..5 {
        bench.resolve("shop.example", RecordType::A, &zone);
    }
    let mut first = told(
        "shop.example",
        NameAnswer::Records,
        &["93.184.216.34", "93.184.216.35"],
        1,
    );
    first.ttl = 299;
    assert_eq!(bench.answered(), [first.clone()]);
    // Another answer within them is another entry.
    let other = |asked: &Message| with(asked, &[addr_record("shop.example", "93.184.216.36")]);
    bench.resolve("shop.example", RecordType::A, &other);
    assert_eq!(bench.answered().len(), 1);
    bench.wait(SECOND * 10);
    assert_eq!(bench.answered(), [NameAnswered { count: 4, ..first }]);
    // What was asked is counted by itself: five further ones after the first.
    assert_eq!(bench.counts()[0].count, 5);
}

#[test]
fn what_is_refused_or_never_asked_has_no_answer_beside_its_refusal() {
    let mut bench = Bench::new("shop.example");
    bench.query("evil.example", RecordType::A);
    assert_eq!(bench.refusals().len(), 1);
    // The hosts file's word, and a name that the audit could not take.
    bench.query("nas.home", RecordType::A);
    bench.query("shop.example", RecordType::A);
    for (id, _) in bench.asks() {
        bench.dns.handle_refused(bench.now, id);
    }
    bench.drain();
    assert_eq!(bench.answered(), []);
    // One that left the reach while it was asked.
    let (id, server, _, asked) = bench.asked("shop.example", RecordType::A);
    bench.policy.reach = "other.example".parse().unwrap();
    bench.dns.handle_reach(bench.now, &bench.policy);
    bench.drain();
    let late = with(&asked, &[addr_record("shop.example", "93.184.216.34")]);
    bench.answer(id, server, &late);
    assert_eq!(bench.answered(), []);
}

#[test]
fn of_many_addresses_so_many_are_listed_and_the_others_counted() {
    let mut bench = Bench::new("internet");
    let zone = |asked: &Message| {
        let record =
            |n: u32| addr_record("pool.example", &format!("93.184.{}.{}", n / 200, n % 200));
        with(asked, &(0..300).map(record).collect::<Vec<_>>())
    };
    bench.resolve("pool.example", RecordType::A, &zone);
    let told = bench.answered().remove(0);
    assert_eq!(told.addrs.len(), NameAnswered::MAX_ADDRS);
    assert_eq!(told.more, 300 - 16);
}
