//! A few devices of one account, simulated: real stores and real sessions on a
//! clock, links and dice of our own. One number makes the same history again.
//!
//! Links delay, split and break; devices write, are cut off, are killed in the
//! middle of what they do, come back from older copies of their folder, have clocks
//! that are days off, and one may garble what it sends. At the end all is mended, and
//! then [`judge`] asks what was promised.

mod device;
mod dice;
mod history;
mod judge;

use std::fmt;
use std::num::NonZeroUsize;
use std::panic::catch_unwind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use bailey_docs_store::Role;

use device::Device;
use dice::Dice;
use history::{Action, choose};

/// Most devices of one history.
const MAX_DEVICES: u64 = 6;
/// Actions of one history, at most and at least.
const ACTIONS: (u64, u64) = (30, 120);
/// Turns of the clock after all is mended, until nothing may be under way. An hour of
/// the slowest retries is far below.
const MAX_TURNS: u32 = 200_000;

/// What came of one history.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ran {
    /// Devices at its end.
    pub devices: usize,
    /// Entries that were acknowledged.
    pub entries: usize,
    /// Entries that devices read of others at its end.
    pub read: usize,
    /// Times that a device was killed, or came back from an older copy.
    pub crashes: usize,
    /// Bytes that crossed between devices.
    pub bytes: usize,
}

/// The simulated world of one history.
struct World {
    dice: Dice,
    dir: TempDir,
    now: Duration,
    devices: Vec<Device>,
    /// Pairs that cannot reach each other now.
    cut: Vec<(usize, usize)>,
    /// The one that garbles what it sends, if there is one.
    liar: Option<usize>,
    lied: bool,
    ran: Ran,
}

/// Runs the history of one seed.
///
/// # Errors
/// What was promised and does not hold.
pub fn run(seed: u64) -> Result<Ran, String> {
    let mut world = World::new(seed);
    let actions = ACTIONS.0 + world.dice.below(ACTIONS.1 - ACTIONS.0);
    for _ in 0..actions {
        let action = choose(&mut world);
        world.act(action)?;
        let span = Duration::from_millis(1 + world.dice.below(400));
        world.pass(span)?;
    }
    world.mend()?;
    judge::judge(&mut world)?;
    world.ran.devices = world.devices.len();
    Ok(world.ran)
}

