//! Policy: one function judges an address, for the DNS filter and for the dial.

use std::net::{IpAddr, SocketAddr};

use bailey_model::{
    AddrClass, Granted, Host, HostFrom, HostPattern, Reach, ReachTerm, Refusal, Transport, Verdict,
};

use crate::addr::{NodeAddrs, classify, classify_end, in_prefix, unmapped};
use crate::{host_end, mdns};

/// What a box may dial, and what the node's addresses are at this moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// The box's reach.
    pub reach: Reach,
    /// The node's own addresses and networks.
    pub addrs: NodeAddrs,
    /// Where the node itself listens; class `Node`, granted by no word.
    pub listeners: Vec<(Transport, SocketAddr)>,
    /// Counts up whenever any of the above changes: a verdict of an older
    /// generation is judged again before it is relied on.
    pub generation: u64,
}

/// What was decided for one dial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Granted or refused, and why.
    pub verdict: Verdict,
    /// Class of the dialled address.
    pub class: AddrClass,
    /// The name that granted it; else the newest name that led to the address.
    pub host: Option<Host>,
    /// Where the name comes from.
    pub host_from: HostFrom,
}

/// Whether a name may be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameReach {
    /// It may.
    Inside,
    /// It may not, but a granted name lies below it, so it must not be said not
    /// to exist (RFC 8020 would cut the granted name off).
    Ancestor,
    /// It may not.
    Outside,
}

/// What a judgement is about: a dial, an answer that may lead to some dial, or
/// some dial over a transport.
#[derive(Clone, Copy)]
enum End {
    Dial(Transport, u16),
    AnyPort,
    /// Granted by what grants every port.
    Echo,
    SomePort(Transport),
}

impl End {
    fn is_in(self, ports: &bailey_model::PortSet) -> bool {
        match self {
            Self::Dial(transport, port) => ports.contains(transport, port),
            Self::SomePort(transport) => ports.transport.is_none_or(|only| only == transport),
            Self::AnyPort => true,
            Self::Echo => ports.ports.is_empty() && ports.transport.is_none(),
        }
    }
}

