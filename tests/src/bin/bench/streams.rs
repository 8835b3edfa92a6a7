//! Streams: the same client without a box, in pasta and in a box, in turn.

use std::ffi::OsStr;
use std::process::Command;
use std::time::Duration;

use bailey_tests::{Running, TestWorld, binaries, eventually, run_within};
use bailey_world::at;

use crate::Effort;
use crate::inside::{SLACK, first_line, installed, program};
use crate::table::{Figure, Mark, Row, Table};

/// Another address than the node's own, under which pasta does not take the
/// node for itself and so reaches a server there.
const PASTA_ELSEWHERE: [&str; 7] = [
    "--ipv4-only",
    "--address",
    "10.0.2.15",
    "--netmask",
    "24",
    "--gateway",
    "10.0.2.2",
];

/// A place's way to a server.
#[derive(Debug, Clone, Copy)]
struct Way<'a> {
    reach: &'a str,
    pasta: &'a [&'a str],
}

/// To a server at the node's own address: without a box this is the loopback,
/// so what is left of it in a box is the price of the box alone.
pub(crate) fn to_the_node_itself(world: &TestWorld, effort: Effort, table: &mut Table) {
    let own = at::node_v4(1).to_string();
    let mut serve = world.command("n1", &program("bailey-bench"));
    let server = Running::start(serve.args(["client", "serve", &own]));
    let ports = eventually(Duration::from_secs(10), || {
        let said = server.stdout();
        let (out, back) = said.strip_suffix('\n')?.split_once(' ')?;
        Some([out.to_owned(), back.to_owned()])
    });
    let way = Way {
        reach: "local",
        pasta: &PASTA_ELSEWHERE,
    };
    for (at, name, role) in [
        (0, "one TCP stream, box to the node itself", "send"),
        (1, "one TCP stream, the node itself to box", "receive"),
    ] {
        let port = ports.as_ref().and_then(|ports| ports.get(at));
        let [direct, pasta, bailey] = match port {
            Some(port) => stream(world, effort, way, role, &format!("{own}:{port}")),
            None => {
                let why = format!("no server: {}", first_line(&server.stderr()));
                [(); 3].map(|()| Figure::Failed(why.clone()))
            }
        };
        table.add(Row {
            name,
            unit: "Gbit/s",
            bailey,
            worst: None,
            peers: vec![("loopback", direct), ("pasta", pasta)],
            mark: Some(Mark::OfFirst(0.5)),
        });
    }
}

/// To a server in another namespace, over a pair of virtual cables.
pub(crate) fn to_the_router(world: &TestWorld, effort: Effort, table: &mut Table) {
    let way = Way {
        reach: "internet",
        pasta: &[],
    };
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
        let [direct, pasta, bailey] = stream(world, effort, way, role, &to);
        table.add(Row {
            name,
            unit: "Gbit/s",
            bailey,
            worst: None,
            peers: vec![("veth", direct), ("pasta", pasta)],
            mark: None,
        });
    }
}

fn stream(world: &TestWorld, effort: Effort, way: Way<'_>, role: &str, to: &str) -> [Figure; 3] {
    let millis = effort.stream.as_millis().to_string();
    in_turn(world, effort, way, &[role, to, &millis])
}

/// Whole fetches a second from the router.
pub(crate) fn fetches(world: &TestWorld, effort: Effort, threads: &str) -> [Figure; 3] {
    let to = format!("{}:{}", at::WEB_V4, at::port::HTTP);
    let millis = effort.stream.as_millis().to_string();
    let way = Way {
        reach: "internet",
        pasta: &[],
    };
    in_turn(world, effort, way, &["fetch", &to, &millis, threads])
}

/// Medians of a client without a box, in pasta and in a box.
fn in_turn(world: &TestWorld, effort: Effort, way: Way<'_>, words: &[&str]) -> [Figure; 3] {
    let bench = program("bailey-bench");
    let mut all = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..effort.rounds {
        let [direct, pasta, bailey] = &mut all;
        direct.push(one(world.command("n1", &bench), effort, words));
        pasta.push(if installed("pasta") {
            let mut command = world.command("n1", "pasta");
            command.args(["--config-net", "--quiet"]).args(way.pasta);
            command.args(["--", &bench]);
            one(command, effort, words)
        } else {
            Figure::NotInstalled
        });
        let mut command = world.bailey("n1");
        let grant = format!("{}:ro", binaries().display());
        command.args([
            "run", "-q", "--reach", way.reach, "--grant", &grant, "--", &bench,
        ]);
        bailey.push(one(command, effort, words));
    }
    all.map(|figures| Figure::median(&figures))
}

fn one(command: Command, effort: Effort, words: &[&str]) -> Figure {
    match client(command, effort, words) {
        Ok(line) => parse(&line),
        Err(why) => Figure::Failed(why),
    }
}

fn client(mut command: Command, effort: Effort, words: &[&str]) -> Result<String, String> {
    command.arg("client").args(words.iter().map(OsStr::new));
    let output = run_within(effort.stream + SLACK, &mut command);
    match output.code {
        Some(0) => Ok(output.stdout.trim().to_owned()),
        code => Err(format!("code {code:?}: {}", first_line(&output.stderr))),
    }
}

fn parse(word: &str) -> Figure {
    word.parse().map_or_else(
        |_| Figure::Failed(format!("it said `{word}`")),
        Figure::Value,
    )
}
