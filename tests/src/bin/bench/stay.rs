//! A client that holds connections open and does what it is told meanwhile.

use std::io::{self, BufRead as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::client::{number, one_tick, open, quantile, raise_files, repeat, trips};

/// Short connections at a time.
const THREADS: u32 = 32;

/// Opens `count` idle connections and says so; then for each line of its input:
/// `trips N` round trips of a byte, of which it says the median in microseconds,
/// or `short N` connections of a byte each, of which it says the rate.
pub(crate) fn stay([hold, echo, tick]: [&str; 3], count: &str) -> io::Result<String> {
    raise_files();
    let mut stream = open(echo)?;
    let count: usize = number(count)?;
    let mut idle = Vec::with_capacity(count);
    for at in 0..count {
        let one = open(hold).map_err(|error| io::Error::other(format!("idle {at}: {error}")))?;
        idle.push(one);
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
    drop(idle);
    Ok(String::new())
}
