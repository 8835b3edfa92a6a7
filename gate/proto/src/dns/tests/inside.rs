//! Names in reach: what is asked, and what of an answer passes.

use super::*;
use hickory_proto::rr::rdata::svcb::{
    Alpn, EchConfigList, IpHint, Mandatory, SvcParamKey, SvcParamValue,
};
use hickory_proto::rr::rdata::{HTTPS, SVCB};

#[test]
fn a_name_in_reach_is_an_entry_then_a_question_then_an_answer() {
    let mut bench = Bench::new("internet");
    bench.query("Shop.Example", RecordType::A);
    assert!(bench.exchanges().is_empty(), "asked before its entry");
    let asks = bench.asks();
    let [(id, entry)] = asks.as_slice() else {
        panic!("{asks:?}")
    };
    assert_eq!(
        *entry,
        NameAsked {
            host: host("shop.example"),
            qtype: 1,
            count: 1
        }
    );
    bench.dns.handle_committed(bench.now, *id, &bench.policy);
    bench.drain();
    let exchanges = bench.exchanges();
    let [(id, server, Transport::Udp, asked)] = exchanges.as_slice() else {
        panic!("{exchanges:?}")
    };
    assert_eq!(*server, resolver(1));
    assert!(asked.metadata.recursion_desired);
    assert_eq!(asked.edns.as_ref().unwrap().max_payload(), 1_232);
    bench.answer(
        *id,
        *server,
        &with(asked, &[addr_record("shop.example", "93.184.216.34")]),
    );
    let reply = bench.reply();
    assert_eq!(addrs(&reply), ["93.184.216.34"]);
    assert!(reply.queries[0].name().eq_case(&name("Shop.Example")));
    assert_eq!(bench.cancels(), [*id]);
    let given: Vec<_> = bench
        .names
        .names(bench.now, "93.184.216.34".parse().unwrap())
        .collect();
    assert_eq!(given, [&host("shop.example")]);
    assert_eq!(bench.dns.questions(), 0);
    assert!(matches!(bench.out[..], [DnsOutput::Answered(_)]));
}

#[test]
fn an_address_that_no_dial_may_reach_is_withheld_and_said() {
    for ip in [
        "10.0.0.5",
        "192.168.1.20",
        "169.254.169.254",
        "0.0.0.0",
        "127.0.0.1",
    ] {
        let mut bench = Bench::new("internet");
        let reply = bench.resolve("shop.example", RecordType::A, &|asked| {
            with(asked, &[addr_record("shop.example", ip)])
        });
        assert!(is_nodata(&reply), "{ip}");
        assert_eq!(extended(&reply).unwrap().0, 15);
        assert!(bench.names.is_empty());
        let refusals = bench.refusals();
        assert_eq!(refusals.len(), 1);
        assert_eq!(refusals[0].refusal, Refusal::AnswerWithheld);
        assert_eq!(refusals[0].host, Some(host("shop.example")));
        assert_eq!(refusals[0].proto, Proto::Dns);
    }
    for ip in [
        "::ffff:7f00:1",
        "64:ff9b::a00:1",
        "fd00::1",
        "::1",
        "2002:a00:1::1",
    ] {
        let mut bench = Bench::new("shop.example:443");
        let reply = bench.resolve("shop.example", RecordType::AAAA, &|asked| {
            with(asked, &[addr_record("shop.example", ip)])
        });
        assert!(is_nodata(&reply), "{ip}");
        assert_eq!(bench.refusals().len(), 1);
    }
}

#[test]
fn what_is_public_passes_beside_what_is_withheld() {
    let mut bench = Bench::new("internet");
    let reply = bench.resolve("shop.example", RecordType::A, &|asked| {
        with(
            asked,
            &["93.184.216.34", "10.0.0.5", "93.184.216.35", "127.0.0.1"]
                .map(|ip| addr_record("shop.example", ip)),
        )
    });
    assert_eq!(addrs(&reply), ["93.184.216.34", "93.184.216.35"]);
    assert_eq!(extended(&reply), None);
    let refusals = bench.refusals();
    assert_eq!(refusals.len(), 1);
    assert_eq!(
        refusals[0].class,
        Some(AddrClass::Loopback),
        "the strictest of them"
    );
}

