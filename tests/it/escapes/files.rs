//! Files that are not the box's.

use std::time::Duration;

use bailey_tests::Running;
use bailey_tests::escape::{Sandbox, Yard};

use super::{held, passes};

/// How long anything here may take.
const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn a_file_that_was_not_granted_cannot_be_read() {
    held("read-outside");
}

#[test]
fn a_write_outside_the_grants_fails_and_does_not_vanish() {
    held("write-outside");
}

#[test]
fn a_read_only_grant_takes_no_write() {
    held("write-read-only");
}

#[test]
fn a_folder_left_open_by_the_caller_or_held_by_the_node_leads_nowhere() {
    held("inherited-folder");
}

#[test]
fn a_folder_as_standard_input_leads_nowhere() {
    held("stdin-folder");
}

#[test]
fn a_file_as_standard_input_cannot_be_rewritten() {
    held("stdin-file");
}

#[test]
fn the_root_of_no_other_process_leads_outside() {
    held("root-of-others");
}

#[test]
fn shared_memory_files_of_the_machine_are_not_there() {
    held("shared-memory-file");
}

#[test]
fn no_device_but_the_plain_ones_can_be_opened() {
    held("devices");
}

#[test]
fn hooks_and_configuration_of_a_repository_stay_as_they_are() {
    held("hooks");
}

#[test]
fn nobody_is_let_in_by_ssh_keys_in_a_writable_grant() {
    held("ssh-keys");
}

#[test]
fn a_start_file_in_a_writable_grant_stays_as_it_is() {
    held("start-file");
}

/// At l1 too, where a program may make user namespaces.
#[test]
fn no_covered_name_is_replaced_from_another_mount_namespace() {
    held("uncover");
}

/// The kernel takes a cover off a name that is replaced; then nothing holds it.
#[test]
fn a_box_whose_covered_file_is_replaced_outside_is_ended_and_says_why() {
    let yard = Yard::new();
    let rw = yard.path("stage/rw");
    let grant = format!("{}:rw", rw.display());
    let mut command = yard.command(yard.program("bailey"));
    command.args(["run", "-q", "--name", "covered", "--grant", &grant, "--"]);
    command.args(["sh", "-c", "echo up; exec sleep 1000"]);
    let running = Running::start(&mut command);
    running.wait_line(LIMIT, |line| line == "up");
    // The control: what is not covered may be replaced.
    std::fs::write(rw.join("new"), "edited\n").unwrap();
    std::fs::rename(rw.join("new"), rw.join("code")).unwrap();
    std::fs::write(rw.join("new"), "edited\n").unwrap();
    assert_eq!(
        yard.bailey(&["exec", "covered", "--", "true"]).code,
        Some(0)
    );
    std::fs::rename(rw.join("new"), rw.join(".bashrc")).unwrap();
    let output = running.finish(LIMIT);
    assert_eq!(output.code, Some(125), "{output}");
    let said = format!("{}/.bashrc was replaced outside", rw.display());
    assert!(output.stderr.contains(&said), "{output}");
    let ps = yard.bailey(&["ps"]).ok().stdout;
    assert!(ps.contains("cover lost"), "{ps}");
}

/// The hole beside it: what is not there cannot be covered, and nothing is made
/// in a granted folder. A person who grants a home writable should know.
#[test]
fn a_start_file_that_was_not_there_can_be_made() {
    passes("start-file-absent");
}

#[test]
fn no_set_id_program_can_be_made_by_any_call() {
    held("set-id-bits");
}

#[test]
fn no_core_is_written_or_piped() {
    held("core-dump");
}

#[test]
fn a_container_engines_socket_is_not_granted_nor_a_folder_around_it() {
    let yard = Yard::new();
    let folder = yard.path("home/engine");
    let made = bailey_tests::run(yard.command("mkdir").arg(&folder));
    assert_eq!(made.code, Some(0), "{made}");
    let grant = |path: &std::path::Path, mode: &str| {
        let grant = format!("{}:{mode}", path.display());
        yard.bailey(&["run", "-q", "--grant", &grant, "--", "true"])
    };
    // The control: an ordinary socket in the same place is no reason.
    let _plain = std::os::unix::net::UnixListener::bind(folder.join("plain.sock")).unwrap();
    assert_eq!(grant(&folder, "rw").code, Some(0));
    let socket = folder.join("docker.sock");
    let _engine = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for (path, mode) in [(&socket, "ro"), (&socket, "rw"), (&folder, "rw")] {
        let refused = grant(path, mode);
        assert_eq!(
            refused.code,
            Some(2),
            "{} {mode}: {refused}",
            path.display()
        );
        // The end of a long line is what is always shown.
        assert!(refused.stderr.contains("all that you can"), "{refused}");
    }
}

#[test]
fn the_nodes_keys_state_and_control_socket_are_absent_in_every_tier() {
    let yard = Yard::new();
    let (state, run) = (yard.path("state/bailey"), yard.path("run/bailey"));
    let attack = yard.program("bailey-attack").display().to_string();
    let script = format!(
        "for path in {0}/device.key {0}/store.db {0}/node.lock {1}/control.sock; do \
         [ -e $path ] && echo SEEN $path; done; {attack} socket-in-writable {1}/control.sock",
        state.display(),
        run.display()
    );
    let outside = bailey_tests::run(yard.command("sh").args(["-c", &script]));
    assert_eq!(
        outside.stdout.matches("SEEN").count(),
        4,
        "the control: {outside}"
    );
    assert!(outside.stdout.contains("through"), "the control: {outside}");
    let programs = format!("{}:ro", yard.programs().display());
    for tier in Sandbox::TIERS {
        let words = [
            "run",
            "-q",
            "--tier",
            tier.name(),
            "--grant",
            &programs,
            "--",
            "sh",
            "-c",
            &script,
        ];
        let inside = yard.bailey(&words);
        assert!(!inside.stdout.contains("SEEN"), "{}: {inside}", tier.name());
        assert!(inside.stdout.contains("held"), "{}: {inside}", tier.name());
    }
}
