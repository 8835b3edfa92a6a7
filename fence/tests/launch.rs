//! Real boxes in real namespaces, made as an ordinary user.

mod support;

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use bailey_fence_plan::channel::{Layer, ToFence};
use bailey_model::ChildExit;
use support::{Ask, folder, give, ids, write};

#[test]
fn a_command_runs_and_its_exit_code_or_signal_comes_back() {
    let outcome = Ask::new(&["true"]).run();
    assert_eq!((outcome.end, outcome.ran), (ChildExit::Code(0), true));
    assert_eq!(Ask::shell("exit 7").run().end, ChildExit::Code(7));
    assert_eq!(Ask::shell("kill -TERM $$").run().end, ChildExit::Signal(15));
}

#[test]
fn what_cannot_be_executed_is_said_as_a_shell_says_it() {
    let outcome = Ask::new(&["no-such-program"]).run();
    assert_eq!((outcome.end, outcome.ran), (ChildExit::Code(127), false));
    assert_eq!(
        outcome.err,
        "bailey: no-such-program: No such file or directory\n"
    );
    let outcome = Ask::new(&["/etc/passwd"]).run();
    assert_eq!((outcome.end, outcome.ran), (ChildExit::Code(126), false));
    assert_eq!(outcome.err, "bailey: /etc/passwd: Permission denied\n");
}

#[test]
fn a_text_file_without_an_interpreter_is_a_script() {
    let ask = Ask::new(&["./script", "a b"]);
    write(&ask.own.join("script"), "echo $1");
    std::fs::set_permissions(
        ask.own.join("script"),
        std::fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    assert_eq!(ask.run().ok(), "a b\n");
}

#[test]
fn input_output_and_error_are_three_streams() {
    let mut ask = Ask::shell("cat; echo bad >&2");
    ask.input = vec![b'x'; 300_000];
    let outcome = ask.run();
    assert_eq!(
        (outcome.out.len(), outcome.err.as_str()),
        (300_000, "bad\n")
    );
}

#[test]
fn the_command_has_no_privilege_and_is_filtered() {
    let status = Ask::new(&["cat", "/proc/self/status"]).run().ok();
    let value = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(value(set), "0000000000000000", "{set}");
    }
    assert_eq!(value("NoNewPrivs:"), "1");
    assert_eq!(value("Seccomp:"), "2");
    assert_eq!(value("Seccomp_filters:"), "2");
    assert_eq!(value("Uid:"), ids().0.to_string());
    assert_eq!(value("Gid:"), ids().1.to_string());
    // Nothing of the node's mask reaches a program.
    assert_eq!(value("SigBlk:"), "0000000000000000");
    assert_eq!(value("SigIgn:"), "0000000000000000");
}

#[test]
fn only_the_own_user_is_mapped_and_limits_hold() {
    let out = Ask::shell(
        "cat /proc/self/uid_map /proc/self/gid_map /proc/self/setgroups; umask; id -un; hostname;
         grep core /proc/self/limits",
    )
    .run()
    .ok();
    let words: Vec<&str> = out.split_whitespace().collect();
    let (uid, gid) = (ids().0.to_string(), ids().1.to_string());
    assert_eq!(
        words[..7],
        [&uid, &uid, "1", &gid, &gid, "1", "deny"].map(|s: &str| s)
    );
    assert_eq!(words[7..10], ["0022", "box", "probe"]);
    assert_eq!(
        words[10..],
        ["Max", "core", "file", "size", "1", "1", "bytes"]
    );
}

#[test]
fn nothing_but_the_three_streams_is_open() {
    let secret = folder("secret");
    let leaked = std::fs::File::open(&secret).unwrap();
    nix::fcntl::fcntl(
        &leaked,
        nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()),
    )
    .unwrap();
    let ask = Ask::python(
        "import os\nfds=[]\nfor fd in range(4096):\n  try: os.fstat(fd); fds.append(fd)\n  except OSError: pass\nprint(fds, os.getcwd())",
    );
    let out = ask.make().unwrap().go().end().ok();
    assert_eq!(out, "[0, 1, 2] /home/box\n");
    drop(leaked);
}

#[test]
fn the_environment_is_what_was_asked_and_no_more() {
    let mut ask = Ask::new(&["/usr/bin/env"]);
    ask.spec.env = vec![(b"A".to_vec(), b"b=c".to_vec())];
    let made = ask.make_with(|command| {
        command.env("BAILEY_TEST_SECRET", "leak");
    });
    assert_eq!(made.unwrap().go().end().ok(), "A=b=c\n");
}

