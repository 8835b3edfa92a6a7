//! A box before its first entry: its name and folder, its grants, its spec.

use std::collections::VecDeque;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::Path;

use bailey_fence_plan::channel::{BoxSpec, Grant, MAX_GRANTS, Stdio};
use bailey_fence_plan::display;
use bailey_model::{BoxId, Incarnation, Reach, Tier};

use super::event::ConnId;
use super::given::{self, Given};
use super::run_state::{Handed, NewRun, Prepared, Run};
use super::shared::Writable;
use super::{bounds, clock, devices, grants, reports, trash};
use crate::account;
use crate::api::{Failure, GrantAsk, RunAsk};
use crate::paths::{Paths, private_dir};
use crate::show;

/// Where every box sees its own folder.
pub(super) const HOME: &[u8] = b"/home/box";
/// Longest name of a box, so that it fits a host name's label.
const MAX_NAME: usize = 48;
/// How the names of unnamed boxes start; a person's box may not be called so.
const UNNAMED: &str = "unnamed-";
/// Logs that are kept of unnamed boxes which have ended.
const UNNAMED_LOGS: usize = 16;
/// What a program needs to start, and nothing of the caller.
const PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin:/usr/games";

/// An incarnation that can begin.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) run: Run,
    pub(super) prepared: Prepared,
    /// The command as it is entered.
    pub(super) command: Vec<String>,
    /// Lines for the person.
    pub(super) notes: Vec<String>,
    /// The node's ends of a detached box's stdout and stderr.
    pub(super) outputs: Option<[OwnedFd; 2]>,
    /// What of the host it is given.
    pub(super) given: Vec<Given>,
}

/// Checks a question and makes a run of it.
pub(super) fn prepare(
    paths: &Paths,
    conn: ConnId,
    ask: RunAsk,
    mut fds: VecDeque<OwnedFd>,
    (running, open_files): (&dyn Fn(&str) -> bool, u64),
) -> Result<Begun, Failure> {
    let reach: Reach = ask
        .reach
        .parse()
        .map_err(|error| Failure::usage(format!("{error}")))?;
    let stdio_fds = check(&ask, fds.len())?;
    let grants_from: Vec<OwnedFd> = fds.split_off(stdio_fds).into();
    let notes = grants::check(paths, &ask.grants, &grants_from)?;
    let unnamed = ask.name.is_none();
    let name = match &ask.name {
        Some(name) => checked_name(name.clone())?,
        None => made_up_name()?,
    };
    if running(&name) {
        return Err(Failure::usage(format!("a box {name:?} runs already"))
            .hint(account::command(&format!("stop {name}, or another --name"))));
    }
    let (box_id, home) = own_folder(paths, &name)?;
    let incarnation = Incarnation(random()?);
    let shown = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
    let command = bounds::command(ask.command.iter().map(shown).collect());
    let writable = Writable::of(&ask.grants, &grants_from)
        .map_err(|error| Failure::host(format!("grants: {error}")))?;
    let given = given::of(&ask.grants, ask.gpu, &grants_from)
        .map_err(|error| Failure::host(format!("grants: {error}")))?;
    let (streams, outputs) = match ask.detach {
        true => detached_streams()
            .map(|(streams, outputs)| (Vec::from(streams), Some(outputs)))
            .map_err(|error| Failure::host(format!("pipe: {error}")))?,
        false => (fds.into(), None),
    };
    let handed = Handed {
        streams,
        rest: [home].into_iter().chain(grants_from).collect(),
    };
    let (publish, detached, here) = (ask.publish.clone(), ask.detach, ask.audit_here);
    let prepared = Prepared {
        spec: spec(&name, ask, open_files),
        fds: handed,
    };
    let run = Run::new(NewRun {
        box_id,
        incarnation,
        name,
        unnamed,
        reach,
        publish,
        writable,
        detached,
        here,
        client: conn,
        spec: &prepared.spec,
    });
    Ok(Begun {
        run,
        prepared,
        command,
        notes,
        outputs,
        given,
    })
}

