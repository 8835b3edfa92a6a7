//! What a look at the whole store finds, and what it does not let pass.

use crate::common::*;
use bailey_docs_store::{Checked, DocId, OsEntropy, Reader, Role, repair};
use rusqlite::{Connection, params};

fn checked(dir: &TempDir, no: u8) -> Vec<Checked> {
    let mut reader = Reader::open(dir.path(), keys(no)).unwrap();
    let chains = reader.chains().unwrap();
    let each = chains.iter().map(|id| reader.check_chain(id).unwrap());
    each.collect()
}

fn faults(dir: &TempDir, no: u8) -> Vec<String> {
    let found = checked(dir, no)
        .into_iter()
        .flat_map(|checked| checked.faults);
    let found = found.map(|(seq, what)| format!("{seq}: {what}"));
    let rest = Reader::open(dir.path(), keys(no))
        .unwrap()
        .check_rest()
        .unwrap();
    found.chain(rest.faults).collect()
}

/// Two devices: the second holds a box of the first.
fn two() -> (TempDir, TempDir) {
    let (dir, mut store) = laptop();
    let other = TempDir::new();
    let mut phone = open(&other, 2, NOW);
    for n in 0..5 {
        write(&mut store, BOX, &["a", "b", "c"], at(n));
        store.seal_all(at(n)).unwrap();
    }
    pair(&mut store, &mut phone, 2, Role::Full, at(10));
    write(&mut store, BOX, &["not sealed"], at(11));
    (dir, other)
}

/// Changes the stored bytes.
fn damage(dir: &TempDir, sql: &str) -> usize {
    let db = Connection::open(dir.path().join("store.db")).unwrap();
    db.execute(sql, params![]).unwrap()
}

const BOX_CHAIN: &str =
    "(SELECT id FROM chains WHERE substr(doc, 2) = x'09090909090909090909090909090909')";

#[test]
fn a_whole_store_holds() {
    let (dir, other) = two();
    for (dir, no) in [(&dir, 1), (&other, 2)] {
        assert_eq!(faults(dir, no), Vec::<String>::new());
        let found = checked(dir, no);
        let of_box = found
            .iter()
            .find(|checked| checked.chain.doc == BOX)
            .unwrap();
        assert_eq!(
            (of_box.envelopes, of_box.entries, of_box.waiting),
            (5, 15, 0)
        );
        assert!(
            found
                .iter()
                .any(|checked| checked.chain.doc == DocId::Account)
        );
    }
    let mut reader = Reader::open(dir.path(), keys(1)).unwrap();
    assert_eq!(reader.check_rest().unwrap().rows, 1);
}

#[test]
fn whatever_is_changed_is_found_in_its_place() {
    for (sql, found) in [
        (
            "UPDATE envelopes SET bytes = zeroblob(400) WHERE seq = 3 AND chain = CHAIN",
            "3: ",
        ),
        (
            "DELETE FROM envelopes WHERE seq = 4 AND chain = CHAIN",
            "4: it is missing",
        ),
        (
            "UPDATE envelopes SET bytes = (SELECT bytes FROM envelopes WHERE seq = 1 AND chain = CHAIN) \
             WHERE seq = 2 AND chain = CHAIN",
            "2: it is not in its place",
        ),
        (
            "UPDATE envelopes SET bytes = CAST(substr(bytes, 1, length(bytes) - 1) || x'ff' AS BLOB) \
             WHERE seq = 5 AND chain = CHAIN",
            "5: ",
        ),
        (
            "UPDATE spans SET to_ts = to_ts + 1 WHERE chain = CHAIN",
            "0: segment 1",
        ),
        (
            "UPDATE chains SET hash = zeroblob(32) WHERE id = CHAIN",
            "5: its hash",
        ),
        ("UPDATE journal SET row = zeroblob(80)", "journal: "),
        ("UPDATE journal SET no = no + 1", "journal: "),
    ] {
        let (dir, _other) = two();
        assert!(faults(&dir, 1).is_empty());
        let changed = damage(&dir, &sql.replace("CHAIN", BOX_CHAIN));
        assert!(changed > 0, "{sql}");
        let faults = faults(&dir, 1);
        assert!(
            faults.iter().any(|fault| fault.starts_with(found)),
            "{sql}: {faults:?}"
        );
    }
}

#[test]
fn a_row_of_the_journal_that_is_lost_is_found_wherever_it_was() {
    // Of a document with envelopes, and of one that has none yet; the first and a later one.
    let other = DocId::Box(bailey_model::BoxId([8; 16]));
    for (doc, at_row) in [(BOX, 0), (BOX, 1), (other, 0), (other, 1)] {
        let (dir, mut store) = laptop();
        write(&mut store, BOX, &["sealed"], at(0));
        store.seal_all(at(0)).unwrap();
        for n in 1..4 {
            write(&mut store, doc, &["a row"], at(n));
        }
        drop(store);
        assert_eq!(faults(&dir, 1), Vec::<String>::new());
        let db = Connection::open(dir.path().join("store.db")).unwrap();
        let gone = "DELETE FROM journal WHERE doc = ?1 AND no = \
             (SELECT no FROM journal WHERE doc = ?1 ORDER BY no LIMIT 1 OFFSET ?2)";
        assert_eq!(db.execute(gone, params![doc.to_bytes(), at_row]), Ok(1));
        drop(db);
        let found = faults(&dir, 1);
        assert!(
            found.len() == 1 && found[0].contains("a number is missing before it"),
            "{doc} {at_row}: {found:?}"
        );
        // It is put in order, what was left stands, and the lost one is spoken of.
        let said = repair(dir.path(), &keys(1), at(9), &mut OsEntropy).unwrap();
        assert_eq!((said.losses, said.rows), (1, 3), "{said:?}");
        assert_eq!(faults(&dir, 1), Vec::<String>::new());
        let kept = Connection::open(said.kept.unwrap().join("store.db")).unwrap();
        let count = "SELECT count(*) FROM journal WHERE doc = ?1";
        let rows: i64 = kept
            .query_row(count, [doc.to_bytes()], |row| row.get(0))
            .unwrap();
        assert_eq!(rows, 2, "nothing of it is deleted");
    }
}