#[test]
fn the_root_holds_what_was_planned_and_nothing_of_the_host() {
    let out = Ask::shell("ls -A / /etc /home /run /tmp /dev; echo; cat /etc/resolv.conf")
        .run()
        .ok();
    let listed = |folder: &str| -> Vec<&str> {
        let text = out.split(&format!("{folder}:\n")).nth(1).unwrap();
        text.lines().take_while(|line| !line.is_empty()).collect()
    };
    for name in listed("/") {
        let known = [
            "bin", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "nix", "proc", "run",
            "sbin", "tmp", "usr", "var",
        ];
        assert!(known.contains(&name), "{name}");
    }
    assert!(!listed("/etc").contains(&"shadow"));
    assert!(!listed("/etc").contains(&"machine-id"));
    assert_eq!(listed("/home"), ["box"]);
    assert_eq!(listed("/run"), ["bailey"]);
    assert!(listed("/tmp").is_empty());
    assert!(out.ends_with("nameserver 192.0.0.1\n"));
    let dev = [
        "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty",
        "urandom", "zero",
    ];
    let text = out.split("/dev:\n").nth(1).unwrap();
    assert_eq!(text.lines().take(dev.len()).collect::<Vec<_>>(), dev);
}

#[test]
fn a_folder_is_written_outside_and_only_read_inside() {
    let script = "cat /run/bailey/refusals; touch /run/bailey/x; mv /run/bailey /run/y; \
                  rm /run/bailey/refusals; grep -c ' /run/bailey ' /proc/self/mounts; \
                  touch /run/control && echo written";
    let mut made = Ask::shell(script).make().unwrap();
    let folder = made.refusals.take().expect("a gated box has one");
    // As the node does it: as the box's user, from outside its namespaces.
    let (uid, gid) = ids();
    nix::unistd::setfsgid(gid.into());
    nix::unistd::setfsuid(uid.into());
    let write = |name: &str, text: &[u8]| {
        use nix::fcntl::{OFlag, openat};
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
        let file = openat(&folder, name, flags, nix::sys::stat::Mode::S_IRUSR)?;
        nix::unistd::write(&file, text)
    };
    assert_eq!(write("refusals", b"what was refused\n"), Ok(17));
    // It is as large as it may be, and no larger.
    let mut taken = 0;
    let full = loop {
        match write(&format!("fill{taken}"), &[7; 16 << 10]) {
            Ok(_) => taken += 1,
            Err(errno) => break errno,
        }
        assert!(taken < 64, "it has no bound");
    };
    assert_eq!(full, nix::errno::Errno::ENOSPC);
    let end = made.go().end();
    assert_eq!(end.out, "what was refused\n1\nwritten\n", "{}", end.err);
    assert_eq!(
        end.err.matches("Read-only file system").count(),
        2,
        "{}",
        end.err
    );
    assert!(end.err.contains("Device or resource busy"), "{}", end.err);
    let l2 = Ask::shell("ls -A /run").tier(bailey_model::Tier::L2);
    assert_eq!(l2.run().ok(), "");
}

#[test]
fn programs_are_read_only_and_scratch_folders_are_not() {
    let out = Ask::python(
        r"
import os, errno
for path in ['/usr/x','/etc/x','/x','/dev/x','/home/x','/var/x','/proc/x','/usr/bin/env',
             '/tmp/x','/dev/shm/x','/run/x','/home/box/x','/var/tmp/y']:
    try:
        open(path,'a').close(); print(path,'ok')
    except OSError as e: print(path, errno.errorcode[e.errno])
open('/dev/null','w').write('x')
assert open('/dev/zero','rb').read(3)==bytes(3)
",
    )
    .run()
    .ok();
    let words: Vec<&str> = out
        .lines()
        .map(|line| line.rsplit(' ').next().unwrap())
        .collect();
    assert_eq!(words[..6], ["EROFS"; 6]);
    assert!(
        words[6..8]
            .iter()
            .all(|word| ["ENOENT", "EROFS", "EACCES"].contains(word)),
        "{out}"
    );
    assert_eq!(words[8..], ["ok"; 5]);
}

#[test]
fn mounts_carry_no_set_id_bits_and_no_devices() {
    let out = Ask::new(&["cat", "/proc/self/mountinfo"]).run().ok();
    let devices = [
        "/dev/null",
        "/dev/zero",
        "/dev/full",
        "/dev/random",
        "/dev/urandom",
        "/dev/tty",
        "/dev/pts",
    ];
    for line in out.lines() {
        let part = |n: usize| line.split(' ').nth(n).unwrap();
        let options: Vec<&str> = part(5).split(',').collect();
        assert!(options.contains(&"nosuid"), "{line}");
        assert!(
            options.contains(&"nodev") || devices.contains(&part(4)),
            "{line}"
        );
        assert!(
            !line.contains("shared:") && !line.contains("master:"),
            "{line}"
        );
    }
}

