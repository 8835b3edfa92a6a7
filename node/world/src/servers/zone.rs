//! What the world's name servers know.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use crate::at;

/// Seconds that an answer may be kept, where nothing else is said.
pub(crate) const TTL: u32 = 60;

/// Longest chain of aliases that is followed.
const MAX_ALIASES: usize = 8;

/// Numbers of the types served.
pub(crate) mod rtype {
    pub(crate) const A: u16 = 1;
    pub(crate) const CNAME: u16 = 5;
    pub(crate) const PTR: u16 = 12;
    pub(crate) const TXT: u16 = 16;
    pub(crate) const AAAA: u16 = 28;
    pub(crate) const SRV: u16 = 33;
    pub(crate) const HTTPS: u16 = 65;
}

/// One record, without its owner's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    Address(IpAddr),
    Alias(String),
    Text(String),
    /// The name of an address.
    Pointer(String),
    /// A service (RFC 2782): port and target.
    Service(u16, String),
    /// HTTPS (RFC 9460), as bytes.
    Https(Vec<u8>),
}

impl Record {
    /// An address, or `>` and the name that it is an alias of.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        match word.strip_prefix('>') {
            Some(name) => Some(Self::Alias(name.to_owned())),
            None => word.parse().ok().map(Self::Address),
        }
    }

    pub(crate) const fn rtype(&self) -> u16 {
        match self {
            Self::Address(IpAddr::V4(_)) => rtype::A,
            Self::Address(IpAddr::V6(_)) => rtype::AAAA,
            Self::Alias(_) => rtype::CNAME,
            Self::Text(_) => rtype::TXT,
            Self::Pointer(_) => rtype::PTR,
            Self::Service(..) => rtype::SRV,
            Self::Https(_) => rtype::HTTPS,
        }
    }
}

/// What is done with a question.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Owner, time to live in seconds, record. None: the name has no such type.
    Records(Vec<(String, u32, Record)>),
    NoName,
    ServerFailure,
    Silence,
    /// Answer as for `shop.example`, this much later.
    Later(Duration),
}

/// The table; a test may change it while it is served.
pub(crate) struct Zone(RwLock<BTreeMap<String, Vec<Record>>>);

impl Zone {
    pub(crate) fn new() -> Self {
        Self(RwLock::new(table()))
    }

    /// Replaces what a name answers.
    pub(crate) fn set(&self, name: &str, records: Vec<Record>) {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let name = name.to_ascii_lowercase();
        if records.is_empty() {
            table.remove(&name);
        } else {
            table.insert(name, records);
        }
    }

    /// Answers a question; the name is in lower case.
    pub(crate) fn ask(&self, name: &str, rtype: u16) -> Outcome {
        match name {
            "silent.example" => return Outcome::Silence,
            "servfail.example" => return Outcome::ServerFailure,
            "slow.example" => return Outcome::Later(Duration::from_secs(2)),
            _ => {}
        }
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut out = Vec::new();
        let mut owner = name.to_owned();
        for _ in 0..MAX_ALIASES {
            let Some(records) = find(&table, &owner) else {
                return if out.is_empty() {
                    Outcome::NoName
                } else {
                    Outcome::Records(out)
                };
            };
            let ttl = if owner.starts_with("short.") { 1 } else { TTL };
            let fit = records.iter().filter(|record| record.rtype() == rtype);
            out.extend(fit.map(|record| (owner.clone(), ttl, record.clone())));
            let alias = records.iter().find_map(|record| match record {
                Record::Alias(target) if rtype != rtype::CNAME => Some(target),
                _ => None,
            });
            let Some(target) = alias else { break };
            out.push((owner.clone(), ttl, Record::Alias(target.clone())));
            owner.clone_from(target);
        }
        Outcome::Records(out)
    }
}

/// The name itself, or the wildcard one label up.
fn find<'a>(table: &'a BTreeMap<String, Vec<Record>>, name: &str) -> Option<&'a Vec<Record>> {
    table.get(name).or_else(|| {
        let (_, rest) = name.split_once('.')?;
        table.get(&format!("*.{rest}"))
    })
}

