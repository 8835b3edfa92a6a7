//! Zeek's tab-separated logs (<https://docs.zeek.org/en/master/log-formats.html>):
//! conn.log and dns.log, with bailey's own columns after Zeek's.

use std::net::IpAddr;

use bailey_model::Timestamp;

use super::{Shape, echo_types, is_refused, millis, row_id, shape};
use crate::rows::FlowRow;
use crate::show;

/// A field that is not set.
const UNSET: &str = "-";

/// A log: its name, and its columns with their types.
pub(super) struct Log {
    path: &'static str,
    shape: Shape,
    columns: &'static [(&'static str, &'static str)],
}

/// What was dialled.
pub(super) const CONN: Log = Log {
    path: "conn",
    shape: Shape::Dial,
    columns: &[
        ("ts", "time"),
        ("uid", "string"),
        ("id.orig_h", "addr"),
        ("id.orig_p", "port"),
        ("id.resp_h", "addr"),
        ("id.resp_p", "port"),
        ("proto", "enum"),
        ("service", "string"),
        ("duration", "interval"),
        ("orig_bytes", "count"),
        ("resp_bytes", "count"),
        ("conn_state", "string"),
        ("local_orig", "bool"),
        ("local_resp", "bool"),
        ("missed_bytes", "count"),
        ("history", "string"),
        ("orig_pkts", "count"),
        ("orig_ip_bytes", "count"),
        ("resp_pkts", "count"),
        ("resp_ip_bytes", "count"),
        ("tunnel_parents", "set[string]"),
        ("community_id", "string"),
        ("bailey_box", "string"),
        ("bailey_verdict", "string"),
        ("bailey_reason", "string"),
        ("bailey_host", "string"),
        ("bailey_host_from", "string"),
        ("bailey_class", "string"),
        ("bailey_rule", "string"),
        ("bailey_end", "string"),
        ("bailey_outer_h", "addr"),
        ("bailey_outer_p", "port"),
        ("bailey_outer_community_id", "string"),
        ("bailey_count", "count"),
        ("bailey_raw", "string"),
    ],
};

/// What was asked for by name.
pub(super) const DNS: Log = Log {
    path: "dns",
    shape: Shape::Name,
    columns: &[
        ("ts", "time"),
        ("uid", "string"),
        ("id.orig_h", "addr"),
        ("id.orig_p", "port"),
        ("id.resp_h", "addr"),
        ("id.resp_p", "port"),
        ("proto", "enum"),
        ("query", "string"),
        ("qtype_name", "string"),
        ("rcode_name", "string"),
        ("answers", "vector[string]"),
        ("TTLs", "vector[interval]"),
        ("rejected", "bool"),
        ("bailey_box", "string"),
        ("bailey_verdict", "string"),
        ("bailey_reason", "string"),
        ("bailey_class", "string"),
        ("bailey_count", "count"),
        ("bailey_raw", "string"),
    ],
};

/// The lines before the records.
pub(super) fn head(log: &Log, now: Timestamp) -> String {
    let names: Vec<&str> = log.columns.iter().map(|(name, _)| *name).collect();
    let types: Vec<&str> = log.columns.iter().map(|(_, kind)| *kind).collect();
    format!(
        "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n#unset_field\t{UNSET}\n\
         #path\t{}\n#open\t{}\n#fields\t{}\n#types\t{}\n",
        log.path,
        stamp(now),
        names.join("\t"),
        types.join("\t"),
    )
}

/// The line after them.
pub(super) fn foot(now: Timestamp) -> String {
    format!("#close\t{}\n", stamp(now))
}

/// A record.
pub(super) fn line(log: &Log, row: &FlowRow) -> Option<String> {
    if shape(row) != Some(log.shape) {
        return None;
    }
    let field = |(name, _): &(&str, &str)| field(name, row).unwrap_or_else(|| UNSET.to_owned());
    let fields: Vec<String> = log.columns.iter().map(field).collect();
    Some(format!("{}\n", fields.join("\t")))
}

