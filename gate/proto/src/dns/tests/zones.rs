//! Names that carry what a program would send: refused or asked, and counted.

use super::*;
use crate::dns::zones::MANY;

/// A name that carries 31 octets.
fn carrying(number: u32) -> String {
    format!("{number:062x}.evil.example")
}

#[test]
fn many_refused_names_of_one_zone_are_one_entry_with_a_count() {
    let mut bench = Bench::new("shop.example");
    let types = [
        RecordType::A,
        RecordType::TXT,
        RecordType::NULL,
        RecordType::CNAME,
    ];
    for number in 0..200 {
        bench.now += Duration::from_millis(25);
        bench.query(&carrying(number), types[number as usize % types.len()]);
        assert!(is_nxdomain(&bench.reply()));
    }
    bench.query("other.zone.example", RecordType::A);
    assert!(bench.asks().is_empty() && bench.exchanges().is_empty());
    let told = bench.refusals();
    assert_eq!(told.len(), MANY + 2, "{told:#?}");
    let zone = &told[MANY];
    assert_eq!((&zone.host, zone.count), (&Some(host("*.evil.example")), 1));
    assert_eq!(zone.refusal, Refusal::NameOutsideReach);
    // Another zone has its own.
    assert_eq!(told[MANY + 1].host, Some(host("other.zone.example")));
    bench.wait(SECOND * 10);
    let counted: u32 = bench.refusals().iter().map(|entry| entry.count).sum();
    assert_eq!(counted as usize, 200 - MANY - 1);
}

#[test]
fn many_asked_names_of_one_zone_have_an_entry_each_and_a_count() {
    let mut bench = Bench::new("internet");
    for number in 0..100 {
        bench.now += Duration::from_millis(25);
        bench.query(&carrying(number), RecordType::TXT);
    }
    // Few of another are not counted.
    bench.query("shop.example", RecordType::A);
    let asks = bench.asks();
    assert_eq!(asks.len(), 101);
    assert_eq!(asks[7].1.host, host(&carrying(7)));
    bench.wait(SECOND * 11);
    let counts = bench.counts();
    assert_eq!(
        counts,
        [NameAsked {
            host: host("*.evil.example"),
            qtype: 255,
            count: 100
        }]
    );
}

#[test]
fn what_a_box_asked_is_counted_at_its_end() {
    let mut bench = Bench::new("internet");
    for number in 0..40 {
        bench.query(&carrying(number), RecordType::A);
    }
    bench.dns.close();
    bench.drain();
    let counts = bench.counts();
    assert_eq!((counts.len(), counts[0].count), (1, 40));
}
