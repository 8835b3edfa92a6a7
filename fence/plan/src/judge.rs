//! From what was tried inside a box to a verdict a side, and to its level.
//!
//! A verdict speaks for the tier that was asked. A side is `fenced` only where
//! every trial that it rests on was made and held: one that is missing makes it
//! `not-measured`, one that got through `not-fenced`, or `passes` where the tier
//! does not promise it.

use std::fmt::Write as _;

use bailey_model::{
    Axis, AxisReport, AxisVerdict, BoxClass, Fact, Level, Limits, Publish, Reach, ReachTerm, Tier,
    Transport,
};

use crate::channel::Measured;
use crate::opened;

mod promise;

pub use promise::{side_of_abstract, trials};

/// The first version of Landlock that keeps abstract sockets apart.
const ABSTRACT_ABI: u32 = 6;
/// How long the trials took says nothing of a boundary.
const TOOK: &str = "trials took";
/// Holes of one kind that are listed by themselves; the rest is a count.
const MAX_LISTED: usize = 16;

/// What a box was asked to be, as far as its report tells it.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// What it is kept from.
    pub tier: Tier,
    /// What it is for.
    pub class: BoxClass,
    /// What it may use up.
    pub limits: Limits,
    /// Whether it has a cgroup.
    pub cgroup: bool,
    /// What it may dial (gated).
    pub reach: &'a Reach,
    /// Ports that lead into it (gated).
    pub publish: &'a [Publish],
    /// Image name.
    pub image: &'a str,
    /// Folders and files that it may write, beside its own folder.
    pub writable: &'a [String],
    /// Of those, what another running box may use too, and which box.
    pub shared: &'a [(String, String)],
    /// Whether its gate told of the dial that it refused (gated).
    pub gate_saw: bool,
    /// Whether the host lets the gate make ping sockets (gated).
    pub ping: bool,
    /// Most bytes that its gate holds for it (gated).
    pub gate_bytes: usize,
}

/// One report a side, in the order of [`Axis::ALL`], and the level.
#[must_use]
pub fn judge(measured: &Measured, asked: Asked<'_>) -> (Vec<AxisReport>, Level) {
    let axes: Vec<AxisReport> = Axis::ALL
        .into_iter()
        .map(|axis| {
            let mut facts = tried(measured, asked, axis);
            let verdict = verdict(measured, asked, axis, &facts);
            facts.extend(known(measured, asked, axis));
            AxisReport {
                axis,
                verdict,
                facts,
            }
        })
        .collect();
    let level = level(&axes, asked);
    (axes, level)
}

/// The sides on which a box is weaker than it was asked to be, with what tells
/// it; `None` where it is all that was asked.
#[must_use]
pub fn weaker(axes: &[AxisReport], level: Level, asked: Tier) -> Option<String> {
    let is_weak = |axis: &&AxisReport| {
        let weak = matches!(
            axis.verdict,
            AxisVerdict::NotFenced | AxisVerdict::NotMeasured
        );
        weak && (axis.axis == Axis::Limits || promise::rests_on(asked, axis.axis))
    };
    let mut text = String::new();
    for axis in axes.iter().filter(is_weak) {
        let gap = if text.is_empty() { "" } else { "; " };
        let _infallible = write!(
            text,
            "{gap}{}: {}",
            axis.axis.as_str(),
            axis.verdict.as_str()
        );
        let through = axis.facts.iter().filter(|fact| fact.held == Some(false));
        for fact in through.take(MAX_LISTED) {
            let _infallible = write!(text, ", {} {}", fact.what, fact.got);
        }
    }
    if text.is_empty() && level != Level::Earned(asked) {
        text = format!("level {}", level.as_str());
    }
    (!text.is_empty()).then_some(text)
}

/// What was tried on a side. What the class opens is not held against it.
fn tried(measured: &Measured, asked: Asked<'_>, axis: Axis) -> Vec<Fact> {
    let opens = |fact: &Fact| promise::opens(asked.class, &fact.what);
    let mut facts: Vec<Fact> = measured
        .facts
        .iter()
        .filter(|(of, fact)| *of == axis && fact.what != TOOK)
        .map(|(_, fact)| Fact {
            held: fact.held.filter(|held| *held || !opens(fact)),
            ..fact.clone()
        })
        .collect();
    if axis == Axis::Network && asked.tier == Tier::Gated {
        facts.push(Fact {
            what: promise::GATE_SAW.to_owned(),
            got: if asked.gate_saw { "yes" } else { "no" }.to_owned(),
            held: asked.gate_saw.then_some(true),
        });
    }
    facts
}

