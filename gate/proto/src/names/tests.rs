use super::*;
use proptest::prelude::*;
use std::net::Ipv4Addr;

const SECOND: Duration = Duration::from_secs(1);

fn host(text: &str) -> Host {
    Host::new(text).unwrap()
}

fn addr(number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(0x5db8_0000 + number))
}

fn names(table: &NameTable, now: Now, ip: IpAddr) -> Vec<&str> {
    table.names(now, ip).map(Host::as_str).collect()
}

#[test]
fn a_gift_counts_for_its_ttl_held_to_bounds_and_sixty_seconds() {
    for (ttl, holds) in [
        (0, 90),
        (29, 90),
        (30, 90),
        (300, 360),
        (3_600, 3_660),
        (86_400, 3_660),
    ] {
        let mut table = NameTable::new();
        table.give(SECOND, addr(1), &host("a.example"), SECOND * ttl);
        let end = SECOND * (1 + holds);
        assert_eq!(
            names(&table, end - Duration::from_millis(1), addr(1)),
            ["a.example"]
        );
        assert!(table.knows(end - Duration::from_millis(1), &host("a.example")));
        assert!(names(&table, end, addr(1)).is_empty(), "ttl {ttl}");
        assert!(!table.knows(end, &host("a.example")));
    }
}

#[test]
fn a_shorter_gift_does_not_cut_a_longer_one() {
    let mut table = NameTable::new();
    table.give(Now::ZERO, addr(1), &host("a.example"), SECOND * 3_600);
    table.give(SECOND, addr(1), &host("a.example"), SECOND);
    assert_eq!(table.len(), 1);
    assert_eq!(names(&table, SECOND * 3_000, addr(1)), ["a.example"]);
}

#[test]
fn names_come_newest_given_first() {
    let mut table = NameTable::new();
    for name in ["a.example", "b.example", "c.example", "a.example"] {
        table.give(Now::ZERO, addr(1), &host(name), SECOND);
    }
    assert_eq!(
        names(&table, SECOND, addr(1)),
        ["a.example", "c.example", "b.example"]
    );
    assert!(names(&table, SECOND, addr(2)).is_empty());
}

#[test]
fn a_mapped_address_is_the_address_it_maps() {
    let mut table = NameTable::new();
    table.give(
        Now::ZERO,
        "::ffff:93.184.216.34".parse().unwrap(),
        &host("a.example"),
        SECOND,
    );
    assert_eq!(
        names(&table, SECOND, "93.184.216.34".parse().unwrap()),
        ["a.example"]
    );
}

#[test]
fn a_name_keeps_its_newest_thousand_addresses() {
    let mut table = NameTable::new();
    for number in 0..1_500 {
        table.give(Now::ZERO, addr(number), &host("a.example"), SECOND);
    }
    assert_eq!(table.len(), MAX_ADDRS_PER_NAME);
    assert!(names(&table, SECOND, addr(499)).is_empty());
    assert_eq!(names(&table, SECOND, addr(500)), ["a.example"]);
}

#[test]
fn an_address_keeps_its_newest_names() {
    let mut table = NameTable::new();
    for number in 0..300 {
        table.give(
            Now::ZERO,
            addr(1),
            &host(&format!("n{number}.example")),
            SECOND,
        );
    }
    let held = names(&table, SECOND, addr(1));
    assert_eq!(held.len(), MAX_NAMES_PER_ADDR);
    assert_eq!(held.first(), Some(&"n299.example"));
}

#[test]
fn the_name_given_longest_ago_makes_room() {
    let mut table = NameTable::new();
    for number in 0..u32::try_from(MAX_NAMES).unwrap() {
        table.give(
            Now::ZERO,
            addr(number),
            &host(&format!("n{number}.example")),
            SECOND,
        );
    }
    table.give(Now::ZERO, addr(0), &host("n0.example"), SECOND);
    table.give(Now::ZERO, addr(9_999), &host("new.example"), SECOND);
    assert!(table.knows(SECOND, &host("n0.example")));
    assert!(!table.knows(SECOND, &host("n1.example")));
    assert!(table.knows(SECOND, &host("new.example")));
    assert_eq!(table.by_name.len(), MAX_NAMES);
}

#[test]
fn the_whole_table_is_bounded() {
    let mut table = NameTable::new();
    for name in 0..80 {
        let name = host(&format!("n{name}.example"));
        for number in 0..1_000 {
            table.give(Now::ZERO, addr(number), &name, SECOND);
        }
    }
    assert!(table.len() <= MAX_PAIRS);
    consistent(&table);
}

fn consistent(table: &NameTable) {
    assert_eq!(table.by_age.len(), table.pairs.len());
    let by_addr: usize = table.by_addr.values().map(BTreeMap::len).sum();
    let by_name: usize = table.by_name.values().map(BTreeMap::len).sum();
    assert_eq!(by_addr, table.pairs.len());
    assert_eq!(by_name, table.pairs.len());
    assert_eq!(table.names_by_age.len(), table.by_name.len());
    assert!(table.by_addr.values().all(|names| !names.is_empty()));
    assert!(table.by_name.values().all(|given| !given.is_empty()));
}

proptest! {
    /// Against a list of all that was ever given.
    #[test]
    fn a_name_holds_exactly_while_a_gift_of_it_does(
        gifts in prop::collection::vec((0_u64..60, 0_u32..4, 0_u8..4, 0_u64..8_000), 1..60),
        asked in 0_u64..10_000,
    ) {
        let mut table = NameTable::new();
        let mut given: Vec<(u32, u8, Now)> = Vec::new();
        let mut now = Now::ZERO;
        for (wait, to, name, ttl) in gifts {
            now += Duration::from_secs(wait);
            let ttl = Duration::from_secs(ttl);
            table.give(now, addr(to), &host(&format!("n{name}.example")), ttl);
            given.push((to, name, now + ttl.clamp(MIN_TTL, MAX_TTL) + GRACE));
            consistent(&table);
        }
        let at = now + Duration::from_secs(asked);
        for to in 0..4 {
            for name in 0..4 {
                let want = given.iter().any(|gift| (gift.0, gift.1) == (to, name) && gift.2 > at);
                let text = format!("n{name}.example");
                prop_assert_eq!(names(&table, at, addr(to)).contains(&text.as_str()), want);
            }
        }
    }
}
