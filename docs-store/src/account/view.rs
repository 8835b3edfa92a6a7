//! What a set of records says: which of them count, and who is a member by those.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bailey_envelope::DevicePublic;
use bailey_model::DeviceId;

use super::judge::{Node, Records};
use super::members::{Member, Removal};
use super::record::{Act, Role, account_of};
use super::set::Set;

/// Whether a record counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Unknown,
    In,
    Out,
}

/// What is known of a question while some records are undecided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known<T> {
    Yet,
    Is(T),
}

/// What a set of records says, as one device sees it.
pub(super) struct View<'a> {
    records: &'a Records,
    /// The records looked at; all that are judged if `None`.
    set: Option<&'a Set>,
    /// The last reset, if there is one: only what builds on it counts (M5).
    pub(super) base: Option<usize>,
    /// Those that are allowed and build on the base, each after what it rests on.
    scope: Vec<usize>,
    /// By record.
    pub(super) state: Vec<State>,
    /// Adds and roles, by whom they are about, in order.
    about: HashMap<DeviceId, Vec<usize>>,
    /// Removals, by whom they remove.
    against: HashMap<DeviceId, Vec<usize>>,
    /// Acks, by the removal.
    acks: HashMap<usize, Vec<usize>>,
    /// What only the viewer's own side decided.
    open: BTreeSet<usize>,
}

impl<'a> View<'a> {
    pub(super) fn of(records: &'a Records, set: Option<&'a Set>, viewer: DeviceId) -> Self {
        let mut view = Self {
            records,
            set,
            base: None,
            scope: Vec::new(),
            state: vec![State::Out; records.nodes.len()],
            about: HashMap::new(),
            against: HashMap::new(),
            acks: HashMap::new(),
            open: BTreeSet::new(),
        };
        view.find_base();
        view.fill();
        view.decide(viewer);
        view
    }

    fn contains(&self, at: usize) -> bool {
        self.set.is_none_or(|set| set.contains(at))
    }

    /// M5: of the resets that build on the same, the one with the lower hash.
    fn find_base(&mut self) {
        let records = self.records;
        loop {
            let next = records.order.iter().copied().filter(|at| {
                let of_base = records.judged[*at]
                    .as_ref()
                    .is_some_and(|judged| judged.allowed && judged.base == self.base);
                of_base && self.contains(*at) && matches!(records.nodes[*at].act, Act::Reset { .. })
            });
            match next.min_by_key(|at| records.nodes[*at].hash) {
                Some(reset) => self.base = Some(reset),
                None => return,
            }
        }
    }

    fn fill(&mut self) {
        let records = self.records;
        for at in records.order.iter().copied() {
            let builds = self
                .base
                .is_none_or(|base| at == base || records.past(at, base));
            if !(builds && self.contains(at) && records.allowed(at)) {
                continue;
            }
            self.scope.push(at);
            self.state[at] = State::Unknown;
            match &records.nodes[at].act {
                Act::Add { device, .. } => self.about.entry(device.id()).or_default().push(at),
                Act::Role { device, .. } => self.about.entry(*device).or_default().push(at),
                Act::Remove { devices } => {
                    for device in devices {
                        self.against.entry(*device).or_default().push(at);
                    }
                }
                Act::Ack { removal } => {
                    if let Some(removal) = records.index.get(removal) {
                        self.acks.entry(*removal).or_default().push(at);
                    }
                }
                Act::Genesis(_) | Act::Reset { .. } => self.state[at] = State::In,
            }
        }
    }

    /// Decides what follows from what is decided, again and again; what then is
    /// open between removals that undo one another, the viewer's side decides.
    fn decide(&mut self, viewer: DeviceId) {
        loop {
            let mut progress = false;
            for at in self.scope.clone() {
                if self.state[at] == State::Unknown
                    && let Known::Is(counts) = self.counts(at)
                {
                    self.state[at] = if counts { State::In } else { State::Out };
                    progress = true;
                }
            }
            if !progress && !self.take_side(viewer) {
                return;
            }
        }
    }

    /// M4: a device stays with what it signed or was admitted under. Where that says
    /// nothing all of them stand: it fails closed.
    fn take_side(&mut self, viewer: DeviceId) -> bool {
        let open: Vec<usize> = self
            .scope
            .iter()
            .copied()
            .filter(|at| self.state[*at] == State::Unknown && !self.records.targets(*at).is_empty())
            .collect();
        let sure = |at: &usize| self.authority(*at) == Known::Is(true);
        let mut among: Vec<usize> = open.iter().copied().filter(sure).collect();
        if among.is_empty() {
            among = open;
        }
        let own = self.own_side(viewer);
        let ours: Vec<usize> = among
            .iter()
            .copied()
            .filter(|at| own.contains(*at))
            .collect();
        let unopposed = |at: &usize| {
            let others = ours.iter().filter(|other| *other != at);
            others.copied().all(|other| {
                !self.hits(other, *at) || self.protected(*at, other) == Known::Is(true)
            })
        };
        let ours: Vec<usize> = ours.iter().copied().filter(unopposed).collect();
        let stand = if ours.is_empty() { &among } else { &ours };
        for at in stand {
            self.state[*at] = State::In;
        }
        self.open.extend(&among);
        !among.is_empty()
    }

