//! Rows about accounts and their devices.

use serde::{Deserialize, Serialize};

/// An account of this user on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountRow {
    /// Schema version.
    pub v: u32,
    /// What the person calls it here; `default` is the first. No device is told it.
    pub name: String,
    /// Its id, hex; null until its first box or device.
    pub account: Option<String>,
    /// Whether its node runs.
    pub running: bool,
    /// Boxes that run here; null where its node does not say.
    pub boxes: Option<usize>,
    /// Devices that belong to it; null while its node does not run.
    pub devices: Option<usize>,
}

/// A device of the account.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeviceRow {
    /// Schema version.
    pub v: u32,
    /// Id, hex.
    pub id: String,
    /// What it calls itself.
    pub name: String,
    /// `full`, `stop`, `watch`, `runs`; `removed` for one that is none any more.
    pub role: String,
    /// Whether it is this one.
    pub this: bool,
    /// Whether a session with it is up.
    pub connected: bool,
    /// When it was heard last, RFC 3339 UTC.
    #[serde(default)]
    pub last_heard: Option<String>,
    /// Who removed it, where its role is `removed`.
    #[serde(default)]
    pub removed_by: Option<String>,
    /// Which devices have not said yet that they applied that.
    #[serde(default)]
    pub unconfirmed: Vec<String>,
    /// A removal of its own against one of it, in words.
    #[serde(default)]
    pub conflict: Option<String>,
    /// What somebody saw of its chains and is not here.
    #[serde(default)]
    pub gaps: Vec<GapRow>,
    /// When it was seen last that it went back to an older copy of its store.
    #[serde(default)]
    pub went_back: Option<String>,
    /// When it was seen last that it signed two envelopes with one number.
    #[serde(default)]
    pub two_of_one: Option<String>,
    /// By how much its clock is ahead of this device's at the least, in seconds, where
    /// that is ten minutes or more.
    #[serde(default)]
    pub clock_ahead: Option<u64>,
    /// Whether it began more chains than are synced; of those the newest are.
    #[serde(default)]
    pub left_out: bool,
}

/// A chain of which somebody saw more than is here.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GapRow {
    /// The document.
    pub doc: String,
    /// The start of the device, hex.
    pub incarnation: String,
    /// Number of the newest envelope here.
    pub have: u64,
    /// Number of the newest that was seen.
    pub seen: u64,
    /// Which device saw it.
    pub by: String,
    /// When it said so, by its clock, RFC 3339 UTC.
    pub at: String,
    /// Whether its writer is there and shows no more than is here.
    pub shown: bool,
}

/// A mailbox of the account, as this device sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MailboxRow {
    /// Schema version.
    pub v: u32,
    /// `KEY@HOST:PORT`.
    pub mailbox: String,
    /// Whether it is reached now.
    pub connected: bool,
    /// When it was heard last by this start of the node, RFC 3339 UTC.
    pub last_heard: Option<String>,
    /// Why it is not reached.
    pub why: Option<String>,
    /// Why it keeps nothing of what is put now.
    pub refused: Option<String>,
    /// Blobs of it that were good for nothing.
    pub bad: u64,
    /// Whether it was seen to tell less than it had told before.
    pub went_back: bool,
    /// The devices that say that they saw a newer head than it tells.
    pub older_than: Option<String>,
    /// Whether the code by which this device joined named it, and not `config.toml`.
    pub from_code: bool,
}

/// Devices that were removed, and what is true of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RemovedRow {
    /// Schema version.
    pub v: u32,
    /// Ids, hex.
    pub devices: Vec<String>,
    /// What they called themselves.
    pub names: Vec<String>,
    /// Boxes whose audit they could read, `NAME@DEVICE`.
    pub could_read: Vec<String>,
    /// When one of them was heard last, RFC 3339 UTC.
    pub last_heard: Option<String>,
    /// Devices that they had added, and that stay.
    pub added: Vec<String>,
    /// Which devices have not said yet that they applied it.
    pub unconfirmed: Vec<String>,
}
