//! Journal and envelopes on one device: what is acknowledged is there.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::*;
use bailey_docs_store::{AppendError, DocId, OpenError, OsEntropy, Reader, Store, Urgency};
use bailey_model::{BoxEnd, BoxEnded, BoxId, Event, Incarnation, Timestamp};

#[test]
fn entries_read_back_unsealed_sealed_and_after_a_restart() {
    let (dir, mut store) = laptop();
    assert_eq!(write(&mut store, BOX, &["one", "two"], NOW), [1, 2]);
    let expected = [(1, "one".to_owned()), (2, "two".to_owned())];
    assert_eq!(texts(&read(&dir, 1, BOX)), expected);
    assert_eq!(store.seal(at(500)).unwrap(), []);
    assert_eq!(store.seal_due(at(500)), Some(at(1_000)));
    let grown = store.seal(at(1_000)).unwrap();
    assert!(grown.iter().any(|chain| chain.doc == BOX));
    assert_eq!(texts(&read(&dir, 1, BOX)), expected);
    drop(store);
    let mut store = open(&dir, 1, at(2_000));
    assert_eq!(texts(&read(&dir, 1, BOX)), expected);
    assert_eq!(write(&mut store, BOX, &["three"], at(2_000)), [3]);
    assert_eq!(texts(&read(&dir, 1, BOX)).len(), 3);
    let names = Reader::open(dir.path(), keys(1)).unwrap().names().unwrap();
    assert_eq!(names.get(&keys(1).id()).map(String::as_str), Some("laptop"));
}

#[test]
fn what_a_crash_left_in_the_journal_is_sealed_under_the_next_incarnation() {
    let (dir, mut store) = laptop();
    write(&mut store, BOX, &["one"], NOW);
    store.seal_all(NOW).unwrap();
    write(&mut store, BOX, &["two", "three"], NOW);
    let first = store.heads();
    drop(store);
    let mut store = open(&dir, 1, at(10));
    // Sealed at the start already: nothing waits, and the chain is a new one.
    assert_eq!(store.seal_due(at(10)), None);
    let new: Vec<_> = store
        .heads()
        .into_iter()
        .filter(|head| !first.contains(head))
        .collect();
    let of_box = new.iter().find(|head| head.chain.doc == BOX).unwrap();
    assert_eq!(
        (of_box.seq, of_box.chain.incarnation),
        (1, store.incarnation())
    );
    let bytes = store
        .range(&of_box.chain, 1, 1, usize::MAX)
        .unwrap()
        .remove(0);
    let fields = bailey_envelope::peek(&bytes).unwrap().fields;
    let old = first.iter().find(|head| head.chain.doc == BOX).unwrap();
    assert_eq!(
        (fields.before, fields.prev),
        (Some(old.chain.incarnation), old.hash)
    );
    assert_eq!(write(&mut store, BOX, &["four"], at(20)), [4]);
    let numbers: Vec<u64> = read(&dir, 1, BOX)
        .iter()
        .map(|(_, entry)| entry.no)
        .collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
}

#[test]
fn what_was_not_committed_is_not_there() {
    let (dir, mut store) = laptop();
    write(&mut store, BOX, &["one"], NOW);
    store
        .append(BOX, gap("never acknowledged"), NOW, Urgency::Normal)
        .unwrap();
    drop(store);
    let mut store = open(&dir, 1, NOW);
    assert_eq!(write(&mut store, BOX, &["two"], NOW), [2]);
    assert_eq!(
        texts(&read(&dir, 1, BOX)),
        [(1, "one".to_owned()), (2, "two".to_owned())]
    );
}

#[test]
fn a_second_writer_is_refused_with_the_pid_of_the_first() {
    let dir = TempDir::new();
    let store = open(&dir, 1, NOW);
    let refused = Store::open(dir.path(), keys(1), NOW, Box::new(OsEntropy)).unwrap_err();
    assert!(matches!(refused, OpenError::InUse { pid: Some(pid) } if pid == std::process::id()));
    drop(store);
    open(&dir, 1, NOW);
}

