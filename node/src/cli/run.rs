//! `bailey run`.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use bailey_model::{
    BoxClass, BoxEnd, ChildExit, FlowRefused, Limits, Proto, Publish, Reach, StoppedBy, Tier,
};
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use serde_json::json;

use super::args::RunArgs;
use super::attend::{self, Attended};
use super::relay::{self, Pipes};
use super::{accounts, out, recovery};
use crate::account;
use crate::api::{Ask, Ended, Failure, GrantAsk, RunAsk, Tell};
use crate::client::Client;
use crate::paths::Paths;
use crate::{grant, show};

/// Exit code of a box that a person stopped.
pub(super) const EXIT_STOPPED: u8 = 121;
/// Exit code of a box that is weaker than it was asked to be.
const EXIT_WEAKER: u8 = 120;
/// As timeout(1) says that the time was up.
const EXIT_TIME: u8 = 124;
/// Pixels of a display of a box's own.
const DISPLAY: (u16, u16) = (1280, 800);
/// The grant that is no path: the graphics processor.
const GPU: &str = "gpu";
/// Exit code of a failure of bailey's own.
pub(super) const EXIT_FAILED: u8 = 125;

/// Runs a command in a box and passes its exit code through.
pub(super) fn run(args: &RunArgs) -> Result<u8, Failure> {
    if args.detach && args.result.is_some() {
        return Err(Failure::usage(
            "--result says how a box ended, which a command line with --detach does not wait for",
        ));
    }
    let mut result = args
        .result
        .as_deref()
        .map(|path| open_result("--result", path))
        .transpose()?;
    let ran = run_box(args);
    if let Some(file) = &mut result {
        let text = match &ran {
            Ok(Outcome::Ended(ended)) => json!({
                "v": 1, "exit": exit_code(ended), "child": ended.exit.map(ChildExit::shell_code),
                "end": crate::rows::end_text(&ended.end), "flows_reset": ended.flows_reset,
                "processes_ended": ended.processes_ended, "processes_left": ended.processes_left,
                "limits_met": ended.limits_met,
            }),
            Ok(Outcome::Detached) => json!({"v": 1, "exit": 0, "child": null, "end": "detached"}),
            Err(failure) => json!({
                "v": 1, "exit": failure.exit_code(), "child": null, "end": failure.text,
            }),
        };
        writeln!(file, "{text}").map_err(|error| Failure::host(format!("--result: {error}")))?;
    }
    match ran? {
        Outcome::Detached => Ok(0),
        Outcome::Ended(ended) => match ended.end {
            BoxEnd::NotStarted(what) => Err(Failure::host(what)),
            _ => Ok(exit_code(&ended)),
        },
    }
}

fn run_box(args: &RunArgs) -> Result<Outcome, Failure> {
    let (ask, granted) = ask_of(args)?;
    let pipes = match ask.pty.is_some() || ask.detach {
        true => None,
        false => Some(Pipes::new().map_err(|error| Failure::host(format!("pipe: {error}")))?),
    };
    let inner = pipes
        .as_ref()
        .map_or(&[] as &[OwnedFd], |pipes| &pipes.inner);
    let fds: Vec<_> = inner.iter().chain(&granted).map(AsFd::as_fd).collect();
    let what = what_of(&ask);
    accounts::tell_beside(&ask, &granted, args.quiet)?;
    // The first box begins the account, and with it a recovery key.
    let fresh = !recovery::is_undone();
    let client = Client::ask(&here()?, &Ask::Run(Box::new(ask)), &fds)?;
    // Only now: a node that was started must not inherit blocked signals.
    let signals = attend::block_signals()?;
    // The box's ends belong to the box alone from here, so that the relay
    // sees their end.
    let outer = pipes.map(|pipes| pipes.outer);
    drop(granted);
    let mut attended = Attended::new(&client, outer, signals)?;
    let outcome = follow(args, client, &mut attended, &what, fresh);
    // Whatever came of it, what the box wrote is carried and the terminal
    // given back.
    attended.finish();
    let outcome = outcome?;
    if let Outcome::Ended(ended) = &outcome {
        if let BoxEnd::Weaker(which) = &ended.end {
            not_started(which);
        }
        if !args.quiet || matches!(ended.end, BoxEnd::FenceLost | BoxEnd::CoverLost(_)) {
            summary(ended);
        }
    }
    Ok(outcome)
}

/// What came of a run, for this command line.
enum Outcome {
    /// The box is over.
    Ended(Box<Ended>),
    /// It lives on without this command line.
    Detached,
}

