//! Several accounts of one user, and several users of one machine: each a node of its
//! own, and nothing of one in another.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};

use bailey_tests::{Output, Running, TestWorld, run, wait_until};
use serde_json::Value;

use crate::common::{LIMIT, daemon, hears_of, row_of, up, world};

/// Words before a verb that is about the second account of n1.
const WORK: [&str; 2] = ["--account", "work"];
const FIRST: [&str; 0] = [];

/// n1 with its first account and `work`, each with a node that runs.
fn two_accounts(world: &TestWorld) -> [Running; 2] {
    let first = daemon(world, "n1");
    let added = world.run("n1", &["account", "add", "work"]).ok();
    assert!(added.stdout.contains("--account work"), "{added}");
    let work = start(world, &WORK, &["node", "--device-name", "n1-work"]);
    let socket = runtime(world, "accounts/work/control.sock");
    let answers = || std::os::unix::net::UnixStream::connect(&socket).is_ok();
    assert!(wait_until(LIMIT, answers), "{}", work.stderr());
    [first, work]
}

fn words<'a>(account: &[&'a str], rest: &[&'a str]) -> Vec<&'a str> {
    [account, rest].concat()
}

fn start(world: &TestWorld, account: &[&str], rest: &[&str]) -> Running {
    world.start("n1", &words(account, rest))
}

fn ask(world: &TestWorld, account: &[&str], rest: &[&str]) -> Output {
    world.run("n1", &words(account, rest))
}

fn rows(world: &TestWorld, account: &[&str], rest: &[&str]) -> Vec<Value> {
    ask(world, account, &[rest, &["--json"]].concat())
        .ok()
        .json()
}

fn state(world: &TestWorld, below: &str) -> PathBuf {
    world
        .node("n1")
        .unwrap()
        .dir()
        .join("state/bailey")
        .join(below)
}

fn runtime(world: &TestWorld, below: &str) -> PathBuf {
    world
        .node("n1")
        .unwrap()
        .dir()
        .join("run/bailey")
        .join(below)
}

/// Makes another node a device of one of n1's accounts.
fn join(world: &TestWorld, account: &[&str], joiner: &str) {
    let add = start(world, account, &["device", "add", "--yes", "--json"]);
    let code = row_of(&add, |row| row["code"].is_string());
    let code = code["code"].as_str().unwrap();
    let _joined = world.run(joiner, &["device", "join", code]).ok();
    let _added = add.finish(LIMIT).ok();
    let connected = || {
        let rows = rows(world, account, &["device", "list"]);
        rows.iter().any(|row| row["connected"] == true)
    };
    assert!(wait_until(LIMIT, connected), "{joiner} does not meet n1");
}

/// Starts a box `yard` that dials a host and stays.
fn yard(world: &TestWorld, account: &[&str], host: &str) -> Running {
    let script = format!("curl -sS -m 5 -o /dev/null http://{host}/; echo up; sleep 600");
    let box_of = ["run", "-q", "--name", "yard", "--", "sh", "-c", &script];
    let running = start(world, account, &box_of);
    running.wait_line(LIMIT, |line| line == "up");
    running
}

/// The state of a box `yard`, as a command line says it.
fn yard_is(world: &TestWorld, account: &[&str]) -> String {
    let rows = rows(world, account, &["ps"]);
    assert_eq!(rows.len(), 1, "{rows:?}");
    rows[0]["state"].as_str().unwrap().to_owned()
}

/// Every file below a folder, but for the folder `but`.
fn files(folder: &Path, but: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let kind = std::fs::symlink_metadata(&path).unwrap().file_type();
        if kind.is_dir() && path != but {
            found.extend(files(&path, but));
        } else if kind.is_file() {
            found.push(path);
        }
    }
    found
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().collect();
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// Files that hold one of the ids, in bytes or in digits.
fn holding(files: &[PathBuf], ids: &[String]) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for path in files {
        let bytes = std::fs::read(path).unwrap();
        for id in ids {
            for form in [unhex(id), id.clone().into_bytes()] {
                if bytes.windows(form.len()).any(|window| window == form) {
                    found.push((path.clone(), id.clone()));
                }
            }
        }
    }
    found
}

