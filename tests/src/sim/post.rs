//! A device's end of a mailbox: what it writes goes into an inbox of each other
//! member, and it reads its own.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bailey_docs_store::{ChainId, DevicePublic, Store};
use bailey_envelope::{Inbox, MailKey, TopicId, peek, week_of};
use bailey_model::DeviceId;
use bailey_session::IngestFailure;
use bailey_session::mail::{MailClient, MailClientEvent};

use super::device::Device;

/// Weeks around this device's own that an inbox is looked for in: clocks are at most
/// a week off, each.
const WEEKS: u64 = 2;
/// Letters that wait for what they rest on.
const MAX_WAITING: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Post {
    client: Option<MailClient>,
    coming: VecDeque<(Duration, Vec<u8>)>,
    up: bool,
    closed: bool,
    /// The name of the store that it knows.
    store: Option<[u8; 16]>,
    /// Up to which number each of its chains was put for each other device.
    put: BTreeMap<(DeviceId, ChainId), u64>,
    /// The same, of what was answered.
    stored: BTreeMap<(DeviceId, ChainId), u64>,
    asked: BTreeMap<u64, (DeviceId, ChainId, u64)>,
    last_put: u64,
    /// By writer, reader and week.
    keys: BTreeMap<(DeviceId, DeviceId, u64), MailKey>,
    /// Inboxes that it follows: whose they are, and the next index.
    follows: BTreeMap<TopicId, ((DeviceId, DeviceId, u64), u64)>,
    waiting: Vec<(DeviceId, Vec<u8>)>,
    /// Whether there may be something new to put.
    pub(super) grown: bool,
}

impl Post {
    pub(super) fn is_connected(&self) -> bool {
        self.client.is_some()
    }

    pub(super) fn call(&mut self, now: Duration) {
        self.client = Some(MailClient::new(now));
        self.closed = false;
    }

    pub(super) fn hang_up(&mut self) {
        self.client = None;
        self.coming.clear();
        (self.up, self.closed) = (false, false);
        self.put = self.stored.clone();
        self.asked.clear();
    }

    pub(super) fn arrive(&mut self, at: Duration, pieces: [Vec<u8>; 2]) {
        for piece in pieces {
            let last = self.coming.back().map_or(Duration::ZERO, |(at, _)| *at);
            self.coming.push_back((at.max(last), piece));
        }
    }

    pub(super) fn due(&self) -> Option<Duration> {
        let timer = self.client.as_ref().and_then(MailClient::poll_timeout);
        let coming = self.coming.front().map(|(at, _)| *at);
        timer.into_iter().chain(coming).min()
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.coming.is_empty() && self.asked.is_empty()
    }

    pub(super) fn waits(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn take_closed(&mut self) -> bool {
        std::mem::take(&mut self.closed)
    }

    pub(super) fn take_frames(&mut self, now: Duration) -> Vec<Vec<u8>> {
        let Some(client) = &mut self.client else {
            return Vec::new();
        };
        std::iter::from_fn(|| client.poll_transmit(now)).collect()
    }

    /// What came of its mailbox: letters, each with who writes to that inbox.
    fn hear(&mut self, now: Duration) {
        let Some(client) = &mut self.client else {
            return;
        };
        while self.coming.front().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, piece)) = self.coming.pop_front() {
                client.handle_bytes(now, &piece);
            }
        }
        if client.poll_timeout().is_some_and(|at| at <= now) {
            client.handle_timeout(now);
        }
        while let Some(event) = client.poll_event() {
            match event {
                MailClientEvent::Up { store } => {
                    self.up = true;
                    self.grown = true;
                    if self.store.replace(store) != Some(store) {
                        // Nothing of what it had is there.
                        self.put.clear();
                        self.stored.clear();
                        self.follows.clear();
                    }
                    for (topic, (_, next)) in &self.follows {
                        client.follow(*topic, *next);
                    }
                }
                MailClientEvent::Stored { id } | MailClientEvent::Refused { id, .. } => {
                    self.grown = true;
                    if let Some((device, chain, seq)) = self.asked.remove(&id) {
                        self.stored.insert((device, chain), seq);
                    }
                }
                MailClientEvent::Blob { topic, index, blob } => {
                    let Some((inbox, next)) = self.follows.get_mut(&topic) else {
                        continue;
                    };
                    *next = index + 1;
                    let opened = self.keys.get(inbox).and_then(|key| key.open(&blob).ok());
                    if let Some(envelope) = opened
                        && self.waiting.len() < MAX_WAITING
                    {
                        self.waiting.push((inbox.0, envelope));
                    }
                }
                MailClientEvent::CaughtUp { .. } => {}
                MailClientEvent::Closed(_) => self.closed = true,
            }
        }
    }
}

