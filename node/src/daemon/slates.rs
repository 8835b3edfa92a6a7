//! Slates: where gates note flows before they dial, without waiting for this node.
//!
//! The node makes the file and gives its gate the file and a key; the gate notes, dials
//! and tells; the node says once the entries stand. A gate that went away has left what
//! it had not told, a node that went away what it had not entered: both are entered
//! from the file.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use bailey_docs_store::{DeviceKeys, DocId, Pages, Reader, Store, Urgency};
use bailey_gate_proto::channel::ToGate;
use bailey_gate_proto::{Note, SLATE_LEN, SlateKey, read_slate};
use bailey_model::{BoxId, Event, FlowId, FlowOpened, Incarnation, Timestamp};
use nix::fcntl::{FallocateFlags, fallocate};

use super::event::RunId;
use super::store::Tag;
use super::{Node, clock};
use crate::config::Durable;
use crate::log::log;
use crate::paths::Paths;

/// Most slates of nodes before that are looked at in one start.
const MAX_LEFT: usize = 4096;
/// How much a clock may have been set between a note and its entry, in milliseconds.
const CLOCK_MS: u64 = 60 * 60 * 1000;
/// What the name of a slate ends in whose audit is kept on this node alone.
const HERE: &str = ".here";

/// Why a slate is not read.
#[derive(Debug, thiserror::Error)]
enum SlateError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it is no slate")]
    NoSlate,
    #[error("what is entered already cannot be read: {0}")]
    Read(#[from] bailey_docs_store::ReadError),
    #[error("{0}")]
    Append(#[from] bailey_docs_store::AppendError),
    #[error("{0}")]
    Commit(#[from] bailey_docs_store::CommitError),
}

/// The slate of one incarnation.
#[derive(Debug)]
pub(crate) struct OwnSlate {
    path: PathBuf,
    key: SlateKey,
    /// The newest note that was told, and that was entered.
    told: u64,
    entered: u64,
    /// Told, and could not be entered yet.
    failed: BTreeSet<u64>,
    /// Up to which the gate knows that they are entered.
    said: u64,
}

impl OwnSlate {
    /// Up to which note all are entered.
    fn upto(&self) -> u64 {
        let before = |failed: &u64| failed.saturating_sub(1);
        self.failed.first().map_or(self.entered, before)
    }

    /// The file goes once nothing in it is needed.
    pub(crate) fn end(self) {
        if self.failed.is_empty() && self.entered == self.told {
            remove(&self.path);
        }
    }
}

impl Node {
    /// Gives a gate its slate. Where there is none, flows wait for their entries.
    pub(super) fn give_slate(&mut self, id: RunId) {
        let each = self.config.audit.durable == Durable::Each;
        let Some(run) = self.runs.get_mut(&id).filter(|_| !each) else {
            return;
        };
        let Some(gate) = &run.gate else { return };
        let key = key_of(&self.keys, run.box_id, run.incarnation);
        let path = path_of(&self.paths, run.box_id, run.incarnation, run.here);
        match make(&path) {
            Ok(file) => {
                gate.send(ToGate::Slate(key.clone()), vec![file]);
                run.slate = Some(OwnSlate {
                    path,
                    key,
                    told: 0,
                    entered: 0,
                    failed: BTreeSet::new(),
                    said: 0,
                });
            }
            Err(error) => log!("{}: {error}", path.display()),
        }
    }

    /// A gate noted flows and dialled them.
    pub(super) fn on_noted(&mut self, id: RunId, first: u64, flows: Vec<FlowOpened>) {
        for (number, opened) in (first..).zip(flows) {
            self.enter_noted(id, number, opened);
        }
    }

    fn enter_noted(&mut self, id: RunId, number: u64, opened: FlowOpened) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        if let Some(slate) = &mut run.slate {
            slate.told = slate.told.max(number);
        }
        run.open_flows.insert(opened.flow);
        let doc = run.doc();
        let tag = Tag::Noted(id, number);
        self.append(doc, Event::FlowOpened(opened), Urgency::Normal, tag);
    }

    /// A note's entry stands.
    pub(super) fn on_note_entered(&mut self, id: RunId, number: u64) {
        if let Some(slate) = self.runs.get_mut(&id).and_then(|run| run.slate.as_mut()) {
            slate.failed.remove(&number);
            slate.entered = slate.entered.max(number);
            self.noted.insert(id);
        }
    }

    /// A note's entry could not be written: it is tried again, and what is new waits.
    pub(super) fn on_note_unwritten(&mut self, id: RunId, number: u64, event: Event) {
        if let Some(slate) = self.runs.get_mut(&id).and_then(|run| run.slate.as_mut()) {
            slate.failed.insert(number);
        }
        self.keep_unwritten(id, event, Some(number));
        self.answer_gate(id, ToGate::Ask);
    }

    /// Tells gates how far their notes are entered, once for all that came together.
    pub(super) fn tell_entered(&mut self) {
        for id in std::mem::take(&mut self.noted) {
            let Some(slate) = self.runs.get_mut(&id).and_then(|run| run.slate.as_mut()) else {
                continue;
            };
            let upto = slate.upto();
            if upto > slate.said {
                slate.said = upto;
                self.answer_gate(id, ToGate::Entered { upto });
            }
        }
    }

    /// Enters what a gate that is gone had noted and not told.
    pub(super) fn enter_untold(&mut self, id: RunId) {
        let slate = self.runs.get(&id).and_then(|run| run.slate.as_ref());
        let Some(slate) = slate else { return };
        let told = slate.told;
        match read(&slate.path, &slate.key) {
            Ok(notes) => {
                for (number, note) in notes.into_iter().filter(|(number, _)| *number > told) {
                    self.enter_noted(id, number, note.opened);
                }
            }
            Err(error) => log!("{}: {error}", slate.path.display()),
        }
    }
}

/// Enters what nodes before this one had not, of every slate that they left.
pub(super) fn recover(store: &mut Store, paths: &Paths, keys: &DeviceKeys) {
    let Ok(files) = std::fs::read_dir(folder(paths)) else {
        return;
    };
    for file in files.flatten().take(MAX_LEFT) {
        let path = file.path();
        let name = file.file_name();
        let Some((box_id, incarnation, here)) = name.to_str().and_then(parse) else {
            continue;
        };
        let doc = match here {
            true => DocId::Here(box_id),
            false => DocId::Box(box_id),
        };
        let key = key_of(keys, box_id, incarnation);
        match recover_one(store, paths, keys, doc, &path, &key) {
            Ok(0) => remove(&path),
            Ok(count) => {
                log!("{count} flows that were dialled and not entered yet are entered");
                remove(&path);
            }
            // It stays, for the next start.
            Err(error) => log!("{}: {error}", path.display()),
        }
    }
}

/// How many there were.
fn recover_one(
    store: &mut Store,
    paths: &Paths,
    keys: &DeviceKeys,
    doc: DocId,
    path: &Path,
    key: &SlateKey,
) -> Result<usize, SlateError> {
    let notes = match read(path, key) {
        // Its node ended before the gate had begun it.
        Err(SlateError::NoSlate) => return Ok(0),
        notes => notes?,
    };
    let Some(oldest) = notes.iter().map(|(_, note)| note.at_ms).min() else {
        return Ok(0);
    };
    let since = Timestamp(oldest.saturating_sub(CLOCK_MS));
    let mut reader = Reader::open(&paths.state, keys.clone())?;
    let entered = entered(&mut reader, doc, since, keys)?;
    let mut count = 0;
    for (_, Note { opened, .. }) in notes {
        if !entered.contains(&opened.flow) {
            let event = Event::FlowOpened(opened);
            store.append(doc, event, clock::now(), Urgency::Normal)?;
            count += 1;
        }
    }
    store.commit(true)?;
    Ok(count)
}

/// The flows of a box's newest incarnation that are entered.
fn entered(
    reader: &mut Reader,
    doc: DocId,
    since: Timestamp,
    keys: &DeviceKeys,
) -> Result<BTreeSet<FlowId>, SlateError> {
    let mut flows = BTreeSet::new();
    let mut pages = Pages::new(doc, keys.id(), since);
    while let Some(entries) = reader.next_page(&mut pages)? {
        for entry in entries {
            match entry.event {
                Event::FlowOpened(opened) => drop(flows.insert(opened.flow)),
                // The numbers of an incarnation before are its own.
                Event::BoxStarted(_) => flows.clear(),
                _ => {}
            }
        }
    }
    Ok(flows)
}

fn folder(paths: &Paths) -> PathBuf {
    paths.state.join("slates")
}

fn path_of(paths: &Paths, box_id: BoxId, incarnation: Incarnation, here: bool) -> PathBuf {
    let hex = |bytes: &[u8; 16]| format!("{:032x}", u128::from_be_bytes(*bytes));
    let here = if here { HERE } else { "" };
    let name = format!("{}-{}{here}", hex(&box_id.0), hex(&incarnation.0));
    folder(paths).join(name)
}

fn parse(name: &str) -> Option<(BoxId, Incarnation, bool)> {
    let (name, here) = match name.strip_suffix(HERE) {
        Some(name) => (name, true),
        None => (name, false),
    };
    let (box_id, incarnation) = name.split_once('-')?;
    let number = |text: &str| {
        let number = u128::from_str_radix(text, 16).ok();
        number.filter(|_| text.len() == 32).map(u128::to_be_bytes)
    };
    Some((
        BoxId(number(box_id)?),
        Incarnation(number(incarnation)?),
        here,
    ))
}

fn key_of(keys: &DeviceKeys, box_id: BoxId, incarnation: Incarnation) -> SlateKey {
    let info = [box_id.0, incarnation.0].concat();
    SlateKey(*keys.own("bailey/slate/v1\0", &info))
}

/// Makes the file, with room on the disk for all of it.
fn make(path: &Path) -> io::Result<OwnedFd> {
    if let Some(folder) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    let len = i64::try_from(SLATE_LEN).unwrap_or(i64::MAX);
    match fallocate(&file, FallocateFlags::empty(), 0, len) {
        Ok(()) => Ok(file.into()),
        Err(error) => {
            remove(path);
            Err(error.into())
        }
    }
}

fn read(path: &Path, key: &SlateKey) -> Result<Vec<(u64, Note)>, SlateError> {
    let mut bytes = Vec::with_capacity(SLATE_LEN);
    let most = u64::try_from(SLATE_LEN).unwrap_or(u64::MAX);
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    read_slate(&bytes, key).ok_or(SlateError::NoSlate)
}

/// A slate that stays is read, and found to be entered, at the next start.
fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        log!("{}: {error}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_slate_says_whose_it_is() {
        let paths = Paths {
            state: "/state".into(),
            runtime: "/run".into(),
            config: None,
        };
        for here in [true, false] {
            let whose = (BoxId([3; 16]), Incarnation([0xfe; 16]), here);
            let path = path_of(&paths, whose.0, whose.1, whose.2);
            let name = path.file_name().unwrap().to_str().unwrap();
            assert_eq!(parse(name), Some(whose), "{name}");
        }
        for odd in ["", "a-b", "3-4.here", &"0".repeat(65)] {
            assert_eq!(parse(odd), None, "{odd}");
        }
    }
}
