use std::net::SocketAddr;

use bailey_model::{
    AddrClass, Axis, AxisReport, AxisVerdict, BoundaryReport, BoxClass, BoxEnd, BoxEnded,
    BoxGranted, BoxId, BoxStarted, ChangedBy, ChildExit, DeviceId, DeviceNamed, Direction,
    EndReason, EntryRef, Fact, FiveTuple, FlowEnded, FlowId, FlowNamed, FlowOpened, FlowProgressed,
    FlowRefused, Gap, GrantKind, Granted, Hold, Host, HostFrom, Incarnation, Level, Method,
    NameAnswer, NameAnswered, NameAsked, Notice, NoticeId, Proto, ReachChanged, Receipt, Refusal,
    Request, RequestId, RequestKind, RequestOutcome, Rule, Sni, StoppedBy, Thinned, ThinnedDay,
    ThinnedFlow, ThinnedHost, Tier,
};
use proptest::prelude::*;

use super::*;

mod asked;

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn ended(end: BoxEnd) -> Event {
    Event::BoxEnded(BoxEnded {
        box_id: BoxId([1; 16]),
        incarnation: Incarnation([2; 16]),
        end,
        processes_ended: Some(4),
        processes_left: Some(0),
        flows_reset: Some(3),
    })
}

fn receipt(outcome: RequestOutcome) -> Event {
    let (request, from) = (RequestId([6; 16]), DeviceId([7; 32]));
    Event::Receipt(Receipt {
        request,
        from,
        outcome,
    })
}

fn report(level: Level) -> Event {
    let axis = |axis| AxisReport {
        axis,
        verdict: AxisVerdict::Fenced,
        facts: vec![Fact {
            what: "write /usr".to_owned(),
            got: "EROFS".to_owned(),
            held: Some(true),
        }],
    };
    Event::Report(BoundaryReport {
        box_id: BoxId([1; 16]),
        incarnation: Incarnation([2; 16]),
        asked: Tier::Gated,
        class: BoxClass::Plain,
        method: Method::Namespaces,
        image: "host".to_owned(),
        level,
        axes: Axis::ALL.into_iter().map(axis).collect(),
    })
}

fn flows() -> Vec<Event> {
    let tuple = FiveTuple {
        proto: Proto::Tcp,
        src: addr("192.0.0.2:40000"),
        dst: addr("93.184.216.34:443"),
    };
    vec![
        Event::FlowOpened(FlowOpened {
            flow: FlowId(1),
            direction: Direction::Out,
            tuple,
            host: Host::new("shop.example"),
            host_from: HostFrom::Dns,
            class: AddrClass::Internet,
            granted: Granted("internet".to_owned()),
        }),
        Event::FlowRefused(FlowRefused {
            direction: Direction::Out,
            proto: Proto::Udp,
            src: Some(addr("[fd00:ba11:e700::2]:5000")),
            dst: Some(addr("[fe80::1]:53")),
            host: None,
            host_from: HostFrom::None,
            class: Some(AddrClass::Local),
            refusal: Refusal::OutsideReach,
            count: 1,
        }),
        Event::FlowRefused(FlowRefused {
            direction: Direction::Out,
            proto: Proto::Dns,
            src: None,
            dst: None,
            host: Host::new("printer.local"),
            host_from: HostFrom::None,
            class: None,
            refusal: Refusal::NameOutsideReach,
            count: 300,
        }),
        Event::FlowEnded(FlowEnded {
            flow: FlowId(1),
            bytes_out: 512,
            bytes_in: 1 << 40,
            duration_us: 1_500_000,
            end: EndReason::Closed,
            outer_src: Some(addr("10.0.0.5:41000")),
        }),
        Event::NameAsked(NameAsked {
            host: Host::new("a.b").unwrap(),
            qtype: 65,
            count: 1,
        }),
    ]
}

fn inbound() -> [Event; 2] {
    let client = addr("127.0.0.1:51000");
    [
        Event::FlowOpened(FlowOpened {
            flow: FlowId(2),
            direction: Direction::In { client },
            tuple: FiveTuple {
                proto: Proto::Tcp,
                src: addr("192.0.0.1:20000"),
                dst: addr("192.0.0.2:8080"),
            },
            host: None,
            host_from: HostFrom::None,
            class: AddrClass::Loopback,
            granted: Granted("publish 80:8080".to_owned()),
        }),
        Event::FlowRefused(FlowRefused {
            direction: Direction::In { client },
            proto: Proto::Tcp,
            src: None,
            dst: Some(addr("192.0.0.2:8080")),
            host: None,
            host_from: HostFrom::None,
            class: Some(AddrClass::Loopback),
            refusal: Refusal::Limit,
            count: 2,
        }),
    ]
}