fn verdict(measured: &Measured, asked: Asked<'_>, axis: Axis, facts: &[Fact]) -> AxisVerdict {
    let through: Vec<&Fact> = facts
        .iter()
        .filter(|fact| fact.held == Some(false))
        .collect();
    let held = |what: &str| {
        let mut of_name = facts.iter().filter(|fact| fact.what == what).peekable();
        of_name.peek().is_some() && of_name.all(|fact| fact.held == Some(true))
    };
    let promises = axis == Axis::Limits || promise::rests_on(asked.tier, axis);
    if !through.is_empty() {
        let by_kernel = axis == Axis::Files
            && asked.tier.shares_network()
            && measured.landlock.is_none_or(|abi| abi < ABSTRACT_ABI)
            && through.iter().all(|fact| fact.what == promise::ABSTRACT);
        return if by_kernel || !promises {
            AxisVerdict::Passes
        } else {
            AxisVerdict::NotFenced
        };
    }
    if !trials(axis, asked).into_iter().all(held)
        || axis == Axis::Files && !each_held(&measured.demanded, facts)
    {
        return AxisVerdict::NotMeasured;
    }
    match axis {
        Axis::Network if asked.tier == Tier::Gated => AxisVerdict::Decided,
        Axis::Limits if is_unlimited(asked.limits) => AxisVerdict::Passes,
        _ => AxisVerdict::Fenced,
    }
}

/// Whether each of these was tried, as often as it stands there, and held.
fn each_held(demanded: &[String], facts: &[Fact]) -> bool {
    demanded.iter().all(|what| {
        let wanted = demanded.iter().filter(|other| *other == what).count();
        let held = |fact: &&Fact| fact.what == *what && fact.held == Some(true);
        facts.iter().filter(held).count() >= wanted
    })
}

/// Nothing bounds what it uses up but the user's own limits.
fn is_unlimited(limits: Limits) -> bool {
    let Limits {
        memory,
        cpus_milli,
        pids,
        files,
        seconds: _,
    } = limits;
    memory.is_none() && cpus_milli.is_none() && pids.is_none() && files.is_none()
}

/// The highest tier up to the asked one all of whose sides hold.
fn level(axes: &[AxisReport], asked: Asked<'_>) -> Level {
    let of = |axis: Axis| {
        let found = axes.iter().find(|report| report.axis == axis);
        found.map_or(AxisVerdict::NotMeasured, |report| report.verdict)
    };
    let holds = |axis: Axis| match of(axis) {
        AxisVerdict::Fenced => true,
        AxisVerdict::Decided => asked.tier == Tier::Gated,
        // Only what no kernel of this age can hold: such a box does not start
        // while something listens there that it must not reach.
        AxisVerdict::Passes => axis == Axis::Files,
        AxisVerdict::NotFenced | AxisVerdict::NotMeasured => false,
    };
    let earned = Tier::ALL.into_iter().filter(|tier| {
        *tier <= asked.tier
            // The two that do not share the network are no steps of each other.
            && (tier.shares_network() || *tier == asked.tier)
            && promise::sides(*tier).iter().all(|axis| holds(*axis))
    });
    match earned.max() {
        Some(tier) => Level::Earned(tier),
        None => {
            let weakest = promise::sides(Tier::L1);
            if weakest
                .iter()
                .any(|axis| of(*axis) == AxisVerdict::NotFenced)
            {
                Level::NotEarned
            } else {
                Level::Unmeasured
            }
        }
    }
}

/// What is not tried but known: the holes that were asked for, and by what a
/// side is held.
fn known(measured: &Measured, asked: Asked<'_>, axis: Axis) -> Vec<Fact> {
    match axis {
        Axis::Files => files(measured, asked),
        Axis::Processes => Vec::new(),
        Axis::Syscalls => opened(asked.class)
            .iter()
            .map(|opened| says("class browser", opened.what))
            .collect(),
        Axis::Capabilities => match asked.class {
            BoxClass::Plain => Vec::new(),
            BoxClass::Browser => vec![says(
                "class browser",
                "every capability within namespaces of its own making",
            )],
        },
        Axis::Network => network(asked),
        Axis::Limits => limits(asked),
    }
}

