//! The verbs that read: `ps`, `flows`, `notices`.

use std::time::{SystemTime, UNIX_EPOCH};

use bailey_model::Timestamp;

use super::args::{FilterArgs, FlowsArgs, JsonArgs, NoticesArgs};
use super::{out, recovery};
use crate::account;
use crate::api::{Ask, Failure, FlowFilter, Tell};
use crate::client::Client;
use crate::export;
use crate::paths::Paths;
use crate::rows::{BoxRow, FlowRow, NoticeRow};
use crate::show;

/// Lists the boxes.
pub(super) fn ps(args: &JsonArgs) -> Result<u8, Failure> {
    let code = each(&Ask::Ps, |tell| match tell {
        Tell::Box(row) if args.json => out::json(&row),
        Tell::Box(row) => out::line(&box_line(&row)),
        _ => Ok(()),
    })?;
    recovery::remind();
    Ok(code)
}

/// Prints the node's figures.
pub(super) fn metrics() -> Result<u8, Failure> {
    each(&Ask::Metrics, |tell| match tell {
        Tell::Metrics(text) => out::line(text.trim_end()),
        _ => Ok(()),
    })
}

/// Lists a box's flows.
pub(super) fn flows(args: &FlowsArgs) -> Result<u8, Failure> {
    let ask = Ask::Flows {
        target: args.target.clone(),
        filter: filter(&args.filter)?,
        follow: args.follow,
    };
    each(&ask, |tell| match tell {
        Tell::Flow(row) if args.json => out::json(&export::shown(&row)),
        Tell::Flow(row) => out::line(&flow_line(&row)),
        _ => Ok(()),
    })
}

/// What is wanted, as the node takes it.
pub(super) fn filter(args: &FilterArgs) -> Result<FlowFilter, Failure> {
    let ago = |word: &str, age: &Option<String>| {
        let age = age.as_deref();
        age.map(|age| since(word, age)).transpose()
    };
    let host = args.host.as_deref().map(str::to_ascii_lowercase);
    Ok(FlowFilter {
        since_ms: ago("--since", &args.since)?,
        until_ms: ago("--until", &args.until)?,
        host: host.map(|host| host.trim_end_matches('.').to_owned()),
        verdict: args.verdict.clone(),
        class: args.class.clone(),
        port: args.port,
    })
}

/// Lists the notices.
pub(super) fn notices(args: &NoticesArgs) -> Result<u8, Failure> {
    each(
        &Ask::Notices {
            follow: args.follow,
        },
        |tell| match tell {
            Tell::Notice(row) if args.json => out::json(&row),
            Tell::Notice(row) => notice_lines(&row)
                .iter()
                .try_for_each(|line| out::line(line)),
            _ => Ok(()),
        },
    )
}

/// Asks once and hands every answer on until there is no more.
pub(super) fn each(
    ask: &Ask,
    take: impl FnMut(Tell) -> Result<(), Failure>,
) -> Result<u8, Failure> {
    each_of(asked(ask)?, take)
}

/// A question that the node has heard.
pub(super) fn asked(ask: &Ask) -> Result<Client, Failure> {
    let paths = Paths::from_env().map_err(|error| Failure::host(error.to_string()))?;
    Client::ask(&paths, ask, &[])
}

/// Hands every answer on until there is no more.
pub(super) fn each_of(
    mut client: Client,
    mut take: impl FnMut(Tell) -> Result<(), Failure>,
) -> Result<u8, Failure> {
    loop {
        match client.receive()?.value {
            Tell::Done => return Ok(0),
            Tell::Failed(failure) => return Err(failure),
            other => take(other)?,
        }
    }
}

/// `30s`, `10m`, `2h`, `7d` before now, as milliseconds since 1970.
pub(super) fn since(word: &str, age: &str) -> Result<u64, Failure> {
    let ago = seconds(word, age)?.saturating_mul(1000);
    Ok(now().0.saturating_sub(ago))
}

/// `30s`, `10m`, `2h`, `7d` in seconds.
pub(super) fn seconds(word: &str, age: &str) -> Result<u64, Failure> {
    let fault = || {
        Failure::usage(format!(
            "{word} {}: want 30s, 10m, 2h or 7d",
            show::text(age)
        ))
    };
    let (number, unit) = age
        .split_at_checked(age.len().saturating_sub(1))
        .ok_or_else(fault)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(fault()),
    };
    let number: u64 = number.parse().map_err(|_| fault())?;
    Ok(number.saturating_mul(seconds))
}

