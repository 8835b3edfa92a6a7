//! This machine's links changed: sessions from an address that is gone are begun anew
//! at once, and whoever is away is dialled now.

use bailey_model::DeviceId;

use super::DownReason;
use super::hub::Hub;
use crate::io::code;

impl Hub {
    pub(super) fn handle_links(&mut self) {
        let now = self.now();
        let moved: Vec<(u64, DeviceId)> = self
            .lines
            .iter()
            .filter(|(_, line)| line.has_moved())
            .map(|(id, line)| (*id, line.peer))
            .collect();
        for (id, _) in &moved {
            if let Some(line) = self.end(*id, DownReason::Moved) {
                // A peer that hears it waits for the other one; most hear nothing.
                line.writer.close_now(code::LEAVING, "at another address");
            }
        }
        for (device, peer) in &mut self.peers.0 {
            let moved = moved.iter().any(|(_, other)| other == device);
            peer.links_changed(now, moved);
        }
    }
}
