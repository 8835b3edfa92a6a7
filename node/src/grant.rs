//! The words that would grant what was refused.

use std::net::IpAddr;

use bailey_gate_proto::{NodeAddrs, classify, is_grantable, is_mdns};
use bailey_model::link::{GATE_V4, GATE_V6};
use bailey_model::{
    AddrClass, FlowRefused, Host, HostPattern, Proto, Reach, ReachTerm, Refusal, Transport,
};

use crate::account;
use crate::show;

/// Ends of names that no resolver is ever asked for (RFC 6761, 6762, 7686).
const NOWHERE: [&str; 4] = ["local", "test", "invalid", "onion"];

/// Where names of the web lead that have records of type 65 (RFC 9460 §9).
const WEB: u16 = 443;

/// What a reach has words for.
const WORDS: [&str; 5] = ["internet", "local", "nothing", "mdns", "lo"];

/// The term of a reach that would have granted it; `None` where no word can, or
/// where it was not refused for want of one. `web`: it is a name, and was asked for
/// as one of the web.
pub(crate) fn term(refused: &FlowRefused, web: bool) -> Option<String> {
    let asked = matches!(
        refused.refusal,
        Refusal::OutsideReach | Refusal::NameOutsideReach | Refusal::OtherHost
    );
    // The gate's own address stands for the node's loopback.
    if let (true, Some(AddrClass::Gate), Some(dst)) = (asked, refused.class, refused.dst)
        && [IpAddr::V4(GATE_V4), IpAddr::V6(GATE_V6)].contains(&dst.ip())
    {
        let over = match refused.proto {
            Proto::Udp => Transport::Udp,
            _ => Transport::Tcp,
        };
        return loopback_term(dst.port(), Some(over));
    }
    // The one group that a word opens.
    if refused.refusal == Refusal::Multicast
        && refused.proto == Proto::Udp
        && refused.dst.is_some_and(is_mdns)
    {
        return checked(ReachTerm::Mdns.to_string(), |term| *term == ReachTerm::Mdns);
    }
    if !asked || !refused.class.is_none_or(is_grantable) {
        return None;
    }
    let over = match refused.proto {
        Proto::Udp => Some(Transport::Udp),
        _ => None,
    };
    // A name opens public addresses only.
    let host = refused
        .host
        .as_ref()
        .filter(|_| matches!(refused.class, None | Some(AddrClass::Internet)));
    // What has no ports is granted by the whole address.
    let port = refused.dst.map(|dst| dst.port()).filter(|port| *port > 0);
    let meant = web && refused.proto == Proto::Dns;
    let port = port.or(meant.then_some(WEB));
    match (host, refused.dst) {
        (Some(host), _) => name_term(host, port, over),
        (None, Some(dst)) => addr_term(dst.ip(), port, over),
        (None, None) => None,
    }
}

/// The term for a name; `None` for one that the gate answers by itself.
pub(crate) fn name_term(host: &Host, port: Option<u16>, over: Option<Transport>) -> Option<String> {
    let last = host.as_str().rsplit('.').next().unwrap_or_default();
    // A word of a reach is no host to a person who reads it.
    if WORDS.contains(&host.as_str()) {
        return None;
    }
    // Names of the link are asked for by multicast DNS, or by nobody.
    if last == "local" {
        return Some(ReachTerm::Mdns.to_string());
    }
    if NOWHERE.contains(&last) || ["localhost", "bailey"].contains(&last) {
        return None;
    }
    // A name may hold any octet, those that part terms and ports among them.
    let same = |term: &ReachTerm| match term {
        ReachTerm::Name(HostPattern::Exact(named), ports) => {
            named == host && ports.ports.iter().copied().eq(port) && ports.transport == over
        }
        _ => false,
    };
    checked(format!("{host}{}{}", colon(port), slash(over)), same)
}

/// The term for a port of the node's loopback.
pub(crate) fn loopback_term(port: u16, over: Option<Transport>) -> Option<String> {
    checked(format!("lo:{port}{}", slash(over)), |term| {
        matches!(term, ReachTerm::Loopback(_))
    })
}

