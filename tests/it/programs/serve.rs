//! Real servers behind an address of the router's.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use bailey_tests::{Running, TestWorld, binaries};
use bailey_world::at;

use crate::common::LIMIT;

/// The name of all that is served.
pub(super) const NAME: &str = "work.example";

/// Where programs are that an ordinary user's PATH may lack.
const FOLDERS: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

/// Whether the machine has what a test needs; it says so where not.
pub(super) fn installed(programs: &[&str]) -> bool {
    let there = |program: &str| {
        let at = |folder: &&str| Path::new(folder).join(program).exists();
        FOLDERS.iter().any(at)
    };
    let missing: Vec<_> = programs.iter().filter(|name| !there(name)).collect();
    if !missing.is_empty() {
        println!("SKIPPED: {missing:?} are not installed (.ci/packages programs)");
    }
    missing.is_empty()
}

/// Servers that run until they are dropped.
#[derive(Debug)]
pub(super) struct Served {
    given: PathBuf,
    _running: Running,
}

impl Served {
    /// Starts them; each answers when this returns.
    #[track_caller]
    pub(super) fn start(world: &TestWorld, servers: &[&str]) -> Self {
        let mut records = vec![at::WEB_V4.to_string()];
        if world.has_ipv6() {
            records.push(at::WEB_V6.to_string());
        }
        let records: Vec<&str> = records.iter().map(String::as_str).collect();
        world.set_name(NAME, &records).unwrap();
        let given = world.node("n1").unwrap().home().join("given");
        let script = include_str!("serve.sh");
        // The mounts that it makes are its own.
        let mut command = world.inet_command("unshare");
        command
            .args(["--mount", "bash", "-c", script, "serve"])
            .arg(world.uid().to_string())
            .arg(world.dir().join("served"))
            .arg(&given)
            .args(servers)
            .env("SCRIPT", script)
            .env("WEB", include_str!("web.py"))
            .env("QUIC", binaries().join("bailey-quic"))
            .env("NAME", NAME)
            .env("ADDRESS", at::WEB_V4.to_string());
        let running = Running::start(&mut command);
        running.wait_line(LIMIT, |line| line == "ready");
        if servers.contains(&"cargo") {
            give_cargo(&given);
        }
        Self {
            given,
            _running: running,
        }
    }

    /// The folder that a box is granted: keys and certificates.
    pub(super) fn given(&self) -> &Path {
        &self.given
    }
}

/// The cargo of this build, which lies in a home that the node's user has no way
/// into.
#[track_caller]
fn give_cargo(given: &Path) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into());
    let copy = given.join("cargo");
    std::fs::copy(cargo, &copy).unwrap();
    std::fs::set_permissions(copy, std::fs::Permissions::from_mode(0o755)).unwrap();
}
