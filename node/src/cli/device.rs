//! `bailey device`.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use bailey_docs_store::Role;
use serde_json::json;

use super::args::{DeviceAddArgs, DeviceForgetArgs, DeviceJoinArgs, JsonArgs};
use super::{out, read, recovery};
use crate::api::{AddAsk, Ask, Failure, Tell};
use crate::client::Client;
use crate::paths::Paths;
use crate::rows::{DeviceRow, GapRow, MailboxRow};
use crate::show;

/// Lets another device join.
pub(super) fn add(args: &DeviceAddArgs) -> Result<u8, Failure> {
    let mut client = ask(&Ask::DeviceAdd(AddAsk {
        addrs: args.addrs.clone(),
        no_addr: args.no_addr,
        no_mailbox: args.no_mailbox,
        role: args.role,
    }))?;
    loop {
        match client.receive()?.value {
            Tell::Codes {
                long,
                short,
                at,
                mailbox,
                why,
            } if args.json => out::json(&json!({
                "v": 1, "code": long, "short": short, "at": at, "mailbox": mailbox, "why": why,
            }))?,
            Tell::Codes {
                long,
                short,
                mailbox,
                why,
                ..
            } => {
                let found = short.as_deref().is_some_and(|_| why.is_none());
                show_codes(&long, short.as_deref(), why.as_deref())?;
                if let Some(mailbox) = mailbox {
                    out::line(&by_mailbox(&mailbox, found))?;
                }
                show_picture(&long, args.no_qr)?;
            }
            Tell::ShortBurnt if args.json => out::json(&json!({"v": 1, "state": "short burnt"}))?,
            Tell::ShortBurnt => out::say(
                "somebody tried a wrong short code: it is worthless now. The long one still works.",
            ),
            Tell::Note(text) => out::say(&show::sentence(&text)),
            Tell::Words {
                words,
                name,
                device,
                grants,
            } => {
                let name = show::text(&name);
                let grants = grants.map(|grants| grants.text());
                if args.json {
                    let device = device.to_string();
                    out::json(&json!({
                        "v": 1, "words": words, "name": name, "device": device,
                        "role": args.role.as_str(), "grants": grants,
                    }))?;
                } else {
                    out::line(&format!("{name} shows the words:  {words}"))?;
                    out::line(&format!("{name} {}.", grants.unwrap_or_default()))?;
                }
                let same = args.yes
                    || confirm(&format!(
                        "Does {name} show the same words, and may it do that?"
                    ))?;
                client.send(&Ask::Answer(same), &[])?;
            }
            Tell::Joined {
                account,
                device,
                role,
                ..
            } => return joined(&account, &device, role, None, args.json),
            Tell::Failed(failure) => return Err(failure),
            _ => {}
        }
    }
}

/// `HOST:PORT` of a mailbox.
fn place_of(mailbox: &str) -> String {
    let place = mailbox.split_once('@').map_or(mailbox, |(_, place)| place);
    show::text(place)
}

/// What is to be known of a long code with a mailbox in it.
fn by_mailbox(mailbox: &str, found: bool) -> String {
    let place = place_of(mailbox);
    let short = match found {
        true => " The short one goes by this network alone.",
        false => "",
    };
    format!(
        "The long code names the mailbox {place}: it works where both reach that, and the other \
         device goes on using it (--no-mailbox leaves it out).{short}\n"
    )
}

fn show_codes(long: &str, short: Option<&str>, why: Option<&str>) -> Result<(), Failure> {
    if let Some(short) = short {
        out::line(&format!(
            "On the other device, within 5 minutes:\n\n    bailey device join {short}\n\n\
             In another network, or where that finds nothing:\n\n    bailey device join {long}\n"
        ))?;
    } else {
        out::line(&format!(
            "On the other device, within 5 minutes:\n\n    bailey device join {long}\n"
        ))?;
    }
    if let Some(why) = why {
        out::say(&show::sentence(why));
    }
    Ok(())
}

fn show_picture(long: &str, no_qr: bool) -> Result<(), Failure> {
    match super::qr::on_terminal(long).filter(|_| !no_qr) {
        Some(picture) => out::line(&picture),
        None => Ok(()),
    }
}

