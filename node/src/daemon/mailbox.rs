//! Mailboxes: what other devices need is put there and what they put is taken, beside
//! the sessions with those that are up.
//!
//! A mailbox is believed nothing. What comes of it goes the way of what a peer hands
//! over, and what it keeps back is seen by what devices say of their heads.

mod kept;
mod learned;
mod puts;
mod running;
mod shown;
mod takes;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bailey_docs_store::{Head, Members, TopicId};
use bailey_model::{DeviceId, Transport};
use bailey_sync::mail::{MailAddress, MailCommand, MailDevice, MailEvent};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use self::kept::Kept;
pub(crate) use self::puts::Lane;
use self::puts::View;
use self::running::Running;
pub(crate) use self::takes::Why;
use super::event::NodeEvent;
use super::store::{MailAsk, MailTell, StoreAsk, Took};
use super::{Node, clock, devices};
use crate::log::log;

/// Topics that are followed: below what a mailbox lets one connection follow.
pub(crate) const MAX_TOPICS: usize = 4000;
/// Blobs between a mailbox and the store, each of 256 KiB at most.
const TAKING: usize = 16;
/// Between two looks at what changes without an event: keys that were forgotten.
const TOPICS_EVERY: Duration = Duration::from_secs(60 * 60);
/// Between two tries of what this device could not write.
const AGAIN_EVERY: Duration = Duration::from_secs(10);
/// Between two writes of what is remembered.
const KEEP_EVERY: Duration = Duration::from_secs(5);

/// A mailbox, by its place in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mailbox(usize);

/// What a mailbox, or the way to it, says.
#[derive(Debug)]
pub(crate) struct MailSaid {
    mailbox: Mailbox,
    event: MailEvent,
    /// Of a blob: given back when it is taken.
    permit: Option<OwnedSemaphorePermit>,
}

/// The account's mailboxes.
#[derive(Debug)]
pub(super) struct Mailboxes {
    began: Instant,
    all: Vec<Running>,
    /// Those that a code named, once they were read.
    learned: Option<Vec<MailAddress>>,
    topics: Vec<TopicId>,
    week: u64,
    topics_asked: bool,
    topics_at: Option<Instant>,
    away: BTreeSet<DeviceId>,
    parting: BTreeMap<DeviceId, u64>,
}

impl Default for Mailboxes {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            all: Vec::new(),
            learned: None,
            topics: Vec::new(),
            week: 0,
            topics_asked: false,
            topics_at: None,
            away: BTreeSet::new(),
            parting: BTreeMap::new(),
        }
    }
}

impl Mailboxes {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Where they are: no box may dial them.
    pub(super) fn listeners(&self) -> impl Iterator<Item = (Transport, SocketAddr)> {
        let remotes = self.all.iter().filter_map(|it| it.remote);
        remotes.map(|remote| (Transport::Udp, remote))
    }

    /// Chains are here further than before.
    pub(super) fn heads(&mut self, heads: &[Head], this: DeviceId) {
        let now = self.now();
        for it in &mut self.all {
            it.puts.heads(heads, this, now);
            it.words.heads(heads);
        }
        let keys = |head: &Head| head.chain.doc == bailey_docs_store::DocId::Keys;
        if heads.iter().any(keys) {
            self.topics_at = None;
        }
    }
}

impl Node {
    fn view(
        &self,
    ) -> (
        &BTreeMap<bailey_docs_store::ChainId, Head>,
        BTreeSet<DeviceId>,
    ) {
        let parting = self.mailboxes.parting.keys().copied().collect();
        (self.devices.local_heads(), parting)
    }

    /// Runs what the configuration names, where the account has another device.
    fn start_mailboxes(&mut self) {
        let others = !self.devices.others(self.this).is_empty();
        let wanted = others && self.account.is_some() && !self.is_removed();
        if !wanted {
            self.mailboxes.all.clear();
            return;
        }
        if self.mailboxes.all.is_empty() {
            for (at, address) in self.mail_addresses().into_iter().enumerate() {
                let begun = self.begin_mailbox(Mailbox(at), address);
                self.mailboxes.all.extend(begun);
            }
            self.mailboxes.topics_at = None;
        }
        for at in 0..self.mailboxes.all.len() {
            let it = self.mailboxes.all.get(at);
            if let Some(it) = it.filter(|it| it.is_gone() && !it.forgotten) {
                let address = it.address.clone();
                self.keep_mailbox(Mailbox(at));
                if let (Some(begun), Some(place)) = (
                    self.begin_mailbox(Mailbox(at), address),
                    self.mailboxes.all.get_mut(at),
                ) {
                    *place = begun;
                    self.mailboxes.topics_at = None;
                }
            }
        }
    }

