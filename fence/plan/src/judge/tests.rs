use bailey_model::Method;
use proptest::prelude::*;

use super::*;

struct Case {
    tier: Tier,
    class: BoxClass,
    limits: Limits,
    cgroup: bool,
    reach: Reach,
    publish: Vec<Publish>,
    gate_saw: bool,
}

impl Case {
    fn of(tier: Tier) -> Self {
        Self {
            tier,
            class: BoxClass::Plain,
            limits: Limits::default(),
            cgroup: false,
            reach: Reach::internet(),
            publish: Vec::new(),
            gate_saw: tier == Tier::Gated,
        }
    }

    fn asked(&self) -> Asked<'_> {
        Asked {
            tier: self.tier,
            class: self.class,
            limits: self.limits,
            cgroup: self.cgroup,
            reach: &self.reach,
            publish: &self.publish,
            image: "host",
            writable: &[],
            shared: &[],
            gate_saw: self.gate_saw,
            ping: true,
            gate_bytes: 1 << 28,
        }
    }

    /// As it is measured where all that the tier promises holds, and nothing
    /// else does.
    fn whole(&self) -> Measured {
        let mut facts = Vec::new();
        for axis in Axis::ALL {
            let held = axis == Axis::Limits || promise::rests_on(self.tier, axis);
            for what in trials(axis, self.asked()) {
                if what != promise::GATE_SAW {
                    facts.push((axis, fact(what, Some(held))));
                }
            }
        }
        Measured {
            method: Method::Namespaces,
            landlock: Some(7),
            facts,
            demanded: Vec::new(),
        }
    }

    fn judge(&self, measured: &Measured) -> (Vec<AxisVerdict>, Level) {
        let (axes, level) = judge(measured, self.asked());
        let order: Vec<Axis> = axes.iter().map(|report| report.axis).collect();
        assert_eq!(order, Axis::ALL);
        (axes.iter().map(|report| report.verdict).collect(), level)
    }
}

fn fact(what: &str, held: Option<bool>) -> Fact {
    Fact {
        what: what.to_owned(),
        got: "EROFS".to_owned(),
        held,
    }
}

fn cases() -> Vec<Case> {
    let every = "mem=1G,cpus=1,pids=64,files=64".parse().unwrap();
    let mut cases = Vec::new();
    for tier in Tier::ALL {
        for class in [BoxClass::Plain, BoxClass::Browser] {
            for (limits, cgroup) in [(Limits::default(), false), (every, false), (every, true)] {
                cases.push(Case {
                    class,
                    limits,
                    cgroup,
                    ..Case::of(tier)
                });
            }
        }
    }
    cases
}

/// How high a level is; l2 and gated are beside each other.
fn height(level: Level) -> u8 {
    match level {
        Level::NotEarned | Level::Unmeasured => 0,
        Level::Earned(Tier::L1) => 1,
        Level::Earned(Tier::L15) => 2,
        Level::Earned(Tier::L2 | Tier::Gated) => 3,
    }
}

#[test]
fn each_tier_that_holds_is_its_own_level() {
    use AxisVerdict::{Decided as D, Fenced as F, Passes as P};
    for (tier, verdicts) in [
        (Tier::L1, [F, F, P, P, P, P]),
        (Tier::L15, [F, F, F, F, P, P]),
        (Tier::L2, [F, F, F, F, F, P]),
        (Tier::Gated, [F, F, F, F, D, P]),
    ] {
        let case = Case::of(tier);
        let (got, level) = case.judge(&case.whole());
        assert_eq!(
            (got.as_slice(), level),
            (verdicts.as_slice(), Level::Earned(tier))
        );
    }
    for case in cases() {
        let (axes, level) = judge(&case.whole(), case.asked());
        assert_eq!(level, Level::Earned(case.tier));
        assert_eq!(weaker(&axes, level, case.tier), None);
    }
}

#[test]
fn nothing_measured_is_no_level_at_all() {
    for case in cases() {
        let measured = Measured {
            facts: Vec::new(),
            ..case.whole()
        };
        let (verdicts, level) = case.judge(&measured);
        assert_eq!(level, Level::Unmeasured);
        assert_eq!(verdicts, [AxisVerdict::NotMeasured; 6]);
    }
}

/// The table over all that is promised: every trial of every tier, failed and
/// left out.
#[test]
fn each_promise_that_fails_or_is_missing_costs_exactly_its_side() {
    for case in cases() {
        let whole = case.whole();
        let (before, _) = case.judge(&whole);
        for (index, (axis, broken)) in whole.facts.iter().enumerate() {
            if *axis != Axis::Limits && !promise::rests_on(case.tier, *axis) {
                continue;
            }
            for lost in [Some(false), None] {
                let mut measured = whole.clone();
                measured.facts[index].1.held = lost;
                check_lost(&case, &measured, &before, *axis, &broken.what);
            }
            let mut measured = whole.clone();
            measured.facts.remove(index);
            check_lost(&case, &measured, &before, *axis, &broken.what);
        }
    }
}

