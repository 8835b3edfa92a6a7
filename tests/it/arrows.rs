//! Which room knows which, and that the pure rooms are pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Every package of the workspace, and all that it may name of the others.
const ARROWS: [(&str, &[&str]); 16] = [
    ("bailey-model", &[]),
    ("bailey-envelope", &["bailey-model"]),
    ("bailey-docs-store", &["bailey-envelope", "bailey-model"]),
    ("bailey-session", &["bailey-envelope", "bailey-model"]),
    (
        "bailey-sync",
        &["bailey-envelope", "bailey-model", "bailey-session"],
    ),
    // A mailbox knows no word of the model.
    ("bailey-mailbox", &["bailey-envelope", "bailey-sync"]),
    ("bailey-gate-proto", &["bailey-model"]),
    (
        "bailey-gate",
        &["bailey-channel", "bailey-gate-proto", "bailey-model"],
    ),
    ("bailey-fence-plan", &["bailey-model"]),
    (
        "bailey-fence",
        &["bailey-channel", "bailey-fence-plan", "bailey-model"],
    ),
    ("bailey-rules", &["bailey-model"]),
    ("bailey-helper-root", &[]),
    ("bailey-channel", &[]),
    ("bailey-world", &[]),
    // The gate and the launcher are programs: it knows their words only.
    (
        "bailey-node",
        &[
            "bailey-channel",
            "bailey-docs-store",
            "bailey-envelope",
            "bailey-fence-plan",
            "bailey-gate-proto",
            "bailey-model",
            "bailey-rules",
            "bailey-session",
            "bailey-sync",
            "bailey-world",
        ],
    ),
    // It starts every program, and gives any bytes to what must bear them.
    (
        "bailey-tests",
        &[
            "bailey-channel",
            "bailey-docs-store",
            "bailey-envelope",
            "bailey-fence-plan",
            "bailey-gate-proto",
            "bailey-model",
            "bailey-node",
            "bailey-session",
            "bailey-sync",
            "bailey-world",
        ],
    ),
];

/// The pure packages and their folders.
const PURE: [(&str, &str); 6] = [
    ("bailey-model", "docs-store/model"),
    ("bailey-envelope", "docs-store/envelope"),
    ("bailey-session", "sync/session"),
    ("bailey-gate-proto", "gate/proto"),
    ("bailey-fence-plan", "fence/plan"),
    ("bailey-rules", "watch/rules"),
];

/// What a pure package bans in its own `clippy.toml`.
const BANNED: [&str; 12] = [
    "std::time::Instant::now",
    "std::time::SystemTime::now",
    "std::thread::sleep",
    "std::thread::spawn",
    "std::env::var",
    "std::env::var_os",
    "std::fs::File",
    "std::net::TcpStream",
    "std::net::TcpListener",
    "std::net::UdpSocket",
    "std::os::unix::net::UnixStream",
    "std::process::Command",
];

/// Crates that reach the operating system, which a pure package must not pull,
/// however far down.
const SHELLS: [&str; 12] = [
    "async-std",
    "hickory-server",
    "libseccomp",
    "mio",
    "nix",
    "procfs",
    "quinn",
    "rusqlite",
    "rustix",
    "socket2",
    "tokio",
    "tun-tap",
];

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_path_buf()
}

