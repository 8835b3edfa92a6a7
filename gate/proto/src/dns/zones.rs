//! Names below one zone, counted: names can carry what a program would send.
//!
//! Where a zone begins is not known here, as no list of public suffixes is kept.
//! The last two labels are taken, and three where those two are short as in
//! `co.uk`; a wrong guess only joins or parts counts.

use std::collections::{HashMap, HashSet, VecDeque};

use bailey_model::Host;

use crate::Now;
use crate::coalesce::WINDOW;

/// Different names of one zone within [`WINDOW`] that have entries of their own;
/// past it they are one more, `*.ZONE`, with their number.
pub(crate) const MANY: usize = 16;
/// Most zones with an open window, and most names in one: both lie above what
/// the rate of questions lets in.
const MAX_ZONES: usize = 1_024;
const MAX_NAMES: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct Zones {
    open: HashMap<Host, Zone>,
    /// Open windows, oldest first.
    order: VecDeque<Host>,
    closed: VecDeque<(Host, u32)>,
}

#[derive(Debug)]
struct Zone {
    closes: Now,
    names: HashSet<Host>,
}

impl Zones {
    /// Notes a name; how many different ones of its zone there were within the
    /// window, this one included.
    pub(super) fn note(&mut self, now: Now, name: &Host) -> usize {
        self.close_due(now);
        let zone = zone_of(name);
        if !self.open.contains_key(&zone) {
            if self.open.len() >= MAX_ZONES {
                self.close_oldest();
            }
            self.order.push_back(zone.clone());
        }
        let zone = self.open.entry(zone).or_insert_with(|| Zone {
            closes: now.saturating_add(WINDOW),
            names: HashSet::new(),
        });
        if zone.names.len() < MAX_NAMES {
            zone.names.insert(name.clone());
        }
        zone.names.len()
    }

    /// The next zone whose window is over and that had more than [`MANY`] names,
    /// as `*.ZONE`, and their number.
    pub(super) fn poll(&mut self, now: Now) -> Option<(Host, u32)> {
        self.close_due(now);
        self.closed.pop_front()
    }

    pub(super) fn poll_timeout(&self) -> Option<Now> {
        if !self.closed.is_empty() {
            return Some(Now::ZERO);
        }
        // Only a window that will be told is worth waking for.
        let many = self.open.values().filter(|zone| zone.names.len() > MANY);
        many.map(|zone| zone.closes).min()
    }

    pub(super) fn close_all(&mut self) {
        while !self.order.is_empty() {
            self.close_oldest();
        }
    }

    fn close_due(&mut self, now: Now) {
        while let Some(zone) = self.order.front() {
            if self.open.get(zone).is_some_and(|zone| zone.closes > now) {
                return;
            }
            self.close_oldest();
        }
    }

    fn close_oldest(&mut self) {
        let Some(zone) = self.order.pop_front() else {
            return;
        };
        let names = self.open.remove(&zone).map_or(0, |zone| zone.names.len());
        if names > MANY
            && let Some(below) = below(&zone)
        {
            let names = u32::try_from(names).unwrap_or(u32::MAX);
            self.closed.push_back((below, names));
        }
    }
}

/// What stands for all names of a name's zone: the pattern that would grant them.
pub(super) fn zone_pattern(name: &Host) -> Option<Host> {
    below(&zone_of(name))
}

fn below(zone: &Host) -> Option<Host> {
    Host::new(&format!("*.{zone}"))
}

fn zone_of(name: &Host) -> Host {
    let text = name.as_str();
    let mut last = text.rsplit('.');
    let short = match (last.next(), last.next()) {
        (Some(top), Some(second)) => top.len() == 2 && second.len() <= 3,
        _ => false,
    };
    let labels = if short { 3 } else { 2 };
    let start = text
        .rmatch_indices('.')
        .nth(labels - 1)
        .map_or(0, |(dot, _)| dot + 1);
    let zone = text.get(start..).and_then(Host::new);
    zone.unwrap_or_else(|| name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        Host::new(text).unwrap()
    }

    #[test]
    fn a_zone_is_the_last_two_labels_or_three() {
        for (name, zone) in [
            ("a.b.evil.example", "evil.example"),
            ("evil.example", "evil.example"),
            ("printer", "printer"),
            ("a.b.co.uk", "b.co.uk"),
            ("co.uk", "co.uk"),
            ("9.113.0.203.in-addr.arpa", "in-addr.arpa"),
            ("t.co", "t.co"),
        ] {
            assert_eq!(zone_of(&host(name)), host(zone), "{name}");
        }
    }

    #[test]
    fn different_names_count_and_equal_ones_do_not() {
        let mut zones = Zones::default();
        for round in 1..=3 {
            for number in 1..=MANY {
                let many = zones.note(Now::ZERO, &host(&format!("x{number}.evil.example")));
                assert_eq!(many, if round == 1 { number } else { MANY });
            }
        }
        assert_eq!((zones.poll(WINDOW), zones.poll_timeout()), (None, None));
        for number in 0..300 {
            zones.note(WINDOW, &host(&format!("{number}.y.evil.example")));
            zones.note(WINDOW, &host("shop.example"));
        }
        assert_eq!(zones.poll_timeout(), Some(2 * WINDOW));
        assert_eq!(zones.poll(WINDOW), None);
        assert_eq!(zones.poll(2 * WINDOW), Some((host("*.evil.example"), 300)));
        assert_eq!(zones.poll(2 * WINDOW), None);
    }

    #[test]
    fn zones_and_their_names_are_bounded_and_no_count_is_lost() {
        let mut zones = Zones::default();
        for number in 0..2 * MAX_NAMES {
            zones.note(Now::ZERO, &host(&format!("{number}.evil.example")));
        }
        for number in 0..MAX_ZONES {
            zones.note(Now::ZERO, &host(&format!("www.{number}.example")));
        }
        assert_eq!(zones.open.len(), MAX_ZONES);
        let many = u32::try_from(MAX_NAMES).unwrap();
        assert_eq!(
            zones.poll(Now::ZERO),
            Some((host("*.evil.example"), many)),
            "the oldest made room, and was told"
        );
        zones.close_all();
        assert!(zones.open.is_empty() && zones.poll(Now::ZERO).is_none());
    }
}
