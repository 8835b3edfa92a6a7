//! `bailey why`.

use bailey_model::AddrClass;

use super::args::WhyArgs;
use super::{out, read};
use crate::api::{Ask, Failure, Tell};
use crate::rows::{WhyAddr, WhyRow};
use crate::show;

/// Explains one dial of a box.
pub(super) fn why(args: &WhyArgs) -> Result<u8, Failure> {
    let ask = Ask::Why {
        target: args.target.clone(),
        what: args.what.clone(),
    };
    read::each(&ask, |tell| match tell {
        Tell::Why(row) if args.json => out::json(&row),
        Tell::Why(row) => lines(&row).iter().try_for_each(|line| out::line(line)),
        _ => Ok(()),
    })
}

/// The verdict, what it rests on, what the audit has, and what would help.
fn lines(row: &WhyRow) -> Vec<String> {
    let verdict = match (&row.rule, &row.reason) {
        (Some(rule), _) => format!("✓ granted by {}", show::text(rule)),
        (None, Some(reason)) => format!("✕ refused: {}", show::text(reason)),
        (None, None) => "✓ granted".to_owned(),
    };
    let (name, device) = (show::text(&row.box_name), show::text(&row.device));
    let what = show::text(&row.what);
    let over = if row.running { "" } else { " (has ended)" };
    let mut lines = vec![
        format!("{name} on {device}{over}: {} {what}  {verdict}", row.proto),
        format!("  reach    {}", show::sentence(&row.reach)),
    ];
    if let Some(name) = &row.name {
        let given = match (row.addrs.is_empty(), row.judged_by.as_str()) {
            (true, "gate") => " · the box was given no address for it that still counts",
            (true, _) => " · no gate knows which addresses it was given",
            (false, _) => "",
        };
        lines.push(format!("  name     {name}{given}"));
    }
    lines.extend(row.addrs.iter().map(addr_line));
    if row.judged_by != "gate" {
        let private = |addr: &WhyAddr| addr.class == AddrClass::Private.as_str();
        // `local` grants what is on the networks of the machine where it runs.
        let known = match row.addrs.iter().any(private) {
            true => ", which would know whether this address is on its networks",
            false => "",
        };
        lines.push(format!(
            "  judged   by the registries alone: no gate of it runs here{known}"
        ));
    }
    lines.push(format!(
        "  audit    opened {}, refused {}, asked {}",
        row.opened, row.refused, row.named
    ));
    lines.extend(
        row.last
            .iter()
            .map(|row| format!("    {}", read::flow_line(row))),
    );
    lines.extend(row.grant.iter().map(|words| format!("  grant    {words}")));
    lines.extend(
        row.cannot
            .iter()
            .map(|words| format!("  grant    {}", show::text(words))),
    );
    lines
}

fn addr_line(addr: &WhyAddr) -> String {
    let verdict = match (&addr.rule, &addr.reason) {
        (Some(rule), _) => format!("granted by {}", show::text(rule)),
        (None, reason) => format!(
            "no term of the reach grants it ({})",
            show::text(reason.as_deref().unwrap_or("refused"))
        ),
    };
    format!(
        "  address  {} · class {} · {verdict}",
        addr.ip,
        show::text(&addr.class)
    )
}
