//! Habits that a machine can hold.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::arrows::{packages, root};

/// Most lines of a source file, its inline tests apart.
const MAX_LINES: usize = 600;

/// The programs that the workspace builds.
const PROGRAMS: [&str; 14] = [
    "bailey",
    "bailey-attack",
    "bailey-bench",
    "bailey-escapes",
    "bailey-fence",
    "bailey-fuzz",
    "bailey-gate",
    "bailey-helper",
    "bailey-mailbox",
    "bailey-member",
    "bailey-node",
    "bailey-quic",
    "bailey-sim",
    "bailey-world",
];

/// Versions below which something is known against a crate.
const AT_LEAST: [(&str, [u64; 3]); 2] = [
    // A packet that the peer chooses ends the endpoint before this.
    ("quinn-proto", [0, 11, 15]),
    ("rustls", [0, 23, 18]),
];

/// Crates that must be there once: two would be two implementations of one
/// promise.
const ONCE: [&str; 9] = [
    "chacha20poly1305",
    "curve25519-dalek",
    "ed25519-dalek",
    "hkdf",
    "hpke",
    "ring",
    "rustls",
    "sha2",
    "x25519-dalek",
];

/// Text files of the repository: path from its root, and content.
fn texts(ends: &[&str]) -> Vec<(PathBuf, String)> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let skipped = ["target", ".git", "node_modules"].contains(&name.as_str());
            if path.is_symlink() || skipped {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if ends.iter().any(|end| name.ends_with(end)) {
                // A file of another encoding is a fixture, not text of ours.
                if let Ok(text) = fs::read_to_string(&path) {
                    found.push((path.strip_prefix(&root).unwrap().to_path_buf(), text));
                }
            }
        }
    }
    found.sort();
    found
}

/// Lines before the inline tests, which stand last in a file.
fn product_lines(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines.windows(2).position(|pair| {
        pair.first() == Some(&"#[cfg(test)]")
            && pair
                .last()
                .is_some_and(|line| line.starts_with("mod ") && line.ends_with('{'))
    });
    tests.unwrap_or(lines.len())
}

/// Whether a file holds nothing but tests.
fn only_tests(path: &Path) -> bool {
    let stem = path.file_stem().unwrap().to_string_lossy();
    let folder = |name: &str| path.components().any(|part| part.as_os_str() == name);
    stem == "tests" || stem.ends_with("_tests") || folder("tests")
}

/// A line without what stands in quotes or after `//`.
fn code_of(line: &str) -> String {
    let mut code = String::new();
    let mut quoted = false;
    let mut before = ' ';
    for (index, letter) in line.char_indices() {
        if !quoted && line.get(index..).is_some_and(|rest| rest.starts_with("//")) {
            break;
        }
        if letter == '"' && before != '\\' && before != '\'' {
            quoted = !quoted;
        }
        if !quoted {
            code.push(letter);
        }
        before = letter;
    }
    code
}

#[test]
fn source_files_stay_short() {
    let long: Vec<String> = texts(&[".rs"])
        .into_iter()
        .filter(|(path, _)| !only_tests(path))
        .map(|(path, text)| (path, product_lines(&text)))
        .filter(|(_, lines)| *lines > MAX_LINES)
        .map(|(path, lines)| format!("{}: {lines}", path.display()))
        .collect();
    assert!(
        long.is_empty(),
        "more than {MAX_LINES} lines without tests: {long:#?}"
    );
}

