//! `bailey-escapes`: every attack in every tier of bailey, outside of all as the
//! control, and in each peer that is installed, in one run and one table.
//!
//! It ends with 1 if a tier let something through that it promises to hold, or
//! if an attack that nothing held back did not work: a row that cannot fail
//! shows nothing.

use std::collections::BTreeMap;
use std::process::{Command, ExitCode};

use bailey_tests::escape::{ATTACKS, Attack, Control, Sandbox, Tried, Yard};

const USAGE: &str = "usage: bailey-escapes [--why] [--only NAME] [--markdown]";

#[derive(Default)]
struct Wanted {
    /// Each answer in words, as it comes.
    why: bool,
    /// One attack alone.
    only: Option<String>,
    /// The table for a document.
    markdown: bool,
}

fn main() -> ExitCode {
    let Some(wanted) = read(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let columns = columns();
    let yard = Yard::new();
    let mut table = Table::default();
    for attack in ATTACKS {
        if wanted.only.as_ref().is_some_and(|name| name != attack.name) {
            continue;
        }
        let row: Vec<(Sandbox, Tried)> = columns
            .iter()
            .map(|sandbox| (*sandbox, sandbox.attempt(&yard, attack)))
            .collect();
        if wanted.why {
            for (sandbox, tried) in &row {
                println!("{} in {}: {tried:?}", attack.name, sandbox.name());
            }
        }
        table.add(attack, row);
    }
    drop(yard);
    table.print(&columns, wanted.markdown);
    if table.faults.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn read(mut words: impl Iterator<Item = String>) -> Option<Wanted> {
    let mut wanted = Wanted::default();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--why" => wanted.why = true,
            "--markdown" => wanted.markdown = true,
            "--only" => wanted.only = Some(words.next()?),
            _ => return None,
        }
    }
    Some(wanted)
}

/// The control, bailey's tiers, and what of the peers is installed.
fn columns() -> Vec<Sandbox> {
    let installed = |sandbox: &Sandbox| {
        let Some(program) = sandbox.needs() else {
            return true;
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        let there = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
        if !there {
            println!("{program} is not installed: it is not tried");
        }
        there
    };
    let mut all = vec![Sandbox::Outside];
    all.extend(Sandbox::TIERS);
    all.extend(Sandbox::PEERS.into_iter().filter(installed));
    all
}

#[derive(Default)]
struct Table {
    lines: Vec<(&'static str, Vec<String>)>,
    held: BTreeMap<&'static str, [usize; 3]>,
    faults: Vec<String>,
}

impl Table {
    fn add(&mut self, attack: &Attack, row: Vec<(Sandbox, Tried)>) {
        let works = row.iter().any(|(sandbox, tried)| {
            *sandbox == control(attack) && matches!(tried, Tried::Through(_))
        });
        if !works {
            self.faults.push(format!(
                "{}: it does not work where nothing holds it, so it shows nothing",
                attack.name
            ));
        }
        let mut cells = Vec::new();
        for (sandbox, tried) in row {
            let [held, through, not_here] = self.held.entry(sandbox.name()).or_default();
            let promised = match sandbox {
                Sandbox::Bailey(tier) => attack.promise.holds(tier),
                _ => false,
            };
            let cell = match (&tried, sandbox) {
                // What it aims at is not there outside.
                (Tried::Held(_), Sandbox::Outside) if attack.control != Control::Outside => {
                    *not_here += 1;
                    "–"
                }
                (Tried::Held(_), _) => {
                    *held += 1;
                    "held"
                }
                (Tried::Through(_), Sandbox::Bailey(_)) if !promised => {
                    *through += 1;
                    "THROUGH°"
                }
                (Tried::Through(_), _) => {
                    *through += 1;
                    "THROUGH"
                }
                (Tried::NotHere(_), _) => {
                    *not_here += 1;
                    "–"
                }
            };
            if promised && !matches!(tried, Tried::Held(_)) {
                let name = sandbox.name();
                self.faults
                    .push(format!("{} in {name}: {tried:?}", attack.name));
            }
            cells.push(cell.to_owned());
        }
        self.lines.push((attack.what, cells));
    }

    fn print(&self, columns: &[Sandbox], markdown: bool) {
        let heads: Vec<String> = columns.iter().map(|c| c.name().to_owned()).collect();
        print_line("attack", &heads, markdown);
        if markdown {
            println!("|---|{}", "---|".repeat(heads.len()));
        }
        for (what, cells) in &self.lines {
            print_line(what, cells, markdown);
        }
        let total = |index: usize| -> Vec<String> {
            let of = |column: &Sandbox| self.held.get(column.name()).map_or(0, |n| n[index]);
            columns
                .iter()
                .map(|column| of(column).to_string())
                .collect()
        };
        for (index, word) in ["held", "through", "not tried"].into_iter().enumerate() {
            print_line(word, &total(index), markdown);
        }
        println!();
        println!("° this tier does not promise to hold it   – not there, or not to be tried there");
        for column in columns {
            if let Some(version) = version(*column) {
                println!("{}: {version}", column.name());
            }
        }
        for fault in &self.faults {
            println!("FAILED {fault}");
        }
    }
}

fn control(attack: &Attack) -> Sandbox {
    match attack.control {
        Control::Outside => Sandbox::Outside,
        Control::Namespaces => Sandbox::Namespaces,
    }
}

fn print_line(what: &str, cells: &[String], markdown: bool) {
    if markdown {
        println!("| {what} | {} |", cells.join(" | "));
        return;
    }
    let cells: String = cells.iter().map(|cell| format!("{cell:<10}")).collect();
    println!("{what:<52}{}", cells.trim_end());
}

/// What a peer says of its version.
fn version(sandbox: Sandbox) -> Option<String> {
    let program = sandbox.needs()?;
    let output = Command::new(program).arg("--version").output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(
        said.lines()
            .next()
            .filter(|line| !line.is_empty())?
            .to_owned(),
    )
}
