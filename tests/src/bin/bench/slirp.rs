//! A client in a network of slirp4netns, which joins one that is there already.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long the peer may take to have its network up.
const UP: Duration = Duration::from_secs(5);

/// Makes a namespace, lets slirp4netns into it, and plays the role there.
pub(crate) fn around(words: &[&str]) -> io::Result<String> {
    let own = std::env::current_exe()?;
    let mut inside = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--"])
        .arg(own)
        .args(["client", "go-on"])
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let (Some(mut tell), Some(hear)) = (inside.stdin.take(), inside.stdout.take()) else {
        return Err(io::Error::other("no pipes"));
    };
    let mut hear = BufReader::new(hear);
    // Its namespaces are there once it speaks.
    hear.read_line(&mut String::new())?;
    let mut peer = Command::new("slirp4netns")
        .args(["--configure", "--mtu=65520", "--disable-dns"])
        .args([&inside.id().to_string(), "tap0"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    writeln!(tell)?;
    drop(tell);
    let mut said = String::new();
    hear.read_to_string(&mut said)?;
    let status = inside.wait()?;
    let _ended = peer.kill();
    peer.wait()?;
    match status.success() {
        true => Ok(said.trim().to_owned()),
        false => Err(io::Error::other("it failed in slirp4netns")),
    }
}

/// The inner end: says that it is there, and plays its role once there is a
/// way out.
pub(crate) fn go_on(words: &[&str]) -> io::Result<String> {
    println!();
    io::stdin().read_line(&mut String::new())?;
    let start = Instant::now();
    let routed = || {
        let routes = std::fs::read_to_string("/proc/self/net/route").unwrap_or_default();
        let mut routes = routes.lines().map(|line| line.split_whitespace().nth(1));
        routes.any(|to| to == Some("00000000"))
    };
    while !routed() {
        if start.elapsed() > UP {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    crate::client::play(words)
}
