//! What devices say of the time and of one another's chains.
//!
//! While a peer is there to hear it, a node says in its own document, signed as all of
//! it is, which chains grew here and how far: when a peer comes, and every five minutes.
//! So it is known of a device when it was heard, what it wrote that did not come, and
//! what it shows to one device and not to another.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bailey_docs_store::{ChainId, DocId, Fork, Head, HowMisused, Misuse, Urgency};
use bailey_model::{
    BoxId, DeviceId, EntryRef, Event, HeadsSeen, Notice, NoticeId, Rule, SeenDoc, SeenHead,
    Timestamp,
};

use super::store::Tag;
use super::{Node, clock};
use crate::log::log;
use crate::rows::{self, GapRow};

/// Between two words of a node about its chains.
const EVERY: Duration = Duration::from_secs(5 * 60);
/// Soonest after the one before, when a peer comes.
const SOONEST: Duration = Duration::from_secs(30);
/// Chains kept of which one device saw more than is here. Each has room of its own, so
/// that what one makes up is in the way of no other's word.
const MAX_AHEAD: usize = 1024;
/// Devices whose words are kept.
const MAX_SAYING: usize = 64;
/// Chains of which a person is told by a notice, by one device's word, in one start.
const MAX_TOLD: usize = 8;
/// What is said of a chain and is not here yet may be under way for so long.
const UNDER_WAY: Duration = Duration::from_secs(5);
/// So long after it has handed over all that it shows, a device has shown it all.
const SHOWN: Duration = Duration::from_secs(5);
/// What was said longer ago, in milliseconds, is not looked for any more.
const OLD_MS: u64 = 7 * 24 * 3600 * 1000;
/// A clock that is ahead by less, in milliseconds, is not spoken of.
const AHEAD_MS: u64 = 10 * 60 * 1000;
/// Gaps told of one device, the first of each word first.
const MAX_GAPS: usize = MAX_SAYING;

/// What the clock of each device says at least: the time of an entry of its own, and
/// how long ago by this process's steady clock that was heard. It is never ahead of
/// that device's clock, whatever this one's says.
#[derive(Debug, Default)]
pub(super) struct Clocks(BTreeMap<DeviceId, (Timestamp, Instant)>);

impl Clocks {
    /// An entry of a device was heard.
    pub(super) fn note(&mut self, device: DeviceId, at: Timestamp, heard: Instant) {
        let before = self.at(device, heard);
        if before.is_none_or(|before| before < at) {
            self.0.insert(device, (at, heard));
        }
    }

    pub(super) fn at(&self, device: DeviceId, now: Instant) -> Option<Timestamp> {
        let (at, heard) = self.0.get(&device)?;
        let since = now.saturating_duration_since(*heard).as_millis();
        let since = u64::try_from(since).unwrap_or(u64::MAX);
        Some(Timestamp(at.0.saturating_add(since)))
    }
}

/// What was said of chains, and by whom.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// How far this device said that it has each, or had at its start.
    own: BTreeMap<ChainId, u64>,
    last: Option<Instant>,
    /// A peer came since.
    due: bool,
    /// What each device says that it has of a chain and is not here. It is that device's
    /// word and nobody else's.
    ahead: BTreeMap<DeviceId, BTreeMap<ChainId, Ahead>>,
    /// Since when a peer has handed over all that it shows.
    shown: BTreeMap<DeviceId, Instant>,
    /// Chains of which a person was told that they are kept back, this start, and by
    /// whose word.
    told: BTreeMap<DeviceId, BTreeSet<ChainId>>,
}

/// The farthest that a device says that it saw of a chain.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ahead {
    seq: u64,
    /// When, by its clock.
    at: Timestamp,
    heard: Instant,
}

/// What is not here of a chain, by a device's word.
#[derive(Debug, Clone, Copy)]
pub(super) struct Missing {
    chain: ChainId,
    have: u64,
    by: DeviceId,
    ahead: Ahead,
}

