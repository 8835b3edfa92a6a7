//! What the probe says of real boxes, and what a judge makes of it.

mod support;

use bailey_fence_plan::channel::{Layer, Measured};
use bailey_fence_plan::judge::{Asked, judge, weaker};
use bailey_model::{Axis, AxisReport, AxisVerdict, Level, Limits, Reach, Tier};
use support::{Ask, folder};

/// Makes a box, lets it end, and gives what was measured of it.
fn measured(ask: Ask) -> Measured {
    let alone = ask.spec.broken == Some(Layer::Processes);
    let made = ask.make().unwrap_or_else(|error| panic!("{error}"));
    let measured = made.measured.clone();
    if alone {
        assert_eq!(made.go().end_alone(), "");
    } else {
        assert!(made.go().end().ran);
    }
    measured
}

fn ask(tier: Tier) -> Ask {
    let mut ask = Ask::new(&["true"]);
    ask.spec.tier = tier;
    ask
}

fn judged(measured: &Measured, tier: Tier, limits: Limits) -> (Vec<AxisReport>, Level) {
    let asked = Asked {
        gate_bytes: 0,
        tier,
        class: bailey_model::BoxClass::Plain,
        limits,
        cgroup: false,
        reach: &Reach::internet(),
        publish: &[],
        image: "host",
        writable: &[],
        shared: &[],
        // The gate of these tests refuses, and has nobody to tell.
        gate_saw: true,
        ping: true,
    };
    judge(measured, asked)
}

fn verdicts(axes: &[AxisReport]) -> Vec<AxisVerdict> {
    axes.iter().map(|axis| axis.verdict).collect()
}

#[test]
fn every_tier_earns_what_it_promises() {
    use AxisVerdict::{Decided as D, Fenced as F, Passes as P};
    for (tier, want) in [
        (Tier::L1, [F, F, P, P, P, P]),
        (Tier::L15, [F, F, F, F, P, P]),
        (Tier::L2, [F, F, F, F, F, P]),
        (Tier::Gated, [F, F, F, F, D, P]),
    ] {
        let (axes, level) = judged(&measured(ask(tier)), tier, Limits::default());
        assert_eq!(verdicts(&axes), want, "{tier}: {axes:#?}");
        assert_eq!(level, Level::Earned(tier));
        assert_eq!(weaker(&axes, level, tier), None);
    }
}

/// The control of every trial of a side: without the layer they get through,
/// and those of the other sides do not.
#[test]
fn each_layer_left_out_costs_exactly_its_side() {
    let limits: Limits = "files=64".parse().unwrap();
    for (layer, side) in [
        (Layer::ReadOnly, Axis::Files),
        (Layer::Processes, Axis::Processes),
        (Layer::Filter, Axis::Syscalls),
        (Layer::Capabilities, Axis::Capabilities),
        (Layer::Network, Axis::Network),
        (Layer::Limits, Axis::Limits),
    ] {
        for tier in [Tier::L2, Tier::Gated] {
            let mut ask = ask(tier);
            ask.spec.broken = Some(layer);
            ask.spec.limits = limits;
            let (axes, level) = judged(&measured(ask), tier, limits);
            for axis in &axes {
                let lost = axis.verdict == AxisVerdict::NotFenced;
                assert_eq!(lost, axis.axis == side, "{layer:?} {tier}: {axis:#?}");
            }
            assert_eq!(
                level == Level::Earned(tier),
                side == Axis::Limits,
                "{layer:?}"
            );
            let told = weaker(&axes, level, tier).unwrap();
            assert!(
                told.starts_with(&format!("{}: not-fenced, ", side.as_str())),
                "{told}"
            );
            assert!(!told.contains("; "), "one side alone: {told}");
        }
    }
}

#[test]
fn a_read_only_grant_is_tried_and_a_writable_one_is_not() {
    let (shown, given) = (folder("shown"), folder("given"));
    support::write(&shown.join("file"), "text");
    let ask = ask(Tier::L2)
        .grant(&shown, true)
        .grant(&shown.join("file"), true)
        .grant(&given, false);
    let facts = measured(ask).facts;
    let tried: Vec<_> = facts
        .iter()
        .filter(|(_, fact)| fact.what.starts_with("write granted "))
        .map(|(axis, fact)| (*axis, fact.what.clone(), fact.got.clone(), fact.held))
        .collect();
    let of = |path: std::path::PathBuf| {
        let what = format!("write granted {}", path.display());
        (Axis::Files, what, "EROFS".to_owned(), Some(true))
    };
    assert_eq!(tried, [of(shown.clone()), of(shown.join("file"))]);
    assert!(std::fs::read_dir(&given).unwrap().next().is_none());
    assert_eq!(std::fs::read_dir(&shown).unwrap().count(), 1);
}

/// Also one whose path is no text: a trial that nobody makes is missed.
#[test]
fn a_read_only_grant_of_any_name_must_be_tried() {
    use std::os::unix::ffi::OsStrExt as _;
    let around = folder("odd");
    let odd = around.join(std::ffi::OsStr::from_bytes(b"n\xff"));
    support::write(&odd.join("file"), "text");
    let measured = measured(ask(Tier::L2).grant(&odd, true));
    let what = format!(r"write granted {}/n\xff", around.display());
    let tried = |fact: &&(Axis, bailey_model::Fact)| fact.1.what == what;
    let fact = &measured.facts.iter().find(tried).unwrap().1;
    assert_eq!((fact.got.as_str(), fact.held), ("EROFS", Some(true)));
    let sockets = format!(r"sockets in granted {}/n\xff", around.display());
    assert_eq!(measured.demanded, [what.clone(), sockets]);
    let files = |measured: &Measured| judged(measured, Tier::L2, Limits::default()).0[0].verdict;
    assert_eq!(files(&measured), AxisVerdict::Fenced);
    let mut missed = measured;
    missed.facts.retain(|fact| !tried(&fact));
    assert_eq!(files(&missed), AxisVerdict::NotMeasured);
}

