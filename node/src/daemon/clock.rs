//! The node's clock and entropy, read in one place.

use std::time::{SystemTime, UNIX_EPOCH};

use bailey_model::Timestamp;

/// Now by the node's clock.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Bytes from the operating system.
///
/// # Errors
/// When the kernel gives none; nothing may go on without.
pub(crate) fn random<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(std::io::Error::from)?;
    Ok(bytes)
}