impl Device {
    /// Takes what its inboxes had, as far as it rests on what is here.
    pub(super) fn read_post(&mut self, now: Duration) -> Result<(), String> {
        if !self.post.is_connected() {
            return Ok(());
        }
        self.post.hear(now);
        loop {
            let before = self.post.waiting.len();
            for (from, bytes) in std::mem::take(&mut self.post.waiting) {
                let Ok(header) = peek(&bytes) else { continue };
                let chain = header.fields.chain;
                match self.take(now, from, &chain, &bytes)? {
                    Ok(seq) => {
                        for line in self.lines.values_mut() {
                            line.session.handle_have(chain, seq);
                        }
                    }
                    Err(IngestFailure::Gap) => self.post.waiting.push((from, bytes)),
                    Err(IngestFailure::Permanent) => {}
                }
            }
            if self.post.waiting.len() == before || self.post.waiting.is_empty() {
                return Ok(());
            }
        }
    }

    /// Puts what it wrote, and follows its inboxes.
    pub(super) fn write_post(&mut self, now: Duration) -> Result<(), String> {
        if !self.post.up || !std::mem::take(&mut self.post.grown) {
            return Ok(());
        }
        let Some(store) = self.store.as_ref().filter(|store| store.is_synced()) else {
            self.post.grown = true;
            return Ok(());
        };
        let own = self.keys.id();
        let members = store.members().iter().filter(|(id, _)| **id != own);
        let members: Vec<DevicePublic> = members.map(|(_, member)| member.public).collect();
        let heads: Vec<_> = store
            .heads()
            .into_iter()
            .filter(|head| head.chain.writer == own)
            .collect();
        let week = week_of(self.clock(now).0);
        for member in members {
            let other = member.id();
            for week in week.saturating_sub(WEEKS)..=week + WEEKS {
                self.follow(&member, (other, own, week));
            }
            for head in &heads {
                self.put(&member, (own, other, week), head.chain, head.seq)?;
            }
        }
        Ok(())
    }

    fn follow(&mut self, member: &DevicePublic, inbox: (DeviceId, DeviceId, u64)) {
        let Some(topic) = self.mail_key(member, inbox).map(|key| key.topic()) else {
            return;
        };
        if let (false, Some(client)) = (
            self.post.follows.contains_key(&topic),
            &mut self.post.client,
        ) {
            client.follow(topic, 0);
            self.post.follows.insert(topic, (inbox, 0));
        }
    }

    fn put(
        &mut self,
        member: &DevicePublic,
        inbox: (DeviceId, DeviceId, u64),
        chain: ChainId,
        upto: u64,
    ) -> Result<(), String> {
        let other = member.id();
        let Some(key) = self.mail_key(member, inbox) else {
            return Ok(());
        };
        let put = self.post.put.entry((other, chain)).or_default();
        let Some(client) = &mut self.post.client else {
            return Ok(());
        };
        while *put < upto && client.room() > 0 {
            let next = self
                .store
                .as_ref()
                .map(|store: &Store| store.range(&chain, *put + 1, 1, usize::MAX));
            let next = next.transpose().map_err(|error| error.to_string())?;
            let Some(envelope) = next.and_then(|range| range.into_iter().next()) else {
                return Ok(());
            };
            *put += 1;
            // One that is too long for a blob goes by another way.
            let Ok(blob) = key.seal(&envelope) else {
                continue;
            };
            self.post.last_put += 1;
            let id = self.post.last_put;
            client.put(id, key.topic(), blob);
            self.post.asked.insert(id, (other, chain, *put));
        }
        Ok(())
    }

    fn mail_key(
        &mut self,
        member: &DevicePublic,
        inbox: (DeviceId, DeviceId, u64),
    ) -> Option<MailKey> {
        if let Some(key) = self.post.keys.get(&inbox) {
            return Some(key.clone());
        }
        let (from, to, week) = inbox;
        let account = self.account?;
        let key = MailKey::of_inbox(
            &self.keys,
            member,
            &Inbox {
                account,
                from,
                to,
                week,
            },
        );
        let key = key.ok()?;
        self.post.keys.insert(inbox, key.clone());
        Some(key)
    }
}
