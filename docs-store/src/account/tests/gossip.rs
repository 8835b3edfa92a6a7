//! Devices that hand one another records one by one, in any order; each says of a
//! removal that it applied it when it does. A thief may write as if it had seen less.

use std::collections::BTreeSet;

use bailey_envelope::Hash;
use bailey_model::{DeviceId, Incarnation};
use sha2::{Digest as _, Sha256};

use super::rules::{account, device, genesis};
use crate::account::judge::{Held, Node, Records, members_of};
use crate::account::record::{Act, Role};
use crate::account::{Member, Members};

/// The number of the device that holds the recovery keys in tests.
pub(super) const RECOVERY: u8 = 200;

/// One device: what it has, in the order in which it came.
#[derive(Debug, Clone)]
pub(super) struct Party {
    pub(super) no: u8,
    pub(super) records: Records,
    pub(super) members: Members,
    pub(super) held: Held,
    has: BTreeSet<Hash>,
    /// Envelopes of its own.
    seq: u64,
}

impl Party {
    fn new(no: u8) -> Self {
        Self {
            no,
            records: Records::new(account()),
            members: Members::default(),
            held: Held::new(),
            has: BTreeSet::new(),
            seq: 0,
        }
    }

    fn look(&mut self) {
        (self.members, self.held) = self.records.members(self.id());
    }

    pub(super) fn id(&self) -> DeviceId {
        device(self.no).id()
    }

    pub(super) fn is_member(&self) -> bool {
        self.members.get(&self.id()).is_some()
    }

    pub(super) fn may(&self, role: Role) -> bool {
        let me = self.members.get(&self.id());
        me.is_some_and(|me| me.role >= role)
    }

    fn is_held(&self, node: &Node) -> bool {
        let from = self.held.get(&(node.signer, node.incarnation));
        from.is_some_and(|from| *from <= node.seq)
    }

    /// What it would hand to others.
    pub(super) fn shown(&self) -> Vec<Node> {
        let nodes = self.records.nodes().iter();
        nodes.filter(|node| !self.is_held(node)).cloned().collect()
    }

    /// Writes a record that rests on all it has, or only on what `seen` picks.
    pub(super) fn write(&mut self, act: Act, seen: impl Fn(&Node) -> bool) -> Node {
        let mut parents: Vec<Hash> = self
            .shown()
            .iter()
            .filter(|node| seen(node))
            .map(|node| node.hash)
            .collect();
        parents.sort_unstable();
        self.seq += 1;
        let mut hash = Sha256::new().chain_update([self.no]);
        for parent in &parents {
            hash.update(parent.0);
        }
        hash.update(format!("{act:?}"));
        let node = Node {
            hash: Hash(hash.finalize().into()),
            signer: self.id(),
            // What is written as if less had been seen is of another start.
            incarnation: Incarnation((parents.len() as u128).to_be_bytes()),
            seq: self.seq,
            parents,
            act,
        };
        self.keep(node.clone());
        node
    }

    fn keep(&mut self, node: Node) -> bool {
        if !self.has.insert(node.hash) {
            return false;
        }
        self.records.extend([node]);
        self.look();
        true
    }

    /// Whether a record can be judged here now.
    pub(super) fn can_take(&self, node: &Node) -> bool {
        !self.has.contains(&node.hash)
            && node.parents.iter().all(|parent| self.has.contains(parent))
            && (self.members.is_empty() || self.members.signer(&node.signer).is_some())
    }

    /// Takes a record, and says of removals that they are applied.
    pub(super) fn take(&mut self, node: &Node) {
        if !self.can_take(node) || !self.keep(node.clone()) {
            return;
        }
        while let Some(removal) = self.owed() {
            self.write(Act::Ack { removal }, |_| true);
        }
    }

    fn owed(&self) -> Option<Hash> {
        let me = self.is_member().then_some(self.id())?;
        let removals = self.members.removals().iter();
        let mut owed = removals.filter(|it| it.stands && !it.confirmed.contains(&me));
        owed.next().map(|it| it.record)
    }
}

/// The first device and others that it added with these roles: all have all.
pub(super) fn begin(roles: &[Role]) -> Vec<Party> {
    let mut first = Party::new(1);
    first.write(Act::Genesis(genesis()), |_| true);
    for (no, role) in (2..).zip(roles) {
        let device = device(no);
        let role = *role;
        first.write(Act::Add { device, role }, |_| true);
    }
    let rest = (2..).zip(roles).map(|(no, _)| {
        let mut party = Party::new(no);
        first
            .records
            .nodes()
            .iter()
            .for_each(|node| party.take(node));
        party
    });
    let rest: Vec<Party> = rest.collect();
    std::iter::once(first).chain(rest).collect()
}

/// Each hands all it shows to each of these, until nothing is new. A device that is
/// no member in another's view hands over what that one takes.
pub(super) fn exchange(parties: &mut [Party], who: &[usize]) {
    loop {
        let mut moved = false;
        for from in who {
            for node in parties[*from].shown() {
                for to in who.iter().filter(|to| *to != from) {
                    if parties[*to].can_take(&node) {
                        parties[*to].take(&node);
                        moved = true;
                    }
                }
            }
        }
        if !moved {
            return;
        }
    }
}

/// The members by all records of all parties, in one party's view.
pub(super) fn by_all(parties: &[Party], viewer: u8) -> Members {
    let nodes = || parties.iter().flat_map(|it| it.records.nodes()).cloned();
    match parties.iter().find(|party| party.no == viewer) {
        Some(party) => {
            let mut records = party.records.clone();
            records.extend(nodes());
            records.members(party.id()).0
        }
        None => members_of(account(), &nodes().collect::<Vec<_>>(), device(viewer).id()),
    }
}

pub(super) fn roles(members: &Members) -> Vec<(DeviceId, Role)> {
    members
        .iter()
        .map(|(device, Member { role, .. })| (*device, *role))
        .collect()
}

/// Whoever has the recovery keys and all records resets the account to one device.
pub(super) fn reset(parties: &[Party], kept: u8) -> Node {
    let mut recovery = Party::new(RECOVERY);
    for node in parties.iter().flat_map(|party| party.records.nodes()) {
        recovery.has.insert(node.hash);
        recovery.records.extend([node.clone()]);
    }
    recovery.held.clear();
    let act = Act::Reset {
        kept: vec![(device(kept), Role::Full)],
        recovery: device(201),
    };
    recovery.write(act, |_| true)
}
