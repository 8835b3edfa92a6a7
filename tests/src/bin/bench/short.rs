//! Short connections and single bytes: what a flow and a packet cost.

use bailey_tests::TestWorld;
use bailey_world::at;

use crate::Effort;
use crate::places::{InTurn, Way, in_turn};
use crate::server::Server;
use crate::table::{Figure, Mark, Row, Table};

/// Round trips of one byte that are timed.
const TRIPS: &str = "10000";

/// Connections that carry one byte, fetches, and round trips on one connection.
pub(crate) fn measure(world: &TestWorld, server: &Server, effort: Effort, table: &mut Table) {
    let millis = effort.short.as_millis().to_string();
    let tick = server.at("tick");
    let web = format!("{}:{}", at::WEB_V4, at::port::HTTP);
    let pasta = Some(Mark::AheadOf(&["pasta"]));
    for (name, way, words, mark) in [
        (
            "connect, one byte, close, one at a time",
            Way::TO_NODE.with_slirp(),
            ["tick", &tick, &millis, "1"],
            pasta,
        ),
        (
            "connect, one byte, close, 32 at a time",
            Way::TO_NODE.with_slirp(),
            ["tick", &tick, &millis, "32"],
            pasta,
        ),
        (
            "fetches, one after the other",
            Way::TO_ROUTER,
            ["fetch", &web, &millis, "1"],
            None,
        ),
        (
            "fetches, 16 at a time",
            Way::TO_ROUTER,
            ["fetch", &web, &millis, "16"],
            None,
        ),
    ] {
        let all: InTurn<1> = in_turn(world, way, effort.rounds, effort.short, &words);
        let [bailey] = all.bailey;
        table.add(Row {
            name,
            unit: "/s",
            bailey,
            worst: None,
            peers: peers(("no box", all.direct), all.pasta, all.slirp, mark.is_some()),
            mark,
        });
    }
    trips(world, server, effort, table);
}

fn peers(
    (name, [direct]): (&'static str, [Figure; 1]),
    [pasta]: [Figure; 1],
    [slirp]: [Figure; 1],
    with_slirp: bool,
) -> Vec<(&'static str, Figure)> {
    let mut peers = vec![(name, direct), ("pasta", pasta)];
    if with_slirp {
        peers.push(("slirp4netns", slirp));
    }
    peers
}

fn trips(world: &TestWorld, server: &Server, effort: Effort, table: &mut Table) {
    let (way, echo) = (Way::TO_NODE.with_slirp(), server.at("echo"));
    let words = ["trip", &echo, TRIPS];
    let all: InTurn<2> = in_turn(world, way, effort.rounds, effort.short, &words);
    for (at, name) in [
        (0, "round trip of one byte, median"),
        (1, "round trip of one byte, p99"),
    ] {
        let of = |figures: &[Figure; 2]| figures[at].clone();
        table.add(Row {
            name,
            unit: "us",
            bailey: of(&all.bailey),
            worst: None,
            peers: vec![
                ("pasta", of(&all.pasta)),
                ("slirp4netns", of(&all.slirp)),
                ("no box", of(&all.direct)),
            ],
            mark: Some(Mark::AtMostOfFirst(1.0)),
        });
    }
}