    fn begin_mailbox(&mut self, mailbox: Mailbox, address: MailAddress) -> Option<Running> {
        let entropy = clock::random()
            .inspect_err(|error| log!("entropy: {error}"))
            .ok()?;
        let key: String = address.to_string().chars().take(16).collect();
        let file = self.paths.state.join(format!("mailbox.{key}"));
        let kept = Kept::load(&file).unwrap_or_default();
        for (device, week) in &kept.parting {
            self.mailboxes.parting.entry(*device).or_insert(*week);
        }
        let (commands, events) = MailDevice::start(address.clone(), &entropy);
        tokio::spawn(hand_on(events, self.events.clone(), mailbox));
        let mut it = Running::new(address, devices::forward(commands), file, &kept);
        let heads: Vec<Head> = self.devices.local_heads().values().copied().collect();
        it.puts.heads(&heads, self.this, self.mailboxes.now());
        it.takes.want(self.mailboxes.topics.clone(), false);
        Some(it)
    }

    /// Time has passed.
    pub(super) fn tick_mailboxes(&mut self) {
        self.start_mailboxes();
        if self.mailboxes.all.is_empty() {
            return;
        }
        let this = self.this;
        let others = self.devices.others(this);
        let away = others.into_iter().map(|(id, _)| id);
        self.mailboxes.away = away.filter(|id| !self.devices.is_up(*id)).collect();
        self.ask_topics();
        for at in 0..self.mailboxes.all.len() {
            self.tick_mailbox(Mailbox(at));
            self.pump_mailbox(Mailbox(at));
        }
    }

    /// Asks for the topics where they may be others than before.
    fn ask_topics(&mut self) {
        let week = bailey_docs_store::week_of(clock::now().0);
        let old = self.mailboxes.topics_at;
        let due = old.is_none_or(|at| at.elapsed() > TOPICS_EVERY) || week != self.mailboxes.week;
        if due && !self.mailboxes.topics_asked && !self.mailboxes.all.is_empty() {
            self.mailboxes.topics_asked = true;
            self.ask_store(StoreAsk::Mail(MailAsk::Topics));
        }
    }

    fn tick_mailbox(&mut self, mailbox: Mailbox) {
        let now = self.mailboxes.now();
        let Some(it) = self.mailboxes.all.get_mut(mailbox.0) else {
            return;
        };
        if it.again_at.elapsed() > AGAIN_EVERY {
            it.again_at = Instant::now();
            let orders = it.takes.later();
            it.order(orders);
        }
        self.look_for_older(mailbox, now);
        let due = self
            .mailboxes
            .all
            .get(mailbox.0)
            .is_some_and(|it| it.changed && it.kept_at.elapsed() > KEEP_EVERY);
        if due {
            self.keep_mailbox(mailbox);
        }
    }

    /// Remembers how far a mailbox is.
    fn keep_mailbox(&mut self, mailbox: Mailbox) {
        let (heads, parting) = self.view();
        let Some(it) = self.mailboxes.all.get(mailbox.0) else {
            return;
        };
        let view = View {
            heads,
            this: self.this,
            away: &self.mailboxes.away,
            parting: &parting,
            week: self.mailboxes.week,
            caught_up: true,
        };
        let leaving = self.mailboxes.parting.iter();
        let leaving = leaving.map(|(device, week)| (*device, *week)).collect();
        let kept = Kept::new(it.store, it.takes.next(), it.puts.done(&view), leaving);
        let written = match kept.encode() {
            Some(bytes) => devices::write_private_bytes(&it.file, &bytes),
            None => Err(std::io::ErrorKind::FileTooLarge.into()),
        };
        if let Err(error) = written {
            log!("{}: {error}", it.file.display());
        }
        if let Some(it) = self.mailboxes.all.get_mut(mailbox.0) {
            it.changed = false;
            it.kept_at = Instant::now();
        }
    }

    /// Remembers how far all of them are, before the node leaves.
    pub(super) fn keep_mailboxes(&mut self) {
        for at in 0..self.mailboxes.all.len() {
            if self.mailboxes.all.get(at).is_some_and(|it| it.changed) {
                self.keep_mailbox(Mailbox(at));
            }
        }
    }

    /// Whether one of them is up and takes what is put.
    pub(super) fn mail_is_up(&self) -> bool {
        let takes = |it: &Running| it.connection.is_some() && !it.puts.is_held();
        self.mailboxes.all.iter().any(takes)
    }