/// What a question can be by itself; how many streams come with it.
fn check(ask: &RunAsk, fds: usize) -> Result<usize, Failure> {
    if ask.command.is_empty() {
        return Err(Failure::usage("no command"));
    }
    if ask.tier != Tier::Gated && !ask.publish.is_empty() {
        return Err(Failure::usage("--publish belongs to the gated tier"));
    }
    if ask.detach && ask.pty.is_some() {
        return Err(Failure::usage("a detached box has no terminal"));
    }
    // A detached one gets streams of the node's making.
    let own_streams = ask.pty.is_some() || ask.detach;
    let stdio_fds = if own_streams { 0 } else { 3 };
    if fds != stdio_fds + ask.grants.len() || ask.grants.len() > MAX_GRANTS {
        return Err(Failure::usage(format!(
            "at most {MAX_GRANTS} grants, each with its descriptor"
        )));
    }
    Ok(stdio_fds)
}

/// What the launcher makes.
fn spec(name: &str, ask: RunAsk, open_files: u64) -> BoxSpec {
    let grant = |grant: GrantAsk| Grant {
        at: grant.path,
        read_only: grant.read_only,
    };
    BoxSpec {
        hostname: hostname(name),
        command: ask.command,
        env: environment(ask.env, ask.pty.is_some(), ask.display.is_some()),
        cwd: ask.cwd.unwrap_or_else(|| HOME.to_vec()),
        home: HOME.to_vec(),
        grants: ask.grants.into_iter().map(grant).collect(),
        stdio: match ask.pty {
            Some((rows, cols)) => Stdio::Pty { rows, cols },
            None => Stdio::Pipes,
        },
        uid: nix::unistd::geteuid().as_raw(),
        gid: nix::unistd::getegid().as_raw(),
        tier: ask.tier,
        class: ask.class,
        limits: ask.limits,
        cgroup: false,
        display: ask.display,
        gpu: ask.gpu,
        weaker: ask.allow_weaker,
        open_files,
        broken: reports::left_out(),
    }
}

/// Stdin, stdout and stderr of a box without a client, and the node's ends of
/// the last two. Nothing comes by its stdin.
fn detached_streams() -> std::io::Result<([OwnedFd; 3], [OwnedFd; 2])> {
    let stdin = std::fs::File::open("/dev/null")?;
    let (out_read, out_write) = std::io::pipe()?;
    let (err_read, err_write) = std::io::pipe()?;
    let inner = [stdin.into(), out_write.into(), err_write.into()];
    Ok((inner, [out_read.into(), err_read.into()]))
}

/// Takes an unnamed box's own folder away, and all else that is kept of it but
/// a log: somebody may still want to read that.
pub(super) fn remove_own_folder(paths: &Paths, name: &str, running: &[&str]) {
    let folder = paths.boxed(name);
    if folder.join("log").exists() {
        trash::discard(paths, &folder.join("home"));
        remove_unnamed(paths, running);
    } else {
        trash::discard(paths, &folder);
    }
}

/// Folders of unnamed boxes that do not run: of those that left a log the
/// newest few stay, without their own folder.
pub(super) fn remove_unnamed(paths: &Paths, running: &[&str]) {
    let Ok(entries) = std::fs::read_dir(paths.state.join("boxes")) else {
        return trash::empty(paths);
    };
    let mut logs = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| name.starts_with(UNNAMED)) else {
            continue;
        };
        if running.contains(&name) {
            continue;
        }
        let written = std::fs::metadata(entry.path().join("log")).and_then(|log| log.modified());
        match written {
            Ok(written) => logs.push((written, entry.path())),
            Err(_) => trash::discard(paths, &entry.path()),
        }
    }
    logs.sort();
    let old = logs.len().saturating_sub(UNNAMED_LOGS);
    for (at, (_, folder)) in logs.iter().enumerate() {
        let what = if at < old {
            folder.clone()
        } else {
            folder.join("home")
        };
        trash::discard(paths, &what);
    }
    trash::empty(paths);
}

/// Letters, digits, `-`, `_` and `.`; no dot first, so no hidden or parent folder.
fn checked_name(name: String) -> Result<String, Failure> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let first = name
        .chars()
        .next()
        .is_some_and(|c| c.is_ascii_alphanumeric());
    if name.starts_with(UNNAMED) {
        return Err(Failure::usage(format!(
            "--name {name}: names of that form are made up for unnamed boxes"
        )));
    }
    if !first || name.len() > MAX_NAME || !name.chars().all(legal) {
        return Err(Failure::usage(format!(
            "--name {}: want letters, digits, - _ . (at most {MAX_NAME})",
            show::text(&name)
        )));
    }
    Ok(name)
}

