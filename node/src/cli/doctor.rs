//! `bailey doctor`: what this machine can do for a box. The launcher tries, the
//! plan judges, this prints. It needs no node and starts none.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use bailey_channel::{Channel, Message};
use bailey_fence_plan::doctor::{
    AtRest, Finding, INSTALLED, LOAD_PROFILE, Observed, Outcome, Verdict, judge,
};
use serde_json::json;

use super::args::DoctorArgs;
use super::{out, recovery};
use crate::api::Failure;
use crate::paths::Paths;
use crate::show;
use crate::vault;

/// How long all the trials may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// The profile, for the launcher where it is installed.
const PROFILE: &str = include_str!("../../../packaging/apparmor/bailey-fence");
/// Most layers of block devices below a file system.
const MAX_LAYERS: usize = 8;

/// Tries, judges and prints.
pub(super) fn doctor(args: &DoctorArgs) -> Result<u8, Failure> {
    let seen = observe()?;
    if args.print_apparmor {
        return print_profile(&seen);
    }
    let findings = judge(&seen, &at_rest());
    let verdict = seen.verdict();
    let mut lost = "";
    for finding in &findings {
        // What several rungs cost is said once.
        print(finding, args.json, lost)?;
        lost = &finding.lost;
    }
    conclude(&verdict, args.json)?;
    if !args.json && recovery::is_undone() {
        out::say(&recovery::undone());
    }
    Ok(verdict.exit_code())
}

/// Has the launcher try everything.
fn observe() -> Result<Observed, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::host(format!("where is this program? {error}")))?
        .with_file_name("bailey-fence");
    let fault =
        |error: &dyn std::fmt::Display| Failure::host(format!("{}: {error}", program.display()));
    let (own, theirs) = Channel::pair().map_err(|error| fault(&error))?;
    own.set_read_timeout(Some(PATIENCE))
        .map_err(|error| fault(&error))?;
    let mut child = Command::new(&program)
        .arg("doctor")
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(|error| fault(&error))?;
    let said = Channel::new(own).receive::<Observed>();
    if said.is_err() {
        let _ended = child.kill();
    }
    let _reaped = child.wait();
    match said {
        Ok(Message { value, .. }) => Ok(value),
        Err(error) => Err(fault(&error)),
    }
}

fn print(finding: &Finding, as_json: bool, said: &str) -> Result<(), Failure> {
    if as_json {
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        return out::json(&json!({
            "v": 1, "kind": "rung", "rung": finding.rung.as_str(),
            "outcome": finding.outcome.as_str(), "fact": finding.fact,
            "lost": some(&finding.lost), "remedy": some(&finding.remedy),
        }));
    }
    let fact = show::sentence(&finding.fact);
    out::line(&format!(
        "{:7} {:18} {fact}",
        finding.outcome.as_str(),
        finding.rung.as_str()
    ))?;
    if finding.outcome == Outcome::Ok {
        return Ok(());
    }
    if !finding.lost.is_empty() && finding.lost != said {
        out::line(&format!(
            "{:26} lost: {}",
            "",
            show::sentence(&finding.lost)
        ))?;
    }
    if !finding.remedy.is_empty() {
        // Never cut: it is there to be copied. It holds no byte but those of a
        // shell's own words, whatever a path was made of.
        out::line(&format!("{:26} help: {}", "", finding.remedy))?;
    }
    Ok(())
}

fn conclude(verdict: &Verdict, as_json: bool) -> Result<(), Failure> {
    let full: Vec<&str> = verdict.full.iter().map(|tier| tier.as_str()).collect();
    let exit = verdict.exit_code();
    if as_json {
        return out::json(&json!({
            "v": 1, "kind": "verdict", "tiers": full, "any": verdict.any,
            "browser": verdict.browser, "exit": exit,
        }));
    }
    out::line(&match exit {
        0 => "boxes of every tier can be made here".to_owned(),
        1 if full.is_empty() => {
            "only boxes weaker than asked can be made here, with --allow-weaker".to_owned()
        }
        1 => format!("no gated box can be made here; {} can", full.join(", ")),
        _ => "no box can be made here".to_owned(),
    })
}

/// The profile, for where the launcher is or will be, and how to load it.
fn print_profile(seen: &Observed) -> Result<u8, Failure> {
    let plain = |path: &&str| {
        path.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte))
    };
    let own = std::str::from_utf8(&seen.launcher.path).ok().filter(plain);
    let path = own.filter(|_| seen.launcher.of_root).unwrap_or(INSTALLED);
    for line in PROFILE.replace(INSTALLED, path).lines() {
        out::line(line)?;
    }
    if path != INSTALLED || seen.launcher.of_root {
        out::say("to load it:");
    } else {
        out::say(&format!(
            "{} can be replaced by others than root: a profile for it would be one for everybody",
            show::bytes(&seen.launcher.path)
        ));
        out::say("install bailey first, then load the profile by what is in /usr/libexec/bailey:");
    }
    for command in LOAD_PROFILE.split(" && ") {
        out::say(&format!("  {command}"));
    }
    Ok(0)
}

/// What lies on the disk.
fn at_rest() -> AtRest {
    let Ok(paths) = Paths::from_env() else {
        return AtRest::default();
    };
    let key = paths.state.join("device.key");
    let mode = std::fs::symlink_metadata(&key).map(|meta| meta.mode() & 0o7777);
    AtRest {
        path: key.display().to_string(),
        mode: mode.ok(),
        encrypted: encrypted(&paths.state).unwrap_or_default(),
        sealed: vault::is_sealed(&key),
        service: vault::is_offered(),
    }
}

/// Whether the block device below a folder is one of dm-crypt. A file system of
/// another kind says nothing of its disk, and so counts as not.
fn encrypted(folder: &Path) -> io::Result<bool> {
    let there = folder
        .ancestors()
        .find_map(|part| std::fs::metadata(part).ok());
    let device = there.ok_or(io::ErrorKind::NotFound)?.dev();
    let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
    let mut at: PathBuf = format!("/sys/dev/block/{major}:{minor}").into();
    for _ in 0..MAX_LAYERS {
        let kind = std::fs::read_to_string(at.join("dm/uuid")).unwrap_or_default();
        if kind.starts_with("CRYPT-") {
            return Ok(true);
        }
        let below: Vec<PathBuf> = std::fs::read_dir(at.join("slaves"))?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<_>>()?;
        // Over several disks it would hold only if all were.
        match <[PathBuf; 1]>::try_from(below) {
            Ok([only]) => at = only,
            Err(_) => return Ok(false),
        }
    }
    Ok(false)
}
