//! Packets that wait with their flows for entries, within bounds over all flows
//! of a table.

/// The packets of one flow that wait for its entry, by the entry's ticket.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) ticket: u64,
    pub(crate) packets: Vec<Vec<u8>>,
}

/// What may wait in one table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Flows.
    pub(crate) flows: usize,
    /// Packets with one flow.
    pub(crate) packets: usize,
    /// Bytes, over all flows; the packet that a flow begins with may go beyond.
    pub(crate) bytes: usize,
}

/// How many flows of a table wait, and with how much.
#[derive(Debug)]
pub(crate) struct Waiters {
    bounds: Bounds,
    flows: usize,
    bytes: usize,
}

impl Waiters {
    pub(crate) const fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            flows: 0,
            bytes: 0,
        }
    }

    pub(crate) fn flows(&self) -> usize {
        self.flows
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether one more flow may wait.
    pub(crate) fn has_room(&self) -> bool {
        self.flows < self.bounds.flows && self.bytes < self.bounds.bytes
    }

    /// A flow begins to wait, with its first packet.
    pub(crate) fn begin(&mut self, ticket: u64, packet: &[u8]) -> Waiting {
        self.flows += 1;
        self.bytes += packet.len();
        Waiting {
            ticket,
            packets: vec![packet.to_vec()],
        }
    }

    /// A further packet of a flow that waits; past the bounds it is lost.
    pub(crate) fn add(&mut self, waiting: &mut Waiting, packet: &[u8]) {
        let fits = self.bytes + packet.len() <= self.bounds.bytes;
        if fits && waiting.packets.len() < self.bounds.packets {
            self.bytes += packet.len();
            waiting.packets.push(packet.to_vec());
        }
    }

    /// A flow waits no longer.
    pub(crate) fn end(&mut self, waiting: &Waiting) {
        self.flows = self.flows.saturating_sub(1);
        let bytes: usize = waiting.packets.iter().map(Vec::len).sum();
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}
