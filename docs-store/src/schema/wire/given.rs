//! What of the host a box was given, as it is stored.

use bailey_model::{BoxGranted, BoxId, GrantKind, Incarnation};
use serde::{Deserialize, Serialize};

use super::by::WireBy;

codes!(grant_code, grant_of, GrantKind { Folder = 1, File = 2, Socket = 3, Device = 4 });

#[derive(Serialize, Deserialize)]
pub(super) struct WireGranted {
    box_id: [u8; 16],
    incarnation: [u8; 16],
    written: String,
    path: String,
    kind: u8,
    write: bool,
    by: WireBy,
}

impl From<&BoxGranted> for WireGranted {
    fn from(it: &BoxGranted) -> Self {
        Self {
            box_id: it.box_id.0,
            incarnation: it.incarnation.0,
            written: it.written.clone(),
            path: it.path.clone(),
            kind: grant_code(it.kind),
            write: it.write,
            by: it.by.into(),
        }
    }
}

impl WireGranted {
    pub(super) fn event(self) -> Option<BoxGranted> {
        Some(BoxGranted {
            box_id: BoxId(self.box_id),
            incarnation: Incarnation(self.incarnation),
            written: self.written,
            path: self.path,
            kind: grant_of(self.kind)?,
            write: self.write,
            by: self.by.into(),
        })
    }
}
