//! Looks at everything that is kept: every envelope's signature, place and seal,
//! every entry's number, every row of the journal. Changes nothing.

use std::collections::BTreeMap;

use bailey_envelope::{ChainId, DocId, Hash, Tombstone, Verified, verify};
use bailey_model::{AccountId, DeviceId};
use rusqlite::Connection;

use crate::account::Members;
use crate::chains::{self, Chain};
use crate::error::{Fork, ReadError};
use crate::ingest::{apply, check_numbers};
use crate::journal::{self, JournalRow};
use crate::keys::KeyRing;
use crate::own;
use crate::reader::Reader;
use crate::segment::Segment;
use crate::spans::{self, Span};
use crate::store::{has_mark, members_stored, stored_account};
use crate::thin::tables;

/// Faults that are told of one chain; the others are counted.
const MAX_FAULTS: usize = 16;

/// What was found in one chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// The chain.
    pub chain: ChainId,
    /// Envelopes whose signature and place hold.
    pub envelopes: u64,
    /// Entries that could be read.
    pub entries: u64,
    /// Envelopes that wait for a key.
    pub waiting: u64,
    /// Entries that were thinned, by tombstones that hold.
    pub thinned: u64,
    /// What does not hold, by the envelope's number: the first few.
    pub faults: Vec<(u64, String)>,
    /// How many do not, in all.
    pub faulty: u64,
}

/// What was found beside the chains.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckedRest {
    /// Rows of the journal that hold.
    pub rows: u64,
    /// What does not hold: of the database itself, and of the journal.
    pub faults: Vec<String>,
    /// Envelopes that were set aside when they came.
    pub aside: u64,
    /// Keys of one's own epochs that open.
    pub keys: u64,
    /// Two envelopes of one number, each signed by the same writer: kept as proof
    /// against it, and no fault of this store.
    pub forks: Vec<Fork>,
}

impl Reader {
    /// Every chain that is here.
    ///
    /// # Errors
    /// [`ReadError::Db`].
    pub fn chains(&mut self) -> Result<Vec<ChainId>, ReadError> {
        Ok(chains::load(&self.db)?.into_keys().collect())
    }

    /// Checks one chain from its first envelope on.
    ///
    /// # Errors
    /// [`ReadError`]: it could not be looked at.
    pub fn check_chain(&mut self, id: &ChainId) -> Result<Checked, ReadError> {
        let tx = self.db.unchecked_transaction()?;
        let mut checked = Checked {
            chain: *id,
            envelopes: 0,
            entries: 0,
            waiting: 0,
            thinned: 0,
            faults: Vec::new(),
            faulty: 0,
        };
        let known = chains::load_of(&tx, id.doc)?;
        let chain = known.into_iter().find(|(known, _)| known == id);
        let Some((_, chain)) = chain else {
            checked.faulty = 1;
            let what = "what is noted of it is not found by its name".to_owned();
            checked.faults.push((0, what));
            return Ok(checked);
        };
        let Some(account) = stored_account(&tx)? else {
            checked.faulty = 1;
            checked
                .faults
                .push((0, "of which account it is, is not noted".to_owned()));
            return Ok(checked);
        };
        let mut looker = Looker {
            db: &tx,
            ring: &mut self.ring,
            account,
            members: &members_stored(&tx, self.device)?,
            counted: !has_mark(&tx, "uncounted")?,
            checked: &mut checked,
        };
        looker.chain(id, &chain)?;
        Ok(checked)
    }

