//! One incarnation of a box on this node.
//!
//! | phase | what is waited for | leaves by |
//! |---|---|---|
//! | `Making` | the entry that it starts, in the journal; the launcher's box and TUN, then the gate | all there and judged: *Go* → `Running` |
//! | `Running` | the command | its end, a stop, the client's end → `Ending` |
//! | `Ending` | the launcher's last word and the gate's | both, or their limit → `Closing` |
//! | `Closing` | the entry that it ended, in the journal | its commit: the run is forgotten |
//!
//! A box ends in every phase by the same road: kill the launcher's pid 1, stop
//! the gate, count what is left, write the end. Nothing is answered before.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use bailey_docs_store::DocId;
use bailey_fence_plan::channel::{BoxSpec, ToFence};
use bailey_gate_proto::channel::ToGate;
use bailey_model::{
    AddrClass, BoxClass, BoxEnd, BoxId, BoxStarted, ChildExit, FlowId, FlowRefused, Host,
    Incarnation, Limits, Proto, Publish, Reach, Refusal, RequestId, RequestOutcome, StoppedBy,
    Tier,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tokio::sync::Semaphore;

use super::allow::Questions;
use super::child::Program;
use super::event::ConnId;
use super::limits::BoxCgroup;
use super::logs::LogHandle;
use super::pause::Pauses;
use super::publish::Listeners;
use super::refusals::Refusals;
use super::reports::Boundary;
use super::screenshot::Screen;
use super::shared::Writable;
use super::slates::OwnSlate;
use super::unwritten::Unwritten;
use crate::api::{Denied, Ended};

/// Refused hosts and addresses that are told apart in a run's summary.
const MAX_REFUSALS: usize = 64;
/// Further places for those that are no public host's, which a box cannot fill
/// by trying many of these.
const MAX_OTHER_REFUSALS: usize = 16;

/// Refused names of the web that are remembered: no less than are told apart.
const MAX_WEB_NAMES: usize = 256;

/// Where an incarnation is in its life; the table above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Making,
    Running,
    Ending,
    Closing,
}

/// Who waits for what comes of something that was asked of a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// A command line of this node.
    Conn(ConnId),
    /// A request of another device.
    Request(RequestId, bailey_model::DeviceId),
}

/// What a launcher needs.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) spec: BoxSpec,
    pub(crate) fds: Handed,
}

/// Descriptors for a launcher. The folder of a cgroup goes between the two.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) streams: Vec<OwnedFd>,
    pub(crate) rest: Vec<OwnedFd>,
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
    pub(crate) tier: Tier,
    pub(crate) class: BoxClass,
    pub(crate) limits: Limits,
    pub(crate) publish: Vec<Publish>,
    /// Their sockets, until the gate has them.
    pub(crate) listeners: Listeners,
    /// Granted things that it may write, for others that are granted the same.
    pub(crate) writable: Vec<Writable>,
    /// Boxes that ran when it began and may write the same, by name and path.
    pub(crate) shared: Vec<(String, Vec<u8>)>,
    pub(crate) client: Option<ConnId>,
    /// It lives on without a client.
    pub(crate) detached: bool,
    /// Its audit is kept on this node alone.
    pub(crate) here: bool,
    /// Keeps what a detached one writes, until all of it is kept.
    pub(crate) log: Option<LogHandle>,
    /// What a detached one writes, until its command starts.
    pub(crate) outputs: Option<[OwnedFd; 2]>,
    /// Holds its limits, where there is a place for it.
    pub(crate) cgroup: Option<BoxCgroup>,
    pub(crate) limits_met: Vec<String>,
    pub(crate) fence: Option<Program<ToFence>>,
    pub(crate) gate: Option<Program<ToGate>>,
    /// How many more entries its gate may tell before some are answered for.
    pub(crate) credit: Option<Arc<Semaphore>>,
    /// What its gate told and could not be written.
    pub(crate) unwritten: Unwritten,
    /// Where its gate notes flows before they are dialled.
    pub(crate) slate: Option<OwnSlate>,
    /// A pidfd of its pid 1.
    pub(crate) pid1: Option<OwnedFd>,
    /// Its namespaces, for further commands.
    pub(crate) namespaces: Vec<OwnedFd>,
    /// The root of the box's own `/proc`, held since it was made.
    pub(crate) proc_root: Option<OwnedFd>,
    /// Its own display, where it was asked for one.
    pub(crate) screen: Option<Screen>,
    pub(crate) pty: Option<OwnedFd>,
    /// Lines for whoever ran it, until it is judged.
    pub(crate) notes: Vec<String>,
    /// What was measured of it, until it is judged.
    pub(crate) boundary: Boundary,
    /// The entry that it starts stands.
    pub(crate) entered: bool,
    pub(crate) made: bool,
    pub(crate) gate_ready: bool,
    /// The launcher's last word.
    pub(crate) exit: Option<ChildExit>,
    pub(crate) fence_over: bool,
    /// The launcher said that pid 1 is gone and waited for.
    pub(crate) waited: bool,
    pub(crate) gate_over: bool,
    /// What the gate said at its end.
    pub(crate) flows_reset: Option<u32>,
    /// Why it is over, fixed by whatever ended it first.
    pub(crate) end: Option<BoxEnd>,
    /// When it was begun.
    pub(crate) begun: Instant,
    /// When its time is up, once its command runs.
    pub(crate) deadline: Option<Instant>,
    pub(crate) ending_since: Option<Instant>,
    pub(crate) processes_before: Option<u32>,
    pub(crate) processes_left: Option<u32>,
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) open_flows: BTreeSet<FlowId>,
    /// Changes of its reach, and what its gate was asked.
    pub(crate) questions: Questions,
    /// Whether it is held.
    pub(crate) pauses: Pauses,
    /// What it was refused, for itself.
    pub(crate) told: Refusals,
    refusals: BTreeMap<RefusalKey, (FlowRefused, u64)>,
    /// Refusals that found no place there.
    refusals_more: u64,
    /// Refused names that were asked for as names of the web.
    web_names: BTreeSet<Host>,
}

