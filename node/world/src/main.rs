//! `bailey-world`: the processes of a world, and a way to try one by hand.
//!
//! `bailey-world try [NODES] -- COMMAND…` starts a world, runs the command as
//! the ordinary user of `n1`, and ends both.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use bailey_world::{World, WorldSpec, serve};

/// Exit codes: bailey's own failure, and a wrong command line.
const EXIT_FAILED: u8 = 125;
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1).peekable();
    if words.next_if(|word| word == "try").is_none() {
        serve(words);
    }
    let nodes = match words.peek().and_then(|word| word.to_str()?.parse().ok()) {
        Some(nodes) => {
            words.next();
            nodes
        }
        None => 1,
    };
    if words.next_if(|word| word == "--").is_none() || words.peek().is_none() {
        let _unread = writeln!(
            std::io::stderr(),
            "usage: bailey-world try [NODES] -- COMMAND…"
        );
        return ExitCode::from(EXIT_USAGE);
    }
    match attempt(nodes, words.collect()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let _unread = writeln!(std::io::stderr(), "{error}");
            ExitCode::from(EXIT_FAILED)
        }
    }
}

fn attempt(nodes: u8, command: Vec<OsString>) -> Result<u8, Box<dyn std::error::Error>> {
    let server = vec![std::env::current_exe()?.into_os_string()];
    let spec = WorldSpec {
        tun: false,
        ..WorldSpec::new(server, nodes)
    };
    let world = World::start(spec)?;
    let mut words = command.into_iter();
    let program = words.next().unwrap_or_default();
    let status = world.node("n1")?.command(program).args(words).status()?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(EXIT_FAILED))
}
