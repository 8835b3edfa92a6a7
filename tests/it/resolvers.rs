//! The resolvers that programs bring: each is told what is granted, and fails at
//! once, in its own words, for what is not.

use std::path::{Path, PathBuf};
use std::process::Command;

use bailey_tests::{TestWorld, run};
use bailey_world::at;

use crate::common::{boxed, flows, world};

/// What is asked for by each, in order, and what is granted of it.
const NAMES: [&str; 8] = [
    "shop.example",
    "v6.example",
    "alias.example",
    "big.example",
    "neighbour.example",
    "example",
    "localhost",
    "nobody.wild.example.nowhere",
];
const REACH: &str = "shop.example,v6.example,alias.example,big.example";
/// A failure is at once if it takes less, on a busy machine too: no resolver's
/// own patience is as short.
const AT_ONCE_MS: u64 = 1_000;

/// How a resolver says that a name is not there, and that one is but has no
/// address.
struct Words {
    none: &'static str,
    empty: &'static str,
    /// Addresses told of one hundred: some take no answer by TCP.
    many: std::ops::RangeInclusive<usize>,
}

/// One line of a client.
#[derive(Debug)]
struct Told {
    code: String,
    took_ms: u64,
    found: Vec<String>,
}

/// Whether the machine has what a test needs; it says so where not.
fn installed(paths: &[&str]) -> bool {
    let missing: Vec<_> = paths
        .iter()
        .filter(|path| !Path::new(path).exists())
        .collect();
    if !missing.is_empty() {
        println!("SKIPPED: {missing:?} are not installed (.ci/packages resolvers)");
    }
    missing.is_empty()
}

