//! Rows of what is left of thinned entries.

use bailey_model::{Thinned, ThinnedHost, Timestamp};
use serde::{Deserialize, Serialize};

use crate::rows;

const DAY_MS: u64 = 24 * 3_600_000;
/// Under this name what found no place of its own.
pub(crate) const OTHERS: &str = "others";

/// What a box had to do with one host in one day whose entries are thinned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DayRow {
    /// Schema version.
    pub v: u32,
    /// The box's name.
    #[serde(rename = "box")]
    pub box_name: String,
    /// The day, `2026-11-30` in UTC.
    pub day: String,
    /// The host's name, or its address without one; `others` for those that found
    /// no place of their own.
    pub host: String,
    /// Class of its address.
    pub class: Option<String>,
    /// Flows.
    pub flows: u64,
    /// Refused flows and names.
    pub refused: u64,
    /// Times that its name was asked.
    pub asked: u64,
    /// Payload bytes from the box.
    pub bytes_out: u64,
    /// Payload bytes to the box.
    pub bytes_in: u64,
}

impl DayRow {
    /// The rows of what is left of one segment, from the day of `since` on.
    pub(crate) fn of(box_name: &str, thinned: &Thinned, since: Timestamp) -> Vec<Self> {
        let first = since.0 / DAY_MS;
        let days = thinned.days.iter();
        days.filter(|day| u64::from(day.day) >= first)
            .flat_map(|day| day.hosts.iter().map(move |host| (day.day, host)))
            .map(|(day, host)| Self::one(box_name, day, host))
            .collect()
    }

    fn one(box_name: &str, day: u32, host: &ThinnedHost) -> Self {
        let name = if host.name.is_empty() {
            OTHERS
        } else {
            &host.name
        };
        Self {
            v: rows::V,
            box_name: box_name.to_owned(),
            day: date(Timestamp(u64::from(day) * DAY_MS)),
            host: name.to_owned(),
            class: host.class.map(|class| class.as_str().to_owned()),
            flows: host.flows,
            refused: host.refused,
            asked: host.asked,
            bytes_out: host.bytes_out,
            bytes_in: host.bytes_in,
        }
    }
}

/// The day of a time, in UTC.
pub(crate) fn date(ts: Timestamp) -> String {
    let text = ts.to_string();
    text.split('T').next().unwrap_or_default().to_owned()
}
