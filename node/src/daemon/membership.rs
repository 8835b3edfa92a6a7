//! Who belongs to the account: removing devices, roles, leaving, new keys.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bailey_docs_store::{Hash, Members, Removal, Role};
use bailey_model::{DeviceId, Rule, Timestamp};

use super::Node;
use super::event::ConnId;
use super::store::{AccountChange, StoreAsk};
use crate::account;
use crate::api::{Failure, Tell};
use crate::rows::{self, DeviceRow, RemovedRow};

/// How long a person waits for the connected devices to say that they applied a
/// removal; whoever has not by then is named.
const CONFIRMING: Duration = Duration::from_millis(1_500);
/// Fewest digits of an id that stand for a device.
const MIN_DIGITS: usize = 4;

/// Changes that a connection waits for.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Under way at the store.
    asked: BTreeMap<ConnId, Asked>,
    /// Removals that stand, and for which others' word is awaited.
    confirming: BTreeMap<ConnId, Confirming>,
}

#[derive(Debug)]
enum Asked {
    Remove(Box<RemovedRow>),
    Role(DeviceId),
    Rotate,
}

#[derive(Debug)]
struct Confirming {
    record: Hash,
    row: Box<RemovedRow>,
    until: Instant,
}

impl Changes {
    pub(super) fn drop_conn(&mut self, conn: ConnId) {
        self.asked.remove(&conn);
        self.confirming.remove(&conn);
    }
}

impl Node {
    /// A device of the account by its name, or by the first digits of its id.
    fn device_of(&self, target: &str) -> Result<DeviceId, Failure> {
        let found: Vec<DeviceId> = self
            .devices
            .members()
            .iter()
            .map(|(device, _)| *device)
            .filter(|device| {
                let digits = target.len() >= MIN_DIGITS && device.to_string().starts_with(target);
                digits || self.fold.device_name(*device) == target
            })
            .collect();
        match found.as_slice() {
            [one] => Ok(*one),
            [] => Err(
                Failure::usage(format!("no device {target:?} in the account"))
                    .hint(account::command("device list names them")),
            ),
            _ => Err(
                Failure::usage(format!("several devices are called {target:?}")).hint(format!(
                    "the first digits of the id that {} shows",
                    account::command("device list")
                )),
            ),
        }
    }

    fn role_here(&self) -> Option<Role> {
        let me = self.devices.members().get(&self.this);
        me.map(|me| me.role)
    }

    fn must_be_full(&self) -> Result<(), Failure> {
        match self.role_here() {
            Some(Role::Full) => Ok(()),
            Some(role) => Err(Failure::usage(format!(
                "this device is `{}` in the account; only a `full` one may",
                role.as_str()
            ))),
            None if self.account.is_none() => {
                Err(Failure::usage("this device belongs to no account yet"))
            }
            None => Err(self.not_a_member()),
        }
    }

    /// What there is to say where this device is no member of its account.
    pub(super) fn not_a_member(&self) -> Failure {
        let state = self.paths.state.display();
        Failure::host("this device was removed from its account: nothing can be entered here").hint(
            format!(
                "what it holds can still be read; to begin anew, end its node and move {state} away"
            ),
        )
    }

    /// Whether this device has an account and is no member of it.
    pub(super) fn is_removed(&self) -> bool {
        self.account.is_some() && !self.devices.members().is_empty() && self.role_here().is_none()
    }

    pub(super) fn on_device_remove(
        &mut self,
        conn: ConnId,
        targets: &[String],
        words: Option<String>,
    ) -> Result<(), Failure> {
        match words {
            None => self.must_be_full()?,
            // It needs no role, and a device that is out is heard by nobody.
            Some(_) if self.role_here().is_none() => return self.must_be_full(),
            Some(_) => {}
        }
        let devices: Result<Vec<DeviceId>, Failure> = targets
            .iter()
            .map(|target| self.device_of(target))
            .collect();
        let devices = devices?;
        if devices.contains(&self.this) {
            return Err(Failure::usage("this is the device itself")
                .hint(account::command("device leave takes it out")));
        }
        self.begin_removal(conn, devices, words);
        Ok(())
    }

    pub(super) fn on_device_leave(&mut self, conn: ConnId) -> Result<(), Failure> {
        if self.role_here().is_none() {
            return self.must_be_full();
        }
        if self.devices.members().len() == 1 {
            return Err(Failure::usage("this is the only device of its account"));
        }
        if !self.runs.is_empty() {
            return Err(
                Failure::usage("boxes still run here").hint(account::command("stop ends them"))
            );
        }
        self.begin_removal(conn, vec![self.this], None);
        Ok(())
    }

