//! Where an audit is kept, and who captures a box's headers.

use bailey_model::{AuditHere, BoxId, CaptureStarted, ChangedBy, Incarnation};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
pub(super) struct WireAuditHere {
    box_id: [u8; 16],
    incarnation: [u8; 16],
}

impl From<&AuditHere> for WireAuditHere {
    fn from(it: &AuditHere) -> Self {
        Self {
            box_id: it.box_id.0,
            incarnation: it.incarnation.0,
        }
    }
}

impl From<WireAuditHere> for AuditHere {
    fn from(it: WireAuditHere) -> Self {
        Self {
            box_id: BoxId(it.box_id),
            incarnation: Incarnation(it.incarnation),
        }
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct WireCapture {
    box_id: [u8; 16],
    incarnation: [u8; 16],
    seconds: u32,
    by: WireBy,
}

/// Order is part of the format: new variants go last.
#[derive(Serialize, Deserialize)]
enum WireBy {
    Here,
}

impl From<&CaptureStarted> for WireCapture {
    fn from(it: &CaptureStarted) -> Self {
        Self {
            box_id: it.box_id.0,
            incarnation: it.incarnation.0,
            seconds: it.seconds,
            by: match it.by {
                ChangedBy::Here => WireBy::Here,
            },
        }
    }
}

impl From<WireCapture> for CaptureStarted {
    fn from(it: WireCapture) -> Self {
        Self {
            box_id: BoxId(it.box_id),
            incarnation: Incarnation(it.incarnation),
            seconds: it.seconds,
            by: match it.by {
                WireBy::Here => ChangedBy::Here,
            },
        }
    }
}