fn names_of_flows() -> Vec<Event> {
    let host = || Host::new("other.example").unwrap();
    let named = |sni| {
        let flow = FlowId(300);
        Event::FlowNamed(FlowNamed { flow, sni })
    };
    let refused = |refusal, host_from| {
        Event::FlowRefused(FlowRefused {
            direction: Direction::Out,
            proto: Proto::Tcp,
            src: Some(addr("192.0.0.2:40000")),
            dst: Some(addr("93.184.216.34:443")),
            host: Some(host()),
            host_from,
            class: Some(AddrClass::Internet),
            refusal,
            count: 1,
        })
    };
    vec![
        named(Sni::Host(host())),
        named(Sni::Encrypted(None)),
        named(Sni::Encrypted(Some(host()))),
        named(Sni::Unproven),
        refused(Refusal::OtherHost, HostFrom::Sni),
        refused(Refusal::UnreadableHello, HostFrom::Dns),
    ]
}

fn reach_changed() -> [Event; 2] {
    [
        Event::ReachChanged(ReachChanged {
            box_id: BoxId([1; 16]),
            incarnation: Incarnation([2; 16]),
            old: "internet".to_owned(),
            new: "internet,192.168.1.9:80".to_owned(),
            by: ChangedBy::Here,
        }),
        Event::FlowEnded(FlowEnded {
            flow: FlowId(3),
            bytes_out: 1,
            bytes_in: 2,
            duration_us: 3,
            end: EndReason::ReachChanged,
            outer_src: None,
        }),
    ]
}

fn thinned() -> Event {
    let host = |name: &str, class| ThinnedHost {
        name: name.to_owned(),
        class,
        flows: 3,
        refused: 1,
        asked: 2,
        bytes_out: 700,
        bytes_in: 1 << 33,
    };
    Event::Thinned(Thinned {
        box_id: BoxId([1; 16]),
        writer: DeviceId([7; 32]),
        incarnation: Incarnation([2; 16]),
        segment: 4,
        last_seq: 90,
        first_no: 1,
        last_no: 4100,
        from: Timestamp(1_796_000_000_000),
        to: Timestamp(1_796_050_000_000),
        hours: 720,
        days: vec![ThinnedDay {
            day: 20_787,
            hosts: vec![
                host("shop.example", Some(AddrClass::Internet)),
                host("", None),
            ],
            more: 5,
        }],
        open: vec![ThinnedFlow {
            flow: 300,
            place: 0,
            bytes_out: 0,
            bytes_in: 0,
        }],
    })
}

/// One whose flow under way has moved something.
fn thinned_under_way() -> Event {
    let Event::Thinned(mut it) = thinned() else {
        unreachable!()
    };
    it.open[0].bytes_out = 5;
    it.open[0].bytes_in = 1 << 33;
    Event::Thinned(it)
}

fn progressed() -> Event {
    Event::FlowProgressed(FlowProgressed {
        flow: FlowId(300),
        bytes_out: 512,
        bytes_in: 1 << 40,
        duration_us: 300_000_000,
    })
}

fn answered(answer: NameAnswer, addrs: &[&str]) -> Event {
    Event::NameAnswered(NameAnswered {
        host: Host::new("shop.example").unwrap(),
        qtype: 28,
        answer,
        addrs: addrs.iter().map(|ip| ip.parse().unwrap()).collect(),
        more: 300,
        ttl: 60,
        count: 1,
    })
}

fn granted(kind: GrantKind, write: bool) -> Event {
    Event::Granted(BoxGranted {
        box_id: BoxId([1; 16]),
        incarnation: Incarnation([2; 16]),
        written: "../p".to_owned(),
        path: "/home/u/p".to_owned(),
        kind,
        write,
        by: ChangedBy::Here,
    })
}

