//! `bailey-sim`: histories of a few devices, one a seed, on every core.

use std::process::ExitCode;
use std::time::Instant;

use bailey_tests::sim;

const USAGE: &str = "usage: bailey-sim [--seed FIRST] [--seeds COUNT]";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some((first, count)) = read(&words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let begun = Instant::now();
    match sim::run_many(first, count) {
        Ok(sum) => {
            println!(
                "{count} histories from seed {first} in {:.1} s: {sum}",
                begun.elapsed().as_secs_f64()
            );
            ExitCode::SUCCESS
        }
        Err(failed) => {
            eprintln!("{failed}");
            ExitCode::FAILURE
        }
    }
}

fn read(words: &[String]) -> Option<(u64, u64)> {
    let (mut first, mut count) = (1, 1000);
    for pair in words.chunks(2) {
        match pair {
            [name, value] if name == "--seed" => first = value.parse().ok()?,
            [name, value] if name == "--seeds" => count = value.parse().ok()?,
            _ => return None,
        }
    }
    Some((first, count))
}
