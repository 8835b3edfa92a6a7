//! Datagrams: a flood that stays below what the machine can do, and a call
//! beside a download.

use bailey_tests::TestWorld;

use crate::Effort;
use crate::places::{InTurn, Way, in_turn};
use crate::server::Server;
use crate::table::{Figure, Mark, Row, Table};

/// Mbit/s of the flood.
const FLOOD: &str = "500";

/// Loss of 500 Mbit/s, each way.
pub(crate) fn flood(world: &TestWorld, server: &Server, effort: Effort, table: &mut Table) {
    let (way, to) = (Way::TO_NODE.with_slirp(), server.at("udp"));
    let millis = effort.flood.as_millis().to_string();
    for (name, role) in [
        ("UDP, 500 Mbit/s, box to node: lost", "flood-out"),
        ("UDP, 500 Mbit/s, node to box: lost", "flood-in"),
    ] {
        let words = [role, &to, FLOOD, &millis];
        let all: InTurn<1> = in_turn(world, way, effort.many_rounds, effort.flood, &words);
        let ([bailey], [direct], [pasta], [slirp]) = (all.bailey, all.direct, all.pasta, all.slirp);
        table.add(Row {
            name,
            unit: "%",
            bailey,
            worst: None,
            peers: vec![("pasta", pasta), ("slirp4netns", slirp), ("no box", direct)],
            mark: Some(Mark::NoMoreThanFirstAnd(0.1)),
        });
    }
}

/// A call of 2.5 Mbit/s each way, in frames of video, beside a download as fast
/// as it goes.
pub(crate) fn call(world: &TestWorld, server: &Server, effort: Effort, table: &mut Table) {
    let (udp, source) = (server.at("udp"), server.at("source"));
    let millis = effort.call.as_millis().to_string();
    let words = ["call", &udp, &source, &millis];
    let all: InTurn<4> = in_turn(world, Way::TO_NODE, 1, effort.call, &words);
    let base = all.direct[0].clone();
    // Beyond the same call without a box and without a download.
    let added = |figures: &[Figure; 4]| match (&figures[1], &base) {
        (Figure::Value(p99), Figure::Value(base)) => Figure::Value((p99 - base).max(0.0)),
        (Figure::Value(_), other) | (other, _) => other.clone(),
    };
    let column = |figures: &[Figure; 4], at: usize| figures[at].clone();
    table.add(Row {
        name: "a call beside a download: delay added, p99",
        unit: "ms",
        bailey: added(&all.bailey),
        worst: None,
        peers: vec![("pasta", added(&all.pasta)), ("no box", added(&all.direct))],
        mark: Some(Mark::AtMost(5.0)),
    });
    table.add(Row {
        name: "  packets of the call that were lost",
        unit: "%",
        bailey: column(&all.bailey, 2),
        worst: None,
        peers: vec![
            ("pasta", column(&all.pasta, 2)),
            ("no box", column(&all.direct, 2)),
        ],
        mark: Some(Mark::AtMost(0.0)),
    });
    table.add(Row {
        name: "  the download beside it",
        unit: "Gbit/s",
        bailey: column(&all.bailey, 3),
        worst: None,
        peers: vec![
            ("pasta", column(&all.pasta, 3)),
            ("no box", column(&all.direct, 3)),
        ],
        mark: None,
    });
}
