//! How many chains of each writer a side tells or is told of.

use std::collections::{BTreeSet, HashMap};

use bailey_model::DeviceId;

use crate::chains::Tier;
use crate::wire::Chain;
use crate::{MAX_ACCOUNT_CHAINS, MAX_CHAINS, MAX_CHAINS_OF_WRITER, MAX_LEFT_OUT};

/// Chains of a writer are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeftOut {
    pub(crate) writer: DeviceId,
}

/// One side's chains, counted: each writer has its share, so that one that makes many
/// leaves out its own and nobody else's.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    of: HashMap<[u8; 32], usize>,
    account: usize,
    sum: usize,
    said: BTreeSet<[u8; 32]>,
}

impl Shares {
    /// Counts one more chain. Those of the account, and of the peer itself, take no
    /// room from any other.
    ///
    /// # Errors
    /// There is no room: it is left out. Whose it is, if that was not said before.
    pub(crate) fn take(&mut self, chain: &Chain, peer: DeviceId) -> Result<(), Option<LeftOut>> {
        let own = chain.writer == peer.0;
        let account = chain.tier() == Tier::Account;
        let of = self.of.get(&chain.writer).copied().unwrap_or(0);
        let room = match account {
            true => self.account < MAX_ACCOUNT_CHAINS,
            false => of < MAX_CHAINS_OF_WRITER && (own || self.sum < MAX_CHAINS),
        };
        if !room {
            let first = self.said.len() < MAX_LEFT_OUT && self.said.insert(chain.writer);
            let writer = DeviceId(chain.writer);
            return Err(first.then_some(LeftOut { writer }));
        }
        if account {
            self.account += 1;
            return Ok(());
        }
        self.of.insert(chain.writer, of + 1);
        self.sum += usize::from(!own);
        Ok(())
    }
}
