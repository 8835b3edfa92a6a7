//! OCSF 1.8 (<https://schema.ocsf.io/1.8.0/>): Network Activity (4001) for dials, DNS
//! Activity (4003) for names, both with the profile `security_control`.

use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::{Shape, addr_type, end_millis, extras, is_refused, millis, row_id, shape};
use crate::rows::FlowRow;

/// The version that the events are of.
const VERSION: &str = "1.8.0";
/// The category of both classes: Network Activity.
const CATEGORY: u32 = 4;

/// The event of a row.
pub(super) fn event(row: &FlowRow) -> Option<Value> {
    let shape = shape(row)?;
    let refused = is_refused(row);
    let (class, class_name, (activity, activity_name)) = match shape {
        Shape::Dial => (4001, "Network Activity", activity(row)),
        Shape::Name if row.rcode.is_some() => (4003, "DNS Activity", (2, "Response")),
        Shape::Name => (4003, "DNS Activity", (1, "Query")),
    };
    let id = row_id(row).map(|byte| format!("{byte:02x}")).concat();
    let mut event = json!({
        "class_uid": class,
        "class_name": class_name,
        "category_uid": CATEGORY,
        "category_name": "Network Activity",
        "activity_id": activity,
        "activity_name": activity_name,
        "type_uid": class * 100 + activity,
        "severity_id": if refused { 2 } else { 1 },
        "severity": if refused { "Low" } else { "Informational" },
        "action_id": if refused { 2 } else { 1 },
        "action": if refused { "Denied" } else { "Allowed" },
        "disposition_id": if refused { 2 } else { 1 },
        "disposition": if refused { "Blocked" } else { "Allowed" },
        "time": millis(&row.ts),
        "metadata": {
            "version": VERSION,
            "profiles": ["security_control"],
            "uid": id.get(..32),
            "product": {
                "name": "bailey",
                "vendor_name": "bailey",
                "version": env!("CARGO_PKG_VERSION"),
            },
        },
        "src_endpoint": endpoint(Some(&row.box_name), None, row.src_ip, row.src_port),
        "unmapped": { "bailey": extras(row) },
    });
    let fields = event.as_object_mut()?;
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            fields.insert(name.to_owned(), value);
        }
    };
    set("count", (row.count > 1).then(|| row.count.into()));
    set("status_detail", row.reason.clone().map(Value::from));
    match shape {
        Shape::Dial => dial(row, &mut set),
        Shape::Name => {
            let host = row.dst_host.clone().unwrap_or_default();
            let mut query = json!({ "hostname": host, "class": "IN" });
            if let (Some(query), Some(qtype)) = (query.as_object_mut(), &row.qtype) {
                query.insert("type".to_owned(), qtype.clone().into());
            }
            set("query", Some(query));
            let rcode = match row.rcode.as_deref() {
                Some("NXDOMAIN") => Some((3, "NXDomain")),
                Some("NOERROR") => Some((0, "NoError")),
                Some("SERVFAIL") => Some((2, "ServError")),
                _ => None,
            };
            let answer = |ip: &IpAddr| {
                let rdata = ip.to_string();
                json!({ "type": addr_type(*ip), "class": "IN", "rdata": rdata, "ttl": row.ttl })
            };
            let answers: Vec<Value> = row.answers.iter().flatten().map(answer).collect();
            set("answers", (!answers.is_empty()).then(|| answers.into()));
            set("rcode_id", rcode.map(|(id, _)| id.into()));
            set("rcode", rcode.map(|(_, name)| name.into()));
        }
    }
    Some(event)
}

fn dial(row: &FlowRow, set: &mut impl FnMut(&str, Option<Value>)) {
    let end = end_millis(row);
    let start = millis(&row.ts);
    let host = row.dst_host.as_deref();
    if host.is_some() || row.dst_ip.is_some() {
        let endpoint = endpoint(None, host, row.dst_ip, row.dst_port);
        set("dst_endpoint", Some(endpoint));
    }
    set("connection_info", Some(connection(row)));
    set("start_time", Some(start.into()));
    set("end_time", end.map(Value::from));
    set("duration", end.map(|end| end.saturating_sub(start).into()));
    if let (Some(sent), Some(got)) = (row.bytes_out, row.bytes_in) {
        let all = sent.saturating_add(got);
        set(
            "traffic",
            Some(json!({ "bytes_out": sent, "bytes_in": got, "bytes": all })),
        );
    }
    set(
        "firewall_rule",
        row.rule.as_ref().map(|rule| json!({ "name": rule })),
    );
    let failed = matches!(
        row.end.as_deref(),
        Some("dial refused" | "dial unreachable" | "dial timeout")
    );
    let (id, word) = if failed || is_refused(row) {
        (2, "Failure")
    } else {
        (1, "Success")
    };
    set("status_id", Some(id.into()));
    set("status", Some(word.into()));
}

fn activity(row: &FlowRow) -> (u32, &'static str) {
    if is_refused(row) {
        return (5, "Refuse");
    }
    match row.end.as_deref() {
        None => (1, "Open"),
        Some("closed" | "idle") => (2, "Close"),
        Some("dial refused") => (5, "Refuse"),
        Some("dial unreachable" | "dial timeout") => (4, "Fail"),
        Some(_) => (3, "Reset"),
    }
}

fn connection(row: &FlowRow) -> Value {
    let (direction, word) = match row.direction.as_deref() {
        Some("in") => (1, "Inbound"),
        Some("out") => (2, "Outbound"),
        _ => (0, "Unknown"),
    };
    let proto = row.proto.as_deref().unwrap_or_default();
    let six = row.dst_ip.is_some_and(|ip| ip.is_ipv6());
    let number = match proto {
        "tcp" => Some(6),
        "udp" => Some(17),
        "icmp" if six => Some(58),
        "icmp" => Some(1),
        other => other
            .strip_prefix("ip")
            .and_then(|number| number.parse().ok()),
    };
    let mut info = json!({
        "direction_id": direction,
        "direction": word,
        "protocol_name": proto,
    });
    if let Some(info) = info.as_object_mut() {
        if let Some(number) = number {
            info.insert("protocol_num".to_owned(), number.into());
        }
        if let Some(id) = &row.community_id {
            info.insert("community_uid".to_owned(), id.clone().into());
        }
        if row.dst_ip.is_some() {
            let version = if six { 6 } else { 4 };
            info.insert("protocol_ver_id".to_owned(), version.into());
        }
    }
    info
}

/// One end, by what is known of it.
fn endpoint(
    name: Option<&str>,
    host: Option<&str>,
    ip: Option<IpAddr>,
    port: Option<u16>,
) -> Value {
    let fields = [
        ("name", name.map(Value::from)),
        ("hostname", host.map(Value::from)),
        ("ip", ip.map(|ip| ip.to_string().into())),
        // What has no ports says 0.
        ("port", port.filter(|port| *port > 0).map(Value::from)),
    ];
    let there = |(name, value): (&str, Option<Value>)| Some((name.to_owned(), value?));
    Value::Object(fields.into_iter().filter_map(there).collect::<Map<_, _>>())
}
