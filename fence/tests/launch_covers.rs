//! What is covered in a folder that a box may write, while somebody outside
//! changes it.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use bailey_fence_plan::channel::{FromFence, ToFence};
use bailey_model::{Axis, Tier};
use support::{Ask, Made, folder, write};

/// A folder with a start file, a nested one and a repository, in a box that
/// only waits.
fn project() -> (PathBuf, Ask) {
    let project = folder("covered");
    for (name, text) in [
        (".bashrc", "the person's\n"),
        (".git/config", "[core]\n"),
        (".git/hooks/pre-commit", "#!/bin/sh\n"),
        ("inner.conf", "kept\n"),
        ("a b/plain", "\n"),
    ] {
        fs::create_dir_all(project.join(name).parent().unwrap()).unwrap();
        write(&project.join(name), text);
    }
    let ask = Ask::new(&["/usr/bin/sleep", "1000"])
        .tier(Tier::L2)
        .grant(&project, false);
    (project, ask)
}

/// Runs a box until what is done outside has ended it; where its cover was.
#[track_caller]
fn lost_by(ask: Ask, outside: impl FnOnce()) -> Vec<u8> {
    let mut made = ask.make().unwrap().go().running();
    outside();
    let FromFence::CoverLost { at } = made.channel.receive::<FromFence>().unwrap().value else {
        panic!("it ended otherwise");
    };
    assert!(made.launcher.wait().unwrap().success());
    assert!(made.gone());
    at
}

/// Whether it still runs, after more than the launcher needs to look.
fn runs_on(mut made: Made) -> bool {
    std::thread::sleep(std::time::Duration::from_millis(200));
    let runs = made.left() == 2;
    made.tell(&ToFence::Kill);
    runs && !made.end().out.contains("lost")
}

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_encoded_bytes().to_vec()
}

#[test]
fn a_covered_file_that_is_replaced_outside_ends_the_box_and_is_named() {
    let (project, ask) = project();
    let covered = project.join(".bashrc");
    write(&project.join(".bashrc.new"), "edited\n");
    let at = lost_by(ask, || {
        fs::rename(project.join(".bashrc.new"), &covered).unwrap()
    });
    assert_eq!(at, bytes(&covered));
}

#[test]
fn a_covered_name_that_is_moved_away_outside_ends_the_box() {
    let (project, ask) = project();
    let git = project.join(".git");
    let at = lost_by(ask, || fs::rename(&git, project.join("a b/git")).unwrap());
    assert_eq!(at, bytes(&git));
}

/// As editors save that keep what was there under another name.
#[test]
fn a_folder_on_the_way_to_a_cover_that_is_moved_away_outside_ends_the_box() {
    let (project, ask) = project();
    write(&project.join(".config/systemd/unit"), "\n");
    let config = project.join(".config");
    let at = lost_by(ask, || {
        fs::rename(&config, project.join("config.old")).unwrap()
    });
    assert_eq!(at, bytes(&config.join("systemd")));
}

#[test]
fn a_read_only_grant_in_a_writable_one_that_is_replaced_outside_ends_the_box() {
    let (project, ask) = project();
    let inner = project.join("inner.conf");
    let ask = ask.grant(&inner, true);
    // As `sed -i` does.
    write(&project.join("sed1"), "edited\n");
    let at = lost_by(ask, || fs::rename(project.join("sed1"), &inner).unwrap());
    assert_eq!(at, bytes(&inner));
}

#[test]
fn what_is_within_a_cover_may_be_replaced_outside_and_what_is_not_covered_too() {
    let (project, ask) = project();
    let made = ask.make().unwrap().go().running();
    for (from, to) in [(".git/config.lock", ".git/config"), ("new", "a b/plain")] {
        write(&project.join(from), "new\n");
        fs::rename(project.join(from), project.join(to)).unwrap();
    }
    fs::write(project.join(".bashrc"), "written in place\n").unwrap();
    assert!(runs_on(made));
}

#[test]
fn a_cover_that_is_lost_before_the_command_runs_lets_nothing_run() {
    let (project, ask) = project();
    let mut made = ask.make().unwrap();
    fs::remove_file(project.join(".bashrc")).unwrap();
    let said = made.channel.receive::<FromFence>().unwrap().value;
    assert!(matches!(said, FromFence::CoverLost { .. }), "{said:?}");
    assert!(made.launcher.wait().unwrap().success());
}

#[test]
fn covers_are_tried_and_their_trial_is_demanded() {
    let (project, ask) = project();
    let inner = project.join("inner.conf");
    let made = ask.grant(&inner, true).make().unwrap();
    let measured = made.measured.clone();
    drop(made);
    let what = format!("write what is covered in {}", project.display());
    assert!(measured.demanded.contains(&what), "{:?}", measured.demanded);
    for demanded in &measured.demanded {
        let (axis, fact) = measured
            .facts
            .iter()
            .find(|(_, fact)| fact.what == *demanded)
            .unwrap();
        assert_eq!((*axis, fact.held), (Axis::Files, Some(true)), "{fact:?}");
    }
}