#[test]
fn a_read_only_grant_can_be_read_and_a_writable_one_written() {
    let (shown, given) = (folder("shown"), folder("given"));
    write(&shown.join("file"), "text");
    write(&shown.join("sub/file"), "deep");
    let script = format!(
        "cat {0}/file {0}/sub/file; echo x > {0}/file; echo x > {0}/new; rm {0}/file; chmod 777 {0}/file; \
         echo y > {1}/new",
        shown.display(),
        given.display()
    );
    let outcome = Ask::shell(&script)
        .grant(&shown, true)
        .grant(&given, false)
        .run();
    assert_eq!(outcome.out, "textdeep");
    assert_eq!(
        outcome.err.matches("Read-only file system").count(),
        4,
        "{}",
        outcome.err
    );
    assert_eq!(std::fs::read_to_string(shown.join("file")).unwrap(), "text");
    assert_eq!(std::fs::read_to_string(given.join("new")).unwrap(), "y\n");
}

#[test]
fn a_granted_file_is_granted_alone() {
    let around = folder("around");
    write(&around.join("a"), "a");
    write(&around.join("b"), "b");
    write(&around.join("c"), "c");
    let script = format!(
        "cd {}; ls; cat a; echo x >> b; echo x >> a",
        around.display()
    );
    let outcome = Ask::shell(&script)
        .grant(&around.join("a"), true)
        .grant(&around.join("b"), false)
        .run();
    assert_eq!(outcome.out, "a\nb\na");
    assert!(
        outcome.err.contains("Read-only file system"),
        "{}",
        outcome.err
    );
    assert_eq!(std::fs::read_to_string(around.join("b")).unwrap(), "bx\n");
}

#[test]
fn a_grant_in_a_grant_has_its_own_mode() {
    let outer = folder("outer");
    write(&outer.join("in/file"), "1");
    write(&outer.join("file"), "2");
    let script = format!("cd {}; echo x > in/file; echo x > file", outer.display());
    let outcome = Ask::shell(&script)
        .grant(&outer, true)
        .grant(&outer.join("in"), false)
        .run();
    assert!(outcome.err.contains("Read-only file system"));
    assert_eq!(
        std::fs::read_to_string(outer.join("in/file")).unwrap(),
        "x\n"
    );
    assert_eq!(std::fs::read_to_string(outer.join("file")).unwrap(), "2");
}

#[test]
fn nothing_is_made_in_a_granted_folder_nor_through_its_links() {
    let (granted, other, victim) = (folder("granted"), folder("other"), folder("victim"));
    std::os::unix::fs::symlink(&victim, granted.join("sub")).unwrap();
    for below in ["new/point", "sub/point"] {
        for read_only in [true, false] {
            let mut ask = Ask::new(&["true"])
                .grant(&granted, read_only)
                .grant(&other, false);
            ask.spec.grants[1].at = granted.join(below).to_str().unwrap().into();
            let error = ask.make().err().unwrap();
            assert_eq!(error.step, "bind the granted", "{error}");
            assert!(error.reason.contains("granted folder") || error.reason.contains("link"));
        }
    }
    assert_eq!(std::fs::read_dir(&victim).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(&granted).unwrap().count(), 1);
    // The control: whoever makes the mount point by its path makes it there.
    std::fs::create_dir_all(granted.join("sub/point")).unwrap();
    assert!(victim.join("point").exists());
}

#[test]
fn a_grant_is_the_folder_that_was_seen_whatever_lies_at_its_path_by_then() {
    let (granted, victim) = (folder("seen"), folder("victim"));
    write(&granted.join("file"), "granted");
    write(&victim.join("file"), "of the victim");
    let show = |fd: &std::os::fd::OwnedFd| {
        let mut ask = Ask::new(&["cat", "/granted/file"]).grant(&granted, false);
        ask.spec.grants[0].at = b"/granted".to_vec();
        ask.grants[0] = format!("/proc/self/fd/{}", fd.as_raw_fd()).into();
        ask.make()
    };
    let fd = support::open_path(&granted);
    // Moved away, and a link to another folder put in its place.
    let away = granted.with_extension("away");
    std::fs::rename(&granted, &away).unwrap();
    std::os::unix::fs::symlink(&victim, &granted).unwrap();
    // The control: by its path, the other one is found.
    let by_path = std::fs::read_to_string(granted.join("file")).unwrap();
    assert_eq!(by_path, "of the victim");
    assert_eq!(show(&fd).unwrap().go().end().ok(), "granted");
    // Removed, and another folder made where the kernel says that it was.
    std::fs::remove_dir_all(&away).unwrap();
    let said = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap();
    assert!(said.to_string_lossy().ends_with(" (deleted)"));
    std::fs::rename(&victim, &said).unwrap();
    assert!(said.join("file").exists());
    let error = show(&fd).err().unwrap();
    assert!(
        error.reason.contains("another file took its place"),
        "{error}"
    );
    std::fs::rename(&said, &victim).unwrap();
}