/// What a refusal is to a run's summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Noted {
    /// The first of its kind.
    First,
    /// One more of its kind.
    Again,
    /// The first that finds no place.
    TooMany,
    /// A further one.
    More,
}

/// What an incarnation is begun with.
#[derive(Debug)]
pub(crate) struct NewRun<'a> {
    pub(crate) box_id: BoxId,
    pub(crate) incarnation: Incarnation,
    pub(crate) name: String,
    pub(crate) unnamed: bool,
    pub(crate) reach: Reach,
    pub(crate) publish: Vec<Publish>,
    pub(crate) writable: Vec<Writable>,
    pub(crate) detached: bool,
    pub(crate) here: bool,
    pub(crate) client: ConnId,
    pub(crate) spec: &'a BoxSpec,
}

/// What makes two refusals the same to a person.
type RefusalKey = (Proto, Option<Host>, Option<std::net::SocketAddr>, Refusal);

impl Run {
    /// A new incarnation, before its entry is written.
    pub(crate) fn new(made: NewRun<'_>) -> Self {
        let spec = made.spec;
        let (tier, class, limits) = (spec.tier, spec.class, spec.limits);
        let gated = tier == Tier::Gated;
        Self {
            phase: Phase::Making,
            box_id: made.box_id,
            incarnation: made.incarnation,
            name: made.name,
            unnamed: made.unnamed,
            reach: made.reach,
            tier,
            class,
            limits,
            publish: made.publish,
            listeners: Listeners::default(),
            writable: made.writable,
            shared: Vec::new(),
            client: Some(made.client),
            detached: made.detached,
            here: made.here,
            log: None,
            outputs: None,
            cgroup: None,
            limits_met: Vec::new(),
            screen: spec.display.map(Screen::new),
            fence: None,
            gate: None,
            credit: None,
            unwritten: Unwritten::default(),
            slate: None,
            pid1: None,
            namespaces: Vec::new(),
            proc_root: None,
            pty: None,
            notes: Vec::new(),
            boundary: Boundary::default(),
            entered: false,
            made: false,
            // Where there is no gate, none is waited for.
            gate_ready: !gated,
            exit: None,
            fence_over: false,
            waited: false,
            gate_over: !gated,
            // Without a network there is no flow; one that passes, nobody counts.
            flows_reset: (tier == Tier::L2).then_some(0),
            end: None,
            begun: Instant::now(),
            deadline: None,
            ending_since: None,
            processes_before: None,
            processes_left: None,
            waiting: Vec::new(),
            open_flows: BTreeSet::new(),
            questions: Questions::default(),
            pauses: Pauses::default(),
            told: Refusals::default(),
            refusals: BTreeMap::new(),
            refusals_more: 0,
            web_names: BTreeSet::new(),
        }
    }

