//! What a device asks of a node about one of its boxes, and what came of it.

use serde::{Deserialize, Serialize};

use crate::{BoxId, ChangedBy, DeviceId, Incarnation, RequestId, Timestamp};

/// A device asks a node for something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Random; acted on once.
    pub id: RequestId,
    /// The node that is asked.
    pub node: DeviceId,
    /// The box.
    pub box_id: BoxId,
    /// The run of it: a request never touches a later one.
    pub incarnation: Incarnation,
    /// What for.
    pub kind: RequestKind,
    /// What it rests on; `None` for a stop alone, which holds whatever the box does.
    pub basis: Option<Basis>,
}

/// What can be asked from afar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestKind {
    /// End every process and flow of the box.
    Stop,
    /// Let no process of the box run until it is resumed.
    Pause,
    /// Let them run again.
    Resume,
    /// Give terms to the box's reach.
    Allow,
    /// Take away what terms grant.
    Deny,
}

impl RequestKind {
    /// The word for a person.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }

    /// Whether it gives a box something. What only takes away holds however late it
    /// comes; this does not.
    #[must_use]
    pub fn gives(self) -> bool {
        match self {
            Self::Resume | Self::Allow => true,
            Self::Stop | Self::Pause | Self::Deny => false,
        }
    }
}

/// SHA-256 of a box's state, as far as requests can change it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateHash(pub [u8; 32]);

/// What a request rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Basis {
    /// Terms of a reach in canonical text; empty where it is about none.
    pub terms: String,
    /// The box's state as the sender knew it.
    pub state: StateHash,
    /// Number of the request among those of its sender, from 1: one that comes after
    /// a newer one does nothing.
    pub seq: u64,
    /// Until when it may be acted on, by the clock of the node that is asked.
    pub until: Option<Timestamp>,
}

/// How the processes of a box are kept from running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hold {
    /// By its cgroup (`cgroup.freeze`).
    Cgroup,
    /// By a stop signal to each.
    Signals,
}

impl Hold {
    /// The word in rows.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cgroup => "cgroup",
            Self::Signals => "signals",
        }
    }
}

/// No process of a box runs from here on. The same entry stands in the node's document
/// and in the box's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoxPaused {
    /// The box.
    pub box_id: BoxId,
    /// The run of it.
    pub incarnation: Incarnation,
    /// Processes that were counted and do not run.
    pub processes: u32,
    /// How they are held.
    pub hold: Hold,
    /// Who paused it.
    pub by: ChangedBy,
}

/// A box's processes go on from here on. It stands where [`BoxPaused`] does, before
/// the first of them does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoxResumed {
    /// The box.
    pub box_id: BoxId,
    /// The run of it.
    pub incarnation: Incarnation,
    /// Who resumed it.
    pub by: ChangedBy,
}

/// What the node did for a request. It is the node's word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The request.
    pub request: RequestId,
    /// The device that asked.
    pub from: DeviceId,
    /// What came of it.
    pub outcome: RequestOutcome,
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestOutcome {
    /// The box is stopped: processes ended, processes left when counted after,
    /// flows reset (each `None` where nobody could count), and how long it took
    /// in milliseconds.
    Stopped {
        /// Processes that were there before.
        processes_ended: Option<u32>,
        /// Processes counted after.
        processes_left: Option<u32>,
        /// Flows reset.
        flows_reset: Option<u32>,
        /// From the request to the count after, in milliseconds.
        took_ms: u32,
    },
    /// That incarnation was over already.
    AlreadyOver,
    /// The sender may not ask for it, or the box is not known here.
    Denied(String),
    /// No process of the box runs.
    Paused {
        /// Processes that were counted and do not run.
        processes: u32,
        /// How they are held.
        hold: Hold,
        /// From the request to the count, in milliseconds.
        took_ms: u32,
    },
    /// The box's processes go on.
    Resumed {
        /// Processes that were counted after; `None` where nobody could count.
        processes: Option<u32>,
        /// From the request to the count, in milliseconds.
        took_ms: u32,
    },
    /// The gate decides by this reach.
    Reach {
        /// The reach now, in its canonical text.
        reach: String,
        /// Flows that it does not grant, which were reset; `None` where nobody could
        /// count.
        flows_reset: Option<u32>,
    },
    /// It came after its time, and nothing was done.
    Expired,
    /// What it rested on is not so any more, and nothing was done; what changed.
    Changed(String),
    /// It was tried, or could not be; why. The box is as it was.
    NotDone(String),
}
