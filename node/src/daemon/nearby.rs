//! Devices of the account that are on the same link find each other there, whatever
//! addresses they had: each is asked for by a label that only the two know, and that
//! is another one each hour.
//!
//! Who answers is dialled and must prove its key; nothing of an answer is kept before.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bailey_model::DeviceId;
use bailey_sync::{Link, MEMBER_DOMAIN, Nearby as Answering, SyncCommand};

use super::event::NodeEvent;
use super::pairing::links;
use super::{Node, clock};
use crate::log::log;

/// Between two looks at this machine's links.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The longest time between two questions for who is away, where nothing changed: it
/// doubles, for two that begin at once may miss each other's first.
const ASK_EVERY: Duration = Duration::from_secs(5 * 60);
/// Between two questions in any case.
const ASK_AT_MOST: Duration = Duration::from_secs(10);
/// How long one is asked for.
const PATIENCE: Duration = Duration::from_secs(3);
/// Devices asked for at once.
const MAX_ASKED: usize = 32;

/// What is known of the neighbourhood.
#[derive(Debug, Default)]
pub(super) struct Nearby {
    looked: Option<Instant>,
    links: Vec<Link>,
    port: u16,
    labels: Vec<String>,
    answering: Option<Answering>,
    asked: Option<Instant>,
    /// How long after it is asked again.
    pause: Duration,
    /// Something changed since.
    wanted: bool,
}

impl Nearby {
    /// Somebody went away, or is to be found.
    pub(super) fn want(&mut self) {
        self.wanted = true;
    }
}

impl Node {
    /// At every tick.
    pub(super) fn look_nearby(&mut self, now: Instant) {
        let recent = |at: Option<Instant>, span| at.is_some_and(|at| now.duration_since(at) < span);
        if recent(self.nearby.looked, LOOK_EVERY) {
            return;
        }
        self.nearby.looked = Some(now);
        let (Some(port), true) = (self.devices.port(), self.devices.known() > 1) else {
            self.nearby = Nearby::default();
            return;
        };
        self.answer_nearby(port);
        let wanted = self.nearby.wanted;
        let due = !recent(self.nearby.asked, self.nearby.pause) || wanted;
        if due && !recent(self.nearby.asked, ASK_AT_MOST) {
            self.nearby.pause = match wanted {
                true => ASK_AT_MOST,
                false => (self.nearby.pause * 2).clamp(ASK_AT_MOST, ASK_EVERY),
            };
            (self.nearby.asked, self.nearby.wanted) = (Some(now), false);
            self.ask_nearby();
        }
    }

    fn answer_nearby(&mut self, port: u16) {
        let Some(account) = self.account else { return };
        let now = clock::now().0;
        let labels = self
            .secrets()
            .into_iter()
            .flat_map(|(_, secret)| bailey_sync::member_labels(&secret, &account, &self.this, now));
        let (labels, links): (Vec<String>, _) = (labels.collect(), links());
        let nearby = &mut self.nearby;
        if nearby.links != links || nearby.port != port {
            nearby.answering = None;
            match Answering::start(&links, labels.clone(), port) {
                Ok(answering) => nearby.answering = Some(answering),
                Err(error) => log!("nearby: other devices cannot find this one here: {error}"),
            }
            (nearby.links, nearby.port, nearby.wanted) = (links, port, true);
        } else if nearby.labels != labels
            && let Some(answering) = &nearby.answering
        {
            answering.answer_to(labels.clone());
        }
        nearby.labels = labels;
    }

    /// What this device and each other one of the account have alone.
    fn secrets(&self) -> Vec<(DeviceId, [u8; 32])> {
        let others = self.devices.others(self.this);
        let secret = |(id, public)| Some((id, *self.keys.pairwise(&public, MEMBER_DOMAIN).ok()?));
        others.into_iter().filter_map(secret).collect()
    }

    fn ask_nearby(&self) {
        let Some(account) = self.account else { return };
        let now = clock::now().0;
        let away = self
            .secrets()
            .into_iter()
            .filter(|(id, _)| !self.devices.is_up(*id));
        for (device, secret) in away.take(MAX_ASKED) {
            let label = bailey_sync::member_label(&secret, &account, &device, now);
            let (links, events) = (self.nearby.links.clone(), self.events.clone());
            tokio::spawn(async move {
                if let Ok(Some(at)) = bailey_sync::look_for(&links, label, PATIENCE).await {
                    // Without its loop the node is gone.
                    let _gone = events.send(NodeEvent::Nearby { device, at }).await;
                }
            });
        }
    }

    /// Somebody says that a device is there.
    pub(super) fn on_nearby(&mut self, device: DeviceId, at: SocketAddr) {
        if self.devices.is_up(device) || !self.devices.is_member(device) {
            return;
        }
        let known = self.devices.addrs().get(&device).into_iter().flatten();
        let addrs = std::iter::once(at).chain(known.copied()).collect();
        self.devices.command(SyncCommand::Peer { device, addrs });
    }
}