impl Said {
    /// How far chains are at the start: what grew before was said before.
    pub(super) fn begin(&mut self, heads: &[Head]) {
        self.own = heads.iter().map(|head| (head.chain, head.seq)).collect();
    }

    /// Nothing is to be said of these chains, unless they grow.
    pub(super) fn is_said(&mut self, heads: &[Head]) {
        for head in heads {
            let said = self.own.entry(head.chain).or_insert(head.seq);
            *said = head.seq.max(*said);
        }
    }

    pub(super) fn up(&mut self, peer: DeviceId) {
        self.due = true;
        self.shown.remove(&peer);
    }

    pub(super) fn down(&mut self, peer: DeviceId) {
        self.shown.remove(&peer);
    }

    pub(super) fn caught_up(&mut self, peer: DeviceId, now: Instant) {
        self.shown.insert(peer, now);
    }

    /// Whether something is to be said now.
    fn is_due(&self, now: Instant) -> bool {
        self.last.is_none_or(|last| {
            let since = now.saturating_duration_since(last);
            since >= EVERY || (self.due && since >= SOONEST)
        })
    }

    /// What grew, at most as much as one entry has room for.
    fn grown(&mut self, heads: &BTreeMap<ChainId, Head>, now: Instant) -> HeadsSeen {
        let own = &mut self.own;
        let grew = |head: &&Head| own.get(&head.chain).is_none_or(|said| *said < head.seq);
        let grown = heads.values().filter(grew).filter_map(seen_of);
        let heads: Vec<SeenHead> = grown.take(HeadsSeen::MAX).collect();
        for head in &heads {
            own.insert(chain_of(head), head.seq);
        }
        (self.last, self.due) = (Some(now), false);
        HeadsSeen { heads }
    }

    /// A device said what it has; `have` says how far a chain is here.
    fn note(
        &mut self,
        (by, at): (DeviceId, Timestamp),
        seen: &HeadsSeen,
        have: &BTreeMap<ChainId, Head>,
        heard: Instant,
    ) {
        if self.ahead.len() >= MAX_SAYING && !self.ahead.contains_key(&by) {
            return;
        }
        let here = |chain: &ChainId| have.get(chain).map_or(0, |head| head.seq);
        let of = self.ahead.entry(by).or_default();
        for head in &seen.heads {
            let (chain, seq) = (chain_of(head), head.seq);
            let known = of.get(&chain).map_or(0, |ahead| ahead.seq);
            if seq <= here(&chain).max(known) {
                continue;
            }
            if of.len() >= MAX_AHEAD {
                of.retain(|chain, ahead| ahead.seq > here(chain));
            }
            if of.len() < MAX_AHEAD || of.contains_key(&chain) {
                of.insert(chain, Ahead { seq, at, heard });
            }
        }
        if of.is_empty() {
            self.ahead.remove(&by);
        }
    }

    /// The members are others than before: nobody else's word counts.
    pub(super) fn keep(&mut self, is_member: impl Fn(&DeviceId) -> bool) {
        self.ahead.retain(|by, _| is_member(by));
    }

    /// What is not here of a device's chains although another says that it saw it, for a
    /// while; the first by each word first. Who says so and is there can hand it over:
    /// its word alone is not believed.
    pub(super) fn missing(
        &self,
        writer: DeviceId,
        have: &BTreeMap<ChainId, Head>,
        is_up: impl Fn(DeviceId) -> bool,
        (wall, now): (Timestamp, Instant),
    ) -> Vec<Missing> {
        let mut missing = Vec::new();
        for (by, of) in &self.ahead {
            if *by != writer && is_up(*by) {
                continue;
            }
            let late = of.iter().filter(|(chain, ahead)| {
                let old = ahead.at.0.saturating_add(OLD_MS) < wall.0;
                let while_now = now.saturating_duration_since(ahead.heard) >= UNDER_WAY;
                chain.writer == writer && !old && while_now
            });
            let here = |chain: &ChainId| have.get(chain).map_or(0, |head| head.seq);
            let late = late.map(|(chain, ahead)| Missing {
                chain: *chain,
                have: here(chain),
                by: *by,
                ahead: *ahead,
            });
            let late = late.filter(|it| it.ahead.seq > it.have);
            missing.extend(late.enumerate());
        }
        missing.sort_by_key(|(at, _)| *at);
        missing.into_iter().map(|(_, it)| it).collect()
    }

