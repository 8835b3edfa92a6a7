//! Rows as other tools' formats, one row at a time: nothing is held of a row once
//! its text is made.
//!
//! A format that has no place for a kind of row leaves it out; [`Format::Ndjson`] and
//! [`Format::Csv`] have every one. Text is made safe by [`crate::show`] alone, and
//! where that changed it its bytes stand beside it in base64.

mod csv;
mod eve;
mod ocsf;
mod zeek;

use std::net::IpAddr;

use bailey_model::{EndReason, Timestamp};
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value};

use crate::rows::FlowRow;
use crate::show;

pub use self::csv::COLUMNS;

/// What an export is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One JSON object a line, every field of a row.
    Ndjson,
    /// RFC 4180, with a line of names; every field of a row.
    Csv,
    /// Zeek's conn.log, tab-separated: what was dialled.
    Zeek,
    /// Zeek's dns.log, tab-separated: what was asked for by name.
    ZeekDns,
    /// Suricata's EVE: `flow`, `drop` and `dns`.
    Eve,
    /// OCSF 1.8: Network Activity and DNS Activity.
    Ocsf,
}

impl Format {
    /// The words of the command line.
    pub const WORDS: [&str; 6] = ["ndjson", "csv", "zeek", "zeek-dns", "eve", "ocsf"];

    /// By its word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Some(match word {
            "ndjson" => Self::Ndjson,
            "csv" => Self::Csv,
            "zeek" => Self::Zeek,
            "zeek-dns" => Self::ZeekDns,
            "eve" => Self::Eve,
            "ocsf" => Self::Ocsf,
            _ => return None,
        })
    }

    /// What stands before the rows; `now` is when it is begun.
    #[must_use]
    pub fn head(self, now: Timestamp) -> String {
        match self {
            Self::Csv => csv::head(),
            Self::Zeek => zeek::head(&zeek::CONN, now),
            Self::ZeekDns => zeek::head(&zeek::DNS, now),
            Self::Ndjson | Self::Eve | Self::Ocsf => String::new(),
        }
    }

    /// The line of a row; `None` for a kind that the format has no place for.
    ///
    /// # Errors
    /// A fault of the JSON writer's own.
    pub fn line(self, row: &FlowRow) -> serde_json::Result<Option<String>> {
        let row = &shown(row);
        Ok(match self {
            Self::Ndjson => Some(json_line(&serde_json::to_string(row)?)),
            Self::Csv => Some(csv::line(&serde_json::to_value(row)?)),
            Self::Zeek => zeek::line(&zeek::CONN, row),
            Self::ZeekDns => zeek::line(&zeek::DNS, row),
            Self::Eve => eve::event(row).map(|event| json_line(&event.to_string())),
            Self::Ocsf => ocsf::event(row).map(|event| json_line(&event.to_string())),
        })
    }

    /// What stands after the rows; `now` is when it is whole.
    #[must_use]
    pub fn foot(self, now: Timestamp) -> String {
        match self {
            Self::Zeek | Self::ZeekDns => zeek::foot(now),
            Self::Ndjson | Self::Csv | Self::Eve | Self::Ocsf => String::new(),
        }
    }
}

/// The row with its text made safe, and in `raw` the bytes of what that changed.
#[must_use]
pub fn shown(row: &FlowRow) -> FlowRow {
    let mut row = row.clone();
    let mut raw = Vec::new();
    let mut clean = |name: &str, text: &mut String| {
        if text.contains(show::is_unsafe) {
            let (shown, bytes) = show::exact(text);
            raw.extend(bytes.map(|bytes| format!("{name}:{bytes}")));
            *text = shown;
        }
    };
    clean("box", &mut row.box_name);
    for (name, text) in [
        ("verdict", &mut row.verdict),
        ("reason", &mut row.reason),
        ("direction", &mut row.direction),
        ("proto", &mut row.proto),
        ("dst_host", &mut row.dst_host),
        ("host_from", &mut row.host_from),
        ("dst_class", &mut row.dst_class),
        ("qtype", &mut row.qtype),
        ("rcode", &mut row.rcode),
        ("rule", &mut row.rule),
        ("tls_sni", &mut row.tls_sni),
        ("sni", &mut row.sni),
        ("end", &mut row.end),
    ] {
        if let Some(text) = text {
            clean(name, text);
        }
    }
    if !raw.is_empty() {
        row.raw = Some(raw.join(" "));
    }
    row
}

