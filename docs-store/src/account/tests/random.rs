//! Random histories of a few devices, a remover and a thief among them.

use proptest::prelude::*;

use super::gossip::{Party, begin, by_all, exchange, reset, roles};
use super::rules::device;
use crate::account::judge::Node;
use crate::account::record::{Act, Role};

const THIEF: usize = 1;

/// Choices, one after another.
struct Dice(Vec<u16>, usize);

impl Dice {
    fn of(&mut self, sides: usize) -> usize {
        self.1 += 1;
        let at = self.0[self.1 % self.0.len()];
        usize::from(
            at.wrapping_mul(31)
                .wrapping_add(u16::try_from(self.1).unwrap_or(0)),
        ) % sides
    }
}

fn removal(no: u8) -> Act {
    let devices = vec![device(no).id()];
    Act::Remove { devices }
}

fn hand_over(parties: &mut [Party], from: usize, to: usize, dice: &mut Dice) {
    let known: Vec<Node> = match from == THIEF {
        true => parties[from].records.nodes().to_vec(),
        false => parties[from].shown(),
    };
    let fresh: Vec<&Node> = known
        .iter()
        .filter(|node| parties[to].can_take(node))
        .collect();
    if let Some(node) = fresh.get(dice.of(fresh.len().max(1))).copied().cloned() {
        parties[to].take(&node);
    }
}

/// Handing over one by one, in a random order.
fn talk(parties: &mut [Party], steps: usize, dice: &mut Dice, who: &[usize]) {
    for _ in 0..steps {
        let (from, to) = (who[dice.of(who.len())], who[dice.of(who.len())]);
        if from != to {
            hand_over(parties, from, to, dice);
        }
    }
}

/// Whether all the honest see the same by all records there are, and how that is
/// in each one's own view.
fn all_agree(parties: &[Party]) -> bool {
    let honest = parties.iter().enumerate().filter(|(at, _)| *at != THIEF);
    let views: Vec<_> = honest.map(|(_, party)| by_all(parties, party.no)).collect();
    let open = views
        .iter()
        .any(|view| view.removals().iter().any(|it| it.open));
    open || views.windows(2).all(|pair| pair[0] == pair[1])
}

fn setting() -> impl Strategy<Value = (Vec<Role>, Vec<u16>)> {
    let role = prop_oneof![Just(Role::Watch), Just(Role::Stop), Just(Role::Full)];
    let others = proptest::collection::vec(role, 1..4);
    let dice = proptest::collection::vec(any::<u16>(), 40);
    (others, dice).prop_map(|(others, dice)| {
        // The thief's device is full.
        (std::iter::once(Role::Full).chain(others).collect(), dice)
    })
}

fn cases(count: u32) -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(count)
    }
}

/// The thief's acts as if it had seen no more than the beginning.
fn thieving(parties: &mut [Party], known: usize) -> Vec<Node> {
    let first: Vec<_> = parties[THIEF].records.nodes()[..known]
        .iter()
        .map(|node| node.hash)
        .collect();
    let seen = |node: &Node| first.contains(&node.hash);
    let thief = &mut parties[THIEF];
    let friend = device(9);
    let act = Act::Add {
        device: friend,
        role: Role::Full,
    };
    let mut wrote = vec![thief.write(act, seen), thief.write(removal(1), seen)];
    let all = (1..=8).filter(|no| *no != 2).map(|no| device(no).id());
    let mut devices: Vec<_> = all.collect();
    devices.sort_unstable();
    wrote.push(thief.write(Act::Remove { devices }, seen));
    let role = Act::Role {
        device: device(3).id(),
        role: Role::Runs,
    };
    wrote.push(thief.write(role, seen));
    wrote
}

#[test]
fn what_a_thief_shows_after_all_others_heard_changes_nothing() {
    proptest!(cases(1500), |((others, dice) in setting())| {
        let mut dice = Dice(dice, 0);
        let mut parties = begin(&others);
        let honest: Vec<usize> = (0..parties.len()).filter(|at| *at != THIEF).collect();
        let known = parties[THIEF].records.nodes().len();
        parties[0].write(removal(2), |_| true);
        talk(&mut parties, 30, &mut dice, &honest);
        exchange(&mut parties, &honest);
        let before: Vec<_> = honest.iter().map(|at| roles(&parties[*at].members)).collect();
        prop_assert!(before.iter().all(|view| *view == before[0]));
        let late = thieving(&mut parties, known);
        let all: Vec<usize> = (0..parties.len()).collect();
        talk(&mut parties, 60, &mut dice, &all);
        for at in &honest {
            late.iter().for_each(|node| parties[*at].take(node));
        }
        exchange(&mut parties, &honest);
        for (at, before) in honest.iter().zip(&before) {
            prop_assert_eq!(&roles(&parties[*at].members), before);
            prop_assert_eq!(&roles(&by_all(&parties, parties[*at].no)), before);
        }
    });
}