    /// Whether a person is to be told of a gap now.
    fn tells(&mut self, missing: &Missing) -> bool {
        let told = self.told.entry(missing.by).or_default();
        told.len() < MAX_TOLD && told.insert(missing.chain)
    }

    /// Whether a peer has shown all that it has.
    fn has_shown(&self, peer: DeviceId, now: Instant) -> bool {
        let since = self.shown.get(&peer);
        since.is_some_and(|since| now.saturating_duration_since(*since) >= SHOWN)
    }
}

impl Node {
    /// Says how far chains are here, if somebody is there to hear it.
    pub(super) fn say_heads(&mut self, now: Instant) {
        let silent = self.account.is_none() || self.is_removed() || self.leaving;
        if silent || !self.devices.any_up() || !self.devices.said.is_due(now) {
            return;
        }
        let (said, heads) = self.devices.said_and_heads();
        let seen = said.grown(heads, now);
        let event = Event::HeadsSeen(seen);
        self.append(DocId::Node, event, Urgency::Prompt, Tag::None);
    }

    /// A device says how far chains are there.
    pub(super) fn on_heads_seen(&mut self, by: DeviceId, at: Timestamp, seen: &HeadsSeen) {
        if !self.devices.is_member(by) {
            return;
        }
        let (said, heads) = self.devices.said_and_heads();
        said.note((by, at), seen, heads, Instant::now());
    }

    /// What is not here of what a device wrote.
    pub(super) fn gaps_of(&self, device: DeviceId) -> Vec<GapRow> {
        let now = Instant::now();
        let shown = self.devices.said.has_shown(device, now);
        let missing = self.devices.missing(device, (clock::now(), now));
        let row = |it: &Missing| GapRow {
            doc: it.chain.doc.to_string(),
            incarnation: it.chain.incarnation.to_string(),
            have: it.have,
            seen: it.ahead.seq,
            by: self.fold.device_name(it.by),
            at: it.ahead.at.to_string(),
            shown,
        };
        missing.iter().take(MAX_GAPS).map(row).collect()
    }

    /// By how many seconds a device's clock is surely ahead of this one's, if that is more
    /// than people and machines put up with.
    pub(super) fn clock_ahead(&self, device: DeviceId) -> Option<u64> {
        let at = self.devices.time_at(device, Instant::now())?;
        let ahead = at.0.saturating_sub(clock::now().0);
        (device != self.this && ahead >= AHEAD_MS).then_some(ahead / 1000)
    }

    /// A device that is there and has shown all that it will shows less of what it
    /// wrote than somebody saw of it.
    pub(super) fn look_for_withheld(&mut self, now: Instant) {
        let peers: Vec<DeviceId> = self.devices.up_now().collect();
        let mut kept_back = Vec::new();
        for peer in peers {
            if !self.devices.is_member(peer) || !self.devices.said.has_shown(peer, now) {
                continue;
            }
            kept_back.extend(self.devices.missing(peer, (clock::now(), now)));
        }
        for it in kept_back {
            if !self.devices.said.tells(&it) {
                continue;
            }
            let text = format!(
                "{} saw {} envelopes of {}, {} shows {}",
                self.fold.device_name(it.by),
                it.ahead.seq,
                it.chain.doc,
                self.named(it.chain.writer),
                it.have,
            );
            self.raise_about(Rule::HeadWithheld, it.chain.writer, text);
        }
    }

