//! The members, as the records say.

use std::collections::{BTreeMap, BTreeSet};

use bailey_envelope::{DevicePublic, Hash};
use bailey_model::DeviceId;

use super::record::Role;

/// A member of the account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Its public keys.
    pub public: DevicePublic,
    /// What it may do.
    pub role: Role,
}

/// A removal that its signer was allowed to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// The record.
    pub record: Hash,
    /// Who signed it: a device, or the recovery keys.
    pub by: DeviceId,
    /// Who is removed by it.
    pub devices: Vec<DeviceId>,
    /// Whether it stands.
    pub stands: bool,
    /// Whether only which side this device is on decided that: no third device has
    /// said which of two it heard first.
    pub open: bool,
    /// Which devices have said that they applied it.
    pub confirmed: BTreeSet<DeviceId>,
    /// Removals that would undo it, and that it would undo: neither knew the other.
    pub against: Vec<Hash>,
}

/// The members of an account.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Members {
    pub(super) devices: BTreeMap<DeviceId, Member>,
    pub(super) former: BTreeMap<DeviceId, DevicePublic>,
    pub(super) undone: BTreeMap<DeviceId, DevicePublic>,
    pub(super) signers: BTreeMap<DeviceId, DevicePublic>,
    pub(super) adders: BTreeSet<(DeviceId, DeviceId)>,
    pub(super) removals: Vec<Removal>,
    pub(super) recovery: Option<DevicePublic>,
    pub(super) window_days: u16,
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

    /// Devices that were members and are none any more.
    pub fn former(&self) -> impl Iterator<Item = (&DeviceId, &DevicePublic)> {
        self.former.iter()
    }

    /// Devices whose adding was undone, and that nothing else makes members: whoever
    /// added them was removed by one that did not know of them. They may take
    /// themselves for members until somebody tells them.
    pub fn undone(&self) -> impl Iterator<Item = (&DeviceId, &DevicePublic)> {
        self.undone.iter()
    }

    /// The members that a device added: whoever removes it may want these gone too.
    pub fn added_by(&self, device: DeviceId) -> impl Iterator<Item = DeviceId> + '_ {
        let adders = self.adders.iter().filter(move |(by, _)| *by == device);
        adders.map(|(_, added)| *added)
    }

    /// Every removal that its signer was allowed to write, whether it stands or not.
    #[must_use]
    pub fn removals(&self) -> &[Removal] {
        &self.removals
    }

    /// The members that have not said that they applied a removal.
    pub fn unconfirmed<'a>(&'a self, removal: &'a Removal) -> impl Iterator<Item = DeviceId> + 'a {
        let members = self.devices.keys().copied();
        members.filter(|device| !removal.confirmed.contains(device))
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

    /// Whether a device's keys are no longer accepted.
    pub(crate) fn was_removed(&self, device: &DeviceId) -> bool {
        self.former.contains_key(device)
    }

    /// The keys of whoever may have signed a record of the account: members, those
    /// who were, and recovery. What such a record is worth, the rules say.
    pub(crate) fn signer(&self, device: &DeviceId) -> Option<&DevicePublic> {
        self.signers.get(device)
    }

    /// The keys of whoever may have written entries: members and those who were.
    pub(crate) fn writer(&self, device: &DeviceId) -> Option<&DevicePublic> {
        let member = self.devices.get(device).map(|member| &member.public);
        member.or_else(|| self.former.get(device))
    }
}
