//! What devices say of the time and of one another's chains.
//!
//! While a peer is there to hear it, a node says in its own document, signed as all of
//! it is, which chains grew here and how far: when a peer comes, and every five minutes.
//! So it is known of a device when it was heard, what it wrote that did not come, and
//! what it shows to one device and not to another.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bailey_docs_store::{ChainId, DocId, Fork, Head, Urgency};
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
/// Chains kept of which somebody saw more than is here.
const MAX_AHEAD: usize = 4096;
/// What is said of a chain and is not here yet may be under way for so long.
const UNDER_WAY: Duration = Duration::from_secs(5);
/// So long after it has handed over all that it shows, a device has shown it all.
const SHOWN: Duration = Duration::from_secs(5);
/// What was said longer ago, in milliseconds, is not looked for any more.
const OLD_MS: u64 = 7 * 24 * 3600 * 1000;
/// A clock that is ahead by less, in milliseconds, is not spoken of.
const AHEAD_MS: u64 = 10 * 60 * 1000;
/// Gaps told of one device.
const MAX_GAPS: usize = 16;

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
    /// What somebody has of a chain and is not here.
    ahead: BTreeMap<ChainId, Ahead>,
    /// Since when a peer has handed over all that it shows.
    shown: BTreeMap<DeviceId, Instant>,
    /// Chains of which a person was told that they are kept back, this start.
    told: BTreeSet<ChainId>,
}

/// The farthest that somebody saw of a chain.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ahead {
    seq: u64,
    by: DeviceId,
    /// When, by its clock.
    at: Timestamp,
    heard: Instant,
}

impl Said {
    /// How far chains are at the start: what grew before was said before.
    pub(super) fn begin(&mut self, heads: &[Head]) {
        self.own = heads.iter().map(|head| (head.chain, head.seq)).collect();
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
        let here = |chain: &ChainId| have.get(chain).map_or(0, |head| head.seq);
        for head in &seen.heads {
            let (chain, seq) = (chain_of(head), head.seq);
            let known = self.ahead.get(&chain).map_or(0, |ahead| ahead.seq);
            if seq <= here(&chain).max(known) {
                continue;
            }
            if self.ahead.len() >= MAX_AHEAD {
                self.ahead.retain(|chain, ahead| ahead.seq > here(chain));
            }
            if self.ahead.len() < MAX_AHEAD {
                let ahead = Ahead { seq, by, at, heard };
                self.ahead.insert(chain, ahead);
            }
        }
    }

    /// What is not here of a device's chains although somebody saw it, for a while.
    pub(super) fn missing(
        &self,
        writer: DeviceId,
        have: &BTreeMap<ChainId, Head>,
        (wall, now): (Timestamp, Instant),
    ) -> Vec<(ChainId, u64, Ahead)> {
        let of = self.ahead.iter().filter(|(chain, ahead)| {
            let old = ahead.at.0.saturating_add(OLD_MS) < wall.0;
            let while_now = now.saturating_duration_since(ahead.heard) >= UNDER_WAY;
            chain.writer == writer && !old && while_now
        });
        let here = |chain: &ChainId| have.get(chain).map_or(0, |head| head.seq);
        of.map(|(chain, ahead)| (*chain, here(chain), *ahead))
            .filter(|(_, here, ahead)| ahead.seq > *here)
            .collect()
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
        let (said, heads) = self.devices.said_and_heads();
        said.note((by, at), seen, heads, Instant::now());
    }

    /// What is not here of what a device wrote.
    pub(super) fn gaps_of(&self, device: DeviceId) -> Vec<GapRow> {
        let now = Instant::now();
        let shown = self.devices.said.has_shown(device, now);
        let missing = self.devices.missing(device, (clock::now(), now));
        let row = |(chain, have, ahead): &(ChainId, u64, Ahead)| GapRow {
            doc: chain.doc.to_string(),
            incarnation: chain.incarnation.to_string(),
            have: *have,
            seen: ahead.seq,
            by: self.fold.device_name(ahead.by),
            at: ahead.at.to_string(),
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
        for (chain, have, ahead) in kept_back {
            if !self.devices.said.told.insert(chain) {
                continue;
            }
            let by = self.fold.device_name(ahead.by);
            let text = format!(
                "{by} saw {} envelopes of {}, {} shows {have}",
                ahead.seq,
                chain.doc,
                self.named(chain.writer),
            );
            self.raise_about(Rule::HeadWithheld, chain.writer, text);
        }
    }

    /// A device signed two envelopes with one number. Both are kept.
    pub(super) fn on_two_of_one(&mut self, fork: &Fork) {
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
            let found = said.missing(node.chain.writer, &have(seq), (wall, at));
            let found = found.first();
            found.map(|(_, have, ahead)| (*have, ahead.seq, ahead.by))
        };
        let later = now + UNDER_WAY;
        assert_eq!(missing(&said, 90, now, wall), None, "it may be under way");
        assert_eq!(missing(&said, 90, later, wall), Some((90, 120, other)));
        assert_eq!(missing(&said, 119, later, wall), Some((119, 120, other)));
        assert_eq!(missing(&said, 120, later, wall), None);
        let old = Timestamp(wall.0 + OLD_MS + 1);
        assert_eq!(missing(&said, 90, later, old), None);
        // What is here is nothing to remember, however much is said.
        let mut full = Said::default();
        for id in 0..u16::MAX {
            let [a, b] = id.to_le_bytes();
            let mut bytes = [0; 16];
            (bytes[0], bytes[1]) = (a, b);
            let boxed = head(DocId::Box(BoxId(bytes)), 1);
            let seen = HeadsSeen {
                heads: vec![seen_of(&boxed).unwrap()],
            };
            full.note((other, wall), &seen, &heads(&[]), now);
        }
        assert_eq!(full.ahead.len(), MAX_AHEAD);
        said.note((other, wall), &seen, &have(120), now);
        assert_eq!(said.ahead.len(), 1);
    }
}