#[test]
fn nothing_is_taken_without_an_account_or_into_documents_of_records() {
    let dir = TempDir::new();
    let mut store = open(&dir, 1, NOW);
    let refused = store.append(BOX, gap("x"), NOW, Urgency::Normal);
    assert!(matches!(refused, Err(AppendError::NoAccount)));
    store.create_account("laptop", NOW).unwrap();
    for doc in [DocId::Account, DocId::Keys] {
        let refused = store.append(doc, gap("x"), NOW, Urgency::Normal);
        assert!(matches!(refused, Err(AppendError::NoEntries(_))));
    }
}

#[test]
fn a_batch_is_due_by_size_by_quiet_by_age_and_by_urgency() {
    let (_dir, mut store) = laptop();
    store.seal_all(NOW).unwrap();
    assert_eq!(store.seal_due(NOW), None);
    for no in 0..10 {
        write(&mut store, BOX, &["trickle"], at(no * 900));
    }
    assert_eq!(store.seal_due(at(8_100)), Some(at(5_000)));
    // By a clock that was set back, now: the old time may be days away.
    assert_eq!(store.seal_due(at(0)), Some(at(0)));
    store.seal(at(8_100)).unwrap();
    for _ in 0..256 {
        store
            .append(BOX, gap("burst"), at(9_000), Urgency::Normal)
            .unwrap();
    }
    assert_eq!(
        store.seal_due(at(9_000)),
        None,
        "what is not committed is not sealed"
    );
    store.commit(false).unwrap();
    assert_eq!(store.seal_due(at(9_000)), Some(at(9_000)));
    store.seal(at(9_000)).unwrap();
    write(&mut store, BOX, &["evidence"], at(10_000));
    store
        .append(DocId::Notices, gap("notice"), at(10_000), Urgency::Urgent)
        .unwrap();
    store.commit(true).unwrap();
    assert_eq!(store.seal_due(at(10_000)), Some(at(10_020)));
    assert_eq!(store.seal(at(10_019)).unwrap(), []);
    let docs: Vec<DocId> = store
        .seal(at(10_020))
        .unwrap()
        .iter()
        .map(|chain| chain.doc)
        .collect();
    assert_eq!(docs, [DocId::Notices, BOX]);
    assert_eq!(store.seal_due(at(10_020)), None);
}

#[test]
fn the_segment_of_a_box_closes_with_it_and_the_next_run_begins_another() {
    let (dir, mut store) = laptop();
    let ended = || {
        Event::BoxEnded(BoxEnded {
            box_id: BoxId([7; 16]),
            incarnation: Incarnation([1; 16]),
            end: BoxEnd::NodeLost,
            processes_ended: None,
            processes_left: None,
            flows_reset: None,
        })
    };
    for run in 0..3 {
        write(&mut store, BOX, &["a", "b"], at(run));
        store
            .append(BOX, ended(), at(run), Urgency::Normal)
            .unwrap();
        store.commit(false).unwrap();
        store.seal_all(at(run)).unwrap();
    }
    let heads = store.heads();
    let chain = heads
        .iter()
        .find(|head| head.chain.doc == BOX)
        .unwrap()
        .chain;
    let segments: Vec<u32> = store
        .range(&chain, 1, usize::MAX, usize::MAX)
        .unwrap()
        .iter()
        .map(|bytes| bailey_envelope::peek(bytes).unwrap().fields.segment)
        .collect();
    assert_eq!(segments, [1, 2, 3]);
    let entries = read(&dir, 1, BOX);
    let numbers: Vec<u64> = entries.iter().map(|(_, entry)| entry.no).collect();
    assert_eq!(numbers, (1..=9).collect::<Vec<_>>());
}

#[test]
fn segments_close_when_full_and_when_a_day_old() {
    let (dir, mut store) = laptop();
    for no in 0..5_000 {
        store
            .append(BOX, gap(format!("entry {no}")), NOW, Urgency::Normal)
            .unwrap();
    }
    store.commit(false).unwrap();
    store.seal_all(NOW).unwrap();
    let later = at(25 * 3_600_000);
    write(&mut store, BOX, &["next day"], later);
    store.seal_all(later).unwrap();
    let chain = store
        .heads()
        .into_iter()
        .find(|head| head.chain.doc == BOX)
        .unwrap()
        .chain;
    let segments: Vec<u32> = store
        .range(&chain, 1, usize::MAX, usize::MAX)
        .unwrap()
        .iter()
        .map(|bytes| bailey_envelope::peek(bytes).unwrap().fields.segment)
        .collect();
    assert_eq!(segments.iter().max(), Some(&3));
    assert!(segments.is_sorted());
    let entries = read(&dir, 1, BOX);
    assert_eq!(entries.len(), 5_001);
    assert!(
        entries
            .iter()
            .zip(1..)
            .all(|((_, entry), no)| entry.no == no)
    );
}

