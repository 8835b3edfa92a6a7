//! The device's keys on the disk, sealed by a real Secret Service (gnome-keyring) or
//! not.

use std::fmt::Write as _;
use std::path::PathBuf;

use bailey_tests::{Output, Running, TestWorld, run, wait_until};

use crate::common::LIMIT;

const PASSWORD: &str = "open sesame";

/// A session bus of a node's with a keyring on it.
struct Session {
    bus: Option<Running>,
    address: String,
}

impl Session {
    /// A bus alone; a keyring is started on it by hand.
    fn start(world: &TestWorld, node: &str) -> Self {
        let socket = world.node(node).unwrap().dir().join("bus");
        let address = format!("unix:path={}", socket.display());
        // The bus wants to know a user by name.
        let names = world.node(node).unwrap().dir().join("names");
        let user = world.sh(node, "id -u; id -g").ok().stdout;
        let [uid, gid] = user.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("{user}")
        };
        std::fs::write(&names, format!("box:x:{uid}:{gid}::/:/bin/sh\n")).unwrap();
        let mut daemon = world.command(node, "dbus-daemon");
        daemon.env("LD_PRELOAD", "libnss_wrapper.so");
        daemon.env("NSS_WRAPPER_PASSWD", &names);
        daemon.env("NSS_WRAPPER_GROUP", "/dev/null");
        daemon.args(["--session", "--nofork", "--nopidfile"]);
        daemon.arg(format!("--address={address}"));
        let bus = Running::start(&mut daemon);
        assert!(wait_until(LIMIT, || socket.exists()), "no bus");
        Self {
            bus: Some(bus),
            address,
        }
    }

    /// Starts the keyring, unlocked by this password; the first one makes it.
    fn unlock(&self, world: &TestWorld, node: &str, password: &str) -> Running {
        let script = format!(
            "printf %s '{password}' | exec gnome-keyring-daemon --foreground --unlock --components=secrets"
        );
        let mut keyring = world.command(node, "sh");
        keyring.args(["-c", &script]);
        keyring.env("DBUS_SESSION_BUS_ADDRESS", &self.address);
        let running = Running::start(&mut keyring);
        let there = wait_until(LIMIT, || self.has_keyring(world, node));
        assert!(there, "no keyring");
        running
    }

    /// Ends the keyring, and waits until the bus has none.
    fn lock(&self, world: &TestWorld, node: &str, keyring: Running) {
        let pids = world.pids(node, "gnome-keyring-daemon");
        assert!(!pids.is_empty(), "no keyring to end");
        world.kill(node, "KILL", &pids);
        drop(keyring);
        let gone = wait_until(LIMIT, || !self.has_keyring(world, node));
        assert!(gone, "the keyring stays");
    }

    fn has_keyring(&self, world: &TestWorld, node: &str) -> bool {
        let mut ask = world.command(node, "dbus-send");
        ask.env("DBUS_SESSION_BUS_ADDRESS", &self.address);
        ask.args([
            "--session",
            "--print-reply",
            "--dest=org.freedesktop.DBus",
            "/org/freedesktop/DBus",
            "org.freedesktop.DBus.NameHasOwner",
            "string:org.freedesktop.secrets",
        ]);
        run(&mut ask).stdout.contains("true")
    }
}

fn key_file(world: &TestWorld, node: &str) -> PathBuf {
    world
        .node(node)
        .unwrap()
        .dir()
        .join("state/bailey/device.key")
}

/// Runs `true` in a box by a node that is started for it, and waits until it left.
fn once(world: &TestWorld, node: &str, session: Option<&Session>) -> Output {
    let mut command = world.bailey(node);
    if let Some(session) = session {
        command.env("DBUS_SESSION_BUS_ADDRESS", &session.address);
    }
    let output = run(command.args(["run", "-q", "--tier", "l2", "--", "true"]));
    leave(world, node);
    output
}

fn leave(world: &TestWorld, node: &str) {
    let pids = world.pids(node, "bailey");
    world.kill(node, "TERM", &pids);
    assert!(wait_until(LIMIT, || world.pids(node, "bailey").is_empty()));
}