    /// A device signed two envelopes with one number. Both are kept, and told of; of
    /// one that did so often that no more are kept, enough was told.
    pub(super) fn on_two_of_one(&mut self, fork: &Fork) {
        if !fork.kept {
            let writer = rows::short(&fork.chain.writer);
            return log!(
                "{writer} signed two envelopes of {} once more",
                fork.chain.doc
            );
        }
        let text = format!(
            "{} signed two envelopes with the number {} ({}): {} and {}; both are kept as proof",
            self.named(fork.chain.writer),
            fork.seq,
            fork.chain.doc,
            fork.ours,
            fork.theirs
        );
        self.raise_about(Rule::TwoOfOneNumber, fork.chain.writer, text);
    }

    /// Devices used keys as no honest one does.
    pub(super) fn on_misused(&mut self, misused: &[Misuse]) {
        for it in misused {
            let (device, doc, seq) = (self.named(it.chain.writer), it.chain.doc, it.seq);
            let text = match it.how {
                HowMisused::Replaced => format!(
                    "{device} sealed envelope {seq} of {doc} under a key that it had replaced: \
                     whoever was removed meanwhile may read it"
                ),
                HowMisused::Number => format!(
                    "{device} sealed envelope {seq} of {doc} under another key than it names"
                ),
                HowMisused::Nonce => format!(
                    "{device} sealed envelope {seq} of {doc} under a key and nonce that it had \
                     used: part of both may be read without the key"
                ),
            };
            self.raise_about(Rule::KeyMisused, it.chain.writer, text);
        }
    }

    /// A device by its name and the first digits of its id.
    pub(super) fn named(&self, device: DeviceId) -> String {
        let (name, id) = (self.fold.device_name(device), rows::short(&device));
        format!("{name} ({id})")
    }

    /// Raises a notice about a device, unless this one has raised the same before.
    pub(super) fn raise_about(&mut self, rule: Rule, device: DeviceId, text: String) {
        let raised = |(writer, _, notice): &(DeviceId, Timestamp, Notice)| {
            *writer == self.this && notice.rule == rule && notice.text == text
        };
        if self.fold.notices().any(raised) {
            return;
        }
        log!("{text}");
        let id = match clock::random() {
            Ok(id) => NoticeId(id),
            Err(error) => return log!("entropy: {error}"),
        };
        let notice = Notice {
            id,
            rule,
            box_id: BoxId([0; 16]),
            box_name: String::new(),
            incarnation: self.incarnation,
            // No entry: the device itself.
            evidence: vec![EntryRef {
                writer: device,
                box_id: BoxId([0; 16]),
                no: 0,
            }],
            text,
        };
        let notice = Event::Notice(notice);
        self.append(DocId::Notices, notice, Urgency::Urgent, Tag::None);
    }
}

/// How far a chain is, if it is one that others may have.
fn seen_of(head: &Head) -> Option<SeenHead> {
    let doc = match head.chain.doc {
        DocId::Account => SeenDoc::Account,
        DocId::Keys => SeenDoc::Keys,
        DocId::Node => SeenDoc::Node,
        DocId::Notices => SeenDoc::Notices,
        DocId::Requests => SeenDoc::Requests,
        DocId::Days => SeenDoc::Days,
        DocId::Box(box_id) => SeenDoc::Box(box_id),
        DocId::Here(_) | DocId::HereNotices => return None,
    };
    Some(SeenHead {
        writer: head.chain.writer,
        incarnation: head.chain.incarnation,
        doc,
        seq: head.seq,
        hash: head.hash.0,
    })
}

