//! Where the launcher may not make its own namespaces: which way a box is made,
//! what still holds, and that a refused one ran nothing.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bailey_tests::{Output, Running, Terminal, TestWorld, binaries, run_within, wait_until};
use serde_json::Value;

/// A start by another way than the first takes its time on a busy machine.
const LIMIT: Duration = Duration::from_secs(40);

/// `bailey run` in a node, and the node that it starts, where `how` is refused.
fn denied(world: &TestWorld, node: &str, how: &str) -> Command {
    let attack = binaries().join("bailey-attack");
    let mut command = world.command(node, &attack.to_string_lossy());
    command.args(["deny", how]).arg(binaries().join("bailey"));
    command
}

/// A command in a box called `yard`, of a node where `how` is refused.
fn yard(world: &TestWorld, node: &str, how: &str, words: &[&str], command: &[&str]) -> Command {
    let mut bailey = denied(world, node, how);
    bailey.args(["run", "--name", "yard"]).args(words);
    bailey.arg("--").args(command);
    bailey
}

/// Runs a script in such a box.
fn boxed(world: &TestWorld, node: &str, how: &str, words: &[&str], script: &str) -> Output {
    run_within(
        LIMIT,
        &mut yard(world, node, how, words, &["sh", "-c", script]),
    )
}

/// The newest report's method and level.
fn method(world: &TestWorld, node: &str) -> (String, String) {
    let rows = world.run(node, &["report", "yard", "--json"]).ok().json();
    let row: &Value = rows.last().unwrap();
    let word = |name: &str| row[name].as_str().unwrap().to_owned();
    (word("method"), word("level"))
}

/// A file that a box would make if it ran, in a folder that is granted to it.
struct Canary {
    folder: PathBuf,
}

impl Canary {
    fn new(world: &TestWorld, node: &str) -> Self {
        let folder = world.node(node).unwrap().home().join("granted");
        world
            .sh(node, &format!("mkdir -p {}", folder.display()))
            .ok();
        Self { folder }
    }

    fn grant(&self) -> String {
        format!("{}:rw", self.folder.display())
    }

    fn script(&self) -> String {
        format!("touch {}", self.file().display())
    }

    fn file(&self) -> PathBuf {
        self.folder.join("ran")
    }

    fn ran(&self) -> bool {
        Path::new(&self.file()).exists()
    }
}

/// What a machine lets be made: tier, whether weaker is allowed, then the method
/// and level, or the exit code of a refusal.
type Case<'a> = (&'a str, bool, Result<(&'a str, &'a str), i32>);

