//! A command on a terminal of its own.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nix::pty::{Winsize, openpty};

use crate::time::wait_until;

/// A command whose input and outputs are a pseudoterminal, which is its
/// controlling terminal too: what is typed there includes Ctrl-C.
#[derive(Debug)]
pub struct Terminal {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Starts a program on a terminal of 24 lines of 80. `command` makes the
    /// command that runs a program: `|program| node.command(program)`.
    ///
    /// # Panics
    /// There is no terminal to be had, or the command cannot be started.
    #[track_caller]
    pub fn start(
        command: impl FnOnce(&OsStr) -> Command,
        program: impl AsRef<OsStr>,
        args: &[&str],
    ) -> Self {
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(&size, None).expect("a pseudoterminal");
        let keyboard = File::from(pty.master);
        let screen = Arc::new(Mutex::new(Vec::new()));
        // setsid makes the terminal the controlling one of a new session.
        let mut child = command(OsStr::new("setsid"));
        let child = child.args(["--ctty", "--wait"]).arg(program).args(args);
        child
            .stdin(pty.slave.try_clone().expect("a descriptor"))
            .stdout(pty.slave.try_clone().expect("a descriptor"))
            .stderr(pty.slave);
        let child = child
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {child:?}: {error}"));

        let mut from = keyboard.try_clone().expect("a descriptor");
        let into = Arc::clone(&screen);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // EIO is the end: nobody holds the other side.
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                let mut screen = into.lock().unwrap_or_else(PoisonError::into_inner);
                screen.extend_from_slice(buffer.get(..count).unwrap_or_default());
            }
        });
        Self {
            child,
            keyboard,
            screen,
        }
    }

    /// Types.
    ///
    /// # Panics
    /// The terminal is gone.
    #[track_caller]
    pub fn type_in(&mut self, keys: &str) {
        self.keyboard
            .write_all(keys.as_bytes())
            .expect("a terminal to type on");
    }

    /// All that was shown so far.
    #[must_use]
    pub fn screen(&self) -> String {
        let screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&screen).into_owned()
    }

    /// Waits until the screen holds a text.
    ///
    /// # Panics
    /// It did not come in time; the message holds what did.
    #[track_caller]
    pub fn wait_for(&self, limit: Duration, text: &str) {
        let shown = wait_until(limit, || self.screen().contains(text));
        assert!(shown, "no `{text}` on the screen:\n{}", self.screen());
    }

    /// Waits for the command's end and gives its code.
    ///
    /// # Panics
    /// It did not end in time.
    #[track_caller]
    pub fn finish(mut self, limit: Duration) -> Option<i32> {
        let ended = wait_until(limit, || {
            self.child.try_wait().expect("a child of ours").is_some()
        });
        assert!(
            ended,
            "it had not ended after {limit:?}:\n{}",
            self.screen()
        );
        self.child.wait().expect("a child of ours").code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_sees_a_terminal_and_gets_its_ctrl_c() {
        let script =
            "trap 'echo caught; exit 5' INT; tty -s && stty size; while :; do sleep 0.05; done";
        let mut terminal = Terminal::start(|program| Command::new(program), "sh", &["-c", script]);
        terminal.wait_for(Duration::from_secs(5), "24 80");
        terminal.type_in("\x03");
        terminal.wait_for(Duration::from_secs(5), "caught");
        assert_eq!(terminal.finish(Duration::from_secs(5)), Some(5));
    }
}
