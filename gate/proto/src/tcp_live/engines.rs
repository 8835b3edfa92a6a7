//! Engines for flows: how large, and those that wait for the next flow.

use super::Engine;
use crate::Now;

/// How large a flow's two buffers are. The first flows of a box get what one
/// stream at full speed needs; a box with thousands cannot take gigabytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    Large,
    Middle,
    Small,
    /// A connection to the gate's DNS: questions in, one answer of 64 KiB out.
    Dns,
}

impl Size {
    const COUNT: usize = 4;

    pub(super) fn bytes(self) -> (usize, usize) {
        match self {
            Self::Large => (1 << 20, 1 << 20),
            Self::Middle => (256 << 10, 256 << 10),
            Self::Small => (64 << 10, 64 << 10),
            Self::Dns => (8 << 10, 80 << 10),
        }
    }

    /// How many flows may have it at once, before the next size is taken.
    fn most(self) -> usize {
        match self {
            Self::Large => 64,
            Self::Middle => 512,
            Self::Small | Self::Dns => usize::MAX,
        }
    }

    /// How many idle ones are kept for the next flows: their pages stay.
    fn spare(self) -> usize {
        match self {
            Self::Large => 8,
            Self::Middle => 16,
            Self::Small => 64,
            Self::Dns => 4,
        }
    }

    fn index(self) -> usize {
        match self {
            Self::Large => 0,
            Self::Middle => 1,
            Self::Small => 2,
            Self::Dns => 3,
        }
    }
}

/// Engines in use are counted, idle ones kept for the next flow.
#[derive(Debug)]
pub(crate) struct Engines {
    used: [usize; Size::COUNT],
    idle: [Vec<Engine>; Size::COUNT],
}

impl Engines {
    pub(crate) fn new() -> Self {
        Self {
            used: [0; Size::COUNT],
            idle: std::array::from_fn(|_| Vec::new()),
        }
    }

    /// An engine for a flow, of the largest size that is left.
    pub(crate) fn for_flow(&mut self, now: Now, seed: u64) -> Engine {
        let left = |size: &Size| {
            self.used
                .get(size.index())
                .is_some_and(|used| *used < size.most())
        };
        let size = [Size::Large, Size::Middle]
            .into_iter()
            .find(left)
            .unwrap_or(Size::Small);
        self.take(size, now, seed)
    }

    pub(crate) fn take(&mut self, size: Size, now: Now, seed: u64) -> Engine {
        if let Some(used) = self.used.get_mut(size.index()) {
            *used += 1;
        }
        let idle = self.idle.get_mut(size.index()).and_then(Vec::pop);
        idle.unwrap_or_else(|| Engine::new(size, now, seed))
    }

    /// How many flows have one.
    pub(crate) fn used(&self) -> usize {
        self.used.iter().sum()
    }

    pub(crate) fn give_back(&mut self, engine: Engine) {
        let (index, spare) = (engine.size.index(), engine.size.spare());
        if let Some(used) = self.used.get_mut(index) {
            *used = used.saturating_sub(1);
        }
        if let Some(idle) = self.idle.get_mut(index)
            && idle.len() < spare
        {
            idle.push(engine);
        }
    }
}