fn json_line(json: &str) -> String {
    let mut line = show::json_text(json);
    line.push('\n');
    line
}

/// What a row is to the tools that know two kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// A dial, granted or refused.
    Dial,
    /// A question for a name, granted or refused.
    Name,
}

fn shape(row: &FlowRow) -> Option<Shape> {
    let dns = row.proto.as_deref() == Some("dns");
    match row.kind.as_str() {
        "flow" => Some(Shape::Dial),
        "refused" if !dns => Some(Shape::Dial),
        "refused" | "name" | "answer" => Some(Shape::Name),
        _ => None,
    }
}

fn is_refused(row: &FlowRow) -> bool {
    row.verdict.as_deref() == Some("refuse")
}

/// A number for a row that is the same whenever it is exported.
fn row_id(row: &FlowRow) -> [u8; 32] {
    let mut bytes = row.box_name.clone().into_bytes();
    bytes.push(0);
    bytes.extend(row.no.to_be_bytes());
    bytes.extend(row.ts.as_bytes());
    let mut id = [0; 32];
    id.copy_from_slice(digest(&SHA256, &bytes).as_ref());
    id
}

/// Milliseconds since 1970 of a row's time.
fn millis(ts: &str) -> u64 {
    ts.parse::<Timestamp>().map_or(0, |ts| ts.0)
}

/// When a row's flow was over, as far as its row says.
fn end_millis(row: &FlowRow) -> Option<u64> {
    // Of one that is open, or whose gate was lost, only its last progress is known.
    let end = row.end.as_deref();
    end.filter(|end| *end != EndReason::GateLost.as_str())?;
    let seconds = row.duration_s?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float to integer cast saturates"
    )]
    let ms = (seconds * 1000.0) as u64;
    Some(millis(&row.ts).saturating_add(ms))
}

/// What the formats of others have no field for, by the names of bailey's own.
fn extras(row: &FlowRow) -> Map<String, Value> {
    let text = |text: &Option<String>| text.clone().map(Value::from);
    let fields = [
        ("box", Some(row.box_name.clone().into())),
        ("no", Some(row.no.into())),
        ("flow", row.flow.map(Value::from)),
        ("verdict", text(&row.verdict)),
        ("reason", text(&row.reason)),
        ("dst_host", text(&row.dst_host)),
        ("host_from", text(&row.host_from)),
        ("dst_class", text(&row.dst_class)),
        (
            "outer_src_ip",
            row.outer_src_ip.map(|ip| ip.to_string().into()),
        ),
        ("outer_src_port", row.outer_src_port.map(Value::from)),
        ("outer_community_id", text(&row.outer_community_id)),
        ("rule", text(&row.rule)),
        ("sni", text(&row.sni)),
        ("end", text(&row.end)),
        ("count", (row.count > 1).then(|| row.count.into())),
        ("raw", text(&row.raw)),
    ];
    let there = |(name, value): (&str, Option<Value>)| Some((name.to_owned(), value?));
    fields.into_iter().filter_map(there).collect()
}

/// The type of the record that holds an address.
fn addr_type(ip: IpAddr) -> &'static str {
    match ip {
        IpAddr::V4(_) => "A",
        IpAddr::V6(_) => "AAAA",
    }
}

/// The types of ICMP's echoes, which stand where a port would: what is asked, and
/// what answers it (RFC 792, RFC 4443).
fn echo_types(ip: Option<IpAddr>) -> (u16, u16) {
    match ip {
        Some(IpAddr::V6(_)) => (128, 129),
        _ => (8, 0),
    }
}

#[cfg(test)]
mod tests;