fn chain_of(seen: &SeenHead) -> ChainId {
    let doc = match seen.doc {
        SeenDoc::Account => DocId::Account,
        SeenDoc::Keys => DocId::Keys,
        SeenDoc::Node => DocId::Node,
        SeenDoc::Notices => DocId::Notices,
        SeenDoc::Requests => DocId::Requests,
        SeenDoc::Days => DocId::Days,
        SeenDoc::Box(box_id) => DocId::Box(box_id),
    };
    ChainId {
        doc,
        writer: seen.writer,
        incarnation: seen.incarnation,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_clock_of_another_device_is_never_taken_to_be_ahead_of_it() {
        let device = DeviceId([1; 32]);
        let begun = Instant::now();
        let after = |ms| begun + Duration::from_millis(ms);
        let mut clocks = Clocks::default();
        assert_eq!(clocks.at(device, begun), None);
        clocks.note(device, Timestamp(1000), begun);
        assert_eq!(clocks.at(device, after(500)), Some(Timestamp(1500)));
        // What was long under way says nothing new.
        clocks.note(device, Timestamp(1200), after(500));
        assert_eq!(clocks.at(device, after(500)), Some(Timestamp(1500)));
        // What came faster than all before does.
        clocks.note(device, Timestamp(1900), after(600));
        assert_eq!(clocks.at(device, after(700)), Some(Timestamp(2000)));
    }

    fn head(doc: DocId, seq: u64) -> Head {
        let chain = ChainId {
            doc,
            writer: DeviceId([1; 32]),
            incarnation: bailey_model::Incarnation([2; 16]),
        };
        let hash = bailey_docs_store::Hash([3; 32]);
        Head { chain, seq, hash }
    }

    fn heads(all: &[Head]) -> BTreeMap<ChainId, Head> {
        all.iter().map(|head| (head.chain, *head)).collect()
    }

    #[test]
    fn what_grew_is_said_once_and_what_stays_here_never() {
        let now = Instant::now();
        let boxed = |id: u8, seq| head(DocId::Box(BoxId([id; 16])), seq);
        let mut said = Said::default();
        said.begin(&[boxed(1, 4)]);
        let all = [
            boxed(1, 5),
            boxed(2, 1),
            head(DocId::Here(BoxId([3; 16])), 9),
        ];
        assert!(said.is_due(now));
        let first = said.grown(&heads(&all), now);
        let chains: Vec<_> = first
            .heads
            .iter()
            .map(|it| (chain_of(it), it.seq))
            .collect();
        assert_eq!(chains, [(all[0].chain, 5), (all[1].chain, 1)]);
        assert!(said.grown(&heads(&all), now).heads.is_empty());
        // Many at once are said one entry after the other.
        let many: Vec<Head> = (0..=128).map(|id| boxed(id, 7)).collect();
        assert_eq!(said.grown(&heads(&many), now).heads.len(), HeadsSeen::MAX);
        assert_eq!(said.grown(&heads(&many), now).heads.len(), 1);
        // A peer that comes and goes hears it no more often than that.
        said.up(DeviceId([9; 32]));
        assert!(!said.is_due(now + SOONEST / 2));
        assert!(said.is_due(now + SOONEST));
        let mut quiet = Said {
            last: Some(now),
            ..Said::default()
        };
        quiet.down(DeviceId([9; 32]));
        assert!(!quiet.is_due(now + SOONEST) && quiet.is_due(now + EVERY));
    }

    #[test]
    fn what_somebody_saw_is_missing_until_it_comes_or_is_long_ago() {
        let (now, wall) = (Instant::now(), Timestamp(OLD_MS * 2));
        let (node, other) = (head(DocId::Node, 120), DeviceId([5; 32]));
        let seen = HeadsSeen {
            heads: vec![seen_of(&node).unwrap()],
        };
        let have = |seq| heads(&[Head { seq, ..node }]);
        let mut said = Said::default();
        said.note((other, wall), &seen, &have(90), now);
        let missing = |said: &Said, seq, at: Instant, wall| {
            let found = said.missing(node.chain.writer, &have(seq), |_| false, (wall, at));
            let found = found.first();
            found.map(|it| (it.have, it.ahead.seq, it.by))
        };
        let later = now + UNDER_WAY;
        assert_eq!(missing(&said, 90, now, wall), None, "it may be under way");
        assert_eq!(missing(&said, 90, later, wall), Some((90, 120, other)));
        assert_eq!(missing(&said, 119, later, wall), Some((119, 120, other)));
        assert_eq!(missing(&said, 120, later, wall), None);
        let old = Timestamp(wall.0 + OLD_MS + 1);
        assert_eq!(missing(&said, 90, later, old), None);
        // What is here is nothing to remember.
        let mut none = Said::default();
        none.note((other, wall), &seen, &have(120), now);
        assert!(none.ahead.is_empty());
    }

    fn boxes(count: u16) -> Vec<HeadsSeen> {
        let boxed = |id: u16| {
            let mut bytes = [0; 16];
            bytes[..2].copy_from_slice(&id.to_le_bytes());
            head(DocId::Box(BoxId(bytes)), u64::MAX >> 2)
        };
        let all: Vec<SeenHead> = (0..count).filter_map(|id| seen_of(&boxed(id))).collect();
        let chunks = all.chunks(HeadsSeen::MAX);
        chunks.map(|it| HeadsSeen { heads: it.to_vec() }).collect()
    }

    #[test]
    fn what_one_device_makes_up_hides_no_word_of_another_and_fills_its_own_room_alone() {
        let (now, wall) = (Instant::now(), Timestamp(OLD_MS * 2));
        let (liar, honest) = (DeviceId([5; 32]), DeviceId([6; 32]));
        let node = head(DocId::Node, 120);
        let have = heads(&[Head { seq: 90, ..node }]);
        let mut said = Said::default();
        let invented = Head {
            seq: 1 << 62,
            ..node
        };
        let seen = |head: &Head| HeadsSeen {
            heads: vec![seen_of(head).unwrap()],
        };
        said.note((liar, wall), &seen(&invented), &have, now);
        for seen in boxes(u16::MAX) {
            said.note((liar, wall), &seen, &have, now);
        }
        assert_eq!(said.ahead[&liar].len(), MAX_AHEAD);
        said.note((honest, wall), &seen(&node), &have, now);
        let later = now + UNDER_WAY;
        let found = said.missing(node.chain.writer, &have, |_| false, (wall, later));
        let of = |by| {
            found
                .iter()
                .find(|it| it.by == by && it.chain == node.chain)
        };
        assert_eq!(
            of(honest).map(|it| (it.have, it.ahead.seq)),
            Some((90, 120))
        );
        assert!(of(liar).is_some());
        // Both are among the first, and a person is told of the honest word however many
        // notices the other's make.
        let shown: Vec<DeviceId> = found.iter().take(2).map(|it| it.by).collect();
        assert!(shown.contains(&honest), "{shown:?}");
        let told = found.iter().filter(|it| said.tells(it));
        let told: Vec<DeviceId> = told.map(|it| it.by).collect();
        assert_eq!(told.len(), MAX_TOLD + 1);
        assert!(told.contains(&honest));
        // Whose word it is no more, it counts no more.
        said.keep(|device| *device == honest);
        assert_eq!(
            said.missing(node.chain.writer, &have, |_| false, (wall, later))
                .len(),
            1
        );
    }

    #[test]
    fn who_is_there_and_hands_over_less_than_it_says_is_not_believed() {
        let (now, wall) = (Instant::now(), Timestamp(OLD_MS * 2));
        let (node, other) = (head(DocId::Node, 120), DeviceId([5; 32]));
        let writer = node.chain.writer;
        let have = heads(&[Head { seq: 90, ..node }]);
        let seen = HeadsSeen {
            heads: vec![seen_of(&node).unwrap()],
        };
        let mut said = Said::default();
        said.note((other, wall), &seen, &have, now);
        let later = now + UNDER_WAY;
        let missing = |said: &Said, up: &[DeviceId]| {
            let found = said.missing(writer, &have, |it| up.contains(&it), (wall, later));
            found.len()
        };
        assert_eq!(missing(&said, &[other]), 0);
        // The writer's own word is what it is asked for.
        said.note((writer, wall), &seen, &have, now);
        assert_eq!(missing(&said, &[other, writer]), 1);
        assert_eq!(missing(&said, &[writer]), 2);
    }
}
