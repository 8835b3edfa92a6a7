//! What the box's side of a flow begins with.

use smoltcp::socket::tcp::RecvError;

use super::Live;
use crate::peek::{MAX_HELLO, Spoken};

impl Live {
    /// Whether it is not known yet what the box's bytes begin with.
    pub(crate) fn peeks(&self) -> bool {
        self.peek.is_some()
    }

    /// What the box's bytes begin with, once that is known, and before the bytes
    /// that tell it are moved. A buffer is longer than what is looked at, so all
    /// of that lies in one piece.
    pub(crate) fn peek(&mut self) -> Option<Spoken> {
        let peek = self.peek.as_mut()?;
        let sent = usize::try_from(self.bytes_out).unwrap_or(usize::MAX);
        let spoken = match self.engine.socket().peek(MAX_HELLO) {
            Ok(bytes) => peek.look(sent, bytes),
            Err(RecvError::Finished) => Some(Spoken::Other),
            Err(RecvError::InvalidState) => None,
        };
        if spoken.is_some() {
            self.peek = None;
        }
        spoken
    }
}
