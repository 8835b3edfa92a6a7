//! Notices.

use bailey_model::{BoxId, DeviceId, EntryRef, Incarnation, Notice, NoticeId};
use serde::{Deserialize, Serialize};

use super::{rule_code, rule_of};

#[derive(Serialize, Deserialize)]
pub(super) struct WireNotice {
    id: [u8; 16],
    rule: u8,
    box_id: [u8; 16],
    box_name: String,
    incarnation: [u8; 16],
    evidence: Vec<([u8; 32], [u8; 16], u64)>,
    text: String,
}

impl From<&Notice> for WireNotice {
    fn from(it: &Notice) -> Self {
        Self {
            id: it.id.0,
            rule: rule_code(it.rule),
            box_id: it.box_id.0,
            box_name: it.box_name.clone(),
            incarnation: it.incarnation.0,
            evidence: it
                .evidence
                .iter()
                .map(|at| (at.writer.0, at.box_id.0, at.no))
                .collect(),
            text: it.text.clone(),
        }
    }
}

impl WireNotice {
    pub(super) fn event(self) -> Option<Notice> {
        let entry = |(writer, box_id, no)| EntryRef {
            writer: DeviceId(writer),
            box_id: BoxId(box_id),
            no,
        };
        Some(Notice {
            id: NoticeId(self.id),
            rule: rule_of(self.rule)?,
            box_id: BoxId(self.box_id),
            box_name: self.box_name,
            incarnation: Incarnation(self.incarnation),
            evidence: self.evidence.into_iter().map(entry).collect(),
            text: self.text,
        })
    }
}
