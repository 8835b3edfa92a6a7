//! `bailey store`.

use bailey_docs_store::{OsEntropy, Repaired};
use bailey_model::Timestamp;
use serde::Serialize;

use super::args::JsonArgs;
use super::{out, read};
use crate::account;
use crate::api::{Ask, Failure, Tell};
use crate::daemon::clock;
use crate::paths::Paths;
use crate::rows::{self, CheckRow};
use crate::show;
use crate::vault;

/// Exit code where something does not hold.
const EXIT_FAULTY: u8 = 1;

/// Looks at all that is kept and says what it saw.
pub(super) fn check(args: &JsonArgs) -> Result<u8, Failure> {
    let (mut faulty, mut envelopes, mut entries, mut thinned) = (0, 0, 0, 0);
    read::each(&Ask::StoreCheck, |tell| {
        let Tell::Checked(row) = tell else {
            return Ok(());
        };
        faulty += row.faulty;
        envelopes += row.envelopes;
        entries += row.entries;
        thinned += row.thinned;
        match args.json {
            true => out::json(&row),
            false => print(&row),
        }
    })?;
    if !args.json {
        let end = match faulty {
            0 => "all of it holds".to_owned(),
            1 => "1 does not hold; nothing was changed".to_owned(),
            faulty => format!("{faulty} do not hold; nothing was changed"),
        };
        let gone = match thinned {
            0 => String::new(),
            thinned => format!(", {thinned} thinned"),
        };
        out::line(&format!(
            "{envelopes} envelopes, {entries} entries{gone}: {end}"
        ))?;
    }
    Ok(if faulty == 0 { 0 } else { EXIT_FAULTY })
}

fn print(row: &CheckRow) -> Result<(), Failure> {
    let mark = if row.faulty == 0 { "✓" } else { "✕" };
    let what = match &row.writer {
        Some(writer) => {
            let short: String = writer.chars().take(8).collect();
            let waiting = match row.waiting {
                0 => String::new(),
                count => format!(" · {count} wait for a key"),
            };
            let gone = match row.thinned {
                0 => String::new(),
                count => format!(" · {count} thinned before"),
            };
            format!(
                "{} by {short}: {} envelopes, {} entries{gone}{waiting}",
                row.doc, row.envelopes, row.entries
            )
        }
        None => {
            let aside = match row.waiting {
                0 => String::new(),
                count => format!(" · {count} envelopes were set aside"),
            };
            format!(
                "the database, and {} entries in the journal{aside}",
                row.entries
            )
        }
    };
    out::line(&format!("{mark} {what}"))?;
    for fault in &row.faults {
        out::line(&format!("    {}", show::sentence(fault)))?;
    }
    for proof in &row.two_of_one {
        out::line(&format!("! {}", show::sentence(proof)))?;
    }
    Ok(())
}

/// Puts a damaged store in order and says what it did. No node is asked, since none
/// may run.
pub(super) fn repair(args: &JsonArgs) -> Result<u8, Failure> {
    let host = |error: &dyn std::fmt::Display| Failure::host(format!("store: {error}"));
    let paths = Paths::from_env().map_err(|error| host(&error))?;
    let key_file = paths.state.join("device.key");
    let keys = vault::existing_keys(&key_file)?;
    let keys = keys.ok_or_else(|| Failure::host(format!("{}: not there", key_file.display())))?;
    let now: Timestamp = clock::now();
    let repaired = bailey_docs_store::repair(&paths.state, &keys, now, &mut OsEntropy);
    let row = row_of(repaired.map_err(|error| host(&error))?);
    match args.json {
        true => out::json(&row)?,
        false => say(&row)?,
    }
    Ok(if row.losses == 0 { 0 } else { EXIT_FAULTY })
}

/// What a repair of the store did.
#[derive(Debug, Serialize)]
struct RepairRow {
    /// Schema version.
    v: u32,
    /// The folder with the database as it was found; null where nothing was wrong.
    kept: Option<String>,
    /// Envelopes carried over.
    envelopes: u64,
    /// Entries of the journal carried over, those that say that one was lost
    /// among them.
    entries: u64,
    /// How many things could not be carried over.
    losses: u64,
    /// The first of them, each with its place.
    lost: Vec<String>,
    /// What was made again from what could be read.
    rebuilt: Vec<String>,
}

fn row_of(repaired: Repaired) -> RepairRow {
    RepairRow {
        v: rows::V,
        kept: repaired.kept.map(|path| path.display().to_string()),
        envelopes: repaired.envelopes,
        entries: repaired.rows,
        losses: repaired.losses,
        lost: repaired.lost,
        rebuilt: repaired.rebuilt,
    }
}

fn say(row: &RepairRow) -> Result<(), Failure> {
    let Some(kept) = &row.kept else {
        return out::line("all of it holds: nothing was done");
    };
    out::line(&format!(
        "as it was found: {}, and nothing of it is deleted",
        show::sentence(kept)
    ))?;
    out::line(&format!(
        "{} envelopes and {} entries of the journal are in the new database",
        row.envelopes, row.entries
    ))?;
    for what in &row.rebuilt {
        out::line(&format!("  made again: {}", show::sentence(what)))?;
    }
    for what in &row.lost {
        out::line(&format!("✕ lost: {}", show::sentence(what)))?;
    }
    let told = row.lost.len() as u64;
    if row.losses > told {
        out::line(&format!("✕ and {} more", row.losses - told))?;
    }
    let check = account::command("store check");
    out::line(&format!(
        "what other devices hold of it they bring again; `{check}` looks at all"
    ))
}
