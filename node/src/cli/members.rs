//! `bailey device remove`, `role`, `leave` and `rotate`.

use serde_json::json;

use super::args::{DeviceRemoveArgs, DeviceRoleArgs, JsonArgs};
use super::{out, read, recovery};
use crate::account;
use crate::api::{Ask, Failure, Tell};
use crate::rows::RemovedRow;
use crate::show;

/// Takes a device out of the account.
pub(super) fn remove(args: &DeviceRemoveArgs) -> Result<u8, Failure> {
    let targets = std::iter::once(&args.device).chain(&args.also);
    let ask = Ask::DeviceRemove {
        targets: targets.cloned().collect(),
        words: args.recovery.then(recovery::typed).transpose()?,
    };
    read::each(&ask, |tell| match tell {
        Tell::Removed(row) if args.json => out::json(&row),
        Tell::Removed(row) => lines(&row, args.lost)
            .iter()
            .try_for_each(|line| out::line(line)),
        _ => Ok(()),
    })
}

/// Takes this device out of its account.
pub(super) fn leave(args: &JsonArgs) -> Result<u8, Failure> {
    read::each(&Ask::DeviceLeave, |tell| match tell {
        Tell::Removed(row) if args.json => out::json(&row),
        Tell::Removed(row) => {
            out::line("This device has left the account. What it holds can still be read here.")?;
            match row.unconfirmed.as_slice() {
                [] => Ok(()),
                names => out::line(&format!("Not yet heard by: {}", list(names))),
            }
        }
        _ => Ok(()),
    })
}

/// Gives a device another role.
pub(super) fn role(args: &DeviceRoleArgs) -> Result<u8, Failure> {
    let ask = Ask::DeviceRole {
        target: args.device.clone(),
        role: args.role.clone(),
    };
    read::each(&ask, |tell| match tell {
        Tell::Device(row) if args.json => out::json(&row),
        Tell::Device(row) => out::line(&format!(
            "{} is `{}` from now on.",
            show::text(&row.name),
            row.role
        )),
        _ => Ok(()),
    })
}

/// Seals what comes from now on under new keys.
pub(super) fn rotate(args: &JsonArgs) -> Result<u8, Failure> {
    let code = read::each(&Ask::DeviceRotate, |_| Ok(()))?;
    if args.json {
        out::json(&json!({"v": 1, "rotated": true}))?;
    } else {
        out::line("What this device enters from now on is sealed under new keys.")?;
    }
    Ok(code)
}

fn list(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| show::text(name)).collect();
    names.join(", ")
}

/// What is true of a removal; of a lost device all of it.
fn lines(row: &RemovedRow, lost: bool) -> Vec<String> {
    let names = list(&row.names);
    let mut lines = vec![format!(
        "{names}: removed. Sessions are closed, and what is entered from now on is sealed under \
         new keys."
    )];
    if lost {
        lines.push(match row.could_read.as_slice() {
            [] => "It could read no box's audit.".to_owned(),
            boxes => format!("It could read the audit of: {}", list(boxes)),
        });
        lines.push(match &row.last_heard {
            Some(at) => format!("It was last heard at {at}: it may have all that was there then."),
            None => "It was not heard since this node can tell.".to_owned(),
        });
        lines.push(
            "What it already has stays with it: nothing can take that back, or wipe it.".to_owned(),
        );
    }
    match row.unconfirmed.as_slice() {
        [] => lines.push("Every other device has confirmed the removal.".to_owned()),
        open => lines.push(format!(
            "Not confirmed yet by: {}. What these enter until they hear of it can be read by \
             {names}, if {names} gets the bytes.",
            list(open)
        )),
    }
    if !row.added.is_empty() {
        lines.push(format!(
            "It had added: {}. These stay; {} takes them out too.",
            list(&row.added),
            account::command("device remove")
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_a_lost_device_is_all_there_is_to_say() {
        let row = RemovedRow {
            v: 1,
            devices: vec!["ab".to_owned()],
            names: vec!["phone".to_owned()],
            could_read: vec!["yard@laptop".to_owned()],
            last_heard: Some("2026-12-01T13:50:00.000Z".to_owned()),
            added: vec!["tablet".to_owned()],
            unconfirmed: vec!["server".to_owned()],
        };
        let text = lines(&row, true).join("\n");
        for said in ["yard@laptop", "13:50", "stays with it", "server", "tablet"] {
            assert!(text.contains(said), "{text}");
        }
        assert!(!lines(&row, false).join("\n").contains("yard@laptop"));
    }
}
