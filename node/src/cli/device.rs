//! `bailey device`.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use serde_json::json;

use super::args::{DeviceAddArgs, DeviceJoinArgs, JsonArgs};
use super::{out, read};
use crate::api::{Ask, Failure, Tell};
use crate::client::Client;
use crate::paths::Paths;
use crate::rows::DeviceRow;
use crate::show;

/// Lets another device join.
pub(super) fn add(args: &DeviceAddArgs) -> Result<u8, Failure> {
    let mut client = ask(&Ask::DeviceAdd {
        addrs: args.addrs.clone(),
    })?;
    loop {
        match client.receive()?.value {
            Tell::Code(code) if args.json => out::json(&json!({"v": 1, "code": code}))?,
            Tell::Code(code) => {
                out::line(&format!(
                    "On the other device, within 5 minutes:\n\n    bailey device join {code}\n"
                ))?;
            }
            Tell::Words {
                words,
                name,
                device,
            } => {
                let name = show::text(&name);
                if args.json {
                    out::json(
                        &json!({"v": 1, "words": words, "name": name, "device": device.to_string()}),
                    )?;
                } else {
                    out::line(&format!("{name} shows the words:  {words}"))?;
                }
                let same = args.yes
                    || confirm(&format!(
                        "Does {name} show the same? It will read the audit of every box and may stop them."
                    ))?;
                client.send(&Ask::Answer(same), &[])?;
            }
            Tell::Joined { account, device } => return joined(&account, &device, args.json),
            Tell::Failed(failure) => return Err(failure),
            _ => {}
        }
    }
}

/// Joins the account of another device.
pub(super) fn join(args: &DeviceJoinArgs) -> Result<u8, Failure> {
    let mut client = ask(&Ask::DeviceJoin {
        code: args.code.clone(),
    })?;
    loop {
        match client.receive()?.value {
            Tell::Words {
                words,
                name,
                device,
            } if args.json => {
                out::json(
                    &json!({"v": 1, "words": words, "name": name, "device": device.to_string()}),
                )?;
            }
            Tell::Words { words, name, .. } => {
                out::line(&format!(
                    "{} must show the words:  {words}",
                    show::text(&name)
                ))?;
            }
            Tell::Joined { account, device } => return joined(&account, &device, args.json),
            Tell::Failed(failure) => return Err(failure),
            _ => {}
        }
    }
}

/// Lists the account's devices.
pub(super) fn list(args: &JsonArgs) -> Result<u8, Failure> {
    read::each(&Ask::DeviceList, |tell| match tell {
        Tell::Device(row) if args.json => out::json(&row),
        Tell::Device(row) => {
            let id: String = row.id.chars().take(8).collect();
            out::line(&format!(
                "{:<20} {id}  {:<7} {}",
                show::text(&row.name),
                row.role,
                state_of(&row)
            ))?;
            match &row.conflict {
                Some(conflict) => out::line(&format!("    {}", show::text(conflict))),
                None => Ok(()),
            }
        }
        _ => Ok(()),
    })
}

/// How a device stands, in words.
fn state_of(row: &DeviceRow) -> String {
    let heard = match &row.last_heard {
        Some(at) => format!("last heard {at}"),
        None => "never heard".to_owned(),
    };
    let state = match (&row.removed_by, row.this, row.connected) {
        (Some(by), ..) => format!("by {}, {heard}", show::text(by)),
        (None, true, _) => "this device".to_owned(),
        (None, _, true) => "connected".to_owned(),
        _ => heard,
    };
    match row.unconfirmed.as_slice() {
        [] => state,
        names => {
            let names: Vec<String> = names.iter().map(|name| show::text(name)).collect();
            format!("{state}; not confirmed by {}", names.join(", "))
        }
    }
}

fn ask(ask: &Ask) -> Result<Client, Failure> {
    let paths = Paths::from_env().map_err(|error| Failure::host(error.to_string()))?;
    Client::ask(&paths, ask, &[])
}

fn joined(
    account: &bailey_model::AccountId,
    device: &bailey_model::DeviceId,
    as_json: bool,
) -> Result<u8, Failure> {
    let (account, device) = (account.to_string(), device.to_string());
    if as_json {
        out::json(&json!({"v": 1, "state": "joined", "account": account, "device": device}))?;
    } else {
        out::line("Both devices are in one account.")?;
    }
    Ok(0)
}

/// A question to a person; without a terminal the answer is no.
fn confirm(question: &str) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage("nobody can compare the words here")
            .hint("--yes, if a script compares them"));
    }
    let mut stderr = std::io::stderr();
    let _unwritable = write!(stderr, "{question} [y/N] ");
    let _unwritable = stderr.flush();
    let mut answer = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(|error| Failure::host(format!("terminal: {error}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
