//! A mailbox that holds what devices put there: an honest one, or one that does with
//! it what it likes.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bailey_envelope::TopicId;
use bailey_session::mail::{MailServer, MailServerEvent};

use super::dice::Dice;
use super::secrets::Secrets;

/// How it treats what it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    Honest,
    /// It does not hand out all.
    Withholds,
    /// It hands old ones out anew.
    Replays,
    /// It changes their order.
    Reorders,
    /// It changes a bit.
    Flips,
    /// It hands out those of other topics.
    Confuses,
    /// It loses all, now and then.
    Forgets,
}

const WICKED: [Mood; 6] = [
    Mood::Withholds,
    Mood::Replays,
    Mood::Reorders,
    Mood::Flips,
    Mood::Confuses,
    Mood::Forgets,
];

#[derive(Debug)]
struct MailLine {
    server: MailServer,
    coming: VecDeque<(Duration, Vec<u8>)>,
    follows: Vec<TopicId>,
    closed: bool,
}

#[derive(Debug)]
pub(super) struct Mailbox {
    pub(super) mood: Mood,
    name: [u8; 16],
    dice: Dice,
    /// Blobs by topic, each with its index.
    topics: BTreeMap<TopicId, Vec<(u64, Vec<u8>)>>,
    lines: BTreeMap<usize, MailLine>,
    /// It is gone, with every connection, and comes back without what it held.
    forgot: bool,
}

impl Mailbox {
    pub(super) fn new(dice: &mut Dice) -> Self {
        let mut dice = Dice::new(dice.roll());
        let mood = match dice.one_in(2) {
            true => Mood::Honest,
            false => dice.pick(&WICKED),
        };
        Self {
            mood,
            name: dice.bytes(),
            dice,
            topics: BTreeMap::new(),
            lines: BTreeMap::new(),
            forgot: false,
        }
    }

    pub(super) fn accept(&mut self, device: usize, now: Duration) {
        let line = MailLine {
            server: MailServer::new(self.name, now),
            coming: VecDeque::new(),
            follows: Vec::new(),
            closed: false,
        };
        self.lines.insert(device, line);
    }

    pub(super) fn hang_up(&mut self, device: usize) {
        self.lines.remove(&device);
    }

    pub(super) fn arrive(&mut self, device: usize, at: Duration, piece: Vec<u8>) {
        if let Some(line) = self.lines.get_mut(&device) {
            let last = line.coming.back().map_or(Duration::ZERO, |(at, _)| *at);
            line.coming.push_back((at.max(last), piece));
        }
    }

    pub(super) fn due(&self) -> Option<Duration> {
        let lines = self.lines.values().flat_map(|line| {
            let coming = line.coming.front().map(|(at, _)| *at);
            coming.into_iter().chain(line.server.poll_timeout())
        });
        lines.min()
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.lines.values().all(|line| line.coming.is_empty())
    }

    /// Everything that it holds, looked through.
    pub(super) fn look(&self, secrets: &Secrets) -> Result<(), String> {
        let mut blobs = self.topics.values().flatten();
        blobs.try_for_each(|(_, blob)| secrets.look(blob, "what a mailbox holds"))
    }

    /// How many blobs it holds.
    pub(super) fn blobs(&self) -> usize {
        self.topics.values().map(Vec::len).sum()
    }

    /// Everything that is due; the frames that it sends.
    pub(super) fn work(&mut self, now: Duration) -> Vec<(usize, Vec<u8>)> {
        let devices: Vec<usize> = self.lines.keys().copied().collect();
        for device in &devices {
            self.hear(*device, now);
            self.answer(*device);
        }
        let mut frames = Vec::new();
        for device in devices {
            while let Some(line) = self.lines.get_mut(&device) {
                let Some(frame) = line.server.poll_transmit(now) else {
                    break;
                };
                frames.push((device, frame));
                self.answer(device);
            }
        }
        frames
    }

