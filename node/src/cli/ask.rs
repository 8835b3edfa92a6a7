//! `bailey stop`, `pause` and `resume`, and how what is asked of another device is
//! waited for.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use bailey_model::RequestOutcome;
use serde_json::{Value, json};

use super::allow;
use super::args::StopArgs;
use super::{out, read};
use crate::api::{Ask, Failure, Tell};
use crate::show;

/// Exit code when a receipt did not come in time, something was left, or nothing was
/// done.
const EXIT_NOT_DONE: u8 = 1;

/// What was asked, and how it is waited for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    verb: Verb,
    wait: Duration,
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Stop,
    Pause,
    Resume,
    Allow,
    Deny,
}

impl Verb {
    /// What a box is that this was not done to.
    fn undone(self) -> &'static str {
        match self {
            Self::Stop => "not stopped",
            Self::Pause => "not paused",
            Self::Resume => "not resumed",
            Self::Allow => "nothing was granted",
            Self::Deny => "nothing was taken away",
        }
    }

    /// Whether it is worth nothing if it comes late.
    fn gives(self) -> bool {
        matches!(self, Self::Resume | Self::Allow)
    }
}

/// Stops each box, and says only what was measured after. One that fails keeps
/// no other from being stopped; the worst code is the command's own.
pub(super) fn stop(args: &StopArgs) -> Result<u8, Failure> {
    let ask = |target| Ask::Stop { target };
    all(args, Verb::Stop, &ask)
}

/// As [`stop`], for boxes that are to go on later.
pub(super) fn pause(args: &StopArgs) -> Result<u8, Failure> {
    let ask = |target| Ask::Pause { target };
    all(args, Verb::Pause, &ask)
}

/// As [`stop`], for boxes that are paused.
pub(super) fn resume(args: &StopArgs) -> Result<u8, Failure> {
    let ask = |target| Ask::Resume { target };
    all(args, Verb::Resume, &ask)
}

