//! What a person is shown of a mailbox.

use std::collections::BTreeSet;
use std::time::Duration;

use bailey_model::DeviceId;

use super::running::Running;
use super::{Mailbox, Node};
use crate::log::log;
use crate::rows::{self, MailboxRow};

impl Node {
    /// Whether a mailbox that has told all tells less than another device saw.
    pub(super) fn look_for_older(&mut self, mailbox: Mailbox, now: Duration) {
        let Some(it) = self.mailboxes.all.get_mut(mailbox.0) else {
            return;
        };
        if it.connection.is_none() || !it.takes.is_caught_up() {
            return;
        }
        let devices = &self.devices;
        let older = it.words.older(now, |device| devices.is_up(device));
        for (by, chain) in older.iter().filter(|(by, _)| !it.older.contains(by)) {
            log!(
                "mailbox {}: shows an older head of {} by {} than {} saw",
                it.name(),
                chain.doc,
                rows::short(&chain.writer),
                rows::short(by)
            );
            // What it tells now may be more than before.
            self.mailboxes.topics_at = None;
        }
        it.older = older.into_keys().collect();
    }

    fn names_of(&self, devices: &BTreeSet<DeviceId>) -> Option<String> {
        let names = devices.iter().map(|device| self.fold.device_name(*device));
        let names: Vec<String> = names.collect();
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// The mailboxes as a person sees them.
    pub(in crate::daemon) fn mailbox_rows(&self) -> Vec<MailboxRow> {
        let row = |it: &Running| MailboxRow {
            v: rows::V,
            mailbox: it.address.to_string(),
            connected: it.connection.is_some(),
            last_heard: it.heard.map(|at| at.to_string()),
            why: it.down.clone(),
            refused: it.puts.refusal().map(|refusal| refusal.to_string()),
            bad: it.bad,
            went_back: it.went_back,
            older_than: self.names_of(&it.older),
            from_code: self.mailboxes.is_learned(&it.address),
        };
        let used = self.mailboxes.all.iter().filter(|it| !it.forgotten);
        used.map(row).collect()
    }
}