/// The names that every world knows.
fn table() -> BTreeMap<String, Vec<Record>> {
    let v4 = |address: Ipv4Addr| Record::Address(address.into());
    let v6 = |address: Ipv6Addr| Record::Address(address.into());
    let alias = |name: &str| Record::Alias(name.to_owned());
    let shop = || vec![v4(at::WEB_V4), v6(at::WEB_V6)];
    // More than the largest datagram that is answered (1,232 bytes).
    let big = (0..100_u8).map(|n| v4(Ipv4Addr::new(93, 184, 217, n)));
    let text = Record::Text("a text of the world".to_owned());
    [
        ("shop.example", vec![v4(at::WEB_V4), v6(at::WEB_V6), text]),
        ("www.shop.example", shop()),
        ("short.shop.example", shop()),
        // Found by the search list `lan.example`.
        ("printer.lan.example", vec![v4(at::PRINTER_V4)]),
        ("intern.lan.example", vec![v4(at::WEB_V4)]),
        ("other.example", vec![v4(at::SHARED_V4)]),
        ("shared.example", vec![v4(at::SHARED_V4)]),
        ("neighbour.example", vec![v4(at::SHARED_V4)]),
        ("v6.example", vec![v6(at::V6_ONLY)]),
        ("alias.example", vec![alias("hop.example")]),
        ("hop.example", vec![alias("shop.example")]),
        ("loop.example", vec![alias("loop.example")]),
        ("dangling.example", vec![alias("nowhere.example")]),
        ("*.wild.example", shop()),
        ("big.example", big.collect()),
        ("printer.lan", vec![v4(at::PRINTER_V4)]),
        ("rebind.example", vec![v4(at::PRINTER_V4)]),
        (
            "rebind-loopback.example",
            vec![v4(Ipv4Addr::LOCALHOST), v6(Ipv6Addr::LOCALHOST)],
        ),
        ("rebind-metadata.example", vec![v4(at::METADATA_V4)]),
        (
            "rebind-mixed.example",
            vec![v4(at::WEB_V4), v4(at::PRINTER_V4)],
        ),
        (
            "rebind-mapped.example",
            vec![v6(at::PRINTER_V4.to_ipv6_mapped())],
        ),
        ("live.example", shop()),
        ("realtime.example", vec![v4(at::SHARED_V4)]),
        ("third.example", vec![v4(at::SHARED_V4)]),
        ("stun.example", vec![v4(at::STUN_V4)]),
        ("blackhole.example", vec![v4(at::BLACKHOLE_V4)]),
        ("unreachable.example", vec![v4(at::UNREACHABLE_V4)]),
    ]
    .into_iter()
    .chain(services())
    .map(|(name, records)| (name.to_owned(), records))
    .collect()
}

/// Names with records that are no addresses.
fn services() -> Vec<(&'static str, Vec<Record>)> {
    let web = |hints: &[Ipv4Addr]| {
        let address = Record::Address(at::WEB_V4.into());
        vec![address, Record::Https(https(hints))]
    };
    vec![
        ("https.example", web(&[at::WEB_V4])),
        // Hints of the LAN, one beside a public one.
        ("https-local.example", web(&[at::PRINTER_V4])),
        ("https-mixed.example", web(&[at::PRINTER_V4, at::WEB_V4])),
        (
            "_imap._tcp.shop.example",
            vec![Record::Service(993, "shop.example".to_owned())],
        ),
        (
            "34.216.184.93.in-addr.arpa",
            vec![Record::Pointer("shop.example".to_owned())],
        ),
        // As everywhere; a network that translates answers with IPv6 too (RFC 7050).
        (
            "ipv4only.arpa",
            [170, 171]
                .map(|last| Record::Address(Ipv4Addr::new(192, 0, 0, last).into()))
                .to_vec(),
        ),
    ]
}

/// Priority 1, target `.`, with `alpn=h2`, an `ipv4hint` and an `ech`.
fn https(hints: &[Ipv4Addr]) -> Vec<u8> {
    let mut out = vec![0, 1, 0];
    out.extend([0, 1, 0, 3, 2, b'h', b'2']);
    let length = u16::try_from(hints.len().saturating_mul(4)).unwrap_or_default();
    out.extend([0, 4]);
    out.extend(length.to_be_bytes());
    out.extend(hints.iter().flat_map(Ipv4Addr::octets));
    out.extend([0, 5, 0, 4, 0xfe, 0x0d, 0, 0]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(outcome: Outcome) -> Vec<u16> {
        match outcome {
            Outcome::Records(records) => records.iter().map(|(_, _, r)| r.rtype()).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_alias_brings_its_chain_and_its_end() {
        let zone = Zone::new();
        assert_eq!(kinds(zone.ask("alias.example", rtype::A)), [5, 5, 1]);
        assert_eq!(kinds(zone.ask("alias.example", rtype::CNAME)), [5]);
        assert_eq!(kinds(zone.ask("dangling.example", rtype::A)), [5]);
        assert_eq!(kinds(zone.ask("loop.example", rtype::A)).len(), MAX_ALIASES);
    }

    #[test]
    fn a_name_without_the_type_is_not_a_missing_name() {
        let zone = Zone::new();
        assert_eq!(zone.ask("v6.example", rtype::A), Outcome::Records(vec![]));
        assert_eq!(zone.ask("nowhere.example", rtype::A), Outcome::NoName);
        assert_eq!(kinds(zone.ask("any.wild.example", rtype::A)), [1]);
        assert_eq!(zone.ask("wild.example", rtype::A), Outcome::NoName);
    }

    #[test]
    fn a_name_can_be_changed_and_taken_away() {
        let zone = Zone::new();
        zone.set("Shop.example", vec![Record::parse("10.0.0.1").unwrap()]);
        assert_eq!(
            kinds(zone.ask("shop.example", rtype::AAAA)),
            Vec::<u16>::new()
        );
        zone.set("shop.example", vec![]);
        assert_eq!(zone.ask("shop.example", rtype::A), Outcome::NoName);
        assert_eq!(Record::parse(">a.b"), Some(Record::Alias("a.b".into())));
        assert_eq!(Record::parse("nonsense"), None);
    }
}
