//! Arbitrary bytes and arbitrary answers.

use super::*;
use crate::dns::fuzz::fuzz_dns;
use proptest::prelude::*;

/// Inputs of the fuzz target made from real messages, whole and damaged.
fn corpus() -> Vec<Vec<u8>> {
    let texts = [
        "shop.example",
        "a.cdn.example",
        "printer",
        "localhost",
        "8.8.8.8.in-addr.arpa",
        "x.ip6.arpa",
        "hidden.onion",
        ".",
    ];
    let types = [
        RecordType::A,
        RecordType::AAAA,
        RecordType::HTTPS,
        RecordType::ANY,
    ];
    let mut inputs = Vec::new();
    for text in texts {
        for qtype in types {
            let query = question(0x4242, text, qtype, Some(1_232));
            let asked = Message::from_vec(&question(0, text, qtype, None)).unwrap();
            let answers = [
                negative_to(&asked, ResponseCode::NXDomain),
                with(
                    &asked,
                    &[
                        addr_record(text, "93.184.216.34"),
                        addr_record(text, "10.0.0.1"),
                    ],
                ),
                with(&asked, &[cname(text, "loop.example")]),
                with(&asked, &[cname(text, text)]),
            ];
            for (choice, answer) in answers.iter().enumerate() {
                let mut input = vec![
                    u8::try_from(choice).unwrap(),
                    u8::try_from(query.len()).unwrap(),
                ];
                input.extend_from_slice(&query);
                input.extend_from_slice(&answer.to_vec().unwrap());
                inputs.push(input);
            }
        }
    }
    inputs
}

#[test]
fn the_corpus_whole_and_damaged_breaks_no_promise() {
    for input in corpus() {
        for choice in 0..5_u8 {
            for flags in [0, 0x80, 0x40, 0x20, 0xa0] {
                let mut input = input.clone();
                input[0] = choice | flags;
                fuzz_dns(&input);
            }
        }
        for at in (0..input.len()).step_by(3) {
            let mut damaged = input.clone();
            damaged[at] ^= 0xff;
            fuzz_dns(&damaged);
            fuzz_dns(&input[..at]);
        }
    }
}

fn any_label() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[a-zA-Z_][a-z0-9-]{0,8}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 1..20),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn arbitrary_bytes_break_no_promise(data in prop::collection::vec(any::<u8>(), 0..400)) {
        fuzz_dns(&data);
    }

    #[test]
    fn any_name_is_echoed_byte_for_byte_and_has_a_form_of_its_own(
        labels in prop::collection::vec(any_label(), 1..6),
        other in prop::collection::vec(any_label(), 1..6),
    ) {
        let wire = |labels: &[Vec<u8>]| {
            let mut name = Name::from_labels(labels.iter().map(Vec::as_slice)).unwrap();
            name.set_fqdn(true);
            name
        };
        let (one, two) = (wire(&labels), wire(&other));
        prop_assert_eq!(one.eq_ignore_root(&two), host_of(&one) == host_of(&two));
        let mut message = Message::new(1, MessageType::Query, OpCode::Query);
        message.add_query(Query::query(one, RecordType::A));
        let bytes = message.to_vec().unwrap();
        let mut bench = Bench::new("nothing");
        bench.send(Transport::Udp, &bytes);
        let DnsOutput::Reply { bytes: reply, .. } = bench.out.iter()
            .find(|output| matches!(output, DnsOutput::Reply { .. })).unwrap() else { panic!() };
        prop_assert_eq!(reply.get(12..bytes.len()), bytes.get(12..));
    }

    /// Whatever addresses a resolver gives, the box is given exactly those that
    /// some dial may reach, and the dial agrees.
    #[test]
    fn what_passes_is_what_may_be_dialled(
        ips in prop::collection::vec(
            prop_oneof![
                any::<u32>().prop_map(Ipv4Addr::from),
                prop::sample::select(vec![
                    Ipv4Addr::new(10, 0, 0, 1),
                    Ipv4Addr::new(192, 168, 1, 20),
                    Ipv4Addr::new(169, 254, 169, 254),
                    Ipv4Addr::new(93, 184, 216, 34),
                ]),
            ],
            1..8,
        ),
        reach in prop::sample::select(vec![
            "internet", "shop.example", "internet,local", "shop.example:443,192.168.1.20:443",
        ]),
    ) {
        let mut bench = Bench::new(reach);
        let reply = bench.resolve("shop.example", RecordType::A, &|asked| {
            let records: Vec<Record> =
                ips.iter().map(|ip| addr_record("shop.example", &ip.to_string())).collect();
            with(asked, &records)
        });
        let given = addrs(&reply);
        for ip in &ips {
            let dst = SocketAddr::new(IpAddr::V4(*ip), 443);
            let names: Vec<&Host> = bench.names.names(bench.now, dst.ip()).collect();
            let decision = bench.policy.decide(Transport::Tcp, dst, names);
            let allowed = matches!(decision.verdict, bailey_model::Verdict::Allow(_));
            prop_assert_eq!(given.contains(&ip.to_string()), allowed, "{} {:?}", ip, decision);
        }
    }
}
