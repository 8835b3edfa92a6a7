//! Processes: pid 1 of the box, those outside, those that come later.

use bailey_tests::escape::{Sandbox, Yard};
use bailey_tests::{Running, wait_until};

use super::held;
use crate::common::LIMIT;

#[test]
fn the_program_of_pid_1_cannot_be_read_nor_written() {
    held("pid-1-program");
}

#[test]
fn the_memory_of_pid_1_cannot_be_rewritten() {
    held("pid-1-memory");
}

#[test]
fn pid_1_has_no_environment() {
    held("pid-1-environment");
}

#[test]
fn pid_1_shows_no_descriptor() {
    held("pid-1-descriptors");
}

#[test]
fn pid_1_cannot_be_traced() {
    held("pid-1-trace");
}

#[test]
fn pid_1_says_nothing_of_the_host_in_its_command_line() {
    let yard = Yard::new();
    let programs = yard.programs().display().to_string();
    // The control: the launcher's own words, outside, name its place.
    let running = sleeping(&yard, "gated");
    let outside = launchers(&yard, "cmdline");
    assert!(
        outside.iter().any(|words| words.contains("bailey-fence")),
        "the control: {outside:?}"
    );
    drop(running);
    for tier in Sandbox::TIERS {
        let words = [
            "run",
            "-q",
            "--tier",
            tier.name(),
            "--",
            "cat",
            "/proc/1/cmdline",
        ];
        let inside = yard.bailey(&words).ok().stdout;
        assert!(
            !inside.contains(&programs) && !inside.contains("/tmp") && !inside.contains("/home"),
            "{}: {inside}",
            tier.name()
        );
    }
}

#[test]
fn no_process_outside_is_seen() {
    held("see-outside");
}

#[test]
fn no_environment_outside_can_be_read() {
    held("environment-outside");
}

#[test]
fn no_process_outside_can_be_signalled() {
    held("signal-outside");
}

#[test]
fn no_process_outside_can_be_signalled_by_a_pidfd() {
    held("pidfd-outside");
}

#[test]
fn no_process_outside_can_be_traced() {
    held("trace-outside");
}

#[test]
fn no_memory_outside_can_be_read() {
    held("memory-outside");
}

#[test]
fn no_limits_outside_can_be_changed() {
    held("limits-outside");
}

#[test]
fn a_peer_of_a_socket_can_be_neither_signalled_nor_robbed() {
    held("peer-by-socket");
}

/// A box whose command sleeps, once it does.
fn sleeping(yard: &Yard, tier: &str) -> Running {
    let script = format!("echo up; exec sleep 86400.{}", std::process::id());
    let mut command = yard.command(yard.program("bailey"));
    command.args([
        "run", "-q", "--name", "yard", "--tier", tier, "--", "sh", "-c", &script,
    ]);
    let running = Running::start(&mut command);
    running.wait_line(LIMIT, |line| line == "up");
    running
}

/// A file of each process whose parent is the yard's node.
fn launchers(yard: &Yard, file: &str) -> Vec<String> {
    let read = |pid: u32, file: &str| {
        let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\0', " ")
    };
    of_node(yard)
        .into_iter()
        .map(|pid| read(pid, file))
        .collect()
}

/// The processes whose parent is the yard's node.
fn of_node(yard: &Yard) -> Vec<u32> {
    let node = format!("PPid:\t{}", yard.node_pid().unwrap());
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let status = std::fs::read_to_string(entry.path().join("status")).ok()?;
        status.lines().any(|line| line == node).then_some(pid)
    })
    .collect()
}

/// Its setup can be traced by no program of the same user, which bubblewrap's
/// once could.
#[test]
fn the_programs_of_a_box_cannot_be_traced_from_outside() {
    let yard = Yard::new();
    let running = sleeping(&yard, "gated");
    let attack = |pid: u32| {
        let program = yard.program("bailey-attack");
        bailey_tests::run(
            yard.command(program)
                .args(["trace-outside", &pid.to_string()]),
        )
    };
    let sleep = Running::start(yard.command("sleep").arg("600"));
    let plain = u32::try_from(sleep.pid().as_raw()).unwrap();
    // It may not be the program yet that it is to be.
    let control = wait_until(LIMIT, || attack(plain).code == Some(0));
    assert!(control, "the control: {}", attack(plain));
    let programs = of_node(&yard);
    assert!(programs.len() >= 2, "a launcher and a gate: {programs:?}");
    for pid in programs {
        let tried = attack(pid);
        assert_eq!(tried.code, Some(1), "{pid}: {tried}");
    }
    drop(running);
}

#[test]
fn a_further_command_is_held_as_the_first_one() {
    let yard = Yard::new();
    for tier in ["l1.5", "l2", "gated"] {
        let programs = format!("{}:ro", yard.programs().display());
        let script = "cat /proc/self/status; readlink /proc/self/ns/*; echo up; exec sleep 600";
        let mut command = yard.command(yard.program("bailey"));
        command.args([
            "run", "-q", "--name", "yard", "--tier", tier, "--grant", &programs,
        ]);
        let running = Running::start(command.args(["--", "sh", "-c", script]));
        running.wait_line(LIMIT, |line| line == "up");
        let first = running.stdout();
        let further = yard
            .bailey(&[
                "exec",
                "yard",
                "--",
                "sh",
                "-c",
                "cat /proc/self/status; readlink /proc/self/ns/*",
            ])
            .ok()
            .stdout;
        let kept = |text: &str| -> Vec<String> {
            let words = ["Cap", "Seccomp", "NoNewPrivs", "Uid", "Gid"];
            text.lines()
                .filter(|line| words.iter().any(|w| line.starts_with(w)) || line.contains(":["))
                .map(str::to_owned)
                .collect()
        };
        assert!(kept(&first).len() > 15, "{first}");
        assert_eq!(kept(&further), kept(&first), "{tier}");
        let attack = yard.program("bailey-attack").display().to_string();
        for name in [
            "io-uring",
            "user-namespace-unshare",
            "vsock",
            "i386-entry",
            "pid-1-memory",
            "pid-1-trace",
            "no-new-privileges",
            "bounding-set",
            "core-dump",
        ] {
            let tried = yard.bailey(&["exec", "yard", "--", &attack, name]);
            assert_eq!(tried.code, Some(1), "{tier}, {name}: {tried}");
        }
        let stopped = yard.bailey(&["stop", "yard"]);
        assert_eq!(stopped.code, Some(0), "{stopped}");
        let _ended = running.finish(LIMIT);
    }
}

#[test]
fn a_node_that_is_killed_leaves_nothing_of_its_boxes() {
    for tier in Sandbox::TIERS {
        let mut yard = Yard::new();
        let running = sleeping(&yard, tier.name());
        let word = format!("86400.{}", std::process::id());
        let left = || {
            let all = std::fs::read_dir("/proc").unwrap().flatten();
            all.filter(|entry| {
                let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                let words = String::from_utf8_lossy(&words).into_owned();
                words.starts_with("sleep") && words.contains(&word)
            })
            .count()
        };
        assert_eq!(left(), 1, "the control: it is seen while it runs");
        let programs = of_node(&yard);
        yard.kill_node();
        assert!(wait_until(LIMIT, || left() == 0), "{}", tier.name());
        let gone = |pid: &u32| !std::path::Path::new(&format!("/proc/{pid}")).exists();
        assert!(
            wait_until(LIMIT, || programs.iter().all(gone)),
            "{}: {programs:?}",
            tier.name()
        );
        drop(running);
    }
}
