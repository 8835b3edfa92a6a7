//! A store as a node leaves it after some weeks, written by the store itself.
//!
//! Every day is a start of the node: a few boxes that run all day, some that have
//! no name and are over soon, their reports, a few notices. Times are those that
//! the entries would have had; the last is now.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bailey_docs_store::{
    Checkpointer, DocId, OsEntropy, Store, Urgency, load_or_create_device_keys,
};
use bailey_model::{
    AddrClass, Axis, AxisReport, AxisVerdict, BoundaryReport, BoxClass, BoxEnd, BoxEnded, BoxId,
    BoxStarted, ChildExit, Direction, EndReason, EntryRef, Event, Fact, FiveTuple, FlowEnded,
    FlowId, FlowOpened, Granted, Host, HostFrom, Incarnation, Level, Method, NameAsked, Notice,
    NoticeId, Proto, Rule, Tier, Timestamp,
};

const DAY_MS: u64 = 24 * 3_600_000;
/// The box that has seven of ten flows.
pub(crate) const BUSY: &str = "agent";
/// The boxes that run all day.
const BOXES: [&str; 4] = [BUSY, "browser", "server", "builder"];
/// Boxes without a name, each day.
const SHORT: u64 = 20;
const NOTICES: u64 = 3;
/// Flows of a box under way at once.
const OPEN: usize = 16;
/// Entries of one commit.
const COMMIT: u64 = 50;
/// Entries between two sealings, so that nearly every envelope is full.
const SEAL: u64 = 1000;
const CHECKPOINT: u64 = 20_000;

/// What was written, and how long that took.
#[derive(Debug)]
pub(crate) struct Filled {
    pub(crate) entries: u64,
    pub(crate) took: Duration,
    /// Bytes of the envelopes.
    pub(crate) sealed: u64,
}

/// One day's start of the store.
struct Day {
    store: Store,
    checkpointer: Checkpointer,
    now: Timestamp,
    entries: u64,
}

impl Day {
    fn enter(&mut self, doc: DocId, event: Event) -> io::Result<u64> {
        let no = self
            .store
            .append(doc, event, self.now, Urgency::Normal)
            .map_err(io::Error::other)?;
        self.entries += 1;
        if self.entries.is_multiple_of(COMMIT) {
            self.store.commit(false).map_err(io::Error::other)?;
        }
        if self.entries.is_multiple_of(SEAL) {
            self.store.seal(self.now).map_err(io::Error::other)?;
        }
        if self.entries.is_multiple_of(CHECKPOINT) {
            self.checkpointer.run().map_err(io::Error::other)?;
        }
        Ok(no)
    }

    /// Enters an event of a box in its own document and the node's.
    fn both(&mut self, id: BoxId, event: Event) -> io::Result<()> {
        self.enter(DocId::Node, event.clone())?;
        self.enter(DocId::Box(id), event).map(drop)
    }

    /// Ends the day, and gives how many bytes its envelopes are.
    fn over(mut self) -> io::Result<u64> {
        self.store.commit(true).map_err(io::Error::other)?;
        self.store.seal_all(self.now).map_err(io::Error::other)?;
        self.store.commit(true).map_err(io::Error::other)?;
        self.checkpointer.truncate().map_err(io::Error::other)?;
        let own = self.store.incarnation();
        let mut bytes = 0;
        for head in self.store.heads() {
            if head.chain.incarnation != own {
                continue;
            }
            let mut next = 1;
            while next <= head.seq {
                let some = self.store.range(&head.chain, next, 1000, usize::MAX);
                let some = some.map_err(io::Error::other)?;
                next += some.len().max(1) as u64;
                bytes += some.iter().map(|one| one.len() as u64).sum::<u64>();
            }
        }
        Ok(bytes)
    }
}

/// A box that runs, and its flows under way.
struct Running {
    id: BoxId,
    run: Incarnation,
    flows: u64,
    open: VecDeque<u64>,
}