/// Ids of an account: its own, its devices', its boxes'.
fn ids(world: &TestWorld, account: &[&str], listed: &Value) -> Vec<String> {
    let id = |row: &Value| row["id"].as_str().unwrap().to_owned();
    let devices = rows(world, account, &["device", "list"]);
    let boxes = rows(world, account, &["ps"]);
    let own = listed["account"].as_str().unwrap().to_owned();
    let all = devices.iter().chain(&boxes).map(id);
    std::iter::once(own).chain(all).collect()
}

#[test]
fn two_accounts_of_one_user_run_at_once_and_nothing_of_one_is_in_the_other() {
    let (world, _others) = others();
    let nodes = two_accounts(&world);
    join(&world, &FIRST, "n2");
    join(&world, &WORK, "n3");
    let first = yard(&world, &FIRST, "shop.example");
    let work = yard(&world, &WORK, "third.example");
    for (node, theirs) in [("n2", "n1"), ("n3", "n1-work")] {
        hears_of(&world, node, "yard");
        let boxes = world.run(node, &["ps", "--json"]).ok().json();
        assert_eq!(boxes.len(), 1, "{node} hears of another account: {boxes:?}");
        assert_eq!(boxes[0]["device"], theirs);
    }

    let listed = rows(&world, &FIRST, &["account", "list"]);
    let said: Vec<_> = listed
        .iter()
        .map(|row| {
            (
                row["name"].as_str().unwrap(),
                &row["running"],
                &row["boxes"],
                &row["devices"],
            )
        })
        .collect();
    let (yes, one, two) = (Value::from(true), Value::from(1), Value::from(2));
    assert_eq!(
        said,
        [("default", &yes, &one, &two), ("work", &yes, &one, &two)]
    );
    // Whichever account is meant, the list is of all.
    assert_eq!(rows(&world, &WORK, &["account", "list"]), listed);
    let lines = world.run("n1", &["account", "list"]).ok().stdout;
    assert!(lines.contains("node running, 1 box, 2 devices"), "{lines}");

    // A stop in one, by its device, is none in the other.
    let stopped = world.run("n3", &["stop", "yard@n1-work", "--json"]).ok();
    assert_eq!(stopped.json()[0]["state"], "stopped");
    assert_eq!(work.finish(LIMIT).code, Some(121));
    assert_eq!(yard_is(&world, &WORK), "ended");
    assert_eq!(yard_is(&world, &FIRST), "running");
    let unknown = world.run("n2", &["stop", "yard@n1-work"]);
    assert_eq!(unknown.code, Some(2), "{unknown}");

    let (first_ids, work_ids) = (
        ids(&world, &FIRST, &listed[0]),
        ids(&world, &WORK, &listed[1]),
    );
    assert_eq!((first_ids.len(), work_ids.len()), (4, 4));
    drop((first, nodes));
    assert!(wait_until(LIMIT, || world.pids("n1", "bailey").is_empty()));
    let further = state(&world, "accounts");
    let first_files = files(&state(&world, ""), &further);
    let work_files = files(&further, Path::new(""));
    let found = |files: &[PathBuf], ids: &[String]| holding(files, ids);
    for (own, ids, others) in [
        (&first_files, &first_ids, &work_ids),
        (&work_files, &work_ids, &first_ids),
    ] {
        let store = |path: &PathBuf| path.to_string_lossy().contains("/store.db");
        let control = found(own, ids);
        let seen: Vec<_> = control.iter().filter(|(path, _)| store(path)).collect();
        assert!(seen.len() >= ids.len(), "the control: {control:?}");
        assert_eq!(found(own, others), []);
    }
    // Without their nodes they are listed all the same, and none is started for it.
    let quiet = rows(&world, &FIRST, &["account", "list"]);
    for (before, now) in listed.iter().zip(&quiet) {
        assert_eq!(before["account"], now["account"]);
        assert_eq!(
            (&now["running"], &now["boxes"], &now["devices"]),
            (&false.into(), &0.into(), &Value::Null)
        );
    }
    assert!(world.pids("n1", "bailey").is_empty());
}

/// A world of three nodes of which the last two run.
fn others() -> (TestWorld, [Running; 2]) {
    let world = TestWorld::new(3);
    let others = ["n2", "n3"].map(|node| daemon(&world, node));
    (world, others)
}