fn all(args: &StopArgs, verb: Verb, ask: &dyn Fn(String) -> Ask) -> Result<u8, Failure> {
    let targets = args.targets.iter();
    let answers: Vec<_> = targets.map(|target| send(ask(target.clone()))).collect();
    let asked = Asked::new(verb, args.wait, args.json);
    let (begun, mut code) = (Instant::now(), 0);
    for (target, answers) in args.targets.iter().zip(answers) {
        let one = match follow(target, &answers, begun, asked) {
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

/// Asks for one thing about one box, and says what came of it.
pub(super) fn one(target: &str, ask: Ask, asked: Asked) -> Result<u8, Failure> {
    follow(target, &send(ask), Instant::now(), asked)
}

impl Asked {
    pub(super) fn new(verb: Verb, wait: u64, json: bool) -> Self {
        let wait = Duration::from_secs(wait);
        Self { verb, wait, json }
    }
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
fn send(ask: Ask) -> Answers {
    let (sender, answers) = mpsc::channel();
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
    asked: Asked,
) -> Result<u8, Failure> {
    let (mut taken, mut device, mut code) = (false, None, 0);
    loop {
        let left = asked.wait.saturating_sub(heard.elapsed());
        let Ok((when, answer)) = answers.recv_timeout(left) else {
            return late(target, taken, device, asked);
        };
        heard = when;
        let said = match answer? {
            Heard::Asked => {
                taken = true;
                continue;
            }
            Heard::Said(said) => *said,
            Heard::Over => return Ok(code),
        };
        match said {
            Tell::Asked {
                device: name,
                connected,
            } => {
                let state = if connected { "connected" } else { "away" };
                out::say(&format!("asked {} ({state})", show::text(&name)));
                device = Some(name);
            }
            Tell::Outcome(outcome) => {
                code = code.max(report(target, &outcome, asked)?);
            }
            Tell::Reach(reached) => allow::print(&reached, asked.json)?,
            _ => {}
        }
    }
}

/// No receipt in time: never "stopped".
fn late(target: &str, taken: bool, device: Option<String>, asked: Asked) -> Result<u8, Failure> {
    let state = match (taken, &device, asked.verb) {
        (false, ..) => "not asked",
        (true, Some(_), _) => "not delivered yet",
        (true, None, Verb::Stop) => "still ending",
        (true, None, _) => "still under way",
    };
    if asked.json {
        out::json(&json!({"v": 1, "box": target, "state": state, "device": device}))?;
    }
    let target = show::text(target);
    match device {
        Some(device) if asked.verb.gives() => out::say(&format!(
            "{target}: not delivered yet; {} does it if it is heard again within ten minutes and \
             the box is as it was",
            show::text(&device),
        )),
        Some(device) => out::say(&format!(
            "{target}: not delivered yet; {} gets it when it is heard again",
            show::text(&device),
        )),
        None if !taken => out::say(&format!(
            "{target}: {}: the node does not answer (its process id stands in \
             node.lock in bailey's state folder; ended, it takes its boxes with it)",
            asked.verb.undone(),
        )),
        None if asked.verb == Verb::Stop => out::say(&format!(
            "{target}: still ending; its end is not measured yet"
        )),
        None => out::say(&format!("{target}: still under way")),
    }
    Ok(EXIT_NOT_DONE)
}

/// A count, or that there is none.
fn number(count: Option<u32>) -> String {
    count.map_or_else(|| "not counted".to_owned(), |count| count.to_string())
}

/// Says what came of it: a line, or a JSON object.
fn say(target: &str, line: &str, row: Value, asked: Asked) -> Result<(), Failure> {
    if !asked.json {
        return out::line(&format!("{}: {line}", show::text(target)));
    }
    let mut whole = json!({"v": 1, "box": target});
    if let (Value::Object(whole), Value::Object(row)) = (&mut whole, row) {
        whole.extend(row);
    }
    out::json(&whole)
}

fn report(target: &str, outcome: &RequestOutcome, asked: Asked) -> Result<u8, Failure> {
    let done = |line: &str, row| say(target, line, row, asked).map(|()| 0);
    match outcome {
        RequestOutcome::Stopped {
            processes_ended,
            processes_left,
            flows_reset,
            took_ms,
        } => {
            let line = format!(
                "stopped · processes ended {}, left {} · flows reset {} · {took_ms} ms",
                number(*processes_ended),
                number(*processes_left),
                number(*flows_reset),
            );
            let row = json!({
                "state": "stopped", "processes_ended": processes_ended,
                "processes_left": processes_left, "flows_reset": flows_reset, "took_ms": took_ms,
            });
            let code = done(&line, row)?;
            Ok(if *processes_left == Some(0) {
                code
            } else {
                EXIT_NOT_DONE
            })
        }
        RequestOutcome::Paused {
            processes,
            hold,
            took_ms,
        } => {
            let hold = hold.as_str();
            let line = format!("paused · processes {processes}, held by {hold} · {took_ms} ms");
            let row = json!({
                "state": "paused", "processes": processes, "hold": hold, "took_ms": took_ms,
            });
            done(&line, row)
        }
        RequestOutcome::Resumed { processes, took_ms } => {
            let count = number(*processes);
            let line = format!("goes on · processes {count} · {took_ms} ms");
            let row = json!({"state": "resumed", "processes": processes, "took_ms": took_ms});
            done(&line, row)
        }
        RequestOutcome::Reach { reach, flows_reset } => {
            let line = allow::reach_line(reach, *flows_reset);
            done(
                &line,
                json!({"state": "done", "reach": reach, "flows_reset": flows_reset}),
            )
        }
        RequestOutcome::AlreadyOver => {
            let code = done("was over already", json!({"state": "already over"}))?;
            Ok(match asked.verb {
                Verb::Stop => code,
                _ => EXIT_NOT_DONE,
            })
        }
        RequestOutcome::Denied(why) => {
            if asked.json {
                say(target, "", json!({"state": "denied", "why": why}), asked)?;
            }
            let denied = Failure::usage(format!("{target}: {why}"));
            out::failure(&denied);
            Ok(denied.exit_code())
        }
        RequestOutcome::Expired => undone(target, "expired", "it came after its time", asked),
        RequestOutcome::Changed(what) => undone(target, "changed", what, asked),
        RequestOutcome::NotDone(why) => undone(target, "not done", why, asked),
    }
}

/// It was not done, and why.
fn undone(target: &str, state: &str, why: &str, asked: Asked) -> Result<u8, Failure> {
    if asked.json {
        say(target, "", json!({"state": state, "why": why}), asked)?;
    } else {
        let (undone, why) = (asked.verb.undone(), show::sentence(why));
        out::say(&format!("{}: {undone}: {why}", show::text(target)));
    }
    Ok(EXIT_NOT_DONE)
}