#[test]
fn under_local_only_local_answers_pass() {
    let zone = |ip: &'static str| {
        move |asked: &Message| {
            with(
                asked,
                &[addr_record(&asked.queries[0].name().to_string(), ip)],
            )
        }
    };
    let mut bench = Bench::new("local");
    let reply = bench.resolve("nas.lan.example", RecordType::A, &zone("192.168.1.20"));
    assert_eq!(addrs(&reply), ["192.168.1.20"]);
    let reply = bench.resolve("web.lan.example", RecordType::A, &zone("93.184.216.34"));
    assert!(is_nodata(&reply));
    assert_eq!(
        extended(&reply),
        Some((15, "answer was an internet address".to_owned()))
    );
}

#[test]
fn aaaa_is_nodata_while_the_node_has_no_ipv6_default_route() {
    let mut bench = Bench::new("internet");
    bench.policy.addrs.has_v6_default = false;
    bench.query("shop.example", RecordType::AAAA);
    assert!(is_nodata(&bench.reply()));
    assert!(bench.out.is_empty());
    bench.query("shop.example", RecordType::A);
    assert_eq!(bench.asks().len(), 1);
}

#[test]
fn a_cname_chain_is_granted_for_the_name_asked_and_not_for_the_names_on_the_way() {
    let mut bench = Bench::new("shop.example:443");
    let reply = bench.resolve("shop.example", RecordType::A, &|asked| {
        with(
            asked,
            &[
                cname("shop.example", "a.cdn.example"),
                cname("a.cdn.example", "b.cdn.example"),
                addr_record("b.cdn.example", "93.184.216.34"),
                addr_record("stray.example", "93.184.216.99"),
            ],
        )
    });
    assert_eq!(reply.answers.len(), 3);
    assert_eq!(addrs(&reply), ["93.184.216.34"]);
    assert!(bench.names.knows(bench.now, &host("shop.example")));
    for way in ["a.cdn.example", "b.cdn.example", "stray.example"] {
        assert!(!bench.names.knows(bench.now, &host(way)));
    }
}

#[test]
fn a_chain_that_the_resolver_leaves_open_is_followed_with_an_entry_each() {
    let mut bench = Bench::new("shop.example:443");
    let (id, server, _, asked) = bench.asked("shop.example", RecordType::A);
    bench.answer(
        id,
        server,
        &with(&asked, &[cname("shop.example", "cdn.example")]),
    );
    assert!(bench.exchanges().is_empty(), "followed before its entry");
    let asks = bench.asks();
    assert_eq!(asks[0].1.host, host("cdn.example"));
    bench
        .dns
        .handle_committed(bench.now, asks[0].0, &bench.policy);
    bench.drain();
    let (id, server, _, asked) = bench.exchanges().remove(0);
    bench.answer(
        id,
        server,
        &with(&asked, &[addr_record("cdn.example", "93.184.216.34")]),
    );
    let reply = bench.reply();
    assert_eq!(reply.answers.len(), 2);
    assert_eq!(addrs(&reply), ["93.184.216.34"]);
    assert!(bench.names.knows(bench.now, &host("shop.example")));
    assert!(!bench.names.knows(bench.now, &host("cdn.example")));
}

#[test]
fn a_chain_without_end_or_into_a_special_name_ends_as_nodata() {
    let mut bench = Bench::new("internet");
    let reply = bench.resolve("a.example", RecordType::A, &|asked| {
        let asked_name = asked.queries[0].name().to_string();
        let next = if asked_name == "a.example." {
            "b.example"
        } else {
            "a.example"
        };
        with(asked, &[cname(&asked_name, next)])
    });
    assert!(is_nodata(&reply));
    let reply = bench.resolve("c.example", RecordType::A, &|asked| {
        with(asked, &[cname("c.example", "printer.local")])
    });
    assert!(is_nodata(&reply));
}

