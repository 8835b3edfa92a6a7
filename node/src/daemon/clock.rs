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
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
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
    seconds.checked_mul(1000)?.checked_add(hundredths * 10)
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