#[test]
fn no_set_id_file_is_left_in_a_granted_folder() {
    let script = |at: &Path| {
        format!(
            r"
import os, ctypes
libc=ctypes.CDLL(None)
os.umask(0)
for bits in (0o4755, 0o2755):
    for name, make in (
        ('chmod', lambda path: (open(path,'w').close(), os.chmod(path, bits))),
        ('fchmod', lambda path: os.fchmod(os.open(path, os.O_CREAT|os.O_RDWR), bits)),
        ('open', lambda path: os.open(path, os.O_CREAT|os.O_RDWR, bits)),
        ('mkfifo', lambda path: os.mknod(path, 0o10000|bits)),
        ('fchmodat2', lambda path: (open(path,'w').close(), libc.syscall(452, -100, path.encode(), bits, 0))),
    ):
        try: make('{}/%s-%o' % (name, bits))
        except OSError: pass",
            at.display()
        )
    };
    let made = |folder: &Path| {
        let all = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
        all.filter(|entry| entry.metadata().unwrap().permissions().mode() & 0o6000 != 0)
            .count()
    };
    let (held, control) = (folder("held"), folder("control"));
    Ask::python(&script(&held)).grant(&held, false).run().ok();
    assert_eq!(made(&held), 0);
    // The control: without the filter each way works.
    let mut ask = Ask::python(&script(&control)).grant(&control, false);
    ask.spec.broken = Some(Layer::Filter);
    ask.run().ok();
    assert_eq!(made(&control), 10);
}

#[test]
fn a_granted_folder_that_was_replaced_is_refused() {
    let (granted, swapped) = (folder("first"), folder("second"));
    let mut ask = Ask::new(&["true"]).grant(&granted, false);
    // The descriptor is of the first, by way of a name that the second takes.
    let alias = folder("alias").join("name");
    std::fs::rename(&granted, &alias).unwrap();
    ask.grants[0] = alias.clone();
    let fd = support::open_path(&alias);
    std::fs::rename(&alias, alias.with_extension("away")).unwrap();
    std::fs::rename(&swapped, &alias).unwrap();
    // A renamed folder is followed to where it is now: it is what was granted.
    ask.grants[0] = format!("/proc/self/fd/{}", fd.as_raw_fd()).into();
    let made = ask.make().unwrap().go().end();
    assert_eq!(made.end, ChildExit::Code(0));
    // One that is gone is not looked for.
    std::fs::remove_dir(alias.with_extension("away")).unwrap();
    let mut ask = Ask::new(&["true"]).grant(&granted, false);
    ask.grants[0] = format!("/proc/self/fd/{}", fd.as_raw_fd()).into();
    let error = ask.make().err().unwrap();
    assert!(error.reason.contains("no longer where it was"), "{error}");
}

#[test]
fn no_socket_or_fifo_passes_a_read_only_grant() {
    let granted = folder("sockets");
    let listener = UnixListener::bind(granted.join("socket")).unwrap();
    std::fs::set_permissions(
        granted.join("socket"),
        std::fs::Permissions::from_mode(0o777),
    )
    .unwrap();
    nix::unistd::mkfifo(
        &granted.join("fifo"),
        nix::sys::stat::Mode::from_bits_truncate(0o666),
    )
    .unwrap();
    give(&granted.join("fifo"));
    let script = |path: &Path| {
        format!(
            r"
import socket, os, errno
s=socket.socket(socket.AF_UNIX)
try: s.connect('{0}/socket'); print('connected')
except OSError as e: print(errno.errorcode[e.errno])
try: os.open('{0}/fifo', os.O_WRONLY|os.O_NONBLOCK); print('opened')
except OSError as e: print(errno.errorcode[e.errno])
",
            path.display()
        )
    };
    // A reader outside, without which no writer could open the FIFO at all.
    let _reader = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open(granted.join("fifo"))
        .unwrap();
    let read_only = Ask::python(&script(&granted))
        .grant(&granted, true)
        .run()
        .ok();
    assert_eq!(read_only, "ECONNREFUSED\nENXIO\n");
    // The control: through a writable grant both lead outside.
    let writable = Ask::python(&script(&granted))
        .grant(&granted, false)
        .run()
        .ok();
    assert_eq!(writable, "connected\nopened\n");
    drop(listener);
}