    /// The document of its audit.
    pub(crate) fn doc(&self) -> DocId {
        match self.here {
            true => DocId::Here(self.box_id),
            false => DocId::Box(self.box_id),
        }
    }

    /// Starts the end: the first reason stands, a later one changes nothing.
    pub(crate) fn begin_end(&mut self, end: BoxEnd, now: Instant) {
        if matches!(self.phase, Phase::Ending | Phase::Closing) {
            return;
        }
        self.processes_before = self.count_processes();
        self.phase = Phase::Ending;
        self.end = Some(end);
        self.ending_since = Some(now);
        self.fence_over |= !self
            .fence
            .as_ref()
            .is_some_and(|fence| fence.send(ToFence::Kill, vec![]));
        let last = match &self.end {
            // What its programs had sent is not theirs any more, but on its way.
            Some(BoxEnd::Exited(_)) => ToGate::Finish,
            _ => ToGate::Stop,
        };
        self.tell_gate_last(last);
    }

    /// Ends its network; at once, where that was under way by itself.
    pub(crate) fn tell_gate_last(&mut self, last: ToGate) {
        let gate = self.gate.as_ref();
        self.gate_over |= !gate.is_some_and(|gate| gate.send(last, vec![]));
    }

    /// Whether launcher and gate have both had their last word, and all that
    /// was written is kept.
    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Ending && self.fence_over && self.gate_over && self.log.is_none()
    }

    /// How it ended, for whoever ran it or a further command in it.
    pub(crate) fn ended(&self) -> Ended {
        Ended {
            exit: self.exit,
            end: self.end.clone().unwrap_or(BoxEnd::FenceLost),
            flows_reset: self.flows_reset,
            processes_ended: self.processes_ended(),
            processes_left: self.processes_left,
            limits_met: self.limits_met.clone(),
            refusals: self.refusals(),
            refusals_more: self.refusals_more,
        }
    }

    /// Whether pid 1 is gone, and the box with it, whatever has been heard so far.
    pub(crate) fn is_without_pid1(&self) -> bool {
        let Some(pid1) = &self.pid1 else {
            return false;
        };
        let mut ready = [PollFd::new(pid1, PollFlags::IN)];
        // A pidfd is readable once its process has ended (pidfd_open(2)).
        matches!(poll(&mut ready, Some(&Timespec::default())), Ok(1..))
    }

    /// Processes of the box now, from its own `/proc`; `None` where that cannot
    /// be read, or was never there.
    pub(crate) fn count_processes(&self) -> Option<u32> {
        count_living(self.proc_root.as_ref()?.as_fd())
    }

    /// What is left after the end: counted, or by the launcher's word, which
    /// comes only after it waited for pid 1, and so for the whole namespace; and
    /// without one, after the kernel has said that it has no child any more, to
    /// which all that is left of a box would have come.
    pub(crate) fn count_left(&self) -> Option<u32> {
        self.count_processes().or(self.waited.then_some(0))
    }

    /// How many the end ended, where both counts are known.
    pub(crate) fn processes_ended(&self) -> Option<u32> {
        Some(self.processes_before?.saturating_sub(self.processes_left?))
    }

    /// Counts a refusal for the summary.
    pub(crate) fn note_refusal(&mut self, refused: &FlowRefused) -> Noted {
        let host = refused.host.clone();
        // Without a name the address tells them apart; with one its port does.
        let dst = refused.dst.filter(|_| refused.host.is_none());
        let key = (refused.proto, host, dst, refused.refusal);
        let count = u64::from(refused.count);
        if let Some((_, seen)) = self.refusals.get_mut(&key) {
            *seen += count;
            return Noted::Again;
        }
        let public = refused
            .class
            .is_none_or(|class| class == AddrClass::Internet);
        let places = match public {
            true => MAX_REFUSALS,
            false => MAX_REFUSALS + MAX_OTHER_REFUSALS,
        };
        if self.refusals.len() >= places {
            let first = self.refusals_more == 0;
            self.refusals_more += count;
            return if first { Noted::TooMany } else { Noted::More };
        }
        self.refusals.insert(key, (refused.clone(), count));
        Noted::First
    }

    /// A name that is refused was asked for as one of the web. Too many of them are
    /// as if they were not.
    pub(crate) fn note_web_name(&mut self, host: Host) {
        let first = self.web_names.len() < MAX_WEB_NAMES && self.web_names.insert(host.clone());
        let key = (Proto::Dns, Some(host), None, Refusal::NameOutsideReach);
        if let Some((refused, _)) = self.refusals.get(&key).filter(|_| first) {
            // It was told as any other before; what would grant it is another term now.
            let again = FlowRefused {
                count: 0,
                ..refused.clone()
            };
            self.note_for_box(&again, true);
        }
    }

    /// Whether it is such a name that was refused.
    pub(crate) fn is_for_web(&self, refused: &FlowRefused) -> bool {
        let host = refused.host.as_ref();
        refused.proto == Proto::Dns && host.is_some_and(|host| self.web_names.contains(host))
    }

    /// The summary.
    pub(crate) fn refusals(&self) -> Vec<Denied> {
        let denied = |(refused, count): &(FlowRefused, u64)| Denied {
            refused: refused.clone(),
            web: self.is_for_web(refused),
            count: *count,
        };
        self.refusals.values().map(denied).collect()
    }

    /// Whether a person, and not the box itself, ended it.
    pub(crate) fn stopped_by(&self) -> Option<StoppedBy> {
        match self.end {
            Some(BoxEnd::Stopped(by)) => Some(by),
            _ => None,
        }
    }
}

