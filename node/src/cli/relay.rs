//! The caller's terminal or pipes, kept outside the box.
//!
//! The box gets ends of its own: pipes made here, or a pty made in its own
//! devpts. Threads carry bytes between the two, so nothing that the box does
//! to its descriptors reaches the caller's.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::termios::{self, SetArg, Termios};

/// After the end of the box, nothing for this long is the end of its output.
const QUIET: Duration = Duration::from_secs(1);
/// Bytes carried in one step.
const CHUNK: usize = 64 << 10;

/// Pipes between the caller and the box.
#[derive(Debug)]
pub(crate) struct Pipes {
    /// The box's ends: stdin, stdout, stderr.
    pub(crate) inner: [OwnedFd; 3],
    /// The caller's ends, in the same order.
    pub(crate) outer: [OwnedFd; 3],
}

impl Pipes {
    /// Three fresh pipes, close-on-exec.
    ///
    /// # Errors
    /// When the kernel has no descriptors left.
    pub(crate) fn new() -> io::Result<Self> {
        let (stdin_read, stdin_write) = io::pipe()?;
        let (stdout_read, stdout_write) = io::pipe()?;
        let (stderr_read, stderr_write) = io::pipe()?;
        Ok(Self {
            inner: [stdin_read.into(), stdout_write.into(), stderr_write.into()],
            outer: [stdin_write.into(), stdout_read.into(), stderr_read.into()],
        })
    }
}

/// Carries what the box writes to the caller.
#[derive(Debug)]
pub(crate) struct Relay {
    outputs: Vec<JoinHandle<()>>,
    /// Bytes that came from the box so far.
    carried: Arc<AtomicU64>,
    raw: Option<RawTerminal>,
}

impl Relay {
    /// Between pipes and this process's stdin, stdout and stderr.
    pub(crate) fn pipes(outer: [OwnedFd; 3]) -> Self {
        let [stdin, stdout, stderr] = outer;
        let carried = Arc::new(AtomicU64::new(0));
        // Not joined: a read of the caller's stdin cannot be taken back.
        std::thread::spawn(move || carry(io::stdin(), File::from(stdin), &AtomicU64::new(0)));
        let (to_stdout, to_stderr) = (Arc::clone(&carried), Arc::clone(&carried));
        let outputs = vec![
            std::thread::spawn(move || carry(File::from(stdout), io::stdout(), &to_stdout)),
            std::thread::spawn(move || carry(File::from(stderr), io::stderr(), &to_stderr)),
        ];
        Self {
            outputs,
            carried,
            raw: None,
        }
    }

    /// Between the master of the box's pty and this process's terminal, which
    /// is raw until the relay is finished or dropped.
    ///
    /// # Errors
    /// When the terminal cannot be set.
    pub(crate) fn terminal(master: &OwnedFd) -> io::Result<Self> {
        let (read, write) = (master.try_clone()?, master.try_clone()?);
        let raw = RawTerminal::new()?;
        let carried = Arc::new(AtomicU64::new(0));
        std::thread::spawn(move || carry(io::stdin(), File::from(write), &AtomicU64::new(0)));
        let to_stdout = Arc::clone(&carried);
        let outputs = vec![std::thread::spawn(move || {
            carry(File::from(read), io::stdout(), &to_stdout);
        })];
        Ok(Self {
            outputs,
            carried,
            raw: Some(raw),
        })
    }

    /// Whether a line needs its carriage return said.
    pub(crate) fn is_raw(&self) -> bool {
        self.raw.is_some()
    }

    /// Waits until all that the box wrote has been carried, and gives the
    /// terminal back. The box is over: whoever still holds its end of a pipe is
    /// somebody else, and is not waited for once nothing more comes.
    pub(crate) fn finish(self) {
        let mut last = (self.carried.load(Ordering::Relaxed), Instant::now());
        while self.outputs.iter().any(|output| !output.is_finished()) {
            let now = self.carried.load(Ordering::Relaxed);
            if now != last.0 {
                last = (now, Instant::now());
            }
            if last.1.elapsed() > QUIET {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.raw.is_none() && io::stdout().is_terminal() {
            reset();
        }
    }
}

/// Until either end is gone. A pty's master answers EIO when the last holder
/// of the other side is gone; that is its end of file.
fn carry(mut from: impl io::Read, mut to: impl io::Write, carried: &AtomicU64) {
    let mut chunk = vec![0; CHUNK];
    loop {
        let count = match from.read(&mut chunk) {
            Ok(0) => return,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        carried.fetch_add(1, Ordering::Relaxed);
        let written = to.write_all(chunk.get(..count).unwrap_or_default());
        if written.and_then(|()| to.flush()).is_err() {
            return;
        }
    }
}

/// The caller's terminal in raw mode; put back when dropped.
#[derive(Debug)]
struct RawTerminal {
    before: Termios,
}

impl RawTerminal {
    fn new() -> io::Result<Self> {
        let before = termios::tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        termios::cfmakeraw(&mut raw);
        termios::tcsetattr(io::stdin(), SetArg::TCSADRAIN, &raw)?;
        Ok(Self { before })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // Unread input was typed for the box, not for the shell behind it.
        let _gone = termios::tcsetattr(io::stdin(), SetArg::TCSAFLUSH, &self.before);
        reset();
    }
}

/// Puts back whatever the box may have set: soft reset, main screen, no mouse,
/// no bracketed paste, cursor shown, plain text.
fn reset() {
    const RESET: &[u8] = b"\x1b[!p\x1b[?1049l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?25h\x1b[0m";
    // A terminal that is gone needs no reset.
    let _gone = io::stdout().write_all(RESET);
    let _gone = io::stdout().flush();
}

/// Rows and columns of this process's terminal.
pub(crate) fn window() -> Option<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(io::stdin().as_fd()).ok()?;
    Some((size.ws_row, size.ws_col))
}

/// Gives the box's pty this process's window size.
pub(crate) fn resize(master: &OwnedFd) {
    if let Ok(size) = rustix::termios::tcgetwinsize(io::stdin().as_fd()) {
        // A box that is gone has no window.
        let _gone = rustix::termios::tcsetwinsize(master, size);
    }
}
