//! A client that holds connections open and does what it is told meanwhile.

use std::io::{self, BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::client::{number, one_tick, open, quantile, raise_files, repeat, trips};

/// Short connections at a time.
const THREADS: u32 = 32;
/// Idle connections of one process: a box has a part of the node's descriptors.
const EACH: usize = 2000;

/// Opens `count` idle connections and says so; then for each line of its input:
/// `trips N` round trips of a byte, of which it says the median in microseconds,
/// or `short N` connections of a byte each, of which it says the rate.
pub(crate) fn stay([hold, echo, tick]: [&str; 3], count: &str) -> io::Result<String> {
    raise_files();
    let mut stream = open(echo)?;
    let mut count: usize = number(count)?;
    let mut keepers = Vec::new();
    while count > 0 {
        let some = count.min(EACH);
        keepers.push(keeper(hold, some)?);
        count -= some;
    }
    println!("open");
    for line in io::stdin().lock().lines() {
        match line?.split(' ').collect::<Vec<_>>().as_slice() {
            ["trips", count] => {
                let all = trips(&mut stream, number(count)?)?;
                println!("done {}", quantile(&all, 500));
            }
            ["short", count] => {
                let (left, count) = (Arc::new(AtomicU32::new(0)), number(count)?);
                let goes_on = move || left.fetch_add(1, Ordering::Relaxed) < count;
                println!("done {}", repeat(THREADS, goes_on, tick, one_tick)?);
            }
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
    }
    for mut keeper in keepers {
        // The end of its input is its order to end.
        drop(keeper.stdin.take());
        keeper.wait()?;
    }
    Ok(String::new())
}

/// A process that holds so many idle connections, once all of them are open.
fn keeper(hold: &str, count: usize) -> io::Result<Child> {
    let mut keeper = Command::new(std::env::current_exe()?)
        .args(["client", "keep", hold, &count.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let said = keeper.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let mut line = String::new();
    BufReader::new(said).read_line(&mut line)?;
    match line.trim() {
        "open" => Ok(keeper),
        _ => Err(io::Error::other("idle connections could not be opened")),
    }
}

/// Holds idle connections until its input ends; says when all are open.
pub(crate) fn keep(hold: &str, count: &str) -> io::Result<String> {
    raise_files();
    let all: io::Result<Vec<_>> = (0..number::<usize>(count)?).map(|_| open(hold)).collect();
    let all = all?;
    println!("open");
    io::copy(&mut io::stdin(), &mut io::sink())?;
    drop(all);
    Ok(String::new())
}
