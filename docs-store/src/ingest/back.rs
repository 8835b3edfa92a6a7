//! Whether a writer went back behind what it had written: its store was restored
//! from a copy, or runs twice.

use std::collections::HashMap;

use bailey_envelope::{ChainId, DocId, Fields, Hash, peek};
use bailey_model::{DeviceId, Incarnation};

use crate::chains::{self, Chain};
use crate::db::DbError;
use crate::store::Store;

/// Which starts of a writer went on from which, and from where; read once for
/// each document and writer of which something comes. No more than there are
/// chains.
#[derive(Debug, Default)]
pub(crate) struct Successors {
    known: HashMap<(DocId, DeviceId), After>,
}

/// By a start: those that went on from it, and the hash that they went on from.
type After = HashMap<Incarnation, Vec<(Incarnation, Hash)>>;

impl Store {
    /// Whether an envelope that is next in its chain shows it. Chains come in any
    /// order, so what is not here yet proves nothing.
    pub(super) fn went_back(&mut self, fields: &Fields, chain: &Chain) -> Result<bool, DbError> {
        let id = fields.chain;
        if !self.successors.known.contains_key(&(id.doc, id.writer)) {
            let read = self.read_successors(&id)?;
            self.successors.known.insert((id.doc, id.writer), read);
        }
        // What goes on from this very start, though this is behind that place.
        let after = self.of(&id, id.incarnation);
        for (_, prev) in after {
            if self.has(chain, &prev)? {
                return Ok(true);
            }
        }
        let Some(before) = fields.before else {
            return Ok(false);
        };
        let twice = self
            .of(&id, before)
            .iter()
            .any(|(by, _)| *by != id.incarnation);
        if let Some(known) = self.successors.known.get_mut(&(id.doc, id.writer)) {
            let known = known.entry(before).or_default();
            if known.iter().all(|(by, _)| *by != id.incarnation) {
                known.push((id.incarnation, fields.prev));
            }
        }
        let before_id = ChainId {
            incarnation: before,
            ..id
        };
        // More was written after what this one goes on from.
        let behind = match self.chains.get(&before_id) {
            Some(known) if known.hash != fields.prev => self.has(known, &fields.prev)?,
            _ => false,
        };
        Ok(twice || behind)
    }

    fn of(&self, id: &ChainId, before: Incarnation) -> Vec<(Incarnation, Hash)> {
        let known = self.successors.known.get(&(id.doc, id.writer));
        let known = known.and_then(|known| known.get(&before));
        known.cloned().unwrap_or_default()
    }

    /// By the first envelopes of the chains of a document and writer.
    fn read_successors(&self, id: &ChainId) -> Result<After, DbError> {
        let from = ChainId {
            incarnation: Incarnation([0; 16]),
            ..*id
        };
        let same = |other: &ChainId| (other.doc, other.writer) == (id.doc, id.writer);
        let mut known = After::new();
        for (other, chain) in self.chains.range(from..).take_while(|(id, _)| same(id)) {
            let Some(row) = chain.row else { continue };
            let first = chains::envelope(&self.db, row, 1)?;
            let fields = first
                .and_then(|bytes| peek(&bytes).ok())
                .map(|it| it.fields);
            if let Some((before, prev)) = fields.and_then(|it| Some((it.before?, it.prev))) {
                known
                    .entry(before)
                    .or_default()
                    .push((other.incarnation, prev));
            }
        }
        Ok(known)
    }

    fn has(&self, chain: &Chain, hash: &Hash) -> Result<bool, DbError> {
        match chain.row {
            Some(row) => Ok(chains::has(&self.db, row, hash)?),
            None => Ok(false),
        }
    }
}