    /// Checks the database itself and the journal.
    ///
    /// # Errors
    /// [`ReadError`]: it could not be looked at.
    pub fn check_rest(&mut self) -> Result<CheckedRest, ReadError> {
        let mut rest = CheckedRest::default();
        let tx = self.db.unchecked_transaction()?;
        {
            let mut statement = tx.prepare("PRAGMA quick_check(16)")?;
            let said = statement.query_map([], |row| row.get::<_, String>(0))?;
            for text in said {
                let text = text?;
                if text != "ok" {
                    rest.faults.push(format!("database: {text}"));
                }
            }
        }
        rest.aside = tx.query_row("SELECT count(*) FROM quarantine", [], |row| {
            row.get(0).map(crate::db::uint)
        })?;
        rest.forks = chains::forks(&tx, &chains::load(&tx)?)?;
        let Some(account) = stored_account(&tx)? else {
            return Ok(rest);
        };
        let orphans: i64 = tx.query_row(
            "SELECT count(*) FROM envelopes WHERE chain NOT IN (SELECT id FROM chains)",
            [],
            |row| row.get(0),
        )?;
        if orphans > 0 {
            rest.faults
                .push(format!("{orphans} envelopes of chains that are not here"));
        }
        for (epoch, _) in tables::own_epochs(&tx, self.device, 0)? {
            match self.ring.find(&tx, account, self.device, epoch.key_id)? {
                Some(_) => rest.keys += 1,
                None => rest.faults.push(format!(
                    "key of epoch {}: it cannot be opened",
                    epoch.number
                )),
            }
        }
        let rows = journal::load(&tx, None)?;
        let mut places = Places::load(&tx, self.device)?;
        for row in rows {
            let fault = |what: &str| format!("journal: {} entry {}: {what}", row.doc, row.no);
            let hole = !places.follows(&row);
            let key = self.ring.find(&tx, account, self.device, row.key_id)?;
            let Some(key) = key else {
                rest.faults.push(fault("its key is not here"));
                continue;
            };
            let key = key.segment_key(row.doc, row.segment);
            match row.open(&key) {
                Some(entries) if !hole => {
                    rest.rows += u64::try_from(entries.len()).unwrap_or(u64::MAX)
                }
                Some(_) => rest.faults.push(fault("a number is missing before it")),
                None => rest.faults.push(fault("it cannot be opened")),
            }
        }
        rest.faults.truncate(MAX_FAULTS);
        Ok(rest)
    }
}

/// Which number the next row of each document has.
struct Places {
    next: BTreeMap<DocId, u64>,
    /// The last number in any chain of this device: another life of it, which came
    /// after a restored copy, may have used what this one has left out.
    lives: BTreeMap<DocId, u64>,
}

impl Places {
    fn load(db: &Connection, device: DeviceId) -> Result<Self, ReadError> {
        let next = own::load(db)?.into_iter();
        let next = next.map(|(doc, _, next)| (doc, next)).collect();
        let mut lives = BTreeMap::new();
        let chains = chains::load(db)?;
        for (id, chain) in chains.iter().filter(|(id, _)| id.writer == device) {
            let last = lives.entry(id.doc).or_insert(0);
            *last = chain.last_no.max(*last);
        }
        Ok(Self { next, lives })
    }

    /// Whether nothing is missing before a row, which comes in order.
    fn follows(&mut self, row: &JournalRow) -> bool {
        let expected = self.next.insert(row.doc, row.next_no()).unwrap_or(1);
        let used = self
            .lives
            .get(&row.doc)
            .map_or(1, |last| last.saturating_add(1));
        row.no == expected || (expected..=used).contains(&row.no)
    }
}

/// Looks at one chain.
struct Looker<'a> {
    db: &'a Connection,
    ring: &'a mut KeyRing,
    account: AccountId,
    members: &'a Members,
    /// Whether it is noted what segments hold; the next start does it after a repair.
    counted: bool,
    checked: &'a mut Checked,
}

