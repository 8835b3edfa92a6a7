//! Boundary reports: judged, entered, compared with what was asked, shown.
//!
//! A box that is made waits until it is judged. A gated one is judged when its
//! gate is ready and has told of the one dial that the box made to it, which is
//! no flow of the command's and not entered; or when that was waited for long
//! enough, and then its network is not measured.

use std::time::{Duration, Instant};

use bailey_docs_store::{DocId, Urgency};
use bailey_fence_plan::channel::{BoxSpec, Grant, Layer, Measured};
use bailey_fence_plan::judge::{Asked, judge, weaker};
use bailey_gate_proto::channel::GateEvent;
use bailey_model::{BoundaryReport, BoxEnd, Event, Proto, Tier, link};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};

use super::event::{ConnId, RunId};
use super::run_state::Phase;
use super::store::Tag;
use super::{Node, bounds};
use crate::api::{Failure, Tell};
use crate::rows::ReportRow;

/// How long a made box waits for its gate to tell of its dial.
const GATE_LIMIT: Duration = Duration::from_secs(2);
/// The only image of this version.
const IMAGE: &str = "host";

/// Whether the gate, a process of this user in this network, may make a ping
/// socket (icmp(7)).
fn can_ping() -> bool {
    let (family, flags) = (AddressFamily::Inet, SockFlag::SOCK_CLOEXEC);
    let made = socket(family, SockType::Datagram, flags, SockProtocol::Icmp);
    !matches!(made, Err(Errno::EACCES | Errno::EPERM))
}

/// What is known of a run's boundary until it is judged.
#[derive(Debug, Default)]
pub(crate) struct Boundary {
    allow_weaker: bool,
    /// Paths in the box that it may write.
    writable: Vec<String>,
    measured: Option<Measured>,
    /// When launcher and gate had both said that they are ready.
    ready: Option<Instant>,
    gate_saw: bool,
    judged: bool,
}

impl Boundary {
    /// Of a box that is about to be made.
    pub(crate) fn of(spec: &BoxSpec) -> Self {
        let writable = spec.grants.iter().filter(|grant| !grant.read_only);
        let shown = |grant: &Grant| String::from_utf8_lossy(&grant.at).into_owned();
        Self {
            allow_weaker: spec.weaker,
            writable: writable.map(shown).collect(),
            ..Self::default()
        }
    }
}

/// The layer that a test wants left out, to see that the report says so. Only in
/// a build with assertions; the launcher of any other refuses it too.
pub(super) fn left_out() -> Option<Layer> {
    if !cfg!(debug_assertions) {
        return None;
    }
    Some(
        match std::env::var("BAILEY_TEST_LEAVE_OUT").ok()?.as_str() {
            "read-only" => Layer::ReadOnly,
            "processes" => Layer::Processes,
            "filter" => Layer::Filter,
            "capabilities" => Layer::Capabilities,
            "network" => Layer::Network,
            "limits" => Layer::Limits,
            _ => return None,
        },
    )
}

impl Node {
    /// The box is made, and this is what was tried inside it.
    pub(super) fn on_measured(&mut self, id: RunId, measured: Measured) {
        if let Some(run) = self.runs.get_mut(&id) {
            run.boundary.measured = Some(measured);
            // A TUN comes before: a box without one has no gate to wait for.
            run.gate_ready |= run.gate.is_none();
        }
        self.judge_if_ready(id);
    }

    /// Whether this is the gate's word for the box's own dial to it.
    pub(super) fn is_probe(&mut self, id: RunId, event: &GateEvent) -> bool {
        let GateEvent::FlowRefused(refused) = event else {
            return false;
        };
        let probed = (link::GATE_V4, link::PROBE_PORT).into();
        let Some(run) = self.runs.get_mut(&id) else {
            return false;
        };
        // Once the command runs, whoever dials there is entered.
        let probe = run.phase == Phase::Making
            && !run.boundary.gate_saw
            && refused.proto == Proto::Tcp
            && refused.dst == Some(probed);
        if probe {
            run.boundary.gate_saw = true;
            self.judge_if_ready(id);
        }
        probe
    }