#[test]
fn unsafe_code_lives_in_sys() {
    let word = ["un", "safe"].concat();
    let mut outside = Vec::new();
    for (path, text) in texts(&[".rs"]) {
        let in_sys = path.file_stem().unwrap() == "sys"
            || path.components().any(|part| part.as_os_str() == "sys");
        if in_sys {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let code = code_of(line);
            let mut words = code.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
            if words.any(|found| found == word) {
                outside.push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    assert!(outside.is_empty(), "{outside:#?}");
}

#[test]
fn nothing_is_left_for_later_and_nothing_names_this_machine() {
    let later = [
        ["TO", "DO"].concat(),
        ["FIX", "ME"].concat(),
        ["XX", "X:"].concat(),
    ];
    // A path from the root: after a letter or a brace it is the middle of one.
    let machine = [["/wo", "rk/"].concat(), ["/ro", "ot/"].concat()];
    let names_machine = |line: &str, folder: &str| {
        line.match_indices(folder).any(|(at, _)| {
            let before = line.get(..at).and_then(|text| text.chars().last());
            !before.is_some_and(|letter| letter.is_alphanumeric() || "}.>*".contains(letter))
        })
    };
    let mut wrong = Vec::new();
    for (path, text) in texts(&[".rs", ".toml", ".md", "Makefile", "run"]) {
        for (number, line) in text.lines().enumerate() {
            let names = machine.iter().any(|folder| names_machine(line, folder));
            if names || later.iter().any(|word| line.contains(word.as_str())) {
                wrong.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn lines_end_where_their_text_ends() {
    let mut wrong = Vec::new();
    for (path, text) in texts(&[".rs", ".toml", ".md", ".sh", "Makefile", "run", "packages"]) {
        if !text.is_empty() && (!text.ends_with('\n') || text.ends_with("\n\n")) {
            wrong.push(format!("{}: one line end at the end", path.display()));
        }
        for (number, line) in text.split('\n').enumerate() {
            if line.ends_with([' ', '\t', '\r']) {
                wrong.push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn programs_have_their_names_and_packages_their_prefix() {
    let mut programs = Vec::new();
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        assert!(name.starts_with("bailey-"), "{name}");
        for target in package["targets"].as_array().unwrap() {
            if target["kind"][0] == "bin" {
                programs.push(target["name"].as_str().unwrap().to_owned());
            }
        }
    }
    programs.sort();
    assert_eq!(programs, PROGRAMS);
}

/// Versions of every package in the lock file.
fn locked() -> BTreeMap<String, Vec<[u64; 3]>> {
    let text = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let mut all: BTreeMap<String, Vec<[u64; 3]>> = BTreeMap::new();
    let mut name = String::new();
    for line in text.lines() {
        if let Some(value) = line.strip_prefix("name = ") {
            value.trim_matches('"').clone_into(&mut name);
        }
        if let Some(value) = line.strip_prefix("version = \"") {
            let release = value
                .trim_end_matches('"')
                .split(['-', '+'])
                .next()
                .unwrap();
            let mut parts = release.split('.').map(|part| part.parse().unwrap());
            let mut next = || parts.next().unwrap_or(0);
            all.entry(name.clone())
                .or_default()
                .push([next(), next(), next()]);
        }
    }
    all
}

#[test]
fn locked_versions_have_nothing_known_against_them() {
    let locked = locked();
    for (name, least) in AT_LEAST {
        let versions = locked
            .get(name)
            .unwrap_or_else(|| panic!("{name} is not in Cargo.lock"));
        assert!(
            versions.iter().all(|version| *version >= least),
            "{name}: {versions:?}"
        );
    }
    for name in ONCE {
        let count = locked.get(name).map_or(0, Vec::len);
        assert_eq!(count, 1, "{name} is locked {count} times");
    }
}

#[test]
fn the_map_names_every_room() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut rooms: Vec<String> = fs::read_dir(root())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with('.') && name != "target")
        .collect();
    rooms.extend(
        packages()
            .iter()
            .map(|p| p["name"].as_str().unwrap().to_owned()),
    );
    // As a word: `docs` is not named by `docs-store`.
    let words: Vec<&str> = map
        .split(|c: char| !c.is_alphanumeric() && c != '-' && c != '_')
        .collect();
    rooms.retain(|room| !words.contains(&room.as_str()));
    assert!(rooms.is_empty(), "ARCHITECTURE.md does not name {rooms:?}");
}
