//! A display of a box's own and the picture of it, and a browser that draws
//! there: Debian's Chromium, which stands in for a signed image.

mod picture;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ChildStdin;
use std::time::Duration;

use bailey_tests::{Output, Running, TestWorld, wait_until};
use serde_json::Value;

use crate::common::{LIMIT, daemon, flows, hears_of, pair, world};
use picture::{Picture, Rgb};

/// A browser on a busy machine.
const SLOW: Duration = Duration::from_secs(120);
const DRAW: &str = include_str!("browser/draw.py");
const DRIVE: &str = include_str!("browser/drive.py");
const SERVER: &str = "/usr/bin/Xvfb";
const BROWSER: &str = "/usr/bin/chromium";
const RED: Rgb = [255, 0, 0];
const BLACK: Rgb = [0, 0, 0];
/// What the driver paints the page with.
const GREEN: Rgb = [10, 200, 30];

/// Whether the machine has what a test needs; it says so where not.
fn installed(programs: &[&str]) -> bool {
    let missing: Vec<_> = programs
        .iter()
        .filter(|path| !Path::new(path).exists())
        .collect();
    if !missing.is_empty() {
        println!("SKIPPED: {missing:?} are not installed (.ci/packages browser)");
    }
    missing.is_empty()
}

/// A world whose one node is up, if the machine has what the test needs.
fn one_node(programs: &[&str]) -> Option<(TestWorld, Running)> {
    installed(programs).then(|| {
        let world = TestWorld::new(1);
        let daemon = daemon(&world, "n1");
        (world, daemon)
    })
}

/// A box with a red window on its display, which runs the shell commands that
/// it is told.
struct Drawn {
    running: Running,
    told: ChildStdin,
    lines: usize,
}

impl Drawn {
    fn start(world: &TestWorld, node: &str, words: &[&str]) -> Self {
        let mut all = vec!["run", "--name", "easel", "--display", "virtual"];
        all.extend(words);
        all.extend(["--", "python3", "-c", DRAW]);
        let mut running = world.start(node, &all);
        running.wait_line(SLOW, |line| line == "drawn");
        let told = running.take_stdin().unwrap();
        Self {
            running,
            told,
            lines: 0,
        }
    }

    /// Runs one line of shell in the box, and gives what it said.
    fn tell(&mut self, line: &str) -> String {
        let before = self.running.stdout().len();
        writeln!(self.told, "{line}").unwrap();
        self.lines += 1;
        let done = || self.running.stdout().matches("done\n").count() == self.lines;
        assert!(wait_until(LIMIT, done), "{line}: {}", self.running.stderr());
        let said = self.running.stdout();
        said[before..].trim_end_matches("done\n").to_owned()
    }

    fn end(self) -> Output {
        drop(self.told);
        self.running.finish(LIMIT)
    }
}

/// A file of a node's home that is not there yet.
fn new_file(world: &TestWorld, node: &str, name: &str) -> PathBuf {
    world.node(node).unwrap().home().join(name)
}

fn shoot(world: &TestWorld, node: &str, target: &str, to: &Path) -> Output {
    let to = to.display().to_string();
    world.run(node, &["screenshot", target, "--output", &to])
}

#[test]
fn a_picture_shows_what_is_drawn_on_the_boxs_own_display() {
    let Some((world, _daemon)) = one_node(&[SERVER]) else {
        return;
    };
    let mut drawn = Drawn::start(&world, "n1", &[]);
    let file = new_file(&world, "n1", "picture.png");
    let _shot = shoot(&world, "n1", "easel", &file).ok();
    let picture = Picture::read(&file);
    assert_eq!((picture.width, picture.height), (1280, 800));
    for (at, colour) in [
        ((99, 50), BLACK),
        ((100, 49), BLACK),
        ((100, 50), RED),
        ((399, 249), RED),
        ((400, 249), BLACK),
        ((399, 250), BLACK),
    ] {
        assert_eq!(picture.at(at.0, at.1), colour, "{at:?}");
    }
    assert_eq!(picture.colours()[&RED], 300 * 200);
    // Only by a path of the box's own, and by no name that a network carries.
    let sockets = drawn.tell("grep -o '@*[^ ]*/X11-unix/.*\\|@*/tmp/.X11-unix/.*' /proc/net/unix");
    assert!(!sockets.is_empty(), "the server listens by its path");
    for socket in sockets.lines() {
        assert_eq!(socket, "/tmp/.X11-unix/X0");
    }
    assert_eq!(drawn.tell("grep -c : /proc/net/tcp"), "0\n");
    // It is of the box and confined as the box is.
    let status = drawn.tell(
        "for proc in /proc/[0-9]*; do [ $(cat $proc/comm) = Xvfb ] && cat $proc/status; done",
    );
    for line in ["CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(status.contains(line), "{status}");
    }
    // A further command in the box finds it, another box does not.
    let further = world.run("n1", &["exec", "easel", "--", "sh", "-c", "echo $DISPLAY"]);
    assert_eq!(further.ok().stdout, ":0\n");
    let output = world.run("n1", &["run", "-q", "--", "ls", "/tmp/.X11-unix"]);
    assert_ne!(output.code, Some(0), "{output}");
    assert_eq!(drawn.end().code, Some(0));
}

