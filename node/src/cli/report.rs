//! `bailey report`.

use super::args::TargetArgs;
use super::{out, read};
use crate::api::{Ask, Failure, Tell};
use crate::rows::{AxisRow, FactRow, ReportRow};
use crate::show;

/// Shows what was measured inside a box before its command ran.
pub(super) fn report(args: &TargetArgs) -> Result<u8, Failure> {
    let target = args.target.clone();
    read::each(&Ask::Report { target }, |tell| match tell {
        Tell::Report(row) if args.json => out::json(&row),
        Tell::Report(row) => lines(&row).iter().try_for_each(|line| out::line(line)),
        _ => Ok(()),
    })
}

/// Its level, then one line a side, each followed by what it was got from.
fn lines(row: &ReportRow) -> Vec<String> {
    let mut lines = vec![
        format!(
            "{} on {} · level {} · asked {} · {}",
            show::text(&row.box_name),
            show::text(&row.device),
            show::text(&row.level),
            show::text(&row.asked),
            show::text(&row.ts),
        ),
        format!(
            "made by {} · image {} · class {}",
            show::text(&row.method),
            show::text(&row.image),
            show::text(&row.class),
        ),
        format!("reach {}", show::sentence(&row.reach)),
    ];
    for axis in &row.axes {
        lines.push(side(axis));
        lines.extend(axis.facts.iter().map(fact));
    }
    lines
}

fn side(row: &AxisRow) -> String {
    format!("{:<13}{}", show::text(&row.axis), show::text(&row.verdict))
}

fn fact(row: &FactRow) -> String {
    let mark = match row.held {
        Some(true) => "✓",
        Some(false) => "✕",
        None => "·",
    };
    format!(
        "  {mark} {:<30} {}",
        show::text(&row.what),
        show::text(&row.got)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(held: Option<bool>, got: &str) -> FactRow {
        FactRow {
            what: "write /usr".to_owned(),
            got: got.to_owned(),
            held,
        }
    }

    #[test]
    fn a_fact_that_was_forged_steers_no_terminal() {
        let shown = fact(&row(Some(true), "EROFS\x1b[2K\r\u{202e}"));
        assert!(shown.starts_with("  ✓ write /usr "), "{shown}");
        assert!(!shown.contains(['\x1b', '\r', '\u{202e}']), "{shown}");
        assert!(fact(&row(Some(false), "written")).starts_with("  ✕ "));
        assert!(fact(&row(None, "")).starts_with("  · "));
    }
}
