//! Suricata's EVE
//! (<https://docs.suricata.io/en/latest/output/eve/eve-json-format.html>): a `flow`
//! for what was dialled, a `drop` for what was refused, a `dns` for names. Its schema
//! has no room for fields of others but in `metadata.flowvars`.

use std::net::IpAddr;

use bailey_model::Timestamp;
use serde_json::{Map, Value, json};

use super::{Shape, addr_type, echo_types, end_millis, extras, is_refused, millis, row_id, shape};
use crate::rows::FlowRow;

/// The event of a row.
pub(super) fn event(row: &FlowRow) -> Option<Value> {
    let shape = shape(row)?;
    let mut event = Map::new();
    let mut set = |name: &str, value: Value| event.insert(name.to_owned(), value);
    set("timestamp", stamp(millis(&row.ts)).into());
    set("flow_id", flow_id(row).into());
    for (name, ip) in [("src_ip", row.src_ip), ("dest_ip", row.dst_ip)] {
        if let Some(ip) = ip {
            set(name, ip.to_string().into());
        }
    }
    if let Some(ip) = row.dst_ip {
        set("ip_v", if ip.is_ipv4() { 4 } else { 6 }.into());
    }
    let proto = row.proto.as_deref().unwrap_or_default();
    if proto == "icmp" {
        set("icmp_type", echo_types(row.dst_ip).0.into());
        set("icmp_code", 0.into());
    } else {
        for (name, port) in [("src_port", row.src_port), ("dest_port", row.dst_port)] {
            if let Some(port) = port {
                set(name, port.into());
            }
        }
    }
    let carried = match proto {
        "dns" => "UDP".to_owned(),
        "icmp" if row.dst_ip.is_some_and(|ip| ip.is_ipv6()) => "IPv6-ICMP".to_owned(),
        other => other.to_ascii_uppercase(),
    };
    set("proto", carried.into());
    if let Some(id) = &row.community_id {
        set("community_id", id.clone().into());
    }
    let vars: Vec<Value> = extras(row).into_iter().map(flow_var).collect();
    set("metadata", json!({ "flowvars": vars }));
    match (shape, is_refused(row)) {
        (Shape::Name, _) => {
            set("event_type", "dns".into());
            set("dns", dns(row));
        }
        (Shape::Dial, true) => {
            set("event_type", "drop".into());
            set("drop", json!({ "reason": row.reason }));
        }
        (Shape::Dial, false) => {
            set("event_type", "flow".into());
            set("flow", flow(row));
            if row.sni.is_some() {
                set("app_proto", "tls".into());
            }
            if let Some(sni) = &row.tls_sni {
                set("tls", json!({ "sni": sni }));
            }
        }
    }
    if is_refused(row) {
        set("verdict", verdict(proto));
    }
    Some(event.into())
}

fn flow(row: &FlowRow) -> Value {
    let (start, end) = (millis(&row.ts), end_millis(row));
    let mut flow = json!({
        "start": stamp(start),
        "state": match row.end.as_deref() {
            None => "established",
            Some("dial refused" | "dial unreachable" | "dial timeout") => "new",
            Some(_) => "closed",
        },
        "alerted": false,
    });
    let Some(fields) = flow.as_object_mut() else {
        return flow;
    };
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            fields.insert(name.to_owned(), value);
        }
    };
    set("bytes_toserver", row.bytes_out.map(Value::from));
    set("bytes_toclient", row.bytes_in.map(Value::from));
    set("end", end.map(|end| stamp(end).into()));
    set(
        "age",
        end.map(|end| (end.saturating_sub(start) / 1000).into()),
    );
    set(
        "reason",
        row.end.as_deref().map(|end| match end {
            "gate lost" | "box stopped" | "reach changed" | "refused" | "evicted" => {
                "forced".into()
            }
            _ => "timeout".into(),
        }),
    );
    flow
}

/// Version 3: a question stands in a list of them.
fn dns(row: &FlowRow) -> Value {
    let mut query = json!({ "rrname": row.dst_host });
    if let (Some(query), Some(qtype)) = (query.as_object_mut(), &row.qtype) {
        query.insert("rrtype".to_owned(), qtype.clone().into());
    }
    let mut dns = json!({
        "version": 3,
        "type": if row.rcode.is_some() { "response" } else { "request" },
        "queries": [query],
    });
    if let (Some(dns), Some(rcode)) = (dns.as_object_mut(), &row.rcode) {
        dns.insert("rcode".to_owned(), rcode.clone().into());
        let answer = |ip: &IpAddr| {
            json!({
                "rrname": row.dst_host,
                "rrtype": addr_type(*ip),
                "ttl": row.ttl,
                "rdata": ip.to_string(),
            })
        };
        let answers: Vec<Value> = row.answers.iter().flatten().map(answer).collect();
        if !answers.is_empty() {
            dns.insert("answers".to_owned(), answers.into());
        }
    }
    dns
}

fn verdict(proto: &str) -> Value {
    match proto {
        "tcp" => {
            json!({ "action": "drop", "reject": ["tcp-reset"], "reject_target": "to_client" })
        }
        "icmp" => {
            json!({ "action": "drop", "reject": ["icmp-prohib"], "reject_target": "to_client" })
        }
        _ => json!({ "action": "drop" }),
    }
}

/// A variable as the schema has it: a key, and a value that is text.
fn flow_var((key, value): (String, Value)) -> Value {
    let text = match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    json!({ "key": format!("bailey.{key}"), "value": text })
}

/// `2026-11-30T12:00:00.000000+0000`
fn stamp(ms: u64) -> String {
    let text = Timestamp(ms).to_string();
    format!("{}000+0000", text.trim_end_matches('Z'))
}

/// At most 2^53, which every reader of JSON keeps whole.
fn flow_id(row: &FlowRow) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(row_id(row).first_chunk::<8>().unwrap_or(&[0; 8]));
    u64::from_be_bytes(bytes) >> 11
}
