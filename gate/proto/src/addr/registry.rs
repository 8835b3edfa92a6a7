//! The IANA IPv4 and IPv6 Special-Purpose Address Registries as data, with the
//! multicast blocks and the metadata addresses that no registry names.
//!
//! Sources: <https://www.iana.org/assignments/iana-ipv4-special-registry>,
//! <https://www.iana.org/assignments/iana-ipv6-special-registry> (RFC 6890,
//! RFC 8190). A row says what the registry's *Globally Reachable* column makes
//! of its block, and why.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bailey_model::AddrClass::{
    self, Internet, Local, Loopback, Metadata, Multicast, Private, Reserved,
};

use super::on_gate_link;

/// A block, the class of its addresses, and its name and source.
pub(super) struct Row<A> {
    pub(super) first: A,
    pub(super) len: u8,
    pub(super) class: AddrClass,
    /// For whoever reads the table or a failing test.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "the reason of a row is for readers")
    )]
    pub(super) reason: &'static str,
}

const fn v4_row(octets: [u8; 4], len: u8, class: AddrClass, reason: &'static str) -> Row<Ipv4Addr> {
    let [a, b, c, d] = octets;
    Row {
        first: Ipv4Addr::new(a, b, c, d),
        len,
        class,
        reason,
    }
}

const fn v6_row(
    groups: [u16; 8],
    len: u8,
    class: AddrClass,
    reason: &'static str,
) -> Row<Ipv6Addr> {
    let [a, b, c, d, e, f, g, h] = groups;
    Row {
        first: Ipv6Addr::new(a, b, c, d, e, f, g, h),
        len,
        class,
        reason,
    }
}

/// IPv4. What no row holds is public.
pub(super) const V4: &[Row<Ipv4Addr>] = &[
    v4_row([0, 0, 0, 0], 8, Reserved, "this network, RFC 791 §3.2"),
    v4_row(
        [0, 0, 0, 0],
        32,
        Loopback,
        "this host, RFC 1122 §3.2.1.3: a dial of it is loopback",
    ),
    v4_row([10, 0, 0, 0], 8, Private, "private use, RFC 1918"),
    v4_row(
        [100, 64, 0, 0],
        10,
        Private,
        "shared address space (CGNAT), RFC 6598",
    ),
    v4_row(
        [100, 100, 100, 200],
        32,
        Metadata,
        "Alibaba Cloud instance metadata",
    ),
    v4_row([127, 0, 0, 0], 8, Loopback, "loopback, RFC 1122 §3.2.1.3"),
    v4_row(
        [168, 63, 129, 16],
        32,
        Metadata,
        "Azure wire server, in a public block",
    ),
    v4_row([169, 254, 0, 0], 16, Private, "link local, RFC 3927"),
    v4_row(
        [169, 254, 169, 254],
        32,
        Metadata,
        "instance metadata of most clouds",
    ),
    v4_row(
        [169, 254, 170, 2],
        32,
        Metadata,
        "Amazon ECS task credentials",
    ),
    v4_row([169, 254, 170, 23], 32, Metadata, "Amazon EKS pod identity"),
    v4_row(
        [169, 254, 42, 42],
        32,
        Metadata,
        "Scaleway instance metadata",
    ),
    v4_row([169, 254, 0, 23], 32, Metadata, "Tencent instance metadata"),
    v4_row([172, 16, 0, 0], 12, Private, "private use, RFC 1918"),
    v4_row(
        [192, 0, 0, 0],
        24,
        Reserved,
        "IETF protocol assignments, RFC 6890 §2.1",
    ),
    v4_row(
        [192, 0, 0, 0],
        29,
        Reserved,
        "IPv4 service continuity prefix, RFC 7335",
    ),
    v4_row([192, 0, 0, 8], 32, Reserved, "IPv4 dummy address, RFC 7600"),
    v4_row(
        [192, 0, 0, 9],
        32,
        Internet,
        "port control protocol anycast, RFC 7723",
    ),
    v4_row([192, 0, 0, 10], 32, Internet, "TURN anycast, RFC 8155"),
    v4_row(
        [192, 0, 0, 170],
        32,
        Reserved,
        "NAT64/DNS64 discovery, RFC 8880, RFC 7050 §2.2",
    ),
    v4_row(
        [192, 0, 0, 171],
        32,
        Reserved,
        "NAT64/DNS64 discovery, RFC 8880, RFC 7050 §2.2",
    ),
    v4_row(
        [192, 0, 0, 192],
        32,
        Metadata,
        "Oracle Cloud instance metadata",
    ),
    v4_row(
        [192, 0, 2, 0],
        24,
        Reserved,
        "documentation (TEST-NET-1), RFC 5737",
    ),
    v4_row([192, 31, 196, 0], 24, Internet, "AS112-v4, RFC 7535"),
    v4_row([192, 52, 193, 0], 24, Internet, "AMT, RFC 7450"),
    v4_row(
        [192, 88, 99, 0],
        24,
        Reserved,
        "deprecated 6to4 relay anycast, RFC 7526",
    ),
    v4_row(
        [192, 88, 99, 2],
        32,
        Reserved,
        "6a44 relay anycast, RFC 6751",
    ),
    v4_row([192, 168, 0, 0], 16, Private, "private use, RFC 1918"),
    v4_row(
        [192, 175, 48, 0],
        24,
        Internet,
        "direct delegation AS112 service, RFC 7534",
    ),
    v4_row([198, 18, 0, 0], 15, Reserved, "benchmarking, RFC 2544"),
    v4_row(
        [198, 51, 100, 0],
        24,
        Reserved,
        "documentation (TEST-NET-2), RFC 5737",
    ),
    v4_row(
        [203, 0, 113, 0],
        24,
        Reserved,
        "documentation (TEST-NET-3), RFC 5737",
    ),
    v4_row([224, 0, 0, 0], 4, Multicast, "multicast, RFC 5771"),
    v4_row([240, 0, 0, 0], 4, Reserved, "reserved, RFC 1112 §4"),
    v4_row(
        [255, 255, 255, 255],
        32,
        Multicast,
        "limited broadcast, RFC 8190, RFC 919 §7",
    ),
];

