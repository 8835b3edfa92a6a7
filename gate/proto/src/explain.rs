//! What a policy would say to a dial, and by what: nothing is dialled or asked.

use std::net::{IpAddr, SocketAddr};

use bailey_model::link::GATE_V4;
use bailey_model::{AddrClass, Host, Refusal, Transport, Verdict};
use serde::{Deserialize, Serialize};

use crate::Now;
use crate::dns::is_nowhere;
use crate::names::NameTable;
use crate::policy::{NameReach, Policy};

/// The name at which the gate's own address stands for the node's loopback.
const GATE_NAME: &str = "host.bailey";
/// Most addresses of one name that are judged for one question.
pub const MAX_EXPLAINED: usize = 16;

/// A dial, or a name, to be explained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explain {
    /// What would be dialled.
    pub what: Whom,
    /// Its port; `None` is any that some term grants.
    pub port: Option<u16>,
    /// Over what.
    pub transport: Transport,
}

/// Whom a dial is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Whom {
    /// A name, by what the gate's DNS gave the box for it.
    Name(Host),
    /// An address.
    Addr(IpAddr),
}

/// What the policy says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explained {
    /// Of the name, where one was asked about.
    pub name: Option<NameExplained>,
    /// Of the address that was asked about, or of those that the box was given
    /// for the name and that still count.
    pub addrs: Vec<AddrExplained>,
}

/// What the policy says of a name by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NameExplained {
    /// It may be asked for.
    Inside {
        /// The term by which a dial of it is granted; `None` where it is the name
        /// alone that is in reach, and no term opens that port of it.
        by: Option<String>,
    },
    /// It may not, but it is not said to be nowhere either: a granted name lies
    /// below it.
    Ancestor,
    /// It may not.
    Outside,
    /// It is set aside for nobody, or for what is not carried (RFC 6761, 6762,
    /// 7686); no word grants it.
    Nowhere,
}

/// What the policy says of a dial of an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddrExplained {
    /// The address.
    pub addr: IpAddr,
    /// Its class.
    pub class: AddrClass,
    /// The verdict, with the term that grants it.
    pub verdict: Verdict,
}

impl AddrExplained {
    /// Whether some word of a reach can grant it.
    #[must_use]
    pub fn grantable(&self) -> bool {
        is_grantable(self.class)
    }
}

/// Whether some word of a reach can grant an address of that class.
#[must_use]
pub fn is_grantable(class: AddrClass) -> bool {
    matches!(
        class,
        AddrClass::Internet | AddrClass::Local | AddrClass::Private
    )
}

/// Explains a dial by the policy and by what the box was given. `search` is the
/// node's search list.
#[must_use]
pub fn explain(
    now: Now,
    policy: &Policy,
    names: &NameTable,
    search: &[Host],
    question: &Explain,
) -> Explained {
    let Explain {
        what,
        port,
        transport,
    } = question;
    match what {
        Whom::Addr(addr) => {
            let names: Vec<&Host> = names.names(now, *addr).collect();
            Explained {
                name: None,
                addrs: vec![judge(policy, *transport, *addr, *port, &names)],
            }
        }
        // It is the gate's own word for the node's loopback, and in no reach.
        Whom::Name(host) if host.as_str() == GATE_NAME => Explained {
            name: None,
            addrs: vec![judge(policy, *transport, GATE_V4.into(), *port, &[])],
        },
        Whom::Name(host) => {
            let given = names.addrs(now, host).take(MAX_EXPLAINED);
            let by_name = |addr| judge(policy, *transport, addr, *port, &[host]);
            Explained {
                name: Some(name(policy, search, host, *port, *transport)),
                addrs: given.map(by_name).collect(),
            }
        }
    }
}

fn judge(
    policy: &Policy,
    over: Transport,
    addr: IpAddr,
    port: Option<u16>,
    names: &[&Host],
) -> AddrExplained {
    let decision = match port {
        Some(port) => policy.decide(over, SocketAddr::new(addr, port), names.iter().copied()),
        None => policy.decide_any_port(over, addr, names),
    };
    AddrExplained {
        addr,
        class: decision.class,
        verdict: decision.verdict,
    }
}

fn name(
    policy: &Policy,
    search: &[Host],
    host: &Host,
    port: Option<u16>,
    over: Transport,
) -> NameExplained {
    if is_nowhere(host.as_str()) && !policy.asks_link(host) {
        return NameExplained::Nowhere;
    }
    match policy.name_reach(host, search) {
        NameReach::Inside => NameExplained::Inside {
            by: policy.name_term(host, search, over, port),
        },
        NameReach::Ancestor => NameExplained::Ancestor,
        NameReach::Outside => NameExplained::Outside,
    }
}

