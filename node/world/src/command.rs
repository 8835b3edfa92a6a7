//! Running a step's own program, `ip`, in the namespaces of the caller.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::control::{Failure, Step as _};

/// Where system programs are; an ordinary user's PATH may lack the `sbin`s.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs the lines as one batch of ip(8). The first line that fails ends it.
pub(crate) fn ip(step: &str, lines: &[String]) -> Result<(), Failure> {
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .env_clear()
        .env("PATH", PATH)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Failure::new(step, "the program `ip` is not installed (package iproute2)")
            }
            _ => Failure::new(step, format!("ip: {error}")),
        })?;
    if let Some(mut stdin) = child.stdin.take() {
        // A batch that fails early closes its end; its words come below.
        let _closed = stdin.write_all(lines.join("\n").as_bytes());
    }
    let output = child.wait_with_output().step(step)?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    let failed = words
        .split("Command failed -:")
        .nth(1)
        .and_then(|number| number.split_whitespace().next()?.parse::<usize>().ok())
        .and_then(|number| lines.get(number.checked_sub(1)?));
    let detail = match failed {
        Some(line) => format!("ip {line}: {}", words.lines().next().unwrap_or_default()),
        None => format!("ip: {words}"),
    };
    Err(Failure::new(step, detail))
}