    /// Judges a box that is made, once all is there that its report rests on.
    pub(super) fn judge_if_ready(&mut self, id: RunId) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        let gated = run.tier == Tier::Gated && run.gate.is_some();
        // What the gate judges by is known before the command can dial.
        let settled = !gated || self.nat64.settled(Instant::now());
        let waits = run.boundary.measured.is_none() || !run.gate_ready || !settled;
        if run.phase != Phase::Making || run.boundary.judged || waits {
            return;
        }
        let now = Instant::now();
        let ready = *run.boundary.ready.get_or_insert(now);
        if gated && !run.boundary.gate_saw && now < ready + GATE_LIMIT {
            return;
        }
        self.conclude(id);
    }

    /// Gates that have had their time to tell of the dial.
    pub(super) fn judge_overdue(&mut self) {
        let ids: Vec<RunId> = self.runs.keys().copied().collect();
        for id in ids {
            self.judge_if_ready(id);
        }
    }

    fn conclude(&mut self, id: RunId) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        let Some(measured) = run.boundary.measured.take() else {
            return;
        };
        run.boundary.judged = true;
        let shown = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        let shared: Vec<(String, String)> = run
            .shared
            .iter()
            .map(|(name, path)| (shown(path), name.clone()))
            .collect();
        let asked = Asked {
            tier: run.tier,
            class: run.class,
            limits: run.limits,
            cgroup: run.cgroup.is_some(),
            reach: &run.reach,
            publish: &run.publish,
            image: IMAGE,
            writable: &run.boundary.writable,
            shared: &shared,
            gate_saw: run.boundary.gate_saw,
            gate_bytes: bailey_gate_proto::MAX_BUFFER_BYTES,
            ping: can_ping(),
        };
        let (axes, level) = judge(&measured, asked);
        let weak = weaker(&axes, level, run.tier);
        let (allowed, client) = (run.boundary.allow_weaker, run.client);
        let notes = std::mem::take(&mut run.notes);
        let mut report = BoundaryReport {
            box_id: run.box_id,
            incarnation: run.incarnation,
            asked: run.tier,
            class: run.class,
            method: measured.method,
            image: IMAGE.to_owned(),
            level,
            axes,
        };
        bounds::report(&mut report);
        if weak.is_none() || allowed {
            run.made = true;
        }
        self.append(
            DocId::Node,
            Event::Report(report),
            Urgency::Prompt,
            Tag::Report(id),
        );
        // First of all that is said of it; one that does not start says it last.
        let first = weak.as_ref().filter(|_| allowed);
        let first = first.map(|why| format!("weaker than asked: {why}"));
        for note in first.into_iter().chain(notes) {
            if let Some(conn) = client {
                self.tell(conn, Tell::Note(note));
            }
        }
        match weak {
            Some(why) if !allowed => {
                if let Some(run) = self.runs.get_mut(&id) {
                    run.begin_end(BoxEnd::Weaker(why), Instant::now());
                }
                self.close_if_over(id);
            }
            _ => self.go_if_ready(id),
        }
    }

    /// The newest report of a box of any device.
    pub(super) fn on_report(&mut self, conn: ConnId, target: &str) -> Result<(), Failure> {
        let state = self.fold.resolve(target, self.this)?;
        let Some((ts, report)) = self.fold.report(state.writer, state.id) else {
            let why = "nothing was measured of it, or its report is not here yet";
            return Err(Failure::host(format!("no report of {target:?}: {why}")));
        };
        let row = ReportRow::of(
            &state.name,
            &self.fold.device_name(state.writer),
            &state.reach,
            ts,
            report,
        );
        self.finish(conn, Tell::Report(Box::new(row)));
        Ok(())
    }
}
