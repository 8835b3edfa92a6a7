//! The places that are compared: without a box, in the peers, in a box. A client
//! runs in each of them in turn, so that what else the machine does falls on all.

use std::ffi::OsStr;
use std::process::Command;
use std::time::Duration;

use bailey_tests::{TestWorld, binaries, run_within};

use crate::inside::{SLACK, first_line, installed, program};
use crate::table::Figure;

/// Another address than the node's own, under which pasta does not take the
/// node for itself and so reaches a server there.
const PASTA_ELSEWHERE: &[&str] = &[
    "--ipv4-only",
    "--address",
    "10.0.2.15",
    "--netmask",
    "24",
    "--gateway",
    "10.0.2.2",
];

/// A way to a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    reach: &'static str,
    pasta: &'static [&'static str],
    /// Whether slirp4netns is compared too.
    slirp: bool,
}

impl Way {
    /// To a server at the node's own address: without a box this is the loopback,
    /// so what is left of it in a box is the price of the box alone.
    pub(crate) const TO_NODE: Self = Self {
        reach: "local",
        pasta: PASTA_ELSEWHERE,
        slirp: false,
    };
    /// To a server in another namespace, over a pair of virtual cables.
    pub(crate) const TO_ROUTER: Self = Self {
        reach: "internet",
        pasta: &[],
        slirp: false,
    };

    pub(crate) const fn with_slirp(mut self) -> Self {
        self.slirp = true;
        self
    }
}

/// What a client printed in each place: as many numbers as it says, each the
/// median of the rounds.
#[derive(Debug)]
pub(crate) struct InTurn<const N: usize> {
    pub(crate) direct: [Figure; N],
    pub(crate) pasta: [Figure; N],
    pub(crate) slirp: [Figure; N],
    pub(crate) bailey: [Figure; N],
}

/// Runs a client in each place, `rounds` times. `length` is how long it measures.
pub(crate) fn in_turn<const N: usize>(
    world: &TestWorld,
    way: Way,
    rounds: usize,
    length: Duration,
    words: &[&str],
) -> InTurn<N> {
    let bench = program("bailey-bench");
    let mut all: [Vec<[Figure; N]>; 4] = std::array::from_fn(|_| Vec::new());
    for _ in 0..rounds {
        let [direct, pasta, slirp, bailey] = &mut all;
        direct.push(one(world.command("n1", &bench), &["client"], length, words));
        pasta.push(if installed("pasta") {
            let mut command = world.command("n1", "pasta");
            command.args(["--config-net", "--quiet"]).args(way.pasta);
            command.args(["--", &bench]);
            one(command, &["client"], length, words)
        } else {
            std::array::from_fn(|_| Figure::NotInstalled)
        });
        slirp.push(if way.slirp && installed("slirp4netns") {
            one(
                world.command("n1", &bench),
                &["client", "in-slirp"],
                length,
                words,
            )
        } else {
            std::array::from_fn(|_| Figure::NotInstalled)
        });
        bailey.push(one(
            gated(world, way.reach, &bench),
            &["client"],
            length,
            words,
        ));
    }
    let [direct, pasta, slirp, bailey] = all.map(|rounds| {
        std::array::from_fn(|column| {
            let column = rounds.iter().map(|round| round[column].clone());
            Figure::median(&column.collect::<Vec<_>>())
        })
    });
    InTurn {
        direct,
        pasta,
        slirp,
        bailey,
    }
}

/// `bailey run` of a program of ours.
pub(crate) fn gated(world: &TestWorld, reach: &str, bench: &str) -> Command {
    let mut command = world.bailey("n1");
    let grant = format!("{}:ro", binaries().display());
    command.args([
        "run", "-q", "--reach", reach, "--grant", &grant, "--", bench,
    ]);
    command
}

fn one<const N: usize>(
    mut command: Command,
    before: &[&str],
    length: Duration,
    words: &[&str],
) -> [Figure; N] {
    command.args(before).args(words.iter().map(OsStr::new));
    let output = run_within(length + SLACK, &mut command);
    if output.code != Some(0) {
        let why = format!("code {:?}: {}", output.code, first_line(&output.stderr));
        return std::array::from_fn(|_| Figure::Failed(why.clone()));
    }
    let mut said = output.stdout.split_whitespace();
    std::array::from_fn(|_| parse(said.next().unwrap_or_default()))
}

pub(crate) fn parse(word: &str) -> Figure {
    word.parse().map_or_else(
        |_| Figure::Failed(format!("it said `{word}`")),
        Figure::Value,
    )
}
