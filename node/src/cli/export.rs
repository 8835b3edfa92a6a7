//! `bailey export`: a box's rows for other tools.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::PathBuf;

use serde_json::Value;

use super::args::ExportArgs;
use super::{out, read, run};
use crate::api::{Ask, Failure, Tell};
use crate::rows::FlowRow;
use crate::show;

/// Rows between two words on how far it is.
const STEP: u64 = 10_000;
/// The columns of CSV, as the fields of a row are named.
const COLUMNS: [&str; 29] = [
    "ts",
    "box",
    "no",
    "kind",
    "flow",
    "verdict",
    "reason",
    "direction",
    "proto",
    "src_ip",
    "src_port",
    "dst_ip",
    "dst_port",
    "dst_host",
    "host_from",
    "dst_class",
    "bytes_out",
    "bytes_in",
    "duration_s",
    "community_id",
    "outer_src_ip",
    "outer_src_port",
    "outer_community_id",
    "rule",
    "tls_sni",
    "sni",
    "end",
    "count",
    "v",
];

/// Writes every row that is wanted, as it is read.
pub(super) fn export(args: &ExportArgs) -> Result<u8, Failure> {
    let ask = Ask::Flows {
        target: args.target.clone(),
        filter: read::filter(&args.filter)?,
        follow: false,
    };
    // Opened before anything is asked, and never through a link.
    let open = |path: &PathBuf| run::open_result("--output", path);
    let file = args.output.as_ref().map(open).transpose()?;
    let fault = |error: io::Error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::unread(),
        _ => Failure::host(format!("export: {error}")),
    };
    let copy = file.as_ref().map(File::try_clone).transpose();
    let mut sink: BufWriter<Box<dyn Write>> = match copy.map_err(fault)? {
        Some(file) => BufWriter::new(Box::new(file)),
        None => BufWriter::new(Box::new(io::stdout())),
    };
    if args.format == "csv" {
        write!(sink, "{}\r\n", COLUMNS.join(",")).map_err(fault)?;
    }
    let watched = io::stderr().is_terminal();
    let mut count = 0_u64;
    let code = read::each(&ask, |tell| {
        let Tell::Flow(row) = tell else {
            return Ok(());
        };
        let line = line(&args.format, &row)?;
        sink.write_all(line.as_bytes()).map_err(fault)?;
        count += 1;
        if watched && count.is_multiple_of(STEP) {
            out::say(&format!("{count} rows"));
        }
        Ok(())
    })?;
    sink.flush().map_err(fault)?;
    if let (Some(path), Some(file)) = (&args.output, file) {
        file.sync_all().map_err(fault)?;
        let shown = show::text(&path.to_string_lossy());
        out::say(&format!("{count} rows in {shown}"));
    }
    Ok(code)
}

fn line(format: &str, row: &FlowRow) -> Result<String, Failure> {
    let fault = |error| Failure::internal(format!("JSON: {error}"));
    if format == "csv" {
        return serde_json::to_value(row)
            .map(|row| csv(&row))
            .map_err(fault);
    }
    let mut text = out::json_text(row)?;
    text.push('\n');
    Ok(text)
}

/// A record (RFC 4180). What a table would take for a formula, and whatever steers
/// a terminal, is no longer that.
fn csv(row: &Value) -> String {
    let cell = |name: &&str| match row.get(name) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => quoted(&guarded(text)),
        Some(other) => other.to_string(),
    };
    let cells: Vec<String> = COLUMNS.iter().map(cell).collect();
    format!("{}\r\n", cells.join(","))
}

fn guarded(text: &str) -> String {
    let safe = show::lines(text);
    match safe.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        true => format!("'{safe}"),
        false => safe,
    }
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use bailey_model::{Entry, Event, Gap, Timestamp};
    use proptest::prelude::*;

    use super::*;

    fn row(reason: &str) -> FlowRow {
        let event = Event::Gap(Gap {
            reason: reason.to_owned(),
        });
        let (no, ts) = (1, Timestamp(1_796_000_000_000));
        FlowRow::of("yard", &Entry { no, ts, event }).unwrap()
    }

    #[test]
    fn every_field_of_a_row_is_a_column() {
        let value = serde_json::to_value(row("power")).unwrap();
        let mut names: Vec<&str> = value
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let mut columns = COLUMNS;
        names.sort_unstable();
        columns.sort_unstable();
        assert_eq!(names, columns);
    }

    proptest! {
        #[test]
        fn no_cell_is_a_formula_or_steers_a_terminal(reason in any::<String>()) {
            let shown = guarded(&reason);
            prop_assert!(!shown.starts_with(['=', '+', '-', '@', '\t', '\r']));
            let unsafe_here = |c: char| show::is_unsafe(c) && !matches!(c, '\n' | '\t');
            prop_assert!(!shown.contains(unsafe_here));
            let json = line("ndjson", &row(&reason)).unwrap();
            prop_assert!(!json.trim_end().contains(show::is_unsafe));
            let back: Value = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(back["reason"].as_str(), Some(reason.as_str()));
        }
    }
}