/// Runs cargo in the workspace and gives its standard output.
fn cargo(words: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(words)
        .args(["--offline", "--locked"])
        .current_dir(root())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {words:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// The workspace's packages, as cargo reads their manifests.
pub(crate) fn packages() -> Vec<Value> {
    let text = cargo(&["metadata", "--no-deps", "--format-version", "1"]);
    let all: Value = serde_json::from_str(&text).unwrap();
    all["packages"].as_array().unwrap().clone()
}

#[test]
fn every_arrow_is_one_of_the_design() {
    let table: BTreeMap<&str, BTreeSet<&str>> = ARROWS
        .into_iter()
        .map(|(from, to)| (from, to.iter().copied().collect()))
        .collect();
    let packages = packages();
    let mut wrong = Vec::new();
    for package in &packages {
        let name = package["name"].as_str().unwrap();
        let Some(allowed) = table.get(name) else {
            wrong.push(format!("{name} has no line in the table"));
            continue;
        };
        for dependency in package["dependencies"].as_array().unwrap() {
            let to = dependency["name"].as_str().unwrap();
            // What tests alone use draws no arrow.
            let of_tests = dependency["kind"] == "dev";
            if to.starts_with("bailey-") && !of_tests && !allowed.contains(to) {
                wrong.push(format!("{name} -> {to}"));
            }
        }
    }
    let names: BTreeSet<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    wrong.extend(
        table
            .keys()
            .filter(|name| !names.contains(*name))
            .map(|name| format!("{name} is gone")),
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_compiled_tree_has_the_same_arrows() {
    for (package, allowed) in ARROWS {
        let tree = tree(package, &["--depth", "1"]);
        let surplus: Vec<&String> = tree
            .iter()
            .filter(|name| name.starts_with("bailey-") && *name != package)
            .filter(|name| !allowed.contains(&name.as_str()))
            .collect();
        assert!(surplus.is_empty(), "{package} -> {surplus:?}");
    }
}

#[test]
fn pure_rooms_ban_the_operating_system() {
    let mut wrong = Vec::new();
    for (package, folder) in PURE {
        let folder = root().join(folder);
        let bans = fs::read_to_string(folder.join("clippy.toml")).unwrap_or_default();
        let missing = BANNED
            .iter()
            .filter(|path| !bans.contains(&format!("\"{path}\"")));
        wrong.extend(missing.map(|path| format!("{package}: clippy.toml does not ban {path}")));
        let lib = fs::read_to_string(folder.join("src/lib.rs")).unwrap();
        if !lib.lines().any(|line| line == "#![forbid(unsafe_code)]") {
            wrong.push(format!("{package}: src/lib.rs does not forbid unsafe code"));
        }
        let pulled: Vec<String> = tree(package, &[])
            .into_iter()
            .filter(|name| SHELLS.contains(&name.as_str()))
            .collect();
        if !pulled.is_empty() {
            wrong.push(format!("{package} pulls {pulled:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Names in a package's tree of normal dependencies, itself first.
fn tree(package: &str, more: &[&str]) -> Vec<String> {
    let words = [
        "tree", "-p", package, "--edges", "normal", "--prefix", "none",
    ];
    let text = cargo(&[&words, more].concat());
    text.lines()
        .filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect()
}

/// A machine without an operating system has no clock, file or socket to reach.
#[test]
fn pure_rooms_build_without_an_operating_system() {
    const TARGET: &str = "wasm32-unknown-unknown";
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let libdir = Command::new(rustc)
        .args(["--print", "target-libdir", "--target", TARGET])
        .current_dir(root())
        .output()
        .unwrap();
    let libdir = PathBuf::from(String::from_utf8(libdir.stdout).unwrap().trim());
    if !libdir.join("self-contained").exists() && fs::read_dir(&libdir).is_err() {
        println!("{TARGET} is not installed: the build for it is not tried here");
        return;
    }
    let mut words = vec!["check", "--target", TARGET, "--lib"];
    for (package, _) in PURE {
        words.extend(["-p", package]);
    }
    // A folder of its own: the running build holds the lock of the usual one.
    let folder = std::env::current_exe()
        .unwrap()
        .ancestors()
        .nth(3)
        .unwrap()
        .join("without-os");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(words)
        .args(["--offline", "--locked"])
        .env("CARGO_TARGET_DIR", folder)
        // The entropy that a caller brings; without one nothing links.
        .env("RUSTFLAGS", "--cfg getrandom_backend=\"custom\"")
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
