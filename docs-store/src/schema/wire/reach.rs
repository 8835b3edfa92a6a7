//! The struct of a changed reach.

use bailey_model::{BoxId, ChangedBy, Incarnation, ReachChanged};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
pub(super) struct WireReachChanged {
    box_id: [u8; 16],
    incarnation: [u8; 16],
    old: String,
    new: String,
    by: WireBy,
}

/// Order is part of the format: new variants go last.
#[derive(Serialize, Deserialize)]
enum WireBy {
    Here,
}

impl From<&ReachChanged> for WireReachChanged {
    fn from(it: &ReachChanged) -> Self {
        Self {
            box_id: it.box_id.0,
            incarnation: it.incarnation.0,
            old: it.old.clone(),
            new: it.new.clone(),
            by: match it.by {
                ChangedBy::Here => WireBy::Here,
            },
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
            by: match it.by {
                WireBy::Here => ChangedBy::Here,
            },
        }
    }
}
