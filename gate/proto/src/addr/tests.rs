use super::*;
use AddrClass::{Gate, Internet, Local, Loopback, Metadata, Multicast, Node, Private, Reserved};
use proptest::prelude::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn nowhere() -> NodeAddrs {
    NodeAddrs::default()
}

/// For every registry block: before its first address, the first, the last,
/// after the last. Written by hand from the registries, not from the table.
const EXPECTED: &[(&str, AddrClass)] = &[
    // 0.0.0.0/32, 0.0.0.0/8
    ("0.0.0.0", Loopback),
    ("0.0.0.1", Reserved),
    ("0.255.255.255", Reserved),
    ("1.0.0.0", Internet),
    // 10.0.0.0/8
    ("9.255.255.255", Internet),
    ("10.0.0.0", Private),
    ("10.255.255.255", Private),
    ("11.0.0.0", Internet),
    // 100.64.0.0/10
    ("100.63.255.255", Internet),
    ("100.64.0.0", Private),
    ("100.100.100.199", Private),
    ("100.100.100.200", Metadata),
    ("100.100.100.201", Private),
    ("100.127.255.255", Private),
    ("100.128.0.0", Internet),
    // 127.0.0.0/8
    ("126.255.255.255", Internet),
    ("127.0.0.0", Loopback),
    ("127.0.0.53", Loopback),
    ("127.255.255.255", Loopback),
    ("128.0.0.0", Internet),
    // 168.63.129.16/32
    ("168.63.129.15", Internet),
    ("168.63.129.16", Metadata),
    ("168.63.129.17", Internet),
    // 169.254.0.0/16
    ("169.253.255.255", Internet),
    ("169.254.0.0", Private),
    ("169.254.169.253", Private),
    ("169.254.169.254", Metadata),
    ("169.254.169.255", Private),
    ("169.254.0.22", Private),
    ("169.254.0.23", Metadata),
    ("169.254.0.24", Private),
    ("169.254.42.41", Private),
    ("169.254.42.42", Metadata),
    ("169.254.42.43", Private),
    ("169.254.170.1", Private),
    ("169.254.170.2", Metadata),
    ("169.254.170.3", Private),
    ("169.254.170.22", Private),
    ("169.254.170.23", Metadata),
    ("169.254.170.24", Private),
    ("169.254.255.255", Private),
    ("169.255.0.0", Internet),
    // 172.16.0.0/12
    ("172.15.255.255", Internet),
    ("172.16.0.0", Private),
    ("172.31.255.255", Private),
    ("172.32.0.0", Internet),
    // 192.0.0.0/24 and what lies in it; the first eight are the gate's link
    ("191.255.255.255", Internet),
    ("192.0.0.0", Gate),
    ("192.0.0.1", Gate),
    ("192.0.0.7", Gate),
    ("192.0.0.8", Reserved),
    ("192.0.0.9", Internet),
    ("192.0.0.10", Internet),
    ("192.0.0.11", Reserved),
    ("192.0.0.169", Reserved),
    ("192.0.0.170", Reserved),
    ("192.0.0.171", Reserved),
    ("192.0.0.172", Reserved),
    ("192.0.0.191", Reserved),
    ("192.0.0.192", Metadata),
    ("192.0.0.193", Reserved),
    ("192.0.0.255", Reserved),
    ("192.0.1.0", Internet),
    // 192.0.2.0/24
    ("192.0.1.255", Internet),
    ("192.0.2.0", Reserved),
    ("192.0.2.255", Reserved),
    ("192.0.3.0", Internet),
    // 192.31.196.0/24, 192.52.193.0/24, 192.175.48.0/24
    ("192.31.195.255", Internet),
    ("192.31.196.0", Internet),
    ("192.31.196.255", Internet),
    ("192.31.197.0", Internet),
    ("192.52.193.0", Internet),
    ("192.52.193.255", Internet),
    ("192.175.48.0", Internet),
    ("192.175.48.255", Internet),
    // 192.88.99.0/24
    ("192.88.98.255", Internet),
    ("192.88.99.0", Reserved),
    ("192.88.99.1", Reserved),
    ("192.88.99.2", Reserved),
    ("192.88.99.255", Reserved),
    ("192.88.100.0", Internet),
    // 192.168.0.0/16
    ("192.167.255.255", Internet),
    ("192.168.0.0", Private),
    ("192.168.255.255", Private),
    ("192.169.0.0", Internet),
    // 198.18.0.0/15
    ("198.17.255.255", Internet),
    ("198.18.0.0", Reserved),
    ("198.19.255.255", Reserved),
    ("198.20.0.0", Internet),
    // 198.51.100.0/24, 203.0.113.0/24
    ("198.51.99.255", Internet),
    ("198.51.100.0", Reserved),
    ("198.51.100.255", Reserved),
    ("198.51.101.0", Internet),
    ("203.0.112.255", Internet),
    ("203.0.113.0", Reserved),
    ("203.0.113.255", Reserved),
    ("203.0.114.0", Internet),
    // 224.0.0.0/4, 240.0.0.0/4, 255.255.255.255/32
    ("223.255.255.255", Internet),
    ("224.0.0.0", Multicast),
    ("239.255.255.255", Multicast),
    ("240.0.0.0", Reserved),
    ("255.255.255.254", Reserved),
    ("255.255.255.255", Multicast),
    // ::/128, ::1/128, ::/96
    ("::", Loopback),
    ("::1", Loopback),
    ("::2", Reserved),
    ("::8.8.8.8", Reserved),
    ("::127.0.0.1", Loopback),
    ("::ffff:ffff", Multicast),
    ("::1:0:0", Reserved),
    // ::ffff:0:0/96
    ("::fffe:ffff:ffff", Reserved),
    ("::ffff:0.0.0.0", Loopback),
    ("::ffff:8.8.8.8", Internet),
    ("::ffff:10.0.0.1", Private),
    ("::ffff:127.0.0.1", Loopback),
    ("::ffff:169.254.169.254", Metadata),
    ("::ffff:192.0.0.1", Gate),
    ("::ffff:255.255.255.255", Multicast),
    ("::ffff:0:0:0", Reserved),
    ("::ffff:0:8.8.8.8", Reserved),
    // 64:ff9b::/96, 64:ff9b:1::/48
    ("64:ff9a:ffff:ffff:ffff:ffff:ffff:ffff", Reserved),
    ("64:ff9b::", Loopback),
    ("64:ff9b::8.8.8.8", Internet),
    ("64:ff9b::10.0.0.1", Private),
    ("64:ff9b::127.0.0.1", Loopback),
    ("64:ff9b::169.254.169.254", Metadata),
    ("64:ff9b::255.255.255.255", Multicast),
    ("64:ff9b::1:0:0", Reserved),
    ("64:ff9b:0:ffff:ffff:ffff:ffff:ffff", Reserved),
    ("64:ff9b:1::", Reserved),
    ("64:ff9b:1:ffff:ffff:ffff:ffff:ffff", Reserved),
    ("64:ff9b:2::", Reserved),
    // 100::/64, 100:0:0:1::/64
    ("ff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Reserved),
    ("100::", Reserved),
    ("100::ffff:ffff:ffff:ffff", Reserved),
    ("100:0:0:1::", Reserved),
    ("100:0:0:1:ffff:ffff:ffff:ffff", Reserved),
    ("100:0:0:2::", Reserved),
    // 2000::/3
    ("1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Reserved),
    ("2000::", Internet),
    ("3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Internet),
    ("4000::", Reserved),
    // 2001::/23 and what lies in it
    ("2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Internet),
    // Teredo of server 0.0.0.0 (loopback), client 255.255.255.255
    ("2001::", Loopback),
    // Teredo of server 65.54.227.120, client 192.0.2.45
    ("2001:0:4136:e378:8000:63bf:3fff:fdd2", Reserved),
    // Teredo of server 65.54.227.120, client 93.184.216.34
    ("2001:0:4136:e378:8000:63bf:a247:27dd", Internet),
    // Teredo of server 10.0.0.1, client 93.184.216.34
    ("2001:0:a00:1:8000:63bf:a247:27dd", Private),
    // Teredo of server 65.54.227.120, client 127.0.0.1
    ("2001:0:4136:e378:8000:63bf:80ff:fffe", Loopback),
    ("2001:1::", Reserved),
    ("2001:1::1", Internet),
    ("2001:1::2", Internet),
    ("2001:1::3", Internet),
    ("2001:1::4", Reserved),
    ("2001:2::", Reserved),
    ("2001:2:0:ffff:ffff:ffff:ffff:ffff", Reserved),
    ("2001:2:1::", Reserved),
    ("2001:2:ffff:ffff:ffff:ffff:ffff:ffff", Reserved),
    ("2001:3::", Internet),
    ("2001:3:ffff:ffff:ffff:ffff:ffff:ffff", Internet),
    ("2001:4::", Reserved),
    ("2001:4:111:ffff:ffff:ffff:ffff:ffff", Reserved),
    ("2001:4:112::", Internet),
    ("2001:4:112:ffff:ffff:ffff:ffff:ffff", Internet),
    ("2001:4:113::", Reserved),
    ("2001:f:ffff:ffff:ffff:ffff:ffff:ffff", Reserved),
    ("2001:10::", Reserved),
    ("2001:1f:ffff:ffff:ffff:ffff:ffff:ffff", Reserved),
    ("2001:20::", Internet),
    ("2001:2f:ffff:ffff:ffff:ffff:ffff:ffff", Internet),
    ("2001:30::", Internet),
    ("2001:3f:ffff:ffff:ffff:ffff:ffff:ffff", Internet),
    ("2001:40::", Reserved),
    ("2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", Reserved),
    ("2001:200::", Internet),
    // 2001:db8::/32
    ("2001:db7:ffff:ffff:ffff:ffff:ffff:ffff", Internet),
    ("2001:db8::", Reserved),
    ("2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", Reserved),
    ("2001:db9::", Internet),
    // 2002::/16
    ("2001:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Internet),
    ("2002::", Loopback),
    ("2002:5db8:d822::1", Internet),
    ("2002:a00:1::1", Private),
    ("2002:7f00:1::1", Loopback),
    ("2002:a9fe:a9fe::1", Metadata),
    ("2002:c000:204::1", Reserved),
    ("2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Multicast),
    ("2003::", Internet),
    // 2620:4f:8000::/48
    ("2620:4f:7fff:ffff:ffff:ffff:ffff:ffff", Internet),
    ("2620:4f:8000::", Internet),
    ("2620:4f:8001::", Internet),
    // 3fff::/20
    ("3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Internet),
    ("3fff::", Reserved),
    ("3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", Reserved),
    ("3fff:1000::", Internet),
    // 5f00::/16
    ("5eff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Reserved),
    ("5f00::", Reserved),
    ("5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Reserved),
    ("5f01::", Reserved),
    // fc00::/7
    ("fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Reserved),
    ("fc00::", Private),
    ("fd00:42::41", Private),
    ("fd00:42::42", Metadata),
    ("fd00:42::43", Private),
    ("fd00:ec2::22", Private),
    ("fd00:ec2::23", Metadata),
    ("fd00:ec2::24", Private),
    ("fd00:ec2::253", Private),
    ("fd00:ec2::254", Metadata),
    ("fd00:ec2::255", Private),
    ("fd20:ce::253", Private),
    ("fd20:ce::254", Metadata),
    ("fd20:ce::255", Private),
    ("fd00:ba11:e6ff:ffff:ffff:ffff:ffff:ffff", Private),
    ("fd00:ba11:e700::", Gate),
    ("fd00:ba11:e700::1", Gate),
    ("fd00:ba11:e700:0:ffff:ffff:ffff:ffff", Gate),
    ("fd00:ba11:e700:1::", Private),
    ("fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Private),
    ("fe00::", Reserved),
    // fe80::/10, fec0::/10
    ("fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Reserved),
    ("fe80::", Local),
    ("febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Local),
    ("fec0::", Reserved),
    ("feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Reserved),
    // ff00::/8
    ("ff00::", Multicast),
    ("ff02::fb", Multicast),
    ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Multicast),
    // ISATAP under a public prefix, both identifiers
    ("2620:0:1::5efe:10.0.0.1", Private),
    ("2620:0:1::200:5efe:127.0.0.1", Loopback),
    ("2620:0:1::5efe:93.184.216.34", Internet),
    ("2620:0:1::100:5efe:127.0.0.1", Internet),
    ("fe80::5efe:93.184.216.34", Local),
    ("fe80::a9fe:a9fd", Local),
    ("fe80::a9fe:a9fe", Metadata),
    ("fe80::a9fe:a9ff", Local),
    // ordinary
    ("93.184.216.34", Internet),
    ("8.8.8.8", Internet),
    ("2606:2800:220:1::1", Internet),
    ("2606:4700:4700::1111", Internet),
];

#[test]
fn every_boundary_of_the_registries_is_judged_as_they_say() {
    for (text, class) in EXPECTED {
        assert_eq!(classify(ip(text), &nowhere()), *class, "{text}");
    }
}

#[test]
fn every_row_of_the_table_has_its_boundaries_in_the_expected_list() {
    let listed: Vec<IpAddr> = EXPECTED.iter().map(|(text, _)| ip(text)).collect();
    for row in registry::V4 {
        let last = u32::from(row.first) | u32::MAX.checked_shr(row.len.into()).unwrap_or(0);
        for end in [row.first, Ipv4Addr::from(last)] {
            assert!(
                listed.contains(&end.into()),
                "{end} of {}/{}: {}",
                row.first,
                row.len,
                row.reason
            );
        }
    }
    for row in registry::V6.iter().filter(|row| row.len > 0) {
        let first = IpAddr::from(row.first);
        assert!(
            listed.contains(&first) || ip("::ffff:0.0.0.0") == first,
            "{first} of {}/{}: {}",
            row.first,
            row.len,
            row.reason
        );
    }
}

#[test]
fn a_row_starts_where_its_prefix_starts_and_has_a_reason() {
    for row in registry::V4 {
        let host_bits = u32::MAX.checked_shr(row.len.into()).unwrap_or(0);
        assert_eq!(u32::from(row.first) & host_bits, 0, "{}", row.first);
        assert!(row.reason.len() > 8);
    }
    for row in registry::V6 {
        let host_bits = u128::MAX.checked_shr(row.len.into()).unwrap_or(0);
        assert_eq!(u128::from(row.first) & host_bits, 0, "{}", row.first);
        assert!(row.reason.len() > 8);
    }
}

#[test]
fn own_addresses_and_on_link_networks_are_local_whatever_the_registry_says() {
    let node = NodeAddrs {
        own: vec![
            ip("203.0.113.9"),
            ip("93.184.216.34"),
            ip("2606:2800:220:1::1"),
        ],
        on_link: vec![(ip("198.18.3.0"), 24), (ip("2a00:1:2:3::"), 64)],
        tunnels: vec![(ip("100.64.0.0"), 10), (ip("44.0.0.0"), 9)],
        ..nowhere()
    };
    for (text, class) in [
        ("203.0.113.9", Local),
        ("203.0.113.10", Reserved),
        ("93.184.216.34", Local),
        ("::ffff:93.184.216.34", Local),
        ("64:ff9b::93.184.216.34", Local),
        ("2002:5db8:d822::7", Local),
        ("2606:2800:220:1::1", Local),
        ("2606:2800:220:1::2", Internet),
        ("198.18.3.77", Local),
        ("198.18.4.77", Reserved),
        ("2a00:1:2:3::99", Local),
        ("2a00:1:2:4::99", Internet),
        ("44.127.255.255", Local),
        ("44.128.0.0", Internet),
        ("100.100.100.200", Metadata),
    ] {
        assert_eq!(classify(ip(text), &node), class, "{text}");
    }
}

#[test]
fn a_private_address_is_local_only_where_the_node_itself_has_its_network() {
    let node = NodeAddrs {
        own: vec![ip("192.168.1.5"), ip("10.9.0.1")],
        on_link: vec![(ip("192.168.1.0"), 24), (ip("fd00:5::"), 64)],
        tunnels: vec![(ip("10.8.0.0"), 16), (ip("fd00:8::"), 48)],
        ..nowhere()
    };
    for (text, class) in [
        ("192.168.1.9", Local),
        ("10.9.0.1", Local),
        ("10.8.200.1", Local),
        ("fd00:5::9", Local),
        ("fd00:8:0:7::9", Local),
        ("::ffff:192.168.1.9", Local),
        // Whatever else is private is behind the gateway.
        ("192.168.2.9", Private),
        ("10.9.0.2", Private),
        ("172.17.0.1", Private),
        ("100.64.0.1", Private),
        ("169.254.7.7", Private),
        ("fd00:5:0:1::9", Private),
        ("::ffff:192.168.2.9", Private),
        ("64:ff9b::10.9.0.2", Private),
        // On a link by its very form.
        ("fe80::9", Local),
    ] {
        assert_eq!(classify(ip(text), &node), class, "{text}");
    }
    // What carries an address that no word of `local` opens is none of its own.
    assert_eq!(classify(ip("fd00:5::5efe:10.9.0.2"), &node), Private);
}

#[test]
fn own_addresses_do_not_soften_what_no_word_grants() {
    let node = NodeAddrs {
        own: vec![
            ip("127.0.0.1"),
            ip("::1"),
            ip("192.0.0.1"),
            ip("169.254.169.254"),
        ],
        on_link: vec![
            (ip("127.0.0.0"), 8),
            (ip("169.254.0.0"), 16),
            (ip("224.0.0.0"), 4),
            (ip("fd00:ec2::"), 32),
            (ip("ff00::"), 8),
            (ip("fe80::"), 10),
        ],
        ..nowhere()
    };
    for (text, class) in [
        ("127.0.0.1", Loopback),
        ("::1", Loopback),
        ("192.0.0.1", Gate),
        ("169.254.169.254", Metadata),
        ("169.254.7.7", Local),
        ("fd00:ec2::254", Metadata),
        ("224.0.0.251", Multicast),
        ("ff02::fb", Multicast),
        ("fe80::1", Local),
    ] {
        assert_eq!(classify(ip(text), &node), class, "{text}");
    }
}

#[test]
fn the_broadcast_of_an_on_link_network_is_multicast() {
    let node = NodeAddrs {
        on_link: vec![
            (ip("192.168.1.7"), 24),
            (ip("10.0.0.4"), 31),
            (ip("10.9.0.1"), 32),
        ],
        tunnels: vec![(ip("10.1.0.0"), 16)],
        ..nowhere()
    };
    for (text, class) in [
        ("192.168.1.255", Multicast),
        ("::ffff:192.168.1.255", Multicast),
        ("192.168.1.254", Local),
        ("192.168.1.0", Local),
        ("192.168.2.255", Private),
        ("10.0.0.5", Local),
        ("10.9.0.1", Local),
        ("10.1.255.255", Local),
    ] {
        assert_eq!(classify(ip(text), &node), class, "{text}");
    }
}

#[test]
fn a_default_route_names_no_network() {
    let node = NodeAddrs {
        on_link: vec![(ip("0.0.0.0"), 0), (ip("::"), 0)],
        nat64: vec![("::".parse().unwrap(), 0)],
        ..nowhere()
    };
    assert_eq!(classify(ip("93.184.216.34"), &node), Internet);
    assert_eq!(classify(ip("2606:2800:220:1::1"), &node), Internet);
}

/// The examples of RFC 6052 §2.4, all of 192.0.2.33.
const RFC_6052: [(&str, u8, &str); 6] = [
    ("2001:db8::", 32, "2001:db8:c000:221::"),
    ("2001:db8:100::", 40, "2001:db8:1c0:2:21::"),
    ("2001:db8:122::", 48, "2001:db8:122:c000:2:2100::"),
    ("2001:db8:122:300::", 56, "2001:db8:122:3c0:0:221::"),
    ("2001:db8:122:344::", 64, "2001:db8:122:344:c0:2:2100::"),
    ("2001:db8:122:344::", 96, "2001:db8:122:344::192.0.2.33"),
];

#[test]
fn the_networks_own_translation_prefix_is_opened_at_every_length() {
    for (prefix, len, whole) in RFC_6052 {
        let node = NodeAddrs {
            nat64: vec![(prefix.parse().unwrap(), len)],
            ..nowhere()
        };
        let IpAddr::V6(whole) = ip(whole) else {
            panic!("not IPv6")
        };
        let (found, _) = embedded::open(whole, &node);
        assert!(
            found.contains(&Some(Ipv4Addr::new(192, 0, 2, 33))),
            "/{len}"
        );
    }
}

#[test]
fn what_a_translated_address_carries_is_judged() {
    let node = |prefix: &str, len| NodeAddrs {
        nat64: vec![(prefix.parse().unwrap(), len)],
        ..nowhere()
    };
    let gua = node("2a00:64::", 96);
    assert_eq!(classify(ip("2a00:64::8.8.8.8"), &gua), Internet);
    assert_eq!(classify(ip("2a00:64::10.0.0.1"), &gua), Private);
    assert_eq!(classify(ip("2a00:64::169.254.169.254"), &gua), Metadata);
    assert_eq!(classify(ip("2a00:65::10.0.0.1"), &gua), Internet);
    // A unique local prefix stays private at least.
    assert_eq!(classify(ip("fd64::8.8.8.8"), &node("fd64::", 96)), Private);
    assert_eq!(
        classify(ip("fd64::127.0.0.1"), &node("fd64::", 96)),
        Loopback
    );
    // The prefix set aside for this, RFC 8215.
    let local_use = node("64:ff9b:1::", 96);
    assert_eq!(classify(ip("64:ff9b:1::8.8.8.8"), &local_use), Internet);
    assert_eq!(classify(ip("64:ff9b:1::10.0.0.1"), &local_use), Private);
    assert_eq!(classify(ip("64:ff9b:1:1::8.8.8.8"), &local_use), Reserved);
    // Octet 8 set, and a length that RFC 6052 does not have: leads nowhere.
    assert_eq!(
        classify(ip("2a00:64:0:0:ff08::"), &node("2a00:64::", 64)),
        Reserved
    );
    assert_eq!(
        classify(ip("2a00:64::8.8.8.8"), &node("2a00:64::", 80)),
        Reserved
    );
}

#[test]
fn translation_prefixes_are_read_from_answers_for_ipv4only() {
    let answers = |texts: &[&str]| -> Vec<Ipv6Addr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    };
    assert_eq!(
        nat64_prefixes(&answers(&["64:ff9b::192.0.0.170", "64:ff9b::192.0.0.171"])),
        [("64:ff9b::".parse().unwrap(), 96)]
    );
    for (prefix, len, _) in RFC_6052 {
        let base = u128::from(prefix.parse::<Ipv6Addr>().unwrap());
        let v4 = u128::from(u32::from(Ipv4Addr::new(192, 0, 0, 170)));
        let carried = match len {
            96 => v4,
            64 => v4 << 24,
            _ => {
                // Above octet 8, and below it what did not fit.
                let shift = 96 - u32::from(len);
                let plain = v4 << shift;
                let high = plain & !((1 << 64) - 1);
                let low = plain & ((1 << 64) - 1);
                high | (low >> 8)
            }
        };
        let found = nat64_prefixes(&[Ipv6Addr::from(base | carried)]);
        assert!(
            found.contains(&(prefix.parse().unwrap(), len)),
            "/{len}: {found:?}"
        );
    }
    assert_eq!(nat64_prefixes(&answers(&["2606:2800:220:1::1", "::"])), []);
}

#[test]
fn the_nodes_own_listeners_are_class_node_at_their_port_only() {
    let node = NodeAddrs {
        own: vec![ip("192.168.1.5"), ip("2a00:1::5"), ip("93.184.216.34")],
        ..nowhere()
    };
    let listeners = [
        (Transport::Udp, "0.0.0.0:4433".parse().unwrap()),
        (Transport::Tcp, "192.168.1.5:8080".parse().unwrap()),
        (Transport::Tcp, "[::]:9090".parse().unwrap()),
        (Transport::Tcp, "127.0.0.1:7070".parse().unwrap()),
    ];
    let class =
        |transport, text: &str| classify_end(transport, text.parse().unwrap(), &node, &listeners);
    assert_eq!(class(Transport::Udp, "192.168.1.5:4433"), Node);
    assert_eq!(class(Transport::Udp, "[::ffff:192.168.1.5]:4433"), Node);
    assert_eq!(class(Transport::Udp, "[64:ff9b::93.184.216.34]:4433"), Node);
    assert_eq!(class(Transport::Udp, "93.184.216.34:4433"), Node);
    assert_eq!(class(Transport::Udp, "192.168.1.6:4433"), Private);
    assert_eq!(class(Transport::Tcp, "192.168.1.5:4433"), Local);
    assert_eq!(class(Transport::Tcp, "192.168.1.5:8080"), Node);
    assert_eq!(class(Transport::Tcp, "93.184.216.34:8080"), Local);
    assert_eq!(class(Transport::Tcp, "[2a00:1::5]:9090"), Node);
    assert_eq!(class(Transport::Tcp, "192.168.1.5:9090"), Node);
    assert_eq!(class(Transport::Tcp, "127.0.0.1:7070"), Node);
    assert_eq!(class(Transport::Tcp, "127.0.0.1:7071"), Loopback);
    assert_eq!(class(Transport::Tcp, "8.8.8.8:9090"), Internet);
}

fn any_v4() -> impl Strategy<Value = Ipv4Addr> {
    prop_oneof![
        any::<u32>().prop_map(Ipv4Addr::from),
        // At and around the ends of rows.
        (0..registry::V4.len(), any::<bool>(), -2_i64..3).prop_map(|(at, last, by)| {
            let row = &registry::V4[at];
            let end = u32::from(row.first)
                | if last {
                    u32::MAX.checked_shr(row.len.into()).unwrap_or(0)
                } else {
                    0
                };
            Ipv4Addr::from(u32::try_from(i64::from(end) + by).unwrap_or(end))
        }),
    ]
}

fn any_ip() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any_v4().prop_map(IpAddr::V4),
        any::<u128>().prop_map(|bits| IpAddr::V6(bits.into())),
        (any::<u128>(), 0..registry::V6.len()).prop_map(|(bits, at)| {
            let row = &registry::V6[at];
            let host_bits = u128::MAX.checked_shr(row.len.into()).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(row.first) | bits & host_bits))
        }),
    ]
}

fn any_node() -> impl Strategy<Value = NodeAddrs> {
    let net = || prop::collection::vec((any_ip(), 0_u8..=130), 0..4);
    (
        prop::collection::vec(any_ip(), 0..4),
        net(),
        net(),
        prop::collection::vec((any::<u128>().prop_map(Ipv6Addr::from), 0_u8..=130), 0..3),
        any::<bool>(),
    )
        .prop_map(|(own, on_link, tunnels, nat64, has_v6_default)| NodeAddrs {
            own,
            on_link,
            tunnels,
            nat64,
            has_v6_default,
        })
}

/// Every way to carry an IPv4 address, with random bits around it.
fn wrappings(v4: Ipv4Addr, around: u128) -> Vec<Ipv6Addr> {
    let low = u128::from(u32::from(v4));
    let groups = |text: &str| u128::from(text.parse::<Ipv6Addr>().unwrap());
    let inverted = u128::from(!u32::from(v4));
    let middle = around & 0xffff_ffff_0000_0000;
    vec![
        groups("::ffff:0:0") | low,
        low,
        groups("64:ff9b::") | low,
        groups("2002::") | low << 80 | around & ((1 << 80) - 1),
        groups("2001::") | low << 64 | around & ((1 << 64) - 1),
        groups("2001::") | (around & ((1 << 32) - 1)) << 64 | middle | inverted,
        (around & !0 << 64) | 0x5efe << 32 | low,
        (around & !0 << 64) | 0x0200_5efe << 32 | low,
        groups("2a00:64:5::") | low,
    ]
    .into_iter()
    .map(Ipv6Addr::from)
    .collect()
}

fn own_or_on_link(ip: IpAddr, node: &NodeAddrs) -> bool {
    let ip = unmapped(ip);
    node.own.iter().any(|own| unmapped(*own) == ip)
        || node
            .on_link
            .iter()
            .chain(&node.tunnels)
            .any(|(prefix, len)| *len > 0 && in_prefix(ip, *prefix, *len))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_carried_address_never_gets_a_weaker_class_than_itself(
        v4 in any_v4(),
        around in any::<u128>(),
        mut node in any_node(),
    ) {
        node.nat64.push(("2a00:64:5::".parse().unwrap(), 96));
        let bare = classify(IpAddr::V4(v4), &node);
        for wrapped in wrappings(v4, around) {
            // The unspecified and loopback addresses carry nothing.
            if u128::from(wrapped) <= 1 {
                continue;
            }
            let class = classify(IpAddr::V6(wrapped), &node);
            prop_assert_eq!(stricter(class, bare), class, "{} in {}", v4, wrapped);
        }
    }

    #[test]
    fn internet_is_never_an_own_on_link_or_tunnelled_address(
        ip in any_ip(),
        mut node in any_node(),
        own in any::<bool>(),
        len in 1_u8..=128,
    ) {
        prop_assert!(classify(ip, &node) != Internet || !own_or_on_link(ip, &node));
        if own {
            node.own.push(ip);
        } else {
            node.on_link.push((ip, len));
        }
        prop_assert_ne!(classify(ip, &node), Internet);
    }

    #[test]
    fn internet_is_global_by_a_second_reading(ip in any_ip()) {
        if classify(ip, &nowhere()) == Internet {
            match unmapped(ip) {
                IpAddr::V4(v4) => {
                    prop_assert!(!v4.is_private() && !v4.is_loopback() && !v4.is_link_local());
                    prop_assert!(!v4.is_multicast() && !v4.is_broadcast());
                    prop_assert!(!v4.is_documentation() && !v4.is_unspecified());
                    prop_assert!(v4.octets()[0] != 0 && v4.octets()[0] < 224);
                }
                IpAddr::V6(v6) => {
                    let nat64 = v6.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0];
                    prop_assert!(nat64 || v6.segments()[0] >> 13 == 1);
                    prop_assert!(v6.segments()[..2] != [0x2001, 0xdb8]);
                }
            }
        }
    }

    #[test]
    fn a_listener_only_ever_makes_it_stricter(
        ip in any_ip(),
        port in 0_u16..4,
        node in any_node(),
        listeners in prop::collection::vec((any_ip(), 0_u16..4), 0..4),
    ) {
        let listeners: Vec<_> = listeners
            .into_iter()
            .map(|(ip, port)| (Transport::Tcp, SocketAddr::new(ip, port)))
            .collect();
        let class = classify(ip, &node);
        let end = classify_end(Transport::Tcp, SocketAddr::new(ip, port), &node, &listeners);
        prop_assert!(end == class || end == Node);
    }

    #[test]
    fn stricter_is_the_join_of_a_total_order(
        one in any_ip(), two in any_ip(), three in any_ip(),
    ) {
        let [one, two, three] = [one, two, three].map(|ip| classify(ip, &nowhere()));
        prop_assert_eq!(stricter(one, two), stricter(two, one));
        prop_assert_eq!(stricter(one, one), one);
        prop_assert_eq!(stricter(stricter(one, two), three), stricter(one, stricter(two, three)));
    }
}
