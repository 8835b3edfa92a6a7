//! Who is a member: a pure function of the record set, whatever the order in
//! which the records came.

use std::collections::{BTreeMap, HashMap};

use bailey_envelope::{DevicePublic, Hash};
use bailey_model::{AccountId, DeviceId};

use super::record::{Act, Role, account_of};

/// A member of the account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Its public keys.
    pub public: DevicePublic,
    /// What it may do.
    pub role: Role,
}

/// The members of an account.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Members {
    devices: BTreeMap<DeviceId, Member>,
    recovery: Option<DevicePublic>,
    window_days: u16,
}

impl Members {
    /// A member by its id.
    #[must_use]
    pub fn get(&self, device: &DeviceId) -> Option<&Member> {
        self.devices.get(device)
    }

    /// Every member, by id.
    pub fn iter(&self) -> impl Iterator<Item = (&DeviceId, &Member)> {
        self.devices.iter()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.devices.len()
    }

    /// Whether there are none: no account yet, or its genesis has not come.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }

    /// The account's recovery keys.
    #[must_use]
    pub fn recovery(&self) -> Option<&DevicePublic> {
        self.recovery.as_ref()
    }

    /// Days that entries are kept.
    #[must_use]
    pub fn window_days(&self) -> u16 {
        self.window_days
    }
}

/// A record in the graph of what each signer had seen.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) hash: Hash,
    pub(crate) signer: DeviceId,
    /// The record before in the signer's chain, and the heads it had seen.
    pub(crate) parents: Vec<Hash>,
    pub(crate) act: Act,
}

/// A set of records, by index.
#[derive(Clone, Default)]
struct Set(Vec<u64>);

impl Set {
    fn insert(&mut self, at: usize) {
        if self.0.len() <= at / 64 {
            self.0.resize(at / 64 + 1, 0);
        }
        self.0[at / 64] |= 1 << (at % 64);
    }

    fn contains(&self, at: usize) -> bool {
        self.0
            .get(at / 64)
            .is_some_and(|word| word & (1 << (at % 64)) != 0)
    }

    fn union(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0
            .iter_mut()
            .zip(&other.0)
            .for_each(|(mine, theirs)| *mine |= theirs);
    }
}

/// What is known of a record whose whole past is here.
struct Judged {
    past: Set,
    counts: bool,
}

/// Who is a member, given these records of an account.
///
/// An act counts if, in its own causal past, its signer was a member with the
/// role for it. A record whose past is not all here is not judged yet. Two adds
/// of one device leave it the weaker role.
pub(crate) fn members_of(account: AccountId, nodes: &[Node]) -> Members {
    let index: HashMap<Hash, usize> = nodes
        .iter()
        .enumerate()
        .map(|(at, node)| (node.hash, at))
        .collect();
    let mut judged: Vec<Option<Judged>> = nodes.iter().map(|_| None).collect();
    loop {
        let mut progress = false;
        for at in 0..nodes.len() {
            if judged[at].is_none()
                && let Some(past) = past_of(&nodes[at], &index, &judged)
            {
                let counts = counts(account, nodes, &judged, &nodes[at], &past);
                judged[at] = Some(Judged { past, counts });
                progress = true;
            }
        }
        if !progress {
            break;
        }
    }
    let mut members = Members::default();
    for (node, judged) in nodes.iter().zip(&judged) {
        if judged.as_ref().is_some_and(|judged| judged.counts) {
            apply(&mut members, &node.act);
        }
    }
    members
}

fn past_of(node: &Node, index: &HashMap<Hash, usize>, judged: &[Option<Judged>]) -> Option<Set> {
    let mut past = Set::default();
    for parent in &node.parents {
        let at = *index.get(parent)?;
        past.union(&judged.get(at)?.as_ref()?.past);
        past.insert(at);
    }
    Some(past)
}

fn counts(
    account: AccountId,
    nodes: &[Node],
    judged: &[Option<Judged>],
    node: &Node,
    past: &Set,
) -> bool {
    let role_needed = match &node.act {
        Act::Genesis(genesis) => return account_of(genesis) == Some(account),
        Act::Add { .. } => Role::Full,
    };
    let mut before = Members::default();
    for (at, (earlier, judged)) in nodes.iter().zip(judged).enumerate() {
        if past.contains(at) && judged.as_ref().is_some_and(|judged| judged.counts) {
            apply(&mut before, &earlier.act);
        }
    }
    before
        .get(&node.signer)
        .is_some_and(|signer| signer.role >= role_needed)
}

/// Applies an act that counts. The acts there are only ever add, and the weaker
/// role stands, so their order does not matter.
fn apply(members: &mut Members, act: &Act) {
    let (device, role) = match act {
        Act::Genesis(genesis) => {
            members.recovery = Some(genesis.recovery);
            members.window_days = genesis.window_days;
            (genesis.first, Role::Full)
        }
        Act::Add { device, role } => (*device, *role),
    };
    members
        .devices
        .entry(device.id())
        .and_modify(|member| member.role = member.role.min(role))
        .or_insert(Member {
            public: device,
            role,
        });
}

#[cfg(test)]
mod tests;