fn check_lost(case: &Case, measured: &Measured, before: &[AxisVerdict], axis: Axis, what: &str) {
    let (axes, level) = judge(measured, case.asked());
    for (report, before) in axes.iter().zip(before) {
        let lost = matches!(
            report.verdict,
            AxisVerdict::NotFenced | AxisVerdict::NotMeasured
        );
        assert_eq!(lost, report.axis == axis, "{what}: {report:?}");
        assert!(lost || report.verdict == *before, "{what}: {report:?}");
    }
    assert_eq!(
        level == Level::Earned(case.tier),
        axis == Axis::Limits,
        "{what}"
    );
    let told = weaker(&axes, level, case.tier).unwrap();
    assert!(told.starts_with(axis.as_str()), "{told}");
}

#[test]
fn levels_fall_to_what_still_holds() {
    let level_without = |tier: Tier, gone: Axis| {
        let case = Case::of(tier);
        let mut measured = case.whole();
        measured
            .facts
            .iter_mut()
            .filter(|(axis, _)| *axis == gone)
            .for_each(|(_, fact)| {
                fact.held = Some(false);
            });
        case.judge(&measured).1
    };
    use Level::{Earned, NotEarned};
    assert_eq!(level_without(Tier::Gated, Axis::Network), Earned(Tier::L15));
    assert_eq!(level_without(Tier::L2, Axis::Network), Earned(Tier::L15));
    assert_eq!(level_without(Tier::Gated, Axis::Syscalls), Earned(Tier::L1));
    assert_eq!(
        level_without(Tier::L15, Axis::Capabilities),
        Earned(Tier::L1)
    );
    assert_eq!(level_without(Tier::Gated, Axis::Processes), NotEarned);
    assert_eq!(level_without(Tier::L1, Axis::Files), NotEarned);
}

#[test]
fn a_gated_network_is_decided_only_when_both_ends_saw_the_refusal() {
    let mut case = Case::of(Tier::Gated);
    let whole = case.whole();
    case.gate_saw = false;
    let (verdicts, level) = case.judge(&whole);
    assert_eq!(verdicts[4], AxisVerdict::NotMeasured);
    assert_eq!(level, Level::Earned(Tier::L15));
}

#[test]
fn an_abstract_socket_without_landlock_passes_where_the_network_is_shared() {
    for (tier, abi, side, verdict) in [
        (Tier::L1, None, 0, AxisVerdict::Passes),
        (Tier::L15, Some(5), 0, AxisVerdict::Passes),
        (Tier::L15, Some(6), 0, AxisVerdict::NotFenced),
        (Tier::L2, None, 4, AxisVerdict::NotFenced),
        (Tier::Gated, None, 4, AxisVerdict::NotFenced),
    ] {
        let case = Case::of(tier);
        let mut measured = case.whole();
        measured.landlock = abi;
        let socket = measured
            .facts
            .iter_mut()
            .find(|(_, fact)| fact.what == promise::ABSTRACT);
        socket.unwrap().1.held = Some(false);
        let (verdicts, level) = case.judge(&measured);
        assert_eq!(verdicts[side], verdict, "{tier} {abi:?}");
        assert_eq!(level == Level::Earned(tier), verdict == AxisVerdict::Passes);
        // Anything else beside it is no matter of the kernel's age.
        measured
            .facts
            .push((Axis::Files, fact("write granted /a", Some(false))));
        assert_eq!(case.judge(&measured).0[0], AxisVerdict::NotFenced);
    }
}

#[test]
fn what_holds_without_a_promise_is_said_to() {
    let case = Case::of(Tier::L1);
    let mut measured = case.whole();
    for (_, fact) in &mut measured.facts {
        fact.held = Some(true);
    }
    let (verdicts, level) = case.judge(&measured);
    assert_eq!(verdicts[2..5], [AxisVerdict::Fenced; 3]);
    assert_eq!(level, Level::Earned(Tier::L1), "no more than was asked");
}

#[test]
fn a_browser_is_not_weaker_for_what_its_class_opens_and_the_report_says_it() {
    let mut case = Case::of(Tier::Gated);
    case.class = BoxClass::Browser;
    let mut measured = case.whole();
    let opened = ("unshare user", "EINVAL");
    measured.facts.push((
        Axis::Syscalls,
        Fact {
            what: opened.0.to_owned(),
            got: opened.1.to_owned(),
            held: Some(false),
        },
    ));
    let (axes, level) = judge(&measured, case.asked());
    assert_eq!(level, Level::Earned(Tier::Gated));
    let said = |what: &str| axes[2].facts.iter().find(|fact| fact.what == what).unwrap();
    assert_eq!(
        (said(opened.0).got.as_str(), said(opened.0).held),
        (opened.1, None)
    );
    let class = axes[2].facts.iter();
    let class = class.filter(|fact| fact.what == "class browser");
    let opens: Vec<&str> = class.map(|fact| fact.got.as_str()).collect();
    let all: Vec<&str> = crate::opened(BoxClass::Browser)
        .iter()
        .map(|opened| opened.what)
        .collect();
    assert_eq!(opens, all);
    // The same is a hole in a plain box.
    case.class = BoxClass::Plain;
    assert_eq!(case.judge(&measured).0[2], AxisVerdict::NotFenced);
}

