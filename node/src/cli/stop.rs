//! `bailey stop`.

use std::sync::mpsc;
use std::time::{Duration, Instant};

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
    let (begun, mut code) = (Instant::now(), 0);
    for (target, answers) in args.targets.iter().zip(asked) {
        let one = match follow(target, &answers, begun, args) {
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

/// What is heard of a question, and when.
type Answers = mpsc::Receiver<(Instant, Result<Heard, Failure>)>;

/// What is heard of a question.
enum Heard {
    /// The node has it.
    Asked,
    /// The node says something.
    Said(Box<Tell>),
    /// The node has said all.
    Over,
}

/// Asks for one; all are asked before any is waited for. The receipt may come
/// later than anybody waits: the thread ends with the process.
fn ask(target: &str) -> Answers {
    let (sender, answers) = mpsc::channel();
    let ask = Ask::Stop {
        target: target.to_owned(),
    };
    std::thread::spawn(move || {
        // Whoever waited may have gone on; then nobody is left to tell.
        let tell = |heard| drop(sender.send((Instant::now(), heard)));
        let said = read::asked(&ask).and_then(|client| {
            tell(Ok(Heard::Asked));
            read::each_of(client, |said| {
                tell(Ok(Heard::Said(Box::new(said))));
                Ok(())
            })
        });
        tell(said.map(|_| Heard::Over));
    });
    answers
}

/// Each is waited for from its own last word on, not from that of the box
/// before it.
fn follow(
    target: &str,
    answers: &Answers,
    mut heard: Instant,
    args: &StopArgs,
) -> Result<u8, Failure> {
    let wait = Duration::from_secs(args.wait);
    let (mut asked, mut device, mut code) = (false, None, 0);
    loop {
        let left = wait.saturating_sub(heard.elapsed());
        let Ok((when, answer)) = answers.recv_timeout(left) else {
            return late(target, asked, device, args.json);
        };
        heard = when;
        let said = match answer? {
            Heard::Asked => {
                asked = true;
                continue;
            }
            Heard::Said(said) => *said,
            Heard::Over => return Ok(code),
        };
        match said {
            Tell::StopAsked {
                device: name,
                connected,
            } => {
                let state = if connected { "connected" } else { "away" };
                out::say(&format!("asked {} ({state})", show::text(&name)));
                device = Some(name);
            }
            Tell::StopDone { outcome } => {
                code = code.max(report(target, &outcome, args.json)?);
            }
            _ => {}
        }
    }
}

/// No receipt in time: never "stopped".
fn late(target: &str, asked: bool, device: Option<String>, json: bool) -> Result<u8, Failure> {
    let state = match (asked, &device) {
        (false, _) => "not asked",
        (true, Some(_)) => "not delivered yet",
        (true, None) => "still ending",
    };
    if json {
        out::json(&json!({"v": 1, "box": target, "state": state, "device": device}))?;
    }
    let target = show::text(target);
    match device {
        Some(device) => out::say(&format!(
            "{target}: not delivered yet; {} gets it when it is heard again",
            show::text(&device),
        )),
        None if !asked => out::say(&format!(
            "{target}: not stopped: the node does not answer (its process id stands in \
             node.lock in bailey's state folder; ended, it takes its boxes with it)"
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
    let shown = show::text(target);
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
                    "{shown}: stopped · processes ended {}, left {} · flows reset {} · {took_ms} ms",
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
                out::line(&format!("{shown}: was over already"))?;
            }
            Ok(0)
        }
        RequestOutcome::Denied(why) => {
            if as_json {
                out::json(&json!({"v": 1, "box": target, "state": "denied", "why": why}))?;
            }
            let denied = Failure::usage(format!("{target}: {why}"));
            out::failure(&denied);
            Ok(denied.exit_code())
        }
    }
}
