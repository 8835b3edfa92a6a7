//! Every order of a few acts and of their handing over, by exhaustive search: each
//! state that can be reached is looked at once.

use std::collections::{BTreeSet, HashSet, VecDeque};

use bailey_envelope::Hash;

use super::gossip::{Party, begin, by_all, reset, roles};
use super::rules::device;
use crate::account::judge::Node;
use crate::account::record::{Act, Role};

/// What a device may write, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Remove(u8),
    /// As if nothing since the beginning had been seen.
    RemoveUnseeing(u8),
    AddUnseeing(u8),
    Lower(u8),
}

#[derive(Clone)]
struct World {
    parties: Vec<Party>,
    /// What each may still do.
    left: Vec<Vec<Deed>>,
}

impl World {
    /// What tells states apart: who has what, in which order it first came, and what
    /// may still be done.
    fn key(&self) -> Vec<u8> {
        let mut key = Vec::new();
        for (party, left) in self.parties.iter().zip(&self.left) {
            let mut has: Vec<Hash> = party.records.nodes().iter().map(|it| it.hash).collect();
            has.sort_unstable();
            key.push(u8::try_from(left.len()).unwrap());
            key.push(u8::try_from(has.len()).unwrap());
            has.iter().for_each(|hash| key.extend(&hash.0[..8]));
        }
        key
    }

    fn next(&self, beginning: &BTreeSet<Hash>) -> Vec<Self> {
        let mut next = Vec::new();
        for (at, left) in self.left.iter().enumerate() {
            for deed in left {
                if self.parties[at].may(Role::Full) {
                    let mut world = self.clone();
                    world.left[at].retain(|other| other != deed);
                    world.parties[at].write(act(*deed), |node| match deed {
                        Deed::Remove(_) | Deed::Lower(_) => true,
                        Deed::RemoveUnseeing(_) | Deed::AddUnseeing(_) => {
                            beginning.contains(&node.hash)
                        }
                    });
                    next.push(world);
                }
            }
        }
        for from in 0..self.parties.len() {
            for node in self.parties[from].shown() {
                for to in 0..self.parties.len() {
                    if from != to && self.parties[to].can_take(&node) {
                        let mut world = self.clone();
                        world.parties[to].take(&node);
                        world.look(self, to, &node);
                        next.push(world);
                    }
                }
            }
        }
        next
    }

    /// What one that is removed in a device's view wrote, and came after that, changes
    /// nothing there.
    fn look(&self, before: &Self, at: usize, node: &Node) {
        let (before, after) = (&before.parties[at].members, &self.parties[at].members);
        let removed = before.get(&node.signer).is_none() && !before.is_empty();
        if removed && before.get(&self.parties[at].id()).is_some() {
            assert_eq!(roles(before), roles(after), "{node:?}");
        }
    }

    fn check(&self) {
        for party in &self.parties {
            for removal in party.members.removals().iter().filter(|it| it.stands) {
                let gone = |device| party.members.get(device).is_none();
                assert!(removal.devices.iter().all(gone), "{removal:?}");
            }
        }
        let views: Vec<_> = self
            .parties
            .iter()
            .map(|party| by_all(&self.parties, party.no))
            .collect();
        let open = views
            .iter()
            .any(|view| view.removals().iter().any(|it| it.open));
        let same = views.windows(2).all(|pair| pair[0] == pair[1]);
        assert!(open || same, "same records, other members");
    }

    fn comes_back(&self) {
        let last = self.parties.len() - 1;
        let reset = reset(&self.parties, self.parties[last].no);
        let mut parties = self.parties.clone();
        parties[0].records.extend([reset]);
        for party in &parties {
            let members = by_all(&parties, party.no);
            let kept = device(self.parties[last].no).id();
            assert_eq!(roles(&members), [(kept, Role::Full)]);
        }
    }
}

