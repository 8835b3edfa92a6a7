//! The recovery key and the account's copy, as the loop and the store's thread see
//! them.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bailey_docs_store::{CopyReader, DocId, Store, Taken, recovery_words, seed_of_words};
use bailey_model::{DeviceId, Entry, Timestamp};

use super::Node;
use super::devices::{MAX_ADDRS, addr_lines, read_addr_lines};
use super::event::ConnId;
use super::pairing::own_addrs;
use super::store::{StoreAsk, reader};
use crate::api::{Failure, RecoveryAsk, Tell};

/// Envelopes of a copy that are taken before the store does something else.
const TAKEN_AT_ONCE: usize = 64;

/// A copy that is being taken.
pub(crate) struct Loading {
    from: CopyReader<BufReader<File>>,
    new: u64,
    refused: u64,
}

impl std::fmt::Debug for Loading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loading")
            .field("new", &self.new)
            .finish_non_exhaustive()
    }
}

/// What the store's thread is to do.
#[derive(Debug)]
pub(crate) enum Step {
    Words,
    Check(String),
    Load(Box<Loading>),
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Told {
    Words(Option<Vec<String>>),
    Right(bool),
    Loaded {
        loading: Box<Loading>,
        over: bool,
        opened: Vec<(DocId, DeviceId, Entry)>,
    },
}

impl Step {
    /// On the store's thread.
    pub(crate) fn take(self, store: &mut Store, now: Timestamp) -> Result<Told, String> {
        match self {
            Self::Words => {
                let seed = store.recovery_seed().map_err(|error| error.to_string())?;
                let words = seed.map(|seed| {
                    recovery_words(&seed)
                        .into_iter()
                        .map(str::to_owned)
                        .collect()
                });
                Ok(Told::Words(words))
            }
            Self::Check(words) => {
                let seed = seed_of_words(&words).map_err(|error| error.to_string())?;
                let right = store.confirm_recovery(&seed);
                Ok(Told::Right(right.map_err(|error| error.to_string())?))
            }
            Self::Load(mut loading) => {
                let mut count = 0;
                let some = loading
                    .from
                    .by_ref()
                    .take(TAKEN_AT_ONCE)
                    .inspect(|_| count += 1);
                let Taken {
                    new,
                    refused,
                    opened,
                } = store
                    .take_copy(some, now)
                    .map_err(|error| error.to_string())?;
                loading.new += new;
                loading.refused += refused;
                Ok(Told::Loaded {
                    loading,
                    over: count < TAKEN_AT_ONCE,
                    opened: super::store::flat(opened),
                })
            }
        }
    }
}

impl Node {
    pub(super) fn on_recovery_ask(
        &mut self,
        conn: ConnId,
        ask: RecoveryAsk,
        mut fds: VecDeque<OwnedFd>,
    ) -> Result<(), Failure> {
        if self.account.is_none() {
            return Err(Failure::usage("there is no account yet")
                .hint("the first box or `bailey device add` makes one"));
        }
        let mut file = || {
            let fd = fds.pop_front();
            fd.map(File::from)
                .ok_or_else(|| Failure::internal("no file came with the question"))
        };
        let step = match ask {
            RecoveryAsk::Words => Step::Words,
            RecoveryAsk::Check(words) => Step::Check(words),
            RecoveryAsk::Save => return self.save_copy(conn, file()?),
            RecoveryAsk::Load => {
                let from = CopyReader::new(BufReader::new(file()?));
                let from = from.map_err(|error| Failure::usage(error.to_string()))?;
                Step::Load(Box::new(Loading {
                    from,
                    new: 0,
                    refused: 0,
                }))
            }
        };
        self.ask_store(StoreAsk::Recovery { conn, step });
        Ok(())
    }

    /// All that other devices may have, with where they are.
    fn save_copy(&self, conn: ConnId, file: File) -> Result<(), Failure> {
        let Some(desk) = self.desk(conn) else {
            return Ok(());
        };
        let mut addrs = self.devices.addrs().clone();
        if let Some(port) = self.devices.port() {
            let own = own_addrs().into_iter().take(MAX_ADDRS);
            addrs.insert(self.this, own.map(|ip| (ip, port).into()).collect());
        }
        let note = addr_lines(&addrs);
        let (paths, keys) = (self.paths.clone(), Arc::clone(&self.keys));
        tokio::spawn(async move {
            let copied = tokio::task::spawn_blocking(move || {
                let fault = |error: &dyn std::fmt::Display| Failure::host(format!("copy: {error}"));
                let mut out = BufWriter::new(file);
                let copied = reader(&paths, &keys)?.copy_to(note.as_bytes(), &mut out);
                let copied = copied.map_err(|error| fault(&error))?;
                let file = out.into_inner().map_err(|error| fault(&error))?;
                file.sync_all().map_err(|error| fault(&error))?;
                Ok(copied)
            });
            let tell = match copied.await {
                Ok(Ok(copied)) => Tell::Copied {
                    envelopes: copied.envelopes,
                    bytes: copied.bytes,
                },
                Ok(Err(failure)) => Tell::Failed(failure),
                Err(error) => Tell::Failed(Failure::internal(format!("copy: {error}"))),
            };
            desk.tell(tell).await;
        });
        Ok(())
    }

    /// The store's thread has done a step.
    pub(super) fn on_recovery(&mut self, conn: ConnId, result: Result<Told, String>) {
        let tell = match result {
            Ok(Told::Words(words)) => Tell::RecoveryWords(words),
            Ok(Told::Right(right)) => Tell::RecoveryRight(right),
            Ok(Told::Loaded {
                loading,
                over,
                opened,
            }) => {
                self.on_opened(opened);
                if !over {
                    let step = Step::Load(loading);
                    return self.ask_store(StoreAsk::Recovery { conn, step });
                }
                self.learn_of_copy(loading.from.note());
                Tell::Taken {
                    new: loading.new,
                    refused: loading.refused,
                }
            }
            Err(why) => Tell::Failed(Failure::usage(format!("recovery: {why}"))),
        };
        self.tell(conn, tell);
    }

    /// Where members are by a copy: nobody signed that, and who answers there must
    /// prove its key.
    fn learn_of_copy(&mut self, note: &[u8]) {
        for (device, addrs) in read_addr_lines(&String::from_utf8_lossy(note)) {
            if device != self.this && self.devices.is_member(device) {
                self.learn_addrs(device, &addrs);
            }
        }
    }
}
