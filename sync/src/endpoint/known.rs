//! How far every chain is here, and in which order a session hears of them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use bailey_model::DeviceId;
use bailey_session::{ChainId, DocId, Head};

/// What every new session is told.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Each with its place in the order in which they were told of.
    heads: BTreeMap<ChainId, (u64, Head)>,
    spent: Vec<Head>,
    next: u64,
}

impl Known {
    /// Chains that began or grew.
    pub(super) fn grew(&mut self, heads: Vec<Head>) {
        for head in heads {
            self.next += 1;
            let (_, known) = self.heads.entry(head.chain).or_insert((self.next, head));
            if head.seq >= known.seq {
                *known = head;
            }
        }
    }

    /// Those of which only a tombstone is left.
    pub(super) fn spent(&mut self, spent: Vec<Head>) {
        self.spent = spent;
    }

    pub(super) fn not_told(&self) -> &[Head] {
        &self.spent
    }

    /// All of them, what matters most first: a session may have no room for the last.
    /// The account's, the keys, this device's own, and of the others the newest.
    pub(super) fn in_order(&self, own: DeviceId) -> Vec<Head> {
        let tier = |doc: DocId| match doc {
            DocId::Account => 0,
            DocId::Keys => 1,
            _ => 2,
        };
        let mut all: Vec<(u64, Head)> = self.heads.values().copied().collect();
        all.sort_by_key(|(place, Head { chain, .. })| {
            (tier(chain.doc), chain.writer != own, Reverse(*place))
        });
        all.into_iter().map(|(_, head)| head).collect()
    }
}

#[cfg(test)]
mod tests {
    use bailey_model::Incarnation;
    use bailey_session::Hash;

    use super::*;

    fn head(writer: u8, doc: DocId, start: u8) -> Head {
        Head {
            chain: ChainId {
                doc,
                writer: DeviceId([writer; 32]),
                incarnation: Incarnation([start; 16]),
            },
            seq: 1,
            hash: Hash([start; 32]),
        }
    }

    #[test]
    fn the_account_and_the_keys_come_first_then_what_is_ones_own_and_the_newest() {
        let told = [
            head(2, DocId::Node, 9),
            head(1, DocId::Node, 8),
            head(2, DocId::Node, 3),
            head(2, DocId::Account, 2),
            head(2, DocId::Keys, 1),
            head(1, DocId::Keys, 4),
        ];
        let mut known = Known::default();
        known.grew(told.to_vec());
        // One that grows keeps its place, and does not go back.
        let grown = Head {
            seq: 7,
            ..head(2, DocId::Node, 9)
        };
        known.grew(vec![grown]);
        known.grew(vec![head(2, DocId::Node, 9)]);
        let order = [told[3], told[5], told[4], told[1], told[2], grown];
        assert_eq!(known.in_order(DeviceId([1; 32])), order);
    }
}
