//! `bailey account`, and what else is about more than one account.

use std::os::fd::OwnedFd;
use std::time::Duration;

use super::args::{AccountAddArgs, JsonArgs};
use super::out;
use crate::account::{self, AccountName};
use crate::api::{Ask, BesideAsk, Failure, RunAsk, Tell};
use crate::client::Client;
use crate::paths::Paths;
use crate::rows::{self, AccountRow};
use crate::show;

/// How long the node of another account may take to answer: no box waits for it longer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Says which account this command line is about, by its words or its environment. One
/// that is `about_all` of them may name whichever it likes.
///
/// # Errors
/// The name is none, or nobody has begun such an account: a misspelt name must not
/// begin one.
pub(super) fn choose(named: Option<&str>, about_all: bool) -> Result<(), Failure> {
    let variable = std::env::var_os(account::VARIABLE);
    account::choose(named, variable.as_deref())
        .map_err(|error| Failure::usage(error.to_string()))?;
    let Some(name) = account::chosen() else {
        return Ok(());
    };
    if about_all || first()?.of(Some(name)).exist() {
        return Ok(());
    }
    Err(
        Failure::usage(format!("there is no account {name} here")).hint(format!(
            "bailey account list names them; bailey account add {name} begins one"
        )),
    )
}

/// Begins an account: its folder is all there is of it.
pub(super) fn add(args: &AccountAddArgs) -> Result<u8, Failure> {
    let name = AccountName::of(&args.name).map_err(|error| Failure::usage(error.to_string()))?;
    let first = first()?;
    let paths = first.clone().of(name.as_ref());
    let (Some(name), false) = (&name, paths.exist()) else {
        return Err(Failure::usage(format!(
            "there is an account {} already",
            account::shown(name.as_ref())
        )));
    };
    let host = |error: &dyn std::fmt::Display| Failure::host(error.to_string());
    first.create().map_err(|error| host(&error))?;
    let others = account::listed(&first.state).map_err(|error| host(&error))?;
    if others.len() >= account::MAX_ACCOUNTS {
        return Err(Failure::usage(format!(
            "there are {} accounts beside the first already",
            others.len()
        )));
    }
    paths.create().map_err(|error| host(&error))?;
    match args.json {
        true => out::json(&row_of(&paths, Some(name)))?,
        false => out::line(&format!(
            "bailey --account {name} VERB is about it, as is every command with {}={name}",
            account::VARIABLE
        ))?,
    }
    Ok(0)
}

/// Lists the user's accounts on this machine.
pub(super) fn list(args: &JsonArgs) -> Result<u8, Failure> {
    let first = first()?;
    let names = account::listed(&first.state);
    let names = names.map_err(|error| Failure::host(format!("{}: {error}", account::FOLDER)))?;
    for name in std::iter::once(None).chain(names.iter().map(Some)) {
        let row = row_of(&first.clone().of(name), name);
        match args.json {
            true => out::json(&row)?,
            false => out::line(&line_of(&row))?,
        }
    }
    Ok(0)
}

/// By its node where it runs, else by what lies there.
fn row_of(paths: &Paths, name: Option<&AccountName>) -> AccountRow {
    let called = account::shown(name);
    let asked = Client::ask_running(paths, &Ask::Account, PATIENCE);
    let answer = asked.and_then(|client| client.map(|mut client| client.receive()).transpose());
    let (running, boxes) = match answer {
        Ok(Some(message)) => match message.value {
            Tell::Account(row) => return row,
            _ => (true, None),
        },
        Ok(None) => (false, Some(0)),
        Err(failure) => {
            out::say(&format!(
                "account {called}: {}",
                show::sentence(&failure.text)
            ));
            (true, None)
        }
    };
    let stored = bailey_docs_store::account_of(&paths.state);
    let account = stored.unwrap_or_else(|error| {
        out::say(&format!(
            "account {called}: {}",
            show::sentence(&error.to_string())
        ));
        None
    });
    AccountRow {
        v: rows::V,
        name: called.to_owned(),
        account: account.map(|account| account.to_string()),
        running,
        boxes,
        devices: None,
    }
}

fn line_of(row: &AccountRow) -> String {
    let id = match &row.account {
        Some(id) => id.chars().take(8).collect(),
        None => "not made".to_owned(),
    };
    let counted = |count: Option<usize>, one: &str, many: &str| match count {
        Some(1) => format!("1 {one}"),
        Some(count) => format!("{count} {many}"),
        None => format!("{many}: not known"),
    };
    let state = match row.running {
        true => format!(
            "node running, {}, {}",
            counted(row.boxes, "box", "boxes"),
            counted(row.devices, "device", "devices")
        ),
        false => "node not running".to_owned(),
    };
    format!("{:<20} {id:<8}  {state}", show::text(&row.name))
}

/// Says at this terminal, and at those concerned, which boxes of other accounts write
/// what this one will. The nodes do not speak to one another: who asks is the person.
pub(super) fn tell_beside(ask: &RunAsk, held: &[OwnedFd], quiet: bool) -> Result<(), Failure> {
    let writable = writable(ask, held)?;
    let first = first()?;
    if writable.is_empty() {
        return Ok(());
    }
    let names = account::listed(&first.state);
    let names = names.map_err(|error| Failure::host(format!("{}: {error}", account::FOLDER)))?;
    let own = account::chosen();
    for name in std::iter::once(None).chain(names.iter().map(Some)) {
        if name == own {
            continue;
        }
        let ask = Ask::Beside(BesideAsk {
            account: account::shown(own).to_owned(),
            writable: writable.clone(),
        });
        let said = answers(&first.clone().of(name), &ask).unwrap_or_else(|failure| {
            vec![format!(
                "whether boxes of your account {} write the same is not known: {}",
                account::shown(name),
                failure.text
            )]
        });
        for note in said.iter().filter(|_| !quiet) {
            out::say(&show::sentence(note));
        }
    }
    Ok(())
}

/// Path, device and inode of what the box may write.
fn writable(ask: &RunAsk, held: &[OwnedFd]) -> Result<Vec<(Vec<u8>, u64, u64)>, Failure> {
    let pairs = ask.grants.iter().zip(held);
    pairs
        .filter(|(grant, _)| !grant.read_only)
        .map(|(grant, fd)| {
            let stat =
                rustix::fs::fstat(fd).map_err(|error| Failure::host(format!("grants: {error}")))?;
            Ok((grant.path.clone(), stat.st_dev, stat.st_ino))
        })
        .collect()
}

fn answers(paths: &Paths, ask: &Ask) -> Result<Vec<String>, Failure> {
    let mut notes = Vec::new();
    let Some(mut client) = Client::ask_running(paths, ask, PATIENCE)? else {
        return Ok(notes);
    };
    loop {
        match client.receive()?.value {
            Tell::Note(note) => notes.push(note),
            Tell::Failed(failure) => return Err(failure),
            _ => return Ok(notes),
        }
    }
}

fn first() -> Result<Paths, Failure> {
    Paths::of_user().map_err(|error| Failure::host(error.to_string()))
}
