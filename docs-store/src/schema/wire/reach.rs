//! The struct of a changed reach.

use bailey_model::{BoxId, Incarnation, ReachChanged};
use serde::{Deserialize, Serialize};

use super::by::WireBy;

#[derive(Serialize, Deserialize)]
pub(super) struct WireReachChanged {
    box_id: [u8; 16],
    incarnation: [u8; 16],
    old: String,
    new: String,
    by: WireBy,
}

impl From<&ReachChanged> for WireReachChanged {
    fn from(it: &ReachChanged) -> Self {
        Self {
            box_id: it.box_id.0,
            incarnation: it.incarnation.0,
            old: it.old.clone(),
            new: it.new.clone(),
            by: it.by.into(),
        }
    }
}

impl From<WireReachChanged> for ReachChanged {
    fn from(it: WireReachChanged) -> Self {
        Self {
            box_id: BoxId(it.box_id),
            incarnation: Incarnation(it.incarnation),
            old: it.old,
            new: it.new,
            by: it.by.into(),
        }
    }
}