    fn begin_removal(&mut self, conn: ConnId, devices: Vec<DeviceId>, words: Option<String>) {
        let row = Box::new(self.removed_row(&devices));
        self.changes.asked.insert(conn, Asked::Remove(row));
        let change = match words {
            None => AccountChange::Remove(devices),
            Some(words) => AccountChange::RemoveByRecovery(devices, words),
        };
        self.change_account(conn, change);
    }

    pub(super) fn on_device_role(
        &mut self,
        conn: ConnId,
        target: &str,
        role: &str,
    ) -> Result<(), Failure> {
        self.must_be_full()?;
        let device = self.device_of(target)?;
        let role = Role::from_word(role)
            .ok_or_else(|| Failure::usage(format!("no role {role:?}: full, stop, watch, runs")))?;
        let members = self.devices.members();
        let other_is_full = members
            .iter()
            .any(|(id, member)| *id != device && member.role == Role::Full);
        if role != Role::Full && !other_is_full {
            return Err(Failure::usage("no other device of the account is `full`")
                .hint("nobody could add or remove devices any more"));
        }
        self.changes.asked.insert(conn, Asked::Role(device));
        self.change_account(conn, AccountChange::Role(device, role));
        Ok(())
    }

    pub(super) fn on_device_rotate(&mut self, conn: ConnId) -> Result<(), Failure> {
        if self.role_here().is_none() {
            return self.must_be_full();
        }
        self.changes.asked.insert(conn, Asked::Rotate);
        self.change_account(conn, AccountChange::Rotate);
        Ok(())
    }

    fn change_account(&mut self, conn: ConnId, change: AccountChange) {
        self.ask_store(StoreAsk::Change { conn, change });
    }

    /// The store has written the record, or not.
    pub(super) fn on_changed(&mut self, conn: ConnId, changed: Result<Option<Hash>, String>) {
        let Some(asked) = self.changes.asked.remove(&conn) else {
            return;
        };
        match (asked, changed) {
            (_, Err(why)) => self.tell(conn, Tell::Failed(Failure::host(why))),
            (Asked::Remove(row), Ok(record)) => {
                let confirming = Confirming {
                    record: record.unwrap_or(Hash::NONE),
                    row,
                    until: Instant::now() + CONFIRMING,
                };
                self.changes.confirming.insert(conn, confirming);
                self.finish_confirmed(Instant::now());
            }
            (Asked::Role(device), Ok(_)) => {
                let rows = self.device_rows();
                let row = rows.into_iter().find(|row| row.id == device.to_string());
                if let Some(row) = row {
                    self.tell(conn, Tell::Device(row));
                }
                self.tell(conn, Tell::Done);
            }
            (Asked::Rotate, Ok(_)) => self.tell(conn, Tell::Done),
        }
    }

    /// Answers those whose removal every connected device has applied, and those who
    /// have waited long enough.
    pub(super) fn finish_confirmed(&mut self, now: Instant) {
        let members = self.devices.members();
        let waits = |confirming: &Confirming| {
            let removal = find(members, confirming.record);
            let open = removal.map(|removal| {
                let mut open = members.unconfirmed(removal);
                open.any(|device| self.devices.is_up(device))
            });
            now < confirming.until && open.unwrap_or(true)
        };
        let over: Vec<ConnId> = self
            .changes
            .confirming
            .iter()
            .filter(|(_, confirming)| !waits(confirming))
            .map(|(conn, _)| *conn)
            .collect();
        for conn in over {
            let Some(Confirming {
                record, mut row, ..
            }) = self.changes.confirming.remove(&conn)
            else {
                continue;
            };
            row.unconfirmed = self.unconfirmed(record);
            self.finish(conn, Tell::Removed(row));
        }
    }

    fn unconfirmed(&self, record: Hash) -> Vec<String> {
        let members = self.devices.members();
        let removal = find(members, record).into_iter();
        let devices = removal.flat_map(|removal| members.unconfirmed(removal));
        let devices = devices.filter(|device| *device != self.this);
        devices
            .map(|device| self.fold.device_name(device))
            .collect()
    }

