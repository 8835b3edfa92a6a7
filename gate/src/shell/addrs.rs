//! The node's addresses and routes, read again when they change.

use std::io::{self, Write as _};
use std::time::Duration;

use super::Shell;

impl Shell {
    /// Reads them again, if that is due.
    pub(super) fn reread_addrs(&mut self) {
        if self.reread.is_none_or(|due| due > self.now) {
            return;
        }
        self.read_at = self.now;
        match self.netlink.read() {
            Ok(addrs) => {
                self.reread = None;
                self.gate.set_addrs(addrs);
                self.gate.judge_anew(self.now, &mut self.wire);
            }
            // The old list stands, and it is asked again.
            Err(error) => {
                // A log that cannot be written (its disk may be full) must not end
                // the gate.
                let _lost = writeln!(io::stderr(), "bailey-gate: {error}");
                self.reread = Some(self.now + Duration::from_secs(1));
            }
        }
    }
}
