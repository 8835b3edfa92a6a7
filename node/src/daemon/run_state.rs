//! One incarnation of a box on this node.
//!
//! | phase | what is waited for | leaves by |
//! |---|---|---|
//! | `Entering` | the entry that it starts, in the journal | its commit → `Making` |
//! | `Making` | the launcher's box and TUN, then the gate | both ready: *Go* → `Running` |
//! | `Running` | the command | its end, a stop, the client's end → `Ending` |
//! | `Ending` | the launcher's last word and the gate's | both, or their limit → `Closing` |
//! | `Closing` | the entry that it ended, in the journal | its commit: the run is forgotten |
//!
//! A box ends in every phase by the same road: kill the launcher's pid 1, stop
//! the gate, count what is left, write the end. Nothing is answered before.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use bailey_fence_plan::channel::{BoxSpec, ToFence};
use bailey_gate_proto::channel::ToGate;
use bailey_model::{
    BoxEnd, BoxId, ChildExit, FlowId, FlowRefused, Host, Incarnation, Proto, Reach, Refusal,
    RequestId, StoppedBy,
};

use super::child::Program;
use super::event::ConnId;

/// Refused hosts and addresses that are told apart in a run's summary.
const MAX_REFUSALS: usize = 64;

/// Where an incarnation is in its life; the table above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Entering,
    Making,
    Running,
    Ending,
    Closing,
}

/// Who waits for the receipt of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// A command line of this node.
    Conn(ConnId),
    /// A request of another device.
    Request(RequestId, bailey_model::DeviceId),
}

/// What a launcher needs, until the entry stands.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) spec: BoxSpec,
    pub(crate) fds: Vec<OwnedFd>,
}

/// One incarnation.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) phase: Phase,
    pub(crate) box_id: BoxId,
    pub(crate) incarnation: Incarnation,
    pub(crate) name: String,
    /// Whether the own folder goes at the end.
    pub(crate) unnamed: bool,
    pub(crate) reach: Reach,
    pub(crate) client: Option<ConnId>,
    pub(crate) prepared: Option<Prepared>,
    pub(crate) fence: Option<Program<ToFence>>,
    pub(crate) gate: Option<Program<ToGate>>,
    /// The root of the box's own `/proc`, held since it was made.
    pub(crate) proc_root: Option<OwnedFd>,
    pub(crate) pty: Option<OwnedFd>,
    pub(crate) made: bool,
    pub(crate) gate_ready: bool,
    /// The launcher's last word.
    pub(crate) exit: Option<ChildExit>,
    pub(crate) fence_over: bool,
    pub(crate) gate_over: bool,
    pub(crate) flows_reset: u32,
    /// Why it is over, fixed by whatever ended it first.
    pub(crate) end: Option<BoxEnd>,
    pub(crate) ending_since: Option<Instant>,
    pub(crate) processes_before: u32,
    pub(crate) processes_left: Option<u32>,
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) open_flows: BTreeSet<FlowId>,
    refusals: BTreeMap<RefusalKey, (FlowRefused, u64)>,
}

/// What makes two refusals the same to a person.
type RefusalKey = (Proto, Option<Host>, Option<std::net::SocketAddr>, Refusal);

impl Run {
    /// A new incarnation, before its entry is written.
    pub(crate) fn new(
        box_id: BoxId,
        incarnation: Incarnation,
        name: String,
        unnamed: bool,
        reach: Reach,
        client: ConnId,
        prepared: Prepared,
    ) -> Self {
        Self {
            phase: Phase::Entering,
            box_id,
            incarnation,
            name,
            unnamed,
            reach,
            client: Some(client),
            prepared: Some(prepared),
            fence: None,
            gate: None,
            proc_root: None,
            pty: None,
            made: false,
            gate_ready: false,
            exit: None,
            fence_over: false,
            gate_over: false,
            flows_reset: 0,
            end: None,
            ending_since: None,
            processes_before: 0,
            processes_left: None,
            waiting: Vec::new(),
            open_flows: BTreeSet::new(),
            refusals: BTreeMap::new(),
        }
    }

    /// Starts the end: the first reason stands, a later one changes nothing.
    pub(crate) fn begin_end(&mut self, end: BoxEnd, now: Instant) {
        if matches!(self.phase, Phase::Ending | Phase::Closing) {
            return;
        }
        self.processes_before = self.count_processes().unwrap_or(0);
        self.phase = Phase::Ending;
        self.end = Some(end);
        self.ending_since = Some(now);
        self.fence_over |= !self
            .fence
            .as_ref()
            .is_some_and(|fence| fence.send(ToFence::Kill, vec![]));
        self.gate_over |= !self
            .gate
            .as_ref()
            .is_some_and(|gate| gate.send(ToGate::Stop, vec![]));
    }

    /// Whether launcher and gate have both had their last word.
    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Ending && self.fence_over && self.gate_over
    }

    /// Processes of the box now, from its own `/proc`; `None` before it was made.
    pub(crate) fn count_processes(&self) -> Option<u32> {
        let root = self.proc_root.as_ref()?;
        Some(count_numeric(root.as_fd()))
    }

    /// Counts a refusal for the summary; `true` the first time.
    pub(crate) fn note_refusal(&mut self, refused: &FlowRefused) -> bool {
        let host = refused.host.clone();
        // Without a name the address tells them apart; with one its port does.
        let dst = refused.dst.filter(|_| refused.host.is_none());
        let key = (refused.proto, host, dst, refused.refusal);
        let count = u64::from(refused.count);
        if let Some((_, seen)) = self.refusals.get_mut(&key) {
            *seen += count;
            return false;
        }
        if self.refusals.len() >= MAX_REFUSALS {
            return false;
        }
        self.refusals.insert(key, (refused.clone(), count));
        true
    }

    /// The summary.
    pub(crate) fn refusals(&self) -> Vec<(FlowRefused, u64)> {
        self.refusals.values().cloned().collect()
    }

    /// Whether a person, and not the box itself, ended it.
    pub(crate) fn stopped_by(&self) -> Option<StoppedBy> {
        match self.end {
            Some(BoxEnd::Stopped(by)) => Some(by),
            _ => None,
        }
    }
}

/// Numeric names of a `/proc`: its processes. A `/proc` whose pid namespace is
/// gone has none (kernel 5.8 and later answer ENOENT or an empty folder).
fn count_numeric(root: std::os::fd::BorrowedFd<'_>) -> u32 {
    let Ok(dir) = rustix::fs::openat(
        root,
        c".",
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    ) else {
        return 0;
    };
    let Ok(dir) = rustix::fs::Dir::new(dir) else {
        return 0;
    };
    let numeric = |name: &[u8]| !name.is_empty() && name.iter().all(u8::is_ascii_digit);
    let count = dir
        .flatten()
        .filter(|entry| numeric(entry.file_name().to_bytes()))
        .count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proc_folder_counts_its_processes() {
        let root = std::fs::File::open("/proc").unwrap();
        assert!(count_numeric(root.as_fd()) > 0);
        let empty = std::fs::File::open("/proc/self/task").unwrap();
        assert_eq!(
            count_numeric(empty.as_fd()) as usize,
            std::fs::read_dir("/proc/self/task").unwrap().count()
        );
    }
}