#[test]
fn a_display_is_not_seen_in_a_network_that_is_shared() {
    let Some((world, _daemon)) = one_node(&[SERVER]) else {
        return;
    };
    let named = "import socket, time; s = socket.socket(socket.AF_UNIX);
s.bind('\\0/tmp/.X11-unix/X5'); s.listen(); print('listens', flush=True); time.sleep(60)";
    let mut python = world.command("n1", "python3");
    let control = Running::start(python.args(["-c", named]));
    control.wait_line(LIMIT, |line| line == "listens");
    let mut drawn = Drawn::start(&world, "n1", &["--tier", "l1.5"]);
    // The control: what is listened on by an abstract name is seen from the box,
    // so the network is the machine's own.
    let inside = drawn.tell("cat /proc/net/unix");
    assert!(inside.contains("@/tmp/.X11-unix/X5"), "{inside}");
    let outside = world
        .sh("n1", "cat /proc/net/unix /proc/net/tcp")
        .ok()
        .stdout;
    assert!(outside.contains("@/tmp/.X11-unix/X5"), "{outside}");
    assert!(!outside.contains("@/tmp/.X11-unix/X0"), "{outside}");
    // Port 6000 and its like, in the kernel's spelling.
    assert!(!outside.contains(":1770 "), "{outside}");
    assert_eq!(drawn.end().code, Some(0));
}

#[test]
fn a_box_that_spoils_its_picture_gets_no_other_file_shown() {
    let Some((world, _daemon)) = one_node(&[SERVER]) else {
        return;
    };
    let mut drawn = Drawn::start(&world, "n1", &[]);
    let file = new_file(&world, "n1", "picture.png");
    let at = "/run/display/Xvfb_screen0";
    drawn.tell(&format!("cp {at} ~/kept"));
    for spoil in [
        format!("rm {at}"),
        format!("ln -s ~/kept {at}"),
        format!("ln -sf /proc/self/mem {at}"),
        format!("rm {at}; mkfifo {at}"),
        format!("rm {at}; mkdir {at}"),
        format!("rmdir {at}; : > {at}"),
        format!("head -c 4100000 /dev/urandom > {at}"),
        format!("head -c 4000000 ~/kept > {at}"),
        format!("cp ~/kept {at}; printf '\\377\\377' | dd conv=notrunc bs=1 seek=16 of={at}"),
    ] {
        assert_eq!(drawn.tell(&format!("{spoil}; echo $?")), "0\n", "{spoil}");
        let shot = shoot(&world, "n1", "easel", &file);
        assert_eq!(shot.code, Some(125), "{spoil}: {shot}");
        assert!(
            shot.stderr.contains("picture cannot be read"),
            "{spoil}: {shot}"
        );
        assert!(!file.exists(), "{spoil}: nothing is left behind");
    }
    // The control: the same file in its place is a picture.
    drawn.tell(&format!("cp ~/kept {at}"));
    let _shot = shoot(&world, "n1", "easel", &file).ok();
    assert_eq!(Picture::read(&file).at(100, 50), RED);
    // What lies there is bounded, and so is nobody's memory but the box's.
    drawn.tell("head -c 200000000 /dev/zero > /run/display/more");
    let size: u64 = drawn
        .tell("stat -c %s /run/display/more")
        .trim()
        .parse()
        .unwrap();
    assert!(size < 8 << 20, "{size}");
    assert_eq!(drawn.end().code, Some(0));
}

