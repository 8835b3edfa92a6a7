//! What is answered here, and what is outside reach.

use super::*;
use hickory_proto::rr::rdata::PTR;

#[test]
fn a_name_outside_reach_is_nxdomain_for_every_type_and_is_never_asked() {
    let mut bench = Bench::new("shop.example:443");
    for number in (1..=60_u16).filter(|number| *number != 41) {
        bench.now += SECOND;
        bench.query("Deep.Evil.Example", RecordType::from(number));
        let reply = bench.reply();
        assert!(is_nxdomain(&reply), "type {number}: {reply:?}");
        assert_eq!(
            extended(&reply),
            Some((
                15,
                "refused by bailey: outside this box's reach (/run/bailey/refusals; outside: \
                 bailey why)"
                    .to_owned()
            ))
        );
        assert_eq!(soa_ttl(&reply), Some(("Evil.Example.".to_owned(), 1, 1)));
        let metadata = reply.metadata;
        assert!(metadata.recursion_desired && metadata.recursion_available);
        assert!(!metadata.authoritative && !metadata.authentic_data && !metadata.truncation);
        assert!(bench.asks().is_empty() && bench.exchanges().is_empty());
    }
    let refusals = bench.refusals();
    assert!(
        refusals
            .iter()
            .all(|refused| refused.host == Some(host("deep.evil.example")))
    );
    assert!(
        refusals
            .iter()
            .all(|refused| refused.refusal == Refusal::NameOutsideReach)
    );
}

#[test]
fn the_question_is_echoed_byte_for_byte() {
    let mut bench = Bench::new("nothing");
    let bytes = question(9, "wWw.EviL.eXample", RecordType::A, None);
    bench.send(Transport::Udp, &bytes);
    let replies = bench.take(|output| match output {
        DnsOutput::Reply { bytes, .. } => Some(bytes.clone()),
        _ => None,
    });
    let [reply] = replies.as_slice() else {
        panic!("{replies:?}")
    };
    assert_eq!(reply.get(12..bytes.len()), bytes.get(12..));
    let reply = Message::from_vec(reply).unwrap();
    assert!(reply.edns.is_none(), "no EDNS asked, none answered");
}

#[test]
fn equal_refused_names_within_ten_seconds_are_one_entry_and_a_count() {
    let mut bench = Bench::new("nothing");
    for _ in 0..5 {
        bench.query("evil.example", RecordType::A);
        bench.query("evil.example", RecordType::AAAA);
    }
    bench.query("other.example", RecordType::A);
    assert_eq!(bench.replies().len(), 11);
    let told: Vec<_> = bench
        .refusals()
        .into_iter()
        .map(|refused| (refused.host, refused.count))
        .collect();
    let entry = |name, count| (Some(host(name)), count);
    assert_eq!(told, [entry("evil.example", 1), entry("other.example", 1)]);
    bench.wait(SECOND * 10);
    let told: Vec<_> = bench
        .refusals()
        .into_iter()
        .map(|refused| (refused.host, refused.count))
        .collect();
    assert_eq!(told, [entry("evil.example", 9)]);
}

#[test]
fn localhost_is_the_boxs_own() {
    let mut bench = Bench::new("nothing");
    for text in ["localhost", "a.b.LOCALHOST"] {
        bench.query(text, RecordType::A);
        assert_eq!(addrs(&bench.reply()), ["127.0.0.1"]);
        bench.query(text, RecordType::AAAA);
        assert_eq!(addrs(&bench.reply()), ["::1"]);
        bench.query(text, RecordType::MX);
        assert!(is_nodata(&bench.reply()));
    }
    assert!(bench.out.is_empty() && bench.names.is_empty());
}

#[test]
fn special_names_are_answered_here_under_every_reach() {
    for reach in [
        "internet",
        "nothing",
        "local",
        "shop.example,internet,local",
    ] {
        let mut bench = Bench::new(reach);
        bench.query("ipv4only.arpa", RecordType::A);
        assert_eq!(addrs(&bench.reply()), ["192.0.0.170", "192.0.0.171"]);
        bench.query("ipv4only.arpa", RecordType::AAAA);
        assert!(is_nodata(&bench.reply()));
        for text in [
            "host.bailey",
            "use-application-dns.net",
            "printer.local",
            "local",
            "hidden.onion",
            "a.invalid",
            "a.test",
        ] {
            for qtype in [
                RecordType::A,
                RecordType::AAAA,
                RecordType::HTTPS,
                RecordType::TXT,
            ] {
                bench.query(text, qtype);
                assert!(is_nxdomain(&bench.reply()), "{reach} {text} {qtype}");
            }
        }
        assert!(bench.asks().is_empty());
        let entered: Vec<_> = bench
            .refusals()
            .into_iter()
            .filter_map(|refused| refused.host)
            .collect();
        let want = [
            "printer.local",
            "local",
            "hidden.onion",
            "a.invalid",
            "a.test",
        ];
        assert_eq!(entered, want.map(host));
    }
}