#[test]
fn an_upstream_negative_keeps_its_start_of_authority() {
    let mut bench = Bench::new("internet");
    let zone = |code| move |asked: &Message| negative_to(asked, code);
    let reply = bench.resolve("a.example", RecordType::A, &zone(ResponseCode::NXDomain));
    assert!(is_nxdomain(&reply));
    assert_eq!(soa_ttl(&reply), Some(("example.".to_owned(), 300, 300)));
    let reply = bench.resolve("b.example", RecordType::A, &zone(ResponseCode::NoError));
    assert!(is_nodata(&reply));
}

#[test]
fn one_type_is_not_nxdomain_while_another_has_data() {
    let mut bench = Bench::new("internet");
    bench.resolve("shop.example", RecordType::A, &|asked| {
        with(asked, &[addr_record("shop.example", "93.184.216.34")])
    });
    let reply = bench.resolve("shop.example", RecordType::AAAA, &|asked| {
        negative_to(asked, ResponseCode::NXDomain)
    });
    assert!(is_nodata(&reply));
}

#[test]
fn one_label_goes_through_the_nodes_search_list() {
    let mut bench = Bench::new("local");
    let reply = bench.resolve("printer", RecordType::A, &|asked| {
        assert_eq!(asked.queries[0].name().to_string(), "printer.lan.example.");
        with(asked, &[addr_record("printer.lan.example", "192.168.1.20")])
    });
    assert_eq!(addrs(&reply), ["192.168.1.20"]);
    assert_eq!(
        reply.answers[0].data,
        RData::CNAME(CNAME(name("printer.lan.example")))
    );
    assert_eq!(reply.answers[0].name, name("printer"));
    let given: Vec<_> = bench
        .names
        .names(bench.now, "192.168.1.20".parse().unwrap())
        .collect();
    assert_eq!(given, [&host("printer.lan.example")]);
    // Not there: the name itself is next, with an entry of its own.
    let (id, server, _, asked) = bench.asked("scanner", RecordType::A);
    bench.answer(id, server, &negative_to(&asked, ResponseCode::NXDomain));
    assert_eq!(bench.asks()[0].1.host, host("scanner"));
}

/// The other type of the same name may have been found on the way: a resolver
/// that puts two answers together drops both for an NXDOMAIN.
#[test]
fn a_search_that_found_the_name_without_the_type_ends_as_nodata() {
    let mut bench = Bench::new("internet,local");
    let zone = |asked: &Message| {
        let query = &asked.queries[0];
        let there = query.name().to_string() == "printer.lan.example.";
        match (there, query.query_type()) {
            (true, RecordType::A) => {
                with(asked, &[addr_record("printer.lan.example", "192.168.1.20")])
            }
            (true, _) => negative_to(asked, ResponseCode::NoError),
            (false, _) => negative_to(asked, ResponseCode::NXDomain),
        }
    };
    let reply = bench.resolve("printer", RecordType::AAAA, &zone);
    assert!(is_nodata(&reply), "{reply:?}");
    let reply = bench.resolve("printer", RecordType::A, &zone);
    assert_eq!(addrs(&reply), ["192.168.1.20"]);
    // The control: nowhere on the way.
    let reply = bench.resolve("scanner", RecordType::AAAA, &zone);
    assert!(is_nxdomain(&reply));
}

#[test]
fn one_label_under_a_named_reach_only_becomes_names_in_reach() {
    let mut bench = Bench::new("printer.lan.example:631,shop.example");
    bench.query("scanner", RecordType::A);
    assert!(is_nxdomain(&bench.reply()));
    bench.query("printer", RecordType::A);
    let asked: Vec<_> = bench
        .asks()
        .into_iter()
        .map(|(_, entry)| entry.host)
        .collect();
    assert_eq!(asked, [host("printer.lan.example")]);
}

