//! A store that goes on from an older copy of itself: both its chains are kept,
//! and a person is told.

use bailey_docs_store::{DocId, Urgency};
use bailey_model::{BoxId, DeviceId, EntryRef, Event, Notice, NoticeId, Rule};

use super::store::Tag;
use super::{Node, clock};
use crate::log::log;
use crate::rows;

impl Node {
    /// Raises the notice; each node that sees it raises one a start.
    pub(super) fn on_went_back(&mut self, writer: DeviceId) {
        let text = match writer == self.this {
            true => "this store continues an older copy: what it wrote since then came back \
                     from another device, and both are kept"
                .to_owned(),
            false => format!(
                "the store of {} ({}) continues an older copy, or runs twice: what it wrote \
                 then and now are both kept",
                self.fold.device_name(writer),
                rows::short(&writer)
            ),
        };
        log!("{text}");
        let id = match clock::random() {
            Ok(id) => id,
            Err(error) => return log!("entropy: {error}"),
        };
        let notice = Notice {
            id: NoticeId(id),
            rule: Rule::StoreWentBack,
            box_id: BoxId([0; 16]),
            box_name: String::new(),
            incarnation: self.incarnation,
            // No entry: the device itself.
            evidence: vec![EntryRef {
                writer,
                box_id: BoxId([0; 16]),
                no: 0,
            }],
            text,
        };
        let notice = Event::Notice(notice);
        self.append(DocId::Notices, notice, Urgency::Urgent, Tag::None);
    }
}
