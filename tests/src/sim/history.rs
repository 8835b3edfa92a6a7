//! What happens, by the dice.

use bailey_docs_store::{DocId, Role};
use bailey_model::BoxId;

use super::evil::Forgery;
use super::world::World;

/// A week, in milliseconds: as far as a clock may be off.
const WEEK_MS: u64 = 7 * 24 * 3_600_000;

/// One thing that happens.
#[derive(Debug, Clone, Copy)]
pub(super) enum Action {
    /// A device writes so many entries of a document.
    Write(usize, DocId, u64),
    /// A device adds another.
    Add(usize, Role),
    /// A device removes another, or itself.
    Remove(usize, usize),
    /// A device gives another a role.
    Role(usize, usize, Role),
    /// A device begins new keys.
    Rotate(usize),
    /// Two cannot reach each other from here on.
    Cut(usize, usize),
    /// One cannot reach the mailbox from here on.
    CutMail(usize),
    /// All can.
    Heal,
    /// A connection ends, with what was under way.
    Break(usize, usize),
    /// A device ends at once.
    Kill(usize),
    /// Its power goes.
    Power(usize),
    /// It runs again.
    Start(usize),
    /// Somebody copies its folder.
    Copy(usize),
    /// And puts the copy back.
    Restore(usize),
    /// Its clock is so far off, in milliseconds.
    Clock(usize, i64),
    /// It garbles what it sends.
    Lie(usize),
    /// It keeps to no rule any more.
    Turn(usize),
    /// It makes something that it may not.
    Forge(usize, Forgery),
}

pub(super) const BOXES: [DocId; 2] = [DocId::Box(BoxId([1; 16])), DocId::Box(BoxId([2; 16]))];
/// The documents that are written.
pub(super) const DOCS: [DocId; 5] = [
    DocId::Node,
    DocId::Notices,
    DocId::Requests,
    BOXES[0],
    BOXES[1],
];
const ROLES: [Role; 5] = [Role::Full, Role::Full, Role::Stop, Role::Watch, Role::Runs];
const FORGERIES: [Forgery; 7] = [
    Forgery::Garbage,
    Forgery::Skip,
    Forgery::Again,
    Forgery::Fork,
    Forgery::Record,
    Forgery::Record,
    Forgery::Record,
];

pub(super) fn choose(world: &mut World) -> Action {
    let devices = world.devices.len();
    let evil = world.evil();
    let (by_mail, may_add) = (world.by_mail, devices < world.most);
    let dice = &mut world.dice;
    let (one, other) = (dice.index(devices), dice.index(devices));
    let rough = !by_mail;
    match dice.below(100) {
        0..=7 if may_add => Action::Add(one, dice.pick(&ROLES)),
        8..=12 if rough && devices > 1 => Action::Remove(one, other),
        13..=14 if one != other => Action::Role(one, other, dice.pick(&ROLES)),
        15 => Action::Rotate(one),
        16..=21 if one != other => Action::Cut(one, other),
        22 => Action::CutMail(one),
        23..=26 => Action::Heal,
        27..=33 => Action::Break(one, other),
        34..=38 => Action::Kill(one),
        39..=40 if rough => Action::Power(one),
        41..=49 => Action::Start(one),
        50..=52 if rough => Action::Copy(one),
        53..=54 if rough => Action::Restore(one),
        55..=56 => {
            let off = dice.below(2 * WEEK_MS).cast_signed() - WEEK_MS.cast_signed();
            Action::Clock(one, off)
        }
        57 if rough && devices > 2 => Action::Lie(one),
        58..=61 if rough && devices > 1 && evil.is_none() => Action::Turn(one),
        62..=70 if evil.is_some() => Action::Forge(evil.unwrap_or(one), dice.pick(&FORGERIES)),
        _ => {
            let entries = match dice.below(40) {
                0 => dice.below(140),
                1..=5 => dice.below(12),
                _ => 1 + dice.below(4),
            };
            Action::Write(one, dice.pick(&DOCS), entries)
        }
    }
}
