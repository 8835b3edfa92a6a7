//! A world, from outside.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails by panicking")]

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use bailey_world::{SeenKind, World, WorldError, WorldSpec, at};

const SERVER: &str = env!("CARGO_BIN_EXE_bailey-world");

fn world(nodes: u8) -> World {
    let spec = WorldSpec {
        tun: false,
        ..WorldSpec::new(vec![OsString::from(SERVER)], nodes)
    };
    World::start(spec).unwrap_or_else(|error| panic!("{error}"))
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

fn sh(world: &World, node: &str, script: &str) -> String {
    output(world.node(node).unwrap().command("sh").args(["-c", script]))
}

fn wait_until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        if done() {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    done()
}

#[test]
fn a_node_is_an_ordinary_user_of_its_own_machine() {
    let world = world(2);
    let status = sh(&world, "n1", "cat /proc/self/status");
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace()
            .skip(1)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    for set in ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"] {
        assert_eq!(field(set), ["0000000000000000"], "{set}");
    }
    assert_eq!(
        field("SigBlk:"),
        ["0000000000000000"],
        "a mask is inherited"
    );
    assert_eq!(field("Uid:"), vec![world.uid().to_string(); 4]);

    assert_eq!(sh(&world, "n1", "hostname"), "n1\n");
    assert_eq!(sh(&world, "n1", "ls -A /run"), "");
    let processes: u32 = sh(&world, "n1", "ls -d /proc/[0-9]* | wc -l")
        .trim()
        .parse()
        .unwrap();
    assert!(
        processes < 8,
        "{processes} processes: the machine's are to be seen"
    );
    assert_eq!(
        sh(&world, "n1", "cat /etc/resolv.conf"),
        "nameserver 192.168.1.1\n"
    );
    let one = sh(
        &world,
        "n1",
        "readlink /proc/self/ns/net /proc/self/ns/user /proc/self/ns/pid",
    );
    let two = sh(
        &world,
        "n2",
        "readlink /proc/self/ns/net /proc/self/ns/user /proc/self/ns/pid",
    );
    assert!(
        one.lines().zip(two.lines()).all(|(one, two)| one != two),
        "{one}{two}"
    );
    // Two commands of one node are two terminals of one machine.
    let again = sh(
        &world,
        "n1",
        "readlink /proc/self/ns/net /proc/self/ns/user /proc/self/ns/pid",
    );
    assert_eq!(one, again);
    sh(&world, "n1", "echo kept > \"$XDG_STATE_HOME/file\"");
    assert_eq!(
        fs::read_to_string(world.dir().join("n1/state/file")).unwrap(),
        "kept\n"
    );
}

#[test]
fn the_world_answers_by_name_and_by_number() {
    let world = world(1);
    let curl = "curl -sS --max-time 5 ";
    let page = sh(&world, "n1", &format!("{curl} -4 http://shop.example/"));
    assert_eq!(
        page,
        "hello from shop.example at 93.184.216.34 port 80\nyou are 192.168.1.11\n"
    );
    let page = sh(&world, "n1", &format!("{curl} http://printer.lan:631/"));
    assert!(page.contains("at 192.168.1.9 port 631"), "{page}");
    let secret = sh(
        &world,
        "n1",
        &format!("{curl} http://169.254.169.254/latest/meta-data/"),
    );
    assert_eq!(secret, "secret-of-the-machine\n");
    let bytes = sh(
        &world,
        "n1",
        &format!("{curl} http://93.184.216.34/bytes/1000000 | wc -c"),
    );
    assert_eq!(bytes.trim(), "1000000");
    let up =
        format!("head -c 300000 /dev/zero | {curl} --data-binary @- http://shop.example/upload");
    assert_eq!(sh(&world, "n1", &up), "300000\n");
    if world.has_ipv6() {
        let page = sh(&world, "n1", &format!("{curl} http://v6.example/"));
        assert!(
            page.starts_with("hello from v6.example at 2606:2800:220:1::6"),
            "{page}"
        );
        assert!(page.contains("you are 2600:1f18:aaaa:1::1:1"), "{page}");
    }
    let asked = world.dns_log().unwrap();
    assert!(
        asked
            .iter()
            .any(|asked| asked.name == "printer.lan" && asked.qtype == 1)
    );
    assert!(
        asked
            .iter()
            .all(|asked| asked.from == world.node("n1").unwrap().v4())
    );

    world.set_name("shop.example", &["192.168.1.9"]).unwrap();
    let page = sh(&world, "n1", &format!("{curl} http://shop.example/"));
    assert!(page.contains("at 192.168.1.9"), "{page}");
    world.set_name("shop.example", &[]).unwrap();
    sh(&world, "n1", &format!("! {curl} http://shop.example/"));
    assert!(world.set_name("shop.example", &["nonsense"]).is_err());
}

