//! Programs in a box, under the filter: debuggers inside, nothing outside, and
//! what people run.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use bailey_model::{BoxClass, ChildExit};

use crate::support::{Ask, as_ordinary, write};

/// Whether a box has a program, which is said where it has not.
fn there(program: &str) -> bool {
    let there = Path::new(program).exists();
    if !there {
        println!("{program} is not installed: not tried");
    }
    there
}

/// A process outside, of the user whom boxes are made for, that any of that
/// user may attach to.
struct Target(Child);

impl Target {
    fn new() -> Self {
        let mut command = as_ordinary(Path::new("/usr/bin/python3"));
        command.args(["-c", include_str!("../support/target.py")]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // It may have ended with the test.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn no_process_outside_can_be_traced_read_or_signalled() {
    let target = Target::new();
    let pid = target.0.id().to_string();
    let script = include_str!("../support/outside.py");
    let mut control = as_ordinary(Path::new("/usr/bin/python3"));
    let control = control.args(["-c", script, &pid]).output().unwrap();
    let control = String::from_utf8(control.stdout).unwrap();
    let reached = "seize ok|attach EPERM|read 1|compare ok|take ok|signal ok|memory ok|";
    assert_eq!(control.replace('\n', "|"), reached);
    for class in [BoxClass::Plain, BoxClass::Browser] {
        let mut ask = Ask::new(&["/usr/bin/python3", "-c", script, &pid]);
        ask.spec.class = class;
        let held = "seize ESRCH|attach ESRCH|read EPERM|compare EPERM|take ESRCH|signal ESRCH|\
                    memory ENOENT|";
        assert_eq!(ask.run().ok().replace('\n', "|"), held);
    }
}

#[test]
fn strace_follows_a_program_and_its_threads() {
    if !there("/usr/bin/strace") {
        return;
    }
    let script = "strace -f -o log /usr/bin/python3 -c 'import threading
t = threading.Thread(target=open, args=(\"/etc/passwd\",)); t.start(); t.join()' &&
        grep -q 'openat(.*\"/etc/passwd\"' log && grep -q '^[0-9]* *clone(' log && echo both";
    assert_eq!(Ask::shell(script).run().ok(), "both\n");
}

#[test]
fn gdb_stops_reads_and_changes_a_program() {
    if !there("/usr/bin/gdb") {
        return;
    }
    let words = [
        "/usr/bin/gdb",
        "-nx",
        "-batch",
        "-ex",
        "catch syscall write",
        "-ex",
        "run",
        "-ex",
        "print *(char*)$sp = 7",
        "-ex",
        "print *(char*)$sp",
        "-ex",
        "print (int)getpid() > 1",
        "-ex",
        "kill",
        "--args",
        "/bin/echo",
        "hello",
    ];
    // Not each gdb can call into a program on each processor: the box takes
    // nothing away from what it can outside.
    let outside = Command::new(words[0]).args(&words[1..]).output().unwrap();
    let printed = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.starts_with('$'));
        lines.map(str::to_owned).collect()
    };
    let outside = printed(&String::from_utf8_lossy(&outside.stdout));
    let outcome = Ask::new(&words).run();
    assert!(outcome.out.contains("call to syscall write"), "{outcome:?}");
    assert_eq!(printed(&outcome.out), outside, "{outcome:?}");
    let changed = r"$2 = 7 '\a'";
    assert!(outside.iter().any(|line| line == changed), "{outside:?}");
}

/// What people run: the program, and a script that uses more of it than its
/// start.
const PROGRAMS: &[(&str, &str, &str)] = &[
    (
        "/usr/bin/python3",
        "python3 -c 'import subprocess, multiprocessing as m, asyncio, tempfile, os
tempfile.TemporaryFile(); subprocess.run([\"true\"], check=True)
p = m.get_context(\"fork\").Pool(2); print(sum(p.map(abs, range(-3, 3)))); p.terminate()
asyncio.run(asyncio.sleep(0))'",
        "9\n",
    ),
    (
        "/usr/bin/node",
        "node -e 'const w = require(\"worker_threads\"), c = require(\"child_process\"), f = require(\"fs\");
new w.Worker(\"require(\\\"worker_threads\\\").parentPort.postMessage(7)\", { eval: true })
  .on(\"message\", n => { f.writeFileSync(\"n\", String(n)); console.log(c.execSync(\"cat n\") + \"\"); process.exit(0) })'",
        "7\n",
    ),
    (
        "/usr/bin/git",
        "git init -q r && cd r && git config user.email a@b && git config user.name a &&
         echo 1 > f && git add f && git commit -qm one && git clone -q . ../s && git -C ../s gc -q &&
         git -C ../s log --format=%s",
        "one\n",
    ),
    (
        "/usr/bin/gcc",
        "printf '#include <stdio.h>\\nint main(void) { puts(\"c\"); }\\n' > a.c && gcc -O2 a.c -o a && ./a",
        "c\n",
    ),
    (
        "/usr/bin/rustc",
        "printf 'fn main() { println!(\"rs\"); }\\n' > a.rs && rustc a.rs && ./a",
        "rs\n",
    ),
    (
        "/usr/bin/make",
        "printf 'all: a b\\na b:\\n\\t@sleep 0.01; echo x > $@\\n' > Makefile && make -sj4 && cat a b",
        "x\nx\n",
    ),
    (
        "/usr/bin/curl",
        "echo page > page; python3 -m http.server -b 127.0.0.1 8000 >/dev/null 2>&1 &
         curl -s --retry 20 --retry-connrefused --retry-delay 1 http://127.0.0.1:8000/page; kill $!",
        "page\n",
    ),
    (
        "/usr/bin/sqlite3",
        "sqlite3 d 'pragma journal_mode=wal; create table t(a); insert into t values (1),(2); select sum(a) from t;'",
        "wal\n3\n",
    ),
    (
        "/usr/bin/java",
        "printf 'class A { public static void main(String[] a) throws Exception {
           var t = new Thread(() -> System.out.println(\"java\")); t.start(); t.join(); } }' > A.java &&
         java -Xshare:auto A.java",
        "java\n",
    ),
    (
        "/usr/bin/perl",
        "perl -e 'if (my $p = fork) { waitpid $p, 0; print $? >> 8, \"\\n\" } else { exit 5 }'",
        "5\n",
    ),
    (
        "/usr/bin/tar",
        "mkdir d && echo 1 > d/f && tar cf - d | (mkdir e && tar xpf - -C e) && cat e/d/f",
        "1\n",
    ),
    (
        "/usr/bin/ssh-keygen",
        "ssh-keygen -q -t ed25519 -N '' -f k && head -c 11 k.pub && echo",
        "ssh-ed25519\n",
    ),
];

#[test]
fn common_programs_work_under_the_filter() {
    for (program, script, expected) in PROGRAMS {
        if !there(program) {
            continue;
        }
        let mut ask = Ask::shell(&format!("cd /home/box; {script}"));
        for (name, value) in [("HOME", "/home/box"), ("TMPDIR", "/tmp")] {
            ask.spec.env.push((name.into(), value.into()));
        }
        // Debian's Java reads its settings there, which an image does not hold.
        for entry in std::fs::read_dir("/etc").unwrap().map_while(Result::ok) {
            let java = entry.file_name().to_string_lossy().starts_with("java-");
            if java && program.ends_with("java") {
                ask = ask.grant(&entry.path(), true);
            }
        }
        let outcome = ask.run();
        // Some warn of what a small machine lacks.
        assert_eq!(outcome.out, *expected, "{program}: {outcome:?}");
        println!("{program}: works");
    }
}

/// A compiler outside the folders that a box has, by a grant of its own.
#[test]
fn a_granted_rust_toolchain_compiles() {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output();
    let Ok(sysroot) = sysroot else {
        println!("rustc is not installed: not tried");
        return;
    };
    let sysroot = String::from_utf8(sysroot.stdout).unwrap();
    let sysroot = Path::new(sysroot.trim());
    let rustc = sysroot.join("bin/rustc");
    let seen = as_ordinary(&rustc).arg("-V").output();
    if !seen.is_ok_and(|output| output.status.success()) {
        println!("the toolchain is in a folder that others cannot enter: not tried");
        return;
    }
    let script = format!("{} a.rs && ./a", rustc.display());
    let ask = Ask::shell(&script).grant(sysroot, true);
    write(&ask.own.join("a.rs"), "fn main() { println!(\"rs\"); }");
    assert_eq!(ask.run().ok(), "rs\n");
}

#[test]
fn a_shell_has_job_control_in_its_terminal() {
    if !there("/bin/bash") {
        return;
    }
    let script = "set -m; sleep 1000 & kill -STOP %1; sleep 0.2; jobs; kill -CONT %1; \
                  kill %1; (sleep 0.3; exit 3) & fg %2 >/dev/null; echo code $?";
    let mut made = Ask::new(&["/bin/bash", "-c", script])
        .terminal(24, 80)
        .make()
        .unwrap()
        .go();
    let mut terminal = made.terminal.take().unwrap();
    let (mut seen, mut bytes) = (String::new(), [0; 256]);
    while !seen.contains("code ") {
        let count = terminal.read(&mut bytes).unwrap();
        assert_ne!(count, 0, "{seen}");
        seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    assert!(
        seen.contains("Stopped") && seen.contains("code 3"),
        "{seen}"
    );
    assert_eq!(made.end().end, ChildExit::Code(0));
}

/// The filter of the class is the one that the box gets.
#[test]
fn a_browser_box_makes_namespaces_and_a_plain_one_does_not() {
    let script = "import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
print(libc.unshare(0x10000000 | 0x40000000), ctypes.get_errno())
print(libc.unshare(0x20000), ctypes.get_errno())";
    for (class, expected) in [
        (BoxClass::Plain, "-1 1\n-1 1\n"),
        (BoxClass::Browser, "0 0\n-1 1\n"),
    ] {
        let mut ask = Ask::python(script);
        ask.spec.class = class;
        assert_eq!(ask.run().ok(), expected, "{class:?}");
    }
}

/// Chromium refuses to start where it can make no sandbox: the same command in
/// a plain box is the control.
#[test]
fn chromium_makes_its_own_sandbox_in_a_browser_box_alone() {
    if !there("/usr/lib/chromium/chromium") {
        return;
    }
    let script = "cd /home/box; /usr/lib/chromium/chromium --headless --disable-gpu --no-first-run --user-data-dir=/tmp/c \
                  --dump-dom 'data:text/html,<p id=a>it runs</p>'";
    let run = |class| {
        let mut ask = Ask::shell(script);
        ask.spec.class = class;
        ask.spec.env.push((b"HOME".to_vec(), b"/home/box".to_vec()));
        ask.run()
    };
    let browser = run(BoxClass::Browser);
    assert!(browser.out.contains("it runs"), "{browser:?}");
    let plain = run(BoxClass::Plain);
    assert!(!plain.out.contains("it runs"), "{plain:?}");
    assert!(plain.err.contains("sandbox"), "{plain:?}");
}

/// A program that the kernel ended for its entry is seen to have been.
#[test]
fn the_entry_of_another_architecture_ends_the_box_with_its_signal() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let script = "import ctypes; print(ctypes.CDLL(None).syscall(ctypes.c_long(0x40000000|39)))";
    let control = as_ordinary(Path::new("/usr/bin/python3"))
        .args(["-c", script])
        .status()
        .unwrap();
    assert_eq!(control.signal(), None);
    assert_eq!(Ask::python(script).run().end, ChildExit::Signal(31));
}
