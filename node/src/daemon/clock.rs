//! The node's clock and entropy, read in one place.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bailey_docs_store::Moment;
use bailey_model::Timestamp;

/// Now by the node's clock.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let now = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    Timestamp(now.saturating_add_signed(shifted().0))
}

/// For tests, and only in builds with assertions: by how many milliseconds the clock is
/// off, and how many more have passed. `BAILEY_TEST_CLOCK` has both in seconds: `-3600/0`
/// is a clock that is an hour late, `3600/3600` a machine that slept for an hour.
fn shifted() -> (i64, u64) {
    static SHIFTED: OnceLock<(i64, u64)> = OnceLock::new();
    if !cfg!(debug_assertions) {
        return (0, 0);
    }
    *SHIFTED.get_or_init(|| {
        let read = || {
            let text = std::env::var("BAILEY_TEST_CLOCK").ok()?;
            let (off, passed) = text.split_once('/')?;
            let (off, passed): (i64, u64) = (off.parse().ok()?, passed.parse().ok()?);
            Some((off.checked_mul(1000)?, passed.checked_mul(1000)?))
        };
        read().unwrap_or_default()
    })
}

/// What the machine says of the time: its clock, and how long it is up. Where it
/// does not say that, how long this process is.
pub(crate) fn moment() -> Moment {
    static BEGUN: OnceLock<(Instant, [u8; 16])> = OnceLock::new();
    let wall = now();
    if let (Some(boot), Some(up_ms)) = (boot_id(), up_ms()) {
        return Moment { wall, boot, up_ms };
    }
    let (begun, boot) = BEGUN.get_or_init(|| (Instant::now(), random().unwrap_or_default()));
    Moment {
        wall,
        boot: *boot,
        up_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
    }
}

fn boot_id() -> Option<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16).ok()?;
    Some(number.to_be_bytes())
}

/// `/proc/uptime` counts what the machine slept too.
fn up_ms() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/uptime").ok()?;
    let (seconds, hundredths) = text.split_whitespace().next()?.split_once('.')?;
    let seconds: u64 = seconds.parse().ok()?;
    let hundredths: u64 = hundredths.parse().ok()?;
    let up = seconds.checked_mul(1000)?.checked_add(hundredths * 10)?;
    up.checked_add(shifted().1)
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