    /// What a device signed or was admitted under, and all that this rests on.
    fn own_side(&self, viewer: DeviceId) -> Set {
        let mut own = Set::default();
        for at in self.scope.iter().copied() {
            let node = &self.records.nodes[at];
            let admits = matches!(&node.act, Act::Add { device, .. } if device.id() == viewer);
            if node.signer == viewer || admits {
                own.insert(at);
                if let Some(judged) = &self.records.judged[at] {
                    own.union(&judged.past);
                }
            }
        }
        own
    }

    /// Whether a record counts: its signer had the role by what counts (M1), and no
    /// removal undoes it (M2, M3).
    fn counts(&self, at: usize) -> Known<bool> {
        let authority = self.authority(at);
        if authority == Known::Is(false) {
            return authority;
        }
        let mut sure = authority == Known::Is(true);
        let signer = &self.records.nodes[at].signer;
        for removal in self.against.get(signer).into_iter().flatten().copied() {
            if !self.hits(removal, at) {
                continue;
            }
            match (self.state[removal], self.protected(at, removal)) {
                (State::Out, _) | (_, Known::Is(true)) => {}
                (State::In, Known::Is(false)) => return Known::Is(false),
                _ => sure = false,
            }
        }
        if sure { Known::Is(true) } else { Known::Yet }
    }

    /// Whether a removal would undo a record: neither knew the other, and it removes
    /// the signer.
    fn hits(&self, removal: usize, at: usize) -> bool {
        let records = self.records;
        removal != at
            && records.targets(removal).contains(&records.nodes[at].signer)
            && !records.past(at, removal)
            && !records.past(removal, at)
    }

    /// M3: whether a removal stands in spite of another, since a member of both
    /// pasts, not one of the parties, applied it without knowing the other.
    fn protected(&self, at: usize, other: usize) -> Known<bool> {
        let records = self.records;
        let (Some(judged), Some(judged_other)) = (&records.judged[at], &records.judged[other])
        else {
            return Known::Is(false);
        };
        let mut known = Known::Is(false);
        for ack in self.acks.get(&at).into_iter().flatten().copied() {
            let by = records.nodes[ack].signer;
            let party = [at, other].iter().any(|removal| {
                records.nodes[*removal].signer == by || records.targets(*removal).contains(&by)
            });
            let of_both = judged.before.contains(&by) && judged_other.before.contains(&by);
            if party || !of_both || records.past(ack, other) {
                continue;
            }
            match self.state[ack] {
                State::In => return Known::Is(true),
                State::Unknown => known = Known::Yet,
                State::Out => {}
            }
        }
        known
    }

    /// Whether the signer of a record may do this, by what counts of its past.
    fn authority(&self, at: usize) -> Known<bool> {
        let node = &self.records.nodes[at];
        let past = self.records.judged[at].as_ref().map(|judged| &judged.past);
        // The keys of the base, which every record of the scope builds on.
        if self.recovery().is_some_and(|keys| keys.id() == node.signer) {
            return Known::Is(true);
        }
        match self.role_of(node.signer, past) {
            Known::Yet => Known::Yet,
            Known::Is(role) => Known::Is(may(node, role)),
        }
    }

    /// The role of a device by what counts, of a past or of all: the weakest of what
    /// was said last, and none once a removal stands.
    fn role_of(&self, device: DeviceId, past: Option<&Set>) -> Known<Option<Role>> {
        let within = |at: usize| past.is_none_or(|past| past.contains(at));
        let mut sure = true;
        for removal in self.against.get(&device).into_iter().flatten().copied() {
            match self.state[removal] {
                State::In if within(removal) => return Known::Is(None),
                State::Unknown if within(removal) => sure = false,
                _ => {}
            }
        }
        let first = self.first_role(device);
        let (mut role, mut added) = (None, first.is_some());
        let mut later = Set::default();
        let about = self.about.get(&device);
        for at in about.into_iter().flatten().rev().copied() {
            if !within(at) || self.state[at] == State::Out {
                continue;
            }
            if self.state[at] == State::Unknown {
                sure = false;
                continue;
            }
            let said = match &self.records.nodes[at].act {
                Act::Add { role, .. } => {
                    added = true;
                    *role
                }
                Act::Role { role, .. } => *role,
                _ => continue,
            };
            if !later.contains(at) {
                role = Some(role.map_or(said, |role: Role| role.min(said)));
            }
            if let Some(judged) = &self.records.judged[at] {
                later.union(&judged.past);
            }
        }
        match sure {
            true => Known::Is(role.or(first).filter(|_| added)),
            false => Known::Yet,
        }
    }

    /// The role that a device began with, by the base.
    fn first_role(&self, device: DeviceId) -> Option<Role> {
        match self.base_act()? {
            Act::Genesis(genesis) => (genesis.first.id() == device).then_some(Role::Full),
            Act::Reset { kept, .. } => kept
                .iter()
                .find(|(public, _)| public.id() == device)
                .map(|(_, role)| *role),
            _ => None,
        }
    }