fn made_up_name() -> Result<String, Failure> {
    let bytes: [u8; 4] = random()?;
    Ok(bytes
        .iter()
        .fold(UNNAMED.to_owned(), |name, byte| format!("{name}{byte:02x}")))
}

fn random<const N: usize>() -> Result<[u8; N], Failure> {
    clock::random().map_err(|error| Failure::host(format!("entropy: {error}")))
}

/// A label without a dot: a resolver would make a search domain of what follows.
fn hostname(name: &str) -> String {
    let label: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    label.trim_matches('-').to_owned()
}

/// The folder that is kept under this name, and the id that stands in it.
fn own_folder(paths: &Paths, name: &str) -> Result<(BoxId, OwnedFd), Failure> {
    let fault = |path: &Path, error: &dyn std::fmt::Display| {
        Failure::host(format!("{}: {error}", path.display()))
    };
    let folder = paths.boxed(name);
    private_dir(&paths.state.join("boxes")).map_err(|error| Failure::host(error.to_string()))?;
    private_dir(&folder).map_err(|error| Failure::host(error.to_string()))?;
    let home = folder.join("home");
    private_dir(&home).map_err(|error| Failure::host(error.to_string()))?;
    let id_path = folder.join("id");
    let mut text = String::new();
    match std::fs::File::open(&id_path) {
        Ok(file) => {
            let read = file.take(64).read_to_string(&mut text);
            read.map_err(|error| fault(&id_path, &error))?;
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(fault(&id_path, &error)),
    }
    // An empty one is that of a node that was killed while it wrote.
    if text.trim().is_empty() {
        text = BoxId(random()?).to_string();
        devices::write_private(&id_path, &text).map_err(|error| fault(&id_path, &error))?;
    }
    let id = text
        .trim()
        .parse()
        .map_err(|error| fault(&id_path, &error))?;
    let flags = nix::fcntl::OFlag::O_PATH
        | nix::fcntl::OFlag::O_DIRECTORY
        | nix::fcntl::OFlag::O_NOFOLLOW
        | nix::fcntl::OFlag::O_CLOEXEC;
    let fd = nix::fcntl::open(&home, flags, nix::sys::stat::Mode::empty())
        .map_err(|error| fault(&home, &error))?;
    Ok((id, fd))
}

pub(super) fn environment(
    asked: Vec<(Vec<u8>, Vec<u8>)>,
    terminal: bool,
    display: bool,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut env: Vec<(Vec<u8>, Vec<u8>)> = vec![
        (b"PATH".to_vec(), PATH.to_vec()),
        (b"HOME".to_vec(), HOME.to_vec()),
        (b"LANG".to_vec(), b"C.UTF-8".to_vec()),
    ];
    if terminal {
        env.push((b"TERM".to_vec(), b"xterm-256color".to_vec()));
    }
    if display {
        env.push((b"DISPLAY".to_vec(), display::NAME.into()));
    }
    for (name, value) in asked {
        env.retain(|(known, _)| *known != name);
        env.push((name, value));
    }
    env
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_the_folder_are_refused() {
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            ".x",
            "-x",
            "a b",
            "ä",
            &"x".repeat(49),
        ] {
            assert!(checked_name(bad.to_owned()).is_err(), "{bad:?}");
        }
        assert!(checked_name("agent-1.test".to_owned()).is_ok());
    }

    #[test]
    fn a_name_keeps_its_id_and_an_empty_id_file_counts_as_none() {
        let root = std::env::temp_dir().join(format!("bailey-own-{}", std::process::id()));
        let paths = Paths {
            state: root.clone(),
            runtime: root.join("run"),
            config: None,
        };
        let id = || own_folder(&paths, "a").unwrap().0;
        let first = id();
        assert_eq!(id(), first);
        let file = paths.boxed("a").join("id");
        std::fs::write(&file, "").unwrap();
        let second = id();
        assert_ne!(second, first);
        assert_eq!(id(), second);
        // What cannot be an id is a fault and not a new box.
        std::fs::write(&file, "x").unwrap();
        assert!(own_folder(&paths, "a").is_err());
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn the_environment_holds_only_what_was_asked_and_what_a_start_needs() {
        let env = environment(vec![(b"PATH".to_vec(), b"/x".to_vec())], false, false);
        let names: Vec<_> = env.iter().map(|(name, _)| name.as_slice()).collect();
        assert_eq!(names, [b"HOME".as_slice(), b"LANG", b"PATH"]);
    }
}
