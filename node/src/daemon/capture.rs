//! Captures: the headers of a box's packets, for a person at this node. That one is
//! taken stands in the box's audit before its first packet, and raises a notice.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bailey_docs_store::Urgency;
use bailey_gate_proto::capture::Headers;
use bailey_gate_proto::channel::ToGate;
use bailey_model::{CaptureStarted, ChangedBy, Event};

use super::Node;
use super::event::{ConnId, RunId};
use super::run_state::Phase;
use super::store::Tag;
use crate::api::{Failure, Tell};

/// Octets of headers that one capture is sent at most.
const MAX_BYTES: usize = 64 << 20;
/// How long one may take.
const MAX_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// The captures, by the runs that they are of: one each.
#[derive(Debug, Default)]
pub(super) struct Captures(BTreeMap<RunId, Capture>);

#[derive(Debug)]
struct Capture {
    conn: ConnId,
    seconds: u32,
    /// When its time is up, once its entry stands.
    until: Option<Instant>,
    bytes: usize,
    dropped: u64,
    /// Why it is being ended.
    ending: Option<&'static str>,
}

impl Node {
    /// Begins a capture: its entry first.
    pub(super) fn on_pcap(
        &mut self,
        conn: ConnId,
        target: &str,
        seconds: u32,
    ) -> Result<(), Failure> {
        let state = self.fold.resolve(target, self.this)?;
        if Duration::from_secs(seconds.into()) > MAX_TIME {
            return Err(Failure::usage("--for: a day at most"));
        }
        if state.writer != self.this {
            let text = "it runs on another device; a capture is taken where its box runs";
            return Err(Failure::usage(text));
        }
        let mut runs = self.runs.iter();
        let found = runs.find(|(_, run)| run.box_id == state.id && run.phase == Phase::Running);
        let Some((id, run)) = found else {
            return Err(Failure::host("it does not run"));
        };
        if run.gate.is_none() {
            return Err(Failure::host(
                "it has no gate: nothing of its network is seen here",
            ));
        }
        let (id, doc) = (*id, run.doc());
        if self.captures.0.contains_key(&id) {
            return Err(Failure::host("its headers are being captured already"));
        }
        let started = CaptureStarted {
            box_id: run.box_id,
            incarnation: run.incarnation,
            seconds,
            by: ChangedBy::Here,
        };
        let capture = Capture {
            conn,
            seconds,
            until: None,
            bytes: 0,
            dropped: 0,
            ending: None,
        };
        self.captures.0.insert(id, capture);
        let event = Event::CaptureStarted(started);
        self.append(doc, event, Urgency::Urgent, Tag::Capture(id));
        Ok(())
    }

    /// Its entry stands, or cannot be written.
    pub(super) fn on_capture_entered(&mut self, id: RunId, entered: Result<(), &str>) {
        let Some(capture) = self.captures.0.get_mut(&id) else {
            return;
        };
        let (conn, seconds) = (capture.conn, capture.seconds);
        if let Err(why) = entered {
            self.captures.0.remove(&id);
            let failure = Failure::host(format!("the audit cannot be written: {why}"));
            return self.finish(conn, Tell::Failed(failure));
        }
        capture.until = Some(Instant::now() + Duration::from_secs(seconds.into()));
        let run = self.runs.get(&id);
        let Some((name, gate)) = run.and_then(|run| Some((run.name.clone(), run.gate.as_ref()?)))
        else {
            return self.capture_over(id);
        };
        gate.send(ToGate::Capture(true), vec![]);
        self.tell(conn, Tell::Capturing { name, seconds });
    }

    /// The gate has some packets' headers; whether they are the last.
    pub(super) fn on_captured(
        &mut self,
        id: RunId,
        packets: Vec<Headers>,
        dropped: u64,
        last: bool,
    ) {
        let Some(capture) = self.captures.0.get_mut(&id) else {
            return;
        };
        let count = u64::try_from(packets.len()).unwrap_or(u64::MAX);
        let bytes: usize = packets.iter().map(|packet| packet.bytes.len()).sum();
        capture.bytes = capture.bytes.saturating_add(bytes);
        capture.dropped = capture.dropped.saturating_add(dropped);
        let dropped = capture.dropped;
        let answers = self.conns.get(&capture.conn);
        // Whoever writes the file too slowly holds up nobody: what it does not take
        // is counted.
        let sent = answers.is_some_and(|answers| {
            let tell = Tell::Captured { packets, dropped };
            answers.try_send((tell, Vec::new())).is_ok()
        });
        if !sent {
            capture.dropped = capture.dropped.saturating_add(count);
        }
        if last {
            self.capture_over(id);
        } else if answers.is_none() {
            self.end_capture(id, "nobody reads it any more");
        } else if capture.bytes >= MAX_BYTES {
            self.end_capture(id, "it is as large as one may be");
        }
    }

    /// Ends those whose time is up, or whose reader went away.
    pub(super) fn end_overdue_captures(&mut self, now: Instant) {
        let due = |capture: &Capture| match capture.until {
            Some(until) if until <= now => Some("its time is up"),
            _ if !self.conns.contains_key(&capture.conn) => Some("nobody reads it any more"),
            _ => None,
        };
        let overdue: Vec<_> = self
            .captures
            .0
            .iter()
            .filter_map(|(id, capture)| Some((*id, due(capture)?)))
            .collect();
        for (id, why) in overdue {
            self.end_capture(id, why);
        }
    }

    fn end_capture(&mut self, id: RunId, why: &'static str) {
        let Some(capture) = self.captures.0.get_mut(&id) else {
            return;
        };
        if capture.ending.is_some() {
            return;
        }
        capture.ending = Some(why);
        let gate = self.runs.get(&id).and_then(|run| run.gate.as_ref());
        if !gate.is_some_and(|gate| gate.send(ToGate::Capture(false), vec![])) {
            self.capture_over(id);
        }
    }

    /// Nothing more comes of it.
    pub(super) fn capture_over(&mut self, id: RunId) {
        let Some(capture) = self.captures.0.remove(&id) else {
            return;
        };
        let why = capture.ending.unwrap_or("the box ended").to_owned();
        let dropped = capture.dropped;
        self.finish(capture.conn, Tell::CaptureEnded { why, dropped });
    }
}