    /// How the account began, or began anew.
    fn base_act(&self) -> Option<&'a Act> {
        let records = self.records;
        let base = self.base.or_else(|| {
            let mut scope = self.scope.iter().copied();
            scope.find(|at| matches!(records.nodes[*at].act, Act::Genesis(_)))
        });
        base.map(|base| &records.nodes[base].act)
    }

    pub(super) fn recovery(&self) -> Option<DevicePublic> {
        match self.base_act()? {
            Act::Genesis(genesis) => Some(genesis.recovery),
            Act::Reset { recovery, .. } => Some(*recovery),
            _ => None,
        }
    }

    pub(super) fn window_days(&self) -> u16 {
        let acts = self.records.nodes.iter().map(|node| &node.act);
        let mut days = acts.filter_map(|act| match act {
            Act::Genesis(genesis) if account_of(genesis) == Some(self.records.account) => {
                Some(genesis.window_days)
            }
            _ => None,
        });
        days.next().unwrap_or_default()
    }

    /// Whether a record that comes next may do what it does (M1).
    pub(super) fn allows(&self, node: &Node) -> bool {
        match &node.act {
            Act::Genesis(genesis) => account_of(genesis) == Some(self.records.account),
            Act::Reset { .. } => self.recovery().is_some_and(|keys| keys.id() == node.signer),
            Act::Remove { .. } if self.recovery().is_some_and(|it| it.id() == node.signer) => true,
            act => {
                let role = match self.role_of(node.signer, self.set) {
                    Known::Is(role) => role,
                    Known::Yet => None,
                };
                let sound = match act {
                    Act::Add { device, .. } => !self.was_removed(device.id()),
                    Act::Ack { removal } => self.records.index.get(removal).is_some_and(|at| {
                        self.contains(*at) && !self.records.targets(*at).is_empty()
                    }),
                    _ => true,
                };
                sound && may(node, role)
            }
        }
    }

    /// Keys once removed are never accepted again, but where a reset keeps them.
    fn was_removed(&self, device: DeviceId) -> bool {
        let removals = self.against.get(&device).into_iter().flatten();
        let removed = removals.into_iter().any(|at| self.state[*at] == State::In);
        let left_out = self.base.is_some_and(|base| {
            let records = self.records;
            let mut known = records
                .order
                .iter()
                .copied()
                .filter(|at| records.past(base, *at) && records.allowed(*at));
            known.any(|at| {
                records.nodes[at]
                    .act
                    .named()
                    .iter()
                    .any(|it| it.id() == device)
            })
        });
        removed || (left_out && self.first_role(device).is_none())
    }

    pub(super) fn members(&self) -> BTreeMap<DeviceId, Member> {
        let mut devices = BTreeMap::new();
        let mut consider = |public: DevicePublic| {
            if let Known::Is(Some(role)) = self.role_of(public.id(), self.set) {
                devices.insert(public.id(), Member { public, role });
            }
        };
        match self.base_act() {
            Some(Act::Genesis(genesis)) => consider(genesis.first),
            Some(Act::Reset { kept, .. }) => kept.iter().for_each(|(it, _)| consider(*it)),
            _ => {}
        }
        for at in &self.scope {
            if let (State::In, Act::Add { device, .. }) =
                (self.state[*at], &self.records.nodes[*at].act)
            {
                consider(*device);
            }
        }
        devices
    }

    pub(super) fn removals(&self) -> Vec<Removal> {
        let records = self.records;
        let removals = self.scope.iter().copied();
        let removals: Vec<usize> = removals
            .filter(|at| !records.targets(*at).is_empty())
            .collect();
        let of = |at: usize| {
            let acks = self.acks.get(&at).into_iter().flatten();
            let acks = acks.filter(|ack| self.state[**ack] == State::In);
            let by = records.nodes[at].signer;
            let opposed = removals.iter().copied();
            let opposed = opposed.filter(|other| self.hits(*other, at) && self.hits(at, *other));
            Removal {
                record: records.nodes[at].hash,
                by,
                devices: records.targets(at).to_vec(),
                stands: self.state[at] == State::In,
                open: self.open.contains(&at),
                confirmed: acks
                    .map(|ack| records.nodes[*ack].signer)
                    .chain([by])
                    .collect(),
                against: opposed.map(|other| records.nodes[other].hash).collect(),
            }
        };
        let mut all: Vec<Removal> = removals.iter().map(|at| of(*at)).collect();
        all.iter_mut().for_each(|one| one.against.sort_unstable());
        all.sort_by_key(|one| one.record);
        all
    }
}

/// Whether a device of this role may do what a record does.
fn may(node: &Node, role: Option<Role>) -> bool {
    match &node.act {
        Act::Add { .. } | Act::Role { .. } => role == Some(Role::Full),
        Act::Remove { devices } => {
            role == Some(Role::Full) || (role.is_some() && *devices == [node.signer])
        }
        Act::Ack { .. } => role.is_some(),
        Act::Genesis(_) | Act::Reset { .. } => false,
    }
}