/// IPv6. What no row holds is public inside 2000::/3 and reserved outside.
/// Blocks that only carry an IPv4 address are public here and owe their class
/// to what they carry (`embedded.rs`); the registry calls them *not applicable*
/// or judges them by what they carry.
pub(super) const V6: &[Row<Ipv6Addr>] = &[
    v6_row(
        [0; 8],
        0,
        Reserved,
        "not assigned for global unicast, RFC 4291 §2.4",
    ),
    v6_row(
        [0; 8],
        128,
        Loopback,
        "unspecified, RFC 4291: a dial of it is loopback",
    ),
    v6_row(
        [0, 0, 0, 0, 0, 0, 0, 1],
        128,
        Loopback,
        "loopback, RFC 4291",
    ),
    v6_row(
        [0, 0, 0, 0, 0, 0xffff, 0, 0],
        96,
        Internet,
        "IPv4-mapped, RFC 4291: judged as IPv4",
    ),
    v6_row(
        [0x64, 0xff9b, 0, 0, 0, 0, 0, 0],
        96,
        Internet,
        "NAT64 well-known, RFC 6052: as IPv4",
    ),
    v6_row(
        [0x64, 0xff9b, 1, 0, 0, 0, 0, 0],
        48,
        Reserved,
        "local-use NAT64, RFC 8215",
    ),
    v6_row(
        [0x100, 0, 0, 0, 0, 0, 0, 0],
        64,
        Reserved,
        "discard only, RFC 6666",
    ),
    v6_row(
        [0x100, 0, 0, 1, 0, 0, 0, 0],
        64,
        Reserved,
        "dummy prefix, RFC 9780",
    ),
    v6_row(
        [0x2000, 0, 0, 0, 0, 0, 0, 0],
        3,
        Internet,
        "global unicast, RFC 4291 §2.4",
    ),
    v6_row(
        [0x2001, 0, 0, 0, 0, 0, 0, 0],
        23,
        Reserved,
        "IETF protocol assignments, RFC 2928",
    ),
    v6_row(
        [0x2001, 0, 0, 0, 0, 0, 0, 0],
        32,
        Internet,
        "Teredo, RFC 4380: as the IPv4 inside",
    ),
    v6_row(
        [0x2001, 1, 0, 0, 0, 0, 0, 1],
        128,
        Internet,
        "port control anycast, RFC 7723",
    ),
    v6_row(
        [0x2001, 1, 0, 0, 0, 0, 0, 2],
        128,
        Internet,
        "TURN anycast, RFC 8155",
    ),
    v6_row(
        [0x2001, 1, 0, 0, 0, 0, 0, 3],
        128,
        Internet,
        "DNS-SD registration anycast, RFC 9665",
    ),
    v6_row(
        [0x2001, 2, 0, 0, 0, 0, 0, 0],
        48,
        Reserved,
        "benchmarking, RFC 5180",
    ),
    v6_row([0x2001, 3, 0, 0, 0, 0, 0, 0], 32, Internet, "AMT, RFC 7450"),
    v6_row(
        [0x2001, 4, 0x112, 0, 0, 0, 0, 0],
        48,
        Internet,
        "AS112-v6, RFC 7535",
    ),
    v6_row(
        [0x2001, 0x10, 0, 0, 0, 0, 0, 0],
        28,
        Reserved,
        "deprecated ORCHID, RFC 4843",
    ),
    v6_row(
        [0x2001, 0x20, 0, 0, 0, 0, 0, 0],
        28,
        Internet,
        "ORCHIDv2, RFC 7343",
    ),
    v6_row(
        [0x2001, 0x30, 0, 0, 0, 0, 0, 0],
        28,
        Internet,
        "drone remote id, RFC 9374",
    ),
    v6_row(
        [0x2001, 0xdb8, 0, 0, 0, 0, 0, 0],
        32,
        Reserved,
        "documentation, RFC 3849",
    ),
    v6_row(
        [0x2002, 0, 0, 0, 0, 0, 0, 0],
        16,
        Internet,
        "6to4, RFC 3056: as the IPv4 inside",
    ),
    v6_row(
        [0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0],
        48,
        Internet,
        "AS112 service, RFC 7534",
    ),
    v6_row(
        [0x3fff, 0, 0, 0, 0, 0, 0, 0],
        20,
        Reserved,
        "documentation, RFC 9637",
    ),
    v6_row(
        [0x5f00, 0, 0, 0, 0, 0, 0, 0],
        16,
        Reserved,
        "segment routing SIDs, RFC 9602",
    ),
    v6_row(
        [0xfc00, 0, 0, 0, 0, 0, 0, 0],
        7,
        Private,
        "unique local, RFC 4193",
    ),
    v6_row(
        [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254],
        128,
        Metadata,
        "Amazon instance metadata",
    ),
    v6_row(
        [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23],
        128,
        Metadata,
        "Amazon EKS pod identity",
    ),
    v6_row(
        [0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42],
        128,
        Metadata,
        "Scaleway instance metadata",
    ),
    v6_row(
        [0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe],
        128,
        Metadata,
        "OpenStack instance metadata, link local",
    ),
    v6_row(
        [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254],
        128,
        Metadata,
        "Google instance metadata",
    ),
    v6_row(
        [0xfe80, 0, 0, 0, 0, 0, 0, 0],
        10,
        Local,
        "link-local unicast, RFC 4291: always on-link",
    ),
    v6_row(
        [0xfec0, 0, 0, 0, 0, 0, 0, 0],
        10,
        Reserved,
        "deprecated site-local, RFC 3879",
    ),
    v6_row(
        [0xff00, 0, 0, 0, 0, 0, 0, 0],
        8,
        Multicast,
        "multicast, RFC 4291 §2.7",
    ),
];

/// The class of an IPv4 address by the registries alone.
pub(super) fn v4(ip: Ipv4Addr) -> AddrClass {
    if on_gate_link(IpAddr::V4(ip)) {
        return AddrClass::Gate;
    }
    let bits = u32::from(ip);
    V4.iter()
        .filter(|row| {
            let shift = 32 - u32::from(row.len);
            (bits ^ u32::from(row.first))
                .checked_shr(shift)
                .unwrap_or(0)
                == 0
        })
        .max_by_key(|row| row.len)
        .map_or(Internet, |row| row.class)
}

/// The class of an IPv6 address by the registries alone, as if it carried nothing.
pub(super) fn v6(ip: Ipv6Addr) -> AddrClass {
    if on_gate_link(IpAddr::V6(ip)) {
        return AddrClass::Gate;
    }
    let bits = u128::from(ip);
    V6.iter()
        .filter(|row| {
            let shift = 128 - u32::from(row.len);
            (bits ^ u128::from(row.first))
                .checked_shr(shift)
                .unwrap_or(0)
                == 0
        })
        .max_by_key(|row| row.len)
        .map_or(Reserved, |row| row.class)
}
