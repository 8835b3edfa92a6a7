//! CSV by RFC 4180.

use serde_json::Value;

use crate::show;

/// The columns, as the fields of a row are named.
pub const COLUMNS: [&str; 34] = [
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
    "qtype",
    "rcode",
    "answers",
    "ttl",
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
    "raw",
    "v",
];

/// The line of names.
pub(super) fn head() -> String {
    format!("{}\r\n", COLUMNS.join(","))
}

/// A record.
pub(super) fn line(row: &Value) -> String {
    let cell = |name: &&str| match row.get(name) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => show::csv_cell(text),
        Some(Value::Array(list)) => {
            let each: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
            show::csv_cell(&each.join(" "))
        }
        Some(other) => other.to_string(),
    };
    let cells: Vec<String> = COLUMNS.iter().map(cell).collect();
    format!("{}\r\n", cells.join(","))
}