fn check(how: &str, cases: &[Case<'_>]) {
    let world = TestWorld::new(1);
    let canary = Canary::new(&world, "n1");
    for (tier, weaker, expected) in cases {
        let grant = canary.grant();
        let mut words = vec!["--tier", tier, "--grant", &grant];
        if *weaker {
            words.push("--allow-weaker");
        }
        let output = boxed(&world, "n1", how, &words, &canary.script());
        match expected {
            Ok((way, level)) => {
                assert_eq!(output.code, Some(0), "{how} {tier} {weaker}: {output}");
                assert!(canary.ran(), "{how} {tier} {weaker}: {output}");
                let found = method(&world, "n1");
                assert_eq!(
                    (found.0.as_str(), found.1.as_str()),
                    (*way, *level),
                    "{how} {tier}"
                );
                std::fs::remove_file(canary.file()).unwrap();
            }
            Err(code) => {
                assert_eq!(output.code, Some(*code), "{how} {tier} {weaker}: {output}");
                assert!(!canary.ran(), "{how} {tier} {weaker}: it ran: {output}");
                assert!(
                    output.stderr.contains("bailey doctor"),
                    "{how} {tier}: {output}"
                );
            }
        }
    }
}

/// Of these tiers none is made here but with leave, and then by Landlock alone.
fn only_landlock(how: &str, refused: &[&str], with_leave: &[&str]) {
    let refused = refused.iter().map(|tier| (*tier, false, Err(120)));
    let made = Ok(("landlock", "not-earned"));
    let with_leave = with_leave.iter().map(|tier| (*tier, true, made));
    check(how, &refused.chain(with_leave).collect::<Vec<_>>());
}

#[test]
fn without_clone3_bubblewrap_makes_all_but_gated_boxes() {
    check(
        "no-clone3",
        &[
            ("l1", false, Ok(("bubblewrap", "l1"))),
            ("l1.5", false, Ok(("bubblewrap", "l1.5"))),
            ("l2", false, Ok(("bubblewrap", "l2"))),
            ("gated", false, Err(120)),
            // The report of a box that was to be gated counts no other network.
            ("gated", true, Ok(("bubblewrap", "l1.5"))),
        ],
    );
}

#[test]
fn with_stripped_namespaces_only_landlock_is_left_and_only_with_leave() {
    only_landlock(
        "stripped-namespaces",
        &["l1.5", "l2", "gated"],
        &["l1.5", "gated"],
    );
}

#[test]
fn under_a_containers_filter_only_landlock_is_left() {
    only_landlock("container-filter", &["l2", "gated"], &["l2"]);
}

#[test]
fn without_user_namespaces_only_landlock_is_left() {
    only_landlock("no-user-namespaces", &["l1.5", "gated"], &["gated"]);
}

#[test]
fn without_a_tun_a_gated_box_is_refused_or_has_no_network() {
    check(
        "no-tun",
        &[
            ("l2", false, Ok(("namespaces", "l2"))),
            ("gated", false, Err(120)),
            ("gated", true, Ok(("namespaces", "l1.5"))),
        ],
    );
}

#[test]
fn a_masked_proc_leaves_only_landlock() {
    only_landlock("masked-proc", &["l2"], &["l2", "gated"]);
}

/// What a box looks like from inside, as far as it is the same by any method.
const LOOK: &str = "grep -E '^(Uid|Gid|Cap|NoNewPrivs|Seccomp:)' /proc/self/status; \
     cat /proc/self/setgroups; hostname; env | grep -v ^_= | sort; pwd; umask; \
     ls -A / /etc /home /tmp /var; ls /proc | grep -c '^[0-9]'; \
     ls -A /proc/self/fd | wc -l; cat /etc/passwd /etc/hosts; cat /proc/net/dev | wc -l; \
     for at in / /usr /etc/hosts /dev /proc/sys; do touch $at/x 2>&1; done; \
     for at in /usr /tmp /dev/shm /home/box; do grep \" $at \" /proc/self/mounts | cut -d ' ' -f 2-4 | \
     grep -oE '^/[^ ]*|nosuid|nodev|\\bro\\b|\\brw\\b' | tr '\\n' ' '; done; exit 7";

#[test]
fn a_box_by_bubblewrap_looks_as_one_by_the_launcher() {
    let world = TestWorld::new(2);
    let by = |node: &str, how: &str| boxed(&world, node, how, &["--tier", "l2"], LOOK);
    let said = |mut output: Output| {
        output.stderr.clear();
        output
    };
    let own = said(by("n1", "no-tun"));
    let other = said(by("n2", "no-clone3"));
    assert_eq!(method(&world, "n1").0, "namespaces");
    assert_eq!(method(&world, "n2").0, "bubblewrap");
    assert_eq!(own.code, Some(7), "{own}");
    assert_eq!(other, own);
    assert!(own.stdout.contains("Seccomp:\t2"), "{own}");
}

#[test]
fn a_terminal_and_a_stop_work_by_bubblewrap() {
    let world = TestWorld::new(1);
    let attack = binaries().join("bailey-attack");
    let bailey = binaries().join("bailey").display().to_string();
    let script = "tty; stty size; (setsid sleep 1234 &); sleep 1234";
    let run = [
        "run", "--name", "yard", "--tier", "l2", "--", "sh", "-c", script,
    ];
    let words = [&["deny", "no-clone3", &bailey], run.as_slice()].concat();
    let command = |program: &std::ffi::OsStr| world.command("n1", &program.to_string_lossy());
    let terminal = Terminal::start(command, &attack, &words);
    terminal.wait_for(LIMIT, "/dev/pts/0");
    terminal.wait_for(LIMIT, "24 80");
    let sleeps = || world.pids("n1", "sleep").len();
    assert!(wait_until(LIMIT, || sleeps() == 2));
    world.run("n1", &["stop", "yard"]).ok();
    assert_eq!(sleeps(), 0, "stop means stopped");
    assert!(wait_until(LIMIT, || world.pids("n1", "bwrap").is_empty()));
}

/// Asks the user's other programs and files for what a box must not have.
/// Prints one line an attempt: its name and what came of it.
const REACH: &str = r#"
import ctypes, os, resource, socket, sys
home, control, pid, tier = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
secret = home + '/secret'
def attempt(name, act):
    try:
        act()
        print(name, 'done')
    except OSError as error:
        print(name, os.strerror(error.errno))
def connect(family, to):
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.settimeout(2)
        s.connect(to)
def dgram():
    one, two = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
libc = ctypes.CDLL(None, use_errno=True)
def prlimit():
    resource.prlimit(pid, resource.RLIMIT_NICE, resource.prlimit(pid, resource.RLIMIT_NICE))
def shared():
    made = libc.shmget(0, 4096, 0o600)
    if made < 0:
        raise OSError(ctypes.get_errno(), '')
    libc.shmctl(made, 0, None)
def make(path):
    with open(path, 'w') as file:
        file.write('x')
    os.unlink(path)
attempt('read', lambda: open(secret).read())
attempt('write', lambda: open(secret, 'a'))
attempt('list', lambda: os.listdir(home))
attempt('make', lambda: make(home + '/made'))
attempt('mode', lambda: os.chmod(secret, 0o600))
attempt('times', lambda: os.utime(secret, (1, 1)))
attempt('control', lambda: connect(socket.AF_UNIX, control))
attempt('datagram', dgram)
attempt('signal', lambda: os.kill(pid, 0))
attempt('memory', lambda: open('/proc/%d/mem' % pid, 'rb').close())
attempt('environment', lambda: open('/proc/%d/environ' % pid, 'rb').read(1))
attempt('limits', prlimit)
attempt('shared', shared)
attempt('internet', lambda: socket.socket(socket.AF_INET).close())
attempt('tmp', lambda: make('/tmp/bailey-test-%d' % os.getpid()))
attempt('own', lambda: make('file'))
attempt('scratch', lambda: make(os.environ.get('TMPDIR', '.') + '/x'))
"#;

fn attempts(output: &Output) -> Vec<(String, String)> {
    let lines = output.stdout.lines();
    let pairs = lines.filter_map(|line| line.split_once(' '));
    pairs
        .map(|(name, came)| (name.to_owned(), came.to_owned()))
        .collect()
}

#[test]
fn a_box_by_landlock_alone_reaches_nothing_of_the_users() {
    let world = TestWorld::new(1);
    let node = world.node("n1").unwrap();
    let home = node.home();
    world
        .sh(
            "n1",
            &format!("echo of the person > {}/secret", home.display()),
        )
        .ok();
    // One of the user's other programs, and a socket of it.
    let socket = node.dir().join("run/other.sock");
    let listen = format!(
        "import socket, time\ns = socket.socket(socket.AF_UNIX)\ns.bind('{}')\ns.listen()\n\
         print('up', flush=True)\nwhile True: time.sleep(1)",
        socket.display()
    );
    let mut python = world.command("n1", "python3");
    let other = Running::start(python.args(["-c", &listen]));
    other.wait_line(LIMIT, |line| line == "up");
    let pid = *world.pids("n1", "python3").first().unwrap();
    let args = |tier: &str| {
        [
            home.display().to_string(),
            socket.display().to_string(),
            pid.to_string(),
            tier.to_owned(),
        ]
    };
    // The control: outside, the same user does all of it.
    let mut outside = world.command("n1", "python3");
    outside
        .current_dir(&home)
        .args(["-c", REACH])
        .args(args("-"));
    let outside = run_within(LIMIT, &mut outside).ok();
    let done = attempts(&outside)
        .iter()
        .filter(|(_, came)| came == "done")
        .count();
    assert_eq!(done, 17, "{outside}");
    for tier in ["l1.5", "l2"] {
        let words = ["-q", "--tier", tier, "--allow-weaker"];
        let reach = ["python3", "-c", REACH];
        let mut command = yard(&world, "n1", "stripped-namespaces", &words, &reach);
        let output = run_within(LIMIT, command.args(args(tier)));
        assert_eq!(output.code, Some(0), "{output}");
        let done: Vec<String> = attempts(&output)
            .into_iter()
            .filter(|(_, came)| came == "done")
            .map(|(name, _)| name)
            .collect();
        let wanted: &[&str] = match tier {
            // The network passes, its own folder is its own.
            "l1.5" => &["internet", "own", "scratch"],
            _ => &["own", "scratch"],
        };
        assert_eq!(done, wanted, "{tier}: {output}");
        assert_eq!(method(&world, "n1").0, "landlock");
    }
}

/// Processes that leave their session and their parent, and go on.
const SCATTER: &str = "for n in 1 2 3; do (setsid sh -c 'setsid sleep 4321 & exec sleep 4321' &); done; \
     echo up";

#[test]
fn nothing_of_a_box_by_landlock_alone_outlives_it() {
    let world = TestWorld::new(1);
    let sleeps = || world.pids("n1", "sleep").len();
    let gone = || wait_until(LIMIT, || sleeps() == 0);
    let scattered = |then: &str| {
        let words = ["--tier", "l2", "--allow-weaker"];
        let script = ["sh", "-c", &format!("{SCATTER}; {then}")];
        yard(&world, "n1", "stripped-namespaces", &words, &script)
    };
    let start = || {
        let running = Running::start(&mut scattered("exec sleep 4321"));
        running.wait_line(LIMIT, |line| line == "up");
        assert!(wait_until(LIMIT, || sleeps() == 7), "{}", sleeps());
        running
    };
    // A stop.
    let running = start();
    world.run("n1", &["stop", "yard"]).ok();
    assert_eq!(sleeps(), 0, "stop means stopped");
    assert_eq!(running.finish(LIMIT).code, Some(121));
    // The launcher is killed.
    let running = start();
    let launchers = world.pids("n1", "bailey-fence");
    world.kill("n1", "KILL", &launchers[..1]);
    assert!(gone(), "{} are left", sleeps());
    drop(running);
    // The command ends by itself.
    let output = run_within(LIMIT, &mut scattered("sleep 1; exit 3"));
    assert_eq!(output.code, Some(3), "{output}");
    assert_eq!(sleeps(), 0, "the end of a box is the end of all of it");
}

/// A process whose name is no text, away from its session and its parent.
const NAMELESS: &str = r"
import ctypes, os, sys, time
for _ in range(2):
    if os.fork(): os._exit(0)
    os.setsid()
ctypes.CDLL(None).prctl(15, b'\xff\xfe', 0, 0, 0)
print('up', flush=True)
time.sleep(4321)";

/// Processes of the machine of that name with this word on their command line.
fn nameless(word: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let is_one = |entry: &std::fs::DirEntry| {
        let read = |file: &str| std::fs::read(entry.path().join(file)).unwrap_or_default();
        let line = read("cmdline");
        let mut words = line.split(|byte| *byte == 0);
        read("comm").starts_with(b"\xff\xfe") && words.any(|one| one == word.as_bytes())
    };
    processes.filter(is_one).count()
}

#[test]
fn a_process_whose_name_is_no_text_does_not_outlive_a_box_by_landlock_alone() {
    let world = TestWorld::new(1);
    let word = format!("nameless-{}", std::process::id());
    let program = [
        "sh",
        "-c",
        "python3 -c \"$1\" \"$2\"; exec sleep 4321",
        "sh",
        NAMELESS,
        &word,
    ];
    let words = ["--tier", "l2", "--allow-weaker"];
    let running = Running::start(&mut yard(
        &world,
        "n1",
        "stripped-namespaces",
        &words,
        &program,
    ));
    running.wait_line(LIMIT, |line| line == "up");
    // The control: it is there.
    assert_eq!(nameless(&word), 1);
    let stopped = world.run("n1", &["stop", "yard"]).ok();
    assert_eq!(nameless(&word), 0, "stop means stopped: {stopped}");
    assert_eq!(running.finish(LIMIT).code, Some(121));
}

/// What it mounts there is the folder itself.
#[test]
fn a_read_only_folder_by_bubblewrap_lets_sockets_out_and_the_report_says_so() {
    let world = TestWorld::new(1);
    let folder = world.node("n1").unwrap().home().join("shown");
    world
        .sh(
            "n1",
            &format!("mkdir {0}; echo x >{0}/file", folder.display()),
        )
        .ok();
    let grant = format!("{}:ro", folder.display());
    let run = |words: &[&str]| {
        let words = [&["--tier", "l2", "--grant", &grant], words].concat();
        boxed(&world, "n1", "no-clone3", &words, "true")
    };
    assert_eq!(run(&[]).code, Some(120));
    let output = run(&["--allow-weaker"]);
    assert_eq!(output.code, Some(0), "{output}");
    assert!(output.stderr.contains("files: not-fenced"), "{output}");
    assert_eq!(method(&world, "n1").0, "bubblewrap");
    let report = world.run("n1", &["report", "yard"]).ok().stdout;
    let line = report
        .lines()
        .find(|line| line.contains("sockets in granted"));
    assert!(
        line.is_some_and(|line| line.contains("lead out")),
        "{report}"
    );
}

#[test]
fn a_gated_box_without_a_gate_reaches_nothing() {
    let world = TestWorld::new(3);
    let dial = "curl -s --max-time 5 http://93.184.216.34/ >/dev/null && echo reached";
    let reached = |output: &Output| output.stdout.contains("reached");
    // The control: outside, the same user does.
    let outside = world.sh("n1", dial);
    assert!(reached(&outside), "{outside}");
    for (node, how) in [
        ("n1", "no-tun"),
        ("n2", "no-clone3"),
        ("n3", "stripped-namespaces"),
    ] {
        let output = boxed(
            &world,
            node,
            how,
            &["--allow-weaker"],
            &format!("{dial}; exit 9"),
        );
        assert_eq!(output.code, Some(9), "{how}: {output}");
        assert!(!reached(&output), "{how}: {output}");
    }
}
