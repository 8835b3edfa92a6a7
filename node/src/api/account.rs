//! What is said of the account: grants, and recovery.

use bailey_docs_store::Role;
use serde::{Deserialize, Serialize};

/// What is asked about recovery.
#[derive(Debug, Serialize, Deserialize)]
pub enum RecoveryAsk {
    /// The words, while they are kept here.
    Words,
    /// Whether these are the words; then they are kept here no more.
    Check(String),
    /// Write a copy of the account. One descriptor: the file.
    Save,
    /// Take a copy of the account. One descriptor: the file.
    Load,
    /// Bring the account of a copy back on this device, which has none. One descriptor:
    /// the file, which is read from its beginning, twice.
    Recover {
        /// The words of its recovery key.
        words: String,
        /// Devices that stay, by the first digits of their ids.
        keep: Vec<String>,
    },
}

/// A box of another account, for the terminals of the boxes that write the same.
#[derive(Debug, Serialize, Deserialize)]
pub struct BesideAsk {
    /// What the person calls that account.
    pub account: String,
    /// What its box may write: path, device, inode.
    pub writable: Vec<(Vec<u8>, u64, u64)>,
}

/// What a device is granted by being added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grants {
    /// What it may do.
    pub role: Role,
    /// Days of audit that it can read back.
    pub days: u64,
    /// Boxes whose audit it can read.
    pub boxes: usize,
}

impl Grants {
    /// As what follows a device's name.
    #[must_use]
    pub fn text(&self) -> String {
        let Self { role, days, boxes } = self;
        let counted = |count: u64, one: &str, many: &str| match count {
            1 => format!("1 {one}"),
            _ => format!("{count} {many}"),
        };
        let days = counted(*days, "day", "days");
        let boxes = counted(u64::try_from(*boxes).unwrap_or(u64::MAX), "box", "boxes");
        let reads = format!("will read {days} of audit of {boxes}, and all that follows");
        match role {
            Role::Runs => "will run boxes of its own and read nothing of other devices".to_owned(),
            Role::Watch => format!("{reads}, and change nothing"),
            Role::Stop => format!("{reads}, and may stop boxes"),
            Role::Full => format!("{reads}, may stop boxes, and may add and remove devices"),
        }
    }
}