/// How a quarrel ended, over many histories: every end has a way there, and no way
/// leads to a friend of the thief or to two views.
#[test]
fn of_two_that_remove_one_another_all_have_one_view() {
    let ended: [std::cell::Cell<u32>; 3] = std::array::from_fn(|_| std::cell::Cell::new(0));
    let count = |end: usize| ended[end].set(ended[end].get() + 1);
    proptest!(cases(1500), |((others, dice) in setting())| {
        let mut dice = Dice(dice, 0);
        let mut parties = begin(&others);
        parties[0].write(removal(2), |_| true);
        parties[THIEF].write(removal(1), |_| true);
        let all: Vec<usize> = (0..parties.len()).collect();
        talk(&mut parties, 40, &mut dice, &all);
        exchange(&mut parties, &all);
        prop_assert!(all_agree(&parties));
        let view = by_all(&parties, 3);
        let is_in = |no: u8| view.get(&device(no).id()).is_some();
        match (is_in(1), is_in(2)) {
            (true, false) => count(0),
            (false, false) => count(1),
            (false, true) => count(2),
            (true, true) => prop_assert!(false, "neither is out"),
        }
        // Nobody who is in was removed by what stands.
        for party in &parties {
            for removal in party.members.removals().iter().filter(|it| it.stands) {
                for gone in &removal.devices {
                    prop_assert!(party.members.get(gone).is_none());
                }
            }
        }
    });
    assert!(ended.iter().all(|count| count.get() > 50), "{ended:?}");
}

#[test]
fn histories_at_random_give_one_view_in_any_order_and_recovery_brings_back() {
    proptest!(cases(1500), |((others, dice) in setting())| {
        let mut dice = Dice(dice, 0);
        let mut parties = begin(&others);
        let all: Vec<usize> = (0..parties.len()).collect();
        let mut next = 5_u8;
        for _ in 0..6 {
            let by = dice.of(parties.len());
            let about = u8::try_from(dice.of(parties.len())).unwrap() + 1;
            let role = [Role::Watch, Role::Stop, Role::Full][dice.of(3)];
            let act = match dice.of(4) {
                0 | 1 if parties[by].may(Role::Full) || about == parties[by].no => {
                    (parties[by].is_member()).then(|| removal(about))
                }
                2 if parties[by].may(Role::Full) => Some(Act::Role {
                    device: device(about).id(),
                    role,
                }),
                3 if parties[by].may(Role::Full) => {
                    next += 1;
                    Some(Act::Add { device: device(next), role })
                }
                _ => None,
            };
            if let Some(act) = act {
                parties[by].write(act, |_| true);
            }
            talk(&mut parties, 12, &mut dice, &all);
        }
        exchange(&mut parties, &all);
        let views: Vec<_> = parties.iter().map(|it| by_all(&parties, it.no)).collect();
        let open = views.iter().any(|view| view.removals().iter().any(|it| it.open));
        prop_assert!(open || views.windows(2).all(|pair| pair[0] == pair[1]));
        // The other way round.
        parties.reverse();
        let again: Vec<_> = parties.iter().map(|it| by_all(&parties, it.no)).collect();
        parties.reverse();
        prop_assert!(again.iter().rev().eq(views.iter()));
        let reset = reset(&parties, 3);
        for at in &all {
            let missing: Vec<Node> = parties.iter().flat_map(|it| it.records.nodes().to_vec()).collect();
            parties[*at].records.extend(missing);
            parties[*at].records.extend([reset.clone()]);
            let (members, _) = parties[*at].records.members(parties[*at].id());
            prop_assert_eq!(roles(&members), [(device(3).id(), Role::Full)]);
        }
    });
}

/// As many records as an account may have, all about one device, each resting on all
/// before: they are judged, and in a time that a person waits.
#[test]
fn a_full_account_is_judged() {
    let mut parties = begin(&[Role::Full; 8]);
    let roles = [Role::Watch, Role::Stop, Role::Full];
    let mut last = None;
    for n in 0..1000_usize {
        let by = n % 8;
        let act = match n % 50 {
            49 => removal(u8::try_from(n / 50 + 20).unwrap()),
            _ => Act::Role {
                device: device(9).id(),
                role: roles[n % 3],
            },
        };
        // One chain across all: a fork of them would only be shorter.
        let node = parties[by].write(act, |node| last.is_none_or(|last| node.hash == last));
        last = Some(node.hash);
        let next = (by + 1) % 8;
        let missing: Vec<Node> = parties[by].records.nodes().to_vec();
        missing.iter().for_each(|node| parties[next].take(node));
    }
    let nodes = parties[7].records.nodes().to_vec();
    let started = std::time::Instant::now();
    let mut records = crate::account::Records::new(super::rules::account());
    records.extend(nodes);
    let (members, _) = records.members(device(1).id());
    assert_eq!(members.len(), 9);
    let took = started.elapsed();
    println!("{} records judged in {took:?}", records.nodes().len());
    assert!(took < std::time::Duration::from_secs(30), "{took:?}");
}