/// The tier and what goes with it, for the line that says that it runs.
fn what_of(ask: &RunAsk) -> String {
    let network = match ask.tier {
        Tier::Gated => format!("reach {}", ask.reach),
        Tier::L1 | Tier::L15 => "network passes".to_owned(),
        Tier::L2 => "no network".to_owned(),
    };
    let grants = count(ask.grants.len(), "grant");
    let folder = std::env::current_dir().unwrap_or_default();
    let holds = |grant: &GrantAsk| folder.starts_with(OsStr::from_bytes(&grant.path));
    let here = match ask.grants.iter().any(holds) {
        true => "",
        false => " · not this folder (--here)",
    };
    format!("{} · {network} · {grants}{here}", ask.tier)
}

/// Follows the box until it is over, or goes its own way.
fn follow(
    args: &RunArgs,
    mut client: Client,
    attended: &mut Attended,
    what: &str,
    fresh: bool,
) -> Result<Outcome, Failure> {
    let mut own = String::new();
    loop {
        let mut message = client.receive()?;
        match message.value {
            Tell::Running { name, .. } => {
                if !args.quiet {
                    if fresh {
                        recovery::remind();
                    }
                    let more = match args.detach {
                        true => format!(" · {}", account::command(&format!("logs {name}"))),
                        false => String::new(),
                    };
                    let flows = account::command(&format!("flows {name}"));
                    out::say(&format!("box {name} · {what} · {flows}{more}"));
                }
                if args.detach {
                    out::line(&name)?;
                    return Ok(Outcome::Detached);
                }
                if let Some(fd) = message.fds.pop_front() {
                    attended.terminal(fd)?;
                }
                own = name;
            }
            Tell::Refused { refused, web } if !args.quiet => {
                let said = format!(
                    "refused {}{}",
                    describe(&refused),
                    would_allow(&own, &refused, web)
                );
                attended.say(&said);
            }
            Tell::Noticed(notice) if !args.quiet => {
                let text = show::text(&notice.text);
                attended.say(&format!("notice: this box {text}"));
            }
            Tell::Note(note) if !args.quiet => attended.say(&show::sentence(&note)),
            Tell::Ended(ended) => return Ok(Outcome::Ended(Box::new(ended))),
            Tell::Failed(failure) => return Err(failure),
            _ => {}
        }
    }
}

pub(super) fn here() -> Result<Paths, Failure> {
    Paths::from_env().map_err(|error| Failure::host(error.to_string()))
}

/// The question, and the descriptors of its grants, held from here on.
fn ask_of(args: &RunArgs) -> Result<(RunAsk, Vec<OwnedFd>), Failure> {
    let shape = shape_of(args)?;
    let mut grants = Vec::new();
    let mut held = Vec::new();
    let mut grant = |path: &Path, written: &[u8], read_only| {
        let (path, fd) = hold(path)?;
        grants.push(GrantAsk {
            written: written.to_vec(),
            path: path.into_os_string().into_vec(),
            read_only,
        });
        held.push(fd);
        Ok::<_, Failure>(())
    };
    let mut gpu = false;
    for written in &args.grants {
        // A folder of that name is ./gpu.
        if written == GPU {
            gpu = true;
            continue;
        }
        let (path, read_only) = split_grant(written);
        grant(Path::new(OsStr::from_bytes(&path)), &path, read_only)?;
    }
    let mut cwd = None;
    if let Some(mode) = &args.here {
        let read_only = match mode.as_str() {
            "rw" => false,
            "ro" => true,
            other => {
                return Err(Failure::usage(format!(
                    "--here={other}: want --here or --here=ro"
                )));
            }
        };
        let folder = std::env::current_dir()
            .map_err(|error| Failure::host(format!("current folder: {error}")))?;
        grant(&folder, b"--here", read_only)?;
        cwd = Some(folder.into_os_string().into_vec());
    }
    let terminal = attend::has_terminal() && !args.detach;
    let ask = RunAsk {
        name: args.name.clone(),
        command: args
            .command
            .iter()
            .map(|word| word.as_bytes().to_vec())
            .collect(),
        reach: shape.reach.to_string(),
        grants,
        cwd,
        env: variables(&args.env)?,
        pty: if terminal { relay::window() } else { None },
        tier: shape.tier,
        class: match args.class {
            Some(_) => BoxClass::Browser,
            None => BoxClass::Plain,
        },
        limits: shape.limits,
        publish: shape.publish,
        detach: args.detach,
        display: args.display.as_ref().map(|_| DISPLAY),
        gpu,
        audit_here: args.audit.is_some(),
        allow_weaker: args.allow_weaker,
    };
    Ok((ask, held))
}

/// What a run is asked to be, read from its words.
struct Shape {
    tier: Tier,
    limits: Limits,
    publish: Vec<Publish>,
    reach: Reach,
}