fn field(name: &str, row: &FlowRow) -> Option<String> {
    let text = |text: &Option<String>| text.as_deref().map(show::zeek_field);
    let number = |number: Option<u64>| number.map(|number| number.to_string());
    match name {
        "ts" => Some(seconds(millis(&row.ts))),
        "uid" => Some(uid(row)),
        "id.orig_h" => row.src_ip.map(|ip| ip.to_string()),
        "id.orig_p" => port(row, row.src_port, |(asked, _)| asked),
        "id.resp_h" => row.dst_ip.map(|ip| ip.to_string()),
        "id.resp_p" => port(row, row.dst_port, |(_, answers)| answers),
        "proto" => Some(proto(row).to_owned()),
        "service" => row.sni.as_ref().map(|_| "ssl".to_owned()),
        "duration" => row.duration_s.map(|seconds| format!("{seconds:.6}")),
        "orig_bytes" => number(row.bytes_out),
        "resp_bytes" => number(row.bytes_in),
        "conn_state" => Some(state(row).to_owned()),
        "local_orig" => Some("T".to_owned()),
        "local_resp" => row.dst_class.as_deref().map(|class| {
            let inbound = row.direction.as_deref() == Some("in");
            if inbound || class != "internet" {
                "T"
            } else {
                "F"
            }
            .to_owned()
        }),
        "missed_bytes" => Some("0".to_owned()),
        // What the gate saw of it: the SYN, and its own RST.
        "history" => (is_refused(row) && proto(row) == "tcp").then(|| "Sr".to_owned()),
        "tunnel_parents" => Some("(empty)".to_owned()),
        "community_id" => text(&row.community_id),
        "query" | "bailey_host" => text(&row.dst_host),
        "qtype_name" => text(&row.qtype),
        "rcode_name" => text(&row.rcode),
        "answers" => each(row, |ip| ip.to_string()),
        "TTLs" => each(row, |_| format!("{}.000000", row.ttl.unwrap_or(0))),
        "rejected" => Some(if is_refused(row) { "T" } else { "F" }.to_owned()),
        "bailey_box" => Some(show::zeek_field(&row.box_name)),
        "bailey_verdict" => text(&row.verdict),
        "bailey_reason" => text(&row.reason),
        "bailey_host_from" => text(&row.host_from),
        "bailey_class" => text(&row.dst_class),
        "bailey_rule" => text(&row.rule),
        "bailey_end" => text(&row.end),
        "bailey_outer_h" => row.outer_src_ip.map(|ip| ip.to_string()),
        "bailey_outer_p" => number(row.outer_src_port.map(u64::from)),
        "bailey_outer_community_id" => text(&row.outer_community_id),
        "bailey_count" => Some(row.count.to_string()),
        "bailey_raw" => text(&row.raw),
        // Packets: the gate counts payload.
        _ => None,
    }
}

/// A vector with one element an address.
fn each(row: &FlowRow, element: impl Fn(&IpAddr) -> String) -> Option<String> {
    let elements: Vec<String> = row.answers.as_ref()?.iter().map(element).collect();
    Some(match elements.is_empty() {
        true => "(empty)".to_owned(),
        false => elements.join(","),
    })
}

/// Zeek's words for transports.
fn proto(row: &FlowRow) -> &'static str {
    match row.proto.as_deref() {
        Some("tcp") => "tcp",
        Some("udp" | "dns") => "udp",
        Some("icmp") => "icmp",
        _ => "unknown_transport",
    }
}

fn port(row: &FlowRow, port: Option<u16>, of_echo: fn((u16, u16)) -> u16) -> Option<String> {
    let port = match proto(row) {
        "icmp" => of_echo(echo_types(row.dst_ip)),
        _ => port?,
    };
    Some(port.to_string())
}

/// Zeek's words for how a connection went.
fn state(row: &FlowRow) -> &'static str {
    if is_refused(row) {
        return "REJ";
    }
    match row.end.as_deref() {
        None => "S1",
        Some("closed") => "SF",
        Some("reset by box") => "RSTO",
        Some("reset by peer") => "RSTR",
        Some("dial refused") => "REJ",
        Some("dial unreachable" | "dial timeout") => "S0",
        // Silence is how everything but TCP ends.
        Some("idle") if proto(row) != "tcp" => match (row.bytes_out, row.bytes_in) {
            (Some(1..), Some(1..)) => "SF",
            _ => "S0",
        },
        Some(_) => "OTH",
    }
}

/// `C` and 17 letters and digits, as Zeek's own are.
fn uid(row: &FlowRow) -> String {
    let digits = row_id(row).map(|byte| format!("{byte:02x}")).concat();
    format!("C{}", digits.get(..17).unwrap_or(&digits))
}

fn seconds(ms: u64) -> String {
    format!("{}.{:03}000", ms / 1000, ms % 1000)
}

/// `2026-11-30-12-00-00`
fn stamp(now: Timestamp) -> String {
    let text = now.to_string();
    let text = text.split('.').next().unwrap_or(&text);
    text.replace(['T', ':'], "-")
}
