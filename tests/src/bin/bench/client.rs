//! What runs in the places that are compared: on the node, in a peer, in a box.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Bytes written or read at once.
const CHUNK: usize = 256 << 10;

/// Longest a connection may take to open, or to say something.
const PATIENCE: Duration = Duration::from_secs(10);

/// Before each command: what the last one left to the kernel, and to a node, is
/// done then. A person waits for one start, not for a hundred.
const SETTLE: Duration = Duration::from_millis(50);

/// Between two looks at the clock of a stream that does not move.
const LOOK: Duration = Duration::from_millis(100);

/// Plays one role and prints what it measured, as numbers on one line.
pub(crate) fn run(words: &[String]) -> ExitCode {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["send", to, millis] => send(to, millis).map(|rate| rate.to_string()),
        ["receive", from, millis] => receive(from, millis).map(|rate| rate.to_string()),
        ["serve", at] => serve(at),
        ["fetch", from, millis, threads] => {
            fetch(from, millis, threads).map(|rate| rate.to_string())
        }
        ["dial", to] => dial(to),
        ["interleave", rounds, commands] => interleave(rounds, commands),
        _ => Err(io::Error::other(format!("no such client: {words:?}"))),
    };
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

fn number<T: std::str::FromStr<Err: std::fmt::Display>>(word: &str) -> io::Result<T> {
    word.parse()
        .map_err(|error| io::Error::other(format!("{word}: {error}")))
}

fn open(to: &str) -> io::Result<TcpStream> {
    let to: SocketAddr = number(to)?;
    let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Gbit/s of a stream to a discard server, which says at its end what came.
fn send(to: &str, millis: &str) -> io::Result<f64> {
    let length = Duration::from_millis(number(millis)?);
    let mut stream = open(to)?;
    stream.set_write_timeout(Some(LOOK))?;
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
            "it stalled: not all had come {PATIENCE:?} after the last write"
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

/// Gbit/s of a stream from a source of zeros.
fn receive(from: &str, millis: &str) -> io::Result<f64> {
    let length = Duration::from_millis(number(millis)?);
    let mut stream = open(from)?;
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

/// Serves [`send`] and [`receive`] at an address of this machine until its
/// input ends, and says the two ports first.
fn serve(at: &str) -> io::Result<String> {
    let at: IpAddr = number(at)?;
    let discard = TcpListener::bind((at, 0))?;
    let source = TcpListener::bind((at, 0))?;
    println!(
        "{} {}",
        discard.local_addr()?.port(),
        source.local_addr()?.port()
    );
    accept(discard, |mut stream| {
        let (mut buffer, mut came) = (vec![0_u8; CHUNK], 0_usize);
        loop {
            match stream.read(&mut buffer)? {
                0 => return writeln!(stream, "{came}"),
                count => came += count,
            }
        }
    });
    accept(source, |mut stream| {
        let buffer = vec![0_u8; CHUNK];
        loop {
            stream.write_all(&buffer)?;
        }
    });
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(String::new())
}

/// Serves each connection in a thread of its own. One that is left by its
/// client ends by an error that concerns nobody.
fn accept(listener: TcpListener, serve: fn(TcpStream) -> io::Result<()>) {
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
}

/// Whole HTTP fetches a second, each on a connection of its own.
fn fetch(from: &str, millis: &str, threads: &str) -> io::Result<f64> {
    let length = Duration::from_millis(number(millis)?);
    let start = Instant::now();
    let workers: Vec<_> = (0..number::<u32>(threads)?)
        .map(|_| {
            let from = from.to_owned();
            thread::spawn(move || -> io::Result<u32> {
                let mut count = 0;
                while start.elapsed() < length {
                    let mut stream = open(&from)?;
                    stream.write_all(b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n")?;
                    let mut answer = Vec::new();
                    stream.read_to_end(&mut answer)?;
                    if !answer.starts_with(b"HTTP/1.1 200 ") {
                        return Err(io::ErrorKind::InvalidData.into());
                    }
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
