//! `bailey stop`.

use std::time::Duration;

use bailey_model::RequestOutcome;
use serde_json::json;

use super::args::StopArgs;
use super::{out, read};
use crate::api::{Ask, Failure, Tell};
use crate::show;

/// Exit code when a receipt did not come in time.
const EXIT_NOT_DELIVERED: u8 = 1;

/// Stops each box, and says only what was measured after.
pub(super) fn stop(args: &StopArgs) -> Result<u8, Failure> {
    let mut code = 0;
    for target in &args.targets {
        code = code.max(stop_one(target, args)?);
    }
    Ok(code)
}

fn stop_one(target: &str, args: &StopArgs) -> Result<u8, Failure> {
    let (done, waiting) = std::sync::mpsc::channel();
    let (ask, json) = (
        Ask::Stop {
            target: target.to_owned(),
        },
        args.json,
    );
    let shown = show::text(target);
    // The receipt comes by itself, later too; this thread ends with the process.
    std::thread::spawn(move || {
        let asked = std::cell::RefCell::new(done.clone());
        let result = read::each(&ask, |tell| {
            let _left = asked.borrow_mut().send(Ok(Some(tell)));
            Ok(())
        });
        let _left = done.send(result.map(|_| None));
    });
    let mut device = None;
    loop {
        match waiting.recv_timeout(Duration::from_secs(args.wait)) {
            Ok(Ok(Some(Tell::StopAsked {
                device: name,
                connected,
            }))) => {
                let state = if connected { "connected" } else { "away" };
                out::say(&format!("asked {} ({state})", show::text(&name)));
                device = Some(name);
            }
            Ok(Ok(Some(Tell::StopDone { outcome }))) => report(&shown, &outcome, json)?,
            Ok(Ok(Some(_))) => {}
            Ok(Ok(None)) => return Ok(0),
            Ok(Err(failure)) => return Err(failure),
            Err(_) => {
                let device = device.unwrap_or_else(|| "the node".to_owned());
                if json {
                    out::json(
                        &json!({"v": 1, "box": target, "state": "not delivered yet", "device": device}),
                    )?;
                }
                out::say(&format!(
                    "{shown}: not delivered yet; {} gets it when it is heard again",
                    show::text(&device),
                ));
                return Ok(EXIT_NOT_DELIVERED);
            }
        }
    }
}

fn report(target: &str, outcome: &RequestOutcome, json: bool) -> Result<(), Failure> {
    match outcome {
        RequestOutcome::Stopped {
            processes_ended,
            processes_left,
            flows_reset,
            took_ms,
        } => {
            if json {
                return out::json(&json!({
                    "v": 1, "box": target, "state": "stopped", "processes_ended": processes_ended,
                    "processes_left": processes_left, "flows_reset": flows_reset, "took_ms": took_ms,
                }));
            }
            out::line(&format!(
                "{target}: stopped · processes ended {processes_ended:?}, left {processes_left:?} · \
                 flows reset {flows_reset:?} · {took_ms} ms"
            ))
        }
        RequestOutcome::AlreadyOver if json => {
            out::json(&json!({"v": 1, "box": target, "state": "already over"}))
        }
        RequestOutcome::AlreadyOver => out::line(&format!("{target}: was over already")),
        RequestOutcome::Denied(why) => Err(Failure::usage(format!("{target}: {why}"))),
    }
}
