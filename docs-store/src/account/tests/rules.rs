use bailey_envelope::DeviceKeys;
use proptest::prelude::*;

use bailey_envelope::{DevicePublic, Hash};
use bailey_model::{AccountId, DeviceId, Incarnation};

use crate::account::judge::{Node, members_of};
use crate::account::record::{Act, Genesis, Role, account_of};

pub(super) fn device(no: u8) -> DevicePublic {
    DeviceKeys::generate([no; 64]).public()
}

pub(super) fn genesis() -> Genesis {
    Genesis {
        recovery: device(200),
        first: device(1),
        window_days: 30,
        salt: [0; 16],
    }
}

pub(super) fn account() -> AccountId {
    account_of(&genesis()).unwrap()
}

fn hash(no: u8) -> Hash {
    Hash([no; 32])
}

fn begin() -> Node {
    Node {
        hash: hash(1),
        signer: device(1).id(),
        incarnation: Incarnation([1; 16]),
        seq: 1,
        parents: Vec::new(),
        act: Act::Genesis(genesis()),
    }
}

fn record(no: u8, signer: u8, parents: &[u8], act: Act) -> Node {
    Node {
        hash: hash(no),
        signer: device(signer).id(),
        incarnation: Incarnation([signer; 16]),
        seq: no.into(),
        parents: parents.iter().map(|no| hash(*no)).collect(),
        act,
    }
}

fn add(no: u8, signer: u8, parents: &[u8], new: u8, role: Role) -> Node {
    let device = device(new);
    record(no, signer, parents, Act::Add { device, role })
}

fn roles(nodes: &[Node]) -> Vec<(u8, Role)> {
    seen_by(1, nodes)
}

fn seen_by(viewer: u8, nodes: &[Node]) -> Vec<(u8, Role)> {
    let members = members_of(account(), nodes, device(viewer).id());
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
    let members = members_of(account(), &nodes, device(1).id());
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
        let first = members_of(account(), &nodes, device(1).id());
        let mut state = seed;
        for at in (1..nodes.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let other = usize::try_from(state >> 33).unwrap() % (at + 1);
            nodes.swap(at, other);
        }
        prop_assert_eq!(members_of(account(), &nodes, device(1).id()), first);
    });
}

fn remove(no: u8, signer: u8, parents: &[u8], gone: &[u8]) -> Node {
    let mut devices: Vec<_> = gone.iter().map(|no| device(*no).id()).collect();
    devices.sort_unstable();
    record(no, signer, parents, Act::Remove { devices })
}

fn ack(no: u8, signer: u8, parents: &[u8], removal: u8) -> Node {
    let removal = hash(removal);
    record(no, signer, parents, Act::Ack { removal })
}

fn role(no: u8, signer: u8, parents: &[u8], of: u8, role: Role) -> Node {
    let device = device(of).id();
    record(no, signer, parents, Act::Role { device, role })
}

fn reset(no: u8, signer: u8, parents: &[u8], kept: &[u8], recovery: u8) -> Node {
    let kept = kept.iter().map(|no| (device(*no), Role::Full)).collect();
    let recovery = device(recovery);
    record(no, signer, parents, Act::Reset { kept, recovery })
}

/// Devices 1 to `count`, all full, added by the first: records 1 to `count`.
fn account_of_full(count: u8) -> Vec<Node> {
    let adds = (2..=count).map(|no| add(no, 1, &[no - 1], no, Role::Full));
    std::iter::once(begin()).chain(adds).collect()
}

fn with(nodes: &[Node], more: impl IntoIterator<Item = Node>) -> Vec<Node> {
    nodes.iter().cloned().chain(more).collect()
}

fn who(nodes: &[Node]) -> Vec<u8> {
    who_by(1, nodes)
}

fn who_by(viewer: u8, nodes: &[Node]) -> Vec<u8> {
    seen_by(viewer, nodes)
        .into_iter()
        .map(|(no, _)| no)
        .collect()
}

#[test]
fn a_removed_device_is_none_and_what_it_does_later_is_nothing() {
    let base = account_of_full(3);
    let nodes = with(&base, [remove(10, 1, &[3], &[2])]);
    assert_eq!(who(&nodes), [1, 3]);
    // It knows of its removal, or says that it did not.
    for parents in [&[10][..], &[3]] {
        let later = [
            add(20, 2, parents, 4, Role::Full),
            role(21, 2, parents, 3, Role::Runs),
            add(22, 4, &[20], 5, Role::Full),
        ];
        assert_eq!(roles(&with(&nodes, later)), roles(&nodes));
    }
    // What it did before, and its remover knew, stands.
    let nodes = with(
        &base,
        [add(9, 2, &[3], 4, Role::Stop), remove(10, 1, &[9], &[2])],
    );
    assert_eq!(who(&nodes), [1, 3, 4]);
}