#[test]
fn an_ancestor_of_a_granted_name_exists() {
    let mut bench = Bench::new("a.b.example,*.c.example");
    for text in ["b.example", "example", "c.example", "arpa", "in-addr.arpa"] {
        for qtype in [RecordType::A, RecordType::NS, RecordType::ANY] {
            bench.query(text, qtype);
            assert!(is_nodata(&bench.reply()), "{text} {qtype}");
        }
    }
    let root = question(5, ".", RecordType::NS, None);
    bench.send(Transport::Udp, &root);
    assert!(is_nodata(&bench.reply()));
    assert!(bench.out.is_empty());
    bench.query("x.b.example", RecordType::A);
    assert!(is_nxdomain(&bench.reply()));
}

#[test]
fn an_upstream_nxdomain_above_a_granted_name_becomes_nodata() {
    let mut bench = Bench::new("internet,a.b.example");
    let reply = bench.resolve("b.example", RecordType::A, &|asked| {
        negative_to(asked, ResponseCode::NXDomain)
    });
    assert!(is_nodata(&reply));
}

#[test]
fn service_labels_under_a_granted_name_are_in_reach() {
    let mut bench = Bench::new("shop.example:443");
    for text in ["_https._tcp.shop.example", "_443._https.shop.example"] {
        bench.query(text, RecordType::SRV);
        assert_eq!(bench.asks().len(), 1, "{text}");
    }
    bench.query("_https.www.shop.example", RecordType::SRV);
    assert!(is_nxdomain(&bench.reply()));
}

#[test]
fn a_reverse_name_is_answered_from_what_this_box_was_given() {
    let mut bench = Bench::new("shop.example:443");
    bench.names.give(
        bench.now,
        "93.184.216.34".parse().unwrap(),
        &host("shop.example"),
        SECOND * 300,
    );
    let given = "34.216.184.93.in-addr.arpa";
    bench.query(given, RecordType::PTR);
    let reply = bench.reply();
    assert_eq!(reply.answers[0].data, RData::PTR(PTR(name("shop.example"))));
    bench.query(given, RecordType::TXT);
    assert!(is_nodata(&bench.reply()));
    bench.query("35.216.184.93.in-addr.arpa", RecordType::PTR);
    assert!(is_nxdomain(&bench.reply()));
    bench.query("216.184.93.in-addr.arpa", RecordType::SOA);
    assert!(is_nodata(&bench.reply()));
    bench.now += SECOND * 400;
    bench.query(given, RecordType::PTR);
    assert!(is_nxdomain(&bench.reply()));
    assert!(bench.asks().is_empty());
}

#[test]
fn a_reverse_name_is_asked_for_only_under_internet_and_only_of_public_addresses() {
    let v6 = |text: &str| {
        let octets = text.parse::<Ipv6Addr>().unwrap().octets();
        let nibbles: Vec<String> = octets
            .iter()
            .flat_map(|octet| [octet >> 4, octet & 15])
            .rev()
            .map(|nibble| format!("{nibble:x}"))
            .collect();
        format!("{}.ip6.arpa", nibbles.join("."))
    };
    let mut bench = Bench::new("internet");
    for (text, asked) in [
        ("8.8.8.8.in-addr.arpa".to_owned(), true),
        (v6("2606:4700::1111"), true),
        ("9.1.168.192.in-addr.arpa".to_owned(), false),
        ("1.0.0.127.in-addr.arpa".to_owned(), false),
        ("254.169.254.169.in-addr.arpa".to_owned(), false),
        (v6("fd00::1"), false),
        (v6("64:ff9b::a00:1"), false),
        ("08.8.8.8.in-addr.arpa".to_owned(), false),
        ("b._dns-sd._udp.0.1.168.192.in-addr.arpa".to_owned(), false),
        ("secret.8.8.8.8.in-addr.arpa".to_owned(), false),
    ] {
        bench.query(&text, RecordType::PTR);
        assert_eq!(bench.asks().len(), usize::from(asked), "{text}");
        assert_eq!(
            bench
                .replies()
                .iter()
                .filter(|reply| is_nxdomain(reply))
                .count(),
            usize::from(!asked)
        );
    }
    bench.query("8.8.8.8.in-addr.arpa", RecordType::TXT);
    assert!(is_nxdomain(&bench.reply()));
}

