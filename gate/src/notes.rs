//! The slate of this gate: its memory, and what of it the node has not heard.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime};

use bailey_gate_proto::channel::{FromGate, GateEvent};
use bailey_gate_proto::{Note, Now, SLATE_LEN, SLATE_NONCE, Slate, SlateKey};
use bailey_model::FlowOpened;
use nix::errno::Errno;

use crate::sys::{self, Mapping};

/// How long the node may wait to hear of a flow that is noted: others come with it.
const NOTE_WAITS: Duration = Duration::from_millis(10);
/// Notes that wait for no others.
const MANY_NOTES: usize = 128;

/// Flows that are noted before their dial.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    slate: Option<(Slate, Mapping)>,
    /// The store did not take an entry: until every note stands, new flows ask.
    asks: bool,
    /// Noted and not told, from this number on.
    first: u64,
    flows: Vec<FlowOpened>,
    due: Option<Now>,
}

impl Notes {
    /// Begins to note in a file.
    ///
    /// # Errors
    /// When it cannot be mapped.
    pub(crate) fn begin(&mut self, key: &SlateKey, file: &OwnedFd) -> io::Result<()> {
        let mut memory = sys::map_shared(file, SLATE_LEN)?;
        let slate = Slate::begin(memory.bytes(), key).ok_or(Errno::EINVAL)?;
        self.slate = Some((slate, memory));
        Ok(())
    }

    /// Notes a flow, which may then be dialled. `false` where its entry is to be
    /// waited for.
    pub(crate) fn note(&mut self, now: Now, event: &GateEvent) -> bool {
        let (GateEvent::FlowOpened(opened), Some((slate, memory)), false) =
            (event, &mut self.slate, self.asks)
        else {
            return false;
        };
        let mut nonce = [0; SLATE_NONCE];
        if sys::random(&mut nonce).is_err() {
            return false;
        }
        let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let at_ms = clock.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0));
        let note = Note {
            at_ms,
            opened: opened.clone(),
        };
        let Some(number) = slate.note(memory.bytes(), &note, nonce) else {
            return false;
        };
        if self.flows.is_empty() {
            (self.first, self.due) = (number, Some(now + NOTE_WAITS));
        }
        self.flows.push(note.opened);
        true
    }

    /// When the node is to hear of what is noted.
    pub(crate) fn due(&self) -> Option<Now> {
        match self.flows.len() {
            MANY_NOTES.. => Some(Now::ZERO),
            _ => self.due,
        }
    }

    /// What the node has not heard.
    pub(crate) fn take(&mut self) -> Option<FromGate> {
        self.due.take()?;
        let (first, flows) = (self.first, std::mem::take(&mut self.flows));
        Some(FromGate::Noted { first, flows })
    }

    /// Notes up to this one stand in the journal.
    pub(crate) fn entered(&mut self, upto: u64) {
        if let Some((slate, memory)) = &mut self.slate {
            slate.entered(memory.bytes(), upto);
            self.asks &= !slate.all_entered();
        }
    }

    /// The store does not take entries.
    pub(crate) fn ask(&mut self) {
        self.asks = true;
    }
}