/// Why a dial that is explained would be refused, if so.
#[must_use]
pub fn refusal(explained: &Explained) -> Option<Refusal> {
    let refused = |addr: &AddrExplained| match addr.verdict {
        Verdict::Refuse(refusal) => Some(refusal),
        Verdict::Allow(_) => None,
    };
    match &explained.name {
        // Of what the box was given for it, one that may be dialled is enough.
        Some(NameExplained::Inside { by: Some(_) }) => {
            let all: Option<Vec<Refusal>> = explained.addrs.iter().map(refused).collect();
            all.and_then(|all| all.first().copied())
        }
        Some(NameExplained::Inside { by: None }) => Some(Refusal::OutsideReach),
        Some(_) => Some(Refusal::NameOutsideReach),
        None => explained.addrs.iter().find_map(refused),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::addr::NodeAddrs;

    fn said(reach: &str, what: &str, port: Option<u16>) -> Explained {
        let policy = Policy {
            reach: reach.parse().unwrap(),
            addrs: NodeAddrs {
                own: vec!["192.168.1.5".parse().unwrap()],
                ..NodeAddrs::default()
            },
            ..Policy::default()
        };
        let mut names = NameTable::new();
        let shop = Host::new("shop.example").unwrap();
        let ttl = Duration::from_secs(60);
        names.give(Now::ZERO, "93.184.216.34".parse().unwrap(), &shop, ttl);
        names.give(Now::ZERO, "10.0.0.5".parse().unwrap(), &shop, ttl);
        let what = match what.parse() {
            Ok(addr) => Whom::Addr(addr),
            Err(_) => Whom::Name(Host::new(what).unwrap()),
        };
        let question = Explain {
            what,
            port,
            transport: Transport::Tcp,
        };
        explain(Now::ZERO, &policy, &names, &[], &question)
    }

    fn verdict(explained: &Explained) -> Vec<Result<String, Refusal>> {
        let each = explained.addrs.iter().map(|addr| match &addr.verdict {
            Verdict::Allow(granted) => Ok(granted.0.clone()),
            Verdict::Refuse(refusal) => Err(*refusal),
        });
        each.collect()
    }

    #[test]
    fn an_address_is_explained_as_its_dial_would_be_judged() {
        for (reach, what, port, expected) in [
            ("internet", "93.184.216.34", Some(80), Ok("internet")),
            ("internet", "93.184.216.34", None, Ok("internet")),
            (
                "shop.example:80",
                "93.184.216.34",
                Some(80),
                Ok("shop.example:80"),
            ),
            (
                "shop.example:80",
                "93.184.216.34",
                Some(81),
                Err(Refusal::OutsideReach),
            ),
            (
                "shop.example:80",
                "93.184.216.34",
                None,
                Ok("shop.example:80"),
            ),
            (
                "10.0.0.0/8:22/udp",
                "10.0.0.1",
                None,
                Err(Refusal::OutsideReach),
            ),
            (
                "internet",
                "192.168.1.9",
                Some(80),
                Err(Refusal::OutsideReach),
            ),
            (
                "internet,local",
                "169.254.169.254",
                Some(80),
                Err(Refusal::OutsideReach),
            ),
            ("internet", "224.0.0.251", Some(1), Err(Refusal::Multicast)),
        ] {
            let expected = expected.map(str::to_owned);
            assert_eq!(
                verdict(&said(reach, what, port)),
                [expected],
                "{reach} {what}"
            );
        }
        assert!(!said("internet", "169.254.169.254", None).addrs[0].grantable());
        assert!(said("internet", "192.168.1.9", None).addrs[0].grantable());
    }

    #[test]
    fn the_gates_own_name_is_explained_as_the_loopback_that_it_leads_to() {
        let open = said("lo:5432", "host.bailey", Some(5432));
        assert_eq!((open.name.clone(), refusal(&open)), (None, None));
        assert_eq!(verdict(&open), [Ok("lo:5432".to_owned())]);
        let closed = said("internet,local", "host.bailey", Some(5432));
        assert_eq!(refusal(&closed), Some(Refusal::OutsideReach));
        assert_eq!(closed.addrs[0].class, AddrClass::Gate);
    }

    #[test]
    fn a_name_whose_every_address_is_refused_is_refused() {
        let mut shop = said("shop.example", "shop.example", Some(443));
        assert_eq!(refusal(&shop), None);
        shop.addrs
            .retain(|addr| matches!(addr.verdict, Verdict::Refuse(_)));
        assert_eq!(refusal(&shop), Some(Refusal::OutsideReach));
        shop.addrs.clear();
        assert_eq!(refusal(&shop), None);
    }

    #[test]
    fn a_name_is_explained_by_its_text_and_by_what_was_given_for_it() {
        let shop = said("shop.example:80,443", "shop.example", Some(443));
        let by = |term: &str| {
            Some(NameExplained::Inside {
                by: Some(term.to_owned()),
            })
        };
        assert_eq!(shop.name, by("shop.example:80,443"));
        // What its owner might have answered with opens nothing of the node's.
        assert_eq!(
            verdict(&shop),
            [
                Err(Refusal::OutsideReach),
                Ok("shop.example:80,443".to_owned())
            ]
        );
        assert_eq!(refusal(&shop), None);
        let closed = said("shop.example:80", "shop.example", Some(22));
        assert_eq!(closed.name, Some(NameExplained::Inside { by: None }));
        assert_eq!(refusal(&closed), Some(Refusal::OutsideReach));
        assert_eq!(
            said("*.example", "shop.example", None).name,
            by("*.example")
        );
        for (reach, what, name) in [
            ("shop.example", "evil.example", NameExplained::Outside),
            ("shop.example", "example", NameExplained::Ancestor),
            ("internet", "printer.local", NameExplained::Nowhere),
        ] {
            let explained = said(reach, what, None);
            assert_eq!(explained.name, Some(name), "{what}");
            assert_eq!(refusal(&explained), Some(Refusal::NameOutsideReach));
            assert!(explained.addrs.is_empty());
        }
    }
}