    /// Whether something is still on its way to a mailbox that is up.
    pub(super) fn mail_waits(&self) -> bool {
        let (heads, parting) = self.view();
        self.mailboxes.all.iter().any(|it| {
            let view = View {
                heads,
                this: self.this,
                away: &self.mailboxes.away,
                parting: &parting,
                week: self.mailboxes.week,
                caught_up: it.takes.is_caught_up(),
            };
            let waits = !it.puts.is_idle() || it.puts.is_behind(self.mailboxes.now(), &view);
            it.connection.is_some() && !it.puts.is_held() && waits
        })
    }

    /// Puts what can be put now.
    fn pump_mailbox(&mut self, mailbox: Mailbox) {
        let now = self.mailboxes.now();
        let parting: BTreeSet<DeviceId> = self.mailboxes.parting.keys().copied().collect();
        let (this, week) = (self.this, self.mailboxes.week);
        let heads = self.devices.local_heads();
        let Some(it) = self.mailboxes.all.get_mut(mailbox.0) else {
            return;
        };
        let Some(connection) = it.connection else {
            return;
        };
        while let Some((id, topic, blob)) = it.puts.next_put(now) {
            it.command(MailCommand::Put {
                connection,
                id,
                topic,
                blob,
            });
        }
        // Inboxes are of a week that is known.
        if week == 0 {
            return;
        }
        let view = View {
            heads,
            this,
            away: &self.mailboxes.away,
            parting: &parting,
            week,
            caught_up: it.takes.is_caught_up(),
        };
        let range = it.puts.next_range(now, &view);
        let word = range.is_none()
            && !it.word_asked
            && it.puts.is_idle()
            && it.takes.is_caught_up()
            && it.puts.takes_word(now)
            && it.words.is_due(now);
        if word {
            it.word_asked = true;
            let (heads, lacks) = it.words.say(now, &self.devices.told_heads());
            self.ask_store(StoreAsk::Mail(MailAsk::Heads {
                mailbox,
                heads,
                lacks,
            }));
        } else if let Some((lane, from)) = range {
            self.ask_store(StoreAsk::Mail(MailAsk::Range {
                mailbox,
                lane,
                from,
            }));
        }
    }

    /// A mailbox, or the way to it, says something.
    pub(super) fn on_mail(&mut self, said: MailSaid) {
        let MailSaid {
            mailbox,
            event,
            permit,
        } = said;
        let now = self.mailboxes.now();
        let Some(it) = self.mailboxes.all.get_mut(mailbox.0) else {
            return;
        };
        if !matches!(event, MailEvent::Down { .. }) {
            it.heard = Some(clock::now());
        }
        match event {
            MailEvent::Up {
                connection,
                store,
                remote,
            } => {
                it.on_up(connection, store, remote);
                // Its address is closed to boxes.
                self.push_facts();
            }
            MailEvent::Down { why } => it.on_down(why),
            MailEvent::Stored { id } => {
                it.changed |= it.puts.stored(id);
            }
            MailEvent::Refused { id, refusal } => {
                let before = it.puts.refusal();
                let wait = it.puts.refused(id, refusal, now);
                if it.puts.take_lost_word() {
                    it.words.not_said();
                }
                if before != Some(refusal) {
                    log!("mailbox {}: {refusal}; again in {wait:?}", it.name());
                }
            }
            MailEvent::Blob { topic, index, blob } => {
                // Each comes with one.
                if let Some(permit) = permit {
                    self.ask_store(StoreAsk::Mail(MailAsk::Take {
                        mailbox,
                        topic,
                        index,
                        blob,
                        permit,
                    }));
                }
            }
            MailEvent::CaughtUp { topic, next } => {
                if it.takes.caught_up(topic, next) {
                    log!("mailbox {}: it went back behind what it had", it.name());
                    it.went_back = true;
                    it.puts.lost();
                    let orders = it.takes.again(topic);
                    it.order(orders);
                }
            }
        }
        self.pump_mailbox(mailbox);
    }

    /// The store answers.
    pub(super) fn on_mail_told(&mut self, tell: MailTell) {
        match tell {
            MailTell::Topics(topics, week) => self.on_mail_topics(topics, week),
            MailTell::Range {
                mailbox,
                lane,
                found,
            } => {
                if let Some(it) = self.mailboxes.all.get_mut(mailbox.0) {
                    match found {
                        Ok(found) => it.puts.ready(lane, found),
                        Err(why) => {
                            log!("mailbox: {}: {why}", lane.chain.doc);
                            // The next tick asks again.
                            return it.puts.not_ready(lane);
                        }
                    }
                }
                self.pump_mailbox(mailbox);
            }
            MailTell::Heads { mailbox, blob } => {
                if let Some(it) = self.mailboxes.all.get_mut(mailbox.0) {
                    it.word_asked = false;
                    match blob {
                        Ok(Some((topic, blob))) if it.connection.is_some() => {
                            it.puts.push_word(topic, blob);
                        }
                        Ok(_) => {}
                        Err(why) => {
                            log!("mailbox: {why}");
                            it.words.not_said();
                        }
                    }
                }
                self.pump_mailbox(mailbox);
            }
            MailTell::Took {
                mailbox,
                topic,
                index,
                took,
            } => self.on_took(mailbox, topic, index, took),
        }
    }

