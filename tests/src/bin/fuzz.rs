//! `bailey-fuzz`: every target on random bytes, for a while each.
//!
//! The seed that is printed makes the same inputs again: `--seed` with the one
//! of a failure and `--seconds 0` runs that input alone.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use bailey_tests::fuzz::{Target, hex, targets};

const USAGE: &str = "usage: bailey-fuzz [--seconds N | --runs N] [--seed N] [--target NAME]";

/// An input that takes longer does not end.
const ENDLESS: Duration = Duration::from_secs(20);

/// Panics so far, those that a target catches itself among them.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// What the last one said, and where.
static LAST: Mutex<String> = Mutex::new(String::new());

#[derive(Clone, Copy)]
enum Length {
    Time(Duration),
    Runs(u32),
}

struct Wanted {
    length: Length,
    seed: u64,
    target: Option<String>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let all = targets();
    let Some(wanted) = read(&words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let chosen = |target: &Target| {
        wanted
            .target
            .as_ref()
            .is_none_or(|name| name == target.name())
    };
    let chosen: Vec<Target> = all.into_iter().filter(chosen).collect();
    if chosen.is_empty() {
        eprintln!("no such target; {USAGE}");
        return ExitCode::from(2);
    }

    std::panic::set_hook(Box::new(|info| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        *LAST.lock().unwrap_or_else(PoisonError::into_inner) = info.to_string();
    }));
    match wanted.length {
        Length::Time(length) => println!("seed {}, {length:?} a target", wanted.seed),
        Length::Runs(runs) => println!("seed {}, {runs} runs a target", wanted.seed),
    }
    println!(
        "{:<12} {:>10} {:>10} {:>14} {:>16}",
        "target", "runs", "runs/s", "slowest", "panics caught"
    );
    for target in chosen {
        if !fuzz(target, wanted.length, wanted.seed) {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn read(words: &[String]) -> Option<Wanted> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let mut wanted = Wanted {
        length: Length::Time(Duration::from_secs(10)),
        // Runs that begin seconds apart must not share their inputs.
        seed: since.map_or(1, |since| since.as_secs() << 24),
        target: None,
    };
    for pair in words.chunks(2) {
        let [name, value] = pair else { return None };
        match name.as_str() {
            "--seconds" => {
                wanted.length = Length::Time(Duration::from_secs(value.parse().ok()?));
            }
            "--runs" => wanted.length = Length::Runs(value.parse().ok()?),
            "--seed" => wanted.seed = value.parse().ok()?,
            "--target" => wanted.target = Some(value.clone()),
            _ => return None,
        }
    }
    Some(wanted)
}

/// Runs a target once and then until the time is over, or so often, and prints
/// its line.
fn fuzz(target: Target, length: Length, first: u64) -> bool {
    let target = Arc::new(target);
    let now = Arc::new(AtomicU64::new(first));
    watch(Arc::clone(&target), Arc::downgrade(&now), ENDLESS);
    let (start, mut slowest) = (Instant::now(), Duration::ZERO);
    let caught_before = PANICS.load(Ordering::Relaxed);
    let mut runs = 0_u32;
    let whole = loop {
        let seed = first.wrapping_add(runs.into());
        now.store(seed, Ordering::Relaxed);
        let input = target.input(seed);
        let began = Instant::now();
        if target.run(&input).is_err() {
            let said = LAST.lock().unwrap_or_else(PoisonError::into_inner).clone();
            report(&target, seed, &input, &said);
            break false;
        }
        slowest = slowest.max(began.elapsed());
        runs = runs.saturating_add(1);
        let enough = match length {
            Length::Time(length) => start.elapsed() >= length,
            Length::Runs(most) => runs >= most,
        };
        if enough {
            break true;
        }
    };
    let caught = PANICS.load(Ordering::Relaxed) - caught_before;
    println!(
        "{:<12} {runs:>10} {:>10.0} {:>11.2} ms {:>16}",
        target.name(),
        f64::from(runs) / start.elapsed().as_secs_f64(),
        slowest.as_secs_f64() * 1e3,
        caught - u64::from(!whole),
    );
    whole
}

/// Ends the program if a target stays with one input, until its `now` is gone.
fn watch(target: Arc<Target>, now: std::sync::Weak<AtomicU64>, limit: Duration) {
    thread::spawn(move || {
        let mut last = (None, Instant::now());
        while let Some(seed) = now.upgrade().map(|now| now.load(Ordering::Relaxed)) {
            if last.0 != Some(seed) {
                last = (Some(seed), Instant::now());
            } else if last.1.elapsed() > limit {
                let said = format!("it does not end: {limit:?} and more");
                report(&target, seed, &target.input(seed), &said);
                std::process::exit(1);
            }
            thread::sleep(Duration::from_millis(250));
        }
    });
}

fn report(target: &Target, seed: u64, input: &[u8], said: &str) {
    let name = target.name();
    println!("{name} FAILED: {said}");
    println!("  input: {}", hex(input));
    println!("  again: bailey-fuzz --target {name} --seed {seed} --seconds 0");
}
