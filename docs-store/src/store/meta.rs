//! What a database says of itself: its account, and who has been handed keys.

use std::collections::{BTreeMap, BTreeSet};

use bailey_envelope::{ChainId, DevicePublic, DocId, Verified, VerifyError};
use bailey_model::{AccountId, DeviceId};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::Account;
use super::account::node_of;
use crate::account::{Members, Node, Record, RecordError};
use crate::chains::{self, Chain};
use crate::error::{OpenError, ReadError};

/// Notes which account this store belongs to.
pub(crate) fn put_account(db: &Connection, account: &AccountId) -> rusqlite::Result<()> {
    db.execute(
        "INSERT INTO meta(key, value) VALUES ('account', ?1)",
        params![account.0],
    )?;
    Ok(())
}

pub(super) fn put_handed(db: &Connection, device: &DeviceId) -> rusqlite::Result<()> {
    let key = format!("handed {device}");
    db.execute(
        "INSERT OR REPLACE INTO meta(key, value) VALUES (?1, x'01')",
        params![key],
    )?;
    Ok(())
}

/// Who has been handed every key. One that reads no more is none of them: what comes
/// meanwhile is owed to it if it reads again.
pub(super) fn load_handed(
    db: &Connection,
    account: Option<&Account>,
) -> rusqlite::Result<BTreeSet<DeviceId>> {
    let mut statement = db.prepare("SELECT substr(key, 8) FROM meta WHERE key LIKE 'handed %'")?;
    let devices = statement.query_map([], |row| row.get::<_, String>(0))?;
    let devices = devices.map(|text| text?.parse().map_err(|_| rusqlite::Error::InvalidQuery));
    let reads = |device: &DeviceId| {
        account.is_some_and(|Account { members, .. }| {
            members.recovery().map(DevicePublic::id) == Some(*device)
                || members
                    .get(device)
                    .is_some_and(|member| member.role.reads())
        })
    };
    let devices: BTreeSet<DeviceId> = devices.collect::<Result<_, _>>()?;
    Ok(devices.into_iter().filter(reads).collect())
}

pub(super) fn drop_handed(db: &Connection, device: &DeviceId) -> rusqlite::Result<()> {
    drop_mark(db, &format!("handed {device}"))
}

/// Whether something is still to be done with what an older version stored.
pub(crate) fn has_mark(db: &Connection, mark: &str) -> rusqlite::Result<bool> {
    db.query_row("SELECT 1 FROM meta WHERE key = ?1", [mark], |_| Ok(()))
        .optional()
        .map(|found| found.is_some())
}

/// It is done.
pub(crate) fn drop_mark(db: &Connection, mark: &str) -> rusqlite::Result<()> {
    db.execute("DELETE FROM meta WHERE key = ?1", [mark])?;
    Ok(())
}

/// Notes that a writer has handed this device what it had of its epochs up to this one.
pub(crate) fn put_served(db: &Connection, writer: &DeviceId, epoch: u32) -> rusqlite::Result<()> {
    let served = served(db, writer)?.unwrap_or(0).max(epoch);
    db.prepare_cached("INSERT OR REPLACE INTO meta(key, value) VALUES (?1, ?2)")?
        .execute(params![format!("served {writer}"), served.to_be_bytes()])?;
    Ok(())
}

/// Up to which epoch a writer has handed this device all that it had not forgotten.
pub(crate) fn served(db: &Connection, writer: &DeviceId) -> rusqlite::Result<Option<u32>> {
    db.prepare_cached("SELECT value FROM meta WHERE key = ?1")?
        .query_row([format!("served {writer}")], |row| row.get(0))
        .optional()
        .map(|found| found.map(u32::from_be_bytes))
}

/// The account that a database belongs to.
pub(crate) fn stored_account(db: &Connection) -> rusqlite::Result<Option<AccountId>> {
    db.query_row("SELECT value FROM meta WHERE key = 'account'", [], |row| {
        row.get(0)
    })
    .optional()
    .map(|id| id.map(AccountId))
}

/// The members by the records that a database holds, as a device sees them.
pub(crate) fn members_stored(db: &Connection, viewer: DeviceId) -> Result<Members, ReadError> {
    let chains = chains::load(db)?;
    let account = load_account(db, &chains, viewer).map_err(|error| match error {
        OpenError::Envelope(error) => ReadError::Envelope(error),
        OpenError::Query(error) => ReadError::Db(error),
        _ => ReadError::Envelope(bailey_envelope::DecodeError::Field("account record")),
    })?;
    Ok(account.map(|account| account.members).unwrap_or_default())
}

pub(super) fn load_account(
    db: &Connection,
    chains: &BTreeMap<ChainId, Chain>,
    viewer: DeviceId,
) -> Result<Option<Account>, OpenError> {
    let Some(id) = stored_account(db)? else {
        return Ok(None);
    };
    let mut nodes = Vec::new();
    for (_, chain) in chains.iter().filter(|(id, _)| id.doc == DocId::Account) {
        let Some(row) = chain.row else { continue };
        for bytes in chains::range(db, row, 1, usize::MAX, usize::MAX)? {
            nodes.push(read_node(&bytes)?);
        }
    }
    let mut account = Account::new(id);
    account.count(nodes, viewer);
    Ok(Some(account))
}

fn read_node(bytes: &[u8]) -> Result<Node, OpenError> {
    let verified = Verified::from_stored(bytes).map_err(|error| match error {
        VerifyError::Decode(error) => OpenError::Envelope(error),
        _ => OpenError::Record(RecordError::Malformed),
    })?;
    let body = verified.plain().map_err(|_| RecordError::Malformed)?;
    let record = Record::decode(body)?;
    Ok(node_of(&verified.header.fields, verified.hash, record))
}
