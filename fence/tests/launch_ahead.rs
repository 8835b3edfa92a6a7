//! Boxes that were begun before they were asked for.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use bailey_channel::Channel;
use bailey_fence_plan::channel::{Grant, Layer, ToFence};
use bailey_model::{ChildExit, Tier};
use rustix::process::{Pid, Signal, kill_process};
use support::cgroup::Delegated;
use support::join::Join;
use support::{Ask, as_ordinary, folder, launcher, root, spawn, write};

/// All that a program sees of its box, without the numbers that differ each time.
const LOOK: &str = r#"
import os, re
for line in open('/proc/self/mountinfo'):
    fields = line.split()
    print('mount', fields[3], *fields[4:6], *fields[6:-2][-3:])
for folder, names, files in os.walk('/', topdown=True):
    names[:] = sorted(n for n in names if folder != '/' or n not in ('proc', 'usr', 'bin', 'lib', 'sbin', 'lib64'))
    for name in sorted(files + names):
        path = os.path.join(folder, name)
        what = os.lstat(path)
        link = os.readlink(path) if os.path.islink(path) else ''
        print('file', path, oct(what.st_mode), what.st_uid, what.st_gid, link)
for line in open('/proc/1/status'):
    if re.match('Cap|NoNew|Secc|Uid|Gid|Groups|Sig|Threads', line): print('status', line.split())
for name in sorted(os.listdir('/proc/sys/user')):
    print('count', name, open('/proc/sys/user/' + name).read().strip())
print('fds', os.listdir('/proc/self/fd'))
print('env', sorted(os.environ.items()), os.getcwd(), os.umask(0o22))
print('net', sorted(os.listdir('/proc/self/net')), [l.split()[0] for l in open('/proc/net/dev')][2:])
"#;

/// Children of a process, from outside.
fn children(of: u32) -> BTreeSet<u32> {
    let all = fs::read_dir("/proc").unwrap().map_while(Result::ok);
    all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let after = stat.rsplit(')').next().unwrap_or_default();
            let mut fields = after.split_whitespace();
            fields.next() != Some("Z") && fields.next() == Some(&of.to_string())
        })
        .collect()
}

/// Waits for something that must come.
#[track_caller]
fn eventually<T>(what: impl Fn() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = what() {
            return found;
        }
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The box that a launcher has begun, once it is there.
fn begun(launcher: u32) -> u32 {
    let is_one = |pid: &u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name == "bailey-begun\n")
    };
    eventually(|| {
        let found: Vec<u32> = children(launcher).into_iter().filter(is_one).collect();
        assert!(found.len() < 2, "{found:?}");
        found.into_iter().next()
    })
}

fn wait(channel: &mut Channel) {
    channel.send(&ToFence::Await, &[]).unwrap();
}

#[test]
fn a_box_that_was_begun_is_the_same_as_one_that_was_not() {
    for tier in [Tier::L1, Tier::L15, Tier::L2, Tier::Gated] {
        let own = folder("own");
        let made = |ahead: bool| {
            let mut ask = Ask::python(LOOK).tier(tier);
            (ask.ahead, ask.own) = (ahead, own.clone());
            let made = ask.make().unwrap();
            let facts = made.measured.facts.clone();
            let facts: Vec<_> = facts
                .into_iter()
                .filter(|(_, fact)| fact.what != "trials took")
                .collect();
            (made.go().end().ok(), facts)
        };
        let ((ahead, facts), (fresh, others)) = (made(true), made(false));
        assert!(ahead.lines().count() > 60, "{ahead}");
        let differ = ahead
            .lines()
            .zip(fresh.lines())
            .find(|(one, two)| one != two);
        assert_eq!((differ, ahead.len()), (None, fresh.len()), "{tier}");
        assert_eq!(facts, others, "{tier}");
    }
}