#[test]
fn any_is_answered_small_and_not_asked() {
    let mut bench = Bench::new("internet");
    bench.query("shop.example", RecordType::ANY);
    let reply = bench.reply();
    assert_eq!(reply.answers.len(), 1);
    assert!(matches!(reply.answers[0].data, RData::HINFO(_)));
    assert!(bench.out.is_empty());
}

#[test]
fn ttls_are_no_longer_than_the_grant() {
    let mut bench = Bench::new("internet");
    let reply = bench.resolve("shop.example", RecordType::A, &|asked| {
        let mut record = addr_record("shop.example", "93.184.216.34");
        record.ttl = 604_800;
        with(asked, &[record])
    });
    assert_eq!(reply.answers[0].ttl, 3_600);
}

#[test]
fn no_more_addresses_are_given_than_the_table_holds() {
    let mut bench = Bench::new("internet");
    let records: Vec<Record> = (0..1_500_u16)
        .map(|number| {
            let [high, low] = number.to_be_bytes();
            addr_record("shop.example", &format!("93.184.{high}.{low}"))
        })
        .collect();
    let bytes = question(7, "shop.example", RecordType::A, Some(1_232));
    bench.send(Transport::Tcp, &bytes);
    bench.commit_all();
    let (id, server, _, asked) = bench.exchanges().remove(0);
    bench.answer(id, server, &with(&asked, &records));
    let reply = bench.reply();
    assert_eq!(addrs(&reply).len(), 1_000);
    for ip in addrs(&reply) {
        assert_eq!(bench.names.names(bench.now, ip.parse().unwrap()).count(), 1);
    }
}

fn https(priority: u16, target: &str, params: Vec<(SvcParamKey, SvcParamValue)>) -> Record {
    let data = SVCB::new(priority, name(target), params);
    Record::from_rdata(name("shop.example"), 300, RData::HTTPS(HTTPS(data)))
}

fn all_params() -> Vec<(SvcParamKey, SvcParamValue)> {
    let v4 = ["93.184.216.34", "10.0.0.5"].map(|ip| A(ip.parse().unwrap()));
    vec![
        (
            SvcParamKey::Alpn,
            SvcParamValue::Alpn(Alpn(vec!["h2".to_owned()])),
        ),
        (
            SvcParamKey::Ipv4Hint,
            SvcParamValue::Ipv4Hint(IpHint(v4.to_vec())),
        ),
        (
            SvcParamKey::EchConfigList,
            SvcParamValue::EchConfigList(EchConfigList(vec![1, 2, 3])),
        ),
        (
            SvcParamKey::Ipv6Hint,
            SvcParamValue::Ipv6Hint(IpHint(vec![AAAA("fd00::1".parse().unwrap())])),
        ),
    ]
}

fn mandatory(key: SvcParamKey) -> Vec<(SvcParamKey, SvcParamValue)> {
    let all = (
        SvcParamKey::Mandatory,
        SvcParamValue::Mandatory(Mandatory(vec![key])),
    );
    std::iter::once(all).chain(all_params()).collect()
}

fn bindings(reach: &str, records: Vec<Record>) -> (Vec<SVCB>, Bench) {
    let mut bench = Bench::new(reach);
    let reply = bench.resolve("shop.example", RecordType::HTTPS, &|asked| {
        with(asked, &records)
    });
    let data = reply
        .answers
        .into_iter()
        .filter_map(|record| match record.data {
            RData::HTTPS(HTTPS(data)) => Some(data),
            _ => None,
        });
    (data.collect(), bench)
}

fn keys(data: &SVCB) -> Vec<SvcParamKey> {
    data.svc_params.iter().map(|(key, _)| *key).collect()
}

