//! Bytes taken from the front.

/// What is left to read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(|[octet]| octet)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// Bytes behind their count in one octet.
    pub(super) fn vec8(&mut self) -> Option<Self> {
        let count = self.u8()?;
        self.take(count.into()).map(Self)
    }

    /// Bytes behind their count in two octets.
    pub(super) fn vec16(&mut self) -> Option<Self> {
        let count = self.u16()?;
        self.take(count.into()).map(Self)
    }

    /// A variable-length integer of QUIC (RFC 9000 §16).
    pub(super) fn varint(&mut self) -> Option<u64> {
        let first = self.u8()?;
        let more = self.take((1 << (first >> 6)) - 1)?;
        let value = u64::from(first & 0x3f);
        Some(
            more.iter()
                .fold(value, |value, octet| value << 8 | u64::from(*octet)),
        )
    }

    /// A variable-length integer that counts something in memory.
    pub(super) fn length(&mut self) -> Option<usize> {
        usize::try_from(self.varint()?).ok()
    }
}
