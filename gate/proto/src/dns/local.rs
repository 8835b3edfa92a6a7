//! Which questions are answered here, which are refused, and which may be asked.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bailey_model::link::{GATE_V4, GATE_V6};
use bailey_model::{AddrClass, Host, ReachTerm};
use hickory_proto::rr::rdata::PTR;
use hickory_proto::rr::{Name, RData, Record, RecordType};

use super::host::name_of;
use super::question::Target;
use super::reply::{Answer, OWN_TTL};
use super::request::Request;
use super::{DnsFacts, answer, host_of};
use crate::Now;
use crate::addr::classify;
use crate::mdns;
use crate::names::NameTable;
use crate::policy::{NameReach, Policy, below};

/// Names by which a resolver finds the network's translation prefix (RFC 7050):
/// the IPv4 half is answered here, the other half is the node's own affair.
const IPV4ONLY: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 170)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 171)),
];

/// What becomes of a question.
pub(super) enum Route {
    /// Answered here; no entry.
    Answer(Answer),
    /// The node's hosts file knows the name; the addresses are yet to be judged.
    Hosts { target: Target, addrs: Vec<IpAddr> },
    /// Refused, with an entry.
    Refuse { host: Host, answer: Answer },
    /// These names may be asked for, in this order.
    Ask(VecDeque<Target>),
}

pub(super) fn route(
    now: Now,
    request: &Request,
    policy: &Policy,
    names: &NameTable,
    facts: &DnsFacts,
) -> Route {
    // The root cannot be named in an entry, and is an ancestor of every name.
    let Some(host) = request.host() else {
        return Route::Answer(Answer::nodata(request.name()));
    };
    if let Some(route) = special(request, &host, policy) {
        return route;
    }
    if host.as_str() == "in-addr.arpa" || host.as_str() == "ip6.arpa" {
        return Route::Answer(Answer::nodata(request.name()));
    }
    if below(host.as_str(), "in-addr.arpa") || below(host.as_str(), "ip6.arpa") {
        return reverse(now, request, host, policy, names);
    }
    let targets = targets(request, &host, policy, facts);
    if targets.is_empty() {
        return match policy.name_reach(&host, &facts.search) {
            NameReach::Ancestor => Route::Answer(Answer::nodata(request.name())),
            // Below `arpa` lie names that are answered here.
            _ if host.as_str() == "arpa" => Route::Answer(Answer::nodata(request.name())),
            _ => Route::Refuse {
                host,
                answer: Answer::outside_reach(request.name()),
            },
        };
    }
    if request.qtype == RecordType::ANY {
        return Route::Answer(Answer::any(request.name()));
    }
    if request.qtype == RecordType::AAAA && !policy.addrs.has_v6_default {
        return Route::Answer(Answer::nodata(request.name()));
    }
    let known = targets.iter().find_map(|target| {
        let addrs = facts.hosts.get(&target.host)?;
        Some((target.clone(), of_type(addrs, request.qtype)))
    });
    match known {
        Some((target, addrs)) => Route::Hosts { target, addrs },
        None => Route::Ask(targets.into()),
    }
}

/// The names to ask for: the name itself, and for one of one label first what
/// the node's search list makes of it. Empty if none is in reach.
fn targets(request: &Request, host: &Host, policy: &Policy, facts: &DnsFacts) -> Vec<Target> {
    let inside = |host: &Host| policy.name_reach(host, &facts.search) == NameReach::Inside;
    // What the hosts file says is not asked of anybody.
    let itself = inside(host) || (policy.has_local() && facts.hosts.contains_key(host));
    let mut targets = Vec::new();
    if !host.as_str().contains('.') {
        for domain in &facts.search {
            let Some(domain) = name_of(domain) else {
                continue;
            };
            let mut label = request.name().clone();
            label.set_fqdn(false);
            let Ok(name) = label.append_domain(&domain) else {
                continue;
            };
            let Some(full) = host_of(&name) else { continue };
            if is_special(&name) {
                continue;
            }
            let grant = if inside(&full) { full } else { host.clone() };
            if itself || inside(&grant) {
                targets.extend(Target::new(name, grant));
            }
        }
    }
    if itself {
        targets.extend(Target::new(request.name().clone(), host.clone()));
    }
    targets
}

fn of_type(addrs: &[IpAddr], qtype: RecordType) -> Vec<IpAddr> {
    let wanted = |ip: &&IpAddr| match qtype {
        RecordType::A => ip.is_ipv4(),
        RecordType::AAAA => ip.is_ipv6(),
        _ => false,
    };
    addrs.iter().filter(wanted).copied().collect()
}

/// Whether a name is one that no resolver is ever asked for.
pub(super) fn is_special(name: &Name) -> bool {
    let Some(host) = host_of(name) else {
        return true;
    };
    let host = host.as_str();
    is_or_below(host, "localhost")
        || is_nowhere(host)
        || is_or_below(host, "host.bailey")
        || is_or_below(host, "in-addr.arpa")
        || is_or_below(host, "ip6.arpa")
        || matches!(host, "ipv4only.arpa" | "use-application-dns.net")
}

fn is_or_below(host: &str, ancestor: &str) -> bool {
    host == ancestor || below(host, ancestor)
}

/// Names that no resolver answers: multicast DNS (RFC 6762), Tor (RFC 7686),
/// and those set aside for nobody (RFC 6761).
pub(crate) fn is_nowhere(host: &str) -> bool {
    ["local", "onion", "invalid", "test"]
        .iter()
        .any(|ancestor| is_or_below(host, ancestor))
}

