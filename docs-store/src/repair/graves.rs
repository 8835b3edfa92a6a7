//! What stands in the place of thinned envelopes, and what thinning goes by.

use std::collections::{HashMap, HashSet};

use bailey_envelope::{ChainId, Tombstone};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::RepairError;
use super::rebuild::{Rebuild, put};
use super::salvage::keyed;
use crate::chains::{self, Chain};
use crate::thin::tables::{self, Grave};

impl Rebuild<'_> {
    /// Tombstones, each under the chain that it names itself, and the segments of
    /// chains whose rows are known. The others are noted when the store opens.
    pub(super) fn graves(&mut self, known: &HashMap<ChainId, Chain>) -> Result<(), RepairError> {
        let (old, new) = (self.old, self.new);
        put(
            new,
            "INSERT OR REPLACE INTO meta(key, value) VALUES ('unnoted', x'01')",
            [],
        )?;
        if !exists(old, "tombstones")? {
            return Ok(());
        }
        let mut found = Vec::new();
        let columns = tables::GRAVE;
        let order = ("chain, first_seq", "chain DESC, first_seq DESC");
        let extent = keyed(old, "tombstones", columns, order, &mut |row| {
            found.extend(tables::grave_at(row, 1).ok());
            Ok(())
        })?;
        self.part("tombstones", extent);
        for grave in found {
            self.grave(&grave, known)?;
        }
        let rows: HashSet<i64> = known.values().filter_map(|chain| chain.row).collect();
        let order = ("chain, segment", "chain DESC, segment DESC");
        let extent = keyed(
            old,
            "segments",
            tables::SEGMENT,
            order,
            &mut |row| match rows.contains(&row.get::<_, i64>(1)?) {
                true => tables::copy_segment(new, row, 1),
                false => Ok(()),
            },
        )?;
        self.part("segments", extent);
        Ok(())
    }

    fn grave(&mut self, grave: &Grave, known: &HashMap<ChainId, Chain>) -> Result<(), RepairError> {
        let Ok(said) = Tombstone::decode(&grave.bytes) else {
            self.said.lose(format!(
                "a tombstone of envelope {}: damaged",
                grave.first_seq
            ));
            return Ok(());
        };
        let id = said.chain;
        let there = chains::load(self.new)?.get(&id).and_then(|chain| chain.row);
        let row = match (there, known.get(&id).and_then(|chain| chain.row)) {
            (Some(row), _) => Some(row),
            (None, Some(row)) => {
                let chain = Chain {
                    row: Some(row),
                    ..Chain::EMPTY
                };
                chains::put_at(self.new, &id, &chain, false)?;
                Some(row)
            }
            (None, None) => chains::put(self.new, &id, &Chain::EMPTY)?.row,
        };
        if let Some(row) = row {
            tables::put_grave(self.new, row, grave)?;
        }
        Ok(())
    }
}

/// The first number that neither an envelope nor a tombstone stands for, before the
/// last that one does.
pub(super) fn first_hole(present: &[u64], graves: &[Grave]) -> Option<u64> {
    let mut due = 1;
    let mut present = present.iter().copied().peekable();
    let mut graves = graves.iter().peekable();
    loop {
        while present.next_if(|seq| *seq < due).is_some() {}
        while graves.next_if(|grave| grave.last_seq < due).is_some() {}
        if present.next_if_eq(&due).is_some() {
            due += 1;
        } else if let Some(grave) = graves.next_if(|grave| grave.first_seq <= due) {
            due = grave.last_seq + 1;
        } else {
            return (present.peek().is_some() || graves.peek().is_some()).then_some(due);
        }
    }
}

fn exists(db: &Connection, table: &str) -> rusqlite::Result<bool> {
    let found: Option<i64> = db
        .query_row(
            "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1",
            params![table],
            |row| row.get(0),
        )
        .optional()?;
    Ok(found.is_some())
}
