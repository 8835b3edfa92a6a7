//! `bailey run`.

use std::ffi::OsStr;
use std::io::{IsTerminal as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bailey_channel::Channel;
use bailey_model::{BoxEnd, ChildExit, FlowRefused, Host, Proto, Reach, StoppedBy};
use nix::fcntl::OFlag;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;
use nix::sys::stat::Mode;
use serde_json::json;

use super::args::RunArgs;
use super::out;
use super::relay::{self, Pipes, Relay};
use crate::api::{Ask, Ended, Failure, GrantAsk, RunAsk, Tell};
use crate::client::Client;
use crate::paths::Paths;
use crate::show;

/// Exit code of a box that a person stopped.
const EXIT_STOPPED: u8 = 121;
/// Exit code of a failure of bailey's own.
const EXIT_FAILED: u8 = 125;

/// Runs a command in a box and passes its exit code through.
pub(super) fn run(args: &RunArgs) -> Result<u8, Failure> {
    let mut result = args.result.as_deref().map(open_result).transpose()?;
    let ran = run_box(args);
    if let Some(file) = &mut result {
        let text = match &ran {
            Ok(ended) => json!({
                "v": 1, "exit": exit_code(ended), "child": ended.exit.map(ChildExit::shell_code),
                "end": crate::rows::end_text(&ended.end), "flows_reset": ended.flows_reset,
                "processes_ended": ended.processes_ended, "processes_left": ended.processes_left,
            }),
            Err(failure) => json!({
                "v": 1, "exit": failure.exit_code(), "child": null, "end": failure.text,
            }),
        };
        writeln!(file, "{text}").map_err(|error| Failure::host(format!("--result: {error}")))?;
    }
    let ended = ran?;
    match ended.end {
        BoxEnd::NotStarted(what) => Err(Failure::host(what)),
        _ => Ok(exit_code(&ended)),
    }
}

fn run_box(args: &RunArgs) -> Result<Ended, Failure> {
    let (ask, granted) = ask_of(args)?;
    let pipes = match ask.pty {
        Some(_) => None,
        None => Some(Pipes::new().map_err(|error| Failure::host(format!("pipe: {error}")))?),
    };
    let inner = pipes
        .as_ref()
        .map_or(&[] as &[OwnedFd], |pipes| &pipes.inner);
    let fds: Vec<_> = inner.iter().chain(&granted).map(AsFd::as_fd).collect();
    let what = format!("reach {} · {}", ask.reach, count(granted.len(), "grant"));
    let client = Client::ask(&here()?, &Ask::Run(Box::new(ask)), &fds)?;
    // Only now: a node that was started must not inherit blocked signals.
    let signals = block_signals()?;
    // The box's ends belong to the box alone from here, so that the relay
    // sees their end.
    let outer = pipes.map(|pipes| pipes.outer);
    drop(granted);
    let ended = attend(args, client, outer, signals, &what)?;
    if !args.quiet {
        summary(&ended);
    }
    Ok(ended)
}

/// Follows the box until it is over. Whatever came of it, what the box wrote is
/// carried and the terminal given back.
fn attend(
    args: &RunArgs,
    mut client: Client,
    outer: Option<[OwnedFd; 3]>,
    signals: SignalFd,
    what: &str,
) -> Result<Ended, Failure> {
    let master = Arc::new(Mutex::new(None));
    forward(signals, client.sender()?, Arc::clone(&master));
    let mut relay = outer.map(Relay::pipes);
    let ended = follow(args, &mut client, &mut relay, &master, what);
    drop(lock(&master).take());
    if let Some(relay) = relay {
        relay.finish();
    }
    ended
}

fn follow(
    args: &RunArgs,
    client: &mut Client,
    relay: &mut Option<Relay>,
    master: &Mutex<Option<OwnedFd>>,
    what: &str,
) -> Result<Ended, Failure> {
    loop {
        let mut message = client.receive()?;
        match message.value {
            Tell::Running { name, .. } => {
                if !args.quiet {
                    out::say(&format!("box {name} · {what} · bailey flows {name}"));
                }
                if let Some(fd) = message.fds.pop_front() {
                    *relay = Some(
                        Relay::terminal(&fd)
                            .map_err(|error| Failure::host(format!("terminal: {error}")))?,
                    );
                    relay::resize(&fd);
                    *lock(master) = Some(fd);
                }
            }
            Tell::Refused(refused) if !args.quiet => {
                say(relay.as_ref(), &format!("refused {}", describe(&refused)));
            }
            Tell::Noticed(notice) if !args.quiet => {
                let text = show::text(&notice.text);
                say(relay.as_ref(), &format!("notice: this box {text}"));
            }
            Tell::Note(note) if !args.quiet => {
                say(relay.as_ref(), &show::text(&note));
            }
            Tell::Ended(ended) => return Ok(ended),
            Tell::Failed(failure) => return Err(failure),
            _ => {}
        }
    }
}

/// A line beside what the box writes; a raw terminal does not return by itself.
fn say(relay: Option<&Relay>, text: &str) {
    let raw = relay.is_some_and(Relay::is_raw) && std::io::stderr().is_terminal();
    let end = if raw { "\r" } else { "" };
    out::say(&format!("{text}{end}"));
}

fn lock<T>(value: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    value
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Forwards signals to the box's command, and the window's size to its pty.
fn forward(signals: SignalFd, mut sender: Channel, master: Arc<Mutex<Option<OwnedFd>>>) {
    std::thread::spawn(move || {
        while let Ok(Some(info)) = signals.read_signal() {
            let Ok(number) = i32::try_from(info.ssi_signo) else {
                continue;
            };
            if number == Signal::SIGWINCH as i32 {
                if let Some(master) = &*lock(&master) {
                    relay::resize(master);
                }
            } else if sender.send(&Ask::Signal(number), &[]).is_err() {
                return;
            }
        }
    });
}

/// Before any thread is started, so that only the signalfd gets them.
fn block_signals() -> Result<SignalFd, Failure> {
    let mut set = SigSet::empty();
    for signal in [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGWINCH,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ] {
        set.add(signal);
    }
    set.thread_block()
        .and_then(|()| SignalFd::new(&set))
        .map_err(|error| Failure::host(format!("signals: {error}")))
}

fn here() -> Result<Paths, Failure> {
    Paths::from_env().map_err(|error| Failure::host(error.to_string()))
}

/// The question, and the descriptors of its grants, held from here on.
fn ask_of(args: &RunArgs) -> Result<(RunAsk, Vec<OwnedFd>), Failure> {
    let reach: Reach = args
        .reach
        .parse()
        .map_err(|error| Failure::usage(format!("{error}")))?;
    let mut grants = Vec::new();
    let mut held = Vec::new();
    let mut grant = |path: &Path, read_only| {
        let (path, fd) = hold(path)?;
        grants.push(GrantAsk {
            path: path.into_os_string().into_vec(),
            read_only,
        });
        held.push(fd);
        Ok::<_, Failure>(())
    };
    for written in &args.grants {
        let (path, read_only) = split_grant(written);
        grant(Path::new(OsStr::from_bytes(&path)), read_only)?;
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
        grant(&folder, read_only)?;
        cwd = Some(folder.into_os_string().into_vec());
    }
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let ask = RunAsk {
        name: args.name.clone(),
        command: args
            .command
            .iter()
            .map(|word| word.as_bytes().to_vec())
            .collect(),
        reach: reach.to_string(),
        grants,
        cwd,
        env: args
            .env
            .iter()
            .map(|word| variable(word))
            .collect::<Result<_, _>>()?,
        pty: if terminal { relay::window() } else { None },
    };
    Ok((ask, held))
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
fn open_result(path: &Path) -> Result<std::fs::File, Failure> {
    let fault = |why: &dyn std::fmt::Display| {
        let shown = show::bytes(path.as_os_str().as_bytes());
        Failure::usage(format!("--result {shown}: {why}"))
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
        (BoxEnd::ClientGone | BoxEnd::FenceLost | BoxEnd::NotStarted(_) | BoxEnd::NodeLost, _) => {
            EXIT_FAILED
        }
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
        BoxEnd::FenceLost => out::say("the box's launcher went away; the box went with it"),
        BoxEnd::Exited(_) | BoxEnd::ClientGone | BoxEnd::NotStarted(_) | BoxEnd::NodeLost => {}
    }
    for (refused, times) in &ended.refusals {
        let times = if *times > 1 {
            format!(" ×{times}")
        } else {
            String::new()
        };
        out::say(&format!(
            "was refused {}{times}{}",
            describe(refused),
            would_grant(refused)
        ));
    }
}

/// The reach that would have granted it.
fn would_grant(refused: &FlowRefused) -> String {
    use bailey_model::{AddrClass, Refusal};
    let grantable = matches!(
        refused.refusal,
        Refusal::OutsideReach | Refusal::NameOutsideReach
    ) && matches!(
        refused.class,
        None | Some(AddrClass::Internet | AddrClass::Local)
    );
    // Names that the gate answers by itself are granted by no word.
    let special = |host: &Host| {
        let last = host.as_str().rsplit('.').next().unwrap_or_default();
        ["local", "test", "invalid", "onion", "localhost", "bailey"].contains(&last)
    };
    let grantable = grantable && !refused.host.as_ref().is_some_and(special);
    let port = refused
        .dst
        .map(|dst| format!(":{}", dst.port()))
        .unwrap_or_default();
    let term = match (&refused.host, refused.dst) {
        (Some(host), _) => format!("{host}{port}"),
        (None, Some(dst)) => dst.to_string(),
        (None, None) => return String::new(),
    };
    match grantable && term.parse::<Reach>().is_ok() {
        true => format!(
            " · would be granted by --reach …,{}",
            show::shell_word(&term)
        ),
        false => String::new(),
    }
}

/// One refusal in words.
fn describe(refused: &FlowRefused) -> String {
    let host = refused.host.as_ref().map(|host| show::text(host.as_str()));
    let what = match (refused.proto, host, refused.dst) {
        (Proto::Dns, Some(host), _) => format!("the name {host}"),
        (proto, Some(host), Some(dst)) => format!("{proto} {host} ({dst})"),
        (proto, None, Some(dst)) => format!("{proto} {dst}"),
        (proto, _, None) => proto.to_string(),
    };
    let class = refused
        .class
        .map(|class| format!("{}, ", class.as_str()))
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
