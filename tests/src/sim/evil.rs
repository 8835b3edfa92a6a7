//! A member that keeps to no rule: what it makes with its own keys, and how it
//! spoils what it hands on.

use std::collections::BTreeMap;
use std::time::Duration;

use bailey_docs_store::forge::{self, ForgedAct};
use bailey_docs_store::{ChainId, DeviceKeys, DocId, Hash, Head, Role};
use bailey_envelope::{EpochKey, Fields, Kind, Sealed, peek, seal};
use bailey_model::{BoxId, DeviceId, Entry, Event, Gap, Incarnation, Timestamp};

use super::device::Device;
use super::dice::Dice;
use super::secrets::SECRET;

/// Hours of the window that its segments name.
const HOURS: u32 = 720;

/// What it makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Forgery {
    /// An envelope in its place, that opens and holds nothing.
    Garbage,
    /// One whose entries leave out numbers.
    Skip,
    /// The same entries again.
    Again,
    /// Two envelopes of one number, each shown to others.
    Fork,
    /// A record that it may not sign.
    Record,
}

/// What the others must come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expect {
    /// It is set aside, and shown.
    Aside,
    /// Somebody is told of both.
    Fork,
    /// Nothing: it has no effect.
    Nothing,
}

/// A record that must have no effect.
#[derive(Debug, Clone, Copy)]
pub(super) enum Effect {
    /// This device is no member.
    NoMember(DeviceId),
    /// This removal does not stand.
    NoRemoval(Hash),
    /// This device is not `full`.
    NotFull(DeviceId),
}

#[derive(Debug)]
pub(super) struct Forged {
    /// What devices of even and of odd number are shown.
    shown: [Vec<Sealed>; 2],
    pub(super) expect: Expect,
}

/// What makes a device evil.
#[derive(Debug, Default)]
pub(super) struct Evil {
    /// It hears of no change of the account.
    deaf: bool,
    /// It spoils what it hands on.
    doctors: bool,
    pub(super) forged: BTreeMap<ChainId, Forged>,
    /// What it knew of the account when it began.
    old: Vec<Hash>,
    /// Whether it was `full` then, or since.
    pub(super) was_full: bool,
}

impl Evil {
    /// It no longer hinders; what it made stays.
    pub(super) fn rest(&mut self) {
        self.doctors = false;
    }

    pub(super) fn spoils(&self) -> bool {
        self.doctors
    }

    pub(super) fn is_deaf_to(&self, chain: &ChainId) -> bool {
        self.deaf && chain.doc == DocId::Account
    }

    fn shown(&self, peer: usize, chain: &ChainId) -> Option<&Vec<Sealed>> {
        self.forged.get(chain).map(|forged| &forged.shown[peer % 2])
    }

    /// How far its forged chains go, as it tells a peer.
    pub(super) fn heads(&self, peer: usize) -> Vec<Head> {
        let heads = self.forged.keys().filter_map(|chain| {
            let shown = self.shown(peer, chain)?;
            let (seq, hash) = (shown.len() as u64, shown.last()?.hash);
            let chain = *chain;
            Some(Head { chain, seq, hash })
        });
        heads.collect()
    }

    /// Of a forged chain, what a peer is given.
    pub(super) fn range(&self, peer: usize, chain: &ChainId, from: u64) -> Option<Vec<Vec<u8>>> {
        let shown = self.shown(peer, chain)?;
        let skip = usize::try_from(from.saturating_sub(1)).unwrap_or(usize::MAX);
        let rest = shown.iter().skip(skip);
        Some(rest.map(|sealed| sealed.bytes.clone()).collect())
    }

    /// Spoils what it hands on of others.
    pub(super) fn doctor(&self, range: &mut Vec<Vec<u8>>, dice: &mut Dice) {
        if !self.doctors || range.is_empty() || !dice.one_in(2) {
            return;
        }
        let at = dice.index(range.len());
        match dice.below(5) {
            0 => drop(range.remove(at)),
            1 => range.insert(at, range[at].clone()),
            2 => range.swap(0, at),
            3 => {
                let byte = dice.index(range[at].len());
                range[at][byte] ^= 1 << dice.below(8);
            }
            _ => {
                let len = dice.index(range[at].len());
                range[at].truncate(len);
            }
        }
    }
}

impl Device {
    /// It keeps to no rule from here on.
    pub(super) fn turn_evil(&mut self) {
        let heads = self.heads().into_values();
        let account = heads.filter(|head| head.chain.doc == DocId::Account);
        self.evil = Some(Evil {
            deaf: self.dice.one_in(3),
            doctors: self.dice.one_in(2),
            forged: BTreeMap::new(),
            old: account.map(|head| head.hash).collect(),
            was_full: self.store.is_none() || self.member(self.id()) == Some(Role::Full),
        });
    }

    /// Makes something; what of it must have no effect. `may` is whether it could do
    /// anything by right.
    pub(super) fn forge(&mut self, now: Duration, forgery: Forgery, may: bool) -> Vec<Effect> {
        if self.store.is_none() || self.evil.is_none() {
            return Vec::new();
        }
        let clock = self.clock(now);
        let (chain, forged, effects) = match forgery {
            Forgery::Record if may => return Vec::new(),
            Forgery::Record => match self.forge_record() {
                Some(made) => made,
                None => return Vec::new(),
            },
            _ => match self.forge_entries(clock, forgery) {
                Some((chain, forged)) => (chain, forged, Vec::new()),
                None => return Vec::new(),
            },
        };
        if let Some(evil) = &mut self.evil {
            evil.forged.insert(chain, forged);
            for (peer, line) in &mut self.lines {
                line.session.handle_local_heads(&evil.heads(*peer));
            }
        }
        effects
    }

