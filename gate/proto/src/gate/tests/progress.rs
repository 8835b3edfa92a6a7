//! How far flows under way have come is told every five minutes.

use super::*;
use crate::flow_progress::{MAX_PROGRESS, PROGRESS_APART, PROGRESS_EVERY};
use bailey_model::FlowProgressed;

/// What is told of flows under way once so much time has passed, step by step as the
/// gate asks for it.
fn told_after(rig: &mut Rig, far: &mut Far, time: Duration) -> Vec<(Now, FlowProgressed)> {
    let until = rig.now + time;
    let mut told = Vec::new();
    loop {
        rig.turns(far);
        rig.sink.packets.clear();
        told.extend(rig.told().into_iter().filter_map(|(ticket, event)| {
            assert_eq!(ticket, None, "nobody waits for it");
            match event {
                GateEvent::FlowProgressed(it) => Some((rig.now, it)),
                GateEvent::NameAnswered(_) | GateEvent::NameAsked(_) => None,
                other => panic!("{other:?}"),
            }
        }));
        let due = rig.gate.poll_timeout().filter(|due| *due <= until);
        rig.now = due.map_or(until, |due| due.max(rig.now));
        if due.is_none() {
            return told;
        }
        rig.gate.handle_timeout(rig.now, &mut rig.sink);
    }
}

#[test]
fn a_long_flow_is_told_of_every_five_minutes_in_which_something_moved() {
    let (mut rig, mut far) = (Rig::new("internet"), Far::default());
    let begun = rig.now;
    let (flow, next) = rig.established(&mut far);
    rig.send(40000, SHOP, 101, next, ACK, b"hello");
    let told = told_after(&mut rig, &mut far, PROGRESS_EVERY);
    let first = FlowProgressed {
        flow,
        bytes_out: 5,
        bytes_in: 0,
        duration_us: 300_000_000,
    };
    assert_eq!(told, [(begun + PROGRESS_EVERY, first.clone())]);
    // Nothing moves: nothing is told.
    let told = told_after(&mut rig, &mut far, PROGRESS_EVERY * 3);
    assert_eq!(told, []);
    rig.send(40000, SHOP, 106, next, ACK, b" again");
    let told = told_after(&mut rig, &mut far, PROGRESS_EVERY);
    let second = FlowProgressed {
        bytes_out: 11,
        duration_us: 1_500_000_000,
        ..first
    };
    assert_eq!(told, [(begun + PROGRESS_EVERY * 5, second)]);
    // Its end has all of it, and none is told of after.
    rig.send(40000, SHOP, 112, next, RST, b"");
    rig.turns(&mut far);
    let ended = rig.ended();
    assert_eq!((ended.flow, ended.bytes_out), (flow, 11));
    let told = told_after(&mut rig, &mut far, PROGRESS_EVERY * 2);
    assert_eq!((told, rig.gate.poll_timeout()), (vec![], None));
}

#[test]
fn many_flows_are_told_of_a_few_at_a_time_and_behind_what_somebody_waits_for() {
    let mut rig = Rig::new("internet");
    let many = u64::try_from(3 * MAX_PROGRESS).unwrap();
    for flow in 0..many {
        let to = SocketAddr::from(([93, 184, 216, 34], 1000 + u16::try_from(flow).unwrap()));
        rig.tun(&datagram_of(own(5000), to, b"first"));
        let (ticket, _) = rig.opened();
        rig.word(ticket, true);
    }
    let (mut told, mut largest) = (Vec::new(), 0);
    let mut last = Now::ZERO;
    while told.len() < 3 * MAX_PROGRESS {
        // They go on, so none of them is idle.
        for flow in 0..many {
            let to = SocketAddr::from(([93, 184, 216, 34], 1000 + u16::try_from(flow).unwrap()));
            rig.tun(&datagram_of(own(5000), to, b"more"));
        }
        rig.sink.datagrams.clear();
        let step = PROGRESS_EVERY / 3;
        let due = rig
            .gate
            .poll_timeout()
            .unwrap()
            .max(rig.now + PROGRESS_APART / 2);
        rig.now = due.min(rig.now + step);
        rig.gate.handle_timeout(rig.now, &mut rig.sink);
        rig.send(40000, LAN, 1, 0, SYN, b"");
        rig.sink.packets.clear();
        let events = rig.told();
        let progress: Vec<_> = events
            .iter()
            .filter_map(|(_, event)| match event {
                GateEvent::FlowProgressed(it) => Some(it.flow),
                _ => None,
            })
            .collect();
        if !progress.is_empty() {
            let behind = matches!(events.last(), Some((_, GateEvent::FlowProgressed(_))));
            assert!(behind, "{events:?}");
            assert!(told.is_empty() || rig.now >= last + PROGRESS_APART);
            last = rig.now;
        }
        largest = largest.max(progress.len());
        told.extend(progress);
    }
    assert_eq!(largest, MAX_PROGRESS);
    let flows: std::collections::BTreeSet<_> = told.iter().collect();
    assert_eq!(flows.len(), told.len(), "each once");
}
