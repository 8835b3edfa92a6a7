//! Streams: the same client in every place, in turn.

use bailey_tests::TestWorld;
use bailey_world::at;

use crate::Effort;
use crate::places::{InTurn, Way, in_turn};
use crate::server::Server;
use crate::table::{Figure, Mark, Row, Table};

/// Segments of a path whose MTU is 1500: 1500 octets less two headers.
const ETHERNET: &str = "1460";

/// One stream each way, to the node itself and to the router.
pub(crate) fn measure(world: &TestWorld, server: &Server, effort: Effort, table: &mut Table) {
    for (port, name, role) in [
        ("discard", "one TCP stream, box to the node itself", "send"),
        (
            "source",
            "one TCP stream, the node itself to box",
            "receive",
        ),
    ] {
        let to = server.at(port);
        let all = stream(world, effort, Way::TO_NODE, &[role, &to]);
        let mark = Mark::OfFirst(0.8);
        table.add(row(name, ("loopback", all), Some(mark), false));
    }
    for (name, role, port) in [
        (
            "one TCP stream, box to the router",
            "send",
            at::port::DISCARD,
        ),
        (
            "one TCP stream, the router to box",
            "receive",
            at::port::SOURCE,
        ),
    ] {
        let to = format!("{}:{port}", at::WEB_V4);
        let all = stream(world, effort, Way::TO_ROUTER, &[role, &to]);
        table.add(row(name, ("veth", all), None, false));
    }
}

/// Eight streams at once, and one of short segments.
pub(crate) fn many(world: &TestWorld, server: &Server, effort: Effort, table: &mut Table) {
    let way = Way::TO_NODE.with_slirp();
    for (name, port, role, more) in [
        (
            "8 TCP streams, box to the node itself",
            "discard",
            "send",
            ["8", "0"],
        ),
        (
            "8 TCP streams, the node itself to box",
            "source",
            "receive",
            ["8", "0"],
        ),
        (
            "one TCP stream at MTU 1500, box to node",
            "discard",
            "send",
            ["1", ETHERNET],
        ),
        (
            "one TCP stream at MTU 1500, node to box",
            "source",
            "receive",
            ["1", ETHERNET],
        ),
    ] {
        let to = server.at(port);
        let millis = effort.many.as_millis().to_string();
        let [streams, segment] = more;
        let words = [role, &to, &millis, streams, segment];
        let all: InTurn<2> = in_turn(world, way, effort.many_rounds, effort.many, &words);
        let again = all.bailey[1].clone();
        table.add(row(
            name,
            ("loopback", all),
            Some(Mark::AheadOf(&["pasta", "slirp4netns"])),
            true,
        ));
        if role == "send" {
            table.add(Row {
                name: "  segments that the box sent again",
                unit: "",
                bailey: again,
                worst: None,
                peers: Vec::new(),
                mark: Some(Mark::AtMost(50.0)),
            });
        }
    }
}

fn row(
    name: &'static str,
    (direct, all): (&'static str, InTurn<2>),
    mark: Option<Mark>,
    slirp: bool,
) -> Row {
    let first = |[rate, _]: [Figure; 2]| rate;
    let mut peers = vec![(direct, first(all.direct)), ("pasta", first(all.pasta))];
    if slirp {
        peers.push(("slirp4netns", first(all.slirp)));
    }
    Row {
        name,
        unit: "Gbit/s",
        bailey: first(all.bailey),
        worst: None,
        peers,
        mark,
    }
}

fn stream(world: &TestWorld, effort: Effort, way: Way, words: &[&str]) -> InTurn<2> {
    let millis = effort.stream.as_millis().to_string();
    let words = [words, &[&millis, "1", "0"]].concat();
    in_turn(world, way, effort.rounds, effort.stream, &words)
}