    /// Connections that are over.
    pub(super) fn take_closed(&mut self) -> Vec<usize> {
        let forgot = std::mem::take(&mut self.forgot);
        let closed = self.lines.iter().filter(|(_, line)| forgot || line.closed);
        closed.map(|(device, _)| *device).collect()
    }

    fn hear(&mut self, device: usize, now: Duration) {
        let Some(line) = self.lines.get_mut(&device) else {
            return;
        };
        while line.coming.front().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, piece)) = line.coming.pop_front() {
                line.server.handle_bytes(now, &piece);
            }
        }
        if line.server.poll_timeout().is_some_and(|at| at <= now) {
            line.server.handle_timeout(now);
        }
    }

    fn answer(&mut self, device: usize) {
        while let Some(line) = self.lines.get_mut(&device) {
            let Some(event) = line.server.poll_event() else {
                break;
            };
            match event {
                MailServerEvent::Put { put, topic, blob } => {
                    let index = self.keep(topic, blob);
                    if let Some(line) = self.lines.get_mut(&device) {
                        line.server.handle_stored(put, topic, index);
                    }
                    self.tell(topic);
                }
                MailServerEvent::Follow { topic } => {
                    line.follows.push(topic);
                    let end = end(self.topics.get(&topic));
                    line.server.handle_grown(topic, end);
                }
                MailServerEvent::Unfollow { topic } => line.follows.retain(|it| *it != topic),
                MailServerEvent::Read { topic, from } => {
                    let found = self.find(topic, from);
                    if let Some(line) = self.lines.get_mut(&device) {
                        line.server.handle_read(topic, found);
                    }
                }
                MailServerEvent::Closed(_) => line.closed = true,
            }
        }
    }

    fn tell(&mut self, topic: TopicId) {
        let end = end(self.topics.get(&topic));
        for line in self.lines.values_mut() {
            if line.follows.contains(&topic) {
                line.server.handle_grown(topic, end);
            }
        }
    }

    fn keep(&mut self, topic: TopicId, blob: Vec<u8>) -> u64 {
        let acts = self.dice.one_in(4);
        if acts && self.mood == Mood::Forgets {
            self.topics.clear();
            self.name = self.dice.bytes();
            self.forgot = true;
        }
        let of = self.topics.entry(topic).or_default();
        if let Some((index, _)) = of.iter().find(|(_, there)| *there == blob) {
            return *index;
        }
        let mut more = vec![blob];
        let last = of.len().checked_sub(1);
        match (self.mood, last) {
            (Mood::Replays, Some(_)) if acts => more.push(of[self.dice.index(of.len())].1.clone()),
            (Mood::Reorders, Some(last)) if acts => std::mem::swap(&mut more[0], &mut of[last].1),
            _ => {}
        }
        let index = end(Some(of));
        of.extend((index..).zip(more));
        index
    }

    /// The first blob of a topic from an index on, or what it gives for one.
    fn find(&mut self, topic: TopicId, from: u64) -> Option<(u64, Vec<u8>)> {
        let acts = self.dice.one_in(3);
        let skips = u64::from(acts && self.mood == Mood::Withholds);
        let of = self.topics.get(&topic)?;
        let found = of.iter().find(|(index, _)| *index >= from + skips)?;
        let (index, mut blob) = found.clone();
        if acts && self.mood == Mood::Flips {
            let byte = self.dice.index(blob.len());
            blob[byte] ^= 1 << self.dice.below(8);
        }
        if acts && self.mood == Mood::Confuses {
            let all: Vec<&Vec<u8>> = self.topics.values().flatten().map(|(_, it)| it).collect();
            blob = all[self.dice.index(all.len())].clone();
        }
        Some((index, blob))
    }
}

/// What the next blob gets.
fn end(of: Option<&Vec<(u64, Vec<u8>)>>) -> u64 {
    of.and_then(|of| of.last())
        .map_or(1, |(index, _)| index + 1)
}
