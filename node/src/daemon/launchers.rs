//! Launchers: whom each serves, and the one that waits for the next box.
//!
//! A program takes longer to start than a box to make, and most of a box is the
//! same for all. So one launcher is started ahead and begins one. It has been
//! told nothing, and holds nothing but, where boxes have one, its cgroup.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use bailey_fence_plan::channel::{FromFence, ToFence};
use bailey_model::Limits;

use super::Node;
use super::child::{self, Program};
use super::clock;
use super::event::{FenceId, RunId};
use super::limits::BoxCgroup;
use crate::log::log;

/// A waiting launcher that ended is replaced after this long.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Whom a launcher serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Serves {
    /// An incarnation of a box.
    Box(RunId),
    /// A further command in one.
    Exec,
}

/// A launcher at work.
#[derive(Debug)]
struct Serving {
    whom: Serves,
    /// That of a box which it had begun and was not asked for.
    _unused: Option<BoxCgroup>,
}

/// One that waits.
#[derive(Debug)]
struct Spare {
    id: FenceId,
    program: Program<ToFence>,
    cgroup: Option<BoxCgroup>,
}

/// The launchers of the node.
#[derive(Debug, Default)]
pub(super) struct Launchers {
    serving: BTreeMap<FenceId, Serving>,
    /// Started and waiting.
    spare: Option<Spare>,
    /// When the last one that waited ended, or could not be started.
    spare_lost: Option<Instant>,
}

impl Node {
    /// The cgroup of a box with these limits: that of the one that is begun
    /// already, else a fresh one, or none where there is no place for any.
    ///
    /// # Errors
    /// When there is a place and the group cannot be made.
    pub(super) fn cgroup_of(&mut self, limits: &Limits) -> io::Result<Option<BoxCgroup>> {
        let begun = self.launchers.spare.as_mut();
        let begun = begun.and_then(|spare| spare.cgroup.take());
        let group = match begun {
            Some(group) => Some(group),
            None => self.cgroups.make(clock::random()?)?,
        };
        let limited = group.map(|group| self.cgroups.limit(group, limits));
        if matches!(limited, Some(Err(_))) {
            // Its group is gone, so it is no box's any more.
            self.launchers.spare = None;
        }
        limited.transpose()
    }

    /// Gives a launcher its order: the one that waits, else a fresh one.
    ///
    /// # Errors
    /// When none can be started.
    pub(super) fn launch(
        &mut self,
        serves: Serves,
        mut order: ToFence,
        mut fds: Vec<OwnedFd>,
    ) -> io::Result<(FenceId, Program<ToFence>)> {
        if let Some(spare) = self.launchers.spare.take() {
            match spare.program.offer(order, fds) {
                Ok(()) => {
                    let serving = Serving {
                        whom: serves,
                        _unused: spare.cgroup,
                    };
                    self.launchers.serving.insert(spare.id, serving);
                    return Ok((spare.id, spare.program));
                }
                // It has just ended; nobody heard the order.
                Err(back) => (order, fds) = back,
            }
        }
        let id = FenceId(self.next());
        let fresh = child::fence(id, self.events.clone())?;
        let serving = Serving {
            whom: serves,
            _unused: None,
        };
        self.launchers.serving.insert(id, serving);
        fresh.send(order, fds);
        Ok((id, fresh))
    }

    /// Starts the launcher that waits for the next box, where there is none.
    pub(super) fn keep_spare(&mut self, now: Instant) {
        let lost = self.launchers.spare_lost;
        let too_soon = lost.is_some_and(|lost| now < lost + AGAIN_AFTER);
        if self.leaving || self.launchers.spare.is_some() || too_soon {
            return;
        }
        match self.spare() {
            Ok(spare) => self.launchers.spare = Some(spare),
            // The box that needs one will say so to its person.
            Err(error) => {
                log!("launcher: {error}");
                self.launchers.spare_lost = Some(now);
            }
        }
    }

    fn spare(&mut self) -> io::Result<Spare> {
        let cgroup = self.cgroups.make(clock::random()?)?;
        let folder = cgroup.as_ref().map(BoxCgroup::open).transpose()?;
        let id = FenceId(self.next());
        let program = child::fence(id, self.events.clone())?;
        program.send(ToFence::Await, folder.into_iter().collect());
        Ok(Spare {
            id,
            program,
            cgroup,
        })
    }

    /// A node that leaves needs none.
    pub(super) fn drop_spare(&mut self) {
        self.launchers.spare = None;
    }

    pub(super) fn on_launcher(&mut self, id: FenceId, said: FromFence, fds: VecDeque<OwnedFd>) {
        match self.launchers.serving.get(&id).map(|serving| serving.whom) {
            Some(Serves::Box(run)) => self.on_fence(run, said, fds),
            Some(Serves::Exec) => self.on_exec(id, said, fds),
            // One that serves nobody has nothing to say.
            None => {}
        }
    }

    pub(super) fn on_launcher_gone(&mut self, id: FenceId) {
        match self
            .launchers
            .serving
            .remove(&id)
            .map(|serving| serving.whom)
        {
            Some(Serves::Box(run)) => self.on_fence_gone(run),
            Some(Serves::Exec) => self.on_exec_gone(id),
            None if self
                .launchers
                .spare
                .as_ref()
                .is_some_and(|spare| spare.id == id) =>
            {
                log!("the launcher that waited for the next box ended");
                self.launchers.spare = None;
                self.launchers.spare_lost = Some(Instant::now());
            }
            None => {}
        }
    }
}