#[test]
fn keys_once_removed_are_never_accepted_again() {
    let nodes = with(
        &account_of_full(3),
        [
            remove(10, 1, &[3], &[2]),
            add(11, 3, &[10], 2, Role::Full),
            // As if the removal were not known.
            add(12, 3, &[3], 2, Role::Watch),
        ],
    );
    assert_eq!(who(&nodes), [1, 3]);
}

#[test]
fn a_device_may_leave_whatever_its_role_and_remove_nobody_else() {
    let base = [
        begin(),
        add(2, 1, &[1], 2, Role::Watch),
        add(3, 1, &[2], 3, Role::Stop),
    ];
    assert_eq!(who(&with(&base, [remove(10, 2, &[3], &[2])])), [1, 3]);
    for gone in [&[1][..], &[3], &[2, 3]] {
        assert_eq!(who(&with(&base, [remove(10, 2, &[3], gone)])), [1, 2, 3]);
    }
}

#[test]
fn a_role_is_the_last_that_was_said_and_the_weaker_of_two_said_at_once() {
    let base = account_of_full(3);
    let nodes = with(&base, [role(10, 1, &[3], 2, Role::Watch)]);
    assert_eq!(roles(&nodes)[1], (2, Role::Watch));
    let nodes = with(&nodes, [role(11, 3, &[10], 2, Role::Stop)]);
    assert_eq!(roles(&nodes)[1], (2, Role::Stop));
    let nodes = with(&nodes, [role(12, 1, &[10], 2, Role::Runs)]);
    assert_eq!(roles(&nodes)[1], (2, Role::Runs));
    // One that was lowered changes nothing any more; nor does it raise itself.
    let nodes = with(&nodes, [role(13, 2, &[11, 12], 2, Role::Full)]);
    assert_eq!(roles(&nodes)[1], (2, Role::Runs));
    // A role of nobody makes nobody a member.
    let nodes = with(&base, [role(10, 1, &[3], 7, Role::Full)]);
    assert_eq!(who(&nodes), [1, 2, 3]);
}

#[test]
fn of_two_that_remove_one_another_the_one_heard_first_by_all_others_stands() {
    let base = account_of_full(4);
    let both = with(
        &base,
        [remove(10, 1, &[4], &[2]), remove(11, 2, &[4], &[1])],
    );
    let first = with(&both, [ack(12, 3, &[10], 10), ack(13, 4, &[10], 10)]);
    for viewer in 1..=4 {
        assert_eq!(who_by(viewer, &first), [1, 3, 4]);
    }
    // Whoever heard of the other later says so: it changes nothing.
    let late = with(
        &first,
        [ack(14, 3, &[11, 12], 11), ack(15, 4, &[11, 13], 11)],
    );
    assert_eq!(who(&late), [1, 3, 4]);
    // Each reached somebody: both are out.
    let split = with(&both, [ack(12, 3, &[10], 10), ack(13, 4, &[11], 11)]);
    for viewer in 1..=4 {
        assert_eq!(who_by(viewer, &split), [3, 4]);
    }
}

#[test]
fn two_devices_alone_stay_each_with_its_own() {
    let nodes = with(
        &account_of_full(2),
        [remove(10, 1, &[2], &[2]), remove(11, 2, &[2], &[1])],
    );
    assert_eq!(who_by(1, &nodes), [1]);
    assert_eq!(who_by(2, &nodes), [2]);
    let members = members_of(account(), &nodes, device(1).id());
    assert!(
        members
            .removals()
            .iter()
            .all(|it| it.open && it.against.len() == 1)
    );
    // One that is admitted to a half stays with it.
    let nodes = with(&nodes, [add(12, 2, &[11], 3, Role::Full)]);
    assert_eq!(who_by(3, &nodes), [2, 3]);
    assert_eq!(who_by(1, &nodes), [1]);
    // Recovery decides.
    let nodes = with(&nodes, [reset(13, 200, &[10, 12], &[1, 3], 201)]);
    for viewer in 1..=3 {
        assert_eq!(who_by(viewer, &nodes), [1, 3]);
    }
}

