//! Reads what can be read of a damaged database: around each damaged page, from
//! both sides.

use rusqlite::{Connection, Row};

/// Rows beyond this number are not looked for where the last is not known.
const FURTHEST: i64 = 1 << 62;

/// Whether every row was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// All of them.
    Whole,
    /// What lay on damaged pages was not.
    Part,
}

/// Reads the rows of a table that have numbers, in any order. `columns` are read
/// from the second on; the first is the number.
pub(super) fn numbered(
    db: &Connection,
    table: &str,
    columns: &str,
    take: &mut dyn FnMut(&Row<'_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<Extent> {
    let last = db
        .query_row(&format!("SELECT max(rowid) FROM {table}"), [], |row| {
            row.get::<_, Option<i64>>(0)
        })
        .map_or(FURTHEST, |last| last.unwrap_or(0));
    let up = format!("SELECT rowid, {columns} FROM {table} WHERE rowid > ?1 ORDER BY rowid");
    let down = format!(
        "SELECT rowid, {columns} FROM {table} WHERE rowid > ?1 AND rowid < ?2 \
         ORDER BY rowid DESC"
    );
    let (mut extent, mut low) = (Extent::Whole, 0);
    loop {
        match run(db, &up, &[low], &mut low, take)? {
            Extent::Whole => return Ok(extent),
            Extent::Part => extent = Extent::Part,
        }
        // A damaged page: the next row behind it, by steps that double.
        let mut step = 1_i64;
        let next = loop {
            let from = low.saturating_add(step);
            if from > last {
                break None;
            }
            let found = db.query_row(
                &format!("SELECT rowid FROM {table} WHERE rowid >= ?1 ORDER BY rowid LIMIT 1"),
                [from],
                |row| row.get::<_, i64>(0),
            );
            match found {
                Ok(row) => break Some(row),
                Err(rusqlite::Error::QueryReturnedNoRows) => break None,
                Err(_) => step = step.saturating_mul(2),
            }
        };
        // And what lies between the page and that row.
        let end = next.unwrap_or(last.saturating_add(1));
        run(db, &down, &[low, end], &mut 0, take)?;
        match next {
            Some(row) => low = row - 1,
            None => return Ok(Extent::Part),
        }
    }
}

/// Reads the rows of a table that is ordered by a key, from both ends.
pub(super) fn keyed(
    db: &Connection,
    table: &str,
    columns: &str,
    (key, backward): (&str, &str),
    take: &mut dyn FnMut(&Row<'_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<Extent> {
    let up = format!("SELECT 0, {columns} FROM {table} ORDER BY {key}");
    if run(db, &up, &[], &mut 0, take)? == Extent::Whole {
        return Ok(Extent::Whole);
    }
    let down = format!("SELECT 0, {columns} FROM {table} ORDER BY {backward}");
    run(db, &down, &[], &mut 0, take)?;
    Ok(Extent::Part)
}

/// Takes rows until one cannot be read. `last` is the number of the last taken.
fn run(
    db: &Connection,
    sql: &str,
    bounds: &[i64],
    last: &mut i64,
    take: &mut dyn FnMut(&Row<'_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<Extent> {
    // A table that cannot be read at all is one of which no row can be.
    let Ok(mut statement) = db.prepare(sql) else {
        return Ok(Extent::Part);
    };
    let Ok(mut rows) = statement.query(rusqlite::params_from_iter(bounds)) else {
        return Ok(Extent::Part);
    };
    loop {
        match rows.next() {
            Ok(Some(row)) => {
                *last = row.get(0)?;
                take(row)?;
            }
            Ok(None) => return Ok(Extent::Whole),
            Err(_) => return Ok(Extent::Part),
        }
    }
}