#[test]
fn each_account_has_folders_of_its_own_that_are_its_users_alone() {
    let (world, _daemons) = world(1);
    let _made = world.run("n1", &["account", "add", "work"]).ok();
    // The command starts the node of that account, by the variable as by the word.
    let mut by_variable = world.bailey("n1");
    let by_variable = by_variable.env("BAILEY_ACCOUNT", "work");
    let ran = run(by_variable.args(["run", "--name", "yard", "--", "true"])).ok();
    assert!(
        ran.stderr.contains("bailey --account work flows yard"),
        "a hint for the other account: {ran}"
    );
    assert_eq!(yard_is(&world, &WORK), "ended");
    assert!(rows(&world, &FIRST, &["ps"]).is_empty());
    let nothing = world.run("n1", &["flows", "yard"]);
    assert_eq!(nothing.code, Some(2), "{nothing}");
    let missing = ask(&world, &WORK, &["flows", "none"]);
    assert!(
        missing
            .stderr
            .contains("bailey --account work ps lists them"),
        "{missing}"
    );
    let uid = world.uid();
    for (path, mode) in [
        (state(&world, "accounts/work"), 0o700),
        (runtime(&world, "accounts/work"), 0o700),
        (runtime(&world, "accounts/work/control.sock"), 0o600),
        (runtime(&world, "control.sock"), 0o600),
        (state(&world, "accounts/work/device.key"), 0o600),
    ] {
        let found = std::fs::metadata(&path).unwrap();
        assert_eq!(
            (found.uid(), found.permissions().mode() & 0o777),
            (uid, mode),
            "{path:?}"
        );
    }
    // Neither's folders are ever granted to a box of the other.
    for (account, below) in [
        (&FIRST[..], "accounts/work"),
        (&WORK[..], ""),
        (&WORK[..], "boxes"),
    ] {
        let folder = state(&world, below);
        let grant = ["run", "--grant", folder.to_str().unwrap(), "--", "true"];
        let refused = ask(&world, account, &grant);
        assert_eq!(refused.code, Some(2), "{refused}");
        assert!(refused.stderr.contains("bailey"), "{refused}");
    }
}

#[test]
fn what_is_no_name_and_what_nobody_began_is_refused_and_begins_nothing() {
    let (world, _daemons) = world(1);
    let long = "x".repeat(33);
    for name in [
        "..",
        "../work",
        "a/b",
        "",
        ".x",
        "-x",
        "a b",
        "\u{1b}[2J",
        "\u{202e}x",
        &long,
    ] {
        let option = format!("--account={name}");
        for words in [&[&option, "ps"][..], &["account", "add", "--", name]] {
            let refused = world.run("n1", words);
            assert_eq!(refused.code, Some(2), "{words:?}: {refused}");
            assert!(
                !refused.stderr.contains(['\u{1b}', '\u{202e}']),
                "{refused:?}"
            );
        }
    }
    let misspelt = world.run("n1", &["--account", "wrok", "run", "--", "true"]);
    assert_eq!(misspelt.code, Some(2), "{misspelt}");
    assert!(misspelt.stderr.contains("no account wrok"), "{misspelt}");
    let mut by_variable = world.bailey("n1");
    let misspelt = run(by_variable.env("BAILEY_ACCOUNT", "wrok").args(["node"]));
    assert_eq!(misspelt.code, Some(2), "{misspelt}");
    assert!(!state(&world, "accounts").exists());
    // The first has a name too, and nobody else gets it.
    let twice = world.run("n1", &["account", "add", "default"]);
    assert_eq!(twice.code, Some(2), "{twice}");
    let _ps = world.run("n1", &["ps", "--account", "default"]).ok();
    let _made = world.run("n1", &["account", "add", "work"]).ok();
    assert_eq!(world.run("n1", &["account", "add", "work"]).code, Some(2));
}