#[test]
fn hooks_configuration_and_start_files_in_a_writable_grant_stay_read_only() {
    let project = folder("project");
    for name in [
        ".git/hooks/pre-commit",
        ".git/config",
        ".gitconfig",
        ".bashrc",
        ".ssh/authorized_keys",
        ".local/share/systemd/user/unit",
        "code",
    ] {
        write(&project.join(name), "old\n");
    }
    let script = "
        for f in .git/hooks/pre-commit .git/hooks/new .git/config .git/commondir .bashrc \
            .gitconfig .ssh/authorized_keys .local/share/systemd/user/unit; do
            (echo bad > $f) 2>/dev/null && echo wrote $f
        done
        for f in .git .git/hooks .ssh .bashrc .local .local/share; do mv $f moved 2>/dev/null && echo moved $f; done
        rm -rf .git/hooks .ssh .bashrc 2>/dev/null
        echo new > code; echo new > .local/share/other";
    let script = format!("cd {}; {script}", project.display());
    assert_eq!(Ask::shell(&script).grant(&project, false).run().ok(), "");
    let text = |name: &str| std::fs::read_to_string(project.join(name)).unwrap();
    assert_eq!(
        (text("code"), text(".local/share/other")),
        ("new\n".into(), "new\n".into())
    );
    for name in [
        ".git/hooks/pre-commit",
        ".git/config",
        ".bashrc",
        ".ssh/authorized_keys",
    ] {
        assert_eq!(text(name), "old\n", "{name}");
    }
    // By name, git's own folder can be granted, and what it runs is still covered.
    let script = format!(
        "cd {}; echo new > .git/index; (echo bad > .git/config) 2>/dev/null && echo wrote",
        project.display()
    );
    let ask = Ask::shell(&format!("{script}; true")).grant(&project, false);
    assert_eq!(ask.grant(&project.join(".git"), false).run().ok(), "");
    assert_eq!(text(".git/index"), "new\n");
    // And so can hooks.
    let script = format!("echo new > {}/.git/hooks/pre-commit", project.display());
    let ask = Ask::shell(&script).grant(&project, false);
    assert_eq!(ask.grant(&project.join(".git/hooks"), false).run().ok(), "");
    assert_eq!(text(".git/hooks/pre-commit"), "new\n");
}

#[test]
fn a_repository_without_a_working_tree_keeps_its_hooks_and_configuration() {
    let bare = folder("bare.git");
    for name in ["HEAD", "config", "hooks/update", "objects/x", "refs/x"] {
        write(&bare.join(name), "old\n");
    }
    let script = format!(
        "cd {}; for f in config hooks/update hooks/new; do (echo bad > $f) 2>/dev/null && echo \
         wrote $f; done; mv hooks moved 2>/dev/null && echo moved; echo new > refs/x",
        bare.display()
    );
    assert_eq!(Ask::shell(&script).grant(&bare, false).run().ok(), "");
    assert_eq!(
        std::fs::read_to_string(bare.join("refs/x")).unwrap(),
        "new\n"
    );
    // The control: a folder that is none has no such names.
    std::fs::remove_file(bare.join("HEAD")).unwrap();
    let wrote = Ask::shell(&script).grant(&bare, false).run().ok();
    assert_eq!(
        wrote,
        "wrote config\nwrote hooks/update\nwrote hooks/new\nmoved\n"
    );
}

