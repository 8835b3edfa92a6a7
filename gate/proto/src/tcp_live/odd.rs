//! What smoltcp does not make of segments: a SYN between the ends of a flow that
//! lives, acknowledgements that repeat themselves while only a FIN is on its way.

use smoltcp::socket::tcp::State;

use super::{Live, Out};
use crate::Now;
use crate::flow_common::Ends;
use crate::packet::{Segment, flag, window_scale, write_tcp};

/// What the box said of its numbers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Said {
    /// Of its SYN.
    first: Option<u32>,
    /// The most that it acknowledged.
    acked: Option<u32>,
    /// The same when the gate's FIN was all that was left to acknowledge.
    before_end: Option<u32>,
    /// Its window's scale, and the furthest end of its window.
    scale: u8,
    edge: Option<u32>,
}

impl Said {
    pub(crate) fn of(syn: Segment, packet: &[u8]) -> Self {
        let mut said = Self::default();
        said.note(syn, packet);
        said
    }

    pub(super) fn note(&mut self, segment: Segment, packet: &[u8]) {
        let syn = segment.has(flag::SYN);
        if syn && self.first.is_none() {
            self.first = Some(segment.seq);
            self.scale = window_scale(packet);
        }
        if !segment.has(flag::ACK) {
            return;
        }
        let further = |number: u32, than: Option<u32>| match than {
            Some(than) if number.wrapping_sub(than) >= 1 << 31 => Some(than),
            _ => Some(number),
        };
        let window = u32::from(segment.window) << if syn { 0 } else { self.scale };
        self.acked = further(segment.ack, self.acked);
        self.edge = further(segment.ack.wrapping_add(window), self.edge);
    }

    /// How much may be on its way to the box at once.
    fn room(self) -> usize {
        let room = self.edge.zip(self.acked);
        let room = room.map_or(0, |(edge, acked)| edge.wrapping_sub(acked));
        usize::try_from(room).unwrap_or(usize::MAX)
    }
}

impl Live {
    /// Says that the host has said all, behind its last byte. Where the box has
    /// said all too, smoltcp hears of no window that opens once it was told: then
    /// only when the box has room for all that is left.
    pub(super) fn end_to_box(&mut self) {
        let room = self.said.room();
        let socket = self.engine.socket();
        if socket.state() != State::CloseWait || socket.send_queue() <= room {
            socket.close();
        }
    }

    /// Whether a segment only says that the gate's FIN has not come, while nothing
    /// else is on its way to the box.
    pub(super) fn lacks_only_the_end(&mut self, segment: Segment) -> bool {
        let ending = [State::FinWait1, State::Closing, State::LastAck];
        if !ending.contains(&self.engine.state()) || self.engine.socket().send_queue() > 0 {
            return false;
        }
        let before_end = *self
            .said
            .before_end
            .get_or_insert(self.said.acked.unwrap_or(0));
        segment.flags == flag::ACK && segment.len == 0 && segment.ack == before_end
    }

    /// Says what the flow expects, and nothing else comes of it (RFC 5961 §4.2).
    /// A box whose kernel has let go of the flow answers with a reset, and its
    /// next SYN begins a flow of its own.
    pub(crate) fn challenge(
        &mut self,
        now: Now,
        ends: Ends,
        scratch: &mut Vec<u8>,
        wire: &mut Out<'_>,
    ) {
        let (Some(seq), Some(ack)) = (self.said.first, self.said.acked) else {
            return;
        };
        // smoltcp takes no segment without an acknowledgement, and answers an old
        // one with just that.
        if write_tcp(scratch, ends.src, ends.dst, seq, ack, flag::ACK) {
            self.engine.ingress(now, scratch, wire);
        }
    }
}