impl Policy {
    /// Judges a dial of `dst`. `names` are those that the gate's DNS gave this
    /// box for the address, newest first ([`crate::NameTable::names`]).
    pub fn decide<'a>(
        &self,
        transport: Transport,
        dst: SocketAddr,
        names: impl IntoIterator<Item = &'a Host>,
    ) -> Decision {
        if let Some(decision) = self.decide_loopback(transport, dst) {
            return decision;
        }
        if let Some(decision) = self.decide_mdns(transport, dst) {
            return decision;
        }
        let names: Vec<&Host> = names.into_iter().collect();
        let class = classify_end(transport, dst, &self.addrs, &self.listeners);
        self.decide_end(class, dst.ip(), End::Dial(transport, dst.port()), &names)
    }

    /// Judges a dial of the gate's own address at a port that an `lo:` term
    /// grants: it is the node's loopback that is dialled, and judged.
    fn decide_loopback(&self, transport: Transport, dst: SocketAddr) -> Option<Decision> {
        let meant = host_end::loopback(dst)?;
        let grants = |term: &&ReachTerm| matches!(term, ReachTerm::Loopback(ports) if ports.contains(transport, dst.port()));
        let term = self.reach.terms().iter().find(grants)?;
        let class = classify_end(transport, meant, &self.addrs, &self.listeners);
        let verdict = match class {
            AddrClass::Loopback => Verdict::Allow(Granted(term.to_string())),
            // Where the node itself listens.
            _ => Verdict::Refuse(Refusal::OutsideReach),
        };
        Some(Decision {
            verdict,
            class,
            host: None,
            host_from: HostFrom::None,
        })
    }

    /// Judges a datagram to the group of multicast DNS where the reach opens it;
    /// what it says is looked at besides ([`mdns::asks`]).
    fn decide_mdns(&self, transport: Transport, dst: SocketAddr) -> Option<Decision> {
        let opened = transport == Transport::Udp
            && mdns::is_group(dst)
            && self.reach.terms().contains(&ReachTerm::Mdns);
        opened.then(|| Decision {
            verdict: Verdict::Allow(Granted(ReachTerm::Mdns.to_string())),
            class: AddrClass::Multicast,
            host: None,
            host_from: HostFrom::None,
        })
    }

    /// Whether the reach holds a port of the node's loopback.
    #[must_use]
    pub fn has_loopback(&self) -> bool {
        let loopback = |term: &ReachTerm| matches!(term, ReachTerm::Loopback(_));
        self.reach.terms().iter().any(loopback)
    }

    /// Whether a name is asked for on the link by multicast DNS (RFC 6762 §3).
    #[must_use]
    pub fn asks_link(&self, name: &Host) -> bool {
        below(name.as_str(), mdns::ZONE) && self.reach.terms().contains(&ReachTerm::Mdns)
    }

    /// Judges an echo request to `dst`. A term that names ports or a transport
    /// grants none.
    pub fn decide_echo<'a>(
        &self,
        dst: IpAddr,
        names: impl IntoIterator<Item = &'a Host>,
    ) -> Decision {
        let names: Vec<&Host> = names.into_iter().collect();
        let class = classify(dst, &self.addrs);
        self.decide_end(class, dst, End::Echo, &names)
    }

    fn decide_end(&self, class: AddrClass, dst: IpAddr, end: End, names: &[&Host]) -> Decision {
        let judged = self.judge(class, dst, end, names);
        let (verdict, by_name) = match judged {
            Ok((term, name)) => (Verdict::Allow(Granted(term.to_string())), name),
            Err(refusal) => (Verdict::Refuse(refusal), None),
        };
        let host = by_name.or_else(|| names.first().copied()).cloned();
        let host_from = if host.is_some() {
            HostFrom::Dns
        } else {
            HostFrom::None
        };
        Decision {
            verdict,
            class,
            host,
            host_from,
        }
    }

    /// Judges an address in an answer for `name`: `Ok` if some dial of it would
    /// be granted to a box that was given it for that name, else its class.
    ///
    /// # Errors
    /// The class of an address that must be withheld.
    pub fn judge_answer(&self, name: &Host, addr: IpAddr) -> Result<AddrClass, AddrClass> {
        let class = classify(addr, &self.addrs);
        // Anybody on the link answers for its names, and only for what is there.
        let elsewhere = below(name.as_str(), mdns::ZONE) && class != AddrClass::Local;
        match self.judge(class, addr, End::AnyPort, &[name]) {
            Ok(_) if !elsewhere => Ok(class),
            _ => Err(class),
        }
    }

    /// As [`Self::decide`], where any port would do: granted if some dial of the
    /// address over that transport would be.
    pub(crate) fn decide_any_port(
        &self,
        transport: Transport,
        addr: IpAddr,
        names: &[&Host],
    ) -> Decision {
        let class = classify(addr, &self.addrs);
        let verdict = match self.judge(class, addr, End::SomePort(transport), names) {
            Ok((term, _)) => Verdict::Allow(Granted(term.to_string())),
            Err(refusal) => Verdict::Refuse(refusal),
        };
        let host = names.first().copied().cloned();
        let host_from = match host {
            Some(_) => HostFrom::Dns,
            None => HostFrom::None,
        };
        Decision {
            verdict,
            class,
            host,
            host_from,
        }
    }

    /// The term by which a dial of a name in reach is granted, if one opens the
    /// port (`None`: any).
    pub(crate) fn name_term(
        &self,
        name: &Host,
        search: &[Host],
        transport: Transport,
        port: Option<u16>,
    ) -> Option<String> {
        if self.asks_link(name) {
            return Some(ReachTerm::Mdns.to_string());
        }
        let end = port.map_or(End::SomePort(transport), |port| End::Dial(transport, port));
        let opens = |term: &&ReachTerm| match term {
            ReachTerm::Internet => true,
            ReachTerm::Local => is_local_name(name, search),
            ReachTerm::Name(pattern, ports) => pattern_grants(pattern, name) && end.is_in(ports),
            ReachTerm::Loopback(_) | ReachTerm::Prefix { .. } | ReachTerm::Mdns => false,
        };
        let mut terms = self.reach.terms().iter();
        terms.find(opens).map(ToString::to_string)
    }

    fn judge<'p, 'n>(
        &'p self,
        class: AddrClass,
        addr: IpAddr,
        end: End,
        names: &[&'n Host],
    ) -> Result<(&'p ReachTerm, Option<&'n Host>), Refusal> {
        match class {
            AddrClass::Internet | AddrClass::Local | AddrClass::Private => {}
            AddrClass::Multicast => return Err(Refusal::Multicast),
            AddrClass::Loopback
            | AddrClass::Node
            | AddrClass::Metadata
            | AddrClass::Reserved
            | AddrClass::Gate => return Err(Refusal::OutsideReach),
        }
        self.reach
            .terms()
            .iter()
            .find_map(|term| grants(term, class, addr, end, names).map(|by_name| (term, by_name)))
            .ok_or(Refusal::OutsideReach)
    }

    /// Whether a name may be asked for, by its text alone. `search` is the
    /// node's search list: with `local`, names in it are in reach.
    #[must_use]
    pub fn name_reach(&self, name: &Host, search: &[Host]) -> NameReach {
        // No resolver is asked for those, whatever else is in reach.
        if below(name.as_str(), mdns::ZONE) {
            return match self.asks_link(name) {
                true => NameReach::Inside,
                false => NameReach::Outside,
            };
        }
        let mut ancestor = false;
        for term in self.reach.terms() {
            match term {
                ReachTerm::Internet => return NameReach::Inside,
                ReachTerm::Local if is_local_name(name, search) => return NameReach::Inside,
                ReachTerm::Name(pattern, _) if pattern_grants(pattern, name) => {
                    return NameReach::Inside;
                }
                ReachTerm::Name(pattern, _) => ancestor |= is_ancestor_of(name, pattern),
                ReachTerm::Local
                | ReachTerm::Loopback(_)
                | ReachTerm::Prefix { .. }
                | ReachTerm::Mdns => {}
            }
        }
        if ancestor {
            NameReach::Ancestor
        } else {
            NameReach::Outside
        }
    }

    /// Whether a granted name lies properly below this one.
    #[must_use]
    pub fn grants_below(&self, name: &Host) -> bool {
        self.reach.terms().iter().any(|term| match term {
            ReachTerm::Name(pattern, _) => is_ancestor_of(name, pattern),
            ReachTerm::Internet
            | ReachTerm::Local
            | ReachTerm::Loopback(_)
            | ReachTerm::Prefix { .. }
            | ReachTerm::Mdns => false,
        })
    }

    /// Whether the reach holds `local`.
    #[must_use]
    pub fn has_local(&self) -> bool {
        self.reach.terms().contains(&ReachTerm::Local)
    }
}