/// The time by this machine's clock.
pub(super) fn now() -> Timestamp {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

fn box_line(row: &BoxRow) -> String {
    let end = row.end.as_deref().unwrap_or("-");
    let command: Vec<_> = row
        .command
        .iter()
        .map(|word| show::shell_word(word))
        .collect();
    format!(
        "{:<16} {:<8} {:<12} {}  {:<20} {}  {}{}",
        show::text(&row.name),
        row.state,
        show::text(&row.device),
        row.started,
        show::text(end),
        show::text(&row.reach),
        show::text(&command.join(" ")),
        notes_of(row),
    )
}

/// What else is to be said of a box.
fn notes_of(row: &BoxRow) -> String {
    let mut notes = Vec::new();
    if row.audit == "here" {
        notes.push("audit kept there alone".to_owned());
    }
    let asked = row.asked.iter();
    notes.extend(asked.map(|asked| format!("{}: {}", asked.what, asked.state)));
    match notes.is_empty() {
        true => String::new(),
        false => format!("  ({})", show::text(&notes.join("; "))),
    }
}

/// One row for a person: time, verdict, what, and how it went.
pub(super) fn flow_line(row: &FlowRow) -> String {
    let verdict = match row.verdict.as_deref() {
        Some("allow") => "✓ allowed",
        Some("refuse") => "✕ refused",
        _ => "·        ",
    };
    let to = match (row.dst_ip, row.dst_port) {
        // What has no ports says 0.
        (Some(ip), Some(0)) => ip.to_string(),
        (Some(ip), Some(port)) => std::net::SocketAddr::new(ip, port).to_string(),
        _ => String::new(),
    };
    let inbound = row.direction.as_deref() == Some("in");
    let client = match (row.outer_src_ip, row.outer_src_port) {
        (Some(ip), Some(port)) if inbound => {
            format!("in ← {}", std::net::SocketAddr::new(ip, port))
        }
        _ => String::new(),
    };
    let host = match inbound {
        true => client,
        false => host_of(row),
    };
    let mut how = Vec::new();
    if row.kind == "progress" {
        how.extend(row.flow.map(|flow| format!("flow {flow}")));
    }
    how.extend(row.dst_class.clone());
    how.extend(said(row));
    how.extend(row.reason.as_deref().map(show::text));
    if let (Some(sent), Some(got)) = (row.bytes_out, row.bytes_in) {
        // By its last progress, where its end does not say it.
        let known = match (row.kind.as_str(), row.end.as_deref()) {
            (_, Some("gate lost")) => " at least",
            ("flow" | "progress", None) => " so far",
            _ => "",
        };
        how.push(format!("{sent} B out, {got} B in{known}"));
    }
    how.extend(row.end.as_deref().map(show::text));
    if let Some(answers) = row.answers.as_ref().filter(|answers| !answers.is_empty()) {
        let answers: Vec<String> = answers.iter().map(ToString::to_string).collect();
        how.push(answers.join(" "));
    }
    if row.count > 1 {
        how.push(format!("×{}", row.count));
    }
    let what = row.proto.as_deref().unwrap_or(&row.kind);
    format!(
        "{}  {verdict}  {what:<4} {host:<24} {to:<24} {}",
        row.ts,
        how.join(" · ")
    )
}

/// The name of a flow, and its source where that is not the name server.
fn host_of(row: &FlowRow) -> String {
    let host = row.dst_host.as_deref().map(show::host).unwrap_or_default();
    match row.host_from.as_deref() {
        Some("sni") => format!("{host} (sni)"),
        _ => host,
    }
}

/// What a flow said of its own name beyond that.
fn said(row: &FlowRow) -> Option<String> {
    let clear = row.tls_sni.as_deref().map(show::host);
    match (row.sni.as_deref()?, clear) {
        ("unproven", _) => Some("name unproven".to_owned()),
        ("encrypted", clear) => {
            let other = clear.filter(|_| row.tls_sni != row.dst_host);
            let outer = other.map(|host| format!(" (in the clear {host})"));
            Some(format!("sni: encrypted{}", outer.unwrap_or_default()))
        }
        (_, clear) => {
            let other = clear.filter(|_| row.host_from.as_deref() != Some("sni"));
            other.map(|host| format!("sni: {host}"))
        }
    }
}

fn notice_lines(row: &NoticeRow) -> Vec<String> {
    let (device, text) = (show::text(&row.device), show::text(&row.text));
    if row.box_name.is_empty() {
        return vec![format!("{}  ! {device}: {text}", row.ts)];
    }
    let name = show::text(&row.box_name);
    let head = format!("{}  ! {name} on {device}: {text}", row.ts);
    let entries = row
        .entries
        .iter()
        .map(|entry| format!("    {}", flow_line(entry)));
    let target = show::shell_word(&format!("{}@{}", row.box_name, row.device));
    let stop = format!(
        "    stop it: {}",
        account::command(&format!("stop {target}"))
    );
    std::iter::once(head).chain(entries).chain([stop]).collect()
}

#[cfg(test)]
mod tests {
    use bailey_model::{
        AddrClass, Direction, EndReason, Entry, Event, FiveTuple, FlowEnded, FlowId, FlowNamed,
        FlowOpened, FlowProgressed, Granted, Host, HostFrom, Proto, Sni,
    };

    use super::*;
    use crate::row_fold::{Fold, Late};

    /// The one row of a flow to this looked up name that said this of itself.
    fn row(looked_up: Option<&str>, sni: Sni) -> FlowRow {
        let flow = FlowId(7);
        let opened = FlowOpened {
            flow,
            direction: Direction::Out,
            tuple: FiveTuple {
                proto: Proto::Tcp,
                src: ([192, 0, 0, 2], 4000).into(),
                dst: ([93, 184, 216, 34], 443).into(),
            },
            host: looked_up.and_then(Host::new),
            host_from: looked_up.map_or(HostFrom::None, |_| HostFrom::Dns),
            class: AddrClass::Internet,
            granted: Granted("internet".to_owned()),
        };
        let said = FlowNamed { flow, sni };
        let entries = [Event::FlowOpened(opened), Event::FlowNamed(said)].map(|event| {
            let (no, ts) = (1, Timestamp(1));
            Entry { no, ts, event }
        });
        let mut rows = Fold::new(Late::default(), Timestamp(0)).page("yard", &entries);
        assert_eq!(rows.len(), 1, "{rows:?}");
        rows.remove(0)
    }

    #[test]
    fn a_flow_is_shown_by_its_looked_up_name_else_by_what_it_says() {
        let shop = || Host::new("shop.example").unwrap();
        let shown = |looked_up, sni| flow_line(&row(looked_up, sni));
        for (looked_up, sni, wanted, absent) in [
            (None, Sni::Host(shop()), "shop.example (sni)", "sni:"),
            (Some("a.b"), Sni::Host(shop()), "sni: shop.example", "(sni)"),
            (Some("a.b"), Sni::Unproven, "name unproven", "sni"),
            (None, Sni::Encrypted(None), "sni: encrypted", "("),
            (
                Some("shop.example"),
                Sni::Encrypted(Some(shop())),
                "sni: encrypted",
                "(in the clear",
            ),
            (
                Some("a.b"),
                Sni::Encrypted(Some(shop())),
                "sni: encrypted (in the clear shop.example)",
                "(sni)",
            ),
        ] {
            let shown = shown(looked_up, sni);
            assert!(shown.contains(wanted), "{wanted}: {shown}");
            assert!(!shown.contains(absent), "{absent}: {shown}");
            assert_eq!(shown.contains("a.b"), looked_up == Some("a.b"), "{shown}");
        }
    }

    #[test]
    fn bytes_of_a_flow_are_so_far_or_at_least_until_its_end_says_them() {
        let flow = FlowId(7);
        let progress = Event::FlowProgressed(FlowProgressed {
            flow,
            bytes_out: 5,
            bytes_in: 9,
            duration_us: 300_000_000,
        });
        let ended = |end| {
            Event::FlowEnded(FlowEnded {
                flow,
                bytes_out: 6,
                bytes_in: 10,
                duration_us: 1,
                end,
                outer_src: None,
            })
        };
        let (no, ts) = (1, Timestamp(1));
        let entry = |event| Entry { no, ts, event };
        let mut open = row(None, Sni::Unproven);
        open.progressed(match &progress {
            Event::FlowProgressed(it) => it,
            _ => unreachable!(),
        });
        assert!(flow_line(&open).contains("5 B out, 9 B in so far"));
        for (end, shown) in [
            (EndReason::GateLost, "5 B out, 9 B in at least · gate lost"),
            (EndReason::Closed, "6 B out, 10 B in · closed"),
        ] {
            let mut row = open.clone();
            let Event::FlowEnded(it) = ended(end) else {
                unreachable!()
            };
            row.ended(&it);
            let line = flow_line(&row);
            assert!(line.contains(shown), "{line}");
        }
        // While it is followed, it is a row of its own.
        let row = FlowRow::of("yard", &entry(progress)).unwrap();
        let line = flow_line(&row);
        assert!(
            line.contains("progress") && line.contains("flow 7 · 5 B out"),
            "{line}"
        );
    }

    #[test]
    fn what_a_flow_says_is_a_row_of_its_own_while_it_is_followed() {
        let (flow, sni) = (FlowId(7), Sni::Unproven);
        let event = Event::FlowNamed(FlowNamed { flow, sni });
        let (no, ts) = (2, Timestamp(1));
        let row = FlowRow::of("yard", &Entry { no, ts, event }).unwrap();
        assert_eq!((row.kind.as_str(), row.flow), ("sni", Some(7)));
        assert!(flow_line(&row).contains("name unproven"));
    }

    #[test]
    fn a_name_that_another_device_made_up_steers_no_terminal() {
        let mut row = row(None, Sni::Encrypted(None));
        row.tls_sni = Some("a\x1b[2J\u{202e}".to_owned());
        row.dst_host.clone_from(&row.tls_sni);
        for (word, from) in [("named", "sni"), ("encrypted", "dns"), ("named", "dns")] {
            (row.sni, row.host_from) = (Some(word.to_owned()), Some(from.to_owned()));
            let shown = flow_line(&row);
            assert!(!shown.contains(['\x1b', '\u{202e}']), "{shown}");
        }
    }
}