/// What no box is needed for does not count for one.
#[test]
fn a_call_that_this_machine_answers_alike_outside_is_not_held_by_a_box_without_a_filter() {
    let l1 = measured(ask(Tier::L1)).facts;
    let l2 = measured(ask(Tier::L2)).facts;
    let mut alike = 0;
    for (of, fact) in &l1 {
        let same_in_l2 = || {
            l2.iter()
                .find(|(_, other)| other.what == fact.what)
                .unwrap()
        };
        if *of == Axis::Syscalls && fact.got.ends_with(", as outside") {
            alike += 1;
            assert_eq!(fact.held, None, "{fact:?}");
            // Where there is a filter, it is the filter that answers.
            assert_eq!(same_in_l2().1.held, Some(true), "{fact:?}");
        } else if *of == Axis::Syscalls && fact.what != "filter" {
            assert_eq!(fact.held, Some(false), "{fact:?}");
        }
    }
    println!("{alike} calls are answered alike outside");
    // A user's modules are never loaded, by whatever kernel.
    let module = l1
        .iter()
        .find(|(_, fact)| fact.what == "init_module")
        .unwrap();
    assert_eq!(module.1.held, None, "{module:?}");
    let services = |fact: &&(Axis, bailey_model::Fact)| fact.1.what == "connect a container engine";
    let service = &l2.iter().find(services).unwrap().1;
    if !std::path::Path::new("/run/docker.sock").exists() {
        assert_eq!(
            (service.got.as_str(), service.held),
            ("ENOENT, as outside", None)
        );
    }
}

#[test]
fn a_user_namespace_that_can_be_made_gives_capabilities_back() {
    let nested = |tier| {
        let facts = measured(ask(tier)).facts;
        let found = facts
            .into_iter()
            .find(|(_, fact)| fact.what == "make a user namespace");
        found.unwrap().1.held
    };
    assert_eq!(nested(Tier::L1), Some(false));
    assert_eq!(nested(Tier::L15), Some(true));
}

#[test]
fn limits_are_measured_by_what_holds_them() {
    let limits: Limits = "mem=512M,pids=64,files=64".parse().unwrap();
    let mut asked = ask(Tier::L2);
    asked.spec.limits = limits;
    let facts = measured(asked).facts;
    let got = |what: &str| {
        let (_, fact) = facts.iter().find(|(_, fact)| fact.what == what).unwrap();
        (fact.got.clone(), fact.held)
    };
    assert_eq!(got("limits by"), ("setrlimit".to_owned(), None));
    assert_eq!(got("limit memory"), ((512 << 20).to_string(), Some(true)));
    assert_eq!(got("limit pids"), ("64".to_owned(), Some(true)));
    assert_eq!(got("limit files"), ("64".to_owned(), Some(true)));
}

/// The trials are a small part of a start. Of several, the fastest tells what
/// they take where nothing else runs.
#[test]
fn the_trials_are_over_in_a_moment() {
    let took = |tier| {
        let facts = measured(ask(tier)).facts;
        let (_, fact) = facts
            .iter()
            .find(|(_, fact)| fact.what == "trials took")
            .unwrap();
        let number = fact.got.strip_suffix(" us").unwrap();
        number.parse::<u64>().unwrap()
    };
    for tier in Tier::ALL {
        let fastest = (0..5).map(|_| took(tier)).min().unwrap();
        println!("{tier}: the trials took {fastest} us");
        assert!(fastest < 20_000, "{tier}: {fastest} us");
    }
}

/// The same numbers from outside: what the probe leaves behind is nothing.
#[test]
fn the_command_finds_nothing_of_the_trials() {
    let script = "set -- /proc/[0-9]*; echo $#; grep -h SigPnd /proc/self/status; \
                  find /tmp /dev/shm /run /home/box | wc -l";
    let mut ask = Ask::shell(script);
    ask.spec.tier = Tier::L2;
    let out = ask.run().ok();
    let lines: Vec<&str> = out.split_whitespace().collect();
    // Pid 1 and the shell.
    assert_eq!(lines, ["2", "SigPnd:", "0000000000000000", "4"], "{out}");
}

#[test]
fn who_tried_the_boundary_becomes_the_command() {
    for tier in [Tier::L1, Tier::L2] {
        let (held, mut writer) = std::io::pipe().unwrap();
        let mut command = Ask::shell("read line; echo $$").tier(tier);
        command.stdin = Some(held.into());
        let made = command.make().unwrap();
        let tried = made.pids();
        assert_eq!(
            (tried.len(), tried[0]),
            (2, 1),
            "{tier}: pid 1, and who tried"
        );
        let running = made.go().running();
        assert_eq!(running.pids(), tried, "{tier}");
        std::io::Write::write_all(&mut writer, b"\n").unwrap();
        assert_eq!(running.end().ok().trim(), tried[1].to_string());
    }
}

#[test]
fn who_lost_something_by_a_trial_does_not_become_the_command() {
    let mut whole = Ask::shell("grep CapBnd /proc/self/status").tier(Tier::L2);
    whole.spec.broken = Some(Layer::Capabilities);
    let made = whole.make().unwrap();
    // The trial of changing the bounding set got through.
    assert_eq!(made.pids(), [1], "the one that tried is gone");
    let out = made.go().end().ok();
    let set = u64::from_str_radix(out.trim().rsplit('\t').next().unwrap(), 16).unwrap();
    assert_eq!(set & 1, 1, "the command has what the trial dropped: {out}");
}
