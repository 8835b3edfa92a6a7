//! Reach: what a box may dial, in the words a person writes.
//!
//! `nothing` or a comma-joined list of `internet`, `local`, `mdns`,
//! `lo:PORT[,PORT][/tcp|/udp]`, `HOST[:PORT[,PORT]][/tcp|/udp]`, `*.HOST…`, and an address or prefix with
//! ports in the same form (an IPv6 address with ports is bracketed). A term
//! that is only digits is a further port of the term before it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Host;
use crate::link::PROBE_PORT;

/// The port of name servers (RFC 1035 §4.2).
const DNS_PORT: u16 = 53;

/// Ranges that are somebody's own network wherever they are.
const OWN_NETWORKS: [(IpAddr, u8); 7] = [
    (IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0)), 8),
    (IpAddr::V4(Ipv4Addr::new(100, 64, 0, 0)), 10),
    (IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), 16),
    (IpAddr::V4(Ipv4Addr::new(172, 16, 0, 0)), 12),
    (IpAddr::V4(Ipv4Addr::new(192, 168, 0, 0)), 16),
    (IpAddr::V6(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0)), 7),
    (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10),
];

mod change;

use change::shares;

pub use change::ChangeReachError;

/// What a box may dial. The empty list is `nothing`: a reach that grants
/// nothing is closed, never open.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Reach {
    terms: Vec<ReachTerm>,
}

/// One term of a reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReachTerm {
    /// Any public address.
    Internet,
    /// The node's own addresses, its on-link networks, and those through a tunnel
    /// that is not the default route; not its loopback.
    Local,
    /// Ports of the node's loopback, at the name `host.bailey`; never all of them.
    Loopback(PortSet),
    /// The addresses that the gate's DNS gives this box for a name.
    Name(HostPattern, PortSet),
    /// An address, or all within a prefix.
    Prefix {
        /// Any address of the prefix.
        addr: IpAddr,
        /// Its length in bits, at most 32 or 128.
        len: u8,
        /// Ports and transport.
        ports: PortSet,
    },
    /// Questions of multicast DNS (RFC 6762) and what is answered to them on-link.
    Mdns,
}

/// A name, or every name below one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostPattern {
    /// Just this name.
    Exact(Host),
    /// Every name with at least one label before this one.
    Below(Host),
}

impl HostPattern {
    /// Whether a name is granted by this pattern.
    #[must_use]
    pub fn matches(&self, name: &Host) -> bool {
        match self {
            Self::Exact(host) => host == name,
            Self::Below(host) => is_below(name.as_str(), host.as_str()),
        }
    }
}

fn is_below(name: &str, ancestor: &str) -> bool {
    name.strip_suffix(ancestor)
        .and_then(|rest| rest.strip_suffix('.'))
        .is_some_and(|labels| !labels.is_empty())
}

/// Which ports of which transport a term grants.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PortSet {
    /// Ports; empty is every port.
    pub ports: Vec<u16>,
    /// Transport; `None` is both.
    pub transport: Option<Transport>,
}

/// A transport that a term may be bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Transport {
    /// TCP only.
    Tcp,
    /// UDP only.
    Udp,
}

impl PortSet {
    /// Most ports in one term.
    pub const MAX_PORTS: usize = 64;

    /// Whether a port of a transport is granted.
    #[must_use]
    pub fn contains(&self, transport: Transport, port: u16) -> bool {
        self.transport.is_none_or(|only| only == transport)
            && (self.ports.is_empty() || self.ports.contains(&port))
    }
}

/// A text that is not a reach, and the term at fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseReachError {
    /// The term at fault, as written.
    pub term: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl fmt::Display for ParseReachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reach {:?}: {}", self.term, self.problem)
    }
}

impl std::error::Error for ParseReachError {}

impl Reach {
    /// Most terms in one reach.
    pub const MAX_TERMS: usize = 256;
    /// Longest text of one in bytes: an entry holds two.
    pub const MAX_TEXT: usize = 8 << 10;

    /// A reach of public addresses only.
    #[must_use]
    pub fn internet() -> Self {
        Self {
            terms: vec![ReachTerm::Internet],
        }
    }

    /// A reach that grants nothing.
    #[must_use]
    pub fn nothing() -> Self {
        Self::default()
    }

    /// The terms, in the order written.
    #[must_use]
    pub fn terms(&self) -> &[ReachTerm] {
        &self.terms
    }

    /// Whether it holds `internet`.
    #[must_use]
    pub fn has_internet(&self) -> bool {
        self.terms.contains(&ReachTerm::Internet)
    }

    /// Whether it is meant to grant something in the node's own networks: the word
    /// `local`, or a prefix that meets a range which is private or on-link
    /// wherever it is (RFC 1918, 3927, 4193, 4291 §2.5.6, 6598).
    #[must_use]
    pub fn names_local(&self) -> bool {
        self.terms.iter().any(|term| match term {
            ReachTerm::Local => true,
            ReachTerm::Prefix { addr, len, .. } => {
                let meets = |(own, own_len): &(IpAddr, u8)| shares(*addr, *own, *len.min(own_len));
                OWN_NETWORKS.iter().any(meets)
            }
            ReachTerm::Internet
            | ReachTerm::Loopback(_)
            | ReachTerm::Name(..)
            | ReachTerm::Mdns => false,
        })
    }
}