#[test]
fn boxes_of_two_accounts_that_write_one_folder_are_named_at_both_terminals_alone() {
    let (world, _others) = others();
    let _nodes = two_accounts(&world);
    let folder = world.node("n1").unwrap().dir().join("home/shared");
    let _made = world.sh("n1", &format!("mkdir {}", folder.display())).ok();
    let grant = format!("{}:rw", folder.display());
    let begin = |account: &[&str], name: &str| {
        let words = [
            "run",
            "--name",
            name,
            "--grant",
            &grant,
            "--",
            "sh",
            "-c",
            "echo up; sleep 600",
        ];
        let running = start(&world, account, &words);
        running.wait_line(LIMIT, |line| line == "up");
        running
    };
    let one = begin(&FIRST, "ours");
    let other = begin(&WORK, "theirs");
    let shown = folder.display();
    let said = format!("bailey: box ours of your account default also writes {shown}");
    other.wait_error_line(LIMIT, |line| line == said);
    let said = format!("bailey: a box of your account work also writes {shown}");
    one.wait_error_line(LIMIT, |line| line == said);
    // No report and no entry says so: those go to devices.
    for (account, own, others) in [
        (&FIRST[..], "ours", "theirs"),
        (&WORK[..], "theirs", "ours"),
    ] {
        for verb in ["report", "flows"] {
            let text = ask(&world, account, &[verb, own, "--json"]).ok().stdout;
            assert!(
                text.contains(own) && !text.contains(others),
                "{verb}: {text}"
            );
        }
    }
}

#[test]
fn a_box_does_not_reach_the_node_of_another_account() {
    let (world, _others) = others();
    let _nodes = two_accounts(&world);
    join(&world, &WORK, "n3");
    let listeners = state(&world, "accounts/work/listeners");
    let port = || {
        let text = std::fs::read_to_string(&listeners).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("udp "))?;
        line.parse::<std::net::SocketAddr>()
            .ok()
            .map(|addr| addr.port())
    };
    let port = bailey_tests::eventually(LIMIT, port).unwrap();
    let own = world.node("n1").unwrap().v4();
    let script = format!("echo x >/dev/udp/{own}/{port}; echo x >/dev/udp/{own}/9; sleep 1");
    let reach = ["run", "-q", "--name", "yard", "--reach", "local", "--"];
    let _ran = ask(
        &world,
        &FIRST,
        &[&reach[..], &["bash", "-c", &script]].concat(),
    );
    let flows = rows(&world, &FIRST, &["flows", "yard"]);
    let to = |port: u16| {
        let row = flows.iter().find(|row| row["dst_port"] == port);
        let row = row.unwrap_or_else(|| panic!("nothing went to {port}: {flows:?}"));
        (row["verdict"].clone(), row["dst_class"].clone())
    };
    assert_eq!(to(port), ("refuse".into(), "node".into()));
    // The control: another port of this machine is local.
    assert_eq!(to(9), ("allow".into(), "local".into()));
}

#[test]
fn two_accounts_on_one_machine_are_found_by_their_own_codes_at_once() {
    let (world, _others) = others();
    let _nodes = two_accounts(&world);
    let adding = [&FIRST[..], &WORK]
        .map(|account| start(&world, account, &["device", "add", "--yes", "--json"]));
    let short = adding.each_ref().map(|add| {
        let codes = row_of(add, |row| row["code"].is_string());
        assert_eq!(codes["why"], Value::Null, "{codes}");
        codes["short"].as_str().unwrap().to_owned()
    });
    for (joiner, code) in ["n2", "n3"].into_iter().zip(&short) {
        let _joined = world.run(joiner, &["device", "join", code]).ok();
    }
    for add in adding {
        let _added = add.finish(LIMIT).ok();
    }
    let name = |account: &[&str]| {
        let rows = rows(&world, account, &["device", "list"]);
        let other = rows.iter().find(|row| row["this"] == false).cloned();
        other.map(|row| row["name"].as_str().unwrap().to_owned())
    };
    assert!(wait_until(LIMIT, || name(&FIRST).as_deref() == Some("n2")));
    assert!(wait_until(LIMIT, || name(&WORK).as_deref() == Some("n3")));
    let ports = ["sync.port", "accounts/work/sync.port"]
        .map(|file| std::fs::read_to_string(state(&world, file)).unwrap());
    assert_ne!(ports[0], ports[1]);
}

