//! A node that ends gives its mailboxes what it wrote last, for so long and no longer.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};

use super::Node;
use super::event::NodeEvent;
use super::store::{StoreAsk, StoreTell};
use crate::log::log;

/// How long the end of a node may wait for its mailboxes, in all.
const LAST_MAIL: Duration = Duration::from_secs(2);
/// Between two looks whether all of it is there.
const LOOK_EVERY: Duration = Duration::from_millis(20);

impl Node {
    /// Seals what is in the journal and puts it, where a mailbox is connected; nobody
    /// waits for one that is not.
    pub(super) async fn put_last_mail(
        &mut self,
        tells: &mut mpsc::Receiver<Vec<StoreTell>>,
        events: &mut mpsc::Receiver<NodeEvent>,
    ) {
        if !self.mail_is_up() {
            return;
        }
        self.ask_store(StoreAsk::Seal);
        let deadline = Instant::now() + LAST_MAIL;
        if timeout_at(deadline, self.until_put(tells, events))
            .await
            .is_err()
        {
            log!("mailbox: what was written last is put at the next start");
        }
    }

    async fn until_put(
        &mut self,
        tells: &mut mpsc::Receiver<Vec<StoreTell>>,
        events: &mut mpsc::Receiver<NodeEvent>,
    ) {
        loop {
            self.hand_over();
            if self.in_flight == 0 && !self.mail_waits() {
                return;
            }
            tokio::select! {
                biased;
                told = tells.recv() => match told {
                    Some(told) => told.into_iter().for_each(|tell| self.on_store(tell)),
                    None => return,
                },
                event = events.recv() => match event {
                    Some(NodeEvent::Mail(said)) => self.on_mail(said),
                    // Peers may still ask for it too.
                    Some(NodeEvent::Sync(event)) => self.on_sync(event),
                    // For all else this node has ended.
                    Some(_) => {}
                    None => return,
                },
                () = sleep(LOOK_EVERY) => {}
            }
        }
    }
}
