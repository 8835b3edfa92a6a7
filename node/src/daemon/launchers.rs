//! Launchers: whom each serves, and the one that waits for the next box.
//!
//! A program takes longer to start than a box to make. So one launcher is
//! started ahead; it holds nothing and has been told nothing.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use bailey_fence_plan::channel::{FromFence, ToFence};

use super::Node;
use super::child::{self, Program};
use super::event::{FenceId, RunId};
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

/// The launchers of the node.
#[derive(Debug, Default)]
pub(super) struct Launchers {
    serving: BTreeMap<FenceId, Serves>,
    /// Started and waiting.
    spare: Option<(FenceId, Program<ToFence>)>,
    /// When the last one that waited ended, or could not be started.
    spare_lost: Option<Instant>,
}

impl Node {
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
        if let Some((id, spare)) = self.launchers.spare.take() {
            match spare.offer(order, fds) {
                Ok(()) => {
                    self.launchers.serving.insert(id, serves);
                    return Ok((id, spare));
                }
                // It has just ended; nobody heard the order.
                Err(back) => (order, fds) = back,
            }
        }
        let id = FenceId(self.next());
        let fresh = child::fence(id, self.events.clone())?;
        self.launchers.serving.insert(id, serves);
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
        let id = FenceId(self.next());
        match child::fence(id, self.events.clone()) {
            Ok(spare) => self.launchers.spare = Some((id, spare)),
            // The box that needs one will say so to its person.
            Err(error) => {
                log!("launcher: {error}");
                self.launchers.spare_lost = Some(now);
            }
        }
    }

    /// A node that leaves needs none.
    pub(super) fn drop_spare(&mut self) {
        self.launchers.spare = None;
    }

    pub(super) fn on_launcher(&mut self, id: FenceId, said: FromFence, fds: VecDeque<OwnedFd>) {
        match self.launchers.serving.get(&id) {
            Some(Serves::Box(run)) => self.on_fence(*run, said, fds),
            Some(Serves::Exec) => self.on_exec(id, said, fds),
            // One that serves nobody has nothing to say.
            None => {}
        }
    }

    pub(super) fn on_launcher_gone(&mut self, id: FenceId) {
        match self.launchers.serving.remove(&id) {
            Some(Serves::Box(run)) => self.on_fence_gone(run),
            Some(Serves::Exec) => self.on_exec_gone(id),
            None if self
                .launchers
                .spare
                .as_ref()
                .is_some_and(|spare| spare.0 == id) =>
            {
                log!("the launcher that waited for the next box ended");
                self.launchers.spare = None;
                self.launchers.spare_lost = Some(Instant::now());
            }
            None => {}
        }
    }
}