/// A start as every device is told of it: of one whose audit stays here without the
/// words after its program's, which may say what only that audit is to say.
pub(crate) fn listed(started: &BoxStarted, here: bool) -> BoxStarted {
    let mut listed = started.clone();
    if here {
        listed.command.truncate(1);
    }
    listed
}

/// What a stop came to, measured.
pub(crate) fn outcome(run: &Run) -> RequestOutcome {
    if run.stopped_by().is_none() {
        return RequestOutcome::AlreadyOver;
    }
    let took = run
        .ending_since
        .map(|since| since.elapsed())
        .unwrap_or_default();
    RequestOutcome::Stopped {
        processes_ended: run.processes_ended(),
        processes_left: run.processes_left,
        flows_reset: run.flows_reset,
        took_ms: u32::try_from(took.as_millis()).unwrap_or(u32::MAX),
    }
}

/// Living processes of a `/proc`: its numeric names, less those that are dead
/// and not yet reaped. A `/proc` whose pid namespace is gone is empty or not
/// there at all; what else cannot be read is not a count.
fn count_living(root: BorrowedFd<'_>) -> Option<u32> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = match rustix::fs::openat(root, c".", flags, Mode::empty()) {
        Ok(dir) => dir,
        Err(Errno::NOENT | Errno::SRCH) => return Some(0),
        Err(_) => return None,
    };
    let mut count = 0_u32;
    for entry in rustix::fs::Dir::new(dir).ok()? {
        let entry = match entry {
            Ok(entry) => entry,
            Err(Errno::NOENT | Errno::SRCH) => continue,
            Err(_) => return None,
        };
        let name = entry.file_name().to_bytes();
        if name.is_empty() || !name.iter().all(u8::is_ascii_digit) {
            continue;
        }
        match is_dead(root, name) {
            Ok(dead) => count = count.saturating_add(u32::from(!dead)),
            Err(Errno::NOENT | Errno::SRCH) => {}
            Err(_) => return None,
        }
    }
    Some(count)
}

/// Whether a process has ended and only waits to be reaped (state Z or X in
/// proc_pid_stat(5), after the name, which may hold any byte).
fn is_dead(root: BorrowedFd<'_>, pid: &[u8]) -> Result<bool, Errno> {
    let path = [pid, b"/stat"].concat();
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let stat = rustix::fs::openat(root, path.as_slice(), flags, Mode::empty())?;
    let mut bytes = [0_u8; 512];
    let count = rustix::io::read(&stat, &mut bytes)?;
    let text = bytes.get(..count).unwrap_or_default();
    let after = text.iter().rposition(|byte| *byte == b')');
    let state = after.and_then(|at| text.get(at + 2));
    Ok(matches!(state, Some(b'Z' | b'X')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proc_folder_counts_its_processes() {
        let root = std::fs::File::open("/proc").unwrap();
        let before = count_living(root.as_fd()).unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        assert!(before > 0);
        // Ended and not reaped: not a living process, though its name is there.
        let pid = child.id().to_string();
        let until = Instant::now() + std::time::Duration::from_secs(5);
        while !is_dead(root.as_fd(), pid.as_bytes()).unwrap() {
            assert!(Instant::now() < until);
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert_eq!(is_dead(root.as_fd(), pid.as_bytes()), Err(Errno::NOENT));
    }
}
