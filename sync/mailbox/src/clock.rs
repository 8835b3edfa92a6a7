//! The time of day, read in one place.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970; 0 before it.
pub(crate) fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|since| u64::try_from(since.as_millis()).ok())
        .unwrap_or(0)
}
