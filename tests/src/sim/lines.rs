//! One device's sessions, and what its loop does.

use std::collections::VecDeque;
use std::time::Duration;

use bailey_docs_store::{ChainId, Head, IngestError, Store};
use bailey_model::DeviceId;
use bailey_session::{IngestFailure, PARTING, Session, SessionConfig, SessionEvent};

use super::device::{Device, Line};
use super::evil::Evil;

/// What a power cut may take is a quarter of a second of commits.
const SYNC_EVERY: Duration = Duration::from_millis(250);
/// Most envelopes of one answer.
const MAX_RANGE: usize = 2048;
/// Most frames of one connection under way, as a link's own buffer would have.
const MAX_ON_LINE: usize = 16;

impl Device {
    pub(super) fn speaks_with(&self, other: usize) -> bool {
        self.lines.contains_key(&other)
    }

    pub(super) fn only_parts_with(&self, other: usize) -> bool {
        self.lines.get(&other).is_some_and(|line| line.parting)
    }

    /// A connection with another begins; for so long, if that one is no member.
    pub(super) fn call(
        &mut self,
        other: usize,
        device: DeviceId,
        now: Duration,
        parting: Option<Duration>,
    ) {
        let (Some(store), Some(account)) = (&self.store, self.account) else {
            return;
        };
        let config = SessionConfig {
            account,
            peer: device,
            incarnation: store.incarnation(),
            listen_port: 1,
        };
        let mut session = Session::new(config, now);
        if let Some(within) = parting {
            session.part(now, within);
        }
        match store.is_synced() {
            true => session.handle_local_heads(&store.heads()),
            // All of them, once they are.
            false => self.told.clear(),
        }
        if let Some(evil) = &self.evil {
            session.handle_local_heads(&evil.heads(other));
        }
        self.grown = true;
        let line = Line {
            session,
            coming: VecDeque::new(),
            closed: false,
            parting: parting.is_some(),
        };
        self.lines.insert(other, line);
    }

    /// It is over, with all that was under way.
    pub(super) fn hang_up(&mut self, other: usize) {
        if let Some(line) = self.lines.remove(&other) {
            self.claims.release_all(line.session.peer());
        }
    }

    /// Who was removed hears so, and no more.
    pub(super) fn part_with_removed(&mut self, now: Duration) {
        let Some(store) = &self.store else { return };
        for line in self.lines.values_mut().filter(|line| !line.parting) {
            let peer = line.session.peer();
            if store.members().get(&peer).is_none() {
                line.parting = true;
                line.session.part(now, PARTING);
                self.claims.release_all(peer);
            }
        }
    }

    pub(super) fn arrive(&mut self, from: usize, at: Duration, pieces: [Vec<u8>; 2]) {
        if let Some(line) = self.lines.get_mut(&from) {
            for piece in pieces {
                let last = line.coming.back().map_or(Duration::ZERO, |(at, _)| *at);
                line.coming.push_back((at.max(last), piece));
            }
        }
    }

    /// Everything that is due here.
    pub(super) fn work(&mut self, now: Duration) -> Result<(), String> {
        if self.store.is_none() {
            return Ok(());
        }
        let peers: Vec<usize> = self.lines.keys().copied().collect();
        for peer in peers {
            self.hear(now, peer);
            self.answer(now, peer)?;
        }
        self.read_post(now)?;
        self.tend(now)?;
        self.write_post(now)
    }

