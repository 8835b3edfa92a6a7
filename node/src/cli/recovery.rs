//! `bailey device recovery`: the key on paper, and the account's copy.

use std::fs::{File, OpenOptions};
use std::io::{IsTerminal as _, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde_json::json;

use super::args::{RecoverArgs, RecoveryArgs};
use super::out;
use crate::account;
use crate::api::{Ask, Failure, RecoveryAsk, Tell};
use crate::client::Client;
use crate::paths::Paths;
use crate::show;

/// Words that are asked for after all were shown.
const ASKED: usize = 4;
/// Answers that may be wrong before it is put off.
const SLIPS: usize = 3;
/// More than any words are long.
const MAX_TYPED: u64 = 4096;
/// What a terminal is cleared by, what scrolled out of sight too.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J\u{1b}[3J";

/// Said wherever it is not done.
pub(super) fn undone() -> String {
    let shows = account::command("device recovery");
    format!("the recovery key is not on paper yet: `{shows}` shows it")
}

/// Says that the recovery key still lies here, where that is so and a person reads.
pub(super) fn remind() {
    if std::io::stderr().is_terminal() && is_undone() {
        out::say(&undone());
    }
}

/// Whether the recovery key of this device's account is kept here, for want of paper.
pub(super) fn is_undone() -> bool {
    Paths::from_env().is_ok_and(|paths| paths.state.join("recovery.seed").exists())
}

/// Shows the words and has some typed again, or does what else was asked for.
pub(super) fn recovery(args: &RecoveryArgs) -> Result<u8, Failure> {
    match (&args.save, &args.load) {
        (Some(path), _) => return save(path),
        (_, Some(path)) => return load(path),
        _ => {}
    }
    if args.check {
        return check();
    }
    let Tell::RecoveryWords(words) = ask(RecoveryAsk::Words)? else {
        return Err(Failure::internal("the node answered something else"));
    };
    let Some(words) = words else {
        return Err(
            Failure::usage("the recovery key is not kept on this device")
                .hint("it is on paper, or with the device that began the account; --check tells"),
        );
    };
    if args.print {
        out::line(&words.join(" "))?;
        return Ok(0);
    }
    if !(std::io::stdin().is_terminal() && std::io::stdout().is_terminal()) {
        return Err(Failure::usage("nobody can write the words down here")
            .hint("--print, then --check, if a script does"));
    }
    on_paper(&words)
}

fn on_paper(words: &[String]) -> Result<u8, Failure> {
    out::line(&format!(
        "These {} words bring the account back when every device is lost. Whoever has them\n\
         can take it over. Write them on paper; put off by Ctrl-C.\n",
        words.len()
    ))?;
    for (row, four) in words.chunks(4).enumerate() {
        let cells = four
            .iter()
            .enumerate()
            .map(|(at, word)| format!("{:>4} {word:<10}", row * 4 + at + 1));
        out::line(cells.collect::<String>().trim_end())?;
    }
    prompt("\nWhen they are on paper, press Enter. ")?;
    out::line(CLEAR)?;
    let mut slips = 0;
    for at in some_of(words.len())? {
        while prompt(&format!("Word {}: ", at + 1))?.to_lowercase() != words[at] {
            slips += 1;
            if slips >= SLIPS {
                return Err(Failure::usage("that is not what was shown").hint(format!(
                    "nothing was erased; `{}` shows it again",
                    account::command("device recovery")
                )));
            }
            out::line("It is another one. Look at the paper.")?;
        }
    }
    match ask(RecoveryAsk::Check(words.join(" ")))? {
        Tell::RecoveryRight(true) => {
            out::line("The recovery key is on paper, and on this device no more.")?;
            Ok(0)
        }
        _ => Err(Failure::internal("the node does not know its own words")),
    }
}

/// Some places below a number, each once, in order.
fn some_of(count: usize) -> Result<Vec<usize>, Failure> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(|error| Failure::host(format!("entropy: {error}")))?;
    let mut places: Vec<usize> = (0..count).collect();
    // The first few of a shuffled row; the sway of the remainder does no harm here.
    for (at, byte) in random.iter().enumerate().take(ASKED.min(count)) {
        let other = at + usize::from(*byte) % (count - at);
        places.swap(at, other);
    }
    places.truncate(ASKED);
    places.sort_unstable();
    Ok(places)
}

fn prompt(text: &str) -> Result<String, Failure> {
    let mut stdout = std::io::stdout();
    let fault = |error: std::io::Error| Failure::host(format!("terminal: {error}"));
    write!(stdout, "{text}")
        .and_then(|()| stdout.flush())
        .map_err(fault)?;
    let mut line = String::new();
    match std::io::stdin().read_line(&mut line).map_err(fault)? {
        0 => Err(Failure::usage("put off: nothing was erased")),
        _ => Ok(line.trim().to_owned()),
    }
}