impl Running {
    fn start(day: &mut Day, id: BoxId, run: u64, name: &str) -> io::Result<Self> {
        let mut incarnation = id.0;
        incarnation[8..].copy_from_slice(&run.to_be_bytes());
        let run = Incarnation(incarnation);
        let started = BoxStarted {
            box_id: id,
            name: name.to_owned(),
            incarnation: run,
            command: ["npm", "run", "build"].map(str::to_owned).to_vec(),
            reach: "internet".to_owned(),
            image: "host".to_owned(),
        };
        day.both(id, Event::BoxStarted(started))?;
        day.enter(DocId::Node, Event::Report(report(id, run)))?;
        Ok(Self {
            id,
            run,
            flows: 0,
            open: VecDeque::new(),
        })
    }

    fn doc(&self) -> DocId {
        DocId::Box(self.id)
    }

    /// A flow begins, and the oldest one ends if enough are under way.
    fn flow(&mut self, day: &mut Day) -> io::Result<()> {
        self.flows += 1;
        let no = self.flows;
        if no.is_multiple_of(8)
            && let Some(host) = host(no)
        {
            let (qtype, count) = (1, 1);
            let asked = NameAsked { host, qtype, count };
            day.enter(self.doc(), Event::NameAsked(asked))?;
        }
        day.enter(self.doc(), opened(no))?;
        self.open.push_back(no);
        if self.open.len() > OPEN {
            self.end_one(day)?;
        }
        Ok(())
    }

    fn end_one(&mut self, day: &mut Day) -> io::Result<()> {
        match self.open.pop_front() {
            Some(no) => day.enter(self.doc(), ended(no)).map(drop),
            None => Ok(()),
        }
    }

    fn end(mut self, day: &mut Day) -> io::Result<()> {
        while !self.open.is_empty() {
            self.end_one(day)?;
        }
        let ended = BoxEnded {
            box_id: self.id,
            incarnation: self.run,
            end: BoxEnd::Exited(ChildExit::Code(0)),
            processes_ended: Some(1),
            processes_left: Some(0),
            flows_reset: Some(0),
        };
        day.both(self.id, Event::BoxEnded(ended))
    }
}

/// Fills the store of a state folder: about `entries` entries over `days` days up to
/// now.
pub(crate) fn fill(state: &Path, entries: u64, days: u64) -> io::Result<Filled> {
    let started = Instant::now();
    let key = state.join("device.key");
    let keys = load_or_create_device_keys(&key, None, &mut OsEntropy).map_err(io::Error::other)?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = u64::try_from(since.map_err(io::Error::other)?.as_millis()).unwrap_or(u64::MAX);
    let (mut written, mut sealed) = (0, 0);
    for no in 0..days {
        let first = now - (days - no) * DAY_MS;
        let store = Store::open(state, keys.clone(), Timestamp(first), Box::new(OsEntropy));
        let mut store = store.map_err(io::Error::other)?;
        if no == 0 && store.account().is_none() {
            let made = store.create_account("bench", Timestamp(first));
            made.map_err(io::Error::other)?;
        }
        let checkpointer = store.checkpointer().map_err(io::Error::other)?;
        let day = Day {
            store,
            checkpointer,
            now: Timestamp(first),
            entries: 0,
        };
        let (entries, bytes) = one_day(day, no, first, entries / days)?;
        (written, sealed) = (written + entries, sealed + bytes);
    }
    Ok(Filled {
        entries: written,
        took: started.elapsed(),
        sealed,
    })
}

