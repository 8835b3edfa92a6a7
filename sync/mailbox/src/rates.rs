//! How much one address may do: blobs a second, new topics an hour, connections.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// Blobs of one address in a burst, and each second after that.
const PUTS_BURST: f64 = 1000.0;
const PUTS_A_SECOND: f64 = 100.0;
/// Connections of one address.
const MAX_CONNECTIONS: u32 = 64;
/// Addresses remembered. Past it those that did nothing lately are forgotten, and
/// where there is none of them, a new one may do nothing.
const MAX_SOURCES: usize = 65_536;
const HOUR: f64 = 3600.0;

/// Whom something is counted for: an IPv4 address, or the /64 of an IPv6 one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    V4([u8; 4]),
    V6([u8; 8]),
}

impl Source {
    pub(crate) fn of(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(v4) => Self::V4(v4.octets()),
            IpAddr::V6(v6) => {
                let [a, b, c, d, e, f, g, h, ..] = v6.octets();
                Self::V6([a, b, c, d, e, f, g, h])
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Spent {
    puts: f64,
    topics: f64,
    connections: u32,
    at: Duration,
}

/// What every address has left.
#[derive(Debug)]
pub(crate) struct Rates {
    topics: f64,
    sources: HashMap<Source, Spent>,
}

impl Rates {
    pub(crate) fn new(topics_an_hour: u32) -> Self {
        Self {
            topics: f64::from(topics_an_hour),
            sources: HashMap::new(),
        }
    }

    fn source(&mut self, source: Source, now: Duration) -> Option<&mut Spent> {
        let most = self.topics;
        let refill = |spent: &mut Spent| {
            let passed = now.saturating_sub(spent.at).as_secs_f64();
            spent.puts = (spent.puts + passed * PUTS_A_SECOND).min(PUTS_BURST);
            spent.topics = (spent.topics + passed * most / HOUR).min(most);
            spent.at = now;
        };
        if !self.sources.contains_key(&source) && self.sources.len() >= MAX_SOURCES {
            self.sources.retain(|_, spent| {
                refill(spent);
                let idle = spent.puts >= PUTS_BURST && spent.topics >= most;
                spent.connections > 0 || !idle
            });
            if self.sources.len() >= MAX_SOURCES {
                return None;
            }
        }
        let spent = self.sources.entry(source).or_insert(Spent {
            puts: PUTS_BURST,
            topics: most,
            connections: 0,
            at: now,
        });
        refill(spent);
        Some(spent)
    }

    /// Whether one more blob may come from there.
    pub(crate) fn put(&mut self, source: Source, now: Duration) -> bool {
        let spent = self.source(source, now);
        spent.is_some_and(|spent| take(&mut spent.puts))
    }

    /// Whether one more topic may begin from there.
    pub(crate) fn topic(&mut self, source: Source, now: Duration) -> bool {
        let spent = self.source(source, now);
        spent.is_some_and(|spent| take(&mut spent.topics))
    }

    /// Whether one more connection may come from there; [`Self::left`] gives it back.
    pub(crate) fn connect(&mut self, source: Source, now: Duration) -> bool {
        let spent = self.source(source, now);
        spent.is_some_and(|spent| {
            let fits = spent.connections < MAX_CONNECTIONS;
            spent.connections += u32::from(fits);
            fits
        })
    }

    pub(crate) fn left(&mut self, source: Source) {
        if let Some(spent) = self.sources.get_mut(&source) {
            spent.connections = spent.connections.saturating_sub(1);
        }
    }
}

fn take(left: &mut f64) -> bool {
    let takes = *left >= 1.0;
    if takes {
        *left -= 1.0;
    }
    takes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(n: u32) -> Source {
        Source::V4(n.to_be_bytes())
    }

    #[test]
    fn an_address_may_do_so_much_and_another_is_not_held_up() {
        let mut rates = Rates::new(10);
        let now = Duration::from_secs(5);
        let burst = (0..2000).filter(|_| rates.put(v4(1), now)).count();
        assert_eq!(burst, 1000);
        assert!(rates.put(v4(2), now));
        let later = now + Duration::from_millis(100);
        assert_eq!((0..100).filter(|_| rates.put(v4(1), later)).count(), 10);
        assert_eq!((0..20).filter(|_| rates.topic(v4(1), now)).count(), 10);
        let later = now + Duration::from_secs(360);
        assert_eq!((0..20).filter(|_| rates.topic(v4(1), later)).count(), 1);
        let connected = (0..100).filter(|_| rates.connect(v4(1), now)).count();
        assert_eq!(connected, MAX_CONNECTIONS as usize);
        rates.left(v4(1));
        assert!(rates.connect(v4(1), now));
    }

    #[test]
    fn the_table_is_bounded_and_forgets_who_is_idle() {
        let mut rates = Rates::new(10);
        let now = Duration::from_secs(5);
        for n in 0..u32::try_from(MAX_SOURCES).unwrap() {
            assert!(rates.put(v4(n), now));
        }
        assert!(!rates.put(v4(u32::MAX), now));
        assert!(rates.put(v4(u32::MAX), now + Duration::from_secs(60)));
        assert_eq!(rates.sources.len(), 1);
    }

    #[test]
    fn neighbours_in_ipv6_are_one() {
        let of = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::2:3"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