fn special(request: &Request, host: &Host, policy: &Policy) -> Option<Route> {
    let name = request.name();
    let addrs = |addrs: &[IpAddr]| {
        let of_type = of_type(addrs, request.qtype);
        if of_type.is_empty() {
            Answer::nodata(name)
        } else {
            Answer::own(answer::addr_records(name, &of_type))
        }
    };
    let text = host.as_str();
    if is_or_below(text, "localhost") {
        // The box's own loopback (RFC 6761 §6.3).
        let own = [
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::LOCALHOST),
        ];
        return Some(Route::Answer(addrs(&own)));
    }
    if text == "ipv4only.arpa" {
        return Some(Route::Answer(addrs(&IPV4ONLY)));
    }
    if policy.has_loopback() {
        // The node's loopback, at the ports that are granted.
        match text {
            "host.bailey" => {
                return Some(Route::Answer(addrs(&[GATE_V4.into(), GATE_V6.into()])));
            }
            "bailey" => return Some(Route::Answer(Answer::nodata(name))),
            _ => {}
        }
    }
    if policy.asks_link(host) {
        return Some(on_link(request, host, policy));
    }
    // What lies below it is there.
    if text == mdns::ZONE && policy.reach.terms().contains(&ReachTerm::Mdns) {
        return Some(Route::Answer(Answer::nodata(name)));
    }
    // The canary by which a browser learns that the network's DNS decides.
    if is_or_below(text, "host.bailey") || text == "use-application-dns.net" {
        return Some(Route::Answer(Answer::no_such_name(name)));
    }
    is_nowhere(text).then(|| Route::Refuse {
        host: host.clone(),
        answer: Answer::outside_reach(name),
    })
}

/// A name that the link itself is asked for (RFC 6762).
fn on_link(request: &Request, host: &Host, policy: &Policy) -> Route {
    let name = request.name();
    match request.qtype {
        RecordType::ANY => Route::Answer(Answer::any(name)),
        RecordType::AAAA if !policy.addrs.has_v6_default => Route::Answer(Answer::nodata(name)),
        _ => Route::Ask(
            Target::new(name.clone(), host.clone())
                .into_iter()
                .collect(),
        ),
    }
}

/// Reverse names: from what this gate gave this box, else for public addresses
/// and only under `internet`; 128 bits would go to whoever owns the zone.
fn reverse(now: Now, request: &Request, host: Host, policy: &Policy, names: &NameTable) -> Route {
    let name = request.name();
    let refuse = |host| Route::Refuse {
        host,
        answer: Answer::outside_reach(name),
    };
    let addr = match reverse_addr(host.as_str()) {
        Reverse::Addr(addr) => addr,
        Reverse::Above => return Route::Answer(Answer::nodata(name)),
        Reverse::Other => return refuse(host),
    };
    let data: Vec<Record> = names
        .names(now, addr)
        .filter_map(name_of)
        .take(1)
        .map(|given| Record::from_rdata(name.clone(), OWN_TTL, RData::PTR(PTR(given))))
        .collect();
    let is_ptr = request.qtype == RecordType::PTR;
    match data {
        data if !data.is_empty() && is_ptr => Route::Answer(Answer::own(data)),
        data if !data.is_empty() => Route::Answer(Answer::nodata(name)),
        _ if is_ptr
            && policy.reach.has_internet()
            && classify(addr, &policy.addrs) == AddrClass::Internet =>
        {
            match Target::new(name.clone(), host.clone()) {
                Some(target) => Route::Ask(VecDeque::from([target])),
                None => refuse(host),
            }
        }
        _ => refuse(host),
    }
}

enum Reverse {
    /// The name of an address.
    Addr(IpAddr),
    /// A name above those of addresses.
    Above,
    Other,
}

/// Reads `4.3.2.1.in-addr.arpa` and its like (RFC 1035 §3.5, RFC 3596 §2.5).
fn reverse_addr(host: &str) -> Reverse {
    if let Some(labels) = host.strip_suffix(".in-addr.arpa") {
        let mut octets = [0_u8; 4];
        let labels: Vec<&str> = labels.split('.').rev().collect();
        if labels.len() > octets.len() {
            return Reverse::Other;
        }
        for (octet, label) in octets.iter_mut().zip(&labels) {
            match label.parse::<u8>() {
                // One form only: no sign, no leading zero.
                Ok(value) if value.to_string() == *label => *octet = value,
                _ => return Reverse::Other,
            }
        }
        return match labels.len() {
            4 => Reverse::Addr(IpAddr::from(octets)),
            _ => Reverse::Above,
        };
    }
    let Some(labels) = host.strip_suffix(".ip6.arpa") else {
        return Reverse::Other;
    };
    let labels: Vec<&str> = labels.split('.').rev().collect();
    if labels.len() > 32 {
        return Reverse::Other;
    }
    let mut bits = 0_u128;
    for label in &labels {
        match (label.len(), u8::from_str_radix(label, 16)) {
            (1, Ok(nibble)) => bits = (bits << 4) | u128::from(nibble),
            _ => return Reverse::Other,
        }
    }
    match labels.len() {
        32 => Reverse::Addr(IpAddr::from(Ipv6Addr::from(bits))),
        _ => Reverse::Above,
    }
}
