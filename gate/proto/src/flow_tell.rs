//! What the gate tells the node: events in order, equal refusals as one with a
//! count, and never more than the node can be asked to keep.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::time::Duration;

use bailey_model::{AddrClass, Direction, FlowEnded, FlowRefused, Host, HostFrom, Proto, Refusal};

use crate::Now;
use crate::channel::GateEvent;
use crate::coalesce::{Coalescer, Seen, WINDOW};
use crate::flow::{
    END_WAITS, MANY_ENDS, MAX_EVENTS, MAX_REFUSAL_KINDS, REFUSALS_BURST, REFUSALS_PER_SECOND,
};

/// A refusal to be told. Two are equal whatever port of the box, or whatever
/// client, they came from.
#[derive(Debug, Clone)]
pub(crate) struct Refused {
    pub(crate) direction: Direction,
    pub(crate) proto: Proto,
    pub(crate) src: Option<SocketAddr>,
    pub(crate) dst: Option<SocketAddr>,
    pub(crate) host: Option<Host>,
    pub(crate) class: Option<AddrClass>,
    pub(crate) refusal: Refusal,
}

impl Refused {
    fn key(
        &self,
    ) -> (
        bool,
        Proto,
        Option<SocketAddr>,
        Option<&Host>,
        Option<AddrClass>,
        Refusal,
    ) {
        (
            self.direction == Direction::Out,
            self.proto,
            self.dst,
            self.host.as_ref(),
            self.class,
            self.refusal,
        )
    }

    fn event(self, count: u32) -> GateEvent {
        let host_from = match (&self.host, self.refusal) {
            (Some(_), Refusal::OtherHost) => HostFrom::Sni,
            (Some(_), _) => HostFrom::Dns,
            (None, _) => HostFrom::None,
        };
        GateEvent::FlowRefused(FlowRefused {
            direction: self.direction,
            proto: self.proto,
            src: self.src,
            dst: self.dst,
            host: self.host,
            host_from,
            class: self.class,
            refusal: self.refusal,
            count,
        })
    }
}

impl PartialEq for Refused {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Refused {}

impl Hash for Refused {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

/// The queue to the node.
#[derive(Debug)]
pub(crate) struct Told {
    events: VecDeque<(Option<u64>, GateEvent)>,
    /// Ends of flows, how far others have come, and what names were answered: nobody
    /// waits for them.
    ends: VecDeque<GateEvent>,
    /// When they are told at the latest.
    ends_due: Option<Now>,
    /// They are being told.
    telling_ends: bool,
    refusals: Coalescer<Refused>,
    /// Refusals that may still get entries of their own, in billionths.
    tokens: u64,
    refilled: Now,
}

const TOKEN: u64 = 1_000_000_000;

impl Told {
    pub(crate) fn new(now: Now) -> Self {
        Self {
            events: VecDeque::new(),
            ends: VecDeque::new(),
            ends_due: None,
            telling_ends: false,
            refusals: Coalescer::new(WINDOW, MAX_REFUSAL_KINDS),
            tokens: u64::from(REFUSALS_BURST) * TOKEN,
            refilled: now,
        }
    }

    /// Whether the node keeps up, so that something new may begin.
    pub(crate) fn has_room(&self) -> bool {
        self.events.len() + self.ends.len() < MAX_EVENTS
    }

    /// Events that wait, refusals that are counted.
    pub(crate) fn len(&self) -> usize {
        self.events.len() + self.refusals.len()
    }

    pub(crate) fn push(&mut self, ticket: Option<u64>, event: GateEvent) {
        self.events.push_back((ticket, event));
    }

    /// Tells the end of a flow.
    pub(crate) fn ended(&mut self, now: Now, ended: FlowEnded) {
        self.in_company(now, GateEvent::FlowEnded(ended));
    }

    /// Tells what nobody waits for: a message, a commit and their wake-ups are for
    /// many of them, and never before what somebody waits for.
    pub(crate) fn in_company(&mut self, now: Now, event: GateEvent) {
        self.ends_due.get_or_insert(now + END_WAITS);
        self.ends.push_back(event);
    }

    /// When [`Self::poll_due`] has something; `None` if there is nothing at all.
    pub(crate) fn due(&self) -> Option<Now> {
        let at_once = !self.events.is_empty() || self.telling_ends || self.ends.len() >= MANY_ENDS;
        if at_once {
            Some(Now::ZERO)
        } else {
            self.ends_due
        }
    }

    /// The next event that is to be told by now.
    pub(crate) fn poll_due(&mut self, now: Now) -> Option<(Option<u64>, GateEvent)> {
        if self.events.is_empty() && self.due().is_none_or(|due| due > now) {
            return None;
        }
        self.telling_ends |= self.events.is_empty();
        self.poll()
    }

    /// Tells a refusal, or counts it.
    pub(crate) fn refused(&mut self, now: Now, refused: Refused) {
        if self.refusals.note(now, refused.clone()) == Seen::First {
            if self.has_room() && self.take_token(now) {
                self.push(None, refused.event(1));
            } else {
                // Past its rate a box's refusals are one entry a protocol.
                self.refusals.forget(&refused);
                let many = Refused {
                    src: None,
                    dst: None,
                    host: None,
                    class: None,
                    refusal: Refusal::Limit,
                    ..refused
                };
                if self.refusals.note(now, many.clone()) == Seen::First {
                    self.push(None, many.event(1));
                }
            }
        }
        self.collect(now);
    }

