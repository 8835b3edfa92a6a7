//! What is remembered of a mailbox from one start to the next: the name of its store,
//! how far each topic was read, and how far each chain was put. Where it is lost, all
//! is put and read once more and nothing else comes of it.

use std::path::Path;

use bailey_docs_store::{ChainId, TopicId};
use bailey_model::DeviceId;
use serde::{Deserialize, Serialize};

use super::puts::Lane;

/// First bytes of the file: what it is, and its version.
const MAGIC: &[u8] = b"bailey mailbox 1\n";
/// Longest file: topics and chains of a long window, several times over.
const MAX_FILE: u64 = 16 << 20;

/// What the file holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) store: [u8; 16],
    topics: Vec<([u8; 32], u64)>,
    put: Vec<(ChainId, u64)>,
    inboxes: Vec<(DeviceId, u64, ChainId, u64)>,
    /// Devices that are no members any more and are told so, until that week is over.
    pub(super) parting: Vec<(DeviceId, u64)>,
}

impl Kept {
    pub(super) fn new(
        store: [u8; 16],
        topics: Vec<(TopicId, u64)>,
        done: Vec<(Lane, u64)>,
        parting: Vec<(DeviceId, u64)>,
    ) -> Self {
        let topics = topics.into_iter().map(|(topic, next)| (topic.0, next));
        let mut kept = Self {
            store,
            topics: topics.collect(),
            parting,
            ..Self::default()
        };
        for (lane, upto) in done {
            match lane.to {
                Some((to, week)) => kept.inboxes.push((to, week, lane.chain, upto)),
                None => kept.put.push((lane.chain, upto)),
            }
        }
        kept
    }

    pub(super) fn topics(&self) -> impl Iterator<Item = (TopicId, u64)> {
        let topics = self.topics.iter();
        topics.map(|(topic, next)| (TopicId(*topic), *next))
    }

    pub(super) fn done(&self) -> impl Iterator<Item = (Lane, u64)> {
        let put = self.put.iter().map(|(chain, upto)| {
            let lane = Lane {
                to: None,
                chain: *chain,
            };
            (lane, *upto)
        });
        let inboxes = self.inboxes.iter().map(|(to, week, chain, upto)| {
            let lane = Lane {
                to: Some((*to, *week)),
                chain: *chain,
            };
            (lane, *upto)
        });
        put.chain(inboxes)
    }

    /// Reads it; what does not read is as if it were not there.
    pub(super) fn load(path: &Path) -> Option<Self> {
        use std::io::Read as _;
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).ok()?;
        file.take(MAX_FILE).read_to_end(&mut bytes).ok()?;
        Self::decode(&bytes)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (kept, rest) = postcard::take_from_bytes(bytes.strip_prefix(MAGIC)?).ok()?;
        rest.is_empty().then_some(kept)
    }

    /// The whole file; `None` where it would be too long.
    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        let fields = postcard::to_stdvec(self).ok()?;
        let bytes = [MAGIC, &fields].concat();
        (bytes.len() as u64 <= MAX_FILE).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use bailey_docs_store::DocId;
    use bailey_model::Incarnation;

    use super::*;

    #[test]
    fn what_is_kept_reads_back_and_a_damaged_file_is_none() {
        let chain = |doc| ChainId {
            doc,
            writer: DeviceId([2; 32]),
            incarnation: Incarnation([3; 16]),
        };
        let sealed = Lane {
            to: None,
            chain: chain(DocId::Node),
        };
        let inbox = Lane {
            to: Some((DeviceId([4; 32]), 2900)),
            chain: chain(DocId::Account),
        };
        let done = vec![(sealed, 7), (inbox, 3)];
        let topics = vec![(TopicId([5; 32]), 1_796_000_000_000)];
        let parting = vec![(DeviceId([6; 32]), 2900)];
        let kept = Kept::new([1; 16], topics.clone(), done.clone(), parting);
        let bytes = kept.encode().unwrap();
        let again = Kept::decode(&bytes).unwrap();
        assert_eq!(again, kept);
        assert_eq!(again.topics().collect::<Vec<_>>(), topics);
        assert_eq!(again.done().collect::<Vec<_>>(), done);
        assert_eq!(Kept::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(Kept::decode(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(Kept::decode(b""), None);
    }
}