#[test]
fn the_end_of_a_display_ends_nothing_and_is_noticed() {
    let Some((world, _daemon)) = one_node(&[SERVER]) else {
        return;
    };
    let mut drawn = Drawn::start(&world, "n1", &[]);
    drawn.tell(
        "for proc in /proc/[0-9]*; do [ $(cat $proc/comm) = Xvfb ] && kill ${proc#/proc/}; done",
    );
    let limit = LIMIT;
    drawn
        .running
        .wait_error_line(limit, |line| line.contains("display ended"));
    let file = new_file(&world, "n1", "picture.png");
    let shot = shoot(&world, "n1", "easel", &file);
    assert_eq!(shot.code, Some(125), "{shot}");
    assert!(shot.stderr.contains("has ended"), "{shot}");
    assert_eq!(drawn.tell("echo alive"), "alive\n");
    assert_eq!(drawn.end().code, Some(0));
}

#[test]
fn a_picture_that_cannot_be_is_refused_with_its_reason() {
    if !installed(&[SERVER]) {
        return;
    }
    let (world, _daemons) = world(2);
    pair(&world, "n1", "n2");
    let drawn = Drawn::start(&world, "n1", &[]);
    let file = new_file(&world, "n1", "picture.png");
    let refused = |node: &str, target: &str, to: &Path, why: &str| {
        let shot = shoot(&world, node, target, to);
        assert_eq!(shot.code, Some(2), "{shot}");
        assert!(shot.stderr.contains(why), "{why}: {shot}");
    };
    // A file that is there is not touched, and a link is not followed.
    std::fs::write(&file, "mine").unwrap();
    refused("n1", "easel", &file, "EEXIST");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    let (link, target) = (file.with_extension("link"), file.with_extension("target"));
    std::os::unix::fs::symlink(&target, &link).unwrap();
    refused("n1", "easel", &link, "EEXIST");
    assert!(!target.exists());
    refused("n1", "no-such-box", &target, "no box");
    // The other device knows of the box, and has no picture of it.
    hears_of(&world, "n2", "easel");
    let other = new_file(&world, "n2", "picture.png");
    refused("n2", "easel", &other, "pictures stay on the device");
    assert_eq!(drawn.end().code, Some(0));
    refused("n1", "easel", &target, "does not run");
    let mut plain = world.start("n1", &["run", "--name", "plain", "--", "cat"]);
    plain.wait_error_line(LIMIT, |line| line.contains("box plain"));
    refused("n1", "plain", &target, "has no display");
    assert!(!target.exists() && !other.exists());
    drop(plain.take_stdin());
    let _ended = plain.finish(LIMIT).ok();
}

#[test]
fn a_browser_in_a_box_keeps_its_own_sandbox_and_is_seen() {
    let Some((world, _daemon)) = one_node(&[SERVER, BROWSER]) else {
        return;
    };
    let mut browser = drive(
        &world,
        &[
            "--class",
            "browser",
            "--display",
            "virtual",
            "--reach",
            "shop.example:80,live.example:443",
        ],
    );
    let found = |what: &str| found(&browser, what);
    println!("{} in a box", found("version"));
    assert_eq!(found("refused"), "net::ERR_CONNECTION_REFUSED");
    let sandbox = found("sandbox");
    let sandbox = sandbox.as_str().unwrap();
    assert!(
        sandbox.contains("You are adequately sandboxed."),
        "{sandbox}"
    );
    for layer in [
        "Layer 1 Sandbox\tNamespace",
        "PID namespaces\tYes",
        "Network namespaces\tYes",
        "Seccomp-BPF sandbox\tYes",
    ] {
        assert!(sandbox.contains(layer), "{layer}: {sandbox}");
    }
    let page = found("page");
    assert!(
        page.as_str().unwrap().contains("hello from shop.example"),
        "{page}"
    );
    spoke(&found("spoke"));
    // No render node was granted: whatever the page is told, it is software.
    let renderer = found("renderer");
    println!("it draws with {renderer}");
    assert!(
        renderer.as_str().unwrap().contains("SwiftShader"),
        "{renderer}"
    );
    found("drawn");
    seen(&world);
    reported(&world);
    drop(browser.take_stdin());
    let output = browser.finish(SLOW);
    assert_eq!(output.code, Some(0), "{output}");
    assert!(!output.stdout.contains("no-sandbox"), "{output}");
    entered(&flows(&world, "n1", "web"));
}

/// What the page fetched, said and heard.
fn spoke(said: &Value) {
    assert_eq!(
        (&said["fetched"], &said["socket"]),
        (&100_000.into(), &"the same".into()),
        "{said}"
    );
    // A name that is not granted does not exist, which is known at once.
    let late = said["other"].as_f64().unwrap();
    assert!(late < 2000.0, "{said}");
}