/// Runs so many histories, from one seed on, on every core.
///
/// # Errors
/// The first that failed: what does not hold, and how to see it again.
pub fn run_many(first: u64, count: u64) -> Result<Ran, String> {
    let next = AtomicU64::new(first);
    let sum = Mutex::new((Ran::default(), None::<String>));
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first.saturating_add(count) {
                        break;
                    }
                    let ran = catch_unwind(|| run(seed)).unwrap_or_else(|panic| {
                        let text = panic.downcast_ref::<String>().map(String::as_str);
                        Err(text.unwrap_or("a panic").to_owned())
                    });
                    let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
                    match ran {
                        Ok(ran) => sum.0 = sum.0.and(ran),
                        Err(why) => {
                            let again = format!("bailey-sim --seed {seed} --seeds 1");
                            sum.1
                                .get_or_insert(format!("seed {seed}: {why}\n  again: {again}"));
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
        (_, Some(why)) => Err(why),
    }
}

impl Ran {
    fn and(self, other: Self) -> Self {
        Self {
            devices: self.devices + other.devices,
            entries: self.entries + other.entries,
            read: self.read + other.read,
            crashes: self.crashes + other.crashes,
            bytes: self.bytes + other.bytes,
        }
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} devices, {} crashes, {} entries acknowledged, {} read elsewhere, {} bytes crossed",
            self.devices, self.crashes, self.entries, self.read, self.bytes
        )
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let dir = TempDir::new(seed);
        let mut first = Device::new(&mut dice, &dir.0, 0);
        first.open(Duration::ZERO);
        first.begin(Duration::ZERO);
        Self {
            dice,
            dir,
            now: Duration::ZERO,
            devices: vec![first],
            cut: Vec::new(),
            liar: None,
            lied: false,
            ran: Ran::default(),
        }
    }

    fn act(&mut self, action: Action) -> Result<(), String> {
        match action {
            Action::Write(at, doc, entries) => {
                self.ran.entries += self.devices[at].write(self.now, doc, entries)?;
            }
            Action::Add(by, role) => self.add(by, role)?,
            Action::Cut(a, b) => {
                self.cut.push((a, b));
                self.part(a, b);
            }
            Action::Heal => self.cut.clear(),
            Action::Break(a, b) => self.part(a, b),
            Action::Kill(at) => {
                self.ran.crashes += 1;
                self.leave(at);
                self.devices[at].kill();
            }
            Action::Start(at) => self.devices[at].open(self.now),
            Action::Copy(at) => self.devices[at].copy(),
            Action::Restore(at) => {
                self.ran.crashes += 1;
                self.leave(at);
                self.devices[at].restore();
            }
            Action::Clock(at, skew) => self.devices[at].skew = skew,
            Action::Lie(at) => (self.liar, self.lied) = (Some(at), true),
        }
        Ok(())
    }

    fn add(&mut self, by: usize, role: Role) -> Result<(), String> {
        let at = self.devices.len();
        let mut new = Device::new(&mut self.dice, &self.dir.0, at);
        new.open(self.now);
        let now = self.now;
        if self.devices[by].admit(now, &mut new, role)? {
            self.devices.push(new);
        }
        Ok(())
    }

    /// Ends the connection of two.
    fn part(&mut self, a: usize, b: usize) {
        self.devices[a].hang_up(b);
        self.devices[b].hang_up(a);
    }

    /// Ends every connection of one.
    fn leave(&mut self, at: usize) {
        for other in 0..self.devices.len() {
            self.part(at, other);
        }
    }

    /// Lets everything go on for a while.
    fn pass(&mut self, span: Duration) -> Result<(), String> {
        let end = self.now + span;
        while self.turn(end)? {}
        self.now = end;
        Ok(())
    }

    /// One turn: everything that is due, then on to the next that is; false if that
    /// is after the end.
    fn turn(&mut self, end: Duration) -> Result<bool, String> {
        self.connect();
        for at in 0..self.devices.len() {
            self.devices[at].work(self.now)?;
        }
        for at in 0..self.devices.len() {
            self.send(at)?;
        }
        let due = self
            .devices
            .iter()
            .filter_map(|device| device.due(self.now));
        let Some(next) = due.min().filter(|next| *next < end) else {
            return Ok(false);
        };
        // What is due stays so while a device cannot do it: the clock goes on.
        self.now = next.max(self.now + Duration::from_millis(1));
        Ok(true)
    }

    /// Two that run, reach each other and hold each other for members connect.
    fn connect(&mut self) {
        for a in 0..self.devices.len() {
            for b in 0..a {
                let apart = self.cut.contains(&(a, b)) || self.cut.contains(&(b, a));
                let (one, other) = (&self.devices[a], &self.devices[b]);
                if apart || one.speaks_with(b) || !one.trusts(other) || !other.trusts(one) {
                    continue;
                }
                let (one, other) = (one.peer(), other.peer());
                self.devices[a].call(b, other, self.now);
                self.devices[b].call(a, one, self.now);
            }
        }
    }

    /// What a device has to say goes on its way.
    fn send(&mut self, at: usize) -> Result<(), String> {
        for (to, mut frame) in self.devices[at].take_frames(self.now) {
            self.ran.bytes += frame.len();
            judge::secret(&frame)?;
            if self.liar == Some(at) && self.dice.one_in(6) {
                let byte = self.dice.index(frame.len());
                frame[byte] ^= 1 << self.dice.below(8);
            }
            let delay = Duration::from_millis(1 + self.dice.below(60));
            let cut = self.dice.index(frame.len());
            let rest = frame.split_off(cut);
            self.devices[to].arrive(at, self.now + delay, [frame, rest]);
        }
        for other in self.devices[at].take_closed() {
            self.part(at, other);
        }
        Ok(())
    }

    /// Everybody runs, is reachable, honest, and sees the others anew; until nothing
    /// is under way any more.
    fn mend(&mut self) -> Result<(), String> {
        self.cut.clear();
        self.liar = None;
        for at in 0..self.devices.len() {
            self.leave(at);
            self.devices[at].open(self.now);
        }
        for _ in 0..MAX_TURNS {
            self.turn(Duration::MAX)?;
            if self.devices.iter().all(|device| device.is_quiet(self.now)) && judge::same(self) {
                return Ok(());
            }
        }
        let busy = self.devices.iter().map(|device| device.busy(self.now));
        let busy: Vec<String> = busy.collect();
        Err(format!(
            "never quiet: {}; {}",
            judge::differences(self),
            busy.join(", ")
        ))
    }
}

/// A folder that goes with the history.
struct TempDir(PathBuf);

impl TempDir {
    fn new(seed: u64) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let no = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("bailey-sim-{}-{seed}-{no}", std::process::id());
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
