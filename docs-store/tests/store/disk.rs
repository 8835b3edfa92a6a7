//! A disk that fails as it is told, under the real SQLite.
//!
//! Files of one folder are written through, and beside each it is kept what a
//! power cut would leave: what was synced, and of what was not any part, sector by
//! sector. A sync that failed leaves what it should have written in doubt for
//! good, whatever a later one says: so does Linux.

#[expect(unsafe_code, reason = "SQLite calls its file system by C functions")]
mod sys;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::common::Random;

/// Bytes that a disk writes whole or not at all.
const SECTOR: usize = 512;

/// How the disk fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No room, until [`Disk::heal`].
    Full,
    /// One operation fails.
    Io,
    /// One write is done by half, and fails.
    Torn,
    /// The power goes: nothing is done from here on.
    Cut,
}

/// When a file that a sync failed on was last written, as it is marked: whoever
/// writes to it beside SQLite has another time there.
const MARK: std::time::SystemTime = std::time::SystemTime::UNIX_EPOCH;

/// What is left once the power is back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// What was synced.
    Synced,
    /// That, and of the rest any part.
    Some(u64),
}

/// A disk under the files of one folder.
pub(crate) struct Disk {
    dir: PathBuf,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<String, Content>,
    /// Operations so far.
    ops: u64,
    /// The operation that fails, and how.
    fault: Option<(u64, Fault)>,
    hit: bool,
}

#[derive(Debug, Default)]
struct Content {
    /// What was synced; `None` of a file that never was.
    durable: Option<Vec<u8>>,
    now: Vec<u8>,
    gone: bool,
    /// Contents of each sector that was written since, oldest first.
    dirty: BTreeMap<usize, Vec<Vec<u8>>>,
    /// The same of what a failed sync should have written.
    doubted: BTreeMap<usize, Vec<Vec<u8>>>,
}

/// What a write, sync, truncation or deletion comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Go,
    Half,
    Full,
    Fail,
    /// The power is gone, or the process.
    Dead,
}

static DISKS: Mutex<BTreeMap<PathBuf, Arc<Mutex<State>>>> = Mutex::new(BTreeMap::new());

impl Disk {
    /// Puts a disk under a folder: databases opened in it from now on are on it.
    pub(crate) fn under(dir: &Path) -> Self {
        sys::register();
        let dir = dir.canonicalize().unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        lock(&DISKS).insert(dir.clone(), Arc::clone(&state));
        Self { dir, state }
    }

    /// The `after`-th operation from now on, counted from 0, fails.
    pub(crate) fn fail(&self, after: u64, fault: Fault) {
        let mut state = lock(&self.state);
        state.fault = Some((state.ops + after, fault));
        state.hit = false;
    }

    /// Nothing fails any more. Whether something did.
    pub(crate) fn heal(&self) -> bool {
        let mut state = lock(&self.state);
        state.fault = None;
        std::mem::take(&mut state.hit)
    }

    /// Whether something has failed.
    pub(crate) fn hit(&self) -> bool {
        lock(&self.state).hit
    }

    /// The process is over, the machine is not: what was written is there, and what
    /// of it is synced stays as it was.
    pub(crate) fn process_ended(&self) {
        let mut state = lock(&self.state);
        state.fault = None;
        state.hit = false;
    }

    /// The power is back, once every database is closed: the files are what a cut
    /// leaves of them.
    pub(crate) fn power_cut(&self, left: Left) {
        let mut state = lock(&self.state);
        state.fault = None;
        state.hit = false;
        let mut random = match left {
            Left::Some(seed) => Random(seed | 1),
            Left::Synced => Random(1),
        };
        for (name, content) in std::mem::take(&mut state.files) {
            let path = self.dir.join(name);
            let image = match left {
                Left::Synced => content.durable,
                Left::Some(_) => content.image(&mut random),
            };
            match image {
                Some(bytes) => std::fs::write(&path, bytes).unwrap(),
                None => drop(std::fs::remove_file(&path)),
            }
            let shared = format!("{}-shm", path.display());
            drop(std::fs::remove_file(shared));
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        lock(&DISKS).remove(&self.dir);
    }
}

impl State {
    fn judge(&mut self, is_write: bool) -> Verdict {
        let op = self.ops;
        self.ops += 1;
        let Some((at, fault)) = self.fault.filter(|(at, _)| op >= *at) else {
            return Verdict::Go;
        };
        match fault {
            Fault::Full if !is_write => Verdict::Go,
            Fault::Full => {
                self.hit = true;
                Verdict::Full
            }
            Fault::Cut => {
                // What was under way may be there by half.
                let half = is_write && op == at;
                self.hit = true;
                if half { Verdict::Half } else { Verdict::Dead }
            }
            Fault::Io | Fault::Torn => {
                self.hit = true;
                self.fault = None;
                match fault == Fault::Torn && is_write {
                    true => Verdict::Half,
                    false => Verdict::Fail,
                }
            }
        }
    }