/// What it dialled and was refused, and how much of it passed.
fn entered(rows: &[Value]) {
    let lan = |row: &&Value| row["dst_ip"] == "192.168.1.9";
    let refused = rows.iter().find(lan).unwrap();
    assert_eq!(
        (&refused["verdict"], &refused["dst_class"]),
        (&"refuse".into(), &"local".into())
    );
    let dialled = |row: &&Value| row["kind"] == "flow";
    let moved = |host: &str, port: u16| {
        let of = |row: &&Value| row["dst_host"] == host && row["dst_port"] == port;
        let bytes = |row: &Value| [&row["bytes_out"], &row["bytes_in"]].map(Value::as_u64);
        let all = rows.iter().filter(dialled).filter(of).map(bytes);
        all.fold([0, 0], |sum, [out, into]| {
            [sum[0] + out.unwrap_or(0), sum[1] + into.unwrap_or(0)]
        })
    };
    assert!(moved("shop.example", 80)[1] > 100_000, "{rows:#?}");
    let socket = moved("live.example", 443);
    assert!(socket[0] > 70_000 && socket[1] > 70_000, "{rows:#?}");
    // Nothing else was dialled, whatever else a browser wants.
    let hosts = ["shop.example", "live.example"];
    let other = |row: &&Value| !hosts.contains(&row["dst_host"].as_str().unwrap_or_default());
    assert_eq!(rows.iter().filter(dialled).find(other), None);
    let third = |row: &&Value| row["dst_host"] == "third.example";
    assert_eq!(
        rows.iter().find(third).unwrap()["reason"],
        "name outside reach"
    );
}

/// What the report says of it: of what class, of which image, drawn by what.
fn reported(world: &TestWorld) {
    let report = world.run("n1", &["report", "web", "--json"]).ok().json();
    let report = report.last().unwrap();
    assert_eq!(
        (&report["class"], &report["image"]),
        (&"browser".into(), &"host".into())
    );
    assert_eq!(report["level"], "gated", "{report:#}");
    let axes = report["axes"].as_array().unwrap();
    let facts = axes
        .iter()
        .flat_map(|axis| axis["facts"].as_array().unwrap());
    let said: Vec<&Value> = facts.filter(|fact| fact["held"].is_null()).collect();
    let of = |what: &str| said.iter().filter(|fact| fact["what"] == what).count();
    assert_eq!((of("gpu"), of("class browser")), (1, 5), "{report:#}");
    let gpu = said.iter().find(|fact| fact["what"] == "gpu").unwrap();
    assert_eq!(gpu["got"], "software: no render node");
}

/// The page as it was painted, the browser's own bars above it. What a page is
/// told to draw is on the display a little later.
fn seen(world: &TestWorld) {
    let mut shots = 0;
    let painted = wait_until(SLOW, || {
        shots += 1;
        let file = new_file(world, "n1", &format!("page-{shots}.png"));
        let _shot = shoot(world, "n1", "web", &file).ok();
        let picture = Picture::read(&file);
        assert_eq!((picture.width, picture.height), (1280, 800));
        let colours = picture.colours();
        let green = colours.get(&GREEN).copied().unwrap_or_default();
        green > 1280 * 800 / 2 && colours.len() > 2
    });
    assert!(painted, "the page does not show, {shots} pictures");
}

/// The driver in a box, with Chromium as it would be typed but for its pipe.
fn drive(world: &TestWorld, words: &[&str]) -> Running {
    let mut all = vec!["run", "--name", "web"];
    all.extend(words);
    all.extend(["--", "python3", "-c", DRIVE]);
    all.extend(["http://shop.example/", "http://192.168.1.9/"]);
    all.extend(["chromium", "--remote-debugging-pipe", "--no-first-run"]);
    // WebGL without hardware is off unless it is asked for.
    all.push("--enable-unsafe-swiftshader");
    // The world is its own authority.
    all.push("--ignore-certificate-errors");
    all.extend([
        "--window-position=0,0",
        "--window-size=1280,800",
        "about:blank",
    ]);
    world.start("n1", &all)
}

/// What the driver found.
fn found(driver: &Running, what: &str) -> Value {
    let says = |line: &str| {
        let row: Value = serde_json::from_str(line).ok()?;
        (row["what"] == what).then(|| row["value"].clone())
    };
    let line = driver.wait_line(SLOW, |line| says(line).is_some());
    says(&line).unwrap()
}
