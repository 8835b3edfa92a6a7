//! By which ways a box can be made here, in the order in which they are tried.
//! None of them runs the program unfenced: where nothing is left, nothing runs.

mod arguments;

use bailey_model::{BoxClass, Method, Tier};

use crate::channel::SetupError;
use crate::doctor::Rung;

pub use arguments::{LAUNCHER, Places, Word, arguments};

/// The least version of Landlock that can hold a box by itself: from 6 on it
/// also keeps signals and abstract sockets in.
pub const LANDLOCK_ALONE: u32 = 6;

/// The launcher's steps that are not operations of a plan.
pub const MAKE_NAMESPACES: &str = "make the namespaces";
/// The same, by bubblewrap.
pub const BY_BUBBLEWRAP: &str = "let bubblewrap make the box";
/// The same, without namespaces.
pub const BY_LANDLOCK: &str = "make the box without namespaces";

/// Numbers of <asm-generic/errno-base.h>.
const EPERM: i32 = 1;
const ENODEV: i32 = 19;

/// What of a box decides which ways can make it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// What it is kept from.
    pub tier: Tier,
    /// What it is for.
    pub class: BoxClass,
    /// Whether a folder is granted that it may only read.
    pub read_only_folder: bool,
    /// Whether it may be made although it holds less than was asked.
    pub weaker: bool,
}

/// What the machine has, or at which rung it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Support {
    /// Namespaces of the launcher's own making, with all that is mounted in them.
    pub namespaces: Result<(), Rung>,
    /// Read-only folders in those.
    pub overlay: Result<(), Rung>,
    /// A TUN in those.
    pub tun: Result<(), Rung>,
    /// The distribution's bubblewrap.
    pub bubblewrap: Result<(), Rung>,
    /// Landlock that suffices by itself, and a system call filter.
    pub landlock: Result<(), Rung>,
}

/// One way, and the tier whose operations it carries out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// By what the box is kept apart.
    pub method: Method,
    /// Where nothing can decide its flows, a gated box has no network: never
    /// one that passes.
    pub tier: Tier,
}

/// Why there is no way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoWay {
    /// There are only some that hold less, which nobody allowed.
    #[error("it fails at {0} here: `bailey doctor` says what would help, --allow-weaker goes on")]
    OnlyWeaker(Rung),
    /// There is none at all.
    #[error("it fails at {0} here, and no other way is left: `bailey doctor` says what would help")]
    Nothing(Rung),
}

/// The ways to make a box, best first.
///
/// # Errors
/// When there is none that may be taken, with the rung that it fails at.
pub fn ways(asked: &Asked, support: &Support) -> Result<Vec<Way>, NoWay> {
    let gated = asked.tier == Tier::Gated;
    let without_gate = if gated { Tier::L2 } else { asked.tier };
    let way = |method, tier| Way { method, tier };
    let overlay = !asked.read_only_folder || support.overlay.is_ok();
    // It shows a folder read-only by a plain bind, through which sockets lead out.
    let as_asked = !gated && !asked.read_only_folder && asked.class == BoxClass::Plain;
    let own = support.namespaces.is_ok() && overlay;
    let mut full = Vec::new();
    let mut weaker = Vec::new();
    if own && (!gated || support.tun.is_ok()) {
        full.push(way(Method::Namespaces, asked.tier));
    } else if own {
        weaker.push(way(Method::Namespaces, Tier::L2));
    }
    match support.bubblewrap {
        Ok(()) if as_asked => full.push(way(Method::Bubblewrap, asked.tier)),
        Ok(()) => weaker.push(way(Method::Bubblewrap, without_gate)),
        Err(_) => {}
    }
    if support.landlock.is_ok() {
        weaker.push(way(Method::Landlock, without_gate));
    }
    let failed = first_failed(asked, support);
    match (full.is_empty(), weaker.is_empty(), asked.weaker) {
        (true, true, _) => Err(NoWay::Nothing(failed)),
        (true, false, false) => Err(NoWay::OnlyWeaker(failed)),
        (_, _, true) => Ok([full, weaker].concat()),
        (false, _, false) => Ok(full),
    }
}

/// What keeps the best way from being taken.
fn first_failed(asked: &Asked, support: &Support) -> Rung {
    let overlay = if asked.read_only_folder {
        support.overlay
    } else {
        Ok(())
    };
    let tun = match asked.tier {
        Tier::Gated => support.tun,
        _ => Ok(()),
    };
    let found = support.namespaces.and(overlay).and(tun);
    found.err().unwrap_or(Rung::Namespaces)
}

/// At which rung the making of a box failed, `None` where it is not the
/// machine that failed it but what was asked.
#[must_use]
pub fn rung_of(error: &SetupError) -> Option<Rung> {
    Some(match error.step.as_str() {
        MAKE_NAMESPACES => Rung::UserNamespace,
        BY_BUBBLEWRAP => Rung::Bubblewrap,
        BY_LANDLOCK => Rung::Landlock,
        "map the user in the new user namespace" => Rung::UserMap,
        "cut the mounts off from the host's" => Rung::Propagation,
        "make the empty root" => Rung::Tmpfs,
        "bring the loopback device up" => Rung::Loopback,
        "make the network device" => Rung::Tun,
        "mount a fresh" => Rung::Proc,
        // Anything else is about the folder.
        "show read-only the granted" if [EPERM, ENODEV].contains(&error.errno) => Rung::Overlay,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
