//! A reach that gets or loses terms.
//!
//! A reach only grants, so a part of what one term grants cannot be taken out
//! of it unless the rest can be written as terms again: some of its ports, one
//! of its transports. What would still be granted by another term is an error,
//! never silently still granted.

use std::fmt;

use super::{HostPattern, PortSet, Reach, ReachTerm, Transport, is_below};

/// Why a reach cannot be changed so; it stays as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeReachError {
    /// `nothing` is no term that could be added or taken away.
    Nothing,
    /// It would have more than [`Reach::MAX_TERMS`] terms.
    TooMany,
    /// Its text would be longer than [`Reach::MAX_TEXT`].
    TooLong,
    /// No term grants what is to be taken away.
    NotGranted {
        /// What is to be taken away, as written.
        term: String,
    },
    /// Another term would go on granting it, all or in part.
    StillGranted {
        /// What is to be taken away, as written.
        term: String,
        /// The term that would go on granting it.
        by: String,
    },
}

impl fmt::Display for ChangeReachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("`nothing` is no term of a reach"),
            Self::TooMany => write!(f, "too many terms (at most {})", Reach::MAX_TERMS),
            Self::TooLong => write!(f, "too long (at most {} bytes)", Reach::MAX_TEXT),
            Self::NotGranted { term } => write!(f, "{term:?}: no term of the reach grants it"),
            Self::StillGranted { term, by } => write!(
                f,
                "{term:?}: {by:?} would still grant it, and a reach has no word for all but that"
            ),
        }
    }
}

impl std::error::Error for ChangeReachError {}

impl Reach {
    /// This reach with these terms behind its own; one that it has already is
    /// not added again.
    ///
    /// # Errors
    /// Nothing to add, or too many terms.
    pub fn with(&self, more: &Self) -> Result<Self, ChangeReachError> {
        if more.terms.is_empty() {
            return Err(ChangeReachError::Nothing);
        }
        let mut terms = self.terms.clone();
        for term in &more.terms {
            if !terms.contains(term) {
                terms.push(term.clone());
            }
        }
        Self { terms }.bounded()
    }

    fn bounded(self) -> Result<Self, ChangeReachError> {
        if self.terms.len() > Self::MAX_TERMS {
            return Err(ChangeReachError::TooMany);
        }
        if self.to_string().len() > Self::MAX_TEXT {
            return Err(ChangeReachError::TooLong);
        }
        Ok(self)
    }

    /// This reach without what these terms grant. `internet` and `local` take
    /// only their own word away; a name, a pattern or a prefix also the narrower
    /// ones, and of one that is as narrow as many ports as it says.
    ///
    /// `is_within` says whether a word that stays (`internet` or `local`) grants
    /// an address of a prefix that is taken away.
    ///
    /// # Errors
    /// A term that takes nothing away, or that another would go on granting.
    pub fn without(
        &self,
        less: &Self,
        is_within: impl Fn(&ReachTerm, &ReachTerm) -> bool,
    ) -> Result<Self, ChangeReachError> {
        if less.terms.is_empty() {
            return Err(ChangeReachError::Nothing);
        }
        let mut terms = self.terms.clone();
        for denied in &less.terms {
            let left: Vec<_> = terms.iter().flat_map(|term| rest(term, denied)).collect();
            let had = self.terms.iter().any(|term| meets(term, denied));
            if left == terms && !had {
                let by = terms
                    .iter()
                    .find(|term| word_grants(term, denied, &is_within));
                return Err(match by {
                    Some(by) => still(denied, by),
                    None => ChangeReachError::NotGranted {
                        term: denied.to_string(),
                    },
                });
            }
            terms = left;
        }
        for denied in &less.terms {
            let by = terms
                .iter()
                .find(|term| meets(term, denied) || word_grants(term, denied, &is_within));
            if let Some(by) = by {
                return Err(still(denied, by));
            }
        }
        Self { terms }.bounded()
    }
}

fn still(denied: &ReachTerm, by: &ReachTerm) -> ChangeReachError {
    ChangeReachError::StillGranted {
        term: denied.to_string(),
        by: by.to_string(),
    }
}

/// Whether a wide word goes on granting what is denied by name or address.
fn word_grants(
    term: &ReachTerm,
    denied: &ReachTerm,
    is_within: &impl Fn(&ReachTerm, &ReachTerm) -> bool,
) -> bool {
    match (term, denied) {
        (ReachTerm::Internet, ReachTerm::Name(..)) => true,
        (ReachTerm::Internet | ReachTerm::Local, ReachTerm::Prefix { .. }) => {
            is_within(term, denied)
        }
        // All addresses there are, as a word would say it.
        (ReachTerm::Prefix { len: 0, .. }, ReachTerm::Internet | ReachTerm::Local) => true,
        _ => false,
    }
}