/// Words from standard input.
pub(super) fn typed() -> Result<String, Failure> {
    if std::io::stdin().is_terminal() {
        return prompt("The words of the recovery key, in order: ");
    }
    let mut typed = String::new();
    std::io::stdin()
        .take(MAX_TYPED)
        .read_to_string(&mut typed)
        .map_err(|error| Failure::host(format!("standard input: {error}")))?;
    Ok(typed)
}

fn check() -> Result<u8, Failure> {
    let typed = typed()?;
    let undone = is_undone();
    match ask(RecoveryAsk::Check(typed))? {
        Tell::RecoveryRight(true) if undone => {
            out::line("These are the words. They are on this device no more.")?;
            Ok(0)
        }
        Tell::RecoveryRight(true) => {
            out::line("These are the words.")?;
            Ok(0)
        }
        _ => {
            out::line("These are not the words of this account.")?;
            Ok(1)
        }
    }
}

fn named(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    let shown = show::bytes(path.as_os_str().as_bytes());
    Failure::host(format!("{shown}: {why}"))
}

fn save(path: &Path) -> Result<u8, Failure> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| named(path, &error))?;
    match with_file(RecoveryAsk::Save, &file) {
        Ok(Tell::Copied { envelopes, bytes }) => {
            out::say(&format!(
                "{envelopes} envelopes, {bytes} bytes; sealed, so only a member or the recovery key reads them"
            ));
            Ok(0)
        }
        other => {
            // Half a copy is none.
            let _gone = std::fs::remove_file(path);
            Err(other
                .err()
                .unwrap_or_else(|| Failure::internal("the node answered something else")))
        }
    }
}

fn load(path: &Path) -> Result<u8, Failure> {
    let file = File::open(path).map_err(|error| named(path, &error))?;
    match with_file(RecoveryAsk::Load, &file)? {
        Tell::Taken { new, refused } => {
            out::line(&format!("{new} envelopes are new here"))?;
            if refused > 0 {
                out::say(&format!(
                    "{refused} were refused: they are not the account's, or do not fit"
                ));
            }
            Ok(0)
        }
        _ => Err(Failure::internal("the node answered something else")),
    }
}

/// Brings an account back.
pub(super) fn recover(args: &RecoverArgs) -> Result<u8, Failure> {
    let file = File::open(&args.copy).map_err(|error| named(&args.copy, &error))?;
    let ask = RecoveryAsk::Recover {
        words: typed()?,
        keep: args.keep.clone(),
    };
    let Tell::Recovered {
        account,
        kept,
        out,
        keys,
    } = with_file(ask, &file)?
    else {
        return Err(Failure::internal("the node answered something else"));
    };
    if args.json {
        let kept: Vec<String> = kept.iter().map(ToString::to_string).collect();
        let out: Vec<String> = out.iter().map(|(id, _)| id.to_string()).collect();
        out::json(&json!({
            "v": 1, "state": "recovered", "account": account.to_string(),
            "kept": kept, "out": out, "keys": keys,
        }))?;
        return Ok(0);
    }
    out::line("The account is back, on this device.")?;
    for (id, name) in &out {
        let id: String = id.to_string().chars().take(8).collect();
        out::line(&format!(
            "{:<20} {id}  is out of it from now on",
            show::text(name)
        ))?;
    }
    out::line("Its recovery key is another one now, and the old words are worth nothing:")?;
    let shows = account::command("device recovery");
    out::line(&format!("`{shows}` shows the new ones."))?;
    if kept.len() > 1 {
        out::line(&format!(
            "Devices that stay hear of it by a copy: `{shows} --save FILE`"
        ))?;
        out::line("here, `bailey device recovery --load FILE` there.")?;
    }
    Ok(0)
}

fn ask(ask: RecoveryAsk) -> Result<Tell, Failure> {
    answer(Client::ask(&paths()?, &Ask::Recovery(ask), &[])?)
}

fn with_file(ask: RecoveryAsk, file: &File) -> Result<Tell, Failure> {
    answer(Client::ask(
        &paths()?,
        &Ask::Recovery(ask),
        &[file.as_fd()],
    )?)
}

fn paths() -> Result<Paths, Failure> {
    Paths::from_env().map_err(|error| Failure::host(error.to_string()))
}

fn answer(mut client: Client) -> Result<Tell, Failure> {
    loop {
        match client.receive()?.value {
            Tell::Failed(failure) => return Err(failure),
            tell @ (Tell::RecoveryWords(_)
            | Tell::RecoveryRight(_)
            | Tell::Copied { .. }
            | Tell::Recovered { .. }
            | Tell::Taken { .. }) => return Ok(tell),
            _ => {}
        }
    }
}
