//! What is known of each member, and when it is dialled.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bailey_model::DeviceId;
use tokio::task::AbortHandle;

use crate::Dice;
use crate::links::source;

/// Addresses of one peer; more are left out.
const MAX_ADDRS: usize = 8;
/// Peers that may be told of before they are members.
const MAX_STRANGERS: usize = 64;
/// Wait after the first failure; doubles.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// Longest wait between two dials.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Longest wait before a lost connection is dialled again; a part of it is
/// taken, so that both ends seldom dial at once.
const REDIAL: Duration = Duration::from_millis(300);
/// A dial that waits is not brought forward more often: links of a machine may change
/// all the time, for reasons that are no way to a peer.
const NUDGE_EVERY: Duration = Duration::from_secs(1);

/// One peer.
#[derive(Debug, Default)]
pub(super) struct Peer {
    pub(super) member: bool,
    told: Vec<SocketAddr>,
    /// Where its last session came from, with the port it listens on.
    learned: Option<SocketAddr>,
    fails: u32,
    pub(super) dial_at: Option<Duration>,
    pub(super) dialling: Option<AbortHandle>,
    /// From where each of its addresses was reached when that dial began.
    pub(super) dialled_from: Vec<Option<IpAddr>>,
    /// When it was last dialled because the links changed.
    nudged: Option<Duration>,
    /// The connection with a session.
    pub(super) connection: Option<u64>,
}

impl Peer {
    /// Where it was last comes first.
    pub(super) fn addrs(&self) -> Vec<SocketAddr> {
        let told = self.told.iter().copied();
        let others = told.filter(|told| Some(*told) != self.learned);
        self.learned.into_iter().chain(others).collect()
    }

    /// From where each of its addresses is reached.
    pub(super) fn sources(&self) -> Vec<Option<IpAddr>> {
        self.addrs().into_iter().map(source).collect()
    }

    /// This machine's links changed; whether that ended a session with it. What waits
    /// is dialled now, and what was begun on another way begins again.
    pub(super) fn links_changed(&mut self, now: Duration, moved: bool) {
        let stale = self.dialling.is_some() && self.dialled_from != self.sources();
        if stale {
            self.stop_dialling();
        }
        let waits = self.dial_at.is_some();
        let nudge = waits && self.nudged.is_none_or(|at| now >= at + NUDGE_EVERY);
        if nudge {
            self.nudged = Some(now);
        }
        if stale || moved || nudge {
            self.fails = 0;
            self.plan(now);
        }
    }

    fn wants_dial(&self) -> bool {
        self.member
            && self.connection.is_none()
            && self.dialling.is_none()
            && !(self.told.is_empty() && self.learned.is_none())
    }

    fn plan(&mut self, at: Duration) {
        self.dial_at = self.wants_dial().then_some(at);
    }

    pub(super) fn stop_dialling(&mut self) {
        self.dial_at = None;
        if let Some(task) = self.dialling.take() {
            task.abort();
        }
    }

    /// A dial, or the connection that it made, failed before a session was up.
    pub(super) fn failed(&mut self, now: Duration, dice: &mut Dice) {
        let wait = FIRST_WAIT
            .saturating_mul(1 << self.fails.min(8))
            .min(LONGEST_WAIT);
        self.fails = self.fails.saturating_add(1);
        let jitter = dice.part_of(wait / 2);
        self.plan(now + wait - wait / 4 + jitter);
    }

    /// The peer says that we are no member: asking again soon does not help.
    pub(super) fn refused(&mut self, now: Duration, dice: &mut Dice) {
        self.fails = u32::from(u8::MAX);
        self.failed(now, dice);
    }

    /// A session that was up is over.
    pub(super) fn lost(&mut self, now: Duration, dice: &mut Dice) {
        self.plan(now + dice.part_of(REDIAL));
    }

    pub(super) fn up(&mut self, learned: Option<SocketAddr>) {
        self.fails = 0;
        self.learned = learned.or(self.learned);
    }
}

/// All peers.
#[derive(Debug, Default)]
pub(super) struct Peers(pub(super) HashMap<DeviceId, Peer>);

impl Peers {
    /// Brings membership in; gives those who are none any more.
    pub(super) fn set_members(
        &mut self,
        now: Duration,
        is_member: impl Fn(&DeviceId) -> bool,
        members: impl Iterator<Item = DeviceId>,
    ) -> Vec<DeviceId> {
        for device in members {
            let peer = self.0.entry(device).or_default();
            if !peer.member {
                peer.member = true;
                peer.fails = 0;
                peer.plan(now);
            }
        }
        let mut gone = Vec::new();
        for (device, peer) in &mut self.0 {
            if peer.member && !is_member(device) {
                peer.member = false;
                peer.stop_dialling();
                gone.push(*device);
            }
        }
        gone
    }

    pub(super) fn set_addrs(&mut self, now: Duration, device: DeviceId, addrs: &[SocketAddr]) {
        let strangers = self.0.values().filter(|peer| !peer.member).count();
        if !self.0.contains_key(&device) && strangers >= MAX_STRANGERS {
            return;
        }
        let peer = self.0.entry(device).or_default();
        peer.told = addrs.iter().copied().take(MAX_ADDRS).collect();
        peer.fails = 0;
        peer.plan(now);
    }

    /// Whether a member was told of, or seen, at this address.
    pub(super) fn knows(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.0.values().filter(|peer| peer.member).any(|peer| {
            peer.told
                .iter()
                .chain(&peer.learned)
                .any(|addr| addr.ip().to_canonical() == ip)
        })
    }

    pub(super) fn next_dial(&self) -> Option<Duration> {
        self.0.values().filter_map(|peer| peer.dial_at).min()
    }

    pub(super) fn due(&mut self, now: Duration) -> Vec<DeviceId> {
        let mut due = Vec::new();
        for (device, peer) in &mut self.0 {
            if peer.dial_at.is_some_and(|at| at <= now) {
                peer.dial_at = None;
                if peer.wants_dial() {
                    due.push(*device);
                }
            }
        }
        due
    }
}