/// What is left of a term: nothing, itself, or narrower ones.
fn rest(term: &ReachTerm, denied: &ReachTerm) -> Vec<ReachTerm> {
    if !covers(denied, term) {
        return vec![term.clone()];
    }
    let (Some(ports), Some(taken)) = (ports_of(term), ports_of(denied)) else {
        return Vec::new();
    };
    ports_left(ports, taken)
        .into_iter()
        .map(|ports| with_ports(term, ports))
        .collect()
}

/// Whether the denied term's place holds all of the other's.
fn covers(denied: &ReachTerm, term: &ReachTerm) -> bool {
    match (denied, term) {
        (ReachTerm::Internet, ReachTerm::Internet)
        | (ReachTerm::Local, ReachTerm::Local)
        | (ReachTerm::Mdns, ReachTerm::Mdns)
        | (ReachTerm::Loopback(_), ReachTerm::Loopback(_)) => true,
        (ReachTerm::Name(wide, _), ReachTerm::Name(narrow, _)) => match (wide, narrow) {
            (HostPattern::Exact(wide), HostPattern::Exact(narrow)) => wide == narrow,
            (HostPattern::Exact(_), HostPattern::Below(_)) => false,
            (HostPattern::Below(_), HostPattern::Exact(narrow)) => wide.matches(narrow),
            (HostPattern::Below(wide), HostPattern::Below(narrow)) => {
                wide == narrow || is_below(narrow.as_str(), wide.as_str())
            }
        },
        (
            ReachTerm::Prefix { addr, len, .. },
            ReachTerm::Prefix {
                addr: narrow,
                len: longer,
                ..
            },
        ) => len <= longer && shares(*addr, *narrow, *len),
        _ => false,
    }
}

/// Whether two addresses of one family begin with the same bits.
pub(super) fn shares(one: std::net::IpAddr, other: std::net::IpAddr, len: u8) -> bool {
    let differ = match (one, other) {
        (std::net::IpAddr::V4(one), std::net::IpAddr::V4(other)) => {
            (u128::from(one.to_bits() ^ other.to_bits())) << 96
        }
        (std::net::IpAddr::V6(one), std::net::IpAddr::V6(other)) => one.to_bits() ^ other.to_bits(),
        _ => return false,
    };
    differ.leading_zeros() >= u32::from(len)
}

/// Whether some dial is granted by the one and named by the other, as far as
/// both are of one kind.
fn meets(term: &ReachTerm, denied: &ReachTerm) -> bool {
    if !covers(denied, term) && !covers(term, denied) {
        return false;
    }
    match (ports_of(term), ports_of(denied)) {
        (Some(ports), Some(taken)) => {
            let transport = match (ports.transport, taken.transport) {
                (Some(one), Some(other)) => one == other,
                _ => true,
            };
            let all = ports.ports.is_empty() || taken.ports.is_empty();
            transport && (all || ports.ports.iter().any(|port| taken.ports.contains(port)))
        }
        _ => true,
    }
}

fn ports_of(term: &ReachTerm) -> Option<&PortSet> {
    match term {
        ReachTerm::Internet | ReachTerm::Local | ReachTerm::Mdns => None,
        ReachTerm::Loopback(ports)
        | ReachTerm::Name(_, ports)
        | ReachTerm::Prefix { ports, .. } => Some(ports),
    }
}

fn with_ports(term: &ReachTerm, ports: PortSet) -> ReachTerm {
    match term {
        ReachTerm::Internet | ReachTerm::Local | ReachTerm::Mdns => term.clone(),
        ReachTerm::Loopback(_) => ReachTerm::Loopback(ports),
        ReachTerm::Name(pattern, _) => ReachTerm::Name(pattern.clone(), ports),
        ReachTerm::Prefix { addr, len, .. } => ReachTerm::Prefix {
            addr: *addr,
            len: *len,
            ports,
        },
    }
}