/// Why no dial would ever be granted by a term, where that is so. What prefixes
/// mean on this machine's own networks is the gate's to know; here the registries
/// say it.
pub(crate) fn never_grants(term: &ReachTerm) -> Option<String> {
    match term {
        ReachTerm::Name(HostPattern::Exact(host) | HostPattern::Below(host), _) => {
            let last = host.as_str().rsplit('.').next().unwrap_or_default();
            match last {
                "bailey" => {
                    Some("it is the gate's own name: lo:PORT grants what it leads to".to_owned())
                }
                "localhost" => Some("it is the box's own loopback".to_owned()),
                "local" => Some("such names are asked for by multicast DNS: mdns".to_owned()),
                last if NOWHERE.contains(&last) => {
                    Some("no such name is asked of anybody".to_owned())
                }
                _ => None,
            }
        }
        ReachTerm::Prefix { addr, len, .. } if *len == whole(*addr) => {
            let class = classify(*addr, &NodeAddrs::default());
            (!is_grantable(class)).then(|| no_word(class))
        }
        ReachTerm::Internet
        | ReachTerm::Local
        | ReachTerm::Loopback(_)
        | ReachTerm::Mdns
        | ReachTerm::Prefix { .. } => None,
    }
}

/// What a person is told of a class, where it is not public.
pub(crate) fn class_words(class: AddrClass) -> &'static str {
    match class {
        AddrClass::Private => "private, not on this machine's networks",
        class => class.as_str(),
    }
}

/// Why no word of a reach grants an address of that class.
pub(crate) fn no_word(class: AddrClass) -> String {
    match class {
        AddrClass::Metadata => "no word grants a metadata service".to_owned(),
        AddrClass::Node => "no word grants the node's own listeners".to_owned(),
        AddrClass::Gate => "no word grants the gate's own address but lo:PORT".to_owned(),
        AddrClass::Loopback => "no word grants the node's loopback by its address: lo:PORT grants \
                                one port of it, at the name host.bailey"
            .to_owned(),
        class => format!("no word grants it: {}", class.as_str()),
    }
}

fn whole(addr: IpAddr) -> u8 {
    if addr.is_ipv4() { 32 } else { 128 }
}

/// The term for an address.
pub(crate) fn addr_term(
    addr: std::net::IpAddr,
    port: Option<u16>,
    over: Option<Transport>,
) -> Option<String> {
    let bracket = addr.is_ipv6() && port.is_some();
    let addr = if bracket {
        format!("[{addr}]")
    } else {
        addr.to_string()
    };
    checked(format!("{addr}{}{}", colon(port), slash(over)), |term| {
        matches!(term, ReachTerm::Prefix { .. })
    })
}

/// The command for a person outside.
pub(crate) fn command(box_name: &str, term: &str) -> String {
    account::command(&format!(
        "allow {} {}",
        show::shell_word(box_name),
        show::shell_word(term)
    ))
}

fn colon(port: Option<u16>) -> String {
    port.map(|port| format!(":{port}")).unwrap_or_default()
}

fn slash(over: Option<Transport>) -> &'static str {
    match over {
        None => "",
        Some(Transport::Tcp) => "/tcp",
        Some(Transport::Udp) => "/udp",
    }
}