#[test]
fn what_was_begun_becomes_the_box_or_is_gone() {
    let (mut waits, mut channel) = spawn(as_ordinary(launcher()));
    wait(&mut channel);
    let child = begun(waits.id());
    let made = Ask::new(&["true"]).ask(waits, channel).made().unwrap();
    assert_eq!(u32::try_from(made.pid).unwrap(), child);
    assert_eq!(made.go().end().end, ChildExit::Code(0));
    // One with less room for its scratch folders has another plan.
    (waits, channel) = spawn(as_ordinary(launcher()));
    wait(&mut channel);
    let child = begun(waits.id());
    let mut ask = Ask::new(&["true"]);
    ask.spec.limits = "mem=64M".parse().unwrap();
    let made = ask.ask(waits, channel).made().unwrap();
    assert_ne!(u32::try_from(made.pid).unwrap(), child);
    assert!(!Path::new(&format!("/proc/{child}")).exists());
    assert_eq!(made.go().end().end, ChildExit::Code(0));
}

#[test]
fn a_question_that_comes_with_the_word_to_wait_is_heard() {
    for _ in 0..20 {
        let (waits, mut channel) = spawn(as_ordinary(launcher()));
        wait(&mut channel);
        let made = Ask::new(&["true"]).ask(waits, channel).made().unwrap();
        assert_eq!(made.go().end().end, ChildExit::Code(0));
    }
}

#[test]
fn what_was_begun_goes_with_its_launcher_and_its_node() {
    let (mut waits, mut channel) = spawn(as_ordinary(launcher()));
    wait(&mut channel);
    let child = begun(waits.id());
    drop(channel);
    assert!(waits.wait().unwrap().success());
    eventually(|| (!Path::new(&format!("/proc/{child}")).exists()).then_some(()));
    (waits, channel) = spawn(as_ordinary(launcher()));
    wait(&mut channel);
    let child = begun(waits.id());
    waits.kill().unwrap();
    waits.wait().unwrap();
    eventually(|| (!Path::new(&format!("/proc/{child}")).exists()).then_some(()));
}

#[test]
fn a_box_whose_begun_part_was_killed_is_made_all_the_same() {
    let (waits, mut channel) = spawn(as_ordinary(launcher()));
    wait(&mut channel);
    let child = begun(waits.id());
    let pid = Pid::from_raw(child.try_into().unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    eventually(|| children(waits.id()).is_empty().then_some(()));
    let made = Ask::new(&["true"]).ask(waits, channel).made().unwrap();
    assert_eq!(made.go().end().end, ChildExit::Code(0));
}

#[test]
fn a_further_command_leaves_nothing_of_what_was_begun() {
    let made = Ask::new(&["sleep", "100"]).make().unwrap().go().running();
    let joined = Join::new(&["sleep", "100"]).enter(&made).unwrap();
    let names: Vec<String> = children(joined.launcher.id())
        .into_iter()
        .filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).ok())
        .collect();
    assert!(
        !names.is_empty() && !names.iter().any(|name| name.contains("begun")),
        "{names:?}"
    );
}

#[test]
fn a_box_that_is_broken_on_purpose_is_not_begun_before() {
    if !cfg!(debug_assertions) {
        return;
    }
    for layer in [Layer::Processes, Layer::ReadOnly] {
        let (waits, mut channel) = spawn(as_ordinary(launcher()));
        wait(&mut channel);
        let child = begun(waits.id());
        let mut ask = Ask::new(&["true"]).tier(Tier::L2);
        ask.spec.broken = Some(layer);
        let made = ask.ask(waits, channel).made().unwrap();
        assert_ne!(u32::try_from(made.pid).unwrap(), child, "{layer:?}");
        drop(made);
    }
}

#[test]
fn a_box_begun_in_a_cgroup_stays_there() {
    let Some(delegated) = Delegated::make() else {
        println!("SKIPPED: cgroup v2 is not mounted here");
        return;
    };
    for ahead in [true, false] {
        let mut ask = Ask::shell("cat").within(&delegated.0);
        ask.ahead = ahead;
        let made = ask.make().unwrap();
        let inside = fs::read_to_string(delegated.0.join("box/cgroup.procs")).unwrap();
        let pid = made.pid.to_string();
        assert!(inside.lines().any(|line| line == pid), "{inside:?}");
        assert_eq!(made.go().end().end, ChildExit::Code(0));
    }
}