/// About a thousand bytes that deflate does not make smaller than half.
fn incompressible(seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut word = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        format!("{state:016x}")
    };
    (0..64).map(|_| word()).collect()
}

#[test]
fn a_full_disk_refuses_whole_commits_and_goes_on_in_place_when_there_is_room() {
    let (dir, mut store) = laptop();
    store.limit_size(400 * 1024).unwrap();
    let (mut kept, mut failures) = (0, 0);
    for round in 0..200 {
        for no in 0..10 {
            let text = incompressible(round * 10 + no);
            store
                .append(BOX, gap(text), at(round), Urgency::Normal)
                .unwrap();
        }
        match store.commit(false) {
            Ok(()) => kept += 10,
            Err(error) => {
                assert!(error.is_full(), "{error}");
                failures += 1;
            }
        }
        // Sealing may fail as well; nothing of it may be lost.
        drop(store.seal(at(round)));
    }
    assert!(
        failures > 0 && kept > 100,
        "{kept} kept, {failures} failures"
    );
    assert_eq!(
        read(&dir, 1, BOX).len(),
        kept,
        "what was acknowledged, and nothing else"
    );
    store.limit_size(1 << 30).unwrap();
    let next = u64::try_from(kept).unwrap() + 1;
    assert_eq!(write(&mut store, BOX, &["there is room"], at(500)), [next]);
    store.seal_all(at(2_000)).unwrap();
    drop(store);
    let store = open(&dir, 1, at(3_000));
    let entries = read(&dir, 1, BOX);
    assert!(
        entries
            .iter()
            .zip(1..)
            .all(|((_, entry), no)| entry.no == no)
    );
    assert_eq!(entries.len(), kept + 1);
    drop(store);
}

#[test]
fn a_damaged_or_emptied_store_is_refused_and_never_replaced() {
    let (dir, mut store) = laptop();
    write(&mut store, BOX, &["one"], NOW);
    store.seal_all(NOW).unwrap();
    drop(store);
    let path = dir.path().join("store.db");
    let good = std::fs::read(&path).unwrap();
    let mut header = good.clone();
    header[..16].fill(0);
    for bad in [Vec::new(), vec![7; 8192], header] {
        std::fs::write(&path, &bad).unwrap();
        let refused = Store::open(dir.path(), keys(1), NOW, Box::new(OsEntropy)).unwrap_err();
        assert!(matches!(refused, OpenError::Db(_)), "{refused}");
        assert_eq!(std::fs::read(&path).unwrap(), bad);
    }
    std::fs::write(&path, &good).unwrap();
    open(&dir, 1, NOW);
}

#[test]
fn only_sealed_or_signed_bytes_are_at_rest() {
    let dir = TempDir::new();
    let mut store = open(&dir, 1, NOW);
    store.create_account("secret-laptop-name", NOW).unwrap();
    write(&mut store, BOX, &["secret-entry-unsealed"], NOW);
    for _ in 0..60 {
        store
            .append(BOX, gap("secret-entry-sealed"), NOW, Urgency::Normal)
            .unwrap();
    }
    store.commit(true).unwrap();
    store.seal_all(NOW).unwrap();
    write(&mut store, BOX, &["secret-entry-unsealed"], NOW);
    let seed = store.recovery_seed().unwrap().unwrap();
    for file in ["store.db", "store.db-wal"] {
        let bytes = std::fs::read(dir.path().join(file)).unwrap();
        let holds = |word: &[u8]| bytes.windows(word.len()).any(|window| window == word);
        assert!(!holds(b"secret-"), "{file}");
        assert!(!holds(&seed.0) && !holds(keys(1).secret_bytes()), "{file}");
    }
    use std::os::unix::fs::MetadataExt as _;
    for file in [
        "store.db",
        "store.db-wal",
        "store.db-shm",
        "recovery.seed",
        "store.lock",
    ] {
        let mode = std::fs::metadata(dir.path().join(file)).unwrap().mode();
        assert_eq!(mode & 0o077, 0, "{file} is {mode:o}");
    }
}