fn says(what: &str, got: &str) -> Fact {
    Fact {
        what: what.to_owned(),
        got: got.to_owned(),
        held: None,
    }
}

/// The first of many, and how many more there are.
fn listed<'a>(what: &str, all: impl ExactSizeIterator<Item = &'a str>) -> Vec<Fact> {
    let more = all.len().saturating_sub(MAX_LISTED);
    let mut facts: Vec<Fact> = all.take(MAX_LISTED).map(|got| says(what, got)).collect();
    if more > 0 {
        facts.push(says(what, &format!("and {more} more")));
    }
    facts
}

fn files(measured: &Measured, asked: Asked<'_>) -> Vec<Fact> {
    let landlock = match measured.landlock {
        Some(abi) => format!("ABI {abi}"),
        None => "none".to_owned(),
    };
    let mut facts = vec![says("landlock", &landlock)];
    let image = match asked.image {
        "host" => "host: the distribution's programs, not a signed release",
        other => other,
    };
    facts.push(says("image", image));
    facts.extend(listed(
        "may write",
        asked.writable.iter().map(String::as_str),
    ));
    let shared: Vec<String> = asked
        .shared
        .iter()
        .map(|(folder, other)| format!("{folder} with box {other}"))
        .collect();
    facts.extend(listed("shares", shared.iter().map(String::as_str)));
    facts
}

fn network(asked: Asked<'_>) -> Vec<Fact> {
    if asked.tier.shares_network() {
        let whole = "all that this machine can, its loopback too; nobody decides";
        return vec![says("can dial", whole)];
    }
    if asked.tier != Tier::Gated {
        return Vec::new();
    }
    let terms: Vec<String> = asked
        .reach
        .terms()
        .iter()
        .map(ToString::to_string)
        .collect();
    let mut facts = listed("reach", terms.iter().map(String::as_str));
    let internet = |term: &ReachTerm| matches!(term, ReachTerm::Internet);
    let name = |term: &ReachTerm| matches!(term, ReachTerm::Name(..));
    if asked.reach.terms().iter().any(internet) {
        let ways = "names and any public host are ways out";
        facts.push(says("internet", ways));
    } else if asked.reach.terms().iter().any(name) {
        let proven = "refused by its hello; ECH is taken out of answers";
        facts.push(says("another host's flow", proven));
    }
    if !asked.ping {
        facts.push(says(
            "ping",
            "refused: the host lets this user make no ping socket",
        ));
    }
    let ports: Vec<String> = asked
        .publish
        .iter()
        .map(|publish| {
            let Publish {
                transport,
                host_port,
                box_port,
            } = publish;
            let transport = match transport {
                Transport::Tcp => "tcp",
                Transport::Udp => "udp",
            };
            format!("loopback {host_port} to its {box_port}/{transport}")
        })
        .collect();
    facts.extend(listed("published", ports.iter().map(String::as_str)));
    facts
}

fn limits(asked: Asked<'_>) -> Vec<Fact> {
    let Limits {
        memory,
        cpus_milli,
        pids,
        files: _,
        seconds,
    } = asked.limits;
    let mut facts = Vec::new();
    for (what, limited) in [
        ("memory", memory.is_some()),
        ("processors", cpus_milli.is_some()),
        ("processes", pids.is_some()),
        ("time", seconds.is_some()),
    ] {
        if !limited {
            facts.push(says(what, "no limit of its own"));
        }
    }
    if let Some(seconds) = seconds {
        facts.push(says("time", &format!("the node ends it after {seconds} s")));
    }
    if asked.tier == Tier::Gated {
        let beside = format!(
            "its gate runs beside it and is in no limit of its: at most {} bytes of buffers",
            asked.gate_bytes
        );
        facts.push(says("gate memory", &beside));
    }
    if !asked.cgroup && memory.is_some() {
        let not = "the address space of each process by itself: not their sum, nor /tmp, /dev/shm, \
                   files in memory (memfd), shared or System V memory";
        facts.push(says("setrlimit memory", not));
    }
    facts
}

#[cfg(test)]
mod tests;
