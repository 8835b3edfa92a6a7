//! The recovery key and the account's copy, as the loop and the store's thread see
//! them.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufReader, BufWriter, Seek as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bailey_docs_store::{
    CopyReader, DocId, Members, RecoverySeed, Store, Taken, recovery_words, seed_of_words,
};
use bailey_model::{AccountId, DeviceId, Entry, Timestamp};

use super::Node;
use super::devices::{MAX_ADDRS, addr_lines, read_addr_lines};
use super::event::ConnId;
use super::pairing::own_addrs;
use super::store::{StoreAsk, reader};
use crate::account;
use crate::api::{Failure, RecoveryAsk, Tell};

/// Envelopes of a copy that are taken before the store does something else.
const TAKEN_AT_ONCE: usize = 64;

/// Most records of an account that are read of a copy; the store takes fewer.
const MAX_RECORDS: usize = 4096;
/// Digits of an id that a person has to type at least.
const MIN_DIGITS: usize = 8;

/// A copy that is being taken.
pub(crate) struct Loading {
    from: CopyReader<BufReader<File>>,
    new: u64,
    refused: u64,
    /// The account that it brings back, and by which key.
    back: Option<(Back, RecoverySeed)>,
}

/// An account that is back.
#[derive(Debug, Clone)]
pub(crate) struct Back {
    account: AccountId,
    kept: Vec<DeviceId>,
    out: Vec<DeviceId>,
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
    Recover {
        words: String,
        keep: Vec<String>,
        file: File,
    },
    /// Every envelope of the copy is here.
    Adopt(Box<Loading>),
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
    /// This device is of the account; what the copy holds is yet to be taken.
    Back(Box<Loading>),
    Adopted {
        loading: Box<Loading>,
        keys: usize,
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
            Self::Recover { words, keep, file } => {
                let back = recover(store, &words, &keep, file, now);
                Ok(Told::Back(Box::new(back?)))
            }
            Self::Adopt(loading) => {
                let mut opened = Vec::new();
                let mut keys = 0;
                if let Some((_, seed)) = &loading.back {
                    let adopted = store.adopt_keys(seed, now);
                    keys = adopted.map_err(|error| error.to_string())?;
                    loop {
                        let more = store.open_waiting(now).map_err(|error| error.to_string())?;
                        if more.is_empty() {
                            break;
                        }
                        opened.extend(super::store::flat(more));
                    }
                }
                Ok(Told::Adopted {
                    loading,
                    keys,
                    opened,
                })
            }
        }
    }
}

/// Takes the account's records of a copy and resets it, so that this device is of it.
fn recover(
    store: &mut Store,
    words: &str,
    keep: &[String],
    mut file: File,
    now: Timestamp,
) -> Result<Loading, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let seed = seed_of_words(words).map_err(|error| text(&error))?;
    let copy = file.try_clone().map_err(|error| text(&error))?;
    let copy = CopyReader::new(BufReader::new(copy)).map_err(|error| text(&error))?;
    let (mut records, mut account) = (Vec::new(), None);
    // They come first.
    for part in copy.take(MAX_RECORDS) {
        let part = part.map_err(|error| text(&error))?;
        match bailey_envelope::peek(&part) {
            Ok(header) if header.fields.chain.doc == DocId::Account => {
                account = account.or(Some(header.fields.account));
                records.push(part);
            }
            _ => break,
        }
    }
    let account = account.ok_or("the copy has no records of an account")?;
    let next = store.seed().map_err(|error| text(&error))?;
    let (mut unknown, mut before) = (None, Vec::new());
    let kept = |members: &Members| {
        before = members.iter().map(|(id, _)| *id).collect();
        let id_of = |word: &String| {
            let mut fits = before.iter().filter(|id| {
                word.len() >= MIN_DIGITS && id.to_string().starts_with(&word.to_lowercase())
            });
            let found = fits.next().filter(|_| fits.next().is_none()).copied();
            if found.is_none() {
                unknown = Some(word.clone());
            }
            // No device has this id, so that nothing comes of it.
            found.unwrap_or(DeviceId([0; 32]))
        };
        keep.iter().map(id_of).collect()
    };
    if let Err(error) = store.recover(account, &records, &seed, kept, &next, now) {
        // Of no account: nobody needs it.
        let _kept = store.drop_seed();
        return Err(match unknown {
            Some(word) => format!("no device, or more than one, of the copy begins with `{word}`"),
            None => error.to_string(),
        });
    }
    let kept: Vec<DeviceId> = store.members().iter().map(|(id, _)| *id).collect();
    before.retain(|id| !kept.contains(id));
    file.rewind().map_err(|error| text(&error))?;
    let from = CopyReader::new(BufReader::new(file)).map_err(|error| text(&error))?;
    let back = Back {
        account,
        kept,
        out: before,
    };
    Ok(Loading {
        from,
        new: 0,
        refused: 0,
        back: Some((back, seed)),
    })
}

impl Node {
    pub(super) fn on_recovery_ask(
        &mut self,
        conn: ConnId,
        ask: RecoveryAsk,
        mut fds: VecDeque<OwnedFd>,
    ) -> Result<(), Failure> {
        let recovers = matches!(ask, RecoveryAsk::Recover { .. });
        if recovers && self.account.is_some() {
            return Err(Failure::usage("this device belongs to an account already")
                .hint("an account is brought back on a device that has none"));
        }
        if !recovers && self.account.is_none() {
            return Err(Failure::usage("there is no account yet").hint(format!(
                "the first box or `{}` makes one",
                account::command("device add")
            )));
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
                    back: None,
                }))
            }
            RecoveryAsk::Recover { words, keep } => Step::Recover {
                words,
                keep,
                file: file()?,
            },
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
                if loading.back.is_some() {
                    let step = Step::Adopt(loading);
                    return self.ask_store(StoreAsk::Recovery { conn, step });
                }
                self.learn_of_copy(loading.from.note());
                Tell::Taken {
                    new: loading.new,
                    refused: loading.refused,
                }
            }
            Ok(Told::Back(loading)) => {
                self.account = loading.back.as_ref().map(|(back, _)| back.account);
                self.name_self();
                let step = Step::Load(loading);
                return self.ask_store(StoreAsk::Recovery { conn, step });
            }
            Ok(Told::Adopted {
                loading,
                keys,
                opened,
            }) => {
                self.on_opened(opened);
                self.come_back(&loading, keys)
            }
            Err(why) => Tell::Failed(Failure::usage(format!("recovery: {why}"))),
        };
        self.tell(conn, tell);
    }

    /// All of the copy is here, and can be read.
    fn come_back(&mut self, loading: &Loading, keys: usize) -> Tell {
        let Some((back, _)) = &loading.back else {
            return Tell::Failed(Failure::internal("nothing was to come back"));
        };
        self.learn_of_copy(loading.from.note());
        if let Err(failure) = self.start_sync() {
            return Tell::Failed(failure);
        }
        let named = |id: &DeviceId| (*id, self.fold.device_name(*id));
        let others = back.kept.iter().filter(|id| **id != self.this);
        Tell::Recovered {
            account: back.account,
            kept: std::iter::once(&self.this).chain(others).copied().collect(),
            out: back.out.iter().map(named).collect(),
            keys,
        }
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
