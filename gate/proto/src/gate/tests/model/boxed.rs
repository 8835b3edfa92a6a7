//! One TCP end of the box, by raw segments: it may repeat, reorder, lose and
//! make up what it likes, but what it says at one place is always the same.

use super::*;
use crate::gate::tests::raw::{self, Got, SCALE, SYN_OPTIONS};

/// The byte at a place of what one side of a connection sends. Odd, so that no
/// stream begins as a ClientHello does (22).
pub(super) fn pattern(key: u64, at: usize) -> u8 {
    let mixed = (at as u64)
        .wrapping_mul(0x9e37_79b9)
        .wrapping_add(key.wrapping_mul(77))
        >> 3;
    mixed.to_le_bytes()[0] | 1
}

/// What only a segment outside every window carries.
pub(super) const NEVER: u8 = 0xee;

/// One end of the box and one far end.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) src: SocketAddr,
    pub(super) dst: SocketAddr,
    /// Which of the connections between these ends it is.
    pub(super) epoch: u64,
    pub(super) iss: u32,
    /// The gate's first sequence number, once the box has seen it.
    irs: Option<u32>,
    /// Bytes said so far, whether they arrived or not.
    pub(super) sent: usize,
    pub(super) fin: bool,
    /// Bytes of the gate that arrived without a gap.
    pub(super) got: usize,
    pub(super) got_fin: bool,
    /// How far the gate has acknowledged.
    acked: usize,
    /// Right edge of the largest window that the box ever offered.
    edge: usize,
}

impl Conn {
    pub(super) fn new(src: SocketAddr, dst: SocketAddr) -> Self {
        Self {
            src,
            dst,
            epoch: 0,
            iss: 0,
            irs: None,
            sent: 0,
            fin: false,
            got: 0,
            got_fin: false,
            acked: 0,
            edge: 0,
        }
    }

    fn segment(&self, seq: u32, flags: u8, window: u16, data: &[u8]) -> Vec<u8> {
        let fin = usize::from(self.got_fin);
        let next = self
            .irs
            .map(|irs| irs.wrapping_add(number(1 + self.got + fin)));
        let flags = if next.is_some() { flags | ACK } else { flags };
        let segment = raw::Tcp {
            seq,
            ack: next.unwrap_or(0),
            flags,
            window,
            data,
            ..raw::Tcp::default()
        };
        raw::tcp(self.src, self.dst, &segment)
    }

    /// The SYN of a new connection between these ends.
    pub(super) fn open(&mut self, iss: u32) -> Vec<u8> {
        let (src, dst, epoch) = (self.src, self.dst, self.epoch + 1);
        *self = Self {
            epoch,
            iss,
            edge: 65535,
            ..Self::new(src, dst)
        };
        self.syn()
    }

    pub(super) fn syn(&self) -> Vec<u8> {
        let segment = raw::Tcp {
            seq: self.iss,
            flags: SYN,
            window: 65535,
            options: &SYN_OPTIONS,
            ..raw::Tcp::default()
        };
        raw::tcp(self.src, self.dst, &segment)
    }

    fn offers(&mut self, window: u16) {
        self.edge = self.edge.max(self.got + (usize::from(window) << SCALE));
    }

    pub(super) fn ack(&mut self, window: u16) -> Vec<u8> {
        self.offers(window);
        let at = self.sent + usize::from(self.fin);
        self.segment(self.at(at), 0, window, &[])
    }

    /// Bytes from `back` before what was said last; new ones only before a FIN.
    pub(super) fn data(&mut self, back: usize, len: usize) -> Vec<u8> {
        let from = self.sent.saturating_sub(back);
        let until = match self.fin {
            true => self.sent.min(from + len),
            false => from + len,
        };
        self.sent = self.sent.max(until);
        self.offers(65535);
        self.bytes(from, until)
    }

    fn bytes(&self, from: usize, until: usize) -> Vec<u8> {
        let bytes: Vec<u8> = (from..until).map(|at| pattern(self.epoch, at)).collect();
        self.segment(self.at(from), 0, 65535, &bytes)
    }

    pub(super) fn end(&mut self) -> Vec<u8> {
        self.fin = true;
        self.offers(65535);
        self.segment(self.at(self.sent), FIN, 65535, &[])
    }

    pub(super) fn reset(&self) -> Vec<u8> {
        self.segment(self.at(self.sent + usize::from(self.fin)), RST, 0, &[])
    }

    /// A segment that belongs to no window of this connection.
    pub(super) fn stray(&self, flags: u8, far: u32) -> Vec<u8> {
        let seq = self
            .at(self.sent)
            .wrapping_add(0x4000_0000)
            .wrapping_add(far);
        self.segment(seq, flags & !(SYN | RST), 65535, &[NEVER; 5])
    }

    /// Everything that the gate has not acknowledged, again.
    pub(super) fn repair(&mut self) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        let mut from = self.acked.min(self.sent);
        while from < self.sent {
            let until = self.sent.min(from + 1000);
            packets.push(self.bytes(from, until));
            from = until;
        }
        packets.push(self.ack(65535));
        if self.irs.is_some() {
            packets.push(self.end());
        }
        packets
    }

    fn at(&self, place: usize) -> u32 {
        self.iss.wrapping_add(number(1 + place))
    }

    /// What the gate may say on a live connection; `given` bytes came from the
    /// far end, which closed its direction or not.
    pub(super) fn check(&self, got: &Got, given: usize, ended: bool) {
        if got.flags & RST != 0 {
            return;
        }
        let said = number(1 + self.sent + usize::from(self.fin));
        let acked = got.ack.wrapping_sub(self.iss);
        assert!(
            got.flags & ACK != 0 && acked <= said,
            "{acked} of {said}: {got:?}"
        );
        if got.flags & SYN != 0 {
            assert!(acked == 1 && got.data.is_empty(), "{got:?}");
            return;
        }
        let Some(irs) = self.irs else { return };
        let from = got.seq.wrapping_sub(irs).wrapping_sub(1) as usize;
        if got.data.is_empty() && got.flags & FIN == 0 {
            return;
        }
        // A byte before the next one asks whether the box still knows the flow.
        if got.data.len() == 1 && got.seq.wrapping_sub(irs) == number(self.got) {
            return;
        }
        let until = from + got.data.len();
        assert!(until <= given, "{until} of {given} bytes: {got:?}");
        // One byte may probe a closed window (RFC 9293 §3.8.6.1).
        assert!(
            until <= self.edge + 1,
            "{until} past the window's {}",
            self.edge
        );
        for (at, byte) in (from..).zip(&got.data) {
            assert_eq!(*byte, pattern(!self.epoch, at), "at {at} of {}", self.epoch);
        }
        if got.flags & FIN != 0 {
            assert!(ended && until == given, "a FIN at {until} of {given}");
        }
    }

    /// Takes a segment of the gate that was not lost.
    pub(super) fn take(&mut self, got: &Got) {
        if got.flags & RST != 0 {
            return;
        }
        if got.flags & SYN != 0 {
            self.irs = self.irs.or(Some(got.seq));
        }
        let acked = got.ack.wrapping_sub(self.iss).wrapping_sub(1) as usize;
        self.acked = self.acked.max(acked.min(self.sent));
        let Some(irs) = self.irs else { return };
        let from = got.seq.wrapping_sub(irs).wrapping_sub(1) as usize;
        let until = from + got.data.len();
        if got.flags & SYN == 0 && from <= self.got && until >= self.got {
            self.got = until;
            self.got_fin |= got.flags & FIN != 0;
        }
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap()
}
