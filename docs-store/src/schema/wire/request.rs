//! Requests, their receipts, and what they do to a box's processes.

use bailey_model::{
    Basis, BoxId, BoxPaused, BoxResumed, DeviceId, Hold, Incarnation, Receipt, Request, RequestId,
    RequestKind, RequestOutcome, StateHash, Timestamp,
};
use serde::{Deserialize, Serialize};

use super::by::WireBy;
use super::{bytes, whole};

codes!(request_code, request_of, RequestKind {
    Stop = 1, Pause = 2, Resume = 3, Allow = 4, Deny = 5,
});
codes!(hold_code, hold_of, Hold { Cgroup = 1, Signals = 2 });

#[derive(Serialize, Deserialize)]
struct WireRequest {
    id: [u8; 16],
    node: [u8; 32],
    box_id: [u8; 16],
    incarnation: [u8; 16],
    kind: u8,
}

/// What follows in all but a stop.
#[derive(Serialize, Deserialize)]
struct WireBasis {
    terms: String,
    state: [u8; 32],
    seq: u64,
    until: Option<u64>,
}

/// The body of a request.
pub(super) fn encode(it: &Request) -> postcard::Result<Vec<u8>> {
    let request = WireRequest {
        id: it.id.0,
        node: it.node.0,
        box_id: it.box_id.0,
        incarnation: it.incarnation.0,
        kind: request_code(it.kind),
    };
    match &it.basis {
        None => bytes(&request),
        Some(basis) => {
            let basis = WireBasis {
                terms: basis.terms.clone(),
                state: basis.state.0,
                seq: basis.seq,
                until: basis.until.map(|until| until.0),
            };
            bytes(&(request, basis))
        }
    }
}

/// The request of a body: a stop has no basis, every other has one.
pub(super) fn decode(body: &[u8]) -> Option<Request> {
    if let Some(request) = whole::<WireRequest>(body) {
        let request = request.event(None)?;
        return (request.kind == RequestKind::Stop).then_some(request);
    }
    let (request, basis) = whole::<(WireRequest, WireBasis)>(body)?;
    let basis = Basis {
        terms: basis.terms,
        state: StateHash(basis.state),
        seq: basis.seq,
        until: basis.until.map(Timestamp),
    };
    let request = request.event(Some(basis))?;
    (request.kind != RequestKind::Stop).then_some(request)
}

impl WireRequest {
    fn event(self, basis: Option<Basis>) -> Option<Request> {
        Some(Request {
            id: RequestId(self.id),
            node: DeviceId(self.node),
            box_id: BoxId(self.box_id),
            incarnation: Incarnation(self.incarnation),
            kind: request_of(self.kind)?,
            basis,
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct WirePaused {
    box_id: [u8; 16],
    incarnation: [u8; 16],
    processes: u32,
    hold: u8,
    by: WireBy,
}

impl From<&BoxPaused> for WirePaused {
    fn from(it: &BoxPaused) -> Self {
        Self {
            box_id: it.box_id.0,
            incarnation: it.incarnation.0,
            processes: it.processes,
            hold: hold_code(it.hold),
            by: it.by.into(),
        }
    }
}

impl WirePaused {
    pub(super) fn event(self) -> Option<BoxPaused> {
        Some(BoxPaused {
            box_id: BoxId(self.box_id),
            incarnation: Incarnation(self.incarnation),
            processes: self.processes,
            hold: hold_of(self.hold)?,
            by: self.by.into(),
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct WireResumed {
    box_id: [u8; 16],
    incarnation: [u8; 16],
    by: WireBy,
}

impl From<&BoxResumed> for WireResumed {
    fn from(it: &BoxResumed) -> Self {
        Self {
            box_id: it.box_id.0,
            incarnation: it.incarnation.0,
            by: it.by.into(),
        }
    }
}

impl From<WireResumed> for BoxResumed {
    fn from(it: WireResumed) -> Self {
        Self {
            box_id: BoxId(it.box_id),
            incarnation: Incarnation(it.incarnation),
            by: it.by.into(),
        }
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct WireReceipt {
    request: [u8; 16],
    from: [u8; 32],
    outcome: WireOutcome,
}

/// Order is part of the format: new variants go last.
#[derive(Serialize, Deserialize)]
enum WireOutcome {
    Stopped {
        processes_ended: Option<u32>,
        processes_left: Option<u32>,
        flows_reset: Option<u32>,
        took_ms: u32,
    },
    AlreadyOver,
    Denied(String),
    Paused {
        processes: u32,
        hold: u8,
        took_ms: u32,
    },
    Resumed {
        processes: Option<u32>,
        took_ms: u32,
    },
    Reach {
        reach: String,
        flows_reset: Option<u32>,
    },
    Expired,
    Changed(String),
    NotDone(String),
}

impl From<&Receipt> for WireReceipt {
    fn from(it: &Receipt) -> Self {
        Self {
            request: it.request.0,
            from: it.from.0,
            outcome: WireOutcome::from(&it.outcome),
        }
    }
}

impl WireReceipt {
    pub(super) fn event(self) -> Option<Receipt> {
        Some(Receipt {
            request: RequestId(self.request),
            from: DeviceId(self.from),
            outcome: self.outcome.outcome()?,
        })
    }
}

impl From<&RequestOutcome> for WireOutcome {
    fn from(it: &RequestOutcome) -> Self {
        match it {
            &RequestOutcome::Stopped {
                processes_ended,
                processes_left,
                flows_reset,
                took_ms,
            } => Self::Stopped {
                processes_ended,
                processes_left,
                flows_reset,
                took_ms,
            },
            RequestOutcome::AlreadyOver => Self::AlreadyOver,
            RequestOutcome::Denied(why) => Self::Denied(why.clone()),
            &RequestOutcome::Paused {
                processes,
                hold,
                took_ms,
            } => Self::Paused {
                processes,
                hold: hold_code(hold),
                took_ms,
            },
            &RequestOutcome::Resumed { processes, took_ms } => Self::Resumed { processes, took_ms },
            RequestOutcome::Reach { reach, flows_reset } => Self::Reach {
                reach: reach.clone(),
                flows_reset: *flows_reset,
            },
            RequestOutcome::Expired => Self::Expired,
            RequestOutcome::Changed(what) => Self::Changed(what.clone()),
            RequestOutcome::NotDone(why) => Self::NotDone(why.clone()),
        }
    }
}

impl WireOutcome {
    fn outcome(self) -> Option<RequestOutcome> {
        Some(match self {
            Self::Stopped {
                processes_ended,
                processes_left,
                flows_reset,
                took_ms,
            } => RequestOutcome::Stopped {
                processes_ended,
                processes_left,
                flows_reset,
                took_ms,
            },
            Self::AlreadyOver => RequestOutcome::AlreadyOver,
            Self::Denied(why) => RequestOutcome::Denied(why),
            Self::Paused {
                processes,
                hold,
                took_ms,
            } => RequestOutcome::Paused {
                processes,
                hold: hold_of(hold)?,
                took_ms,
            },
            Self::Resumed { processes, took_ms } => RequestOutcome::Resumed { processes, took_ms },
            Self::Reach { reach, flows_reset } => RequestOutcome::Reach { reach, flows_reset },
            Self::Expired => RequestOutcome::Expired,
            Self::Changed(what) => RequestOutcome::Changed(what),
            Self::NotDone(why) => RequestOutcome::NotDone(why),
        })
    }
}