#[test]
fn a_node_goes_on_where_the_runtime_folder_of_its_session_went() {
    let world = TestWorld::new(1);
    let _daemon = up(&world, "n1", world.start("n1", &["node"]));
    let _yard = world
        .run("n1", &["run", "-q", "--name", "yard", "--", "true"])
        .ok();
    // su(1) leaves another one's folder in the environment, cron(8) leaves none.
    for runtime in [Some("/usr"), Some("/run/user/4711"), Some("relative"), None] {
        let mut bailey = world.bailey("n1");
        match runtime {
            Some(folder) => bailey.env("XDG_RUNTIME_DIR", folder),
            None => bailey.env_remove("XDG_RUNTIME_DIR"),
        };
        let boxes = run(bailey.args(["ps", "--json"])).ok().json();
        assert_eq!(boxes.len(), 1, "{runtime:?}: another node: {boxes:?}");
    }
    let rest = state(&world, "run");
    assert_eq!(rest.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    assert!(!rest.join("control.sock").exists(), "a second node listens");
}

/// A network of its own with two users of this machine in it, which only root can be
/// and make. The world's nodes map one user each.
struct Machine {
    network: Running,
    dir: PathBuf,
}

const USERS: [u32; 2] = [64_201, 64_202];

impl Machine {
    /// `None` where this test's user is not root.
    fn new(name: &str) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            println!("SKIPPED: only root can start nodes of two users");
            return None;
        }
        let link = "ip link set lo up; ip link add a0 type veth peer name a1; \
                    ip addr add 192.168.7.1/24 dev a0; ip link set a0 up; ip link set a1 up; \
                    echo ready; exec sleep 600";
        let mut unshare = std::process::Command::new("unshare");
        let network = Running::start(unshare.args(["--net", "sh", "-c", link]));
        network.wait_line(LIMIT, |line| line == "ready");
        let dir = std::env::temp_dir().join(format!("bu-{name}-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        for user in USERS {
            for folder in ["home", "run"] {
                let folder = dir.join(user.to_string()).join(folder);
                std::fs::create_dir_all(&folder).unwrap();
                std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).unwrap();
                std::os::unix::fs::chown(&folder, Some(user), Some(user)).unwrap();
            }
        }
        Some(Self { network, dir })
    }

    fn home(&self, user: u32) -> PathBuf {
        self.dir.join(user.to_string()).join("home")
    }

    fn runtime(&self, user: u32) -> PathBuf {
        self.dir.join(user.to_string()).join("run")
    }

    fn socket(&self, user: u32) -> PathBuf {
        self.runtime(user).join("bailey/control.sock")
    }

    /// A program as a user, with the environment of a session.
    fn command(&self, user: u32, program: &Path) -> std::process::Command {
        let mut command = std::process::Command::new("nsenter");
        command
            .args([
                "--net",
                "--target",
                &self.network.pid().to_string(),
                "setpriv",
            ])
            .args([format!("--reuid={user}"), format!("--regid={user}")])
            .args(["--clear-groups", "--"])
            .arg(program)
            .env_clear()
            .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
            .env("HOME", self.home(user))
            .env("XDG_RUNTIME_DIR", self.runtime(user))
            .current_dir("/");
        command
    }

    fn bailey(&self, user: u32) -> std::process::Command {
        self.command(user, &bailey_tests::binaries().join("bailey"))
    }

    fn run(&self, user: u32, words: &[&str]) -> Output {
        run(self.bailey(user).args(words))
    }

    /// A user's node, up.
    fn node(&self, user: u32) -> Running {
        let name = format!("of-{user}");
        let node = Running::start(self.bailey(user).args(["node", "--device-name", &name]));
        let up = wait_until(LIMIT, || {
            self.run(user, &["account", "list"])
                .stdout
                .contains("running, ")
        });
        assert!(up, "{}", node.stderr());
        node
    }

    /// What a program of a user hears first at a node's socket.
    fn first_words(&self, user: u32, socket: &Path) -> Output {
        let script = "import socket, sys\ns = socket.socket(socket.AF_UNIX)\n\
                      s.settimeout(5)\ns.connect(sys.argv[1])\nprint(len(s.recv(100)))";
        let mut python = self.command(user, Path::new("/usr/bin/python3"));
        run(python.args(["-c", script]).arg(socket))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _left = std::fs::remove_dir_all(&self.dir);
    }
}

