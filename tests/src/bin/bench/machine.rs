//! What the figures were measured on, so that the table can be read alone.

use std::fs;
use std::process::{Command, Stdio};

use bailey_tests::binaries;

/// Lines for the top of the table.
pub(crate) fn facts() -> Vec<String> {
    let cores = std::thread::available_parallelism()
        .map_or_else(|_| "?".to_owned(), |cores| cores.to_string());
    let bailey = binaries().join("bailey");
    vec![
        format!(
            "machine  {cores} cores, {}, Linux {}, load {}",
            processor(),
            word_of("/proc/sys/kernel/osrelease"),
            word_of("/proc/loadavg"),
        ),
        format!("bailey   {}", said_by(&bailey.to_string_lossy())),
        format!("bwrap    {}", peer("bwrap", "bubblewrap")),
        format!("pasta    {}", peer("pasta", "passt")),
        format!("slirp    {}", peer("slirp4netns", "slirp4netns")),
    ]
}

fn processor() -> String {
    let all = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    all.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == "model name")
        .map_or_else(
            || std::env::consts::ARCH.to_owned(),
            |(_, model)| model.trim().to_owned(),
        )
}

/// The first word of a file.
fn word_of(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().next().unwrap_or("?").to_owned()
}

/// What a peer says of its version, and its package's: Debian's pasta does not
/// know its own.
fn peer(program: &str, package: &str) -> String {
    let said = said_by(program);
    let packaged = Command::new("dpkg-query")
        .args(["-W", "-f", "${Version}", package])
        .stdin(Stdio::null())
        .output();
    match packaged {
        Ok(output) if output.status.success() => {
            format!(
                "{said} ({package} {})",
                String::from_utf8_lossy(&output.stdout)
            )
        }
        _ => said,
    }
}

/// The first line that a program says of its version.
fn said_by(program: &str) -> String {
    let output = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output();
    let Ok(output) = output else {
        return "not installed".to_owned();
    };
    let said = String::from_utf8_lossy(&output.stdout);
    said.lines().next().unwrap_or("says no version").to_owned()
}
