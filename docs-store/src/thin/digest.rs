//! What is left of a segment of a box: counts for each day and host.

use std::collections::{BTreeMap, HashMap};

use bailey_model::{
    AddrClass, Direction, EndReason, Entry, Event, FlowEnded, FlowOpened, FlowProgressed,
    FlowRefused, ThinnedDay, ThinnedFlow, ThinnedHost, Timestamp,
};

/// Most hosts of a day that keep their place; the rest is one row without a name.
const MAX_HOSTS: usize = 64;
/// Most of all days of one digest.
const MAX_ALL: usize = 256;
/// Most bytes of names in one digest, so that its entry stays far below the largest
/// even where each name is as long as one may be.
const MAX_NAMES: usize = 8 * 1024;
/// Most days of one digest. A segment is open for a day; a clock that is set while
/// it is may make more, which then count to the last.
const MAX_DAYS: usize = 8;
/// Most flows under way that are handed on to the next digest.
const MAX_OPEN: usize = 256;
const DAY_MS: u64 = 24 * 3_600_000;

/// Flows under way, by number.
pub(crate) type Open = Vec<(u64, UnderWay)>;

/// A flow under way.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnderWay {
    /// Where it goes.
    name: String,
    class: Option<AddrClass>,
    /// Out and in, by its last progress: what it has moved at least.
    moved: (u64, u64),
    /// When that was, if in this segment.
    at: Option<Timestamp>,
}

/// Counts entries.
#[derive(Debug, Default)]
pub(crate) struct Digest {
    days: BTreeMap<u32, BTreeMap<String, ThinnedHost>>,
    flows: HashMap<u64, UnderWay>,
}

impl Digest {
    /// Begins with the flows that the segment before left under way.
    pub(crate) fn new(open: Open) -> Self {
        Self {
            days: BTreeMap::new(),
            flows: open.into_iter().collect(),
        }
    }

    pub(crate) fn push(&mut self, entry: &Entry) {
        match &entry.event {
            // Flows are numbered anew in each run.
            Event::BoxStarted(_) | Event::BoxEnded(_) => self.close(entry.ts),
            Event::FlowOpened(it) => {
                let name = name_of_opened(it);
                let under_way = UnderWay {
                    name: name.clone(),
                    class: Some(it.class),
                    ..UnderWay::default()
                };
                self.flows.insert(it.flow.0, under_way);
                self.host(entry.ts, name, Some(it.class)).flows += 1;
            }
            Event::FlowRefused(it) => {
                self.host(entry.ts, name_of_refused(it), it.class).refused += u64::from(it.count);
            }
            Event::FlowProgressed(it) => self.progressed(entry.ts, it),
            Event::FlowEnded(it) => self.ended(entry.ts, it),
            // `*.ZONE` counts names that have entries of their own.
            Event::NameAsked(it) if !it.host.as_str().starts_with("*.") => {
                let name = it.host.as_str().to_owned();
                self.host(entry.ts, name, None).asked += u64::from(it.count);
            }
            Event::NameAsked(_)
            | Event::NameAnswered(_)
            | Event::Granted(_)
            | Event::FlowNamed(_)
            | Event::ReachChanged(_)
            | Event::Gap(_)
            | Event::DeviceNamed(_)
            | Event::Report(_)
            | Event::Notice(_)
            | Event::Request(_)
            | Event::Receipt(_)
            | Event::Thinned(_)
            | Event::CaptureStarted(_)
            | Event::AuditHere(_)
            | Event::BoxPaused(_)
            | Event::BoxResumed(_)
            | Event::HeadsSeen(_)
            | Event::Newer(_) => {}
        }
    }

    /// Of a flow whose beginning is not known here nothing is held: its end says all.
    fn progressed(&mut self, ts: Timestamp, it: &FlowProgressed) {
        if let Some(flow) = self.flows.get_mut(&it.flow.0) {
            flow.moved = (it.bytes_out, it.bytes_in);
            flow.at = Some(ts);
        }
    }

    fn ended(&mut self, ts: Timestamp, it: &FlowEnded) {
        let flow = self.flows.remove(&it.flow.0).unwrap_or_default();
        match it.end {
            EndReason::GateLost => self.lost(ts, flow),
            _ => self.moved(ts, flow.name, flow.class, (it.bytes_out, it.bytes_in)),
        }
    }

    /// Counts a flow that nobody says the end of by its last progress.
    fn lost(&mut self, ts: Timestamp, flow: UnderWay) {
        if flow.moved != (0, 0) {
            self.moved(flow.at.unwrap_or(ts), flow.name, flow.class, flow.moved);
        }
    }