/// Joins the account of another device.
pub(super) fn join(args: &DeviceJoinArgs) -> Result<u8, Failure> {
    let mut client = ask(&Ask::DeviceJoin {
        code: args.code.join(" "),
        addrs: args.at.clone(),
    })?;
    loop {
        match client.receive()?.value {
            Tell::Words {
                words,
                name,
                device,
                ..
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
            Tell::Note(text) => out::say(&show::sentence(&text)),
            Tell::Joined {
                account,
                device,
                role,
                mailbox,
            } => return joined(&account, &device, role, mailbox.as_deref(), args.json),
            Tell::Failed(failure) => return Err(failure),
            _ => {}
        }
    }
}

/// Forgets a mailbox that came with a code.
pub(super) fn forget(args: &DeviceForgetArgs) -> Result<u8, Failure> {
    read::each(
        &Ask::MailboxForget(args.mailbox.clone()),
        |tell| match tell {
            Tell::Note(text) => out::line(&show::sentence(&text)),
            _ => Ok(()),
        },
    )
}

/// Lists the account's devices.
pub(super) fn list(args: &JsonArgs) -> Result<u8, Failure> {
    let code = read::each(&Ask::DeviceList, |tell| match tell {
        Tell::Device(row) if args.json => out::json(&row),
        Tell::Device(row) => {
            let id: String = row.id.chars().take(8).collect();
            out::line(&format!(
                "{:<20} {id}  {:<7} {}",
                show::text(&row.name),
                row.role,
                state_of(&row)
            ))?;
            let found = findings_of(&row);
            let lines = row.conflict.iter().chain(&found);
            lines
                .map(|line| format!("    {}", show::sentence(line)))
                .try_for_each(|line| out::line(&line))
        }
        Tell::Mailbox(row) if args.json => out::json(&row),
        Tell::Mailbox(row) => out::line(&mailbox_line(&row)),
        _ => Ok(()),
    })?;
    recovery::remind();
    Ok(code)
}

/// A mailbox, in one line.
fn mailbox_line(row: &MailboxRow) -> String {
    let (key, place) = row.mailbox.split_once('@').unwrap_or(("", &row.mailbox));
    let key: String = key.chars().take(8).collect();
    format!(
        "{:<20} {key}  {:<7} {}",
        show::text(place),
        "mailbox",
        mailbox_state(row)
    )
}

/// How a mailbox stands, in words: what was heard of it, then what is wrong with it.
fn mailbox_state(row: &MailboxRow) -> String {
    let mut said = vec![match (&row.last_heard, row.connected) {
        (Some(at), true) => format!("heard {at}"),
        (Some(at), false) => format!("not reached since {at}"),
        (None, _) => "not reached yet".to_owned(),
    }];
    said.extend(row.why.as_deref().map(show::sentence));
    if let Some(refused) = &row.refused {
        said.push(format!("keeps nothing more: {}", show::text(refused)));
    }
    if let Some(device) = &row.older_than {
        said.push(format!(
            "shows an older head than {} saw",
            show::text(device)
        ));
    }
    if row.went_back {
        said.push("it went back behind what it had".to_owned());
    }
    if row.from_code {
        said.push("named by the code".to_owned());
    }
    if row.bad > 0 {
        said.push(format!("{} of what it gave was good for nothing", row.bad));
    }
    said.join("; ")
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

/// What is to be known of a device beside its state.
fn findings_of(row: &DeviceRow) -> Vec<String> {
    let gap = |gap: &GapRow| {
        let (have, shows) = match gap.shown {
            true => (gap.have, format!("{} shows", row.name)),
            false => (gap.have, "here are".to_owned()),
        };
        format!(
            "{}: {} saw {} envelopes (said {}), {shows} {have}",
            gap.doc, gap.by, gap.seen, gap.at
        )
    };
    let mut found: Vec<String> = row.gaps.iter().map(gap).collect();
    let went_back = row.went_back.as_ref();
    found.extend(went_back.map(|at| format!("went back to an older copy, seen {at}")));
    let two = row.two_of_one.as_ref();
    found.extend(two.map(|at| {
        format!("signed two envelopes with one number, seen {at}: bailey store check has both")
    }));
    let ahead = row.clock_ahead.map(clock_ahead);
    found.extend(ahead);
    let rest = "began more chains than are synced: of those the newest are";
    found.extend(row.left_out.then(|| rest.to_owned()));
    found
}

/// In words, and in no more detail than a person needs.
fn clock_ahead(seconds: u64) -> String {
    let (count, unit) = match seconds {
        172_800.. => (seconds / 86_400, "days"),
        7_200.. => (seconds / 3_600, "hours"),
        _ => (seconds / 60, "minutes"),
    };
    format!("its clock is {count} {unit} ahead of this one's")
}

fn ask(ask: &Ask) -> Result<Client, Failure> {
    let paths = Paths::from_env().map_err(|error| Failure::host(error.to_string()))?;
    Client::ask(&paths, ask, &[])
}

fn joined(
    account: &bailey_model::AccountId,
    device: &bailey_model::DeviceId,
    role: Role,
    mailbox: Option<&str>,
    as_json: bool,
) -> Result<u8, Failure> {
    let (account, device) = (account.to_string(), device.to_string());
    if as_json {
        let role = role.as_str();
        out::json(&json!({
            "v": 1, "state": "joined", "account": account, "device": device, "role": role,
            "mailbox": mailbox,
        }))?;
    } else {
        out::line(&format!(
            "Both devices are in one account, the new one as `{}`.",
            role.as_str()
        ))?;
        if let Some(mailbox) = mailbox {
            let place = place_of(mailbox);
            out::line(&format!(
                "This one goes on using the mailbox {place}, which the code named. To forget it: {}",
                crate::account::command(&format!("device forget {place}"))
            ))?;
        }
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
