//! What the world's own observers wrote down, read back.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

/// What kind of packet a node sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SeenKind {
    /// A TCP segment with SYN and without ACK. Retransmissions count too.
    TcpSyn,
    /// A UDP datagram.
    Udp,
    /// An ICMP or ICMPv6 echo request; its ports are 0.
    Ping,
}

/// One packet that left a node and reached the router's side of its link: seen
/// outside every box and every gate, whether or not anything answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// When, by the machine's clock.
    pub at: SystemTime,
    /// Which node sent it.
    pub node: String,
    /// What it was.
    pub kind: SeenKind,
    /// From where.
    pub src: SocketAddr,
    /// To where.
    pub dst: SocketAddr,
}

/// One question that reached a name server of the world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// When, by the machine's clock.
    pub at: SystemTime,
    /// By TCP rather than UDP.
    pub tcp: bool,
    /// Who asked.
    pub from: IpAddr,
    /// The type's number: 1 A, 28 AAAA, 65 HTTPS.
    pub qtype: u16,
    /// The name in lower case, without the last dot.
    pub name: String,
}

impl SeenKind {
    /// The word in the log.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::TcpSyn => "syn",
            Self::Udp => "udp",
            Self::Ping => "ping",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Self::TcpSyn, Self::Udp, Self::Ping]
            .into_iter()
            .find(|kind| kind.word() == word)
    }
}

impl Seen {
    /// One line of the witness's log.
    pub(crate) fn line(&self) -> String {
        let Self {
            at,
            node,
            kind,
            src,
            dst,
        } = self;
        format!("{} {node} {} {src} {dst}\n", nanos(*at), kind.word())
    }

    /// `None` for a line that is not whole.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let seen = Self {
            at: time(words.next()?)?,
            node: words.next()?.to_owned(),
            kind: SeenKind::parse(words.next()?)?,
            src: words.next()?.parse().ok()?,
            dst: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(seen)
    }
}

impl Asked {
    /// One line of the name server's log.
    pub(crate) fn line(&self) -> String {
        let Self {
            at,
            tcp,
            from,
            qtype,
            name,
        } = self;
        let transport = if *tcp { "tcp" } else { "udp" };
        format!("{} {transport} {from} {qtype} {name}\n", nanos(*at))
    }

    /// `None` for a line that is not whole.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(5, ' ');
        Some(Self {
            at: time(words.next()?)?,
            tcp: match words.next()? {
                "tcp" => true,
                "udp" => false,
                _ => return None,
            },
            from: words.next()?.parse().ok()?,
            qtype: words.next()?.parse().ok()?,
            name: words.next()?.to_owned(),
        })
    }
}

fn nanos(at: SystemTime) -> u128 {
    at.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos()
}

fn time(word: &str) -> Option<SystemTime> {
    let nanos: u64 = word.parse().ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_nanos(1_700_000_000_123_456_789);
        for (src, dst) in [
            ("192.168.1.11:4000", "9.9.9.9:53"),
            ("[fd12::2]:1", "[2620:fe::fe]:9"),
        ] {
            let seen = Seen {
                at,
                node: "n1".to_owned(),
                kind: SeenKind::Udp,
                src: src.parse().unwrap(),
                dst: dst.parse().unwrap(),
            };
            assert_eq!(Seen::parse(seen.line().trim_end()), Some(seen));
        }
        let asked = Asked {
            at,
            tcp: true,
            from: "192.168.1.11".parse().unwrap(),
            qtype: 28,
            name: "a name with spaces.example".to_owned(),
        };
        assert_eq!(Asked::parse(asked.line().trim_end()), Some(asked));
    }

    #[test]
    fn a_line_that_is_not_whole_is_nothing() {
        for line in [
            "",
            "17",
            "17 n1 syn 1.2.3.4:5",
            "x n1 syn 1.2.3.4:5 1.2.3.4:6",
            "17 udp",
        ] {
            assert_eq!(Seen::parse(line), None);
            assert_eq!(Asked::parse(line), None);
        }
    }
}