#[test]
fn two_users_of_one_machine_have_a_node_each_and_neither_can_ask_the_others() {
    let Some(machine) = Machine::new("two") else {
        return;
    };
    let nodes = USERS.map(|user| machine.node(user));
    for user in USERS {
        let name = format!("yard-{user}");
        let ran = machine.run(
            user,
            &["run", "-q", "--tier", "l2", "--name", &name, "--", "true"],
        );
        let _ran = ran.ok();
        let boxes = machine.run(user, &["ps", "--json"]).ok().json();
        assert_eq!(boxes.len(), 1, "of another user too: {boxes:?}");
        assert_eq!(boxes[0]["name"], name.as_str());
        for (path, mode) in [
            (machine.runtime(user).join("bailey"), 0o700),
            (machine.socket(user), 0o600),
            (machine.home(user).join(".local/state/bailey"), 0o700),
        ] {
            let found = std::fs::metadata(&path).unwrap();
            let mode_of = found.permissions().mode() & 0o777;
            assert_eq!((found.uid(), mode_of), (user, mode), "{path:?}");
        }
    }
    // Both are found on the link at once, each by its own code.
    let adding = USERS.map(|user| {
        let mut add = machine.bailey(user);
        Running::start(add.args(["device", "add", "--yes", "--json"]))
    });
    let codes = adding.each_ref().map(|add| {
        let codes = row_of(add, |row| row["code"].is_string());
        assert_eq!(codes["why"], Value::Null, "{codes}");
        codes["short"].as_str().unwrap().to_owned()
    });
    let port = |user: u32| {
        let file = machine.home(user).join(".local/state/bailey/sync.port");
        std::fs::read_to_string(file).unwrap()
    };
    assert_ne!(port(USERS[0]), port(USERS[1]));
    // Each joins the other's, by an account that has nothing yet.
    for (joiner, code) in [(USERS[1], &codes[0]), (USERS[0], &codes[1])] {
        let _added = machine.run(joiner, &["account", "add", "theirs"]).ok();
        let _joined = machine
            .run(joiner, &["--account", "theirs", "device", "join", code])
            .ok();
    }
    for add in adding {
        let _added = add.finish(LIMIT).ok();
    }
    for user in USERS {
        let devices = machine.run(user, &["device", "list", "--json"]).ok().json();
        assert_eq!(devices.len(), 2, "{devices:?}");
    }
    an_open_socket_asks_who_it_is(&machine);
    drop(nodes);
}

/// Where somebody has opened the way to the socket, the node asks who it is.
fn an_open_socket_asks_who_it_is(machine: &Machine) {
    let (ours, theirs) = (USERS[0], USERS[1]);
    let socket = machine.socket(ours);
    for (path, mode) in [
        (machine.runtime(ours), 0o755),
        (machine.runtime(ours).join("bailey"), 0o755),
        (socket.clone(), 0o666),
    ] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
    let control = machine.first_words(ours, &socket).ok();
    assert_ne!(control.stdout.trim(), "0", "the control: {control}");
    let refused = machine.first_words(theirs, &socket).ok();
    assert_eq!(refused.stdout.trim(), "0", "{refused}");
    let mut root = std::process::Command::new(bailey_tests::binaries().join("bailey"));
    let root = root
        .env_clear()
        .env("HOME", machine.home(ours))
        .env("XDG_RUNTIME_DIR", machine.runtime(ours));
    let refused = run(root.args(["ps"]));
    assert_eq!(refused.code, Some(125), "{refused}");
    assert!(refused.stderr.contains("must be yours alone"), "{refused}");
}

#[test]
fn what_another_user_put_in_the_place_of_a_node_is_not_asked() {
    let Some(machine) = Machine::new("put") else {
        return;
    };
    let (user, socket) = (USERS[0], machine.socket(USERS[0]));
    let _folders = machine.run(user, &["account", "add", "work"]).ok();
    // Root can listen there; nobody else could.
    let _theirs = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    std::fs::set_permissions(&socket, PermissionsExt::from_mode(0o666)).unwrap();
    let refused = machine.run(user, &["ps"]);
    assert_eq!(refused.code, Some(125), "{refused}");
    assert!(
        refused.stderr.contains("somebody else listens there"),
        "{refused}"
    );
}