fn progress_answers_and_grants() -> Vec<Event> {
    vec![
        progressed(),
        answered(
            NameAnswer::Records,
            &["93.184.216.34", "2606:2800:220:1::1"],
        ),
        answered(NameAnswer::NoRecords, &[]),
        answered(NameAnswer::NoName, &[]),
        answered(NameAnswer::Withheld, &[]),
        answered(NameAnswer::Failed, &[]),
        granted(GrantKind::Folder, true),
        granted(GrantKind::File, false),
        granted(GrantKind::Socket, true),
        granted(GrantKind::Device, true),
        thinned_under_way(),
    ]
}

fn stop() -> Request {
    Request {
        id: RequestId([6; 16]),
        node: DeviceId([8; 32]),
        box_id: BoxId([1; 16]),
        incarnation: Incarnation([2; 16]),
        kind: RequestKind::Stop,
        basis: None,
    }
}

fn events() -> Vec<Event> {
    let mut events = flows();
    events.extend([
        Event::BoxStarted(BoxStarted {
            box_id: BoxId([1; 16]),
            name: "quiet-otter".to_owned(),
            incarnation: Incarnation([2; 16]),
            command: vec!["npm".to_owned(), "install".to_owned()],
            reach: "internet".to_owned(),
            image: "host".to_owned(),
        }),
        ended(BoxEnd::Exited(ChildExit::Code(3))),
        ended(BoxEnd::Exited(ChildExit::Signal(9))),
        ended(BoxEnd::Stopped(StoppedBy::Here)),
        ended(BoxEnd::Stopped(StoppedBy::Device(
            DeviceId([7; 32]),
            RequestId([6; 16]),
        ))),
        ended(BoxEnd::ClientGone),
        ended(BoxEnd::FenceLost),
        ended(BoxEnd::NotStarted("no tun".to_owned())),
        ended(BoxEnd::NodeLost),
        Event::Gap(Gap {
            reason: "power".to_owned(),
        }),
        Event::Notice(Notice {
            id: NoticeId([3; 16]),
            rule: Rule::LocalFromInternetOnly,
            box_id: BoxId([1; 16]),
            box_name: "quiet-otter".to_owned(),
            incarnation: Incarnation([2; 16]),
            evidence: vec![EntryRef {
                writer: DeviceId([7; 32]),
                box_id: BoxId([1; 16]),
                no: 5,
            }],
            text: "tried 192.168.1.20".to_owned(),
        }),
        Event::Request(stop()),
        receipt(RequestOutcome::Stopped {
            processes_ended: Some(4),
            processes_left: Some(0),
            flows_reset: None,
            took_ms: 12,
        }),
        receipt(RequestOutcome::AlreadyOver),
        receipt(RequestOutcome::Denied("role".to_owned())),
        Event::DeviceNamed(DeviceNamed {
            name: "laptop".to_owned(),
        }),
        Event::Newer(Newer {
            kind: 4000,
            body: vec![1, 2, 3],
        }),
        ended(BoxEnd::Weaker("network".to_owned())),
        ended(BoxEnd::TimeOut),
        report(Level::Earned(Tier::Gated)),
        report(Level::NotEarned),
        report(Level::Unmeasured),
    ]);
    events.extend(inbound());
    events.extend(names_of_flows());
    events.extend(reach_changed());
    events.extend([ended(BoxEnd::CoverLost("/p/.git".to_owned())), thinned()]);
    events
}

