//! Random changes of well-formed inputs.

/// Longest input.
const MAX: usize = 64 << 10;

/// SplitMix64: equal seeds, equal inputs, on every machine.
pub(super) struct Noise(u64);

impl Noise {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 if there is none.
    pub(super) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % end).unwrap_or_default()
    }

    fn octet(&mut self) -> u8 {
        let [octet, ..] = self.next().to_le_bytes();
        octet
    }

    fn octets(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.octet()).collect()
    }

    fn pick(&mut self, pool: &[Vec<u8>]) -> Vec<u8> {
        pool.get(self.below(pool.len()))
            .cloned()
            .unwrap_or_default()
    }

    /// One of the pool, changed a few times or many, or never; or bytes that
    /// nobody made.
    pub(super) fn input(&mut self, pool: &[Vec<u8>]) -> Vec<u8> {
        if self.below(8) == 0 {
            let count = self.below(600);
            return self.octets(count);
        }
        let mut data = self.pick(pool);
        if self.below(16) > 0 {
            for _ in 0..1_u32 << self.below(6) {
                self.change(&mut data, pool);
            }
        }
        data.truncate(MAX);
        data
    }

    fn change(&mut self, data: &mut Vec<u8>, pool: &[Vec<u8>]) {
        let at = self.below(data.len());
        let end = at + self.below((data.len() - at).min(64) + 1);
        match self.below(8) {
            0 => {
                if let Some(octet) = data.get_mut(at) {
                    *octet ^= 1 << self.below(8);
                }
            }
            1 => {
                let edge = [0, 1, 0x7f, 0x80, 0xfe, 0xff, self.octet(), self.octet()];
                let new = edge.get(self.below(edge.len())).copied();
                if let (Some(octet), Some(new)) = (data.get_mut(at), new) {
                    *octet = new;
                }
            }
            2 => {
                let count = self.below(16);
                let new = self.octets(count);
                data.splice(at..at, new);
            }
            3 => drop(data.drain(at..end)),
            4 => {
                let again = data.get(at..end).unwrap_or_default().to_vec();
                data.splice(at..at, again);
            }
            5 => {
                let other = self.pick(pool);
                let from = self.below(other.len());
                data.truncate(at);
                data.extend(other.get(from..).unwrap_or_default());
            }
            6 => data.truncate(at),
            _ => self.relength(data, at),
        }
    }

    /// Writes a number where a length may stand: near what follows, or an edge.
    fn relength(&mut self, data: &mut [u8], at: usize) {
        let left = data.len() - at;
        let lengths = [left, left + 1, left.saturating_sub(2), 0, 1, 0xffff, 0x7fff];
        let length = lengths.get(self.below(lengths.len())).copied();
        let length = u32::try_from(length.unwrap_or_default()).unwrap_or(u32::MAX);
        let (big, little) = (length.to_be_bytes(), length.to_le_bytes());
        let new: &[u8] = match self.below(5) {
            0 => &big,
            1 => &little,
            2 => &big[2..],
            3 => &little[..2],
            _ => &little[..1],
        };
        for (into, from) in data.iter_mut().skip(at).zip(new) {
            *into = *from;
        }
    }
}