    fn hear(&mut self, now: Duration, peer: usize) {
        let Some(line) = self.lines.get_mut(&peer) else {
            return;
        };
        while line.coming.front().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, piece)) = line.coming.pop_front() {
                line.session.handle_bytes(now, &piece, &mut self.claims);
            }
        }
        if line.session.poll_timeout().is_some_and(|(at, _)| at <= now) {
            line.session.handle_timeout(now);
        }
    }

    fn answer(&mut self, now: Duration, peer: usize) -> Result<(), String> {
        while let Some(line) = self.lines.get_mut(&peer) {
            let Some(event) = line.session.poll_event() else {
                break;
            };
            match event {
                SessionEvent::NeedRange {
                    chain,
                    from,
                    max_bytes,
                } => {
                    let range = self.range(peer, &chain, from, max_bytes)?;
                    if let Some(line) = self.lines.get_mut(&peer) {
                        line.session.handle_range(chain, from, range);
                    }
                }
                SessionEvent::Envelope { chain, bytes } => {
                    let from = line.session.peer();
                    let taken = self.take(now, from, &chain, &bytes)?;
                    self.ingested(now, peer, chain, taken);
                }
                SessionEvent::Fork { chain, .. } => {
                    self.forks.insert(chain);
                }
                SessionEvent::Closed(_) => line.closed = true,
                SessionEvent::Up { .. } | SessionEvent::LeftOut { .. } | SessionEvent::CaughtUp => {
                }
            }
        }
        Ok(())
    }

    /// What is handed to a peer that asks.
    fn range(
        &mut self,
        peer: usize,
        chain: &ChainId,
        from: u64,
        max_bytes: u32,
    ) -> Result<Vec<Vec<u8>>, String> {
        let bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX);
        if let Some(forged) = self
            .evil
            .as_ref()
            .and_then(|evil| evil.range(peer, chain, from))
        {
            return Ok(forged);
        }
        let Some(store) = &self.store else {
            return Ok(Vec::new());
        };
        // One that spoils what it hands on leaves some out.
        let spoils = |evil: &Evil| evil.spoils();
        let omits = self.evil.as_ref().is_some_and(spoils) && self.dice.one_in(3);
        let range = store.range(chain, from + u64::from(omits), MAX_RANGE, bytes);
        let mut range = range.map_err(|error| error.to_string())?;
        if let Some(evil) = &self.evil {
            evil.doctor(&mut range, &mut self.dice);
        }
        Ok(range)
    }

    /// Gives an envelope to the store, as the node does.
    pub(super) fn take(
        &mut self,
        now: Duration,
        from: DeviceId,
        chain: &ChainId,
        bytes: &[u8],
    ) -> Result<Result<u64, IngestFailure>, String> {
        let clock = self.clock(now);
        let Some(store) = self.store.as_mut() else {
            return Ok(Err(IngestFailure::Gap));
        };
        if self
            .evil
            .as_ref()
            .is_some_and(|evil| evil.is_deaf_to(chain))
        {
            return Ok(Err(IngestFailure::Gap));
        }
        self.grown = true;
        match store.ingest_from(&from, bytes, clock) {
            Ok(ingested) => {
                if ingested.restored {
                    self.back.insert(ingested.chain.writer);
                }
                if ingested.members_changed {
                    self.note_readers();
                    self.part_with_removed(now);
                }
                Ok(Ok(ingested.seq))
            }
            Err(IngestError::Quarantined { seq, .. }) => Ok(Ok(seq)),
            Err(IngestError::Db(error)) => Err(format!("device {} takes: {error}", self.at)),
            Err(IngestError::Fork(fork)) => {
                self.forks.insert(fork.chain);
                Ok(Err(IngestFailure::Permanent))
            }
            Err(error) => Ok(Err(failure(&error))),
        }
    }

    pub(super) fn ingested(
        &mut self,
        now: Duration,
        peer: usize,
        chain: ChainId,
        taken: Result<u64, IngestFailure>,
    ) {
        for (other, line) in &mut self.lines {
            match taken {
                Ok(seq) if *other == peer => {
                    line.session
                        .handle_ingested(now, chain, seq, &mut self.claims);
                }
                Ok(seq) => line.session.handle_have(chain, seq),
                Err(failure) if *other == peer => {
                    let claims = &mut self.claims;
                    line.session
                        .handle_ingest_failed(now, chain, failure, claims);
                }
                Err(_) => {}
            }
        }
    }

    /// What its own loop does: opens what waited, seals, syncs, tells what grew.
    fn tend(&mut self, now: Duration) -> Result<(), String> {
        let clock = self.clock(now);
        let at = self.at;
        let failed = |what: &str, why: &dyn std::fmt::Display| format!("device {at} {what}: {why}");
        let Some(store) = self.store.as_mut() else {
            return Ok(());
        };
        while self.grown
            && !store
                .open_waiting(clock)
                .map_err(|error| failed("opens", &error))?
                .is_empty()
        {}
        if store.seal_due(clock).is_some_and(|due| due <= clock) {
            store.seal(clock).map_err(|error| failed("seals", &error))?;
            self.grown = true;
        }
        if !store.is_synced() && now >= self.synced + SYNC_EVERY {
            self.sync(now)?;
        }
        self.tell();
        Ok(())
    }

    /// Tells every peer what grew, once no power cut can take it.
    fn tell(&mut self) {
        let Some(store) = self.store.as_ref().filter(|store| store.is_synced()) else {
            return;
        };
        if !std::mem::take(&mut self.grown) {
            return;
        }
        let heads = store.heads().into_iter();
        let told = &mut self.told;
        let grown: Vec<Head> = heads
            .filter(|head| told.insert(head.chain, head.seq) != Some(head.seq))
            .collect();
        if !grown.is_empty() {
            self.post.grown = true;
            for line in self.lines.values_mut() {
                line.session.handle_local_heads(&grown);
            }
        }
        self.note_safe();
    }

    /// Frames for others, as far as the links take them.
    pub(super) fn take_frames(&mut self, now: Duration) -> Vec<(usize, Vec<u8>)> {
        let mut frames = Vec::new();
        for (peer, line) in &mut self.lines {
            for _ in 0..MAX_ON_LINE {
                let Some(frame) = line.session.poll_transmit(now, &mut self.claims) else {
                    break;
                };
                frames.push((*peer, frame));
            }
        }
        frames
    }

    /// Connections that one side ended.
    pub(super) fn take_closed(&mut self) -> Vec<usize> {
        let closed = self.lines.iter().filter(|(_, line)| line.closed);
        closed.map(|(peer, _)| *peer).collect()
    }

    /// When something is due here.
    pub(super) fn due(&self, now: Duration) -> Option<Duration> {
        let clock = self.clock(now);
        let store = self.store.as_ref()?;
        let lines = self.lines.values().flat_map(|line| {
            let coming = line.coming.front().map(|(at, _)| *at);
            let timer = line.session.poll_timeout().map(|(at, _)| at);
            coming.into_iter().chain(timer)
        });
        let seal = store
            .seal_due(clock)
            .map(|due| now + Duration::from_millis(due.0.saturating_sub(clock.0)));
        let sync = (!Store::is_synced(store)).then_some(self.synced + SYNC_EVERY);
        let post = self.post.due();
        lines.chain(seal).chain(sync).chain(post).min()
    }
}

/// Whether it is worth offering an envelope again, as the node judges it.
pub(super) fn failure(error: &IngestError) -> IngestFailure {
    match error {
        IngestError::Gap { .. } | IngestError::NotMember(_) | IngestError::NoAccount => {
            IngestFailure::Gap
        }
        _ => IngestFailure::Permanent,
    }
}
