//! Commands with an end, and what they said.

use std::fmt;
use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::time::{eventually, wait_until};

/// How long a command may take, where nothing else is said.
const LIMIT: Duration = Duration::from_secs(20);

/// How long its last words may take to arrive after its end: a descendant that
/// holds its standard output must not hold the test.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How a command ended and what it said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Its exit code; `None` when it was killed, for its time or otherwise.
    pub code: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Output {
    /// Itself, if the code is 0.
    ///
    /// # Panics
    /// It is not; the message holds all that was said.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self}");
        self
    }

    /// Its standard output as one JSON value a line.
    ///
    /// # Panics
    /// A line is not JSON.
    #[track_caller]
    #[must_use]
    pub fn json(&self) -> Vec<Value> {
        json_lines(&self.stdout)
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            code,
            stdout,
            stderr,
        } = self;
        write!(f, "code {code:?}\n-- stdout\n{stdout}\n-- stderr\n{stderr}")
    }
}

/// Reads one JSON value a line.
///
/// # Panics
/// A line is not JSON.
#[track_caller]
#[must_use]
pub fn json_lines(text: &str) -> Vec<Value> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

/// Runs a command to its end, without input. It is killed after 20 s.
///
/// # Panics
/// It cannot be started.
#[track_caller]
pub fn run(command: &mut Command) -> Output {
    run_within(LIMIT, command)
}

/// Runs a command to its end, without input. It is killed after `limit`.
///
/// # Panics
/// It cannot be started.
#[track_caller]
pub fn run_within(limit: Duration, command: &mut Command) -> Output {
    let mut running = Running::start(command);
    drop(running.take_stdin());
    running.finish(limit)
}

/// A command that runs beside the test, and ends with it.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdout: Heard,
    stderr: Heard,
}

impl Running {
    /// Starts a command with pipes as its input and outputs.
    ///
    /// # Panics
    /// It cannot be started.
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let stdout = Heard::new(child.stdout.take().expect("stdout is a pipe"));
        let stderr = Heard::new(child.stderr.take().expect("stderr is a pipe"));
        Self {
            child,
            stdout,
            stderr,
        }
    }

    /// The pid of the process that was started, as this test counts.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a pid is an i32"))
    }

    /// The command's input; dropping it is its end.
    pub const fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Sends a signal to the process that was started.
    ///
    /// # Panics
    /// It has ended.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("a signal to a child of ours");
    }

    /// What was said so far on standard output.
    #[must_use]
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// What was said so far on standard error.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits for a whole line of standard output that `fits`.
    ///
    /// # Panics
    /// None came in time; the message holds what did.
    #[track_caller]
    pub fn wait_line(&self, limit: Duration, fits: impl FnMut(&str) -> bool) -> String {
        self.stdout.wait_line(limit, fits).unwrap_or_else(|| {
            panic!(
                "no such line:\n-- stdout\n{}\n-- stderr\n{}",
                self.stdout(),
                self.stderr()
            )
        })
    }

    /// The same, of standard error.
    ///
    /// # Panics
    /// None came in time; the message holds what did.
    #[track_caller]
    pub fn wait_error_line(&self, limit: Duration, fits: impl FnMut(&str) -> bool) -> String {
        self.stderr.wait_line(limit, fits).unwrap_or_else(|| {
            panic!(
                "no such line:\n-- stdout\n{}\n-- stderr\n{}",
                self.stdout(),
                self.stderr()
            )
        })
    }

    /// Whether it has ended.
    ///
    /// # Panics
    /// The kernel does not know it.
    pub fn ended(&mut self) -> bool {
        self.child.try_wait().expect("a child of ours").is_some()
    }

    /// Waits for its end, which comes by force after `limit`.
    ///
    /// # Panics
    /// The kernel does not know it.
    #[track_caller]
    pub fn finish(mut self, limit: Duration) -> Output {
        let mut late = String::new();
        if !wait_until(limit, || self.ended()) {
            late = format!("\n[killed: it had not ended after {limit:?}]");
            self.child.kill().expect("a child of ours");
        }
        let code = self.child.wait().expect("a child of ours").code();
        let _quiet = wait_until(LAST_WORDS, || {
            self.stdout.finished() && self.stderr.finished()
        });
        let code = if late.is_empty() { code } else { None };
        Output {
            code,
            stdout: self.stdout(),
            stderr: self.stderr() + &late,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// What one pipe said.
#[derive(Debug)]
struct Heard {
    text: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl Heard {
    fn new(pipe: impl Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let into = Arc::clone(&text);
        let reader = thread::spawn(move || {
            let mut pipe = BufReader::new(pipe);
            let mut line = Vec::new();
            while pipe
                .read_until(b'\n', &mut line)
                .is_ok_and(|count| count > 0)
            {
                let words = String::from_utf8_lossy(&line).into_owned();
                into.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push_str(&words);
                line.clear();
            }
        });
        Self { text, reader }
    }

    fn text(&self) -> String {
        self.text
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn finished(&self) -> bool {
        self.reader.is_finished()
    }

    fn wait_line(&self, limit: Duration, mut fits: impl FnMut(&str) -> bool) -> Option<String> {
        eventually(limit, || {
            let text = self.text();
            text.split_inclusive('\n')
                .filter_map(|line| line.strip_suffix('\n'))
                .find(|line| fits(line))
                .map(str::to_owned)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_says_what_it_said_and_how_it_ended() {
        let mut sh = Command::new("sh");
        let output = run(sh.args(["-c", "echo out; echo err >&2; exit 3"]));
        assert_eq!(output.code, Some(3));
        assert_eq!(
            (output.stdout.as_str(), output.stderr.as_str()),
            ("out\n", "err\n")
        );
    }

    #[test]
    fn a_command_that_does_not_end_is_ended() {
        let mut sleep = Command::new("sleep");
        let output = run_within(Duration::from_millis(50), sleep.arg("100"));
        assert_eq!(output.code, None);
        assert!(output.stderr.contains("killed"), "{output}");
    }

    #[test]
    fn a_line_is_waited_for() {
        let mut sh = Command::new("sh");
        let running = Running::start(sh.args(["-c", "sleep 0.05; echo one; echo two; sleep 9"]));
        let line = running.wait_line(Duration::from_secs(5), |line| line.starts_with("tw"));
        assert_eq!(line, "two");
    }

    #[test]
    fn input_ends_when_it_is_dropped() {
        let output = run(&mut Command::new("cat")).ok();
        assert_eq!(output.stdout, "");
    }
}