#[test]
fn a_party_of_the_quarrel_is_no_witness() {
    let base = account_of_full(4);
    // The thief's friend is removed with it: what it says of the counter-removal
    // weighs nothing.
    let nodes = with(
        &base,
        [
            remove(10, 1, &[4], &[2, 3]),
            remove(11, 2, &[4], &[1]),
            ack(12, 4, &[10], 10),
            ack(13, 3, &[11], 11),
        ],
    );
    assert_eq!(who(&nodes), [1, 4]);
}

#[test]
fn recovery_removes_and_begins_anew_and_beats_what_does_not_build_on_it() {
    let base = account_of_full(4);
    assert_eq!(who(&with(&base, [remove(10, 200, &[4], &[2, 3])])), [1, 4]);
    // The thief removed all others; the reset brings two of them back, and what the
    // thief does besides is nothing.
    let taken = with(&base, [remove(10, 2, &[4], &[1, 3, 4])]);
    assert_eq!(who_by(2, &taken), [2]);
    let back = with(&taken, [reset(11, 200, &[10], &[1, 3], 201)]);
    for viewer in 1..=4 {
        assert_eq!(who_by(viewer, &back), [1, 3]);
    }
    let beside = [
        add(12, 2, &[10], 5, Role::Full),
        add(13, 2, &[11], 6, Role::Full),
        reset(14, 200, &[11], &[2], 202),
        remove(15, 200, &[11], &[1]),
        add(16, 1, &[11], 2, Role::Full),
    ];
    assert_eq!(who(&with(&back, beside)), [1, 3]);
    let next = [
        add(17, 1, &[11], 7, Role::Full),
        reset(18, 201, &[17], &[7], 202),
    ];
    let next = with(&back, next);
    assert_eq!(who(&next), [7]);
    let members = members_of(account(), &next, device(7).id());
    assert_eq!(members.recovery(), Some(&device(202)));
    assert_eq!(members.window_days(), 30);
}

#[test]
fn of_two_resets_the_lower_hash_stands() {
    let base = account_of_full(3);
    let one = reset(10, 200, &[3], &[1], 201);
    let other = reset(11, 200, &[3], &[2], 202);
    let builds = add(12, 2, &[11], 5, Role::Full);
    let nodes = with(&base, [other.clone(), builds.clone(), one.clone()]);
    assert_eq!(who(&nodes), [1]);
    assert_eq!(who(&with(&base, [one, builds, other])), [1]);
}

#[test]
fn a_signer_whose_adding_is_undone_has_done_nothing() {
    // The thief adds a friend and it acts, before anybody hears; the remover did not
    // know either.
    let nodes = with(
        &account_of_full(3),
        [
            add(10, 2, &[3], 5, Role::Full),
            remove(11, 5, &[10], &[3]),
            remove(12, 1, &[3], &[2]),
            ack(13, 3, &[12], 12),
        ],
    );
    assert_eq!(who(&nodes), [1, 3]);
    assert_eq!(who_by(5, &nodes), [1, 3]);
}

#[test]
fn whose_adding_is_undone_is_known_to_be_told_so_and_nothing_else() {
    let undone = |nodes: &[Node]| -> Vec<DeviceId> {
        let members = members_of(account(), nodes, device(1).id());
        assert!(members.undone().all(|(id, _)| members.writer(id).is_none()));
        assert!(members.undone().all(|(id, _)| !members.was_removed(id)));
        members.undone().map(|(id, _)| *id).collect()
    };
    // Two is removed and does not know; it adds four, which adds five.
    let nodes = with(
        &account_of_full(3),
        [
            remove(10, 1, &[3], &[2]),
            add(11, 2, &[3], 4, Role::Full),
            add(12, 4, &[11], 5, Role::Stop),
        ],
    );
    let mut both = [device(4).id(), device(5).id()];
    both.sort_unstable();
    assert_eq!(undone(&nodes), both);
    // What the removal knew of is a member, and one that is removed was one.
    let nodes = with(
        &account_of_full(3),
        [
            add(10, 2, &[3], 4, Role::Full),
            remove(11, 1, &[10], &[2]),
            remove(12, 1, &[11], &[4]),
        ],
    );
    assert_eq!(undone(&nodes), []);
    // One that nobody could add is nobody.
    let nodes = with(
        &account_of_full(3),
        [remove(10, 1, &[3], &[2]), add(11, 2, &[10], 4, Role::Full)],
    );
    assert_eq!(undone(&nodes), []);
    // Added again by a member, it is one.
    let nodes = with(
        &account_of_full(3),
        [
            remove(10, 1, &[3], &[2]),
            add(11, 2, &[3], 4, Role::Full),
            add(12, 1, &[10], 4, Role::Full),
        ],
    );
    assert_eq!(undone(&nodes), []);
}