/// The ports that stay. All ports less some of them is no set that a term can
/// say: then they stay whole, and what was denied is still granted.
fn ports_left(ports: &PortSet, taken: &PortSet) -> Vec<PortSet> {
    let set = |ports: Vec<u16>, transport| PortSet { ports, transport };
    let (stay, go): (Vec<u16>, Vec<u16>) = match (&ports.ports[..], &taken.ports[..]) {
        ([], [_, ..]) => return vec![ports.clone()],
        (_, []) => (Vec::new(), ports.ports.clone()),
        (own, taken) => own.iter().partition(|port| !taken.contains(port)),
    };
    if !taken.ports.is_empty() && go.is_empty() {
        return vec![ports.clone()];
    }
    let kept = match (ports.transport, taken.transport) {
        (_, None) => None,
        (Some(own), Some(gone)) => (own != gone).then_some(own),
        (None, Some(Transport::Tcp)) => Some(Transport::Udp),
        (None, Some(Transport::Udp)) => Some(Transport::Tcp),
    };
    let mut left = Vec::new();
    if !stay.is_empty() {
        left.push(set(stay, ports.transport));
    }
    left.extend(kept.map(|transport| set(go, Some(transport))));
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(text: &str) -> Reach {
        text.parse().unwrap()
    }

    /// What the words of the node's own machine grant is another room's: here
    /// `local` grants 192.168.0.0/16 and `internet` all else.
    fn within(word: &ReachTerm, denied: &ReachTerm) -> bool {
        let ReachTerm::Prefix { addr, .. } = denied else {
            return false;
        };
        let local = addr.to_string().starts_with("192.168.");
        local == (*word == ReachTerm::Local)
    }

    fn denied(from: &str, less: &str) -> Result<String, ChangeReachError> {
        let left = reach(from).without(&reach(less), within)?;
        assert_eq!(left.to_string().parse::<Reach>().unwrap(), left);
        Ok(left.to_string())
    }

    #[test]
    fn terms_are_added_once() {
        let with = |own: &str, more: &str| reach(own).with(&reach(more)).map(|new| new.to_string());
        assert_eq!(with("nothing", "internet").unwrap(), "internet");
        assert_eq!(
            with("internet", "internet,10.0.0.1:80").unwrap(),
            "internet,10.0.0.1:80"
        );
        assert_eq!(with("a.b", "a.b").unwrap(), "a.b");
        assert_eq!(with("a.b", "nothing"), Err(ChangeReachError::Nothing));
        let many: Vec<String> = (0..256).map(|n| format!("h{n}.example")).collect();
        assert_eq!(
            with(&many.join(","), "one.more"),
            Err(ChangeReachError::TooMany)
        );
        // Fewer, and each as long as a name may be.
        let far = |n: usize| format!("{n}{}", ".aaaaaaaaa".repeat(24));
        let half = (0..17).map(far).collect::<Vec<_>>().join(",");
        let other = (17..34).map(far).collect::<Vec<_>>().join(",");
        assert_eq!(with(&half, &other), Err(ChangeReachError::TooLong));
        assert!(format!("{half},{other}").parse::<Reach>().is_err());
    }

    #[test]
    fn what_is_denied_is_granted_by_no_term_that_is_left() {
        for (from, less, left) in [
            ("internet", "internet", "nothing"),
            ("internet,shop.example", "internet", "shop.example"),
            ("internet,93.184.216.0/24", "internet", "93.184.216.0/24"),
            ("internet,local", "local", "internet"),
            ("a.b,c.d:80", "a.b", "c.d:80"),
            ("a.b:80,443", "a.b:80", "a.b:443"),
            ("a.b:80,443", "a.b", "nothing"),
            ("a.b:80,443/tcp,a.b:53", "a.b", "nothing"),
            ("a.b:80,443", "a.b:80/udp", "a.b:443,a.b:80/tcp"),
            ("a.b", "a.b/udp", "a.b/tcp"),
            ("a.b/tcp", "a.b/tcp", "nothing"),
            ("x.a.b,a.b", "*.a.b", "a.b"),
            ("*.x.a.b:1,*.a.b:2", "*.a.b", "nothing"),
            ("10.1.2.3:80,10.2.0.0/16", "10.0.0.0/8", "nothing"),
            ("internet,192.168.1.9:80", "192.168.1.9", "internet"),
            ("[2001:db8::1]:443", "2001:db8::/32", "nothing"),
        ] {
            assert_eq!(denied(from, less).unwrap(), left, "{from} less {less}");
        }
    }

    #[test]
    fn what_cannot_be_taken_away_changes_nothing_and_says_why() {
        for (from, less, by) in [
            ("internet", "a.b:80", Some("internet")),
            ("internet,a.b:80", "a.b", Some("internet")),
            ("a.b", "a.b:80", Some("a.b")),
            ("*.a.b", "x.a.b", Some("*.a.b")),
            ("10.0.0.0/8", "10.1.2.3", Some("10.0.0.0/8")),
            ("local", "192.168.1.9", Some("local")),
            ("internet", "93.184.216.34", Some("internet")),
            ("internet", "192.168.1.9", None),
            ("internet,0.0.0.0/0", "internet", Some("0.0.0.0/0")),
            ("::/0", "local", Some("::/0")),
            ("a.b", "b.a", None),
            ("a.b:80", "a.b:81", None),
            ("a.b/tcp", "a.b/udp", None),
            ("nothing", "internet", None),
            ("internet", "local", None),
        ] {
            let expected = match by {
                Some(by) => ChangeReachError::StillGranted {
                    term: less.to_owned(),
                    by: by.to_owned(),
                },
                None => ChangeReachError::NotGranted {
                    term: less.to_owned(),
                },
            };
            assert_eq!(denied(from, less), Err(expected), "{from} less {less}");
        }
        assert_eq!(
            denied("internet", "nothing"),
            Err(ChangeReachError::Nothing)
        );
        // Together they can go.
        assert_eq!(
            denied("internet,a.b:80", "a.b,internet").unwrap(),
            "nothing"
        );
    }
}
