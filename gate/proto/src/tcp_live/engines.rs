//! How large the buffers of flows are, and the engines that wait for a flow.

use super::Engine;
use crate::Now;
use crate::flow::MAX_TCP_FLOWS;

/// How large a flow's two buffers are. The first flows of a box get what one
/// stream at full speed needs; those of a box with thousands are held to
/// [`MAX_TCP_BUFFERS`](crate::flow::MAX_TCP_BUFFERS) in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    Large,
    Middle,
    Small,
    /// From the box no less than the longest hello, which is read in one piece.
    Least,
    /// A connection to the gate's DNS: questions in, one answer of 64 KiB out.
    Dns,
}

impl Size {
    const COUNT: usize = 5;
    /// Those of flows, the largest first.
    const OF_FLOWS: [Self; 4] = [Self::Large, Self::Middle, Self::Small, Self::Least];

    /// From the box, and to it.
    pub(crate) const fn bytes(self) -> (usize, usize) {
        match self {
            Self::Large => (1 << 20, 1 << 20),
            Self::Middle => (256 << 10, 256 << 10),
            Self::Small => (64 << 10, 64 << 10),
            Self::Least => (16 << 10, 8 << 10),
            Self::Dns => (8 << 10, 80 << 10),
        }
    }

    /// How many flows may have it at once, before the next size is taken.
    fn most(self) -> usize {
        match self {
            Self::Large => 10,
            Self::Middle => 44,
            Self::Small => 160,
            Self::Least | Self::Dns => MAX_TCP_FLOWS,
        }
    }

    /// How many idle ones are kept for the next flows: their pages stay, and
    /// flows that come and go by the dozen map no memory.
    const fn spare(self) -> usize {
        match self {
            Self::Large => 10,
            Self::Middle => 24,
            Self::Small | Self::Least => 64,
            Self::Dns => 4,
        }
    }

    /// Bytes of all that are kept idle.
    const fn spare_bytes(self) -> usize {
        let (from, to) = self.bytes();
        self.spare() * (from + to)
    }

    fn index(self) -> usize {
        match self {
            Self::Large => 0,
            Self::Middle => 1,
            Self::Small => 2,
            Self::Least => 3,
            Self::Dns => 4,
        }
    }
}

/// Most bytes of the buffers that are kept for the next flows.
pub(crate) const MAX_SPARE_BYTES: usize = Size::Large.spare_bytes()
    + Size::Middle.spare_bytes()
    + Size::Small.spare_bytes()
    + Size::Least.spare_bytes()
    + Size::Dns.spare_bytes();

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

    /// An engine for a flow, of the largest size that is left, and for an outlet
    /// that is one which [`finishes`](crate::flow::Outlet::finishes), or not.
    pub(crate) fn for_flow(&mut self, now: Now, seed: u64, finishes: bool) -> Engine {
        let left = |size: &Size| {
            self.used
                .get(size.index())
                .is_some_and(|used| *used < size.most())
        };
        let size = Size::OF_FLOWS.into_iter().find(left);
        self.take(size.unwrap_or(Size::Least), now, seed, finishes)
    }

    pub(crate) fn take(&mut self, size: Size, now: Now, seed: u64, finishes: bool) -> Engine {
        if let Some(used) = self.used.get_mut(size.index()) {
            *used += 1;
        }
        let idle = self.idle.get_mut(size.index()).and_then(Vec::pop);
        idle.unwrap_or_else(|| Engine::new(size, now, seed, finishes))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::MAX_TCP_BUFFERS;

    #[test]
    fn the_buffers_of_all_flows_together_keep_their_bound() {
        let mut engines = Engines::new();
        let all: Vec<Engine> = (0..MAX_TCP_FLOWS)
            .map(|seed| engines.for_flow(Now::ZERO, seed.try_into().unwrap(), false))
            .collect();
        let total: usize = all
            .iter()
            .map(|engine| {
                let (from, to) = engine.size.bytes();
                assert!(from >= crate::peek::MAX_HELLO);
                from + to
            })
            .sum();
        assert!(total <= MAX_TCP_BUFFERS, "{total}");
        assert!(total > MAX_TCP_BUFFERS / 10 * 9, "{total}");
        // The first have what one stream at full speed needs, and those that come
        // after they are gone have it again.
        assert_eq!(all[0].size, Size::Large);
        assert_eq!(all[MAX_TCP_FLOWS - 1].size, Size::Least);
        for engine in all {
            engines.give_back(engine);
        }
        assert_eq!(engines.for_flow(Now::ZERO, 1, false).size, Size::Large);
        let kept: usize = engines.idle.iter().map(Vec::len).sum();
        assert!(kept < 200, "{kept} idle ones are kept");
        let bytes = |engine: &Engine| {
            let (from, to) = engine.size.bytes();
            from + to
        };
        let kept: usize = engines.idle.iter().flatten().map(bytes).sum();
        assert!(kept <= MAX_SPARE_BYTES, "{kept}");
        assert!(kept > MAX_SPARE_BYTES / 4, "{kept}");
    }
}