/// A JDK, wherever one is: by its own variable, in `PATH`, or where systems put them.
fn jdk() -> Option<PathBuf> {
    let home_of = |program: PathBuf| -> Option<PathBuf> {
        let program = std::fs::canonicalize(program).ok()?;
        Some(program.parent()?.parent()?.to_path_buf())
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).filter_map(|folder| home_of(folder.join("javac")));
    let below = |folder: &str| {
        let found = std::fs::read_dir(folder).into_iter().flatten().flatten();
        found.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let put = ["/usr/lib/jvm", "/usr/local/lib/jvm", "/opt"].map(below);
    let whole = |home: &PathBuf| {
        ["bin/java", "bin/javac", "conf/security/java.security"]
            .iter()
            .all(|part| home.join(part).is_file())
    };
    let said = std::env::var_os("JAVA_HOME").map(PathBuf::from);
    let found = said
        .into_iter()
        .chain(in_path)
        .chain(put.into_iter().flatten())
        .find(whole);
    if found.is_none() {
        println!("SKIPPED: no JDK is installed (.ci/packages resolvers)");
    }
    std::fs::canonicalize(found?).ok()
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("it/resolvers")
}

/// A folder of the node that boxes are granted.
fn clients(world: &TestWorld) -> PathBuf {
    let folder = world.node("n1").unwrap().home().join("clients");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Puts a client's source there.
fn source(world: &TestWorld, name: &str) -> String {
    let to = clients(world).join(name);
    std::fs::copy(sources().join(name), &to).unwrap();
    to.display().to_string()
}

/// Builds a client; the path of its program.
fn build(world: &TestWorld, name: &str, compiler: &str, words: &[&str]) -> String {
    let program = clients(world).join(name).display().to_string();
    let mut command = Command::new(compiler);
    command.current_dir(sources()).args(["-o", &program]);
    let _built = run(command.args(words)).ok();
    program
}

/// Runs a client in a box and holds what it was told against its words, and what
/// it asked against what one client may ask.
#[track_caller]
fn check(world: &TestWorld, name: &str, command: &str, words: &Words) {
    check_with(world, name, &[], command, words);
}

/// The same with more words for the box.
#[track_caller]
fn check_with(world: &TestWorld, name: &str, also: &[&str], command: &str, words: &Words) {
    let grant = format!("{}:ro", clients(world).display());
    let args = ["-q", "--name", name, "--reach", REACH, "--grant", &grant];
    let args = [&args[..], also].concat();
    let before = world.dns_log().unwrap().len();
    let script = format!("{command} {}", NAMES.join(" "));
    let output = boxed(world, "n1", &args, &script).ok();
    let told: Vec<Told> = output.stdout.lines().map(line).collect();
    assert_eq!(told.len(), NAMES.len(), "{output}");
    for told in &told {
        assert!(told.took_ms < AT_ONCE_MS, "{name}: {output}");
    }
    let [shop, six, alias, many, refused, above, own, nowhere] = &told[..] else {
        unreachable!()
    };
    let web = [at::WEB_V4.to_string(), at::WEB_V6.to_string()];
    for both in [shop, alias] {
        let has = |address: &String| both.found.contains(address);
        assert!(both.code == "0" && web.iter().all(has), "{name}: {output}");
    }
    assert_eq!(
        (&*six.code, &six.found[..]),
        ("0", &[at::V6_ONLY.to_string()][..]),
        "{name}: {output}"
    );
    assert!(
        many.code == "0" && words.many.contains(&many.found.len()),
        "{name}: {} of a hundred: {output}",
        many.found.len()
    );
    for outside in [refused, nowhere] {
        assert_eq!(
            (&*outside.code, outside.found.len()),
            (words.none, 0),
            "{name}: {output}"
        );
    }
    assert_eq!(
        (&*above.code, above.found.len()),
        (words.empty, 0),
        "{name}: {output}"
    );
    let loopback = own.found.iter().any(|ip| ip == "127.0.0.1" || ip == "::1");
    assert!(own.code == "0" && loopback, "{name}: {output}");
    no_storm(world, name, before);
}

/// Holds what a box asked since then against what one client may ask: two types
/// of a name, and a few more of those that ask for more types or twice. The
/// granted one's addresses are asked for at the same time.
#[track_caller]
fn no_storm(world: &TestWorld, name: &str, before: usize) {
    let rows = flows(world, "n1", name);
    let refused: u64 = rows
        .iter()
        .filter(|row| row["dst_host"] == "neighbour.example")
        .map(|row| row["count"].as_u64().unwrap())
        .sum();
    assert!((1..=4).contains(&refused), "{name}: {rows:#?}");
    let log = world.dns_log().unwrap();
    let of_shop: Vec<_> = log[before..]
        .iter()
        .filter(|asked| asked.name == "shop.example")
        .collect();
    assert!((2..=4).contains(&of_shop.len()), "{name}: {of_shop:#?}");
    let first = |qtype| {
        of_shop
            .iter()
            .find(|asked| asked.qtype == qtype)
            .unwrap()
            .at
    };
    let (a, aaaa) = (first(1), first(28));
    let apart = a.duration_since(aaaa).or_else(|_| aaaa.duration_since(a));
    assert!(apart.unwrap().as_millis() < 250, "{name}: {of_shop:#?}");
    let may = [
        "shop.example",
        "v6.example",
        "alias.example",
        "big.example",
        "ipv4only.arpa",
    ];
    assert!(
        log[before..]
            .iter()
            .all(|asked| may.contains(&&*asked.name)),
        "{name}: {log:#?}"
    );
}

fn line(text: &str) -> Told {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [_, code, took, found @ ..] = &words[..] else {
        panic!("{text}")
    };
    let mut found: Vec<String> = found.iter().map(|word| (*word).to_owned()).collect();
    found.sort();
    found.dedup();
    Told {
        code: (*code).to_owned(),
        took_ms: took.parse().unwrap(),
        found,
    }
}

/// `EAI_NONAME` and `EAI_NODATA` (netdb.h of glibc).
const GLIBC: Words = Words {
    none: "-2",
    empty: "-5",
    many: 100..=100,
};

#[test]
fn glibc_and_python() {
    let (world, _daemons) = world(1);
    let program = build(&world, "glibc", "gcc", &["libc.c"]);
    check(&world, "glibc", &program, &GLIBC);
    let script = source(&world, "lookup.py");
    check(&world, "python", &format!("python3 {script}"), &GLIBC);
}

#[test]
fn musl() {
    if !installed(&["/usr/bin/musl-gcc"]) {
        return;
    }
    let (world, _daemons) = world(1);
    let program = build(&world, "musl", "musl-gcc", &["-static", "libc.c"]);
    // It takes what a datagram holds, at most 48 addresses.
    let words = Words {
        none: "-2",
        empty: "-2",
        many: 20..=48,
    };
    check(&world, "musl", &program, &words);
}

#[test]
fn c_ares() {
    if !installed(&["/usr/include/ares.h"]) {
        return;
    }
    let (world, _daemons) = world(1);
    let program = build(&world, "ares", "gcc", &["ares.c", "-l:libcares.a"]);
    // ARES_ENOTFOUND, ARES_ENODATA (ares.h).
    let words = Words {
        none: "4",
        empty: "1",
        many: 100..=100,
    };
    check(&world, "ares", &program, &words);
}

#[test]
fn go_by_its_own_resolver_and_by_the_c_librarys() {
    if !installed(&["/usr/bin/go"]) {
        return;
    }
    let (world, _daemons) = world(1);
    let cache = world.dir().join("go-cache");
    let program = clients(&world).join("go").display().to_string();
    let mut command = Command::new("/usr/bin/go");
    command
        .current_dir(sources())
        .env("GOCACHE", &cache)
        .env("GO111MODULE", "off");
    let _built = run(command.args(["build", "-o", &program, "lookup.go"])).ok();
    // By the C library a name that is there without addresses is not told apart
    // from other failures; that it is no timeout counts.
    for (way, empty) in [
        ("go", "notfound=true,timeout=false"),
        ("cgo", "notfound=false,timeout=false"),
    ] {
        let words = Words {
            none: "notfound=true,timeout=false",
            empty,
            many: 100..=100,
        };
        let command = format!("GODEBUG=netdns={way} {program}");
        check(&world, way, &command, &words);
    }
}

#[test]
fn java() {
    let Some(home) = jdk() else { return };
    let (world, _daemons) = world(1);
    let folder = clients(&world).display().to_string();
    let mut command = Command::new(home.join("bin/javac"));
    command.current_dir(sources());
    let _built = run(command.args(["-d", &folder, "Lookup.java"])).ok();
    let java = home.join("bin/java");
    let words = Words {
        none: "unknown",
        empty: "unknown",
        many: 100..=100,
    };
    // Debian keeps its settings in /etc, where a box has only what it is granted;
    // others keep them, and all of it, outside of /usr.
    let settings = std::fs::canonicalize(home.join("conf/security/java.security")).unwrap();
    let also = match home.starts_with("/usr") {
        true => settings.ancestors().nth(2).unwrap(),
        false => &home,
    };
    let grant = format!("{}:ro", also.display());
    let command = format!("{} -cp {folder} Lookup", java.display());
    check_with(&world, "java", &["--grant", &grant], &command, &words);
}

#[test]
fn node_by_the_c_library_and_by_c_ares() {
    if !installed(&["/usr/bin/node"]) {
        return;
    }
    let (world, _daemons) = world(1);
    let script = source(&world, "lookup.js");
    for (way, empty) in [("lookup", "ENOTFOUND"), ("resolve", "ENODATA")] {
        let words = Words {
            none: "ENOTFOUND",
            empty,
            many: 100..=100,
        };
        let command = format!("node {script} {way}");
        check(&world, way, &command, &words);
    }
}

#[test]
fn programs_that_dial_a_refused_name_end_at_once() {
    let (world, _daemons) = world(1);
    // Each with the words by which it says that there is no such host.
    let tries: [(&str, &str, &str); 5] = [
        (
            "/usr/bin/curl",
            "curl -sS http://neighbour.example/",
            "Could not resolve host",
        ),
        (
            "/usr/bin/busybox",
            "busybox wget -q -O- http://neighbour.example/",
            "bad address",
        ),
        (
            "/usr/bin/ssh",
            "ssh -F none -o BatchMode=yes x@neighbour.example",
            "not known",
        ),
        (
            "/usr/bin/npm",
            "npm_config_cache=/tmp/npm npm view x --registry http://neighbour.example/ --fetch-retries=0",
            "ENOTFOUND",
        ),
        ("/usr/bin/dig", "dig neighbour.example", "NXDOMAIN"),
    ];
    for (program, command, words) in tries {
        if !installed(&[program]) {
            continue;
        }
        let name = Path::new(program).file_name().unwrap().to_string_lossy();
        // How long it takes for a name that nobody needs to look up is its own
        // time, which for some is a second and more.
        let script = format!(
            "t() {{ b=$(date +%s%N); \"$@\" >/tmp/out 2>&1; e=$(date +%s%N); echo $(((e - b) / 1000000)); }}; \
             c() {{ {command}; }}; o() {{ {}; }}; t o; t c; cat /tmp/out",
            command.replace("neighbour.example", "127.0.0.1")
        );
        let words_of = ["-q", "--name", &*name, "--reach", REACH];
        let output = boxed(&world, "n1", &words_of, &script);
        let mut times = output.stdout.lines().map(str::parse::<u64>);
        let own = times.next().unwrap().unwrap();
        let took = times.next().unwrap().unwrap();
        assert!(took < own + AT_ONCE_MS, "{name}: {output}");
        assert!(output.stdout.contains(words), "{name}: {output}");
        let rows = flows(&world, "n1", &name);
        let refused: u64 = rows
            .iter()
            .filter(|row| row["dst_host"] == "neighbour.example")
            .map(|row| row["count"].as_u64().unwrap())
            .sum();
        assert!((1..=6).contains(&refused), "{name}: {rows:#?}");
    }
}