#[test]
fn what_fails_in_the_world_fails_as_outside() {
    let world = world(1);
    let code = |url: &str, limit: f32| {
        let script = format!("curl -sS --max-time {limit} {url}; echo $?");
        sh(&world, "n1", &script).trim().to_owned()
    };
    assert_eq!(code("http://93.184.216.34:4/", 5.0), "7", "refused at once");
    assert_eq!(code("http://45.33.32.157/", 5.0), "7", "unreachable");
    assert_eq!(code("http://8.8.8.8/", 5.0), "7", "nowhere");
    assert_eq!(code("http://45.33.32.156/", 0.4), "28", "a black hole");
    assert_eq!(code("http://nowhere.example/", 5.0), "6", "no such name");
}

#[test]
fn the_witness_sees_every_attempt_from_outside() {
    let world = world(2);
    let before = world.witness().unwrap().len();
    sh(
        &world,
        "n2",
        "curl -sS --max-time 3 http://192.168.1.9:4/ http://192.168.1.11:80/; true",
    );
    sh(
        &world,
        "n2",
        "echo x > /dev/udp/9.9.9.9/7 || bash -c 'echo x > /dev/udp/9.9.9.9/7'",
    );
    let wanted = [
        (SeenKind::TcpSyn, "192.168.1.9:4"),
        (SeenKind::TcpSyn, "192.168.1.11:80"),
        (SeenKind::Udp, "9.9.9.9:7"),
    ];
    let all = wait_until(Duration::from_secs(2), || {
        let seen = world.witness().unwrap();
        wanted.iter().all(|(kind, dst)| {
            seen.iter().skip(before).any(|seen| {
                seen.node == "n2"
                    && seen.kind == *kind
                    && seen.dst.to_string() == *dst
                    && seen.src.ip() == at::node_v4(2)
            })
        })
    });
    assert!(all, "{:?}", world.witness());
}

#[test]
fn a_pulled_cable_partitions_and_heals() {
    let world = world(2);
    let fetch = "curl -sS -4 --max-time 1 http://93.184.216.34/";
    sh(&world, "n1", fetch);
    world.link_down("n1").unwrap();
    sh(&world, "n1", &format!("! {fetch}"));
    sh(&world, "n2", fetch);
    world.link_up("n1").unwrap();
    assert!(wait_until(Duration::from_secs(5), || {
        let status = world
            .node("n1")
            .unwrap()
            .command("sh")
            .args(["-c", fetch])
            .output();
        status.unwrap().status.success()
    }));
    assert!(matches!(world.link_down("n9"), Err(WorldError::NoNode(_))));
}

