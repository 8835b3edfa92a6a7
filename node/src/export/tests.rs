use bailey_model::{
    AddrClass, Direction, EndReason, Entry, Event, FiveTuple, FlowEnded, FlowId, FlowNamed,
    FlowOpened, FlowProgressed, FlowRefused, Gap, Granted, Host, HostFrom, NameAnswer,
    NameAnswered, NameAsked, Proto, Refusal, Sni,
};
use proptest::prelude::*;

use super::*;
use crate::row_fold::{Fold, Late};

/// When everything here happens.
const TS: Timestamp = Timestamp(1_796_041_800_123);

fn opened(flow: u64, proto: Proto, src: &str, dst: &str, host: Option<&str>) -> Event {
    Event::FlowOpened(FlowOpened {
        flow: FlowId(flow),
        direction: Direction::Out,
        tuple: FiveTuple {
            proto,
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
        },
        host: host.and_then(Host::new),
        host_from: host.map_or(HostFrom::None, |_| HostFrom::Dns),
        class: AddrClass::Internet,
        granted: Granted("internet".to_owned()),
    })
}

fn refused(
    proto: Proto,
    dst: Option<&str>,
    host: Option<&str>,
    class: Option<AddrClass>,
    refusal: Refusal,
) -> Event {
    Event::FlowRefused(FlowRefused {
        direction: Direction::Out,
        proto,
        src: dst.map(|_| "192.0.2.2:40002".parse().unwrap()),
        dst: dst.map(|dst| dst.parse().unwrap()),
        host: host.and_then(Host::new),
        host_from: HostFrom::Dns,
        class,
        refusal,
        count: 3,
    })
}

fn progressed(flow: u64, bytes_in: u64) -> Event {
    Event::FlowProgressed(FlowProgressed {
        flow: FlowId(flow),
        bytes_out: 77,
        bytes_in,
        duration_us: 300_000_000,
    })
}

fn answered(host: &str, qtype: u16, answer: NameAnswer, addrs: &[&str]) -> Event {
    Event::NameAnswered(NameAnswered {
        host: Host::new(host).unwrap(),
        qtype,
        answer,
        addrs: addrs.iter().map(|ip| ip.parse().unwrap()).collect(),
        more: 0,
        ttl: 60,
        count: 1,
    })
}

fn granted(written: &str, path: &str) -> Event {
    Event::Granted(bailey_model::BoxGranted {
        box_id: bailey_model::BoxId([1; 16]),
        incarnation: bailey_model::Incarnation([2; 16]),
        written: written.to_owned(),
        path: path.to_owned(),
        kind: bailey_model::GrantKind::Folder,
        write: true,
        by: bailey_model::ChangedBy::Here,
    })
}

/// What was answered, how far flows came, what was granted and what was lost.
fn later() -> Vec<Event> {
    vec![
        answered(
            "shop.example",
            28,
            NameAnswer::Records,
            &["2606:2800:220:1::1", "2606:2800:220:1::2"],
        ),
        progressed(2, 1 << 33),
        answered("none.example", 1, NameAnswer::NoName, &[]),
        granted("../p", "/home/u/p"),
        opened(4, Proto::Tcp, "192.0.2.2:40003", "93.184.216.34:22", None),
        progressed(4, 500),
        Event::FlowEnded(FlowEnded {
            flow: FlowId(4),
            bytes_out: 0,
            bytes_in: 0,
            duration_us: 0,
            end: EndReason::GateLost,
            outer_src: None,
        }),
    ]
}

