//! The caller's terminal or pipes, kept outside the box.
//!
//! The box gets ends of its own: pipes made here, or a pty made in its own
//! devpts. Threads carry bytes between the two, so nothing that the box does
//! to its descriptors reaches the caller's.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;

use nix::sys::termios::{self, SetArg, Termios};

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

/// Carries what the box writes to the caller; joined at the end so that
/// nothing is lost.
#[derive(Debug)]
pub(crate) struct Relay {
    outputs: Vec<JoinHandle<()>>,
    raw: Option<RawTerminal>,
}

impl Relay {
    /// Between pipes and this process's stdin, stdout and stderr.
    pub(crate) fn pipes(outer: [OwnedFd; 3]) -> Self {
        let [stdin, stdout, stderr] = outer;
        // Not joined: a read of the caller's stdin cannot be taken back.
        std::thread::spawn(move || carry(io::stdin(), File::from(stdin)));
        let outputs = vec![
            std::thread::spawn(move || carry(File::from(stdout), io::stdout())),
            std::thread::spawn(move || carry(File::from(stderr), io::stderr())),
        ];
        Self { outputs, raw: None }
    }

    /// Between the master of the box's pty and this process's terminal, which
    /// is raw until the relay is finished.
    ///
    /// # Errors
    /// When the terminal cannot be set.
    pub(crate) fn terminal(master: &OwnedFd) -> io::Result<Self> {
        let raw = RawTerminal::new()?;
        let (read, write) = (master.try_clone()?, master.try_clone()?);
        std::thread::spawn(move || carry(io::stdin(), File::from(write)));
        let outputs = vec![std::thread::spawn(move || {
            carry(File::from(read), io::stdout())
        })];
        Ok(Self {
            outputs,
            raw: Some(raw),
        })
    }

    /// Waits until all that the box wrote has been carried, and gives the
    /// terminal back.
    pub(crate) fn finish(self) {
        for output in self.outputs {
            // A relay thread that panicked has nothing more to carry.
            let _panicked = output.join();
        }
        drop(self.raw);
    }
}

/// Until either end is gone. A pty's master answers EIO when the last holder
/// of the other side is gone; that is its end of file.
fn carry(mut from: impl io::Read, mut to: impl io::Write) {
    let mut chunk = vec![0; CHUNK];
    loop {
        let count = match from.read(&mut chunk) {
            Ok(0) => return,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
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
        // Cursor shown, attributes and modes reset, whatever the box left.
        let _gone = io::stdout().write_all(b"\x1b[!p\x1b[?25h\x1b[0m");
        let _gone = io::stdout().flush();
    }
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