    fn on_mail_topics(&mut self, topics: Vec<TopicId>, week: u64) {
        self.mailboxes.topics_asked = false;
        self.mailboxes.topics_at = Some(Instant::now());
        self.mailboxes.week = week;
        self.mailboxes.parting.retain(|_, until| *until >= week);
        for it in &mut self.mailboxes.all {
            let orders = it.takes.want(topics.clone(), it.connection.is_some());
            it.order(orders);
        }
        self.mailboxes.topics = topics;
        for at in 0..self.mailboxes.all.len() {
            self.pump_mailbox(Mailbox(at));
        }
    }

    fn on_took(&mut self, mailbox: Mailbox, topic: TopicId, index: u64, took: Took) {
        let now = self.mailboxes.now();
        let heads = self.devices.local_heads();
        let Some(it) = self.mailboxes.all.get_mut(mailbox.0) else {
            return;
        };
        it.changed = true;
        let mut entries = Vec::new();
        match took {
            Took::Envelope {
                chain,
                upto,
                inbox,
                opened,
                aside,
            } => {
                it.takes.took(topic, index);
                if !inbox {
                    it.puts.there(chain, upto);
                }
                if let Some(why) = aside {
                    it.words.fault(chain);
                    log!(
                        "mailbox {}: {upto} of {} set aside: {why}",
                        it.name(),
                        chain.doc
                    );
                }
                entries = opened;
            }
            Took::Heads(word) => {
                it.takes.took(topic, index);
                let members = self.devices.members();
                let writes = |device: &DeviceId| members.get(device).is_some();
                let clock = clock::now();
                for (chain, have) in it.words.heard(&word, heads, writes, (now, clock)) {
                    it.puts.lacks(word.signer, chain, have);
                }
                self.devices.note_heard(word.signer, word.made, clock);
            }
            Took::Wait(why, seq) => it.takes.wait(topic, index, why, seq),
            Took::Bad(chain, why) => {
                it.takes.took(topic, index);
                it.bad = it.bad.saturating_add(1);
                if let Some(chain) = chain {
                    it.words.fault(chain);
                }
                log!("mailbox {}: a blob is good for nothing: {why}", it.name());
            }
        }
        if !entries.is_empty() {
            self.on_opened(entries);
        }
    }

    /// Chains are here further than before.
    pub(super) fn on_heads(&mut self, heads: Vec<Head>) {
        self.mailboxes.heads(&heads, self.this);
        self.devices.heads(heads);
        self.ask_topics();
        for at in 0..self.mailboxes.all.len() {
            if let Some(it) = self.mailboxes.all.get_mut(at) {
                let orders = it.takes.heads(self.devices.local_heads());
                it.order(orders);
            }
            self.pump_mailbox(Mailbox(at));
        }
    }

    /// The members are others than before.
    pub(super) fn mail_members(&mut self, before: &Members) {
        let members = self.devices.members();
        let week = bailey_docs_store::week_of(clock::now().0);
        let left = before.iter().map(|(id, _)| *id);
        let left = left.filter(|id| members.get(id).is_none() && *id != self.this);
        self.mailboxes.parting.extend(left.map(|id| (id, week)));
        self.mailboxes.topics_at = None;
        for it in &mut self.mailboxes.all {
            let orders = it.takes.members();
            it.order(orders);
        }
    }
}

/// From a mailbox's task to the loop: so many blobs at once and no more.
async fn hand_on(
    mut events: mpsc::Receiver<MailEvent>,
    to: mpsc::Sender<NodeEvent>,
    mailbox: Mailbox,
) {
    let taking = Arc::new(Semaphore::new(TAKING));
    while let Some(event) = events.recv().await {
        let permit = match &event {
            MailEvent::Blob { .. } => Arc::clone(&taking).acquire_owned().await.ok(),
            _ => None,
        };
        let said = MailSaid {
            mailbox,
            event,
            permit,
        };
        if to.send(NodeEvent::Mail(said)).await.is_err() {
            return;
        }
    }
}