#[test]
fn root_in_the_environment_of_another_leaves_nothing_in_their_home() {
    let Some(machine) = Machine::new("sudo") else {
        return;
    };
    let user = USERS[0];
    let mut sudo = std::process::Command::new(bailey_tests::binaries().join("bailey"));
    let sudo = sudo
        .env_clear()
        .env("HOME", machine.home(user))
        .env("XDG_RUNTIME_DIR", machine.runtime(user));
    let refused = run(sudo.args(["ps"]));
    assert_eq!(refused.code, Some(125), "{refused}");
    assert!(refused.stderr.contains("whose HOME is this"), "{refused}");
    for folder in [machine.home(user), machine.runtime(user)] {
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0);
    }
}

/// Ids and times stand for themselves no longer, so that two runs say the same.
fn steady(text: &str) -> String {
    let word = |word: &str| {
        let hex = |byte: u8| byte.is_ascii_hexdigit();
        let core = word.trim_matches(|c: char| "\",;".contains(c));
        let time = core.len() > 20 && core.ends_with('Z') && core.starts_with("20");
        let id = [8, 64].contains(&core.len()) && core.bytes().all(hex);
        match (time, id) {
            (true, _) => word.replace(core, "TIME"),
            (_, true) => word.replace(core, "ID"),
            _ => word.to_owned(),
        }
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_list_of_devices_says_in_json_all_that_its_text_says() {
    let (world, mut daemons) = world(3);
    for joiner in ["n2", "n3"] {
        join(&world, &FIRST, joiner);
    }
    let named = |name: &str| {
        let rows = rows(&world, &FIRST, &["device", "list"]);
        rows.iter().any(|row| row["name"] == name)
    };
    assert!(wait_until(LIMIT, || named("n2") && named("n3")));
    let away = daemons.remove(2);
    away.signal(nix::sys::signal::Signal::SIGTERM);
    let _left = away.finish(LIMIT).ok();
    let connected = |name: &str| {
        let rows = rows(&world, &FIRST, &["device", "list"]);
        let row = rows.iter().find(|row| row["name"] == name);
        row.is_some_and(|row| row["connected"] == true)
    };
    assert!(wait_until(LIMIT, || connected("n2") && !connected("n3")));
    let _removed = world.run("n1", &["device", "remove", "n2"]).ok();
    assert!(wait_until(LIMIT, || !connected("n2")));
    let mut json = rows(&world, &FIRST, &["device", "list"]);
    json.sort_by_key(|row| row["name"].as_str().unwrap().to_owned());
    let text = world.run("n1", &["device", "list"]).ok().stdout;
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    // Every word of the text is a value of the row, but for what says which.
    for (line, row) in lines.iter().zip(&json) {
        assert_eq!(row["v"], 1);
        let row = row.to_string();
        let said = [
            "by",
            "last",
            "heard",
            "this",
            "device",
            "connected",
            "not",
            "confirmed",
        ];
        for word in line.split([' ', ',', ';']).filter(|word| !word.is_empty()) {
            assert!(said.contains(&word) || row.contains(word), "{word}: {row}");
        }
    }
    let pretty: Vec<String> = json
        .iter()
        .map(|row| serde_json::to_string_pretty(row).unwrap())
        .collect();
    let all = format!("{}\n\n{}", lines.join("\n"), pretty.join("\n"));
    insta::assert_snapshot!(steady(&all.replace('\n', " \n ")).replace(" \n ", "\n"));
}

#[test]
fn the_unit_of_an_account_is_the_first_ones_with_its_name() {
    let lines = |text: &'static str| {
        let says = |line: &&str| !line.starts_with(['#', ';']);
        text.lines().filter(says).collect::<Vec<_>>()
    };
    let first = lines(include_str!("../../packaging/systemd/bailey.service"));
    let named = lines(include_str!("../../packaging/systemd/bailey@.service"));
    let plain: Vec<String> = named
        .iter()
        .map(|line| {
            line.replace(" (account %i)", "")
                .replace(" --account %i", "")
        })
        .collect();
    assert_eq!(plain, first);
    assert!(named.contains(&"ExecStart=%h/.local/bin/bailey --account %i node"));
}