fn shape_of(args: &RunArgs) -> Result<Shape, Failure> {
    let usage = |error: &dyn std::fmt::Display| Failure::usage(error.to_string());
    let tier: Tier = args.tier.parse().map_err(|error| usage(&error))?;
    let limits = args.limits.as_deref().map(str::parse::<Limits>);
    let limits = limits
        .transpose()
        .map_err(|error| usage(&error))?
        .unwrap_or_default();
    let publish: Vec<Publish> = args
        .publish
        .iter()
        .map(|text| text.parse())
        .collect::<Result<_, _>>()
        .map_err(|error| usage(&error))?;
    if tier != Tier::Gated && (args.reach.is_some() || !publish.is_empty()) {
        return Err(Failure::usage(format!(
            "--reach and --publish belong to the gated tier; at {tier} nobody decides flows"
        )));
    }
    let reach = args.reach.as_deref().unwrap_or("internet");
    let reach: Reach = reach.parse().map_err(|error| usage(&error))?;
    Ok(Shape {
        tier,
        limits,
        publish,
        reach,
    })
}

/// `PATH`, `PATH:ro` or `PATH:rw`.
fn split_grant(written: &OsStr) -> (Vec<u8>, bool) {
    let bytes = written.as_bytes();
    match (bytes.strip_suffix(b":rw"), bytes.strip_suffix(b":ro")) {
        (Some(path), _) => (path.to_vec(), false),
        (_, Some(path)) => (path.to_vec(), true),
        _ => (bytes.to_vec(), true),
    }
}

/// The path with every link resolved, and a descriptor of what is there now.
fn hold(path: &Path) -> Result<(PathBuf, OwnedFd), Failure> {
    let fault = |error: &dyn std::fmt::Display| {
        Failure::usage(format!(
            "--grant {}: {error}",
            show::bytes(path.as_os_str().as_bytes())
        ))
    };
    let real = path.canonicalize().map_err(|error| fault(&error))?;
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let fd = nix::fcntl::open(&real, flags, Mode::empty()).map_err(|error| fault(&error))?;
    Ok((real, fd))
}

/// Name and value.
type Variable = (Vec<u8>, Vec<u8>);

/// The variables that are passed or set.
pub(super) fn variables(words: &[OsString]) -> Result<Vec<Variable>, Failure> {
    words.iter().map(|word| variable(word)).collect()
}

/// `NAME=VALUE`, or `NAME` as it is in the caller's environment.
fn variable(word: &OsStr) -> Result<(Vec<u8>, Vec<u8>), Failure> {
    let bytes = word.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b'=');
    let name = bytes.get(..at.unwrap_or(bytes.len())).unwrap_or_default();
    if name.is_empty() {
        return Err(Failure::usage(format!(
            "--env {}: no name",
            show::bytes(bytes)
        )));
    }
    let value = match at {
        Some(at) => bytes.get(at + 1..).unwrap_or_default().to_vec(),
        None => std::env::var_os(OsStr::from_bytes(name))
            .ok_or_else(|| Failure::usage(format!("--env {}: not set here", show::bytes(name))))?
            .into_vec(),
    };
    Ok((name.to_vec(), value))
}

/// Opened before the box starts, without following a link, so that the box
/// cannot choose where the result is written.
pub(super) fn open_result(word: &str, path: &Path) -> Result<std::fs::File, Failure> {
    let fault = |why: &dyn std::fmt::Display| {
        let shown = show::bytes(path.as_os_str().as_bytes());
        Failure::usage(format!("{word} {shown}: {why}"))
    };
    // Not blocking: a FIFO without a reader would hold the command up.
    let flags = OFlag::O_WRONLY
        | OFlag::O_CREAT
        | OFlag::O_TRUNC
        | OFlag::O_NOFOLLOW
        | OFlag::O_NONBLOCK
        | OFlag::O_CLOEXEC;
    let fd = nix::fcntl::open(path, flags, Mode::S_IRUSR | Mode::S_IWUSR);
    let file = fd.map(std::fs::File::from).map_err(|error| fault(&error))?;
    let found = file.metadata().map_err(|error| fault(&error))?;
    if found.is_file() {
        Ok(file)
    } else {
        Err(fault(&"not a regular file"))
    }
}

fn exit_code(ended: &Ended) -> u8 {
    match (&ended.end, ended.exit) {
        (BoxEnd::Exited(exit), _) => exit.shell_code(),
        (BoxEnd::Stopped(_), _) => EXIT_STOPPED,
        (BoxEnd::Weaker(_), _) => EXIT_WEAKER,
        (BoxEnd::TimeOut, _) => EXIT_TIME,
        (
            BoxEnd::ClientGone
            | BoxEnd::FenceLost
            | BoxEnd::NotStarted(_)
            | BoxEnd::NodeLost
            | BoxEnd::CoverLost(_),
            _,
        ) => EXIT_FAILED,
    }
}

