//! `bailey allow` and `bailey deny`.

use serde_json::json;

use super::args::ChangeArgs;
use super::ask::{self, Asked, Verb};
use super::out;
use crate::api::{Ask, Failure, Reached, Way};
use crate::show;

/// Changes what a running box may dial, and says what it may dial now.
pub(super) fn change(args: &ChangeArgs, way: Way) -> Result<u8, Failure> {
    let change = Ask::Change {
        target: args.target.clone(),
        way,
        terms: args.terms.clone(),
    };
    let verb = match way {
        Way::Allow => Verb::Allow,
        Way::Deny => Verb::Deny,
    };
    ask::one(&args.target, change, Asked::new(verb, args.wait, args.json))
}

/// Says what the reach of a box of this node is now.
pub(super) fn print(reached: &Reached, as_json: bool) -> Result<(), Failure> {
    let Reached {
        name,
        old,
        new,
        flows_reset,
    } = reached;
    if as_json {
        return out::json(&json!({
            "v": 1, "box": name, "changed": old != new, "old": old, "reach": new,
            "flows_reset": flows_reset,
        }));
    }
    let name = show::text(name);
    match old == new {
        true => out::line(&format!(
            "{name}: reach {} · as it was, nothing changed",
            show::sentence(new)
        )),
        false => out::line(&format!("{name}: {}", reach_line(new, *flows_reset))),
    }
}

pub(super) fn reach_line(reach: &str, flows_reset: Option<u32>) -> String {
    let reset = match flows_reset {
        Some(count) => format!("flows reset {count}"),
        None => "flows reset not counted".to_owned(),
    };
    format!("reach {} · {reset}", show::sentence(reach))
}