/// Only what is the one term meant goes into a command that a person may copy.
fn checked(written: String, is_meant: impl Fn(&ReachTerm) -> bool) -> Option<String> {
    let reach: Reach = written.parse().ok()?;
    match reach.terms() {
        [term] if is_meant(term) => Some(written),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use bailey_model::{Direction, HostFrom};

    use super::*;

    fn refused(
        proto: Proto,
        host: Option<&str>,
        dst: Option<&str>,
        class: Option<AddrClass>,
    ) -> FlowRefused {
        let refusal = match proto {
            Proto::Dns => Refusal::NameOutsideReach,
            _ => Refusal::OutsideReach,
        };
        FlowRefused {
            direction: Direction::Out,
            proto,
            src: None,
            dst: dst.map(|dst| dst.parse().unwrap()),
            host: host.and_then(Host::new),
            host_from: HostFrom::None,
            class,
            refusal,
            count: 1,
        }
    }

    #[test]
    fn a_refused_group_names_the_word_that_opens_it_if_one_does() {
        for (dst, proto, expected) in [
            ("224.0.0.251:5353", Proto::Udp, Some("mdns")),
            ("[ff02::fb]:5353", Proto::Udp, Some("mdns")),
            ("224.0.0.251:5354", Proto::Udp, None),
            ("239.255.255.250:1900", Proto::Udp, None),
            ("224.0.0.251:5353", Proto::Tcp, None),
        ] {
            let of = FlowRefused {
                refusal: Refusal::Multicast,
                ..refused(proto, None, Some(dst), Some(AddrClass::Multicast))
            };
            assert_eq!(term(&of, false).as_deref(), expected, "{dst}");
        }
    }

    #[test]
    fn a_refusal_names_the_term_that_would_grant_it_or_none() {
        let (internet, local) = (Some(AddrClass::Internet), Some(AddrClass::Local));
        let private = Some(AddrClass::Private);
        let shop = Some("93.184.216.34:443");
        for (of, expected) in [
            (
                refused(Proto::Tcp, None, shop, internet),
                Some("93.184.216.34:443"),
            ),
            (
                refused(Proto::Udp, None, shop, internet),
                Some("93.184.216.34:443/udp"),
            ),
            (
                refused(Proto::Tcp, Some("shop.example"), shop, internet),
                Some("shop.example:443"),
            ),
            (
                refused(Proto::Tcp, Some("nas"), Some("10.0.0.5:22"), local),
                Some("10.0.0.5:22"),
            ),
            (
                refused(Proto::Tcp, None, Some("[fd00::1]:22"), local),
                Some("[fd00::1]:22"),
            ),
            (
                refused(Proto::Tcp, Some("nas"), Some("10.0.0.5:22"), private),
                Some("10.0.0.5:22"),
            ),
            (
                refused(Proto::Udp, None, Some("[fd00::1]:53"), private),
                Some("[fd00::1]:53/udp"),
            ),
            (
                refused(Proto::Dns, Some("shop.example"), None, None),
                Some("shop.example"),
            ),
            (
                refused(Proto::Dns, Some("printer.local"), None, None),
                Some("mdns"),
            ),
            (refused(Proto::Dns, Some("printer.test"), None, None), None),
            (
                refused(Proto::Dns, Some("a\\000b.example"), None, None),
                None,
            ),
            (
                refused(
                    Proto::Tcp,
                    None,
                    Some("169.254.169.254:80"),
                    Some(AddrClass::Metadata),
                ),
                None,
            ),
            (refused(Proto::Other(47), None, None, internet), None),
        ] {
            assert_eq!(term(&of, false).as_deref(), expected, "{of:?}");
        }
        let command = command("yard", "*.shop.example");
        assert_eq!(command, "bailey allow yard '*.shop.example'");
    }

    #[test]
    fn a_name_of_the_web_is_granted_at_its_port() {
        let name = refused(Proto::Dns, Some("shop.example"), None, None);
        assert_eq!(term(&name, true).as_deref(), Some("shop.example:443"));
        let link = refused(Proto::Dns, Some("printer.local"), None, None);
        assert_eq!(term(&link, true).as_deref(), Some("mdns"));
        // A dial names its own port.
        let dial = refused(
            Proto::Tcp,
            Some("shop.example"),
            Some("93.184.216.34:22"),
            Some(AddrClass::Internet),
        );
        assert_eq!(term(&dial, true).as_deref(), Some("shop.example:22"));
    }

    #[test]
    fn a_name_that_reads_as_something_else_is_in_no_command() {
        for name in [
            "0.0.0.0/0",
            "10.0.0.0/8:22",
            "internet",
            "internet,local",
            "local",
            "nothing",
            "mdns",
            "*.com",
            "lo:5432",
            "shop.example:80",
            "shop.example/tcp",
            "a.example,80",
        ] {
            let of = refused(Proto::Dns, Some(name), None, None);
            assert!(of.host.is_some(), "{name}");
            assert_eq!(term(&of, true), None, "{name}");
            let of = refused(
                Proto::Tcp,
                Some(name),
                Some("93.184.216.34:443"),
                Some(AddrClass::Internet),
            );
            assert_eq!(term(&of, true), None, "{name}");
        }
    }

    #[test]
    fn what_no_dial_is_granted_by_is_known() {
        for (written, never) in [
            ("169.254.169.254", true),
            ("127.0.0.1:80", true),
            ("224.0.0.251", true),
            ("240.0.0.1", true),
            ("x.local", true),
            ("*.test", true),
            ("host.bailey:80", true),
            ("93.184.216.34", false),
            ("10.0.0.5:22", false),
            ("0.0.0.0/0", false),
            ("shop.example", false),
            ("lo:80", false),
            ("internet", false),
        ] {
            let reach: Reach = written.parse().unwrap();
            assert_eq!(
                never_grants(&reach.terms()[0]).is_some(),
                never,
                "{written}"
            );
        }
    }
}