fn entries() -> Vec<Entry> {
    let number = |(at, event)| Entry {
        no: u64::try_from(at).unwrap() + 1,
        ts: Timestamp(1_796_000_000_000),
        event,
    };
    let events = events().into_iter().chain(progress_answers_and_grants());
    events.enumerate().map(number).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One line an entry, in the order of [`entries`]. What is stored must read
/// back for as long as the window lasts: a difference here is a new version,
/// not a new file.
const FROZEN: &str = include_str!("frozen.txt");

#[test]
fn every_event_packs_to_its_frozen_bytes_and_back() {
    let packed: Vec<Vec<u8>> = entries().iter().map(|entry| pack(entry).unwrap()).collect();
    let lines: Vec<String> = packed.iter().map(|bytes| hex(bytes)).collect();
    assert_eq!(lines.join("\n"), FROZEN.trim_end());
    for (bytes, entry) in packed.iter().zip(entries()) {
        assert_eq!(unpack(bytes), Ok(entry));
    }
}

#[test]
fn an_unknown_version_is_named_and_an_unknown_kind_is_carried() {
    let mut bytes = pack(&entries()[0]).unwrap();
    bytes[0] = 7;
    assert_eq!(unpack(&bytes), Err(UnpackError::Version(7)));
    assert_eq!(unpack(&[]), Err(UnpackError::Malformed));
    let newer = Entry {
        no: 9,
        ts: Timestamp(1),
        event: Event::Newer(Newer {
            kind: 999,
            body: b"from a newer one".to_vec(),
        }),
    };
    let bytes = pack(&newer).unwrap();
    assert_eq!(unpack(&bytes), Ok(newer));
}

#[test]
fn a_known_kind_with_a_newer_code_or_field_keeps_its_bytes() {
    let entry = Entry {
        no: 1,
        ts: Timestamp(1),
        event: flows().remove(3),
    };
    let bytes = pack(&entry).unwrap();
    let longer = [&bytes[..], &[0xaa]].concat();
    let read = unpack(&longer).unwrap();
    assert!(matches!(&read.event, Event::Newer(newer) if newer.kind == 4));
    assert_eq!(pack(&read).unwrap(), longer);
}

#[test]
fn what_flows_under_way_moved_is_there_for_each_or_not_at_all() {
    let packed = |event| {
        let (no, ts) = (1, Timestamp(1));
        pack(&Entry { no, ts, event }).unwrap()
    };
    let (plain, moved) = (packed(thinned()), packed(thinned_under_way()));
    // An older build has what it knows, with a rest that it carries.
    assert_eq!(moved[..plain.len()], plain);
    for odd in [&[0][..], &[1, 0, 0], &[2, 1, 1, 1, 1], &[1, 1]] {
        let bytes = [&plain[..], odd].concat();
        let read = unpack(&bytes).unwrap();
        assert!(matches!(read.event, Event::Newer(_)), "{odd:?}");
        assert_eq!(pack(&read).unwrap(), bytes);
    }
}

#[test]
fn an_entry_over_the_cap_is_refused() {
    let event = Event::Gap(Gap {
        reason: "x".repeat(MAX_ENTRY),
    });
    let refused = pack(&Entry {
        no: 1,
        ts: Timestamp(1),
        event,
    });
    assert!(matches!(refused, Err(PackError::TooLarge(_))));
}

#[test]
fn no_bytes_make_unpacking_panic_or_lose_anything() {
    proptest!(|(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0..40_u8)| {
        drop(unpack(&bytes));
        let framed = [&[VERSION, 5, 6, kind], &bytes[..]].concat();
        let entry = unpack(&framed).unwrap();
        // Whatever was read packs again to something that reads the same.
        prop_assert_eq!(unpack(&pack(&entry).unwrap()).unwrap(), entry);
    });
}

#[test]
fn a_ping_that_the_host_forbids_packs_to_its_frozen_bytes_and_back() {
    let entry = Entry {
        no: 7,
        ts: Timestamp(1_796_000_000_000),
        event: Event::FlowRefused(FlowRefused {
            direction: Direction::Out,
            proto: Proto::Other(1),
            src: Some(addr("192.0.0.2:4321")),
            dst: Some(addr("93.184.216.34:0")),
            host: None,
            host_from: HostFrom::None,
            class: Some(AddrClass::Internet),
            refusal: Refusal::NoPing,
            count: 1,
        }),
    };
    let bytes = pack(&entry).unwrap();
    assert_eq!(
        hex(&bytes),
        "010780d0c4cfa2340381040100c0000002e12101005db8d82200000201011401"
    );
    assert_eq!(unpack(&bytes), Ok(entry));
}

#[test]
fn a_private_address_of_no_network_of_ones_own_packs_to_its_frozen_bytes_and_back() {
    let entry = Entry {
        no: 7,
        ts: Timestamp(1_796_000_000_000),
        event: Event::FlowRefused(FlowRefused {
            direction: Direction::Out,
            proto: Proto::Tcp,
            src: Some(addr("192.0.0.2:4321")),
            dst: Some(addr("10.0.0.5:22")),
            host: None,
            host_from: HostFrom::None,
            class: Some(AddrClass::Private),
            refusal: Refusal::OutsideReach,
            count: 1,
        }),
    };
    let bytes = pack(&entry).unwrap();
    assert_eq!(
        hex(&bytes),
        "010780d0c4cfa23403060100c0000002e12101000a00000516000201090101"
    );
    assert_eq!(unpack(&bytes), Ok(entry));
}

#[test]
fn a_flow_that_a_changed_network_ended_packs_to_its_frozen_bytes_and_back() {
    let entry = Entry {
        no: 7,
        ts: Timestamp(1_796_000_000_000),
        event: Event::FlowEnded(FlowEnded {
            flow: FlowId(1),
            bytes_out: 2,
            bytes_in: 3,
            duration_us: 4,
            end: EndReason::NetworkChanged,
            outer_src: None,
        }),
    };
    let bytes = pack(&entry).unwrap();
    assert_eq!(hex(&bytes), "010780d0c4cfa23404010203040d00");
    assert_eq!(unpack(&bytes), Ok(entry));
}

/// Kinds that have their frozen bytes here.
fn kept_and_captured() -> [Event; 2] {
    let (box_id, incarnation) = (BoxId([1; 16]), Incarnation([2; 16]));
    [
        Event::CaptureStarted(bailey_model::CaptureStarted {
            box_id,
            incarnation,
            seconds: 600,
            by: bailey_model::ChangedBy::Here,
        }),
        Event::AuditHere(bailey_model::AuditHere {
            box_id,
            incarnation,
        }),
    ]
}

#[test]
fn captures_and_audits_kept_here_pack_to_their_frozen_bytes_and_back() {
    let ids = format!("{}{}", "01".repeat(16), "02".repeat(16));
    let frozen = [
        format!("010780d0c4cfa23412{ids}d80400"),
        format!("010780d0c4cfa23413{ids}"),
    ];
    for (event, frozen) in kept_and_captured().into_iter().zip(frozen) {
        let entry = Entry {
            no: 7,
            ts: Timestamp(1_796_000_000_000),
            event,
        };
        let bytes = pack(&entry).unwrap();
        assert_eq!(hex(&bytes), frozen);
        assert_eq!(unpack(&bytes), Ok(entry));
    }
}

/// What is written about the format for whoever reads it without this code.
const SPECIFICATION: &str = include_str!("../../../docs/entry.md");

fn is_specified<T: Codes>() {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let codes: Vec<String> = T::CODES
        .iter()
        .map(|(code, name)| format!("{code} {name}"))
        .collect();
    let listed = format!("{}.", codes.join(", "));
    let found = SPECIFICATION
        .split("\n\n")
        .map(words)
        .find(|text| text.starts_with(&format!("**{}**", T::NAME)));
    let found = found.unwrap_or_else(|| panic!("{} is not specified", T::NAME));
    assert!(
        found.ends_with(&format!("): {listed}")),
        "{found}: {listed}"
    );
}

#[test]
fn the_specification_has_every_code_and_kind() {
    is_specified::<AddrClass>();
    is_specified::<HostFrom>();
    is_specified::<Refusal>();
    is_specified::<EndReason>();
    is_specified::<Rule>();
    is_specified::<RequestKind>();
    is_specified::<Hold>();
    is_specified::<Tier>();
    is_specified::<BoxClass>();
    is_specified::<Method>();
    is_specified::<Axis>();
    is_specified::<AxisVerdict>();
    is_specified::<NameAnswer>();
    is_specified::<GrantKind>();
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        Some((cells.next()?.parse::<u16>().ok()?, cells.next()?.to_owned()))
    };
    let listed: Vec<(u16, String)> = SPECIFICATION.lines().filter_map(row).collect();
    let kind_of = |event: &Event| wire::encode(event).unwrap().0;
    let mut packed: Vec<(u16, String)> = events()
        .iter()
        .chain(&kept_and_captured())
        .chain(&progress_answers_and_grants())
        .chain(&asked::asked())
        .filter(|event| !matches!(event, Event::Newer(_)))
        .map(|event| {
            let shown = format!("{event:?}");
            let name = shown.split('(').next().unwrap_or_default().to_owned();
            match kind_of(event) {
                kind @ (13 | 14) => (kind, name.replace("Flow", "Inbound")),
                kind => (kind, name),
            }
        })
        .collect();
    packed.sort();
    packed.dedup();
    assert_eq!(listed, packed);
    let unknown = |kind: u16| wire::decode(kind, &[]).is_none();
    let last = packed.iter().map(|(kind, _)| *kind).max().unwrap();
    assert!((last + 1..500).all(unknown), "a kind is not specified");
    let cap = format!("At most {},{:03} bytes", MAX_ENTRY / 1000, MAX_ENTRY % 1000);
    assert!(SPECIFICATION.contains(&cap), "{cap}");
}