/// A launcher that waits in a mount namespace of its own, where `script` was
/// done by root. `None` where nothing can be mounted.
fn apart(script: &str) -> Option<(Child, Channel)> {
    if !root() {
        println!("SKIPPED: only root can mount");
        return None;
    }
    let ordinary = as_ordinary(launcher());
    let mut command = Command::new("/usr/bin/unshare");
    command
        .args(["--mount", "--propagation=private", "/bin/sh", "-ec"])
        .arg(format!("{script}; exec \"$@\""))
        .arg("sh")
        .arg(ordinary.get_program())
        .args(ordinary.get_args());
    let (waits, mut channel) = spawn(command);
    wait(&mut channel);
    Some((waits, channel))
}

#[test]
fn a_change_of_the_hosts_mounts_ends_what_holds_copies_of_them() {
    let medium = folder("medium");
    let shown = medium.to_str().unwrap();
    let Some((waits, channel)) = apart(&format!("mount -t tmpfs medium {shown}")) else {
        return;
    };
    let child = begun(waits.id());
    let holds = |pid: u32| {
        let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        mounts.contains(shown)
    };
    assert!(holds(child), "the control: it has a copy");
    let place = format!("--mount=/proc/{}/ns/mnt", waits.id());
    let taken_off = Command::new("/usr/bin/nsenter")
        .args([&place, "umount", shown])
        .status();
    assert!(taken_off.unwrap().success());
    eventually(|| (!Path::new(&format!("/proc/{child}")).exists()).then_some(()));
    // Another one is begun when the mounts are quiet.
    let next = begun(waits.id());
    assert!(next != child && !holds(next));
    let made = Ask::new(&["true"]).ask(waits, channel).made().unwrap();
    assert_eq!(u32::try_from(made.pid).unwrap(), next);
    assert_eq!(made.go().end().end, ChildExit::Code(0));
}

#[test]
fn a_grant_on_a_mount_that_came_just_before_the_question_is_seen() {
    let place = folder("place");
    let shown = place.to_str().unwrap().to_owned();
    let Some((waits, channel)) = apart("true") else {
        return;
    };
    let (pid, child) = (waits.id(), begun(waits.id()));
    let pause = |signal| {
        let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    };
    let mounts = format!("--mount=/proc/{pid}/ns/mnt");
    let within = |words: &[&str]| {
        let mut command = Command::new("/usr/bin/nsenter");
        command.arg(&mounts).args(words);
        assert!(command.status().unwrap().success(), "{words:?}");
    };
    // Both lie before it when it goes on.
    pause(Signal::STOP);
    within(&["mount", "-t", "tmpfs", "medium", &shown]);
    within(&[
        "sh",
        "-c",
        &format!("echo new > {shown}/file; chmod 644 {shown}/file"),
    ]);
    let held = format!("/proc/{pid}/root{shown}/file");
    let mut ask = Ask::new(&["cat", &format!("{shown}/file")]);
    ask.spec.grants.push(Grant {
        at: format!("{shown}/file").into(),
        read_only: true,
    });
    ask.grants.push(held.into());
    let resumed = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
        kill_process(pid, Signal::CONT).unwrap();
    });
    let made = ask.ask(waits, channel).made().unwrap();
    resumed.join().unwrap();
    assert_ne!(u32::try_from(made.pid).unwrap(), child);
    assert_eq!(made.go().end().ok(), "new\n");
}

#[test]
fn a_file_that_was_replaced_since_is_seen_as_it_is_now() {
    let etc = folder("etc");
    fs::copy("/etc/passwd", etc.join("passwd")).unwrap();
    write(&etc.join("services"), "old 1/tcp\n");
    let Some((waits, channel)) = apart(&format!("mount --bind {} /etc", etc.display())) else {
        return;
    };
    let child = begun(waits.id());
    write(&etc.join("services.new"), "new 1/tcp\n");
    fs::rename(etc.join("services.new"), etc.join("services")).unwrap();
    let ask = Ask::new(&["cat", "/etc/services"]);
    let made = ask.ask(waits, channel).made().unwrap();
    assert_ne!(u32::try_from(made.pid).unwrap(), child);
    assert_eq!(made.go().end().ok(), "new 1/tcp\n");
}
