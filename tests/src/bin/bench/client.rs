//! What runs in the places that are compared: on the node, in a peer, in a box.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Bytes written or read at once.
pub(crate) const CHUNK: usize = 256 << 10;

/// Longest a connection may take to open, or to say something.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest that what was written may take to arrive.
const DRAIN: Duration = Duration::from_secs(3);

/// Before each command: what the last one left to the kernel, and to a node, is
/// done then. A person waits for one start, not for a hundred.
const SETTLE: Duration = Duration::from_millis(50);

/// Between two looks at the clock of a stream that does not move.
const LOOK: Duration = Duration::from_millis(100);

/// Plays one role and prints what it measured, as numbers on one line.
pub(crate) fn run(words: &[String]) -> ExitCode {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = play(&words);
    match outcome {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Plays the role that the words name.
pub(crate) fn play(words: &[&str]) -> io::Result<String> {
    match words {
        ["send", to, millis, count, segment] => send(to, millis, count, segment),
        ["receive", from, millis, count, segment] => receive(from, millis, count, segment),
        ["serve", at] => crate::serve::serve(at),
        ["tick", to, millis, threads] => tick(to, millis, threads),
        ["trip", to, count] => trip(to, count),
        ["fetch", from, millis, threads] => fetch(from, millis, threads),
        ["flood-out", to, mbit, millis] => crate::datagrams::flood_out(to, mbit, millis),
        ["flood-in", from, mbit, millis] => crate::datagrams::flood_in(from, mbit, millis),
        ["call", to, source, millis] => crate::datagrams::call(to, source, millis),
        ["stay", hold, echo, tick, count] => crate::stay::stay([hold, echo, tick], count),
        ["keep", hold, count] => crate::stay::keep(hold, count),
        ["in-slirp", rest @ ..] => crate::slirp::around(rest),
        ["go-on", rest @ ..] => crate::slirp::go_on(rest),
        ["dial", to] => dial(to),
        ["fill", entries, days] => crate::history::fill(entries, days),
        ["count"] => crate::sync::count(),
        ["seal-cost"] => crate::sync::seal_cost(),
        ["mailbox", program, accounts] => crate::mailbox::accounts(program, accounts),
        ["mailbox-start", program, blobs] => crate::mailbox::start(program, blobs),
        ["read-back"] => crate::history::read_back(),
        ["start-node", bailey] => crate::history::start_node(bailey),
        ["interleave", rounds, commands] => interleave(rounds, commands),
        _ => Err(io::Error::other(format!("no such client: {words:?}"))),
    }
}

/// As many descriptors as this process may have.
pub(crate) fn raise_files() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // With fewer it goes as far as they reach, and says so.
        let _fewer = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

pub(crate) fn number<T: std::str::FromStr<Err: std::fmt::Display>>(word: &str) -> io::Result<T> {
    word.parse()
        .map_err(|error| io::Error::other(format!("{word}: {error}")))
}

pub(crate) fn open(to: &str) -> io::Result<TcpStream> {
    let to: SocketAddr = number(to)?;
    let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Opens a connection whose segments carry at most `segment` octets, if that is
/// not 0: as on a path of a lesser MTU, whatever the link's own is.
fn open_with(to: &str, segment: &str) -> io::Result<TcpStream> {
    use nix::sys::socket::{
        AddressFamily, SockFlag, SockType, SockaddrStorage, connect, setsockopt, socket, sockopt,
    };
    let (address, segment): (SocketAddr, u32) = (number(to)?, number(segment)?);
    if segment == 0 {
        return open(to);
    }
    let family = match address.is_ipv4() {
        true => AddressFamily::Inet,
        false => AddressFamily::Inet6,
    };
    let fd = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&fd, sockopt::TcpMaxSeg, &segment)?;
    connect(fd.as_raw_fd(), &SockaddrStorage::from(address))?;
    let stream = TcpStream::from(fd);
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Segments that this network has sent again so far (RFC 4022, `RetransSegs`).
fn sent_again() -> u64 {
    let text = std::fs::read_to_string("/proc/net/snmp").unwrap_or_default();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next(), lines.next());
    let (Some(names), Some(values)) = (names, values) else {
        return 0;
    };
    let named = names.split(' ').zip(values.split(' '));
    named
        .filter(|(name, _)| *name == "RetransSegs")
        .find_map(|(_, value)| value.parse().ok())
        .unwrap_or(0)
}

/// Several streams at once: the sum of their rates in Gbit/s, and the segments
/// that were sent again.
fn streams(
    count: &str,
    one: impl Fn() -> io::Result<f64> + Send + Clone + 'static,
) -> io::Result<String> {
    let before = sent_again();
    let threads: Vec<_> = (0..number::<u32>(count)?)
        .map(|_| {
            let one = one.clone();
            thread::spawn(one)
        })
        .collect();
    let mut rate = 0.0;
    for thread in threads {
        rate += thread
            .join()
            .map_err(|_| io::Error::other("a thread broke"))??;
    }
    Ok(format!("{rate} {}", sent_again().saturating_sub(before)))
}

/// Streams to a discard server, which says at their end what came.
pub(crate) fn send(to: &str, millis: &str, count: &str, segment: &str) -> io::Result<String> {
    let (to, length, segment) = (
        to.to_owned(),
        Duration::from_millis(number(millis)?),
        segment.to_owned(),
    );
    streams(count, move || send_one(open_with(&to, &segment)?, length))
}

fn send_one(mut stream: TcpStream, length: Duration) -> io::Result<f64> {
    stream.set_write_timeout(Some(LOOK))?;
    stream.set_read_timeout(Some(DRAIN))?;
    let buffer = vec![0_u8; CHUNK];
    let (start, mut sent) = (Instant::now(), 0);
    while start.elapsed() < length {
        match stream.write(&buffer) {
            Ok(count) => sent += count,
            // A stream that stalls goes on with the next look, or is over.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut came = String::new();
    stream.read_to_string(&mut came).map_err(|_| {
        io::Error::other(format!(
            "it stalled: not all had come {DRAIN:?} after the last write"
        ))
    })?;
    let took = start.elapsed();
    // The first line alone: a peer was seen to repeat what is at the end.
    let came = came.lines().next().unwrap_or_default();
    if came != sent.to_string() {
        return Err(io::Error::other(format!("{sent} bytes went, {came} came")));
    }
    Ok(gigabits(number(came)?, took))
}

/// Streams from a source of zeros.
pub(crate) fn receive(from: &str, millis: &str, count: &str, segment: &str) -> io::Result<String> {
    let (from, length, segment) = (
        from.to_owned(),
        Duration::from_millis(number(millis)?),
        segment.to_owned(),
    );
    streams(count, move || {
        receive_one(open_with(&from, &segment)?, length)
    })
}

fn receive_one(mut stream: TcpStream, length: Duration) -> io::Result<f64> {
    let mut buffer = vec![0_u8; CHUNK];
    let (start, mut came) = (Instant::now(), 0.0);
    while start.elapsed() < length {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        came += f64::from(u32::try_from(count).map_err(io::Error::other)?);
    }
    Ok(gigabits(came, start.elapsed()))
}

fn gigabits(bytes: f64, took: Duration) -> f64 {
    bytes * 8.0 / took.as_secs_f64() / 1e9
}

/// The value below which so many thousandths of all lie.
pub(crate) fn quantile(all: &[f64], thousandths: usize) -> f64 {
    let mut sorted = all.to_vec();
    sorted.sort_by(f64::total_cmp);
    let found = sorted.get(sorted.len() * thousandths / 1000);
    found.or(sorted.last()).copied().unwrap_or(f64::NAN)
}

/// Connections a second that carry one byte and end, each after the other in
/// each of several threads.
fn tick(to: &str, millis: &str, threads: &str) -> io::Result<String> {
    let length = Duration::from_millis(number(millis)?);
    let start = Instant::now();
    let rate = repeat(
        number(threads)?,
        move || start.elapsed() < length,
        to,
        one_tick,
    )?;
    Ok(rate.to_string())
}

pub(crate) fn one_tick(to: &str) -> io::Result<()> {
    let mut stream = open(to)?;
    stream.write_all(b"x")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    match answer.as_slice() {
        b"x" => Ok(()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Does something in several threads as long as `goes_on`; how often a second.
pub(crate) fn repeat(
    threads: u32,
    goes_on: impl Fn() -> bool + Send + Clone + 'static,
    to: &str,
    once: fn(&str) -> io::Result<()>,
) -> io::Result<f64> {
    let start = Instant::now();
    let workers: Vec<_> = (0..threads)
        .map(|_| {
            let (to, goes_on) = (to.to_owned(), goes_on.clone());
            thread::spawn(move || -> io::Result<u32> {
                let mut count = 0;
                while goes_on() {
                    once(&to)?;
                    count += 1;
                }
                Ok(count)
            })
        })
        .collect();
    let mut total = 0;
    for worker in workers {
        total += worker
            .join()
            .map_err(|_| io::Error::other("a thread broke"))??;
    }
    Ok(f64::from(total) / start.elapsed().as_secs_f64())
}

/// Median and p99 of round trips of one byte on one connection, in microseconds.
fn trip(to: &str, count: &str) -> io::Result<String> {
    let mut stream = open(to)?;
    let all = trips(&mut stream, number(count)?)?;
    Ok(format!("{} {}", quantile(&all, 500), quantile(&all, 990)))
}

/// Microseconds of round trips of one byte.
pub(crate) fn trips(stream: &mut TcpStream, count: u32) -> io::Result<Vec<f64>> {
    stream.set_nodelay(true)?;
    let mut byte = [0];
    (0..count)
        .map(|_| {
            let start = Instant::now();
            stream.write_all(b"x")?;
            stream.read_exact(&mut byte)?;
            Ok(start.elapsed().as_secs_f64() * 1e6)
        })
        .collect()
}

/// Whole HTTP fetches a second, each on a connection of its own.
fn fetch(from: &str, millis: &str, threads: &str) -> io::Result<String> {
    let length = Duration::from_millis(number(millis)?);
    let start = Instant::now();
    let rate = repeat(
        number(threads)?,
        move || start.elapsed() < length,
        from,
        one_fetch,
    )?;
    Ok(rate.to_string())
}

fn one_fetch(from: &str) -> io::Result<()> {
    let mut stream = open(from)?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    match answer.starts_with(b"HTTP/1.1 200 ") {
        true => Ok(()),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// The time, in nanoseconds since 1970, at which it begins to dial.
fn dial(to: &str) -> io::Result<String> {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_err(io::Error::other)?;
    // A refusal is what the caller wants to see noticed.
    let _refused = open(to);
    Ok(now.as_nanos().to_string())
}

/// Runs each of several commands in turn, `rounds` times, and prints the
/// milliseconds each took, as JSON. `commands` is JSON: name to words.
fn interleave(rounds: &str, commands: &str) -> io::Result<String> {
    let rounds: usize = number(rounds)?;
    let commands: BTreeMap<String, Vec<String>> =
        serde_json::from_str::<serde_json::Value>(commands)?
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, words)| {
                let words = words.as_array().into_iter().flatten();
                (
                    name.clone(),
                    words
                        .filter_map(|word| Some(word.as_str()?.to_owned()))
                        .collect(),
                )
            })
            .collect();
    let mut took: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut failed: BTreeMap<&str, String> = BTreeMap::new();
    // One round more: the first warms up and is not counted.
    for round in 0..=rounds {
        for (name, words) in &commands {
            thread::sleep(SETTLE);
            match once(words) {
                Ok(_) if round == 0 => {}
                Ok(millis) => took.entry(name).or_default().push(millis),
                Err(why) => drop(failed.insert(name, why)),
            }
        }
    }
    Ok(serde_json::json!({ "took": took, "failed": failed }).to_string())
}

/// Milliseconds that a command took, or how it failed.
fn once(words: &[String]) -> Result<f64, String> {
    let (program, rest) = words.split_first().ok_or("no command")?;
    let start = Instant::now();
    let output = Command::new(program)
        .args(rest)
        .stdin(Stdio::null())
        .output();
    let took = start.elapsed();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        Ok(took.as_secs_f64() * 1e3)
    } else {
        Err(format!(
            "{}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        ))
    }
}
