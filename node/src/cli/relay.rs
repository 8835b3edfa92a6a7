//! The caller's terminal or pipes, kept outside the box.
//!
//! The box gets ends of its own: pipes made here, or a pty made in its own
//! devpts. Threads carry bytes between the two, so nothing that the box does
//! to its descriptors reaches the caller's.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::termios::{self, SetArg, Termios};

/// After the end of the box, nothing for this long is the end of its output.
const QUIET: Duration = Duration::from_secs(1);
/// As is having waited this long in all, the waits for a slow reader apart.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// As are more bytes than a pipe can hold (pipe-max-size, see pipe(7)).
const MAX_PIPE: u64 = 1 << 20;
/// Between two looks at what is carried.
const STEP: Duration = Duration::from_millis(1);
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

/// Carries what the box writes to the caller. Dropped, it gives the terminal
/// back.
#[derive(Debug)]
pub(crate) struct Relay {
    outputs: Vec<Output>,
    raw: Option<RawTerminal>,
}

impl Relay {
    /// Between pipes and this process's stdin, stdout and stderr.
    pub(crate) fn pipes(outer: [OwnedFd; 3]) -> Self {
        let [stdin, stdout, stderr] = outer;
        carry_input(stdin);
        let outputs = vec![
            Output::new(File::from(stdout), io::stdout()),
            Output::new(File::from(stderr), io::stderr()),
        ];
        Self { outputs, raw: None }
    }

    /// Between the master of the box's pty and this process's terminal, which
    /// is raw until the relay is finished or dropped.
    ///
    /// # Errors
    /// When the terminal cannot be set.
    pub(crate) fn terminal(master: &OwnedFd) -> io::Result<Self> {
        let (read, write) = (master.try_clone()?, master.try_clone()?);
        let raw = RawTerminal::new()?;
        carry_input(write);
        Ok(Self {
            outputs: vec![Output::new(File::from(read), io::stdout())],
            raw: Some(raw),
        })
    }

    /// Whether a line needs its carriage return said.
    pub(crate) fn is_raw(&self) -> bool {
        self.raw.is_some()
    }

    /// Waits until all that the box wrote has been carried, and gives the
    /// terminal back.
    pub(crate) fn finish(self) {
        for output in &self.outputs {
            output.drain();
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        for output in &self.outputs {
            // What still comes would undo the reset.
            output.progress.closed.store(true, Ordering::SeqCst);
        }
        drop(self.raw.take());
        reset();
    }
}

/// One stream out of the box.
#[derive(Debug)]
struct Output {
    thread: JoinHandle<()>,
    progress: Arc<Progress>,
}

/// How far a carrier is.
#[derive(Debug, Default)]
struct Progress {
    /// Bytes that came from the box so far.
    carried: AtomicU64,
    /// It waits for the caller's reader, not for the box.
    writing: AtomicBool,
    /// Nothing more is to be carried.
    closed: AtomicBool,
}

impl Output {
    fn new(from: File, to: impl io::Write + Send + 'static) -> Self {
        let progress = Arc::new(Progress::default());
        let of_thread = Arc::clone(&progress);
        let thread = std::thread::spawn(move || carry(from, to, &of_thread));
        Self { thread, progress }
    }

    /// The box is over: what it wrote is in the pipe by now, and is carried
    /// however slowly the caller's reader takes it. Whoever else still holds
    /// the box's end is not waited for.
    fn drain(&self) {
        let carried = || self.progress.carried.load(Ordering::SeqCst);
        let before = carried();
        let (mut last, mut heard) = (before, Instant::now());
        let mut waited = Duration::ZERO;
        while !self.thread.is_finished() {
            let now = carried();
            let writing = self.progress.writing.load(Ordering::SeqCst);
            if now != last || writing {
                (last, heard) = (now, Instant::now());
            }
            let all = now.saturating_sub(before) > MAX_PIPE;
            if all || heard.elapsed() > QUIET || waited > DRAIN_LIMIT {
                return;
            }
            let asleep = Instant::now();
            std::thread::sleep(STEP);
            if !writing {
                waited += asleep.elapsed();
            }
        }
    }
}

/// From the caller. Not waited for: a read of its stdin cannot be taken back.
fn carry_input(to: OwnedFd) {
    std::thread::spawn(move || carry(io::stdin(), File::from(to), &Progress::default()));
}

/// Until either end is gone. A pty's master answers EIO when the last holder
/// of the other side is gone; that is its end of file.
fn carry(mut from: impl io::Read, mut to: impl io::Write, progress: &Progress) {
    let mut chunk = vec![0; CHUNK];
    loop {
        let count = match from.read(&mut chunk) {
            Ok(0) => return,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        progress.writing.store(true, Ordering::SeqCst);
        progress.carried.fetch_add(count as u64, Ordering::SeqCst);
        if progress.closed.load(Ordering::SeqCst) {
            return;
        }
        let written = to.write_all(chunk.get(..count).unwrap_or_default());
        if written.and_then(|()| to.flush()).is_err() {
            return;
        }
        progress.writing.store(false, Ordering::SeqCst);
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
    }
}

/// Puts back whatever the box may have set: an unfinished string is ended, then
/// main screen, soft reset, no mouse, no focus reports, no bracketed paste,
/// cursor shown, plain text. Leaving a screen that was not entered restores the
/// saved cursor all the same, so it is saved first.
const RESET: &[u8] = b"\x1b\\\x1b7\x1b[?1049l\x1b[!p\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1006l\x1b[?2004l\x1b[?25h\x1b[0m";

/// Resets the terminal that the box could write to, if there is one.
fn reset() {
    // A terminal that is gone needs no reset.
    let _gone = if io::stdout().is_terminal() {
        io::stdout()
            .write_all(RESET)
            .and_then(|()| io::stdout().flush())
    } else if io::stderr().is_terminal() {
        io::stderr().write_all(RESET)
    } else {
        Ok(())
    };
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// A reader that takes its time.
    struct Slow(Arc<Mutex<usize>>);

    impl io::Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            std::thread::sleep(QUIET + QUIET / 4);
            *self.0.lock().unwrap() += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_slow_reader_gets_all_that_the_box_wrote() {
        let (read, mut write) = io::pipe().unwrap();
        let got = Arc::new(Mutex::new(0));
        let output = Output::new(File::from(OwnedFd::from(read)), Slow(Arc::clone(&got)));
        // Twice: the second part is in the pipe while the first is written.
        for part in [10, 1000] {
            write.write_all(&vec![0; part]).unwrap();
            std::thread::sleep(QUIET / 10);
        }
        output.drain();
        assert_eq!(*got.lock().unwrap(), 1010);
        drop(write);
    }

    #[test]
    fn whoever_else_holds_the_pipe_is_not_waited_for() {
        let (read, mut write) = io::pipe().unwrap();
        let silent = Output::new(File::from(OwnedFd::from(read)), io::sink());
        let begun = Instant::now();
        silent.drain();
        assert!(begun.elapsed() < QUIET * 2, "{:?}", begun.elapsed());
        // One that never stops writing is not waited for either.
        let (read, mut held) = io::pipe().unwrap();
        let busy = Output::new(File::from(OwnedFd::from(read)), io::sink());
        std::thread::spawn(move || while held.write_all(&[0; 4096]).is_ok() {});
        let begun = Instant::now();
        busy.drain();
        assert!(begun.elapsed() < DRAIN_LIMIT, "{:?}", begun.elapsed());
        write.write_all(b"held").unwrap();
    }
}
