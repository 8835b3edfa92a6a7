//! Whether the distribution's bubblewrap makes a box here.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bailey_fence_plan::doctor::Bubblewrap;
use bailey_fence_plan::fallback::{LAUNCHER, Places, Word, arguments};
use bailey_fence_plan::{SetupOp, ahead};

use crate::facts::{self, Machine};
use crate::fallback::bubblewrap::PROGRAM;

/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often its end is looked for.
const LOOK: Duration = Duration::from_millis(5);
/// Most bytes of what it said.
const MAX_SAID: usize = 200;

/// What stands in for this program in the trial.
const TRIED: &str = "/usr/bin/true";

/// The words that a box without grants is made by, up to the program.
fn words() -> Result<Vec<OsString>, String> {
    let facts = facts::look(Machine::look()).map_err(|error| error.to_string())?;
    let mut ops = ahead(&facts);
    ops.push(SetupOp::Seal { at: b"/".to_vec() });
    let places = Places {
        own: b"/",
        grants: &[],
        launcher: TRIED.as_bytes(),
        network: false,
        lend: true,
    };
    let text = |word| match word {
        Word::Text(text) => Ok(OsString::from_vec(text)),
        Word::Contents(_) => Err("a file where none is planned".to_owned()),
    };
    arguments(&ops, &places)?.into_iter().map(text).collect()
}

/// Makes such a box, in which nothing runs but the stand-in.
fn make() -> Result<String, String> {
    let mut words = words()?;
    words.extend(["--", LAUNCHER].map(OsString::from));
    said(&words)
}

/// Runs it, where it is.
pub(super) fn observe() -> Option<Bubblewrap> {
    if !std::path::Path::new(PROGRAM).exists() {
        return None;
    }
    let version = said(&["--version".into()]).unwrap_or_else(|error| error);
    Some(Bubblewrap {
        version: version.trim().to_owned(),
        failed: make().err(),
    })
}

/// Its output, or the first line of what it said against it.
fn said(words: &[OsString]) -> Result<String, String> {
    let child = Command::new(PROGRAM)
        .args(words)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|error| error.to_string())?;
    let until = Instant::now() + PATIENCE;
    while let Ok(None) = child.try_wait() {
        if Instant::now() > until {
            let _ended = child.kill();
        }
        std::thread::sleep(LOOK);
    }
    // It says less than a pipe holds, so it never waits for a reader.
    let output = child
        .wait_with_output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().next().unwrap_or("it ended without a word");
    Err(line.chars().take(MAX_SAID).collect())
}