fn act(deed: Deed) -> Act {
    match deed {
        Deed::Remove(no) | Deed::RemoveUnseeing(no) => Act::Remove {
            devices: vec![device(no).id()],
        },
        Deed::AddUnseeing(no) => Act::Add {
            device: device(no),
            role: Role::Full,
        },
        Deed::Lower(no) => Act::Role {
            device: device(no).id(),
            role: Role::Watch,
        },
    }
}

/// How many states there are, and how many where nothing more can happen. In the
/// latter all that are members in their own view agree, but where a quarrel is open.
fn explore(others: &[Role], deeds: &[(usize, Deed)]) -> (usize, usize) {
    let parties = begin(others);
    let beginning: BTreeSet<Hash> = parties[0]
        .records
        .nodes()
        .iter()
        .map(|it| it.hash)
        .collect();
    let mut left = vec![Vec::new(); parties.len()];
    deeds.iter().for_each(|(at, deed)| left[*at].push(*deed));
    let first = World { parties, left };
    let mut seen = HashSet::from([first.key()]);
    let mut queue = VecDeque::from([first]);
    let mut ends = 0;
    while let Some(world) = queue.pop_front() {
        world.check();
        let next = world.next(&beginning);
        // The keys on paper bring it back from wherever it stands.
        if next.is_empty() || seen.len().is_multiple_of(64) {
            world.comes_back();
        }
        if next.is_empty() {
            ends += 1;
            let open = world
                .parties
                .iter()
                .any(|party| party.members.removals().iter().any(|it| it.open));
            let views: Vec<_> = world
                .parties
                .iter()
                .filter(|party| party.is_member())
                .map(|party| roles(&party.members))
                .collect();
            let agree = views.windows(2).all(|pair| pair[0] == pair[1]);
            assert!(open || agree || views_part(&world), "{views:?}");
        }
        for world in next {
            if seen.insert(world.key()) {
                queue.push_back(world);
            }
        }
    }
    (seen.len(), ends)
}

/// Two who removed one another and of whom nobody else heard the other's word keep
/// each to their own: what came after the removal is held on either side.
fn views_part(world: &World) -> bool {
    let mut sides = world.parties.iter().filter(|party| party.is_member());
    sides.any(|party| !party.held.is_empty())
}

#[test]
fn three_devices_that_remove_one_another() {
    let full = [Role::Full, Role::Full];
    let deeds = [
        (0, Deed::Remove(2)),
        (1, Deed::Remove(1)),
        (2, Deed::Remove(1)),
    ];
    let (states, ends) = explore(&full, &deeds);
    assert!(states > 100 && ends > 1, "{states} {ends}");
}

#[test]
fn a_thief_that_writes_as_if_it_had_not_heard() {
    let deeds = [
        (0, Deed::Remove(2)),
        (1, Deed::RemoveUnseeing(1)),
        (1, Deed::AddUnseeing(7)),
    ];
    let (states, ends) = explore(&[Role::Full, Role::Watch], &deeds);
    assert!(states > 100 && ends > 1, "{states} {ends}");
}

#[test]
fn a_circle_of_removals() {
    let deeds = [
        (0, Deed::Remove(2)),
        (1, Deed::Remove(3)),
        (2, Deed::Remove(1)),
    ];
    let (states, ends) = explore(&[Role::Full, Role::Full], &deeds);
    assert!(states > 100 && ends > 1, "{states} {ends}");
}

#[test]
fn two_who_remove_one_another_before_two_who_hear() {
    let deeds = [(0, Deed::Remove(2)), (1, Deed::RemoveUnseeing(1))];
    let (states, ends) = explore(&[Role::Full, Role::Watch, Role::Stop], &deeds);
    assert!(states > 100 && ends > 1, "{states} {ends}");
}

#[test]
fn two_devices_and_their_quarrel() {
    let deeds = [
        (0, Deed::Remove(2)),
        (1, Deed::Remove(1)),
        (1, Deed::AddUnseeing(7)),
        (0, Deed::Lower(2)),
    ];
    let (states, ends) = explore(&[Role::Full], &deeds);
    assert!(states > 10 && ends > 0, "{states} {ends}");
}
