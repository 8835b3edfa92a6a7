//! The name table: which addresses this gate's DNS gave this box, for which name.
//!
//! It is what a name grant opens, and where a flow's name comes from. One table
//! a box: what another box looked up opens nothing here.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use bailey_model::Host;

use crate::Now;
use crate::addr::unmapped;

/// Shortest time that an answer counts for: programs resolve, then dial later.
pub(crate) const MIN_TTL: Duration = Duration::from_secs(30);
/// Longest time that an answer counts for, however long its TTL.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(3600);
/// Added to each: the time between a box's cached answer and its dial.
pub(crate) const GRACE: Duration = Duration::from_secs(60);
/// Most addresses of one name; pools of large services answer with some hundreds.
pub(crate) const MAX_ADDRS_PER_NAME: usize = 1_000;
/// Most names of one address: a dial looks at each of them.
pub(crate) const MAX_NAMES_PER_ADDR: usize = 256;
/// Most names at once; a browser's day is some thousands.
pub(crate) const MAX_NAMES: usize = 4_096;
/// Most (address, name) pairs at once, which bounds the table at some 20 MiB.
pub(crate) const MAX_PAIRS: usize = 65_536;

/// What this gate's DNS gave this box. All bounds evict what was given longest ago.
#[derive(Debug, Default)]
pub struct NameTable {
    /// Number of the newest gift; later is newer.
    serial: u64,
    pairs: HashMap<(IpAddr, Host), Given>,
    /// Every pair by age.
    by_age: BTreeMap<u64, (IpAddr, Host)>,
    by_addr: HashMap<IpAddr, BTreeMap<u64, (Host, Now)>>,
    by_name: HashMap<Host, BTreeMap<u64, Now>>,
    /// Every name by the age of its newest gift.
    names_by_age: BTreeMap<u64, Host>,
}

#[derive(Debug, Clone, Copy)]
struct Given {
    serial: u64,
    expires: Now,
}

impl NameTable {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes that the box was given `addr` for `name` with this TTL. It counts
    /// for the TTL, held to 30 s to 1 h, plus 60 s; given again, the longer stands.
    pub fn give(&mut self, now: Now, addr: IpAddr, name: &Host, ttl: Duration) {
        let addr = unmapped(addr);
        let expires = now
            .saturating_add(ttl.clamp(MIN_TTL, MAX_TTL))
            .saturating_add(GRACE);
        let expires = match self.remove(&(addr, name.clone())) {
            Some(before) => before.expires.max(expires),
            None => expires,
        };
        self.make_room(now, addr, name);
        self.serial += 1;
        let serial = self.serial;
        self.pairs
            .insert((addr, name.clone()), Given { serial, expires });
        self.by_age.insert(serial, (addr, name.clone()));
        self.by_addr
            .entry(addr)
            .or_default()
            .insert(serial, (name.clone(), expires));
        let serials = self.by_name.entry(name.clone()).or_default();
        if let Some((newest, _)) = serials.last_key_value() {
            self.names_by_age.remove(newest);
        }
        serials.insert(serial, expires);
        self.names_by_age.insert(serial, name.clone());
    }

    /// The names that hold for an address at `now`, newest given first.
    pub fn names(&self, now: Now, addr: IpAddr) -> impl Iterator<Item = &Host> {
        let addr = unmapped(addr);
        self.by_addr
            .get(&addr)
            .into_iter()
            .flat_map(|names| names.values().rev())
            .filter_map(move |(name, expires)| (*expires > now).then_some(name))
    }

    /// Whether some address holds for a name at `now`.
    #[must_use]
    pub fn knows(&self, now: Now, name: &Host) -> bool {
        self.by_name
            .get(name)
            .is_some_and(|given| given.values().any(|expires| *expires > now))
    }

    /// The addresses that hold for a name at `now`, newest given first.
    pub fn addrs(&self, now: Now, name: &Host) -> impl Iterator<Item = IpAddr> {
        let given = self.by_name.get(name).into_iter();
        given
            .flat_map(|given| given.iter().rev())
            .filter(move |(_, expires)| **expires > now)
            .filter_map(|(serial, _)| self.by_age.get(serial))
            .map(|(addr, _)| *addr)
    }

    /// Number of (address, name) pairs held, expired ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether nothing was given, or all of it evicted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    fn make_room(&mut self, now: Now, addr: IpAddr, name: &Host) {
        // Expired pairs at the old end go first, a few a call.
        for _ in 0..2 {
            let Some((_, pair)) = self.by_age.first_key_value() else {
                break;
            };
            let pair = pair.clone();
            match self.pairs.get(&pair) {
                Some(given) if given.expires <= now => self.remove(&pair),
                _ => break,
            };
        }
        if let Some(serials) = self.by_name.get(name)
            && serials.len() >= MAX_ADDRS_PER_NAME
        {
            self.remove_serial(serials.first_key_value().map(|(serial, _)| *serial));
        }
        if let Some(names) = self.by_addr.get(&addr)
            && names.len() >= MAX_NAMES_PER_ADDR
        {
            self.remove_serial(names.first_key_value().map(|(serial, _)| *serial));
        }
        if !self.by_name.contains_key(name) && self.by_name.len() >= MAX_NAMES {
            self.remove_oldest_name();
        }
        if self.pairs.len() >= MAX_PAIRS {
            self.remove_serial(self.by_age.first_key_value().map(|(serial, _)| *serial));
        }
    }

    fn remove_oldest_name(&mut self) {
        let Some((_, name)) = self.names_by_age.first_key_value() else {
            return;
        };
        let serials = self.by_name.get(name).cloned().unwrap_or_default();
        for serial in serials.into_keys() {
            self.remove_serial(Some(serial));
        }
    }

    fn remove_serial(&mut self, serial: Option<u64>) {
        if let Some(pair) = serial.and_then(|serial| self.by_age.get(&serial)).cloned() {
            self.remove(&pair);
        }
    }

    fn remove(&mut self, pair: &(IpAddr, Host)) -> Option<Given> {
        let given = self.pairs.remove(pair)?;
        let (addr, name) = pair;
        self.by_age.remove(&given.serial);
        if let Some(names) = self.by_addr.get_mut(addr) {
            names.remove(&given.serial);
            if names.is_empty() {
                self.by_addr.remove(addr);
            }
        }
        if let Some(serials) = self.by_name.get_mut(name) {
            serials.remove(&given.serial);
            self.names_by_age.remove(&given.serial);
            match serials.last_key_value() {
                Some((newest, _)) => {
                    self.names_by_age.insert(*newest, name.clone());
                }
                None => {
                    self.by_name.remove(name);
                }
            }
        }
        Some(given)
    }
}

#[cfg(test)]
mod tests;
