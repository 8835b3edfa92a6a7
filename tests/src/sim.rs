//! A few devices of one account, simulated: real stores and real sessions on a
//! clock, links and dice of our own. One number makes the same history again.
//!
//! Links delay, split and break; devices write, are added, removed and given other
//! roles, are cut off, are killed in the middle of what they do, lose their power,
//! come back from older copies of their folder, and have clocks that are days off.
//! One may garble what it sends, one may be a member that keeps to no rule, and there
//! may be a mailbox, honest or not. At the end all is mended, and then [`judge`] asks
//! what was promised.
//!
//! Most histories are short, of two or three devices; one in [`LONG_ONE_IN`] is long.

mod device;
mod dice;
mod evil;
mod history;
mod judge;
mod lines;
mod mailbox;
mod post;
mod secrets;
mod world;

use std::fmt;
use std::num::NonZeroUsize;
use std::panic::catch_unwind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Of so many histories one is long.
const LONG_ONE_IN: u64 = 25;

/// What came of histories.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ran {
    /// Devices at the end.
    pub devices: usize,
    /// Entries that were acknowledged.
    pub entries: usize,
    /// Entries that devices read of others at the end.
    pub read: usize,
    /// Times that a device was killed, lost its power, or came back from an older copy.
    pub crashes: usize,
    /// Devices that were removed, or read no more.
    pub removed: usize,
    /// What members made that keep to no rule.
    pub forged: usize,
    /// What a mailbox held at the end.
    pub letters: usize,
    /// Bytes that crossed between devices.
    pub bytes: usize,
}

/// Runs the history of one seed; `told` says on standard error what happens.
///
/// # Errors
/// What was promised and does not hold.
pub fn run(seed: u64, told: bool) -> Result<Ran, String> {
    let mut world = world::World::new(seed, told)?;
    world.live()?;
    world.mend()?;
    judge::judge(&mut world)?;
    Ok(world.ran)
}

/// Runs so many histories, from one seed on, on every core.
///
/// # Errors
/// Of those that fail the one of the lowest seed, whatever the cores did: what does not
/// hold, and how to see it again.
pub fn run_many(first: u64, count: u64) -> Result<Ran, String> {
    let next = AtomicU64::new(first);
    let sum = Mutex::new((Ran::default(), None::<(u64, String)>));
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first.saturating_add(count) {
                        break;
                    }
                    let ran = catch_unwind(|| run(seed, count == 1)).unwrap_or_else(|panic| {
                        let text = panic.downcast_ref::<String>().map(String::as_str);
                        Err(text.unwrap_or("a panic").to_owned())
                    });
                    let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
                    match ran {
                        Ok(ran) => sum.0 = sum.0.and(ran),
                        Err(why) => {
                            // Each below it was begun before it, and is ended yet.
                            if sum.1.as_ref().is_none_or(|(lowest, _)| seed < *lowest) {
                                sum.1 = Some((seed, why));
                            }
                            next.store(first.saturating_add(count), Ordering::Relaxed);
                            break;
                        }
                    }
                }
            });
        }
    });
    match sum.into_inner().unwrap_or_else(PoisonError::into_inner) {
        (sum, None) => Ok(sum),
        (_, Some((seed, why))) => {
            let again = format!("bailey-sim --seed {seed} --seeds 1");
            Err(format!("seed {seed}: {why}\n  again: {again}"))
        }
    }
}

impl Ran {
    fn and(self, other: Self) -> Self {
        Self {
            devices: self.devices + other.devices,
            entries: self.entries + other.entries,
            read: self.read + other.read,
            crashes: self.crashes + other.crashes,
            removed: self.removed + other.removed,
            forged: self.forged + other.forged,
            letters: self.letters + other.letters,
            bytes: self.bytes + other.bytes,
        }
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} devices, {} removed, {} crashes, {} forgeries, {} letters in mailboxes, \
             {} entries acknowledged, {} read elsewhere, {} bytes crossed",
            self.devices,
            self.removed,
            self.crashes,
            self.forged,
            self.letters,
            self.entries,
            self.read,
            self.bytes
        )
    }
}

/// A folder that goes with the history.
#[derive(Debug)]
struct TempDir(PathBuf);

impl TempDir {
    fn new(of: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let no = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("bailey-sim-{}-{of}-{no}", std::process::id());
        // Memory, where there is such a folder: nothing here is about the disk.
        let shared = PathBuf::from("/dev/shm");
        let base = if shared.is_dir() {
            shared
        } else {
            std::env::temp_dir()
        };
        let path = base.join(name);
        std::fs::create_dir_all(&path).expect("a folder of our own");
        Self(path)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
