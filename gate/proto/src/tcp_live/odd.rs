//! What smoltcp does not make of segments: a SYN between the ends of a flow that
//! lives, acknowledgements that repeat themselves while only a FIN is on its way.

use smoltcp::socket::tcp::State;

use super::{Live, Out};
use crate::Now;
use crate::flow_common::Ends;
use crate::packet::{Segment, flag, write_tcp};

/// What the box said of its numbers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Said {
    /// Of its SYN.
    first: Option<u32>,
    /// What it acknowledged last.
    acked: Option<u32>,
    /// Its own number and the acknowledged one of the last acknowledgement alone.
    bare: Option<(u32, u32)>,
}

impl Said {
    pub(crate) fn of(syn: Segment) -> Self {
        let mut said = Self::default();
        said.note(syn);
        said
    }

    /// Whether a segment is the last acknowledgement that came alone, again.
    pub(super) fn repeats(self, segment: Segment) -> bool {
        is_bare(segment) && self.bare == Some((segment.seq, segment.ack))
    }

    pub(super) fn note(&mut self, segment: Segment) {
        if segment.has(flag::SYN) && self.first.is_none() {
            self.first = Some(segment.seq);
        }
        if segment.has(flag::ACK) {
            self.acked = Some(segment.ack);
        }
        if is_bare(segment) {
            self.bare = Some((segment.seq, segment.ack));
        }
    }
}

/// An acknowledgement and nothing else.
fn is_bare(segment: Segment) -> bool {
    segment.flags == flag::ACK && segment.len == 0
}

impl Live {
    /// Whether nothing but the gate's FIN is on its way to the box.
    pub(super) fn only_end_is_unanswered(&mut self) -> bool {
        let ending = [State::FinWait1, State::Closing, State::LastAck];
        ending.contains(&self.engine.state()) && self.engine.socket().send_queue() == 0
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
