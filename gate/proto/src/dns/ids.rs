//! Message ids that nobody outside can guess (RFC 5452 §9.2).

use sha2::{Digest, Sha256};

/// SHA-256 in counter mode over a secret seed.
pub(super) struct Ids {
    seed: [u8; 32],
    counter: u64,
}

impl std::fmt::Debug for Ids {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ids").finish_non_exhaustive()
    }
}

impl Ids {
    pub(super) fn new(seed: [u8; 32]) -> Self {
        Self { seed, counter: 0 }
    }

    pub(super) fn next_id(&mut self) -> u16 {
        self.counter = self.counter.wrapping_add(1);
        let digest = Sha256::new()
            .chain_update(b"bailey dns message id")
            .chain_update(self.seed)
            .chain_update(self.counter.to_be_bytes())
            .finalize();
        u16::from_be_bytes([digest[0], digest[1]])
    }
}