/// Why nothing ran, a line each reason. Said even where little is.
fn not_started(which: &str) {
    let mut reasons = which.split("; ").map(show::text);
    let first = reasons.next().unwrap_or_default();
    out::say(&format!("not started: weaker than asked ({first})"));
    for reason in reasons {
        out::say(&format!("  {reason}"));
    }
}

/// What a person needs to know at the end: who stopped it, what was refused.
fn summary(ended: &Ended) {
    match &ended.end {
        BoxEnd::Stopped(by) => {
            let who = match by {
                StoppedBy::Here => "here".to_owned(),
                StoppedBy::Device(device, _) => {
                    format!("from device {}", crate::rows::short(device))
                }
            };
            let processes = counted(ended.processes_ended, "process");
            let left = counted(ended.processes_left, "left");
            let flows = counted(ended.flows_reset, "flow");
            out::say(&format!(
                "stopped {who}: {processes} ended, {left}, {flows} reset"
            ));
        }
        BoxEnd::TimeOut => out::say("its time was up; it was ended"),
        BoxEnd::FenceLost => out::say("the box's launcher went away; the box went with it"),
        BoxEnd::CoverLost(which) => out::say(&format!(
            "{} was replaced outside; its cover was lost; the box was ended",
            show::text(which)
        )),
        BoxEnd::Exited(_)
        | BoxEnd::ClientGone
        | BoxEnd::NotStarted(_)
        | BoxEnd::Weaker(_)
        | BoxEnd::NodeLost => {}
    }
    for met in &ended.limits_met {
        out::say(&show::text(met));
    }
    for denied in &ended.refusals {
        let times = if denied.count > 1 {
            format!(" ×{}", denied.count)
        } else {
            String::new()
        };
        out::say(&format!(
            "was refused {}{times}{}",
            describe(&denied.refused),
            would_grant(&denied.refused, denied.web)
        ));
    }
    if ended.refusals_more > 0 {
        out::say(&format!(
            "was refused {} more times: {} shows each",
            ended.refusals_more,
            account::command("flows")
        ));
    }
}

/// The command that would grant it from here on.
fn would_allow(name: &str, refused: &FlowRefused, web: bool) -> String {
    grant::term(refused, web).map_or_else(String::new, |term| {
        format!(" · {}", grant::command(name, &term))
    })
}

/// The reach that would have granted it.
fn would_grant(refused: &FlowRefused, web: bool) -> String {
    grant::term(refused, web).map_or_else(String::new, |term| {
        format!(
            " · would be granted by --reach …,{}",
            show::shell_word(&term)
        )
    })
}

/// An end of a flow; what has no ports says 0.
fn shown(end: std::net::SocketAddr) -> String {
    match end.port() {
        0 => end.ip().to_string(),
        _ => end.to_string(),
    }
}

/// One refusal in words.
fn describe(refused: &FlowRefused) -> String {
    let host = refused.host.as_ref().map(|host| show::host(host.as_str()));
    if let (Some(client), Some(dst)) = (refused.direction.client(), refused.dst) {
        let (proto, port, why) = (refused.proto, dst.port(), refused.refusal.as_str());
        return format!("{proto} from {client} to its port {port}: {why}");
    }
    let what = match (refused.proto, host, refused.dst) {
        (Proto::Dns, Some(host), _) => format!("the name {host}"),
        (proto, Some(host), Some(dst)) => format!("{proto} {host} ({})", shown(dst)),
        (proto, None, Some(dst)) => format!("{proto} {}", shown(dst)),
        (proto, _, None) => proto.to_string(),
    };
    let class = refused
        .class
        .map(|class| format!("{}, ", grant::class_words(class)))
        .unwrap_or_default();
    format!("{what}: {class}{}", refused.refusal.as_str())
}

/// A number that was measured, or that it was not.
fn counted(number: Option<u32>, noun: &str) -> String {
    match (number, noun) {
        (Some(number), "left") => format!("{number} left"),
        (Some(number), noun) => count(number as usize, noun),
        (None, "left") => "what is left not counted".to_owned(),
        (None, "process") => "processes not counted".to_owned(),
        (None, noun) => format!("{noun}s not counted"),
    }
}

/// `1 flow`, `2 flows`, `0 processes`.
fn count(number: usize, noun: &str) -> String {
    let plural = if noun.ends_with('s') { "es" } else { "s" };
    format!("{number} {noun}{}", if number == 1 { "" } else { plural })
}