/// One row of each shape: a flow with a name and an end, one of IPv6 that is open and
/// has come so far, an echo, a refused dial, a refused name, a name and what it was
/// answered, one whose gate was lost, and what has no network in it.
fn rows() -> Vec<FlowRow> {
    let mut events = vec![
        opened(
            1,
            Proto::Tcp,
            "192.0.2.2:40000",
            "93.184.216.34:443",
            Some("shop.example"),
        ),
        Event::FlowNamed(FlowNamed {
            flow: FlowId(1),
            sni: Sni::Host(Host::new("shop.example").unwrap()),
        }),
        Event::FlowEnded(FlowEnded {
            flow: FlowId(1),
            bytes_out: 517,
            bytes_in: 4096,
            duration_us: 1_250_000,
            end: EndReason::Closed,
            outer_src: Some("192.168.1.20:51000".parse().unwrap()),
        }),
        opened(
            2,
            Proto::Udp,
            "[fd00::2]:40001",
            "[2606:2800:220:1::1]:443",
            None,
        ),
        opened(3, Proto::Other(1), "192.0.2.2:0", "9.9.9.9:0", None),
        refused(
            Proto::Tcp,
            Some("192.168.1.9:631"),
            None,
            Some(AddrClass::Local),
            Refusal::OutsideReach,
        ),
        refused(
            Proto::Dns,
            None,
            Some("evil.example"),
            None,
            Refusal::NameOutsideReach,
        ),
        Event::NameAsked(NameAsked {
            host: Host::new("shop.example").unwrap(),
            qtype: 28,
            count: 1,
        }),
        Event::Gap(Gap {
            reason: "power".to_owned(),
        }),
    ];
    events.extend(later());
    let entries: Vec<Entry> = (1..)
        .zip(events)
        .map(|(no, event)| Entry { no, ts: TS, event })
        .collect();
    let mut late = Late::default();
    late.push_page(&entries);
    Fold::new(late, Timestamp(0)).page("yard", &entries)
}

fn whole(format: Format, rows: &[FlowRow]) -> String {
    let lines = rows.iter().filter_map(|row| format.line(row).unwrap());
    let lines: String = lines.collect();
    format!("{}{lines}{}", format.head(TS), format.foot(TS))
}

#[test]
fn each_format_has_its_lines() {
    let rows = rows();
    for word in Format::WORDS {
        let format = Format::of(word).unwrap();
        insta::assert_snapshot!(word, whole(format, &rows));
    }
    assert_eq!(Format::of("xml"), None);
}

#[test]
fn every_field_of_a_row_is_a_column() {
    let value = serde_json::to_value(rows().remove(0)).unwrap();
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

#[test]
fn what_is_left_out_of_one_is_in_the_ones_that_have_all() {
    let rows = rows();
    let count = |format: Format| {
        let lines = rows.iter().filter_map(|row| format.line(row).unwrap());
        lines.count()
    };
    assert_eq!(count(Format::Ndjson), rows.len());
    assert_eq!(count(Format::Csv), rows.len());
    assert_eq!(count(Format::Zeek) + count(Format::ZeekDns), rows.len() - 2);
    assert_eq!(count(Format::Eve), rows.len() - 2);
    assert_eq!(count(Format::Ocsf), rows.len() - 2);
}

proptest! {
    #[test]
    fn no_text_breaks_out_of_its_place(raw in any::<String>()) {
        for mut row in rows() {
            row.box_name.clone_from(&raw);
            row.dst_host = Some(raw.clone());
            row.reason = Some(raw.clone());
            row.rule = Some(raw.clone());
            row.tls_sni = Some(raw.clone());
            for word in Format::WORDS {
                let format = Format::of(word).unwrap();
                let Some(line) = format.line(&row).unwrap() else { continue };
                let inner = line.trim_end_matches(['\r', '\n']);
                prop_assert!(inner.chars().all(|c| c == '\t' || !show::is_unsafe(c)), "{word}: {line:?}");
                prop_assert_eq!(line.len() - inner.len(), if format == Format::Csv { 2 } else { 1 });
                if inner.starts_with('{') {
                    let _value: Value = serde_json::from_str(inner).unwrap();
                }
                let tabs = inner.matches('\t').count();
                match format {
                    Format::Zeek => prop_assert_eq!(tabs, 34),
                    Format::ZeekDns => prop_assert_eq!(tabs, 18),
                    _ => prop_assert_eq!(tabs, 0),
                }
            }
        }
    }

    #[test]
    fn what_is_shown_otherwise_is_kept_byte_for_byte(raw in any::<String>()) {
        use base64ct::{Base64, Encoding as _};
        let mut row = rows().remove(0);
        row.dst_host = Some(raw.clone());
        let shown = shown(&row);
        match shown.raw {
            None => prop_assert_eq!(shown.dst_host, Some(raw)),
            Some(kept) => {
                let kept = kept.strip_prefix("dst_host:").unwrap();
                prop_assert_eq!(Base64::decode_vec(kept).unwrap(), raw.into_bytes());
            }
        }
    }
}
