use bailey_envelope::DeviceKeys;
use proptest::prelude::*;

use super::super::record::Genesis;
use super::*;

fn device(no: u8) -> DevicePublic {
    DeviceKeys::generate([no; 64]).public()
}

fn genesis() -> Genesis {
    Genesis {
        recovery: device(200),
        first: device(1),
        window_days: 30,
        salt: [0; 16],
    }
}

fn account() -> AccountId {
    account_of(&genesis()).unwrap()
}

fn hash(no: u8) -> Hash {
    Hash([no; 32])
}

fn begin() -> Node {
    Node {
        hash: hash(1),
        signer: device(1).id(),
        parents: Vec::new(),
        act: Act::Genesis(genesis()),
    }
}

fn add(no: u8, signer: u8, parents: &[u8], new: u8, role: Role) -> Node {
    Node {
        hash: hash(no),
        signer: device(signer).id(),
        parents: parents.iter().map(|no| hash(*no)).collect(),
        act: Act::Add {
            device: device(new),
            role,
        },
    }
}

fn roles(nodes: &[Node]) -> Vec<(u8, Role)> {
    let members = members_of(account(), nodes);
    (1..=10)
        .filter_map(|no| Some((no, members.get(&device(no).id())?.role)))
        .collect()
}

#[test]
fn the_first_device_is_full_and_adds_others() {
    let nodes = [
        begin(),
        add(2, 1, &[1], 2, Role::Watch),
        add(3, 1, &[2], 3, Role::Full),
    ];
    assert_eq!(
        roles(&nodes),
        [(1, Role::Full), (2, Role::Watch), (3, Role::Full)]
    );
    let members = members_of(account(), &nodes);
    assert_eq!(members.recovery(), Some(&device(200)));
    assert_eq!(members.window_days(), 30);
}

#[test]
fn only_a_full_member_adds() {
    for role in [Role::Runs, Role::Watch, Role::Stop] {
        let nodes = [
            begin(),
            add(2, 1, &[1], 2, role),
            add(3, 2, &[2], 3, Role::Watch),
        ];
        assert_eq!(roles(&nodes), [(1, Role::Full), (2, role)]);
    }
}

#[test]
fn a_member_is_one_only_from_what_its_own_record_had_seen() {
    // Device 2 is added, but its own record does not rest on that.
    let nodes = [
        begin(),
        add(2, 1, &[1], 2, Role::Full),
        add(3, 2, &[1], 3, Role::Full),
    ];
    assert_eq!(roles(&nodes), [(1, Role::Full), (2, Role::Full)]);
}

#[test]
fn a_record_whose_past_is_missing_does_not_count() {
    let nodes = [begin(), add(3, 1, &[2], 3, Role::Full)];
    assert_eq!(roles(&nodes), [(1, Role::Full)]);
    // A record that names itself or a circle is never judged.
    let nodes = [
        begin(),
        add(3, 1, &[3], 3, Role::Full),
        add(4, 1, &[5], 4, Role::Full),
    ];
    assert_eq!(roles(&nodes), [(1, Role::Full)]);
}

#[test]
fn a_stranger_adds_nobody_and_another_genesis_begins_nothing() {
    let nodes = [begin(), add(2, 9, &[1], 9, Role::Full)];
    assert_eq!(roles(&nodes), [(1, Role::Full)]);
    let other = Genesis {
        first: device(9),
        ..genesis()
    };
    let other = Node {
        hash: hash(7),
        signer: device(9).id(),
        act: Act::Genesis(other),
        ..begin()
    };
    assert_eq!(roles(&[begin(), other]), [(1, Role::Full)]);
}

#[test]
fn two_adds_of_one_device_leave_it_the_weaker_role() {
    let nodes = [
        begin(),
        add(2, 1, &[1], 2, Role::Full),
        add(3, 1, &[1], 2, Role::Stop),
    ];
    assert_eq!(roles(&nodes), [(1, Role::Full), (2, Role::Stop)]);
}

#[test]
fn the_order_in_which_records_come_does_not_matter() {
    let role = prop_oneof![Just(Role::Watch), Just(Role::Stop), Just(Role::Full)];
    let record = (
        1..6_u8,
        proptest::collection::vec(any::<prop::sample::Index>(), 1..3),
        2..8_u8,
        role,
    );
    let history = proptest::collection::vec(record, 1..24);
    proptest!(|(history in history, seed in any::<u64>())| {
        let mut nodes = vec![begin()];
        for (at, (signer, parents, new, role)) in history.iter().enumerate() {
            let parents: Vec<u8> = parents
                .iter()
                .map(|index| u8::try_from(index.index(nodes.len())).unwrap() + 1)
                .collect();
            let no = u8::try_from(at).unwrap() + 2;
            nodes.push(add(no, *signer, &parents, *new, *role));
        }
        let first = members_of(account(), &nodes);
        let mut state = seed;
        for at in (1..nodes.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let other = usize::try_from(state >> 33).unwrap() % (at + 1);
            nodes.swap(at, other);
        }
        prop_assert_eq!(members_of(account(), &nodes), first);
    });
}
