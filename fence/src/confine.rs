//! Gives up, for good, what no process of a box may do.

use bailey_fence_plan::channel::{Layer, SetupError};
use bailey_model::{BoxClass, Tier};
use caps::CapSet;
use serde::{Deserialize, Serialize};

use crate::landlock::{self, Scopes};
use crate::seccomp;
use crate::step::StepError;

/// The step that only a process with a capability, or without any, can take.
pub(crate) const GIVE_UP: &str = "give up every privilege";

/// What a process is confined by.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Confinement {
    pub(crate) tier: Tier,
    pub(crate) class: BoxClass,
    pub(crate) scopes: Scopes,
    /// Whether there is no namespace in which the bounding set could be changed.
    /// Without new privileges it gives none.
    pub(crate) alone: bool,
    pub(crate) broken: Option<Layer>,
}

/// Gives up every capability, then what Landlock holds, then what the filter
/// refuses. Pid 1 and whatever joins a box go through here, and nowhere else.
pub(crate) fn confine(by: Confinement) -> Result<(), SetupError> {
    let step = GIVE_UP;
    let kept = by.broken == Some(Layer::Capabilities);
    // The bounding set while there is still the right to change it.
    let sets = [
        CapSet::Bounding,
        CapSet::Ambient,
        CapSet::Inheritable,
        CapSet::Effective,
        CapSet::Permitted,
    ];
    let skipped = |set: &CapSet| kept || by.alone && matches!(set, CapSet::Bounding);
    for set in sets.into_iter().filter(|set| !skipped(set)) {
        caps::clear(None, set).map_err(|error| SetupError {
            step: step.into(),
            path: None,
            reason: error.to_string(),
            errno: 0,
        })?;
    }
    rustix::thread::set_no_new_privs(true)
        .map_err(|errno| StepError::from(errno).at(step, None))?;
    landlock::restrict(by.scopes).map_err(|reason| SetupError {
        step: "close the abstract sockets outside".into(),
        path: None,
        reason,
        errno: 0,
    })?;
    if by.tier == Tier::L1 || by.broken == Some(Layer::Filter) {
        return Ok(());
    }
    seccomp::load(by.class)
        .map_err(|error| StepError::from(error).at("load the system call filter", None))
}