    /// What is to be said of devices that are about to be removed.
    fn removed_row(&self, devices: &[DeviceId]) -> RemovedRow {
        let members = self.devices.members();
        let reads = |device: &DeviceId| {
            let member = members.get(device);
            member.is_some_and(|member| member.role.reads())
        };
        let mut could_read: Vec<String> = Vec::new();
        if devices.iter().any(reads) {
            let boxes = self.fold.boxes();
            let shared = boxes.iter().filter(|state| !state.here);
            could_read = shared
                .map(|state| {
                    let device = self.fold.device_name(state.writer);
                    format!("{}@{device}", state.name)
                })
                .collect();
            could_read.sort_unstable();
            could_read.dedup();
        }
        let added: BTreeSet<DeviceId> = devices
            .iter()
            .flat_map(|device| members.added_by(*device))
            .filter(|added| !devices.contains(added) && *added != self.this)
            .collect();
        let heard = devices
            .iter()
            .filter_map(|it| self.devices.heard(*it))
            .max();
        let name = |device: &DeviceId| self.fold.device_name(*device);
        RemovedRow {
            v: rows::V,
            devices: devices.iter().map(ToString::to_string).collect(),
            names: devices.iter().map(name).collect(),
            could_read,
            last_heard: heard.map(|at| at.to_string()),
            added: added.iter().map(name).collect(),
            unconfirmed: Vec::new(),
        }
    }

    pub(super) fn on_device_list(&mut self, conn: ConnId) {
        let devices = self.device_rows().into_iter().map(Tell::Device);
        let mailboxes = self.mailbox_rows().into_iter().map(Tell::Mailbox);
        self.answer_all(conn, devices.chain(mailboxes).collect());
    }

    /// The account's devices, those who are none any more among them.
    pub(super) fn device_rows(&self) -> Vec<DeviceRow> {
        let members = self.devices.members();
        let current = members
            .iter()
            .map(|(id, member)| (*id, member.role.as_str()));
        let former = members.former().map(|(id, _)| (*id, "removed"));
        let found = |rule, id| self.fold.found(rule, id).map(|at| at.to_string());
        let row = |(id, role): (DeviceId, &str)| {
            let removal = last_removal(members, id).filter(|_| role == "removed");
            DeviceRow {
                v: rows::V,
                id: id.to_string(),
                name: self.fold.device_name(id),
                role: role.to_owned(),
                this: id == self.this,
                connected: self.devices.is_up(id),
                last_heard: self.devices.heard(id).map(|at| at.to_string()),
                removed_by: removal.map(|it| self.signer_name(it.by)),
                unconfirmed: removal
                    .map(|it| self.unconfirmed(it.record))
                    .unwrap_or_default(),
                conflict: self.conflict(id),
                gaps: match role {
                    // What comes of it now is kept, and not passed on.
                    "removed" => Vec::new(),
                    _ => self.gaps_of(id),
                },
                went_back: found(Rule::StoreWentBack, id),
                two_of_one: found(Rule::TwoOfOneNumber, id),
                clock_ahead: self.clock_ahead(id),
                left_out: self.devices.is_left_out(id),
            }
        };
        current.chain(former).map(row).collect()
    }

    fn signer_name(&self, by: DeviceId) -> String {
        let recovery = self.devices.members().recovery();
        match recovery.is_some_and(|recovery| recovery.id() == by) {
            true => "the recovery key".to_owned(),
            false => self.fold.device_name(by),
        }
    }

    /// A quarrel that a device is in, in words.
    fn conflict(&self, device: DeviceId) -> Option<String> {
        let members = self.devices.members();
        let name = |id: DeviceId| match id == self.this {
            true => "you".to_owned(),
            false => self.fold.device_name(id),
        };
        members.removals().iter().find_map(|theirs| {
            let ours = theirs
                .against
                .iter()
                .find_map(|other| find(members, *other))?;
            (theirs.by == device).then_some(())?;
            let (they, we) = (name(theirs.by), name(ours.by));
            let end = match (theirs.open || ours.open, theirs.stands, ours.stands) {
                (true, ..) => "recovery decides".to_owned(),
                (_, true, true) => "both are out".to_owned(),
                (_, true, false) => format!("the others heard {they} first"),
                _ => format!("the others heard {we} first"),
            };
            Some(format!("{they} removed {we}, {we} removed {they}; {end}"))
        })
    }
}

fn find(members: &Members, record: Hash) -> Option<&Removal> {
    let mut removals = members.removals().iter();
    removals.find(|removal| removal.record == record)
}

fn last_removal(members: &Members, device: DeviceId) -> Option<&Removal> {
    let mut removals = members.removals().iter();
    removals.find(|removal| removal.stands && removal.devices.contains(&device))
}

/// When each device was heard last.
#[derive(Debug, Default)]
pub(super) struct Heard(BTreeMap<DeviceId, Timestamp>);

impl Heard {
    /// It was heard at a time; a clock that is ahead counts as now.
    pub(super) fn note(&mut self, device: DeviceId, at: Timestamp, now: Timestamp) {
        let last = self.0.entry(device).or_insert(Timestamp(0));
        *last = (*last).max(at.min(now));
    }

    pub(super) fn of(&self, device: DeviceId) -> Option<Timestamp> {
        self.0.get(&device).copied()
    }
}