#[test]
fn where_names_must_be_proven_the_report_says_what_that_takes() {
    for (reach, proven) in [
        ("shop.example:443", true),
        ("local,*.shop.example", true),
        ("internet", false),
        ("internet,shop.example:443", false),
        ("10.0.0.0/8", false),
    ] {
        let mut case = Case::of(Tier::Gated);
        case.reach = reach.parse().unwrap();
        let (axes, _) = judge(&case.whole(), case.asked());
        let mut facts = axes[4].facts.iter();
        let said = facts.any(|fact| fact.got.contains("ECH is taken out"));
        assert_eq!(said, proven, "{reach}");
    }
}

#[test]
fn a_limit_that_nothing_holds_is_not_what_was_asked() {
    let mut case = Case::of(Tier::L2);
    case.limits = "cpus=1,files=64".parse().unwrap();
    let mut measured = case.whole();
    let is_cpus = |(_, fact): &&mut (Axis, Fact)| fact.what == "limit cpus";
    measured.facts.iter_mut().find(is_cpus).unwrap().1.held = Some(false);
    let (axes, level) = judge(&measured, case.asked());
    assert_eq!(level, Level::Earned(Tier::L2), "no tier rests on limits");
    let told = weaker(&axes, level, Tier::L2).unwrap();
    assert_eq!(told, "limits: not-fenced, limit cpus EROFS");
}

#[test]
fn holes_are_listed_as_what_they_are() {
    let mut case = Case::of(Tier::Gated);
    case.reach = "internet,shop.example:443".parse().unwrap();
    case.publish = vec![Publish {
        transport: Transport::Tcp,
        host_port: 8080,
        box_port: 80,
    }];
    case.limits = "mem=1G,time=1h".parse().unwrap();
    let (writable, shared) = (["/a".to_owned()], [("/a".to_owned(), "yard".to_owned())]);
    let asked = Asked {
        writable: &writable,
        shared: &shared,
        ping: false,
        ..case.asked()
    };
    let (axes, _) = judge(&case.whole(), asked);
    let said: Vec<String> = axes
        .iter()
        .flat_map(|report| &report.facts)
        .filter(|fact| fact.held.is_none())
        .map(|fact| format!("{}: {}", fact.what, fact.got))
        .collect();
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn a_list_of_holes_has_an_end() {
    let many: Vec<String> = (0..100).map(|at| format!("/{at}")).collect();
    let case = Case::of(Tier::Gated);
    let asked = Asked {
        writable: &many,
        ..case.asked()
    };
    let (axes, _) = judge(&case.whole(), asked);
    let all = axes[0].facts.iter().filter(|fact| fact.what == "may write");
    let listed: Vec<&str> = all.map(|fact| fact.got.as_str()).collect();
    assert_eq!(listed.len(), MAX_LISTED + 1);
    assert_eq!(listed.last(), Some(&"and 84 more"));
}

fn any_case() -> impl Strategy<Value = usize> {
    0..cases().len()
}

proptest! {
    /// However many promises are lost at once: no level rises, and a side is
    /// lost just when one of its own is.
    #[test]
    fn losing_promises_never_raises_a_level(
        at in any_case(),
        lost in prop::collection::vec((any::<prop::sample::Index>(), 0..3_u8), 0..8),
    ) {
        let case = &cases()[at];
        let whole = case.whole();
        let (_, before) = case.judge(&whole);
        let mut measured = whole.clone();
        let mut sides = Vec::new();
        for (index, how) in lost {
            let index = index.index(measured.facts.len());
            let axis = measured.facts[index].0;
            if axis != Axis::Limits && !promise::rests_on(case.tier, axis) {
                continue;
            }
            sides.push(axis);
            match how {
                0 => measured.facts[index].1.held = Some(false),
                1 => measured.facts[index].1.held = None,
                _ => { measured.facts.remove(index); }
            }
        }
        let (axes, level) = judge(&measured, case.asked());
        prop_assert!(height(level) <= height(before));
        for report in &axes {
            let lost = matches!(report.verdict, AxisVerdict::NotFenced | AxisVerdict::NotMeasured);
            prop_assert_eq!(lost, sides.contains(&report.axis), "{:?}", report);
        }
        prop_assert_eq!(weaker(&axes, level, case.tier).is_none(), sides.is_empty());
    }

    /// A measurement is bytes of a process: any of them has a judgement.
    #[test]
    fn any_facts_are_judged(
        at in any_case(),
        facts in prop::collection::vec((0..6_usize, "[a-z /]{0,12}", any::<Option<bool>>()), 0..64),
    ) {
        let case = &cases()[at];
        let facts = facts.into_iter().map(|(axis, what, held)| (Axis::ALL[axis], fact(&what, held)));
        let measured = Measured { facts: facts.collect(), ..case.whole() };
        let (axes, level) = judge(&measured, case.asked());
        prop_assert_eq!(axes.len(), Axis::ALL.len());
        prop_assert_eq!(height(level), 0);
    }
}
