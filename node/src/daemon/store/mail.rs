//! The store's part of a mailbox: blobs out of what is kept, and what a blob held.

use bailey_docs_store::{
    ChainId, Head, Heads, IngestError, MailPlace, MailTaken, Mailed, TopicId, week_of,
};
use bailey_model::{DeviceId, Entry};
use bailey_sync::IngestFailure;
use tokio::sync::OwnedSemaphorePermit;

use super::super::clock;
use super::thread::{Thread, failure, flat};
use crate::daemon::mailbox::{Lane, MAX_TOPICS, Mailbox, Why};

/// Most envelopes sealed into blobs at once, and most bytes of them.
const MAX_RANGE: usize = 32;
const MAX_RANGE_BYTES: usize = 512 << 10;

/// What the loop wants of it.
#[derive(Debug)]
pub(crate) enum MailAsk {
    /// Which topics there are.
    Topics,
    /// What there is of a lane from a number on.
    Range {
        mailbox: Mailbox,
        lane: Lane,
        from: u64,
    },
    /// This device's word on its chains.
    Heads {
        mailbox: Mailbox,
        heads: Vec<Head>,
        lacks: Vec<Head>,
    },
    /// Take what is in a blob.
    Take {
        mailbox: Mailbox,
        topic: TopicId,
        index: u64,
        blob: Vec<u8>,
        /// Given back when it is taken: so many are under way at most.
        permit: OwnedSemaphorePermit,
    },
}

/// What it says.
#[derive(Debug)]
pub(crate) enum MailTell {
    /// The topics, and the week of inboxes.
    Topics(Vec<TopicId>, u64),
    /// A range of a lane, or why there is none.
    Range {
        mailbox: Mailbox,
        lane: Lane,
        found: Result<Vec<Mailed>, String>,
    },
    /// The word.
    Heads {
        mailbox: Mailbox,
        blob: Result<Option<(TopicId, Vec<u8>)>, String>,
    },
    /// What came of a blob.
    Took {
        mailbox: Mailbox,
        topic: TopicId,
        index: u64,
        took: Took,
    },
}

/// What came of a blob.
#[derive(Debug)]
pub(crate) enum Took {
    /// It held this envelope of a chain, which is here now, or was before.
    Envelope {
        chain: ChainId,
        upto: u64,
        /// Whether it lay in an inbox, where nobody else finds it.
        inbox: bool,
        opened: Vec<(bailey_docs_store::DocId, DeviceId, Entry)>,
        /// Why it is set aside, if it is.
        aside: Option<String>,
    },
    /// A device's word on its chains.
    Heads(Heads),
    /// It can be taken later, when this has come; of a chain, up to that number.
    Wait(Why, u64),
    /// It is good for nothing; its chain, if that chain's writer signed it. Whoever has a
    /// topic's key can put into it what names another's chain.
    Bad(Option<ChainId>, String),
}

impl Thread {
    pub(super) fn mail(&mut self, ask: MailAsk) -> MailTell {
        let now = clock::now();
        match ask {
            MailAsk::Topics => {
                let topics = self.store.mail_topics(now, MAX_TOPICS);
                let topics = topics.unwrap_or_else(|error| {
                    crate::log::log!("store: {error}");
                    Vec::new()
                });
                MailTell::Topics(topics, week_of(now.0))
            }
            MailAsk::Range {
                mailbox,
                lane,
                from,
            } => {
                let most = (MAX_RANGE, MAX_RANGE_BYTES);
                let found = self.store.mail_range(&lane.chain, from, lane.to, most, now);
                MailTell::Range {
                    mailbox,
                    lane,
                    found: found.map_err(|error| error.to_string()),
                }
            }
            MailAsk::Heads {
                mailbox,
                heads,
                lacks,
            } => {
                let blob = self.store.mail_heads(heads, lacks, now);
                MailTell::Heads {
                    mailbox,
                    blob: blob.map_err(|error| error.to_string()),
                }
            }
            MailAsk::Take {
                mailbox,
                topic,
                index,
                blob,
                permit,
            } => {
                let took = self.take(topic, &blob);
                drop(permit);
                MailTell::Took {
                    mailbox,
                    topic,
                    index,
                    took,
                }
            }
        }
    }

    /// As from a peer: nothing is believed of it but what it proves.
    fn take(&mut self, topic: TopicId, blob: &[u8]) -> Took {
        let (chain, upto, signer, from, bytes) = match self.store.mail_open(topic, blob) {
            Ok(MailTaken::Heads(word)) => return Took::Heads(word),
            Ok(MailTaken::Envelope {
                chain,
                upto,
                signer,
                from,
                bytes,
            }) => (chain, upto, signer, from, bytes),
            Err(fault) => return Took::Bad(None, fault.to_string()),
        };
        let now = clock::now();
        let ingested = match from {
            MailPlace::Inbox(from) => self.store.ingest_from(&from, &bytes, now),
            MailPlace::Writer(_) => self.store.ingest(&bytes, now),
        };
        let (opened, aside) = match ingested {
            Ok(ingested) => {
                self.look_back(&ingested);
                let mut opened = flat(ingested.opened);
                opened.extend(self.waiting());
                (opened, None)
            }
            Err(IngestError::Quarantined { reason, .. }) => (Vec::new(), Some(reason.to_string())),
            Err(IngestError::Gap { chain, found, .. }) => {
                return Took::Wait(Why::Chain(chain), found.saturating_sub(1));
            }
            Err(IngestError::NotMember(_) | IngestError::NoAccount) => {
                return Took::Wait(Why::Members, 0);
            }
            Err(error) => {
                return match failure(&error) {
                    IngestFailure::Gap => Took::Wait(Why::Later, 0),
                    IngestFailure::Permanent => {
                        let own = error.is_signed() && signer == chain.writer;
                        Took::Bad(own.then_some(chain), error.to_string())
                    }
                };
            }
        };
        Took::Envelope {
            chain,
            upto,
            inbox: matches!(from, MailPlace::Inbox(_)),
            opened,
            aside,
        }
    }
}
