//! What happens, by the dice.

use bailey_docs_store::{DocId, Role};
use bailey_model::BoxId;

use super::{MAX_DEVICES, World};

/// A week, in milliseconds: as far as a clock may be off.
const WEEK_MS: u64 = 7 * 24 * 3_600_000;

/// One thing that happens.
#[derive(Debug, Clone, Copy)]
pub(super) enum Action {
    /// A device writes so many entries of a document.
    Write(usize, DocId, u64),
    /// A device adds another.
    Add(usize, Role),
    /// Two cannot reach each other from here on.
    Cut(usize, usize),
    /// All can.
    Heal,
    /// A connection ends, with what was under way.
    Break(usize, usize),
    /// A device ends at once.
    Kill(usize),
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
}

pub(super) fn choose(world: &mut World) -> Action {
    let devices = world.devices.len();
    let dice = &mut world.dice;
    let (one, other) = (dice.index(devices), dice.index(devices));
    match dice.below(100) {
        0..=11 if (devices as u64) < MAX_DEVICES => {
            let roles = [Role::Full, Role::Full, Role::Stop, Role::Watch, Role::Runs];
            Action::Add(one, roles[dice.index(roles.len())])
        }
        12..=17 if one != other => Action::Cut(one, other),
        18..=21 => Action::Heal,
        22..=29 => Action::Break(one, other),
        30..=35 => Action::Kill(one),
        36..=45 => Action::Start(one),
        46..=48 => Action::Copy(one),
        49..=50 => Action::Restore(one),
        51..=53 => {
            let off = dice.below(2 * WEEK_MS).cast_signed() - WEEK_MS.cast_signed();
            Action::Clock(one, off)
        }
        54 if devices > 2 && world.liar.is_none() => Action::Lie(one),
        _ => {
            let boxes = [1, 2].map(|no| DocId::Box(BoxId([no; 16])));
            let docs = [
                DocId::Node,
                DocId::Notices,
                DocId::Requests,
                boxes[0],
                boxes[1],
            ];
            let entries = if dice.one_in(8) {
                dice.below(140)
            } else {
                1 + dice.below(5)
            };
            Action::Write(one, docs[dice.index(docs.len())], entries)
        }
    }
}
