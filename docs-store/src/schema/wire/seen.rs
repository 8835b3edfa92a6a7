//! How far a device has chains.

use bailey_model::{BoxId, DeviceId, HeadsSeen, Incarnation, SeenDoc, SeenHead};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
pub(super) struct WireSeen {
    heads: Vec<WireHead>,
}

#[derive(Serialize, Deserialize)]
struct WireHead {
    writer: [u8; 32],
    incarnation: [u8; 16],
    doc: WireDoc,
    seq: u64,
    hash: [u8; 32],
}

/// Order is part of the format: new variants go last.
#[derive(Serialize, Deserialize)]
enum WireDoc {
    Account,
    Keys,
    Node,
    Notices,
    Requests,
    Days,
    Box([u8; 16]),
}

impl From<&HeadsSeen> for WireSeen {
    fn from(it: &HeadsSeen) -> Self {
        let head = |it: &SeenHead| WireHead {
            writer: it.writer.0,
            incarnation: it.incarnation.0,
            doc: match it.doc {
                SeenDoc::Account => WireDoc::Account,
                SeenDoc::Keys => WireDoc::Keys,
                SeenDoc::Node => WireDoc::Node,
                SeenDoc::Notices => WireDoc::Notices,
                SeenDoc::Requests => WireDoc::Requests,
                SeenDoc::Days => WireDoc::Days,
                SeenDoc::Box(box_id) => WireDoc::Box(box_id.0),
            },
            seq: it.seq,
            hash: it.hash,
        };
        Self {
            heads: it.heads.iter().map(head).collect(),
        }
    }
}

impl WireSeen {
    /// `None` where it has more than one entry may.
    pub(super) fn event(self) -> Option<HeadsSeen> {
        let head = |it: WireHead| SeenHead {
            writer: DeviceId(it.writer),
            incarnation: Incarnation(it.incarnation),
            doc: match it.doc {
                WireDoc::Account => SeenDoc::Account,
                WireDoc::Keys => SeenDoc::Keys,
                WireDoc::Node => SeenDoc::Node,
                WireDoc::Notices => SeenDoc::Notices,
                WireDoc::Requests => SeenDoc::Requests,
                WireDoc::Days => SeenDoc::Days,
                WireDoc::Box(box_id) => SeenDoc::Box(BoxId(box_id)),
            },
            seq: it.seq,
            hash: it.hash,
        };
        let within = self.heads.len() <= HeadsSeen::MAX;
        within.then(|| HeadsSeen {
            heads: self.heads.into_iter().map(head).collect(),
        })
    }
}
