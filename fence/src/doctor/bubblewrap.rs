//! Whether the distribution's bubblewrap makes a box here.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bailey_fence_plan::doctor::Bubblewrap;

use crate::fallback::bubblewrap::PROGRAM;

/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often its end is looked for.
const LOOK: Duration = Duration::from_millis(5);
/// Most bytes of what it said.
const MAX_SAID: usize = 200;

/// A box of nothing but namespaces, as the fallback asks for them.
const TRIAL: &[&str] = &[
    "--unshare-user",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-net",
    "--unshare-cgroup-try",
    "--die-with-parent",
    "--new-session",
    "--as-pid-1",
    "--ro-bind",
    "/",
    "/",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--tmpfs",
    "/tmp",
    "--",
    "/bin/true",
];

/// Runs it, where it is.
pub(super) fn observe() -> Option<Bubblewrap> {
    if !std::path::Path::new(PROGRAM).exists() {
        return None;
    }
    let version = said(&["--version"]).unwrap_or_else(|error| error);
    Some(Bubblewrap {
        version: version.trim().to_owned(),
        failed: said(TRIAL).err(),
    })
}

/// Its output, or the first line of what it said against it.
fn said(words: &[&str]) -> Result<String, String> {
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
