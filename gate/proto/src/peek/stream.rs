//! The beginning of a TCP flow.

use super::records;
use super::{MAX_HELLO, Read, Spoken};

/// What the box's side of a stream began with, until that is known.
#[derive(Debug)]
pub(crate) struct StreamPeek {
    /// The stream from its first byte on, where a look did not decide.
    seen: Vec<u8>,
    /// Length of the stream at which the next look may decide.
    wanted: usize,
}

impl StreamPeek {
    pub(crate) fn new() -> Self {
        Self {
            seen: Vec::new(),
            wanted: 1,
        }
    }

    /// Looks at bytes that are next to go out, of a stream of which `sent` have
    /// gone. `None`: they cannot be a whole ClientHello with those before them.
    /// Looking at bytes again, or at some of them, is fine; none may be skipped.
    pub(crate) fn look(&mut self, sent: usize, bytes: &[u8]) -> Option<Spoken> {
        let known = self.seen.len().saturating_sub(sent);
        let fresh = bytes.get(known..).unwrap_or_default();
        if self.seen.len() + fresh.len() < self.wanted {
            self.keep(fresh);
            return None;
        }
        // Nearly every hello comes at once, and is read where it lies.
        let read = if self.seen.is_empty() {
            let read = records::read(first(fresh));
            if matches!(read, Read::More(_)) {
                self.keep(fresh);
            }
            read
        } else {
            self.keep(fresh);
            records::read(&self.seen)
        };
        match read {
            Read::Done(spoken) => Some(spoken),
            Read::More(wanted) => {
                self.wanted = wanted;
                None
            }
        }
    }

    fn keep(&mut self, fresh: &[u8]) {
        let room = MAX_HELLO.saturating_sub(self.seen.len());
        self.seen.extend(fresh.iter().take(room));
    }
}

fn first(bytes: &[u8]) -> &[u8] {
    bytes.get(..MAX_HELLO).unwrap_or(bytes)
}
