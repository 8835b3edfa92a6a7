//! `bailey store`.

use super::args::JsonArgs;
use super::{out, read};
use crate::api::{Ask, Failure, Tell};
use crate::rows::CheckRow;
use crate::show;

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
    Ok(())
}