/// Whether one term grants it; `Some(Some(name))` if by a name.
fn grants<'n>(
    term: &ReachTerm,
    class: AddrClass,
    addr: IpAddr,
    end: End,
    names: &[&'n Host],
) -> Option<Option<&'n Host>> {
    let port = |ports: &bailey_model::PortSet| end.is_in(ports);
    match term {
        ReachTerm::Internet => (class == AddrClass::Internet).then_some(None),
        ReachTerm::Local => (class == AddrClass::Local).then_some(None),
        // Only by the gate's own address, and by one group: judged before.
        ReachTerm::Loopback(_) | ReachTerm::Mdns => None,
        ReachTerm::Prefix {
            addr: prefix,
            len,
            ports,
        } => {
            let within = in_prefix(addr, *prefix, *len) || in_prefix(unmapped(addr), *prefix, *len);
            (within && port(ports)).then_some(None)
        }
        // A name opens public addresses only: what its owner answers must reach
        // neither the node's networks nor those behind its gateway. `local` or a
        // prefix opens the former by itself, a prefix the latter.
        ReachTerm::Name(pattern, ports) => {
            let by = names
                .iter()
                .copied()
                .find(|name| pattern_grants(pattern, name));
            by.filter(|_| class == AddrClass::Internet && port(ports))
                .map(Some)
        }
    }
}

/// Whether a pattern puts a name in reach: the name itself, names below it if
/// it says so, and service labels (`_443._tcp.`) under an exact name.
fn pattern_grants(pattern: &HostPattern, name: &Host) -> bool {
    if pattern.matches(name) {
        return true;
    }
    let HostPattern::Exact(host) = pattern else {
        return false;
    };
    let labels = name
        .as_str()
        .strip_suffix(host.as_str())
        .and_then(|rest| rest.strip_suffix('.'));
    labels.is_some_and(|labels| {
        !labels.is_empty()
            && labels
                .split('.')
                .all(|label| label.len() > 1 && label.starts_with('_'))
    })
}

/// Whether some name that the pattern grants lies properly below `name`.
fn is_ancestor_of(name: &Host, pattern: &HostPattern) -> bool {
    match pattern {
        HostPattern::Exact(host) => below(host.as_str(), name.as_str()),
        HostPattern::Below(host) => host == name || below(host.as_str(), name.as_str()),
    }
}

fn is_local_name(name: &Host, search: &[Host]) -> bool {
    !name.as_str().contains('.')
        || search
            .iter()
            .any(|domain| name == domain || below(name.as_str(), domain.as_str()))
}

/// Whether `name` lies properly below `ancestor`.
pub(crate) fn below(name: &str, ancestor: &str) -> bool {
    name.strip_suffix(ancestor)
        .and_then(|rest| rest.strip_suffix('.'))
        .is_some_and(|labels| !labels.is_empty())
}

#[cfg(test)]
mod tests;