#[test]
fn the_filter_refuses_what_leaves_the_box_and_lets_the_rest_through() {
    let out = Ask::python(include_str!("support/filter.py")).run().ok();
    let expected = "
unshare-user EPERM|clone-user EPERM|unshare-ns EPERM|clone-ns EPERM|unshare-pid EPERM|clone-pid EPERM
unshare-net EPERM|clone-net EPERM|unshare-ipc EPERM|clone-ipc EPERM|unshare-uts EPERM|clone-uts EPERM
unshare-cgroup EPERM|clone-cgroup EPERM|unshare-time EPERM
clone3 ENOSYS|unknown ENOSYS|setns EPERM|mount EPERM|open_tree ENOSYS|bpf EPERM|io_uring ENOSYS
keyctl ENOSYS|userfaultfd EPERM|perf EPERM|process_vm_readv EPERM|kcmp EPERM|pidfd_getfd EPERM
by-handle EPERM|openat2 ENOSYS|statmount ENOSYS|persona-query ok|persona-plain ok|persona-exec ENOSYS
ioctl-tiocsti EPERM|ioctl-tiocsti-high EPERM|ioctl-tioclinux EPERM|ioctl-tioclinux-high EPERM
ioctl-fionread EFAULT
socket-0 EAFNOSUPPORT|socket-3 EAFNOSUPPORT|socket-5 EAFNOSUPPORT|socket-9 EAFNOSUPPORT
socket-f EAFNOSUPPORT|socket-11 EAFNOSUPPORT|socket-1d EAFNOSUPPORT|socket-26 EAFNOSUPPORT
socket-28 EAFNOSUPPORT|socket-63 EAFNOSUPPORT|socket-100000028 EAFNOSUPPORT
socket-1 ok|socket-2 ok|socket-a ok|socket-10 ok|netlink-diag EAFNOSUPPORT|socketpair-inet EAFNOSUPPORT
chmod-suid EPERM|chmod-sgid EPERM|fchmodat-suid EPERM|fchmodat2-suid EPERM|chmod-plain ok
open-suid EPERM|openat-suid EPERM|creat-suid EPERM|mknod-suid EPERM|open-old-suid-bits-in-mode ok
ptrace-me ok";
    let expected: Vec<&str> = expected
        .split(['|', '\n'])
        .filter(|line| !line.is_empty())
        .collect();
    assert_eq!(out.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn other_entries_to_the_kernel_end_the_process() {
    // getpid by the i386 entry: mov eax, 20; int 0x80; ret.
    let i386 = "
import ctypes, mmap
code=bytes([0xb8,20,0,0,0,0xcd,0x80,0xc3])
m=mmap.mmap(-1, 4096, prot=mmap.PROT_READ|mmap.PROT_WRITE|mmap.PROT_EXEC)
m.write(code)
f=ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(m)))
print(f())";
    assert_eq!(Ask::python(i386).run().end, ChildExit::Signal(31));
    let x32 = "import ctypes; print(ctypes.CDLL(None).syscall(ctypes.c_long(0x40000000|39)))";
    assert_eq!(Ask::python(x32).run().end, ChildExit::Signal(31));
}

#[test]
fn pid_1_shows_nothing_of_itself_and_cannot_be_touched() {
    let out = Ask::python(
        r"
import os, errno, ctypes, signal
for what in ('mem','environ','maps','stack'):
    try: data=open('/proc/1/'+what,'rb').read(16); print(what, len(data))
    except OSError as e: print(what, errno.errorcode[e.errno])
for what in ('exe','cwd','root','fd/0'):
    try: print(what, os.readlink('/proc/1/'+what))
    except OSError as e: print(what, errno.errorcode[e.errno])
try: print('fds', os.listdir('/proc/1/fd'))
except OSError as e: print('fds', errno.errorcode[e.errno])
libc=ctypes.CDLL(None, use_errno=True)
print('attach', libc.ptrace(16,1,0,0), errno.errorcode[ctypes.get_errno()])
for s in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGSEGV): os.kill(1, s)
status=dict(l.split(':',1) for l in open('/proc/1/status').read().splitlines())
print(status['Seccomp'].strip(), status['NoNewPrivs'].strip(), status['CapEff'].strip(), status['CapBnd'].strip(), 'alive' if status['State'].strip()[0] in 'RSD' else status['State'])
",
    )
    .run()
    .ok();
    for line in out.lines().take(8) {
        assert!(
            line.ends_with("EACCES") || line.ends_with("EPERM") || line.ends_with(" 0"),
            "{line}"
        );
    }
    let rest: Vec<&str> = out.lines().skip(8).collect();
    assert!(rest[0].ends_with("EACCES"), "{out}");
    assert_eq!(rest[1], "attach -1 EPERM");
    assert_eq!(rest[2], "2 1 0000000000000000 0000000000000000 alive");
}

#[test]
fn the_command_line_of_pid_1_shows_no_path_of_the_host() {
    let script = "
import os
print(open('/proc/1/cmdline').read().replace('\\0','|'), open('/proc/1/comm').read().strip())";
    let named: [fn(&mut std::process::Command); 3] = [
        |_| {},
        |command| {
            command.env_clear();
        },
        |command| {
            command.env("A", "b");
        },
    ];
    for change in named {
        let made = Ask::python(script).make_with(change).unwrap();
        assert_eq!(made.go().end().ok(), "bailey-fence| bailey-fence\n");
    }
}

#[test]
fn pid_1_holds_one_descriptor() {
    if !support::root() {
        return;
    }
    for ask in [
        Ask::new(&["sleep", "100"]),
        Ask::new(&["sleep", "100"]).at_once(),
    ] {
        let made = ask.make().unwrap().go().running();
        let count = std::fs::read_dir(format!("/proc/{}/fd", made.pid))
            .unwrap()
            .count();
        assert_eq!(count, 1);
        let environment = std::fs::read(format!("/proc/{}/environ", made.pid)).unwrap();
        assert_eq!(environment, b"");
    }
}

