//! Requests and their receipts, pauses, and heads that were seen.

use bailey_model::{
    Basis, BoxId, BoxPaused, BoxResumed, ChangedBy, DeviceId, HeadsSeen, Hold, Incarnation,
    ReachChanged, Request, RequestId, RequestKind, RequestOutcome, SeenDoc, SeenHead, StateHash,
};

use super::super::*;
use super::{hex, receipt};

const BOX: BoxId = BoxId([1; 16]);
const RUN: Incarnation = Incarnation([2; 16]);

fn by_device() -> ChangedBy {
    ChangedBy::Device(DeviceId([7; 32]), RequestId([6; 16]))
}

fn request(kind: RequestKind, terms: &str, until: Option<u64>) -> Event {
    Event::Request(Request {
        id: RequestId([6; 16]),
        node: DeviceId([8; 32]),
        box_id: BOX,
        incarnation: RUN,
        kind,
        basis: Some(Basis {
            terms: terms.to_owned(),
            state: StateHash([9; 32]),
            seq: 300,
            until: until.map(Timestamp),
        }),
    })
}

fn paused(hold: Hold, by: ChangedBy) -> Event {
    Event::BoxPaused(BoxPaused {
        box_id: BOX,
        incarnation: RUN,
        processes: 5,
        hold,
        by,
    })
}

fn resumed(by: ChangedBy) -> Event {
    Event::BoxResumed(BoxResumed {
        box_id: BOX,
        incarnation: RUN,
        by,
    })
}

fn seen(doc: SeenDoc) -> SeenHead {
    SeenHead {
        writer: DeviceId([7; 32]),
        incarnation: RUN,
        doc,
        seq: 300,
        hash: [4; 32],
    }
}

fn outcomes() -> Vec<RequestOutcome> {
    vec![
        RequestOutcome::Paused {
            processes: 5,
            hold: Hold::Cgroup,
            took_ms: 300,
        },
        RequestOutcome::Paused {
            processes: 0,
            hold: Hold::Signals,
            took_ms: 1,
        },
        RequestOutcome::Resumed {
            processes: Some(5),
            took_ms: 300,
        },
        RequestOutcome::Resumed {
            processes: None,
            took_ms: 0,
        },
        RequestOutcome::Reach {
            reach: "a.b".to_owned(),
            flows_reset: Some(3),
        },
        RequestOutcome::Expired,
        RequestOutcome::Changed("paused".to_owned()),
        RequestOutcome::NotDone("full".to_owned()),
    ]
}

/// In the order of the frozen lines.
pub(super) fn asked() -> Vec<Event> {
    let mut events = vec![
        request(RequestKind::Pause, "", None),
        request(RequestKind::Resume, "", Some(1_796_000_600_000)),
        request(RequestKind::Allow, "a.b:443", Some(1_796_000_600_000)),
        request(RequestKind::Deny, "a.b", None),
        paused(Hold::Cgroup, ChangedBy::Here),
        paused(Hold::Signals, by_device()),
        resumed(ChangedBy::Here),
        resumed(by_device()),
        Event::ReachChanged(ReachChanged {
            box_id: BOX,
            incarnation: RUN,
            old: "a.b".to_owned(),
            new: "nothing".to_owned(),
            by: by_device(),
        }),
    ];
    events.extend(outcomes().into_iter().map(receipt));
    let docs = [
        SeenDoc::Account,
        SeenDoc::Keys,
        SeenDoc::Node,
        SeenDoc::Notices,
        SeenDoc::Requests,
        SeenDoc::Days,
        SeenDoc::Box(BOX),
    ];
    let heads = docs.into_iter().map(seen).collect();
    events.push(Event::HeadsSeen(HeadsSeen { heads }));
    events.push(Event::HeadsSeen(HeadsSeen::default()));
    events
}

#[test]
fn what_is_asked_of_a_box_packs_to_its_frozen_bytes_and_back() {
    let frozen = include_str!("../asked.txt").lines();
    let packed = |event| {
        let (no, ts) = (7, Timestamp(1_796_000_000_000));
        let entry = Entry { no, ts, event };
        let bytes = pack(&entry).unwrap();
        assert_eq!(unpack(&bytes), Ok(entry));
        hex(&bytes)
    };
    let packed: Vec<String> = asked().into_iter().map(packed).collect();
    assert_eq!(packed, frozen.collect::<Vec<_>>());
}

#[test]
fn a_request_without_what_it_must_rest_on_is_carried_and_never_acted_on() {
    let packed = |kind, basis: bool| {
        let Event::Request(mut request) = request(kind, "", None) else {
            unreachable!()
        };
        request.basis = request.basis.filter(|_| basis);
        let (no, ts) = (1, Timestamp(1));
        let event = Event::Request(request);
        pack(&Entry { no, ts, event }).unwrap()
    };
    for (kind, basis) in [
        (RequestKind::Stop, true),
        (RequestKind::Pause, false),
        (RequestKind::Resume, false),
        (RequestKind::Allow, false),
        (RequestKind::Deny, false),
    ] {
        let bytes = packed(kind, basis);
        let read = unpack(&bytes).unwrap();
        assert!(matches!(read.event, Event::Newer(_)), "{kind:?}");
        assert_eq!(pack(&read).unwrap(), bytes);
    }
}

#[test]
fn more_heads_than_an_entry_may_have_are_not_read() {
    let entry = |count| Entry {
        no: 1,
        ts: Timestamp(1),
        event: Event::HeadsSeen(HeadsSeen {
            heads: vec![seen(SeenDoc::Node); count],
        }),
    };
    let most = entry(HeadsSeen::MAX);
    assert_eq!(unpack(&pack(&most).unwrap()), Ok(most));
    let more = pack(&entry(HeadsSeen::MAX + 1)).unwrap();
    assert!(matches!(unpack(&more).unwrap().event, Event::Newer(_)));
}
