//! `bailey stop`.

use std::sync::mpsc;
use std::time::Duration;

use bailey_model::RequestOutcome;
use serde_json::json;

use super::args::StopArgs;
use super::{out, read};
use crate::api::{Ask, Failure, Tell};
use crate::show;

/// Exit code when a receipt did not come in time, or something was left.
const EXIT_NOT_DONE: u8 = 1;

/// Stops each box, and says only what was measured after. One that fails keeps
/// no other from being stopped; the worst code is the command's own.
pub(super) fn stop(args: &StopArgs) -> Result<u8, Failure> {
    let asked: Vec<_> = args.targets.iter().map(|target| ask(target)).collect();
    let mut code = 0;
    for (target, answers) in args.targets.iter().zip(asked) {
        let one = match follow(target, &answers, args) {
            Ok(one) => one,
            Err(failure) => {
                if args.json {
                    out::json(&json!({
                        "v": 1, "box": target, "state": "failed", "why": failure.text,
                    }))?;
                }
                out::failure(&failure);
                failure.exit_code()
            }
        };
        code = code.max(one);
    }
    Ok(code)
}

/// What a question says, then its end.
type Answers = mpsc::Receiver<Result<Option<Tell>, Failure>>;

/// Asks for one; all are asked before any is waited for. The receipt may come
/// later than anybody waits: the thread ends with the process.
fn ask(target: &str) -> Answers {
    let (sender, answers) = mpsc::channel();
    let ask = Ask::Stop {
        target: target.to_owned(),
    };
    std::thread::spawn(move || {
        let result = read::each(&ask, |tell| {
            // Whoever waited has gone on; nobody is left to tell.
            let _left = sender.send(Ok(Some(tell)));
            Ok(())
        });
        let _left = sender.send(result.map(|_| None));
    });
    answers
}

fn follow(target: &str, answers: &Answers, args: &StopArgs) -> Result<u8, Failure> {
    let shown = show::text(target);
    let (mut device, mut code) = (None, 0);
    loop {
        match answers.recv_timeout(Duration::from_secs(args.wait)) {
            Ok(Ok(Some(Tell::StopAsked {
                device: name,
                connected,
            }))) => {
                let state = if connected { "connected" } else { "away" };
                out::say(&format!("asked {} ({state})", show::text(&name)));
                device = Some(name);
            }
            Ok(Ok(Some(Tell::StopDone { outcome }))) => {
                code = code.max(report(&shown, &outcome, args.json)?);
            }
            Ok(Ok(Some(_))) => {}
            Ok(Ok(None)) => return Ok(code),
            Ok(Err(failure)) => return Err(failure),
            Err(_) => return late(&shown, device, args.json),
        }
    }
}

/// No receipt in time: never "stopped".
fn late(target: &str, device: Option<String>, json: bool) -> Result<u8, Failure> {
    let state = if device.is_some() {
        "not delivered yet"
    } else {
        "still ending"
    };
    if json {
        out::json(&json!({"v": 1, "box": target, "state": state, "device": device}))?;
    }
    match device {
        Some(device) => out::say(&format!(
            "{target}: not delivered yet; {} gets it when it is heard again",
            show::text(&device),
        )),
        None => out::say(&format!(
            "{target}: still ending; its end is not measured yet"
        )),
    }
    Ok(EXIT_NOT_DONE)
}

/// A count, or that there is none.
fn number(count: Option<u32>) -> String {
    count.map_or_else(|| "not counted".to_owned(), |count| count.to_string())
}

fn report(target: &str, outcome: &RequestOutcome, as_json: bool) -> Result<u8, Failure> {
    match outcome {
        RequestOutcome::Stopped {
            processes_ended,
            processes_left,
            flows_reset,
            took_ms,
        } => {
            if as_json {
                out::json(&json!({
                    "v": 1, "box": target, "state": "stopped", "processes_ended": processes_ended,
                    "processes_left": processes_left, "flows_reset": flows_reset, "took_ms": took_ms,
                }))?;
            } else {
                out::line(&format!(
                    "{target}: stopped · processes ended {}, left {} · flows reset {} · {took_ms} ms",
                    number(*processes_ended),
                    number(*processes_left),
                    number(*flows_reset),
                ))?;
            }
            Ok(if *processes_left == Some(0) {
                0
            } else {
                EXIT_NOT_DONE
            })
        }
        RequestOutcome::AlreadyOver => {
            if as_json {
                out::json(&json!({"v": 1, "box": target, "state": "already over"}))?;
            } else {
                out::line(&format!("{target}: was over already"))?;
            }
            Ok(0)
        }
        RequestOutcome::Denied(why) => Err(Failure::usage(format!("{target}: {why}"))),
    }
}
