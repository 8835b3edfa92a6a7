//! The rules M1 to M6: which records count, and who is a member by them.
//!
//! The records form a graph: each rests on the one before in its signer's chain and
//! on the heads that the signer had seen. What is said here of a set of them depends
//! on nothing but that set and, where two devices removed one another and nobody
//! else has a word, on whose view it is (M4). Clocks decide nothing (M6).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bailey_envelope::Hash;
use bailey_model::{AccountId, DeviceId, Incarnation};

use super::members::{Member, Members};
use super::record::Act;
use super::set::Set;
use super::view::{State, View};

/// A record in the graph of what each signer had seen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub(crate) hash: Hash,
    pub(crate) signer: DeviceId,
    /// Its place in the chain of the signer.
    pub(crate) incarnation: Incarnation,
    pub(crate) seq: u64,
    /// The record before in the signer's chain, and the heads it had seen.
    pub(crate) parents: Vec<Hash>,
    pub(crate) act: Act,
}

/// What is known of a record whose whole past is here. It never changes.
#[derive(Debug, Clone)]
pub(super) struct Judged {
    pub(super) past: Set,
    /// Whether its signer was a member with the role, by its own past (M1).
    pub(super) allowed: bool,
    /// The reset that its past builds on.
    pub(super) base: Option<usize>,
    /// For a removal: who was a member in its past.
    pub(super) before: BTreeSet<DeviceId>,
}

/// The records of an account, each judged once by its own past.
#[derive(Debug, Clone)]
pub(crate) struct Records {
    pub(super) account: AccountId,
    pub(super) nodes: Vec<Node>,
    pub(super) index: HashMap<Hash, usize>,
    pub(super) judged: Vec<Option<Judged>>,
    /// Those judged: each after all that it rests on.
    pub(super) order: Vec<usize>,
}

/// Where each chain ends before what is kept and not passed on.
pub(crate) type Held = BTreeMap<(DeviceId, Incarnation), u64>;

/// Who is a member, given these records of an account, as a device sees it.
#[cfg(test)]
pub(crate) fn members_of(account: AccountId, nodes: &[Node], viewer: DeviceId) -> Members {
    let mut records = Records::new(account);
    records.extend(nodes.iter().cloned());
    records.members(viewer).0
}

impl Records {
    pub(crate) fn new(account: AccountId) -> Self {
        Self {
            account,
            nodes: Vec::new(),
            index: HashMap::new(),
            judged: Vec::new(),
            order: Vec::new(),
        }
    }

    pub(crate) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Takes records in, and judges every one whose past is whole now.
    pub(crate) fn extend(&mut self, nodes: impl IntoIterator<Item = Node>) {
        for node in nodes {
            if self.index.contains_key(&node.hash) {
                continue;
            }
            self.index.insert(node.hash, self.nodes.len());
            self.nodes.push(node);
            self.judged.push(None);
        }
        let mut waiting: Vec<usize> = (0..self.nodes.len())
            .filter(|at| self.judged[*at].is_none())
            .collect();
        loop {
            let before = waiting.len();
            waiting.retain(|at| !self.judge(*at));
            if waiting.len() == before {
                return;
            }
        }
    }

    /// Judges one; `false` if its past is not all here.
    fn judge(&mut self, at: usize) -> bool {
        let mut past = Set::default();
        for parent in &self.nodes[at].parents {
            let Some(parent) = self.index.get(parent).copied() else {
                return false;
            };
            let Some(judged) = &self.judged[parent] else {
                return false;
            };
            past.union(&judged.past);
            past.insert(parent);
        }
        let node = &self.nodes[at];
        let view = View::of(self, Some(&past), node.signer);
        let allowed = view.allows(node);
        let base = view.base;
        let before = match node.act {
            Act::Remove { .. } if allowed => view.members().into_keys().collect(),
            _ => BTreeSet::new(),
        };
        self.judged[at] = Some(Judged {
            past,
            allowed,
            base,
            before,
        });
        self.order.push(at);
        true
    }

    pub(super) fn past(&self, at: usize, earlier: usize) -> bool {
        let judged = self.judged[at].as_ref();
        judged.is_some_and(|judged| judged.past.contains(earlier))
    }

    pub(super) fn allowed(&self, at: usize) -> bool {
        let judged = self.judged[at].as_ref();
        judged.is_some_and(|judged| judged.allowed)
    }

    /// Who is removed by a record.
    pub(super) fn targets(&self, at: usize) -> &[DeviceId] {
        match &self.nodes[at].act {
            Act::Remove { devices } => devices,
            _ => &[],
        }
    }

    /// The members, as a device sees them, and what is kept of records that came
    /// from devices after their removal and that nobody else rests on: they decide
    /// nothing, and are not passed on, so that nobody hears of them before the
    /// removal (M2, M3).
    pub(crate) fn members(&self, viewer: DeviceId) -> (Members, Held) {
        let view = View::of(self, None, viewer);
        let devices = view.members();
        let mut members = Members {
            recovery: view.recovery(),
            window_days: view.window_days(),
            removals: view.removals(),
            ..Members::default()
        };
        for at in self.order.iter().copied().filter(|at| self.allowed(*at)) {
            if let Act::Add { device, .. } = &self.nodes[at].act
                && view.state[at] == State::In
                && devices.contains_key(&device.id())
            {
                members.adders.insert((self.nodes[at].signer, device.id()));
            }
            let counts = view.state[at] == State::In || self.past_of_base(&view, at);
            for public in self.nodes[at].act.named() {
                members.signers.insert(public.id(), public);
                let device = !self.nodes[at].act.gives_recovery(&public);
                if device && !devices.contains_key(&public.id()) {
                    let was_one = match counts {
                        true => &mut members.former,
                        false => &mut members.undone,
                    };
                    was_one.insert(public.id(), public);
                }
            }
        }
        let former = &members.former;
        members
            .undone
            .retain(|device, _| !former.contains_key(device));
        let held = self.held(&view, &devices);
        members.devices = devices;
        (members, held)
    }

    /// Whether a reset builds on a record: what it did then is history.
    fn past_of_base(&self, view: &View<'_>, at: usize) -> bool {
        view.base.is_some_and(|base| self.past(base, at))
    }

    fn held(&self, view: &View<'_>, devices: &BTreeMap<DeviceId, Member>) -> Held {
        let mut covered = Set::default();
        for at in self.order.iter().copied() {
            if view.state[at] == State::In || devices.contains_key(&self.nodes[at].signer) {
                covered.insert(at);
                if let Some(judged) = &self.judged[at] {
                    covered.union(&judged.past);
                }
            }
        }
        if let Some(judged) = view.base.and_then(|base| self.judged[base].as_ref()) {
            covered.union(&judged.past);
        }
        let mut held = Held::new();
        for (at, node) in self.nodes.iter().enumerate() {
            if !covered.contains(at) && !devices.contains_key(&node.signer) {
                let from = held
                    .entry((node.signer, node.incarnation))
                    .or_insert(node.seq);
                *from = node.seq.min(*from);
            }
        }
        held
    }
}
