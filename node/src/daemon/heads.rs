//! What devices say of the time and of one another's chains.

use std::collections::BTreeMap;
use std::time::Instant;

use bailey_model::{DeviceId, Timestamp};

/// What the clock of each device says at least: the time of an entry of its own, and
/// how long ago by this process's steady clock that was heard. It is never ahead of
/// that device's clock, whatever this one's says.
#[derive(Debug, Default)]
pub(super) struct Clocks(BTreeMap<DeviceId, (Timestamp, Instant)>);

impl Clocks {
    /// An entry of a device was heard.
    pub(super) fn note(&mut self, device: DeviceId, at: Timestamp, heard: Instant) {
        let before = self.at(device, heard);
        if before.is_none_or(|before| before < at) {
            self.0.insert(device, (at, heard));
        }
    }

    pub(super) fn at(&self, device: DeviceId, now: Instant) -> Option<Timestamp> {
        let (at, heard) = self.0.get(&device)?;
        let since = now.saturating_duration_since(*heard).as_millis();
        let since = u64::try_from(since).unwrap_or(u64::MAX);
        Some(Timestamp(at.0.saturating_add(since)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_clock_of_another_device_is_never_taken_to_be_ahead_of_it() {
        let device = DeviceId([1; 32]);
        let begun = Instant::now();
        let after = |ms| begun + Duration::from_millis(ms);
        let mut clocks = Clocks::default();
        assert_eq!(clocks.at(device, begun), None);
        clocks.note(device, Timestamp(1000), begun);
        assert_eq!(clocks.at(device, after(500)), Some(Timestamp(1500)));
        // What was long under way says nothing new.
        clocks.note(device, Timestamp(1200), after(500));
        assert_eq!(clocks.at(device, after(500)), Some(Timestamp(1500)));
        // What came faster than all before does.
        clocks.note(device, Timestamp(1900), after(600));
        assert_eq!(clocks.at(device, after(700)), Some(Timestamp(2000)));
    }
}