impl FromStr for Reach {
    type Err = ParseReachError;

    fn from_str(text: &str) -> Result<Self, ParseReachError> {
        let fault = |term: &str, problem| ParseReachError {
            term: term.to_owned(),
            problem,
        };
        if text.len() > Self::MAX_TEXT {
            let head: String = text.chars().take(40).collect();
            return Err(fault(&format!("{head}…"), "too long (at most 8192 bytes)"));
        }
        let mut written: Vec<String> = Vec::new();
        for part in text.split(',') {
            let digits = part.split('/').next().unwrap_or_default();
            let is_port = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            match written.last_mut() {
                Some(before) if is_port => {
                    before.push(',');
                    before.push_str(part);
                }
                _ => written.push(part.to_owned()),
            }
        }
        if written.len() > Self::MAX_TERMS {
            return Err(fault(text, "too many terms (at most 256)"));
        }
        if written == ["nothing"] {
            return Ok(Self::nothing());
        }
        let terms = written
            .iter()
            .map(|term| parse_term(term).map_err(|problem| fault(term, problem)))
            .collect::<Result<_, _>>()?;
        Ok(Self { terms })
    }
}

fn parse_term(term: &str) -> Result<ReachTerm, &'static str> {
    match term {
        "" => return Err("empty term"),
        "nothing" => return Err("`nothing` stands alone"),
        "internet" => return Ok(ReachTerm::Internet),
        "local" => return Ok(ReachTerm::Local),
        "mdns" => return Ok(ReachTerm::Mdns),
        _ => {}
    }
    if term == "lo" {
        return Err("want `lo:PORT`: the loopback is granted port by port");
    }
    let (body, transport) = match (term.strip_suffix("/tcp"), term.strip_suffix("/udp")) {
        (Some(body), _) => (body, Some(Transport::Tcp)),
        (_, Some(body)) => (body, Some(Transport::Udp)),
        _ => (term, None),
    };
    let (host, ports) = split_ports(body)?;
    let ports = PortSet { ports, transport };
    if host == "lo" {
        return parse_loopback(ports);
    }
    if let Some((addr, len)) = parse_prefix(host)? {
        return Ok(ReachTerm::Prefix { addr, len, ports });
    }
    let (below, name) = match host.strip_prefix("*.") {
        Some(name) => (true, name),
        None => (false, host),
    };
    let name = parse_host_name(name)?;
    let pattern = if below {
        HostPattern::Below(name)
    } else {
        HostPattern::Exact(name)
    };
    Ok(ReachTerm::Name(pattern, ports))
}

fn parse_loopback(ports: PortSet) -> Result<ReachTerm, &'static str> {
    let has = |port: u16| ports.ports.contains(&port);
    if ports.ports.is_empty() {
        return Err("want `lo:PORT`: the loopback is granted port by port");
    }
    if has(DNS_PORT) {
        return Err("port 53 of every address is the gate's own name server");
    }
    if has(PROBE_PORT) {
        return Err("a box is tried by a dial to the gate's port 9, which must be refused");
    }
    Ok(ReachTerm::Loopback(ports))
}

/// Splits `HOST:PORT,PORT`, `[V6]:PORT`, `V6` and `HOST` into host and ports.
fn split_ports(body: &str) -> Result<(&str, Vec<u16>), &'static str> {
    let (host, ports) = if let Some(rest) = body.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or("`[` without `]`")?;
        match (after, after.strip_prefix(':')) {
            ("", _) => (host, None),
            (_, Some(ports)) => (host, Some(ports)),
            _ => return Err("want `:PORT` after `]`"),
        }
    } else {
        match body.split_once(':') {
            // More than one colon outside brackets is an IPv6 address.
            Some((_, rest)) if rest.contains(':') => (body, None),
            Some((host, ports)) => (host, Some(ports)),
            None => (body, None),
        }
    };
    let Some(ports) = ports else {
        return Ok((host, Vec::new()));
    };
    let ports: Vec<u16> = ports
        .split(',')
        .map(|port| match port.parse::<u16>() {
            Ok(number) if number > 0 && port.bytes().all(|byte| byte.is_ascii_digit()) => {
                Ok(number)
            }
            _ => Err("a port is a number from 1 to 65535"),
        })
        .collect::<Result<_, _>>()?;
    if ports.len() > PortSet::MAX_PORTS {
        return Err("too many ports (at most 64)");
    }
    Ok((host, ports))
}

fn parse_prefix(host: &str) -> Result<Option<(IpAddr, u8)>, &'static str> {
    let (addr, len) = match host.split_once('/') {
        Some((addr, len)) => (addr, Some(len)),
        None => (host, None),
    };
    let Ok(addr) = addr.parse::<IpAddr>() else {
        return if len.is_some() {
            Err("want `tcp` or `udp` after `/`")
        } else {
            Ok(None)
        };
    };
    let bits = if addr.is_ipv4() { 32 } else { 128 };
    let len = match len {
        None => bits,
        Some(text) => match text.parse::<u8>() {
            Ok(len) if len <= bits => len,
            _ => return Err("prefix length out of range"),
        },
    };
    Ok(Some((addr, len)))
}

