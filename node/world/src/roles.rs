//! The processes that make up a world, each one role of one program.
//!
//! | role | where it lives | what it does |
//! |---|---|---|
//! | outer | the owner's namespaces | leaves root, makes the world's namespaces, waits, clears up |
//! | init | pid 1 of the world, in the router's network | router, LAN, servers; obeys its owner's lines |
//! | holder | one a node | makes the node's namespaces and configures its network |
//! | node | pid 1 of a node | maps the ordinary user, adopts orphans |
//! | enter | from outside into a node | runs one command there, passes signals and the exit code |

mod enter;
mod holder;
mod init;
mod node;
mod outer;

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::PathBuf;

use crate::control::{Failure, Line, Step as _};

/// The running program, whatever its path and whoever may pass through it.
const SELF: &str = "/proc/self/exe";

/// Exit code of a role that failed before its command ran.
const EXIT_FAILED: i32 = 125;

/// Plays the role that the arguments name, and never returns.
///
/// A program that is named in [`crate::WorldSpec::server`] calls this with the
/// arguments that follow its own, from its `main`, before it starts a thread:
/// namespaces are entered by the calling thread alone.
pub fn serve(args: impl IntoIterator<Item = OsString>) -> ! {
    let mut args = Args(args.into_iter().collect::<Vec<_>>().into_iter());
    let role = args.word("role").unwrap_or_default();
    let outcome = match role.as_str() {
        "outer" => outer::run(&mut args),
        "init" => init::run(&mut args),
        "holder" => holder::run(&mut args),
        "node" => node::run(&mut args),
        "enter" => enter::run(&mut args),
        other => Err(Failure::new("role", format!("there is no role `{other}`"))),
    };
    match outcome {
        Ok(code) => std::process::exit(code),
        Err(failure) => {
            let _unread = writeln!(
                std::io::stderr(),
                "world: {}: {}",
                failure.step,
                failure.detail
            );
            // The standard output of `enter` is its command's.
            if role != "enter" {
                tell(&failure.line());
            }
            std::process::exit(EXIT_FAILED)
        }
    }
}

/// Writes one line to the owner.
fn tell(line: &Line) {
    let mut out = std::io::stdout().lock();
    // An owner that is gone reads nothing; its end ends this process anyway.
    let _gone = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// The arguments of a role.
struct Args(std::vec::IntoIter<OsString>);

impl Args {
    fn raw(&mut self, what: &str) -> Result<OsString, Failure> {
        self.0
            .next()
            .ok_or_else(|| Failure::new("arguments", format!("{what} is missing")))
    }

    fn word(&mut self, what: &str) -> Result<String, Failure> {
        self.raw(what)?.into_string().map_err(|word| {
            Failure::new(
                "arguments",
                format!("{what}: {} is not text", word.display()),
            )
        })
    }

    fn number<N: std::str::FromStr<Err: std::fmt::Display>>(
        &mut self,
        what: &str,
    ) -> Result<N, Failure> {
        self.word(what)?.parse().step(what)
    }

    fn path(&mut self, what: &str) -> Result<PathBuf, Failure> {
        self.raw(what).map(PathBuf::from)
    }

    fn rest(&mut self) -> Vec<OsString> {
        self.0.by_ref().collect()
    }
}

/// This program in another role, with the program's own first arguments.
///
/// The role's word is the first that the program itself does not know, so
/// what stands before it is repeated.
fn again(role: &str) -> std::process::Command {
    let own: Vec<OsString> = std::env::args_os()
        .skip(1)
        .take_while(|word| !ROLES.iter().any(|role| word == OsStr::new(role)))
        .collect();
    let mut command = std::process::Command::new(SELF);
    command.args(own).arg(role);
    command
}

/// The words of the roles.
const ROLES: [&str; 5] = ["outer", "init", "holder", "node", "enter"];