    /// Nothing is under way any more.
    pub(crate) fn close(&mut self, ts: Timestamp) {
        for (_, flow) in std::mem::take(&mut self.flows) {
            self.lost(ts, flow);
        }
    }

    fn moved(
        &mut self,
        ts: Timestamp,
        name: String,
        class: Option<AddrClass>,
        (bytes_out, bytes_in): (u64, u64),
    ) {
        let host = self.host(ts, name, class);
        host.bytes_out = host.bytes_out.saturating_add(bytes_out);
        host.bytes_in = host.bytes_in.saturating_add(bytes_in);
    }

    fn host(&mut self, ts: Timestamp, name: String, class: Option<AddrClass>) -> &mut ThinnedHost {
        let day = u32::try_from(ts.0 / DAY_MS).unwrap_or(u32::MAX);
        let full = self.days.len() >= MAX_DAYS && !self.days.contains_key(&day);
        let last = self.days.last_key_value().map(|(last, _)| *last);
        let day = last.filter(|_| full).unwrap_or(day);
        let host = self.days.entry(day).or_default().entry(name.clone());
        let host = host.or_insert_with(|| ThinnedHost {
            name,
            ..ThinnedHost::default()
        });
        host.class = host.class.or(class);
        host
    }

    /// The days, and the flows under way by the place of their host.
    pub(crate) fn finish(self) -> (Vec<ThinnedDay>, Vec<ThinnedFlow>) {
        let (mut names, mut all) = (0, 0);
        let mut days = Vec::with_capacity(self.days.len());
        for (day, hosts) in self.days {
            let mut hosts: Vec<ThinnedHost> = hosts.into_values().collect();
            let weight = |host: &ThinnedHost| {
                let bytes = host.bytes_out.saturating_add(host.bytes_in);
                (bytes, host.flows, host.refused, host.asked)
            };
            hosts.sort_by(|a, b| weight(b).cmp(&weight(a)).then_with(|| a.name.cmp(&b.name)));
            let mut kept = Vec::new();
            let (mut rest, mut more) = (ThinnedHost::default(), 0);
            for host in hosts {
                let fits =
                    names + host.name.len() <= MAX_NAMES && kept.len() < MAX_HOSTS && all < MAX_ALL;
                if fits && !host.name.is_empty() {
                    names += host.name.len();
                    all += 1;
                    kept.push(host);
                } else {
                    add(&mut rest, &host);
                    more += 1;
                }
            }
            if more > 0 {
                kept.push(rest);
            }
            let hosts = kept;
            days.push(ThinnedDay { day, hosts, more });
        }
        let all = days.iter().flat_map(|day| &day.hosts).enumerate();
        let places: HashMap<&str, usize> = all
            .map(|(place, host)| (host.name.as_str(), place))
            .collect();
        let mut open: Vec<ThinnedFlow> = self
            .flows
            .iter()
            .filter_map(|(flow, it)| {
                let place = places.get(it.name.as_str())?;
                Some(ThinnedFlow {
                    flow: *flow,
                    place: u32::try_from(*place).ok()?,
                    bytes_out: it.moved.0,
                    bytes_in: it.moved.1,
                })
            })
            .collect();
        open.sort_unstable_by_key(|it| it.flow);
        // The newest are the likeliest to end soon.
        let over = open.len().saturating_sub(MAX_OPEN);
        open.drain(..over);
        (days, open)
    }
}

/// The flows under way that a digest names, for the next one.
pub(crate) fn open_of(thinned: &bailey_model::Thinned) -> Open {
    let hosts: Vec<&ThinnedHost> = thinned.days.iter().flat_map(|day| &day.hosts).collect();
    let of = |it: &ThinnedFlow| {
        let host = hosts.get(usize::try_from(it.place).ok()?)?;
        let under_way = UnderWay {
            name: host.name.clone(),
            class: host.class,
            moved: (it.bytes_out, it.bytes_in),
            at: None,
        };
        Some((it.flow, under_way))
    };
    thinned.open.iter().take(MAX_OPEN).filter_map(of).collect()
}

fn add(sum: &mut ThinnedHost, host: &ThinnedHost) {
    sum.flows = sum.flows.saturating_add(host.flows);
    sum.refused = sum.refused.saturating_add(host.refused);
    sum.asked = sum.asked.saturating_add(host.asked);
    sum.bytes_out = sum.bytes_out.saturating_add(host.bytes_out);
    sum.bytes_in = sum.bytes_in.saturating_add(host.bytes_in);
}