    /// Puts the counts whose 10 s are over behind the other events.
    pub(crate) fn collect(&mut self, now: Now) {
        while let Some((refused, further)) = self.refusals.poll(now) {
            self.push(None, refused.event(further));
        }
    }

    /// Tells every count now: the box is at its end.
    pub(crate) fn close(&mut self, now: Now) {
        self.refusals.close_all();
        self.collect(now);
    }

    /// The next event, due or not.
    pub(crate) fn poll(&mut self) -> Option<(Option<u64>, GateEvent)> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        let event = self.ends.pop_front();
        if self.ends.is_empty() {
            (self.ends_due, self.telling_ends) = (None, false);
        }
        Some((None, event?))
    }

    pub(crate) fn poll_timeout(&self) -> Option<Now> {
        self.refusals.poll_timeout()
    }

    fn take_token(&mut self, now: Now) -> bool {
        let passed = now
            .saturating_sub(self.refilled)
            .min(Duration::from_secs(60));
        self.refilled = now;
        let passed = u64::try_from(passed.as_nanos()).unwrap_or(0);
        self.tokens = (self.tokens + passed * u64::from(REFUSALS_PER_SECOND))
            .min(u64::from(REFUSALS_BURST) * TOKEN);
        match self.tokens.checked_sub(TOKEN) {
            Some(left) => {
                self.tokens = left;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(port: u16, from: u16) -> Refused {
        Refused {
            direction: Direction::Out,
            proto: Proto::Tcp,
            src: Some(SocketAddr::from(([192, 0, 0, 2], from))),
            dst: Some(SocketAddr::from(([10, 0, 0, 1], port))),
            host: None,
            class: Some(AddrClass::Local),
            refusal: Refusal::OutsideReach,
        }
    }

    fn told(told: &mut Told) -> Vec<(Option<u16>, u32, Refusal)> {
        std::iter::from_fn(|| told.poll())
            .map(|(ticket, event)| {
                assert_eq!(ticket, None);
                let GateEvent::FlowRefused(refused) = event else {
                    panic!("{event:?}")
                };
                (
                    refused.dst.map(|dst| dst.port()),
                    refused.count,
                    refused.refusal,
                )
            })
            .collect()
    }

    #[test]
    fn equal_refusals_from_many_ports_are_told_at_once_and_then_counted() {
        let mut queue = Told::new(Now::ZERO);
        for from in 1..=100 {
            queue.refused(Duration::from_millis(from.into()), to(22, from));
        }
        assert_eq!(told(&mut queue), [(Some(22), 1, Refusal::OutsideReach)]);
        let due = queue.poll_timeout().unwrap();
        assert_eq!(due, Duration::from_millis(10_001));
        queue.collect(due);
        assert_eq!(told(&mut queue), [(Some(22), 99, Refusal::OutsideReach)]);
    }

    #[test]
    fn ends_are_told_together_after_a_while_and_hold_up_nothing() {
        let ms = Duration::from_millis;
        let mut queue = Told::new(Now::ZERO);
        let ended = |flow| FlowEnded {
            flow: bailey_model::FlowId(flow),
            bytes_out: 0,
            bytes_in: 0,
            duration_us: 0,
            end: bailey_model::EndReason::Closed,
            outer_src: None,
        };
        assert_eq!((queue.due(), queue.poll_due(ms(9))), (None, None));
        queue.ended(ms(1), ended(1));
        queue.ended(ms(2), ended(2));
        assert_eq!(queue.due(), Some(ms(1) + END_WAITS));
        queue.refused(ms(3), to(22, 1));
        assert_eq!(queue.due(), Some(Now::ZERO));
        let refused = queue.poll_due(ms(3)).unwrap().1;
        assert!(matches!(refused, GateEvent::FlowRefused(_)), "{refused:?}");
        assert_eq!(queue.poll_due(ms(3)), None);
        let due = queue.due().unwrap();
        assert_eq!(due, ms(1) + END_WAITS);
        for flow in [1, 2] {
            let told = queue.poll_due(due);
            assert_eq!(told, Some((None, GateEvent::FlowEnded(ended(flow)))));
        }
        assert_eq!((queue.due(), queue.poll_due(due)), (None, None));
        let many = u64::try_from(MANY_ENDS).unwrap();
        (0..many).for_each(|flow| queue.ended(ms(9), ended(flow)));
        let told = std::iter::from_fn(|| queue.poll_due(ms(9))).count();
        assert_eq!(told, MANY_ENDS);
        // Whoever does not ask for what is due has everything.
        queue.ended(ms(9), ended(1));
        assert!(queue.poll().is_some() && queue.due().is_none());
    }

    #[test]
    fn a_scan_is_held_to_its_rate_and_the_rest_is_one_count() {
        let mut queue = Told::new(Now::ZERO);
        for port in 1..=u16::MAX {
            queue.refused(Now::ZERO, to(port, 1));
        }
        queue.close(Now::ZERO);
        let all = told(&mut queue);
        let burst = usize::try_from(REFUSALS_BURST).unwrap();
        assert_eq!(all.len(), burst + 2);
        let total: u32 = all.iter().map(|(_, count, _)| count).sum();
        assert_eq!(total, u32::from(u16::MAX));
        assert_eq!(all.last().map(|last| last.2), Some(Refusal::Limit));
    }
}