fn one_day(mut day: Day, no: u64, first: u64, entries: u64) -> io::Result<(u64, u64)> {
    let mut running = Vec::new();
    for (at, name) in (1..).zip(BOXES) {
        running.push(Running::start(&mut day, BoxId([at; 16]), no, name)?);
    }
    let short = entries / SHORT;
    let mut flow = 0;
    while day.entries < entries {
        day.now = Timestamp(first + DAY_MS * day.entries / entries);
        let at = match flow % 10 {
            0..7 => 0,
            other => usize::try_from(other - 6).unwrap_or(0),
        };
        flow += 1;
        if let Some(one) = running.get_mut(at) {
            one.flow(&mut day)?;
        }
        if day.entries / short.max(1) > (day.entries - 3).min(day.entries) / short.max(1) {
            let number = no * SHORT + day.entries / short.max(1);
            let mut id = [0xf0; 16];
            id[8..].copy_from_slice(&number.to_be_bytes());
            let mut one = Running::start(&mut day, BoxId(id), 0, &format!("run-{number}"))?;
            (0..8).try_for_each(|_| one.flow(&mut day))?;
            one.end(&mut day)?;
        }
    }
    for at in 0..NOTICES {
        let number = u8::try_from(no * NOTICES + at).unwrap_or(u8::MAX);
        day.enter(DocId::Notices, notice(number, day.store.device()))?;
    }
    for one in running {
        one.end(&mut day)?;
    }
    let entries = day.entries;
    Ok((entries, day.over()?))
}

/// One of the hosts that a box goes to, some more often than others.
fn host(no: u64) -> Option<Host> {
    let at = (no * no + no / 7) % 211;
    Host::new(&format!("h{}.place{}.example", at % 60, at % 23))
}

fn opened(no: u64) -> Event {
    let port = u16::try_from(20_000 + no % 40_000).unwrap_or(0);
    let last = u8::try_from(no * no % 211).unwrap_or(0);
    Event::FlowOpened(FlowOpened {
        flow: FlowId(no),
        direction: Direction::Out,
        tuple: FiveTuple {
            proto: Proto::Tcp,
            src: ([192, 0, 0, 2], port).into(),
            dst: ([93, 184, 216, last], 443).into(),
        },
        host: host(no),
        host_from: HostFrom::Dns,
        class: AddrClass::Internet,
        granted: Granted("internet".to_owned()),
    })
}

fn ended(no: u64) -> Event {
    let port = u16::try_from(30_000 + no * 31 % 30_000).unwrap_or(0);
    Event::FlowEnded(FlowEnded {
        flow: FlowId(no),
        bytes_out: 400 + no * 7919 % 5_000,
        bytes_in: 1_000 + no * 104_729 % 900_000,
        duration_us: 20_000 + no * 15_485_863 % 90_000_000,
        end: EndReason::Closed,
        outer_src: Some(([10, 0, 0, 5], port).into()),
    })
}

fn notice(number: u8, writer: bailey_model::DeviceId) -> Event {
    let box_id = BoxId([1; 16]);
    Event::Notice(Notice {
        id: NoticeId([number; 16]),
        rule: Rule::LocalFromInternetOnly,
        box_id,
        box_name: BUSY.to_owned(),
        incarnation: Incarnation([1; 16]),
        evidence: vec![EntryRef {
            writer,
            box_id,
            no: u64::from(number) + 1,
        }],
        text: "it tried the local network, and its reach holds public addresses only".to_owned(),
    })
}

fn report(box_id: BoxId, incarnation: Incarnation) -> BoundaryReport {
    let fact = |number: usize| Fact {
        what: format!("open the device number {number} of the host for writing"),
        got: "EACCES".to_owned(),
        held: Some(true),
    };
    let axis = |axis| AxisReport {
        axis,
        verdict: AxisVerdict::Fenced,
        facts: (0..6).map(fact).collect(),
    };
    BoundaryReport {
        box_id,
        incarnation,
        asked: Tier::Gated,
        class: BoxClass::Plain,
        method: Method::Namespaces,
        image: "host".to_owned(),
        level: Level::Earned(Tier::Gated),
        axes: Axis::ALL.map(axis).to_vec(),
    }
}