#[test]
fn under_internet_hints_are_judged_like_addresses_and_ech_stays() {
    let (kept, mut bench) = bindings("internet", vec![https(1, ".", all_params())]);
    assert_eq!(
        keys(&kept[0]),
        [
            SvcParamKey::Alpn,
            SvcParamKey::Ipv4Hint,
            SvcParamKey::EchConfigList
        ]
    );
    let hints = kept[0]
        .svc_params
        .iter()
        .find_map(|(_, value)| match value {
            SvcParamValue::Ipv4Hint(IpHint(hints)) => Some(hints.clone()),
            _ => None,
        });
    assert_eq!(hints, Some(vec![A("93.184.216.34".parse().unwrap())]));
    assert_eq!(bench.refusals()[0].refusal, Refusal::AnswerWithheld);
    assert!(bench.names.knows(bench.now, &host("shop.example")));
    // A record that needs a key which is gone goes with it.
    assert!(
        bindings(
            "internet",
            vec![https(1, ".", mandatory(SvcParamKey::Ipv6Hint))]
        )
        .0
        .is_empty()
    );
    assert_eq!(
        bindings("internet", vec![https(0, "pool.example", Vec::new())])
            .0
            .len(),
        1
    );
}

#[test]
fn ipv6_hints_go_while_the_node_has_no_ipv6_default_route() {
    let mut bench = Bench::new("internet");
    bench.policy.addrs.has_v6_default = false;
    let hint = AAAA("2606:2800:220:1::1".parse().unwrap());
    let params = vec![(
        SvcParamKey::Ipv6Hint,
        SvcParamValue::Ipv6Hint(IpHint(vec![hint])),
    )];
    let reply = bench.resolve("shop.example", RecordType::HTTPS, &|asked| {
        with(asked, &[https(1, ".", params.clone())])
    });
    let RData::HTTPS(HTTPS(data)) = &reply.answers[0].data else {
        panic!("{reply:?}")
    };
    assert!(data.svc_params.is_empty());
    assert!(bench.names.is_empty() && bench.refusals().is_empty());
}

#[test]
fn under_a_named_reach_bindings_lose_hints_ech_and_other_names() {
    let reach = "shop.example:443";
    for target in [".", "shop.example"] {
        let (kept, mut bench) = bindings(reach, vec![https(1, target, all_params())]);
        assert_eq!(keys(&kept[0]), [SvcParamKey::Alpn]);
        assert!(bench.names.is_empty());
        assert!(bench.refusals().is_empty());
    }
    for gone in [
        https(0, "pool.example", Vec::new()),
        https(1, "pool.example", all_params()),
        https(1, ".", mandatory(SvcParamKey::EchConfigList)),
        https(1, ".", mandatory(SvcParamKey::Ipv4Hint)),
    ] {
        assert!(bindings(reach, vec![gone]).0.is_empty());
    }
    assert_eq!(
        bindings(reach, vec![https(1, ".", mandatory(SvcParamKey::Alpn))])
            .0
            .len(),
        1
    );
}

#[test]
fn bindings_of_which_nothing_is_left_are_nodata() {
    let mut bench = Bench::new("shop.example:443");
    let reply = bench.resolve("shop.example", RecordType::HTTPS, &|asked| {
        with(asked, &[https(0, "pool.example", Vec::new())])
    });
    assert!(is_nodata(&reply));
}

#[test]
fn other_types_pass_as_they_are_and_nothing_beside_them() {
    let mut bench = Bench::new("internet");
    let text = Record::from_rdata(
        name("shop.example"),
        300,
        RData::TXT(TXT::new(vec!["v=spf1 -all".to_owned()])),
    );
    let reply = bench.resolve("shop.example", RecordType::TXT, &|asked| {
        let mut message = with(
            asked,
            &[text.clone(), addr_record("shop.example", "10.0.0.5")],
        );
        message.add_additional(addr_record("ns.example", "10.0.0.6"));
        message.add_authority(addr_record("ns.example", "10.0.0.7"));
        message.metadata.authentic_data = true;
        message
    });
    assert_eq!(reply.answers, [text]);
    assert!(reply.additionals.is_empty() && reply.authorities.is_empty());
    assert!(!reply.metadata.authentic_data);
}
