//! Chance, the same for the same seed.

use std::sync::{Arc, Mutex, PoisonError};

use bailey_docs_store::{Entropy, NoEntropy};

/// splitmix64.
#[derive(Debug, Clone)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x6c62_272e_07bb_0142)
    }

    pub(super) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound.max(1)
    }

    pub(super) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    pub(super) fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())]
    }

    pub(super) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        self.spread(&mut out);
        out
    }

    fn spread(&mut self, out: &mut [u8]) {
        for piece in out.chunks_mut(8) {
            let word = self.roll().to_le_bytes();
            piece.copy_from_slice(&word[..piece.len()]);
        }
    }
}

/// Every string of 32 random bytes that a store asked for: its keys, and what they
/// are wrapped with.
#[derive(Debug, Clone, Default)]
pub(super) struct Made(Arc<Mutex<Vec<[u8; 32]>>>);

impl Made {
    /// Those from one on.
    pub(super) fn from(&self, first: usize) -> Vec<[u8; 32]> {
        let made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        made.get(first..).unwrap_or_default().to_vec()
    }
}

/// What a store is given for chance.
#[derive(Debug)]
pub(super) struct Chance {
    pub(super) dice: Dice,
    pub(super) made: Made,
}

impl Entropy for Chance {
    fn fill(&mut self, out: &mut [u8]) -> Result<(), NoEntropy> {
        self.dice.spread(out);
        if let Ok(key) = <[u8; 32]>::try_from(&*out) {
            let mut made = self.made.0.lock().unwrap_or_else(PoisonError::into_inner);
            made.push(key);
        }
        Ok(())
    }
}
