//! Headers on their way to the node, while somebody captures them.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use bailey_gate_proto::capture::{Headers, header_len};

/// Packets that wait for the node; one that finds no room is counted and no more.
const MAX_WAITING: usize = 8192;
/// Packets of one message.
const BATCH: usize = 256;

/// What waits, and what found no room.
#[derive(Debug, Default)]
pub(crate) struct Capture {
    waiting: VecDeque<Headers>,
    dropped: u64,
}

impl Capture {
    /// Takes the headers of a packet.
    pub(crate) fn take(&mut self, packet: &[u8], from_box: bool) {
        if self.waiting.len() >= MAX_WAITING {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let bytes = packet.get(..header_len(packet)).unwrap_or_default();
        self.waiting.push_back(Headers {
            at_us: u64::try_from(now.as_micros()).unwrap_or(u64::MAX),
            from_box,
            len: u32::try_from(packet.len()).unwrap_or(u32::MAX),
            bytes: bytes.to_vec(),
        });
    }

    /// The next message: some packets, and how many were dropped since the last.
    pub(crate) fn batch(&mut self) -> Option<(Vec<Headers>, u64)> {
        let count = self.waiting.len().min(BATCH);
        let dropped = std::mem::take(&mut self.dropped);
        (count > 0 || dropped > 0).then(|| (self.waiting.drain(..count).collect(), dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_is_counted_and_said_once() {
        let mut capture = Capture::default();
        for _ in 0..MAX_WAITING + 5 {
            capture.take(&[0x45; 100], true);
        }
        let (first, dropped) = capture.batch().unwrap();
        assert_eq!((first.len(), dropped), (BATCH, 5));
        let mut rest = 0;
        while let Some((packets, dropped)) = capture.batch() {
            assert_eq!(dropped, 0);
            rest += packets.len();
        }
        assert_eq!(rest, MAX_WAITING - BATCH);
    }
}