#[test]
fn orphans_are_reaped_and_end_with_the_command() {
    let out = Ask::python(
        r"
import os, time
for _ in range(20):
    if os.fork()==0:
        if os.fork()==0: time.sleep(0.05); os._exit(0)
        os._exit(0)
    os.wait()
time.sleep(0.5)
zombies=[p for p in os.listdir('/proc') if p.isdigit() and open(f'/proc/{p}/stat').read().split()[2]=='Z']
print(len(zombies), len([p for p in os.listdir('/proc') if p.isdigit()]))
if os.fork()==0:
    os.setsid()
    for fd in (0,1,2): os.close(fd)
    time.sleep(1000)
",
    )
    .run();
    // `run` has seen that no process was left.
    assert_eq!(out.ok(), "0 2\n");
}

#[test]
fn a_signal_reaches_the_whole_group_of_the_command() {
    let script = "trap 'echo got; exit 3' TERM; sleep 1000 & echo ready; wait";
    let mut made = Ask::shell(script).make().unwrap().go().running();
    std::thread::sleep(Duration::from_millis(300));
    made.tell(&ToFence::Signal(15));
    let outcome = made.end();
    assert_eq!(
        (outcome.end, outcome.out.as_str()),
        (ChildExit::Code(3), "ready\ngot\n")
    );
    let mut made = Ask::new(&["sleep", "1000"]).make().unwrap().go().running();
    made.tell(&ToFence::Signal(2));
    assert_eq!(made.end().end, ChildExit::Signal(2));
}

#[test]
fn kill_ends_everything_before_and_after_the_start() {
    let mut made = Ask::new(&["true"]).make().unwrap();
    made.tell(&ToFence::Kill);
    assert_eq!(made.end().end, ChildExit::Signal(9));
    let script = "trap '' TERM INT HUP; setsid sleep 1000 & sleep 1000";
    let mut made = Ask::shell(script).make().unwrap().go().running();
    made.tell(&ToFence::Kill);
    assert_eq!(made.end().end, ChildExit::Signal(9));
}

#[test]
fn the_end_of_the_channel_ends_the_box() {
    for running in [false, true] {
        let ask = Ask::shell("trap '' TERM INT HUP; setsid sleep 1000 & sleep 1000");
        let mut made = ask.make().unwrap();
        if running {
            made = made.go().running();
        }
        assert!(made.left() >= 1);
        let (other, _) = bailey_channel::Channel::pair().unwrap();
        drop(std::mem::replace(
            &mut made.channel,
            bailey_channel::Channel::new(other),
        ));
        assert!(made.gone());
        made.launcher.wait().unwrap();
    }
}

#[test]
fn a_launcher_that_is_killed_takes_its_box_with_it() {
    for delay in [0, 1, 2, 3, 5, 8] {
        let mut made = Ask::shell("setsid sleep 1000 & exec sleep 1000")
            .make()
            .unwrap()
            .go();
        std::thread::sleep(Duration::from_millis(delay));
        made.launcher.kill().unwrap();
        assert!(made.gone());
        made.launcher.wait().unwrap();
    }
}