fn parse_host_name(name: &str) -> Result<Host, &'static str> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    // A name that ends in a number would be read as an address by some (RFC 6943, WHATWG URL).
    let last_is_number = name
        .rsplit('.')
        .next()
        .is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    if name.len() > 253 || !name.split('.').all(label) || last_is_number {
        return Err(
            "not a host name (ASCII letters, digits, `-`, `_`; an IDN in its A-label form)",
        );
    }
    Host::new(name).ok_or("not a host name")
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.terms.is_empty() {
            return f.write_str("nothing");
        }
        for (at, term) in self.terms.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            write!(f, "{term}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ReachTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Internet => f.write_str("internet"),
            Self::Local => f.write_str("local"),
            Self::Mdns => f.write_str("mdns"),
            Self::Loopback(ports) => write!(f, "lo{ports}"),
            Self::Name(HostPattern::Exact(host), ports) => write!(f, "{host}{ports}"),
            Self::Name(HostPattern::Below(host), ports) => write!(f, "*.{host}{ports}"),
            Self::Prefix { addr, len, ports } => {
                let bits = if addr.is_ipv4() { 32 } else { 128 };
                let whole = *len == bits;
                let bracket = addr.is_ipv6() && !ports.ports.is_empty();
                let (open, close) = if bracket { ("[", "]") } else { ("", "") };
                match whole {
                    true => write!(f, "{open}{addr}{close}{ports}"),
                    false => write!(f, "{open}{addr}/{len}{close}{ports}"),
                }
            }
        }
    }
}

impl fmt::Display for PortSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, port) in self.ports.iter().enumerate() {
            write!(f, "{}{port}", if at == 0 { ":" } else { "," })?;
        }
        match self.transport {
            None => Ok(()),
            Some(Transport::Tcp) => f.write_str("/tcp"),
            Some(Transport::Udp) => f.write_str("/udp"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_text_parses_back_to_the_same_reach() {
        for text in [
            "nothing",
            "internet",
            "internet,local",
            "internet,mdns",
            "shop.example",
            "shop.example:443",
            "shop.example:80,443/tcp,internet",
            "*.shop.example:53/udp",
            "192.168.1.20:631/tcp",
            "10.0.0.0/8",
            "10.0.0.0/8:22,80",
            "2001:db8::1",
            "[2001:db8::1]:443",
            "[2001:db8::/32]:443/udp",
            "2001:db8::/32",
            "local,a.b:1,2,c.d:3",
            "lo:5432",
            "lo:80,5432/tcp,internet",
            "internet,lo:6000/udp",
        ] {
            let reach: Reach = text.parse().unwrap();
            assert_eq!(reach.to_string(), text);
            assert_eq!(reach.to_string().parse::<Reach>().unwrap(), reach);
        }
    }

    #[test]
    fn bad_text_names_the_term_at_fault() {
        for (text, term) in [
            ("", ""),
            ("internet,", ""),
            ("internet,nothing", "nothing"),
            ("shop.example:0", "shop.example:0"),
            ("shop.example:70000", "shop.example:70000"),
            ("shop.example:+1", "shop.example:+1"),
            ("a..b", "a..b"),
            ("1.2.3", "1.2.3"),
            ("1.2.3.4/33", "1.2.3.4/33"),
            ("shop.example/sctp", "shop.example/sctp"),
            ("lo", "lo"),
            ("lo/tcp", "lo/tcp"),
            ("lo:", "lo:"),
            ("lo:0", "lo:0"),
            ("lo:8080,53", "lo:8080,53"),
            ("lo:9", "lo:9"),
            ("sh op.example", "sh op.example"),
            ("[::1", "[::1"),
            ("80", "80"),
        ] {
            assert_eq!(text.parse::<Reach>().unwrap_err().term, term, "{text}");
        }
    }

    #[test]
    fn a_public_address_names_no_network_of_ones_own() {
        for (text, names) in [
            ("internet,93.184.216.34:443,shop.example,lo:80", false),
            ("[2606:2800:220:1::1]:443", false),
            ("local", true),
            ("192.168.1.9:631", true),
            ("172.16.0.0/28", true),
            ("0.0.0.0/0", true),
            ("fd12::/48", true),
            ("172.32.0.0/16", false),
        ] {
            assert_eq!(
                text.parse::<Reach>().unwrap().names_local(),
                names,
                "{text}"
            );
        }
    }

    #[test]
    fn a_pattern_below_a_name_needs_a_label_before_it() {
        let below = HostPattern::Below(Host::new("shop.example").unwrap());
        assert!(below.matches(&Host::new("a.shop.example").unwrap()));
        assert!(!below.matches(&Host::new("shop.example").unwrap()));
        assert!(!below.matches(&Host::new("ashop.example").unwrap()));
    }
}