/// As `bailey summary` names places.
fn name_of_opened(it: &FlowOpened) -> String {
    match (it.direction, &it.host) {
        (Direction::In { client }, _) => format!("in ← {}", client.ip()),
        (Direction::Out, Some(host)) => host.as_str().to_owned(),
        (Direction::Out, None) => it.tuple.dst.ip().to_string(),
    }
}

fn name_of_refused(it: &FlowRefused) -> String {
    match (it.direction, &it.host, it.dst) {
        (Direction::In { client }, _, _) => format!("in ← {}", client.ip()),
        (Direction::Out, Some(host), _) => host.as_str().to_owned(),
        (Direction::Out, None, Some(dst)) => dst.ip().to_string(),
        (Direction::Out, None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use bailey_model::{
        BoxEnd, BoxEnded, BoxId, FiveTuple, FlowId, Granted, Host, HostFrom, Incarnation,
        NameAsked, Proto, Refusal, Thinned,
    };

    use super::*;
    use crate::schema::{MAX_ENTRY, pack};

    const DAY: u64 = 20_787;

    fn entry(day: u64, event: Event) -> Entry {
        let ts = Timestamp(day * DAY_MS + 5);
        Entry { no: 1, ts, event }
    }

    fn opened(flow: u64, host: &str) -> Event {
        Event::FlowOpened(FlowOpened {
            flow: FlowId(flow),
            direction: Direction::Out,
            tuple: FiveTuple {
                proto: Proto::Tcp,
                src: ([192, 0, 0, 2], 4000).into(),
                dst: ([93, 184, 216, 34], 443).into(),
            },
            host: Host::new(host),
            host_from: HostFrom::Dns,
            class: AddrClass::Internet,
            granted: Granted("internet".to_owned()),
        })
    }

    fn ended(flow: u64, bytes: u64) -> Event {
        Event::FlowEnded(FlowEnded {
            flow: FlowId(flow),
            bytes_out: bytes,
            bytes_in: 2 * bytes,
            duration_us: 1,
            end: EndReason::Closed,
            outer_src: None,
        })
    }

    fn refused(count: u32) -> Event {
        Event::FlowRefused(FlowRefused {
            direction: Direction::Out,
            proto: Proto::Udp,
            src: None,
            dst: Some(([192, 168, 1, 9], 53).into()),
            host: None,
            host_from: HostFrom::None,
            class: Some(AddrClass::Local),
            refusal: Refusal::OutsideReach,
            count,
        })
    }

    fn asked(host: &str) -> Event {
        let host = Host::new(host).unwrap();
        let (qtype, count) = (1, 2);
        Event::NameAsked(NameAsked { host, qtype, count })
    }

    fn thinned(digest: Digest) -> Thinned {
        let (days, open) = digest.finish();
        Thinned {
            box_id: BoxId([1; 16]),
            writer: bailey_model::DeviceId([2; 32]),
            incarnation: Incarnation([3; 16]),
            segment: 1,
            last_seq: 1,
            first_no: 1,
            last_no: 1,
            from: Timestamp(0),
            to: Timestamp(0),
            hours: 720,
            days,
            open,
        }
    }

    #[test]
    fn each_day_and_host_keeps_its_counts() {
        let mut digest = Digest::default();
        for (day, event) in [
            (DAY, asked("shop.example")),
            (DAY, opened(1, "shop.example")),
            (DAY, refused(7)),
            (DAY + 1, ended(1, 10)),
            (DAY + 1, asked("*.example")),
        ] {
            digest.push(&entry(day, event));
        }
        let (days, open) = digest.finish();
        assert_eq!(open, []);
        let shown: Vec<_> = days
            .iter()
            .flat_map(|day| day.hosts.iter().map(move |host| (day.day, host)))
            .map(|(day, h)| {
                let at = u64::from(day) - DAY;
                (at, h.name.as_str(), h.flows, h.refused, h.asked, h.bytes_in)
            })
            .collect();
        assert_eq!(
            shown,
            [
                (0, "shop.example", 1, 0, 2, 0),
                (0, "192.168.1.9", 0, 7, 0, 0),
                (1, "shop.example", 0, 0, 0, 20),
            ]
        );
        assert_eq!(days[0].hosts[1].class, Some(AddrClass::Local));
    }

    #[test]
    fn a_flow_that_outlives_its_segment_is_counted_where_it_ends() {
        let mut digest = Digest::default();
        digest.push(&entry(DAY, opened(1, "shop.example")));
        let first = thinned(digest);
        let under_way = ThinnedFlow {
            flow: 1,
            place: 0,
            bytes_out: 0,
            bytes_in: 0,
        };
        assert_eq!(first.open, [under_way]);
        let mut digest = Digest::new(open_of(&first));
        digest.push(&entry(DAY + 2, ended(1, 5)));
        digest.push(&entry(DAY + 2, ended(9, 6)));
        let (days, _) = digest.finish();
        let hosts: Vec<_> = days[0].hosts.iter().collect();
        assert_eq!(
            (hosts[0].name.as_str(), hosts[0].bytes_out),
            ("shop.example", 5)
        );
        assert_eq!((hosts[1].name.as_str(), hosts[1].bytes_out), ("", 6));
    }

    fn progressed(flow: u64, bytes: u64) -> Event {
        Event::FlowProgressed(FlowProgressed {
            flow: FlowId(flow),
            bytes_out: bytes,
            bytes_in: 2 * bytes,
            duration_us: 1,
        })
    }

    fn lost(flow: u64) -> Event {
        let Event::FlowEnded(mut it) = ended(flow, 0) else {
            unreachable!()
        };
        it.end = EndReason::GateLost;
        Event::FlowEnded(it)
    }

    fn box_ended() -> Event {
        Event::BoxEnded(BoxEnded {
            box_id: BoxId([1; 16]),
            incarnation: Incarnation([3; 16]),
            end: BoxEnd::NodeLost,
            processes_ended: None,
            processes_left: None,
            flows_reset: None,
        })
    }

    /// Bytes out by day and host, of entries that are thinned in these segments.
    fn bytes_of(segments: &[&[(u64, Event)]]) -> Vec<(u64, String, u64)> {
        let (mut open, mut found) = (Open::new(), Vec::new());
        for segment in segments {
            let mut digest = Digest::new(std::mem::take(&mut open));
            for (day, event) in *segment {
                digest.push(&entry(*day, event.clone()));
            }
            let it = thinned(digest);
            for day in &it.days {
                let hosts = day.hosts.iter().filter(|host| host.bytes_out > 0);
                found.extend(hosts.map(|host| {
                    let day = u64::from(day.day) - DAY;
                    (day, host.name.clone(), host.bytes_out)
                }));
            }
            open = open_of(&it);
        }
        found
    }

    #[test]
    fn what_moved_is_counted_once_whatever_stands_between_beginning_and_end() {
        let begun = (DAY, opened(1, "shop.example"));
        let whole = |end: (u64, Event)| {
            vec![
                begun.clone(),
                (DAY, progressed(1, 5)),
                (DAY + 1, progressed(1, 8)),
                end,
            ]
        };
        let name = || "shop.example".to_owned();
        for (end, expected) in [
            ((DAY + 2, ended(1, 9)), (2, name(), 9)),
            // Nobody says how it ended: what its last progress says, when it did.
            ((DAY + 2, lost(1)), (1, name(), 8)),
            ((DAY + 2, box_ended()), (1, name(), 8)),
        ] {
            let all = whole(end);
            assert_eq!(bytes_of(&[&all]), std::slice::from_ref(&expected));
            for at in 1..all.len() {
                let (one, other) = all.split_at(at);
                let found = bytes_of(&[one, other]);
                let sums: Vec<_> = found.iter().map(|(_, name, sum)| (name, *sum)).collect();
                assert_eq!(sums, [(&expected.1, expected.2)], "{at}");
            }
        }
        // One that had none counts nothing.
        assert_eq!(bytes_of(&[&[begun, (DAY, lost(1))]]), []);
    }

    #[test]
    fn however_much_there_was_it_is_one_entry() {
        let mut digest = Digest::default();
        for flow in 0..4096 {
            let host = format!("{flow}.{}", "x".repeat(1000));
            let day = DAY + flow % 300;
            digest.push(&entry(day, opened(flow, &host)));
        }
        let thinned = thinned(digest);
        assert_eq!(thinned.days.len(), MAX_DAYS);
        let flows = thinned.days.iter().flat_map(|day| &day.hosts);
        assert_eq!(flows.map(|host| host.flows).sum::<u64>(), 4096);
        let event = Event::Thinned(thinned);
        assert!(pack(&entry(DAY, event)).unwrap().len() < MAX_ENTRY / 2);
    }
}
