//! What is left of entries whose window is over.

use serde::{Deserialize, Serialize};

use crate::{AddrClass, BoxId, DeviceId, Incarnation, Timestamp};

/// A segment of a box's audit is gone; this is what is left of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thinned {
    /// The box.
    pub box_id: BoxId,
    /// Whose entries they were.
    pub writer: DeviceId,
    /// Which start of that device.
    pub incarnation: Incarnation,
    /// The segment of that start's chain.
    pub segment: u32,
    /// Number of the last envelope that is gone.
    pub last_seq: u64,
    /// Number of the first entry that is gone; 0 if none could be read.
    pub first_no: u64,
    /// Number of the last one.
    pub last_no: u64,
    /// The earliest time of one.
    pub from: Timestamp,
    /// The latest.
    pub to: Timestamp,
    /// The window that was in force, in hours.
    pub hours: u32,
    /// What each day had, oldest first.
    pub days: Vec<ThinnedDay>,
    /// Flows that were under way at its end: their bytes are counted with a later
    /// segment.
    pub open: Vec<ThinnedFlow>,
}

/// A flow under way at the end of a segment that is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThinnedFlow {
    /// Its number.
    pub flow: u64,
    /// The place of its host among the hosts of all days.
    pub place: u32,
    /// Payload from the box, as far as its progress was entered.
    pub bytes_out: u64,
    /// Payload to the box, as far.
    pub bytes_in: u64,
}

/// What a box did in one day, as far as one segment had it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThinnedDay {
    /// Days since 1970-01-01 UTC.
    pub day: u32,
    /// Hosts, those that carried most first.
    pub hosts: Vec<ThinnedHost>,
    /// How many hosts the last of them stands for, if it has no name.
    pub more: u32,
}

/// What a box had to do with one host in a day.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ThinnedHost {
    /// The host's name, or its address without one; empty for what had no place of
    /// its own.
    pub name: String,
    /// Class of its address, where there was one.
    pub class: Option<AddrClass>,
    /// Flows that were opened.
    pub flows: u64,
    /// Flows and names that were refused.
    pub refused: u64,
    /// Times that its name was asked.
    pub asked: u64,
    /// Payload sent to it, in bytes.
    pub bytes_out: u64,
    /// Payload that came from it, in bytes.
    pub bytes_in: u64,
}