/// Which device a node says it is.
fn device(world: &TestWorld, node: &str, session: Option<&Session>) -> String {
    let mut command = world.bailey(node);
    if let Some(session) = session {
        command.env("DBUS_SESSION_BUS_ADDRESS", &session.address);
    }
    let output = run(command.args(["device", "list", "--json"])).ok();
    leave(world, node);
    let rows = output.json();
    let own = rows.iter().find(|row| row["this"] == true).unwrap();
    own["id"].as_str().unwrap().to_owned()
}

fn configure(world: &TestWorld, node: &str, at_rest: &str) {
    let mut text = String::new();
    writeln!(text, "[keys]\nat_rest = \"{at_rest}\"").unwrap();
    let script = format!(
        "mkdir -p \"$XDG_CONFIG_HOME/bailey\" && printf '%s' '{text}' > \"$XDG_CONFIG_HOME/bailey/config.toml\""
    );
    let _written = world.sh(node, &script).ok();
}

fn magic(world: &TestWorld, node: &str) -> Vec<u8> {
    std::fs::read(key_file(world, node)).unwrap()[..8].to_vec()
}

#[test]
fn keys_are_sealed_by_the_secret_service_and_open_with_it_alone() {
    let world = TestWorld::new(1);
    let session = Session::start(&world, "n1");
    let keyring = session.unlock(&world, "n1", PASSWORD);
    let _ran = once(&world, "n1", Some(&session)).ok();
    assert_eq!(magic(&world, "n1"), b"bailey2\n");
    let sealed = std::fs::read(key_file(&world, "n1")).unwrap();
    let first = device(&world, "n1", Some(&session));

    // Whoever has the disk alone: no bus, no key, nothing made anew.
    let refused = once(&world, "n1", None);
    assert_eq!(refused.code, Some(125), "{refused:?}");
    assert!(
        refused.stderr.contains("no session bus"),
        "{}",
        refused.stderr
    );
    assert_eq!(std::fs::read(key_file(&world, "n1")).unwrap(), sealed);

    // The keyring is locked after its next start, until its password is said.
    session.lock(&world, "n1", keyring);
    let locked = session.unlock(&world, "n1", "wrong");
    let refused = once(&world, "n1", Some(&session));
    assert_eq!(refused.code, Some(125), "{refused:?}");
    assert!(refused.stderr.contains("locked"), "{}", refused.stderr);
    assert!(refused.stderr.contains("unlock it"), "{}", refused.stderr);
    session.lock(&world, "n1", locked);
    let _keyring = session.unlock(&world, "n1", PASSWORD);
    assert_eq!(device(&world, "n1", Some(&session)), first);
}

#[test]
fn keys_change_their_keeping_when_the_configuration_says_so() {
    let world = TestWorld::new(1);
    let session = Session::start(&world, "n1");
    let _keyring = session.unlock(&world, "n1", PASSWORD);
    // Made where there is no service, they stay a file when there is one.
    let _ran = once(&world, "n1", None).ok();
    assert_eq!(magic(&world, "n1"), b"bailey1\n");
    let first = device(&world, "n1", Some(&session));
    assert_eq!(magic(&world, "n1"), b"bailey1\n");
    for (at_rest, kept) in [("secret-service", b"bailey2\n"), ("file", b"bailey1\n")] {
        configure(&world, "n1", at_rest);
        assert_eq!(device(&world, "n1", Some(&session)), first);
        assert_eq!(magic(&world, "n1"), kept, "{at_rest}");
    }
    assert_eq!(device(&world, "n1", None), first);
    // Asked for and not there, nothing starts.
    configure(&world, "n1", "secret-service");
    let refused = once(&world, "n1", None);
    assert_eq!(refused.code, Some(125), "{refused:?}");
    assert_eq!(magic(&world, "n1"), b"bailey1\n");
}

#[test]
fn a_configuration_that_is_not_understood_starts_nothing_and_says_where() {
    let world = TestWorld::new(1);
    configure(&world, "n1", "paper");
    let refused = once(&world, "n1", None);
    assert_eq!(refused.code, Some(125), "{refused:?}");
    assert!(refused.stderr.contains("config.toml"), "{}", refused.stderr);
    assert!(
        refused
            .stderr
            .contains("line 2, column 11: unknown variant"),
        "{}",
        refused.stderr
    );
    assert!(!key_file(&world, "n1").exists());
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.bus.take());
    }
}
