//! `bailey allow` and `bailey deny`.

use serde_json::json;

use super::args::ChangeArgs;
use super::{out, read};
use crate::api::{Ask, Failure, Tell, Way};
use crate::show;

/// Changes what a running box may dial, and says what it may dial now.
pub(super) fn change(args: &ChangeArgs, way: Way) -> Result<u8, Failure> {
    let ask = Ask::Change {
        target: args.target.clone(),
        way,
        terms: args.terms.clone(),
    };
    read::each(&ask, |tell| match tell {
        Tell::Reach {
            name,
            old,
            new,
            flows_reset,
        } if args.json => out::json(&json!({
            "v": 1, "box": name, "changed": old != new, "old": old, "reach": new,
            "flows_reset": flows_reset,
        })),
        Tell::Reach {
            name,
            old,
            new,
            flows_reset,
        } => out::line(&line(&name, &old, &new, flows_reset)),
        _ => Ok(()),
    })
}

fn line(name: &str, old: &str, new: &str, flows_reset: Option<u32>) -> String {
    let (name, new) = (show::text(name), show::sentence(new));
    if old == new {
        return format!("{name}: reach {new} · as it was, nothing changed");
    }
    let reset = match flows_reset {
        Some(count) => format!("flows reset {count}"),
        None => "flows reset not counted".to_owned(),
    };
    format!("{name}: reach {new} · {reset}")
}