#[test]
fn the_hosts_file_is_answered_here_where_the_reach_covers_it() {
    let ask = |reach: &str, text: &str, qtype| {
        let mut bench = Bench::new(reach);
        bench.query(text, qtype);
        (bench.reply(), bench)
    };
    let (reply, mut bench) = ask("local", "nas.home", RecordType::A);
    assert_eq!(addrs(&reply), ["192.168.1.9"]);
    assert!(bench.asks().is_empty());
    assert!(bench.names.knows(bench.now, &host("nas.home")));
    assert_eq!(
        addrs(&ask("internet,local", "nas", RecordType::A).0),
        ["192.168.1.9"]
    );
    assert!(is_nodata(&ask("local", "nas.home", RecordType::AAAA).0));
    assert!(is_nodata(&ask("local", "nas.home", RecordType::MX).0));
    assert_eq!(
        addrs(&ask("pinned.example:80", "pinned.example", RecordType::A).0),
        ["93.184.216.40"]
    );
    // Not granted by its class: withheld, and said.
    let (reply, mut bench) = ask("internet", "nas.home", RecordType::A);
    assert!(is_nodata(&reply));
    assert_eq!(
        extended(&reply),
        Some((15, "answer was a local address".to_owned()))
    );
    let refusals = bench.refusals();
    assert_eq!(refusals.len(), 1);
    assert_eq!(refusals[0].refusal, Refusal::AnswerWithheld);
    assert_eq!(refusals[0].class, Some(AddrClass::Local));
    // The node's loopback names stay the node's.
    let (reply, _) = ask("internet,local", "node.home", RecordType::A);
    assert!(is_nodata(&reply));
    // Outside reach altogether.
    assert!(is_nxdomain(
        &ask("shop.example", "nas.home", RecordType::A).0
    ));
    assert!(is_nxdomain(&ask("nothing", "nas", RecordType::A).0));
}

#[test]
fn the_nodes_loopback_has_a_name_where_a_port_of_it_is_granted() {
    let mut bench = Bench::new("lo:5432");
    bench.query("host.bailey", RecordType::A);
    assert_eq!(addrs(&bench.reply()), ["192.0.0.1"]);
    bench.query("host.bailey", RecordType::AAAA);
    assert_eq!(addrs(&bench.reply()), ["fd00:ba11:e700::1"]);
    for (name, qtype) in [("host.bailey", RecordType::TXT), ("bailey", RecordType::A)] {
        bench.query(name, qtype);
        assert!(is_nodata(&bench.reply()), "{name}");
    }
    bench.query("other.host.bailey", RecordType::A);
    assert!(is_nxdomain(&bench.reply()));
    assert!(bench.asks().is_empty() && bench.refusals().is_empty());
}

#[test]
fn a_refused_name_of_the_web_is_said_to_be_one() {
    let mut bench = Bench::new("shop.example");
    let web = |bench: &mut Bench| {
        bench.take(|output| match output {
            DnsOutput::Web(host) => Some(host.clone()),
            _ => None,
        })
    };
    for qtype in [RecordType::A, RecordType::AAAA, RecordType::SVCB] {
        bench.query("other.example", qtype);
        assert_eq!(web(&mut bench), []);
    }
    bench.query("other.example", RecordType::HTTPS);
    assert_eq!(web(&mut bench), [host("other.example")]);
    assert_eq!(bench.refusals().len(), 1, "and is still one refusal");
    // What is in reach, or answered here, is refused to nobody.
    bench.query("shop.example", RecordType::HTTPS);
    bench.query("localhost", RecordType::HTTPS);
    assert_eq!(web(&mut bench), []);
    // Past the rate it is not said either.
    for number in 0..200 {
        bench.query(&format!("x{number}.example"), RecordType::HTTPS);
    }
    assert!(web(&mut bench).len() < usize::try_from(QUESTIONS_PER_SECOND).unwrap());
}