/// Children that are killed in an ordinary run; `BAILEY_KILLS` takes its place.
const KILLS: u64 = 200;

/// The child of the test below: appends for ever, and prints each number that
/// was committed.
fn append_for_ever(dir: &str) {
    let clock = || Timestamp(NOW.0 + u64::try_from(started().elapsed().as_millis()).unwrap());
    let mut store = Store::open(
        std::path::Path::new(dir),
        keys(1),
        clock(),
        Box::new(OsEntropy),
    )
    .unwrap();
    if store.account().is_none() {
        store.create_account("child", clock()).unwrap();
    }
    for round in 0_u64.. {
        let doc = DocId::Box(BoxId([u8::try_from(round % 3).unwrap(); 16]));
        let mut numbers = Vec::new();
        for _ in 0..7 {
            numbers.push(
                store
                    .append(doc, gap("x"), clock(), Urgency::Normal)
                    .unwrap(),
            );
        }
        store.commit(round % 16 == 0).unwrap();
        for no in numbers {
            println!("\nack {} {no}", round % 3);
        }
        store.seal(clock()).unwrap();
    }
}

fn started() -> Instant {
    static STARTED: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *STARTED.get_or_init(Instant::now)
}

#[test]
fn acknowledged_entries_outlive_kill_9() {
    // This test started again is the child that is killed.
    if let Ok(dir) = std::env::var("BAILEY_TEST_DIR") {
        return append_for_ever(&dir);
    }
    let rounds = std::env::var("BAILEY_KILLS").ok();
    let rounds = rounds.and_then(|text| text.parse().ok()).unwrap_or(KILLS);
    let dir = TempDir::new();
    let mut acknowledged = [0_u64; 3];
    for round in 0..rounds {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "journal::acknowledged_entries_outlive_kill_9",
                "--nocapture",
                "--test-threads=1",
            ])
            .env("BAILEY_TEST_DIR", dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (first, running) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || read_acknowledged(output, &first));
        // Most are killed while they append, some while they start.
        if round % 8 != 7 {
            running.recv_timeout(Duration::from_secs(20)).unwrap();
        }
        std::thread::sleep(Duration::from_micros(round * 7_919 % 12_000));
        child.kill().unwrap();
        child.wait().unwrap();
        for (known, new) in acknowledged.iter_mut().zip(reader.join().unwrap()) {
            *known = (*known).max(new);
        }
        if round % 50 == 49 {
            check_acknowledged(&dir, &acknowledged);
        }
    }
    check_acknowledged(&dir, &acknowledged);
    assert!(acknowledged.iter().all(|no| *no > 100), "{acknowledged:?}");
}

/// The highest number acknowledged in each document. Tells of the first.
fn read_acknowledged(output: impl BufRead, first: &std::sync::mpsc::Sender<()>) -> [u64; 3] {
    let mut acknowledged = [0_u64; 3];
    for line in output.lines().map_while(Result::ok) {
        let mut words = line.split(' ');
        if let (Some("ack"), Some(doc), Some(no)) = (words.next(), words.next(), words.next())
            && let (Ok(doc), Ok(no)) = (doc.parse::<usize>(), no.parse::<u64>())
        {
            acknowledged[doc] = acknowledged[doc].max(no);
            // Nobody waits for the later ones.
            let _ = first.send(());
        }
    }
    acknowledged
}

fn check_acknowledged(dir: &TempDir, acknowledged: &[u64; 3]) {
    crate::ledger::sound(dir);
    for (doc, known) in acknowledged.iter().enumerate() {
        let doc = DocId::Box(BoxId([u8::try_from(doc).unwrap(); 16]));
        let entries = read(dir, 1, doc);
        assert!(
            entries
                .iter()
                .zip(1..)
                .all(|((_, entry), no)| entry.no == no),
            "a hole"
        );
        assert!(
            u64::try_from(entries.len()).unwrap() >= *known,
            "an acknowledged entry is gone"
        );
    }
}
