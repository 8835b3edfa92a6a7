//! What a box was refused, for the programs in it: a file of a folder that the
//! node writes into and the box can only read, so that an agent understands why
//! something fails instead of trying ways around it.
//!
//! The folder is a small file system of its own, seen through a read-only mount;
//! the mount by which it is written is nowhere in the box, only a descriptor of
//! the node's leads there.

use crate::SetupOp;
use crate::channel::BoxSpec;
use crate::plan::namespaces;

/// The folder.
pub const FOLDER: &str = "/run/bailey";
/// The file in it.
pub const FILE: &str = "refusals";
/// Most bytes of the file.
pub const MAX_FILE: usize = 16 << 10;
/// Bytes of the file system: a box that holds old files open has no more of them.
const SIZE: usize = 8 * MAX_FILE;

/// Only where a gate decides is anything refused.
pub(crate) fn ops(spec: &BoxSpec) -> Option<SetupOp> {
    let gated = spec.tier == bailey_model::Tier::Gated && namespaces(spec).network;
    gated.then(|| SetupOp::ReadOnlyFolder {
        at: FOLDER.into(),
        size: SIZE.to_string(),
    })
}