#[test]
fn codes_and_signals_pass() {
    let world = world(1);
    let node = world.node("n1").unwrap();
    let code = |script: &str| {
        node.command("sh")
            .args(["-c", script])
            .stderr(Stdio::null())
            .status()
            .unwrap()
            .code()
    };
    assert_eq!(code("exit 7"), Some(7));
    assert_eq!(code("kill -9 $$"), Some(137));
    assert_eq!(
        node.command("/nonexistent")
            .stderr(Stdio::null())
            .status()
            .unwrap()
            .code(),
        Some(127)
    );

    let trap = "trap 'exit 5' TERM; while :; do sleep 0.01; done";
    let mut child = node
        .command("sh")
        .args(["-c", trap])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    assert!(wait_until(Duration::from_secs(2), || !node
        .processes()
        .unwrap()
        .is_empty()));
    thread::sleep(Duration::from_millis(50));
    let term = Command::new("kill")
        .args(["-TERM", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(term.success());
    assert_eq!(child.wait().unwrap().code(), Some(5));

    // Killing what was started takes the command with it.
    let mut child = node.command("sleep").arg("1000").spawn().unwrap();
    let sleeps = || {
        let all = node.processes().unwrap();
        all.iter()
            .filter(|process| process.command.first().is_some_and(|w| w == "sleep"))
            .count()
    };
    assert!(wait_until(Duration::from_secs(2), || sleeps() == 1));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(wait_until(Duration::from_secs(2), || sleeps() == 0));
}

#[test]
fn the_worlds_root_configures_a_node() {
    let world = world(1);
    let node = world.node("n1").unwrap();
    output(
        node.root_command("ip")
            .args(["addr", "add", "10.9.8.7/24", "dev", "eth0"]),
    );
    assert!(sh(&world, "n1", "ip -br addr show eth0").contains("10.9.8.7"));
    sh(&world, "n1", "! ip addr add 10.9.8.8/24 dev eth0");
    assert!(output(world.inet_command("ip").args(["-br", "addr"])).contains("192.168.1.9"));
    node.set_resolv_conf("nameserver 9.9.9.9\n").unwrap();
    assert_eq!(
        sh(&world, "n1", "cat /etc/resolv.conf"),
        "nameserver 9.9.9.9\n"
    );
}

#[test]
fn nothing_is_left_when_it_ends() {
    let world = world(2);
    let dir = world.dir().to_path_buf();
    let mut child = world.node("n2").unwrap().command("sh");
    let mut child = child
        .args(["-c", "setsid sleep 1001 & sleep 1001"])
        .spawn()
        .unwrap();
    assert!(wait_until(Duration::from_secs(2), || running("1001") == 2));
    drop(world);
    assert_eq!(child.wait().unwrap().code(), Some(137));
    assert_eq!(running("1001"), 0);
    assert!(!dir.exists());
}

#[test]
fn nothing_is_left_when_its_owner_is_killed() {
    let mut owner = Command::new(SERVER);
    let mut owner = owner
        .args(["try", "2", "--", "sleep", "1002"])
        .spawn()
        .unwrap();
    // The owner, the process that enters, the command.
    let up = wait_until(Duration::from_secs(5), || running("1002") == 3);
    let dir = format!("/tmp/bw-{}-0", owner.id());
    let had_dir = Path::new(&dir).exists();
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert!(up && had_dir);
    assert!(wait_until(Duration::from_secs(3), || running("1002") == 0
        && running(&dir) == 0));
    assert!(wait_until(Duration::from_secs(3), || !Path::new(&dir).exists()));
}

#[test]
fn an_error_says_which_step() {
    let none = World::start(WorldSpec::new(vec!["/nonexistent/server".into()], 1)).unwrap_err();
    assert!(matches!(none, WorldError::Spawn { .. }), "{none}");
    assert!(none.to_string().contains("/nonexistent/server"), "{none}");
    let mute = World::start(WorldSpec::new(vec!["/bin/true".into()], 1)).unwrap_err();
    assert!(matches!(mute, WorldError::Ended { .. }), "{mute}");
    let spec = WorldSpec::new(vec![SERVER.into()], 0);
    assert!(matches!(World::start(spec), Err(WorldError::Spec(_))));
    let relative = WorldSpec::new(vec!["server".into()], 1);
    assert!(matches!(World::start(relative), Err(WorldError::Spec(_))));
}

#[test]
fn a_world_comes_up_in_a_second() {
    let start = Instant::now();
    let world = world(4);
    let took = start.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
    drop(world);
}

/// Processes that hold a word in their command lines, and are not zombies.
fn running(word: &str) -> usize {
    let all = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let path = entry.ok()?.path();
        path.file_name()?.to_str()?.parse::<u32>().ok()?;
        fs::read(path.join("cmdline")).ok()
    });
    all.filter(|line| line.split(|byte| *byte == 0).any(|w| w == word.as_bytes()))
        .count()
}