    /// A file as it is when it is opened.
    fn open(&mut self, name: &str, path: &Path) {
        let content = self.files.entry(name.to_owned()).or_insert_with(|| {
            let durable = std::fs::read(path).ok();
            Content {
                now: durable.clone().unwrap_or_default(),
                durable,
                ..Content::default()
            }
        });
        if std::mem::take(&mut content.gone) {
            content.now.clear();
        }
    }
}

impl Content {
    fn sector(bytes: &[u8], no: usize) -> &[u8] {
        let start = (no * SECTOR).min(bytes.len());
        &bytes[start..(start + SECTOR).min(bytes.len())]
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        let end = at + bytes.len();
        if self.now.len() < end {
            self.now.resize(end, 0);
        }
        self.now[at..end].copy_from_slice(bytes);
        for no in at / SECTOR..end.div_ceil(SECTOR) {
            let sector = Self::sector(&self.now, no).to_vec();
            let mut versions = self.doubted.remove(&no).unwrap_or_default();
            versions.push(sector);
            self.dirty.entry(no).or_default().extend(versions);
        }
    }

    fn truncate(&mut self, len: usize) {
        self.now.resize(len, 0);
    }

    fn sync(&mut self) {
        let mut durable = self.durable.take().unwrap_or_default();
        durable.resize(self.now.len(), 0);
        for no in std::mem::take(&mut self.dirty).into_keys() {
            let sector = Self::sector(&self.now, no);
            let start = (no * SECTOR).min(self.now.len());
            durable[start..start + sector.len()].copy_from_slice(sector);
        }
        self.durable = Some(durable);
    }

    /// Whether somebody has written all of it once more, beside SQLite.
    fn look(&mut self, path: &Path) {
        if !self.doubted.is_empty()
            && std::fs::metadata(path)
                .and_then(|it| it.modified())
                .is_ok_and(|at| at != MARK)
        {
            for (no, versions) in std::mem::take(&mut self.doubted) {
                self.dirty.entry(no).or_default().extend(versions);
            }
        }
    }

    fn sync_failed(&mut self) {
        for (no, versions) in std::mem::take(&mut self.dirty) {
            self.doubted.entry(no).or_default().extend(versions);
        }
    }

    /// One thing that a power cut may leave.
    fn image(self, random: &mut Random) -> Option<Vec<u8>> {
        if self.gone && random.below(2) == 0 {
            return None;
        }
        let durable = match (self.durable, random.below(2)) {
            (Some(durable), _) => durable,
            (None, 0) => return None,
            (None, _) => Vec::new(),
        };
        let (short, long) = (
            durable.len().min(self.now.len()),
            durable.len().max(self.now.len()),
        );
        let len = match random.below(4) {
            0 => durable.len(),
            1 => short + random.below(long - short + 1),
            _ => self.now.len(),
        };
        let mut image = durable;
        image.resize(len, 0);
        let written = self.doubted.into_iter().chain(self.dirty);
        for (no, versions) in written {
            // Mostly the newest: what an orderly disk would have done.
            let pick = match random.below(3) {
                0 => random.below(versions.len() + 1),
                _ => versions.len(),
            };
            let start = no * SECTOR;
            if let (Some(version), true) = (pick.checked_sub(1), start < len) {
                let version = &versions[version];
                let end = (start + version.len()).min(len);
                image[start..end].copy_from_slice(&version[..end - start]);
            }
        }
        Some(image)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn mark(path: &Path) {
    if let Ok(file) = std::fs::OpenOptions::new().write(true).open(path) {
        file.set_modified(MARK).unwrap();
    }
}

/// A file that SQLite has open on a disk.
struct Handle {
    name: String,
    path: PathBuf,
    state: Arc<Mutex<State>>,
}

impl Handle {
    fn of(path: &Path) -> Option<Self> {
        let dir = path.parent()?.canonicalize().ok()?;
        let state = Arc::clone(lock(&DISKS).get(&dir)?);
        let name = path.file_name()?.to_str()?.to_owned();
        let path = path.to_owned();
        Some(Self { name, path, state })
    }

    fn opened(&self, path: &Path) {
        lock(&self.state).open(&self.name, path);
    }

    /// How many of the bytes are to be written through.
    fn write(&self, at: usize, bytes: &[u8]) -> (Verdict, usize) {
        let mut state = lock(&self.state);
        let verdict = state.judge(true);
        let count = match verdict {
            Verdict::Go => bytes.len(),
            Verdict::Half => bytes.len() / 2,
            Verdict::Full | Verdict::Fail | Verdict::Dead => 0,
        };
        if let (Some(content), true) = (state.files.get_mut(&self.name), count > 0) {
            content.look(&self.path);
            content.write(at, &bytes[..count]);
        }
        (verdict, count)
    }

    /// After a write went through.
    fn wrote(&self) {
        let state = lock(&self.state);
        if state
            .files
            .get(&self.name)
            .is_some_and(|it| !it.doubted.is_empty())
        {
            mark(&self.path);
        }
    }

    fn sync(&self) -> Verdict {
        let mut state = lock(&self.state);
        let verdict = state.judge(false);
        if let Some(content) = state.files.get_mut(&self.name) {
            match verdict {
                Verdict::Dead => {}
                Verdict::Go => {
                    content.look(&self.path);
                    content.sync();
                }
                _ => {
                    content.sync_failed();
                    mark(&self.path);
                }
            }
        }
        verdict
    }

    fn truncate(&self, len: usize) -> Verdict {
        let mut state = lock(&self.state);
        let verdict = state.judge(false);
        if let (Some(content), Verdict::Go) = (state.files.get_mut(&self.name), verdict) {
            content.truncate(len);
        }
        verdict
    }

    fn delete(&self) -> Verdict {
        let mut state = lock(&self.state);
        let verdict = state.judge(false);
        if let (Some(content), Verdict::Go) = (state.files.get_mut(&self.name), verdict) {
            content.gone = true;
            content.dirty.clear();
            content.doubted.clear();
        }
        verdict
    }
}
