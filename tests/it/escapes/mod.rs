//! What was ever used to leave a box, each as one test. An attack is one of
//! `bailey-attack`'s, first where nothing holds it, which shows that it works,
//! then in every tier that promises to hold it.

mod files;
mod host;
mod kernel;
mod meeting;
mod processes;

use bailey_tests::escape::{ATTACKS, Attack, Control, Sandbox, Tried, Yard};

/// Tries an attack without a fence, where it must get through, and in each tier
/// that promises to hold it, where it must not.
#[track_caller]
fn held(name: &str) {
    held_in(&Yard::new(), name);
}

#[track_caller]
fn held_in(yard: &Yard, name: &str) {
    let attack = Attack::named(name);
    let control = match attack.control {
        Control::Outside => Sandbox::Outside,
        Control::Namespaces => Sandbox::Namespaces,
    };
    let tried = control.attempt(yard, attack);
    assert!(
        matches!(tried, Tried::Through(_)),
        "the control: {name} does not work {}: {tried:?}",
        control.name()
    );
    let mut asked = 0;
    for tier in Sandbox::TIERS {
        let Sandbox::Bailey(of) = tier else { continue };
        if attack.promise.holds(of) {
            asked += 1;
            let tried = tier.attempt(yard, attack);
            assert!(matches!(tried, Tried::Held(_)), "{name} at {of}: {tried:?}");
        }
    }
    assert!(asked > 0, "no tier promises to hold {name}");
}

/// What no tier holds is said to pass: here it does, so that nobody believes
/// otherwise.
#[track_caller]
fn passes(name: &str) {
    let (yard, attack) = (Yard::new(), Attack::named(name));
    for tier in Sandbox::TIERS {
        let tried = tier.attempt(&yard, attack);
        assert!(
            matches!(tried, Tried::Through(_)),
            "{name} is held at {}, against what is said of it: {tried:?}",
            tier.name()
        );
    }
}

#[test]
fn every_row_of_the_table_is_an_attack_and_the_other_way_round() {
    let program = bailey_tests::binaries().join("bailey-attack");
    let output = bailey_tests::run(std::process::Command::new(program).arg("--list")).ok();
    let mut known: Vec<&str> = output
        .stdout
        .lines()
        .filter(|name| !name.ends_with("-inside"))
        .collect();
    let mut rows: Vec<&str> = ATTACKS.iter().map(|attack| attack.name).collect();
    known.sort_unstable();
    rows.sort_unstable();
    assert_eq!(known, rows);
}

#[test]
fn every_row_of_the_table_is_a_test() {
    let tests = [
        include_str!("files.rs"),
        include_str!("kernel.rs"),
        include_str!("meeting.rs"),
        include_str!("processes.rs"),
    ]
    .concat();
    let missing: Vec<&str> = ATTACKS
        .iter()
        .map(|attack| attack.name)
        .filter(|name| !tests.contains(&format!("\"{name}\"")))
        .collect();
    assert!(missing.is_empty(), "no test of {missing:?}");
}
