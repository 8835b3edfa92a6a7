//! One mailbox: what this node knows of it, and what its task is told.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;

use bailey_model::{DeviceId, Timestamp};
use bailey_sync::mail::{MailAddress, MailCommand};
use tokio::sync::mpsc;

use super::kept::Kept;
use super::puts::Puts;
use super::takes::{Order, Takes};
use super::words::Words;
use crate::log::log;

/// One of them, while this node runs.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) address: MailAddress,
    pub(super) commands: mpsc::Sender<MailCommand>,
    /// The connection that is up.
    pub(super) connection: Option<u64>,
    pub(super) remote: Option<SocketAddr>,
    /// When it said something last.
    pub(super) heard: Option<Timestamp>,
    /// Why it is not reached.
    pub(super) down: Option<String>,
    /// The name of its store.
    pub(super) store: [u8; 16],
    pub(super) puts: Puts,
    pub(super) takes: Takes,
    pub(super) words: Words,
    pub(super) word_asked: bool,
    /// Blobs that were good for nothing.
    pub(super) bad: u64,
    /// Whether it was seen to tell less than it had told before.
    pub(super) went_back: bool,
    /// Devices that saw more than it tells.
    pub(super) older: BTreeSet<DeviceId>,
    pub(super) file: PathBuf,
    pub(super) changed: bool,
    pub(super) kept_at: Instant,
    pub(super) again_at: Instant,
    /// A person wants it no more. Its place is kept: others go by theirs.
    pub(super) forgotten: bool,
}

impl Running {
    /// One that goes on where an earlier start was.
    pub(super) fn new(
        address: MailAddress,
        commands: mpsc::Sender<MailCommand>,
        file: PathBuf,
        kept: &Kept,
    ) -> Self {
        let now = Instant::now();
        Self {
            address,
            commands,
            connection: None,
            remote: None,
            heard: None,
            down: None,
            store: kept.store,
            puts: Puts::resume(kept.done()),
            takes: Takes::resume(kept.topics()),
            words: Words::default(),
            word_asked: false,
            bad: 0,
            went_back: false,
            older: BTreeSet::new(),
            file,
            changed: false,
            kept_at: now,
            again_at: now,
            forgotten: false,
        }
    }

    pub(super) fn order(&mut self, orders: Vec<Order>) {
        let Some(connection) = self.connection else {
            return;
        };
        for order in orders {
            self.command(match order {
                Order::Follow { topic, from } => MailCommand::Follow {
                    connection,
                    topic,
                    from,
                },
                Order::Unfollow { topic } => MailCommand::Unfollow { connection, topic },
            });
        }
    }

    pub(super) fn command(&mut self, command: MailCommand) {
        if self.commands.try_send(command).is_err() {
            // Without all of them it is of no use: the next tick begins another.
            self.commands = mpsc::channel(1).0;
            self.connection = None;
            self.down = Some("it takes no more".to_owned());
        }
    }

    /// Nothing is put there or taken from there any more.
    pub(super) fn forget(&mut self) {
        self.forgotten = true;
        self.commands = mpsc::channel(1).0;
        (self.connection, self.remote) = (None, None);
    }

    pub(super) fn is_gone(&self) -> bool {
        self.commands.is_closed()
    }

    pub(super) fn name(&self) -> String {
        self.address.place()
    }

    pub(super) fn on_up(&mut self, connection: u64, store: [u8; 16], remote: SocketAddr) {
        let same = self.store == store;
        if !same {
            if self.store != [0; 16] {
                log!("mailbox {}: it has lost what it had", self.name());
            }
            self.puts.lost();
            self.words.lost();
            self.store = store;
        }
        log!("mailbox {}: up", self.name());
        (self.connection, self.remote, self.down) = (Some(connection), Some(remote), None);
        self.puts.down();
        self.word_asked = false;
        let orders = self.takes.up(same);
        self.order(orders);
        self.changed = true;
    }

    pub(super) fn on_down(&mut self, why: String) {
        log!("mailbox {}: {why}", self.name());
        self.connection = None;
        self.down = Some(why);
        self.puts.down();
        self.takes.down();
        self.word_asked = false;
    }
}
