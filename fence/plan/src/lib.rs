//! From the words "make this box" to the list of plain operations that makes
//! it, and what a box may be granted at all. Pure: what the host looks like
//! comes in as [`HostFacts`], what to do goes out as [`SetupOp`]s; the launcher
//! gathers the one and executes the other.

#![forbid(unsafe_code)]

pub mod alias;
pub mod channel;
pub mod display;
pub mod doctor;
mod facts;
pub mod fallback;
mod filter;
pub mod gpu;
pub mod holds;
mod image;
pub mod judge;
mod op;
mod plan;
mod protect;
pub mod refusals;
mod refuse;

pub use facts::{EntryKind, GrantFacts, HostEntry, HostFacts, HostNames};
pub use filter::{Opened, opened};
pub use image::looked_at;
pub use op::{EMPTY_FOLDER, SetupOp};
pub use plan::{Namespaces, PlanError, ahead, check_joiner, namespaces, plan};
pub use protect::{BARE, Guard, IN_BARE, guarded_names};
pub use refuse::{NodeFolders, Reason, is_engine_socket, refuse_grant};