#[test]
fn a_terminal_is_the_boxs_own_and_controls_it() {
    let script = "
import os, signal
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.system('tty; stty size')
print('ready', flush=True)
os.execv('/usr/bin/sleep', ['sleep', '1000'])";
    let ask = Ask::python(script).terminal(33, 101);
    let mut made = ask.make().unwrap().go().running();
    let mut terminal = made.terminal.take().unwrap();
    let mut seen = String::new();
    let mut bytes = [0; 256];
    while !seen.contains("ready") {
        let count = terminal.read(&mut bytes).unwrap();
        seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    assert!(seen.starts_with("/dev/pts/0\r\n33 101\r\n"), "{seen}");
    terminal.write_all(&[3]).unwrap();
    assert_eq!(made.end().end, ChildExit::Signal(2));
}

#[test]
fn a_terminal_takes_no_typed_characters_from_inside() {
    let script = r"
import fcntl, os, errno
for request in (0x5412, 0x541c, 0x5423):
    try: fcntl.ioctl(0, request, b'x'); print('typed')
    except OSError as e: print(errno.errorcode[e.errno])
print('done')";
    let mut made = Ask::python(script).terminal(24, 80).make().unwrap().go();
    let mut terminal = made.terminal.take().unwrap();
    let mut seen = String::new();
    let mut bytes = [0; 256];
    while !seen.contains("done") {
        let count = terminal.read(&mut bytes).unwrap();
        seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    assert!(
        seen.starts_with("EPERM\r\nEPERM\r\nEPERM\r\ndone"),
        "{seen}"
    );
    assert_eq!(made.end().end, ChildExit::Code(0));
}

#[test]
fn the_network_is_up_and_ends_at_the_tun() {
    let out = Ask::python(
        r"
import socket, struct
for name in ('route','if_inet6','ipv6_route'): print(name, open('/proc/net/'+name).read().replace('\n','|'))
print(socket.if_nameindex())
import fcntl
s=socket.socket()
r=fcntl.ioctl(s, 0x8942, b'tun0'.ljust(40,b'\0')); print('queue', struct.unpack_from('i', r, 16)[0])
r=fcntl.ioctl(s, 0x8921, b'tun0'.ljust(40,b'\0')); print('mtu', struct.unpack_from('i', r, 16)[0])
a=socket.create_server(('127.0.0.1',0)); b=socket.create_connection(a.getsockname())
a=socket.create_server(('::1',0), family=socket.AF_INET6); b=socket.create_connection(a.getsockname()[:2])
for family, target in ((socket.AF_INET,'93.184.216.34'),(socket.AF_INET6,'2606:2800:220:1::1')):
    u=socket.socket(family, socket.SOCK_DGRAM); u.sendto(b'hello gate', (target, 53)); print(u.getsockname()[0])
    u.connect((target,53)); print(u.getsockname()[0])
",
    );
    let mut made = out.make().unwrap();
    let mut tun = made.tun.take().unwrap();
    let made = made.go();
    let mut packets = Vec::new();
    while packets.len() < 2 {
        let mut packet = vec![0; 70_000];
        let count = tun.read(&mut packet).unwrap();
        packet.truncate(count);
        packets.push(packet.split_off(support::TUN_HEADER));
    }
    let out = made.end().ok();
    // No router solicitation, no multicast report: the first packets are the box's.
    assert_eq!((packets[0][0] >> 4, packets[1][0] >> 4), (4, 6));
    assert_eq!(packets[0][12..20], [192, 0, 0, 2, 93, 184, 216, 34]);
    assert!(packets.iter().all(|packet| packet.ends_with(b"hello gate")));
    assert!(out.contains("tun0\t00000000\t010000C0\t0003"), "{out}");
    assert!(
        out.contains("fd00ba11e70000000000000000000002 02 40 00 82"),
        "{out}"
    );
    assert!(!out.contains("fe80"), "{out}");
    assert!(
        out.contains("queue 4000") && out.contains("mtu 65520"),
        "{out}"
    );
    assert!(
        out.contains("192.0.0.2") && out.contains("fd00:ba11:e700::2"),
        "{out}"
    );
    assert!(out.contains("[(1, 'lo'), (2, 'tun0')]"), "{out}");
}

#[test]
fn a_box_that_cannot_be_made_says_which_step_failed() {
    let mut ask = Ask::new(&["true"]);
    ask.spec.cwd = b"/nowhere".to_vec();
    let error = ask.make().err().unwrap();
    assert_eq!(error.step, "go to the working folder");
    assert_eq!(
        (error.path.as_deref(), error.errno),
        (Some(b"/nowhere".as_slice()), 2)
    );
    let mut ask = Ask::new(&["true"]);
    ask.spec.uid += 1;
    assert_eq!(ask.make().err().unwrap().step, "check what was asked");
}

#[test]
fn a_launcher_killed_at_any_moment_leaves_no_process() {
    let launcher = support::launcher_named("bf-killed");
    for step in 0..60_u64 {
        let ask = Ask::new(&["/usr/bin/sleep", "7654.321"]);
        let mut started = ask.start(&launcher, |_| {});
        // From before its first step to after the last.
        let moment = Instant::now() + Duration::from_micros(step * 150);
        while Instant::now() < moment {
            std::hint::spin_loop();
        }
        started.launcher.kill().unwrap();
        started.launcher.wait().unwrap();
    }
    let until = Instant::now() + Duration::from_secs(5);
    let left = || support::processes_with("bf-killed") + support::processes_with("7654.321");
    while left() > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(left(), 0);
}

#[test]
fn a_read_only_grant_with_a_mount_in_it_is_refused_with_the_reason() {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    if !mounts.lines().any(|line| {
        line.split(' ')
            .nth(4)
            .is_some_and(|at| at.starts_with("/sys/"))
    }) {
        return;
    }
    let mut ask = Ask::new(&["true"]).grant(Path::new("/sys"), true);
    ask.spec.grants[0].at = b"/host/sys".to_vec();
    let error = ask.make().err().unwrap();
    assert_eq!(error.step, "show read-only the granted");
    assert!(error.reason.contains("holds another mount"), "{error}");
}
