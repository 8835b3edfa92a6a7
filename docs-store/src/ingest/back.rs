//! Whether a writer went back behind what it had written: its store was restored
//! from a copy, or runs twice.

use std::collections::HashMap;

use bailey_envelope::{ChainId, DocId, Fields, Hash, peek};
use bailey_model::{DeviceId, Incarnation};
use rusqlite::Connection;

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

/// By a start: those that went on from it.
type After = HashMap<Incarnation, Vec<Later>>;

/// A start that went on from another one.
#[derive(Debug)]
struct Later {
    by: Incarnation,
    /// The hash that it went on from.
    prev: Hash,
    looked: Looked,
}

/// Whether the chain that was gone on from has that hash, as far as was looked: so a
/// chain that comes whole is not read anew for each of its envelopes.
#[derive(Debug, Clone, Copy)]
enum Looked {
    /// Not up to this number.
    UpTo(u64),
    Found,
}

impl Later {
    const fn new(by: Incarnation, prev: Hash) -> Self {
        let looked = Looked::UpTo(0);
        Self { by, prev, looked }
    }

    /// Whether a chain has the envelope that this one goes on from.
    fn is_in(&mut self, db: &Connection, chain: &Chain) -> Result<bool, DbError> {
        let (Some(row), Looked::UpTo(upto)) = (chain.row, self.looked) else {
            return Ok(matches!(self.looked, Looked::Found));
        };
        let same = upto == chain.seq;
        let one_more = upto.checked_add(1) == Some(chain.seq);
        let is_there = match one_more && chain.hash != self.prev {
            // The one that came since is another.
            true => false,
            // A head may be a tombstone's word: the envelope itself must be here.
            false => !same && chains::has(db, row, &self.prev)?,
        };
        self.looked = match is_there {
            true => Looked::Found,
            false => Looked::UpTo(chain.seq),
        };
        Ok(is_there)
    }
}

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
        let known = self.successors.known.get_mut(&(id.doc, id.writer));
        let after = known.and_then(|known| known.get_mut(&id.incarnation));
        for later in after.into_iter().flatten() {
            if later.is_in(&self.db, chain)? {
                return Ok(true);
            }
        }
        let Some(before) = fields.before else {
            return Ok(false);
        };
        let mut twice = false;
        if let Some(known) = self.successors.known.get_mut(&(id.doc, id.writer)) {
            let known = known.entry(before).or_default();
            twice = known.iter().any(|later| later.by != id.incarnation);
            if known.iter().all(|later| later.by != id.incarnation) {
                known.push(Later::new(id.incarnation, fields.prev));
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
                    .push(Later::new(other.incarnation, prev));
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
