//! Where an audit is kept, and who captures a box's headers.

use bailey_model::{AuditHere, BoxId, CaptureStarted, Incarnation};
use serde::{Deserialize, Serialize};

use super::by::WireBy;

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

impl From<&CaptureStarted> for WireCapture {
    fn from(it: &CaptureStarted) -> Self {
        Self {
            box_id: it.box_id.0,
            incarnation: it.incarnation.0,
            seconds: it.seconds,
            by: it.by.into(),
        }
    }
}

impl From<WireCapture> for CaptureStarted {
    fn from(it: WireCapture) -> Self {
        Self {
            box_id: BoxId(it.box_id),
            incarnation: Incarnation(it.incarnation),
            seconds: it.seconds,
            by: it.by.into(),
        }
    }
}