    /// A chain of its own, as of another start.
    fn forged_chain(&mut self, doc: DocId) -> ChainId {
        ChainId {
            doc,
            writer: self.id(),
            incarnation: Incarnation(self.dice.bytes()),
        }
    }

    fn forge_entries(&mut self, now: Timestamp, forgery: Forgery) -> Option<(ChainId, Forged)> {
        let (key, epoch) = self.own_epoch()?;
        let chain = self.forged_chain(DocId::Box(BoxId([1; 16])));
        let text = self.next_text;
        let entry = |no: u64, more: u64| Entry {
            no,
            ts: now,
            event: Event::Gap(Gap {
                reason: format!("{SECRET} {} {}", self.at, text + more),
            }),
        };
        let bodies = |batches: &[Vec<Entry>]| forge::bodies(&chain, batches, HOURS, now);
        let first = vec![entry(1, 0), entry(2, 1)];
        let (bodies, expect) = match forgery {
            Forgery::Garbage => {
                let garbage = self.dice.bytes::<90>().to_vec();
                let start = bodies(&[first])?;
                ([[start, vec![garbage]].concat(), Vec::new()], Expect::Aside)
            }
            Forgery::Again => {
                let start = bodies(&[first])?;
                ([[&start[..], &start].concat(), Vec::new()], Expect::Aside)
            }
            Forgery::Skip => {
                let skips = bodies(&[first, vec![entry(5, 2)]])?;
                ([skips, Vec::new()], Expect::Aside)
            }
            Forgery::Fork | Forgery::Record => {
                let one = bodies(&[first.clone(), vec![entry(3, 2)]])?;
                let other = bodies(&[first, vec![entry(3, 3)], vec![entry(4, 4)]])?;
                ([one, other], Expect::Fork)
            }
        };
        self.next_text += 8;
        let account = self.account?;
        let key = key.segment_key(chain.doc, 1);
        let seal_all = |bodies: &[Vec<u8>]| {
            let mut chained: Vec<Sealed> = Vec::new();
            for body in bodies {
                let fields = Fields {
                    account,
                    chain,
                    kind: Kind::Tail,
                    segment: 1,
                    seq: chained.len() as u64 + 1,
                    prev: chained.last().map_or(Hash::NONE, |last| last.hash),
                    before: None,
                };
                // The same again for the same body: both are shown one beginning.
                let mut dice = Dice::new(fields.seq + body.len() as u64);
                chained.push(seal(&self.keys, fields, epoch, &key, body, dice.bytes()).ok()?);
            }
            Some(chained)
        };
        let [one, other] = &bodies;
        let one = seal_all(one)?;
        let other = match other.is_empty() {
            true => one.clone(),
            false => seal_all(other)?,
        };
        let shown = [one, other];
        Some((chain, Forged { shown, expect }))
    }

    /// A key that it sealed under, and its epoch's number: others hold it too.
    fn own_epoch(&self) -> Option<(EpochKey, u32)> {
        let store = self.store.as_ref()?;
        let own = |head: &Head| head.chain.writer == self.id() && !head.chain.doc.is_plain();
        let head = store.heads().into_iter().rfind(own)?;
        let last = store.range(&head.chain, head.seq, 1, usize::MAX).ok()?;
        let header = peek(last.first()?).ok()?;
        let mut made = self.made.from(0).into_iter().map(EpochKey::generate);
        let key = made.find(|key| key.id() == header.key_id)?;
        Some((key, header.epoch))
    }

    fn forge_record(&mut self) -> Option<(ChainId, Forged, Vec<Effect>)> {
        let account = self.account?;
        let chain = self.forged_chain(DocId::Account);
        let fields = Fields {
            account,
            chain,
            kind: Kind::Record,
            segment: 0,
            seq: 1,
            prev: Hash::NONE,
            before: None,
        };
        let known = self.heads().into_values();
        let known = known.filter(|head| head.chain.doc == DocId::Account);
        let known: Vec<Hash> = known.map(|head| head.hash).collect();
        // As of now, or dated back to before anybody spoke of it.
        let seen = match self.dice.one_in(2) {
            true => known,
            false => self.evil.as_ref()?.old.clone(),
        };
        let own = self.id();
        let accomplice = DeviceKeys::generate(self.dice.bytes());
        let members = self.store.as_ref()?.members().iter();
        let others: Vec<DeviceId> = members.map(|(id, _)| *id).filter(|id| *id != own).collect();
        let (act, effect) = match self.dice.below(3) {
            0 => (ForgedAct::Role(own, Role::Full), Effect::NotFull(own)),
            1 if !others.is_empty() => {
                let victim = self.dice.pick(&others);
                (ForgedAct::Remove(victim), Effect::NoRemoval(Hash::NONE))
            }
            _ => {
                let added = Effect::NoMember(accomplice.id());
                (ForgedAct::Add(&accomplice, Role::Full), added)
            }
        };
        let sealed = forge::record(&self.keys, fields, &act, &seen)?;
        let effect = match effect {
            Effect::NoRemoval(_) => Effect::NoRemoval(sealed.hash),
            other => other,
        };
        let shown = [vec![sealed.clone()], vec![sealed]];
        let expect = Expect::Nothing;
        Some((chain, Forged { shown, expect }, vec![effect]))
    }
}
