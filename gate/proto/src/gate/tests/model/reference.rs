//! What the gate may do, told apart by flow: a simple machine that is given the
//! same inputs, and that every output is held against.

use std::collections::BTreeMap;

use super::*;

/// Where the box may want to go.
pub(super) const FAR: [&str; 6] = [
    "93.184.216.34:443",
    "151.101.1.1:443",
    "192.168.1.20:631",
    "198.18.0.9:22",
    "[2606:2800:220:1::1]:443",
    "93.184.216.34:80",
];
/// Its name leads to the second of them.
pub(super) const NAME: &str = "shop.example";
pub(super) const NAMED: [u8; 4] = [151, 101, 1, 1];
/// What the reach may be.
pub(super) const REACHES: [&str; 6] = [
    "internet",
    "internet,local",
    "local",
    "93.184.216.34:443/tcp",
    "shop.example",
    "nothing",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Tcp,
    Udp,
    Echo,
    /// By a published port: TCP, or datagrams.
    Came,
    CameUdp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its entry was asked for.
    Asked,
    /// Its entry stands, and (TCP) the dial is under way.
    Dialling(Now),
    /// Bytes may pass.
    Live(Now),
    Over,
}

/// One flow, as the reference has it.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) kind: Kind,
    pub(super) ends: Ends,
    pub(super) opened: Now,
    pub(super) stage: Stage,
    pub(super) named: bool,
    /// The shell holds a socket for it, and has not been told to close it.
    pub(super) socket: bool,
    pub(super) last: Now,
    pub(super) far: Far,
}

/// The rules by which a dial is granted, as the words of a reach say it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) reach: usize,
    /// The first and the last far end turned out to be on the node's network.
    pub(super) moved: bool,
}

impl Rules {
    pub(super) fn addrs(self) -> NodeAddrs {
        let mut on_link = vec![("192.168.1.0".parse().unwrap(), 24)];
        if self.moved {
            on_link.push(("93.184.216.0".parse().unwrap(), 24));
        }
        NodeAddrs {
            own: vec!["192.168.1.5".parse().unwrap()],
            on_link,
            has_v6_default: true,
            ..NodeAddrs::default()
        }
    }

    pub(super) fn permits(self, kind: Kind, dst: SocketAddr, named: bool) -> bool {
        let place = FAR.iter().position(|far| at(far).ip() == dst.ip());
        let (internet, local) = match place {
            Some(0 | 5) => (!self.moved, self.moved),
            Some(1 | 4) => (true, false),
            Some(2) => (false, true),
            _ => (false, false),
        };
        match REACHES[self.reach] {
            "internet" => internet,
            "internet,local" => internet || local,
            "local" => local,
            "93.184.216.34:443/tcp" => kind == Kind::Tcp && dst == at(FAR[0]),
            "shop.example" => named && internet,
            _ => false,
        }
    }
}

/// The far end of a TCP flow.
#[derive(Debug, Default)]
pub(super) struct Far {
    pub(super) key: u64,
    /// Bytes for the box, and how many of them the gate has read.
    pub(super) given: usize,
    pub(super) read: usize,
    /// How many bytes of the box it has, and how many it still takes.
    pub(super) got: usize,
    pub(super) room: Option<usize>,
    pub(super) ended: bool,
    pub(super) broken: bool,
    pub(super) finished: bool,
    /// Nothing of this is the business of a flow that came in.
    pub(super) mute: bool,
}

impl HostStream for Far {
    fn read(&mut self, into: &mut [u8]) -> StreamIo {
        let left = self.given - self.read;
        match (self.broken, left, self.ended) {
            (true, ..) => StreamIo::Broken,
            (_, 0, true) => StreamIo::Ended,
            (_, 0, false) => StreamIo::Blocked,
            _ => {
                let count = left.min(into.len());
                for (at, byte) in (self.read..).zip(&mut into[..count]) {
                    *byte = pattern(!self.key, at);
                }
                self.read += count;
                StreamIo::Moved(count)
            }
        }
    }

    fn write(&mut self, from: &[u8]) -> StreamIo {
        assert!(!self.finished, "bytes after the end");
        if self.broken {
            return StreamIo::Broken;
        }
        let count = from.len().min(self.room.unwrap_or(usize::MAX));
        if count == 0 {
            return StreamIo::Blocked;
        }
        self.room = self.room.map(|room| room - count);
        for (at, byte) in (self.got..).zip(&from[..count]) {
            assert!(
                self.mute || *byte == pattern(self.key, at),
                "{byte} at {at}"
            );
        }
        self.got += count;
        StreamIo::Moved(count)
    }

    fn finish(&mut self) {
        assert!(!std::mem::replace(&mut self.finished, true), "a second end");
    }
}

/// All flows ever, and what is not answered yet.
#[derive(Debug, Default)]
pub(super) struct Reference {
    pub(super) flows: BTreeMap<FlowId, Known>,
    /// Tickets that the node has not answered; `None`: a question's.
    pub(super) tickets: Vec<(u64, Option<FlowId>)>,
    /// Tickets of names, until their word.
    pub(super) names: Vec<(u64, Host)>,
    /// Names whose entry stands.
    pub(super) entered: Vec<Host>,
    /// Dials without an outcome; those that were given up stay.
    pub(super) dials: Vec<FlowId>,
    pub(super) asked: Vec<(ExchangeId, Vec<u8>)>,
    pub(super) ports: BTreeMap<UdpPort, SocketAddr>,
    /// Until when the name's address counts.
    pub(super) named_until: Now,
    pub(super) refusals: u64,
    pub(super) refusals_told: u64,
    pub(super) ends: BTreeMap<&'static str, u64>,
    /// What else was told: flows under way, and what names were answered.
    pub(super) told: BTreeMap<&'static str, u64>,
}

impl Reference {
    pub(super) fn open(&self) -> impl Iterator<Item = (&FlowId, &Known)> {
        self.flows
            .iter()
            .filter(|(_, known)| known.stage != Stage::Over)
    }

    /// The open flow between these ends.
    pub(super) fn at(&self, kind: Kind, ends: Ends) -> Option<FlowId> {
        let same = |known: &Known| known.kind == kind && known.ends == ends;
        self.open()
            .find(|(_, known)| same(known))
            .map(|(id, _)| *id)
    }

    /// How long each stage may last.
    pub(super) fn check_times(&self, now: Now) {
        for (id, known) in self.open() {
            let (since, most) = match (known.stage, known.kind) {
                (Stage::Asked, _) => (known.opened, ENTRY_TIMEOUT),
                (Stage::Dialling(since), Kind::Tcp) => (since, DIAL_TIMEOUT),
                (_, Kind::Udp | Kind::CameUdp) => (known.last, UDP_IDLE),
                (_, Kind::Echo) => (known.last, crate::icmp::ECHO_IDLE),
                (_, Kind::Tcp | Kind::Came) => continue,
            };
            assert!(now <= since + most, "{id:?} is too old: {known:?}");
        }
    }
}
