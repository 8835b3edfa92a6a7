//! Captured headers on their way to the node.

use bailey_gate_proto::channel::FromGate;

use super::{GateError, Shell};
use crate::capture::Capture;

/// Bytes queued for the node before headers of packets stay in the gate, which then
/// drops them: the audit goes first.
const CAPTURE_BOUND: usize = 64 << 10;

impl Shell {
    /// Whatever was captured, and that no more comes.
    pub(super) fn end_capture(&mut self) -> Result<(), GateError> {
        let Some(mut capture) = self.wire.capture.take() else {
            return Ok(());
        };
        while let Some((packets, dropped)) = capture.batch() {
            let last = false;
            self.channel.queue(&FromGate::Captured {
                packets,
                dropped,
                last,
            })?;
        }
        let (packets, dropped, last) = (Vec::new(), 0, true);
        self.channel.queue(&FromGate::Captured {
            packets,
            dropped,
            last,
        })?;
        Ok(())
    }

    /// Hands on what is captured, where nothing of the audit waits for the node.
    pub(super) fn tell_captured(&mut self) -> Result<(), GateError> {
        while self.channel.queued_bytes() < CAPTURE_BOUND {
            let captured = self.wire.capture.as_mut().and_then(Capture::batch);
            let Some((packets, dropped)) = captured else {
                break;
            };
            let last = false;
            self.channel.queue(&FromGate::Captured {
                packets,
                dropped,
                last,
            })?;
        }
        Ok(())
    }
}