impl Looker<'_> {
    fn fault(&mut self, seq: u64, what: impl Into<String>) {
        self.checked.faulty += 1;
        if self.checked.faults.len() < MAX_FAULTS {
            self.checked.faults.push((seq, what.into()));
        }
    }

    fn chain(&mut self, id: &ChainId, chain: &Chain) -> Result<(), ReadError> {
        let Some(row) = chain.row else { return Ok(()) };
        let Some(public) = self.members.signer(&id.writer).copied() else {
            self.fault(0, "its writer was never a member of the account");
            return Ok(());
        };
        let (mut prev, mut open) = (None, OpenSegment::new(id));
        let mut numbers = Numbers::default();
        let beyond = chains::beyond(self.db, row, chain.seq)?;
        if beyond > 0 {
            self.fault(chain.seq, format!("{beyond} stand after the head"));
        }
        let mut seq = 0;
        while seq < chain.seq {
            seq += 1;
            let Some(bytes) = chains::envelope(self.db, row, seq)? else {
                prev = match self.tombstone(id, (row, seq), prev, &mut numbers)? {
                    Some((last_seq, last)) => {
                        seq = last_seq.max(seq);
                        Some(last)
                    }
                    None => {
                        self.fault(seq, "it is missing");
                        numbers.hole = true;
                        None
                    }
                };
                continue;
            };
            let verified = match verify(&bytes, &public) {
                Ok(verified) => verified,
                Err(error) => {
                    self.fault(seq, error.to_string());
                    (prev, numbers.hole) = (None, true);
                    continue;
                }
            };
            let fields = &verified.header.fields;
            let follows = prev.is_none_or(|prev: Hash| prev == fields.prev);
            if (fields.chain, fields.seq, fields.account) != (*id, seq, self.account) || !follows {
                self.fault(seq, "it is not in its place");
                numbers.hole = true;
                continue;
            }
            prev = Some(verified.hash);
            self.checked.envelopes += 1;
            if !id.doc.is_plain() {
                self.entries(id, &verified, &mut open, &mut numbers, (row, chain))?;
            }
        }
        open.close(self, row)?;
        if prev != Some(chain.hash) && self.checked.faulty == 0 {
            self.fault(chain.seq, "its hash is not that of the head");
        }
        Ok(())
    }

    /// What stands in the place of an envelope that is not here, if it holds: the
    /// last number that it stands for, and the hash of that one.
    fn tombstone(
        &mut self,
        id: &ChainId,
        (row, seq): (i64, u64),
        prev: Option<Hash>,
        numbers: &mut Numbers,
    ) -> Result<Option<(u64, Hash)>, ReadError> {
        let grave = tables::grave_from(self.db, row, seq)?;
        let Some(grave) = grave.filter(|grave| grave.first_seq <= seq) else {
            return Ok(None);
        };
        let said = Tombstone::decode(&grave.bytes).ok();
        let signer = said.and_then(|said| self.members.signer(&said.signer));
        let verified = signer
            .and_then(|signer| Tombstone::verify(&grave.bytes, signer).ok())
            .filter(|it| (it.chain, it.account) == (*id, self.account));
        let Some(it) = verified else {
            self.fault(seq, "its tombstone does not hold");
            numbers.hole = true;
            return Ok(Some((grave.last_seq, grave.last_hash)));
        };
        let noted = (it.first_seq, it.last_seq, it.last)
            == (grave.first_seq, grave.last_seq, grave.last_hash);
        let follows = seq != it.first_seq || prev.is_none_or(|prev| prev == it.prev);
        if !noted || !follows {
            self.fault(seq, "its tombstone is not in its place");
        }
        self.checked.thinned += grave.entries;
        numbers.last = it.last_no.max(numbers.last);
        numbers.hole = false;
        Ok(Some((it.last_seq, it.last)))
    }

    fn entries(
        &mut self,
        id: &ChainId,
        verified: &Verified<'_>,
        open: &mut OpenSegment,
        numbers: &mut Numbers,
        (row, chain): (i64, &Chain),
    ) -> Result<(), ReadError> {
        let fields = &verified.header.fields;
        if open.segment != fields.segment {
            let before = std::mem::replace(open, OpenSegment::new(id));
            before.close(self, row)?;
            open.segment = fields.segment;
        }
        if fields.seq > chain.opened {
            self.checked.waiting += 1;
            return Ok(());
        }
        if open.broken {
            self.fault(fields.seq, "what it follows in its segment does not hold");
            return Ok(());
        }
        let key_id = verified.header.key_id;
        let Some(key) = self.ring.find(self.db, self.account, id.writer, key_id)? else {
            self.checked.waiting += 1;
            numbers.hole = true;
            return Ok(());
        };
        let key = key.segment_key(id.doc, fields.segment);
        let content = std::mem::replace(&mut open.content, Segment::new(id));
        let read = apply(content, verified, &key).and_then(|(next, entries)| {
            check_numbers(numbers.last, numbers.hole, &entries).map(|()| (next, entries))
        });
        match read {
            Ok((next, entries)) => {
                open.content = next;
                numbers.last = entries.last().map_or(numbers.last, |entry| entry.no);
                numbers.hole = false;
                open.numbers
                    .extend(entries.iter().map(|entry| (entry.no, entry.ts)));
                self.checked.entries += entries.len() as u64;
            }
            Err(reason) => {
                open.broken = true;
                numbers.hole = true;
                self.fault(fields.seq, reason.to_string());
            }
        }
        Ok(())
    }
}

/// Where the entries of a chain are, and whether something before is missing.
#[derive(Default)]
struct Numbers {
    last: u64,
    hole: bool,
}

/// A segment as far as it was looked at.
struct OpenSegment {
    segment: u32,
    content: Segment,
    broken: bool,
    numbers: Vec<(u64, bailey_model::Timestamp)>,
}

impl OpenSegment {
    fn new(id: &ChainId) -> Self {
        Self {
            segment: 0,
            content: Segment::new(id),
            broken: false,
            numbers: Vec::new(),
        }
    }

    /// What is noted of a segment, by which readers find it, is what it holds.
    fn close(self, looker: &mut Looker<'_>, row: i64) -> Result<(), ReadError> {
        if self.broken || !looker.counted {
            return Ok(());
        }
        let held = Span::of(self.numbers);
        if held != spans::of(looker.db, row, self.segment)? {
            let text = format!(
                "segment {}: what is noted of it is not what it holds",
                self.segment
            );
            looker.fault(0, text);
        }
        Ok(())
    }
}
