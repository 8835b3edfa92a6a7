//! Members that lie: envelopes rightly signed by a member, in their place, and
//! bad inside. Strangers and chains are tested from outside.

use bailey_envelope::{DocId, EpochKey, Fields, Hash, Kind, seal, sign_plain};
use bailey_model::{Event, Gap, Incarnation};

use super::caps::MAX_SEGMENT;
use super::*;
use crate::account::Node;
use crate::entropy::OsEntropy;
use crate::error::QuarantineReason;
use crate::schema::pack;
use crate::segment::Segment;
use crate::segment::{SegmentFault, actor_of};
use crate::testing::TempDir;
use crate::{DeviceKeys, Role, Urgency};

const NOW: Timestamp = Timestamp(1_796_000_000_000);

/// A store of device A, and the keys of a member L that lies.
struct Fixture {
    _dir: TempDir,
    store: Store,
    liar: DeviceKeys,
    epoch: EpochKey,
    chain: ChainId,
}

fn fixture() -> Fixture {
    let dir = TempDir::new();
    let keys = DeviceKeys::generate([1; 64]);
    let mut store = Store::open(dir.path(), keys, NOW, Box::new(OsEntropy)).unwrap();
    store.create_account("a", NOW).unwrap();
    let liar = DeviceKeys::generate([2; 64]);
    let offer = store.offer_add(liar.public(), Role::Watch).unwrap();
    store
        .complete_add(&offer, offer.sign(&liar).unwrap(), NOW)
        .unwrap();
    let epoch = EpochKey::generate([3; 32]);
    let incarnation = Incarnation([4; 16]);
    let chain = ChainId {
        doc: DocId::Notices,
        writer: liar.id(),
        incarnation,
    };
    let mut fixture = Fixture {
        _dir: dir,
        store,
        liar,
        epoch,
        chain,
    };
    fixture.give_key();
    fixture
}

impl Fixture {
    fn fields(&self, doc: DocId, seq: u64, prev: Hash) -> Fields {
        Fields {
            account: self.store.account().unwrap(),
            chain: ChainId { doc, ..self.chain },
            kind: if doc.is_plain() {
                Kind::Record
            } else {
                Kind::Tail
            },
            segment: u32::from(!doc.is_plain()),
            seq,
            prev,
            before: None,
        }
    }

    /// The liar's epoch key, wrapped to A as it should be.
    fn give_key(&mut self) {
        let account = self.store.account().unwrap();
        let to = [self.store.keys.public()];
        let writer = self.liar.id();
        let wraps =
            crate::keys::wrap_to_all(account, writer, 1, &self.epoch, &[], &to, &mut OsEntropy);
        let record = KeyRecord {
            epoch: None,
            hours: 0,
            membership: Vec::new(),
            wraps: wraps.unwrap(),
        };
        let fields = self.fields(DocId::Keys, 1, Hash::NONE);
        let sealed = sign_plain(&self.liar, fields, &record.encode().unwrap()).unwrap();
        self.store.ingest(&sealed.bytes, NOW).unwrap();
    }

    fn body(&self, entries: &[Entry]) -> Vec<u8> {
        let packed: Vec<Vec<u8>> = entries.iter().map(|entry| pack(entry).unwrap()).collect();
        Segment::new(&self.chain).append(&packed, 720, NOW)
    }

    fn seal(&self, seq: u64, prev: Hash, body: &[u8]) -> bailey_envelope::Sealed {
        let key = self.epoch.segment_key(DocId::Notices, 1);
        seal(
            &self.liar,
            self.fields(DocId::Notices, seq, prev),
            1,
            &key,
            body,
            [5; 24],
        )
        .unwrap()
    }

    /// What comes of a body in the liar's first envelope; and that its chain
    /// goes on, is served as it is, and the rest of the segment is set aside.
    fn judge(mut self, body: &[u8]) -> QuarantineReason {
        let first = self.seal(1, Hash::NONE, body);
        let reason = match self.store.ingest(&first.bytes, NOW) {
            Err(IngestError::Quarantined { reason, seq: 1, .. }) => reason,
            other => panic!("{other:?}"),
        };
        let again = self.store.ingest(&first.bytes, NOW).unwrap();
        assert_eq!(again.outcome, Outcome::Duplicate);
        let second = self.seal(2, first.hash, &self.body(&[entry(1)]));
        assert!(matches!(
            self.store.ingest(&second.bytes, NOW),
            Err(IngestError::Quarantined {
                reason: QuarantineReason::Follows,
                seq: 2,
                ..
            })
        ));
        let served = self.store.range(&self.chain, 1, 10, usize::MAX).unwrap();
        assert_eq!(served, [first.bytes, second.bytes]);
        let mut reader =
            crate::Reader::open(self.store.dir.as_path(), self.store.keys.clone()).unwrap();
        let reading = reader.read(DocId::Notices, None).unwrap();
        assert_eq!(reading.entries, []);
        assert_eq!(reading.aside.len(), 2);
        // The store is as good as before.
        let event = Event::Gap(Gap {
            reason: "after".to_owned(),
        });
        self.store
            .append(DocId::Notices, event, NOW, Urgency::Normal)
            .unwrap();
        self.store.commit(false).unwrap();
        reason
    }
}

fn entry(no: u64) -> Entry {
    Entry {
        no,
        ts: NOW,
        event: Event::Gap(Gap {
            reason: format!("entry {no}"),
        }),
    }
}

#[test]
fn an_honest_first_envelope_is_read() {
    let mut fixture = fixture();
    let entries = [entry(1), entry(2)];
    let sealed = fixture.seal(1, Hash::NONE, &fixture.body(&entries));
    let ingested = fixture.store.ingest(&sealed.bytes, NOW).unwrap();
    assert_eq!(
        ingested.opened,
        [Opened {
            chain: fixture.chain,
            entries: entries.to_vec()
        }]
    );
}

#[test]
fn bytes_that_are_no_change_are_set_aside() {
    assert_eq!(
        fixture().judge(b"\x01\x00no automerge chunk"),
        QuarantineReason::Segment(SegmentFault::Change)
    );
    assert_eq!(
        fixture().judge(b""),
        QuarantineReason::Segment(SegmentFault::Body)
    );
}

#[test]
fn a_change_by_another_actor_is_set_aside() {
    let fixture = fixture();
    let victim = ChainId {
        writer: fixture.store.device(),
        ..fixture.chain
    };
    assert_ne!(actor_of(&victim), actor_of(&fixture.chain));
    let body = Segment::new(&victim).append(&[pack(&entry(1)).unwrap()], 720, NOW);
    assert_eq!(
        fixture.judge(&body),
        QuarantineReason::Segment(SegmentFault::Actor)
    );
}

#[test]
fn entries_out_of_number_or_malformed_are_set_aside() {
    let one = fixture();
    let body = one.body(&[entry(4), entry(6)]);
    assert_eq!(
        one.judge(&body),
        QuarantineReason::Number { want: 5, found: 6 }
    );
    let two = fixture();
    let body = Segment::new(&two.chain).append(&[vec![9, 9]], 720, NOW);
    assert_eq!(
        two.judge(&body),
        QuarantineReason::Entry(crate::UnpackError::Version(9))
    );
    let three = fixture();
    let body = three.body(&[entry(0)]);
    assert_eq!(
        three.judge(&body),
        QuarantineReason::Number { want: 1, found: 0 }
    );
}

#[test]
fn a_bomb_is_set_aside() {
    use std::io::Read as _;
    let zeros = vec![0; 64 << 20];
    let mut bomb = vec![1, 1];
    flate2::read::DeflateEncoder::new(&zeros[..], flate2::Compression::best())
        .read_to_end(&mut bomb)
        .unwrap();
    assert_eq!(
        fixture().judge(&bomb),
        QuarantineReason::Segment(SegmentFault::Inflates)
    );
}

#[test]
fn a_body_under_another_key_than_it_names_is_set_aside() {
    let mut fixture = fixture();
    let fields = fixture.fields(DocId::Notices, 1, Hash::NONE);
    // Sealed rightly, then the nonce in the signed header changed.
    let good = fixture.seal(1, Hash::NONE, &fixture.body(&[entry(1)]));
    let mut header = peek(&good.bytes).unwrap();
    assert_eq!(header.fields, fields);
    header.nonce = [9; 24];
    let head = header.encode();
    let body = &good.bytes[head.len()..good.bytes.len() - 64];
    let signed = [&head[..], &<sha2::Sha256 as sha2::Digest>::digest(body)].concat();
    let signature = fixture.liar.sign("bailey/env/v1\0", &signed);
    let bytes = [&head[..], body, &signature].concat();
    assert!(matches!(
        fixture.store.ingest(&bytes, NOW),
        Err(IngestError::Quarantined {
            reason: QuarantineReason::Body(_),
            ..
        })
    ));
}

#[test]
fn the_key_and_the_number_of_a_segment_cannot_change_under_it() {
    let mut fixture = fixture();
    let first = fixture.seal(1, Hash::NONE, &fixture.body(&[entry(1)]));
    fixture.store.ingest(&first.bytes, NOW).unwrap();
    let fields = fixture.fields(DocId::Notices, 2, first.hash);
    let other = EpochKey::generate([8; 32]).segment_key(DocId::Notices, 1);
    let sealed = seal(&fixture.liar, fields, 2, &other, b"x", [5; 24]).unwrap();
    assert!(matches!(
        fixture.store.ingest(&sealed.bytes, NOW),
        Err(IngestError::Misfit("key within a segment"))
    ));
    for segment in [0, MAX_SEGMENT + 1] {
        let key = fixture.epoch.segment_key(DocId::Notices, segment);
        let fields = Fields { segment, ..fields };
        let sealed = seal(&fixture.liar, fields, 1, &key, b"x", [5; 24]).unwrap();
        assert!(matches!(
            fixture.store.ingest(&sealed.bytes, NOW),
            Err(IngestError::Misfit("segment"))
        ));
    }
}

#[test]
fn a_member_without_the_role_adds_nobody() {
    let mut fixture = fixture();
    let friend = DeviceKeys::generate([9; 64]);
    let fields = fixture.fields(DocId::Account, 1, Hash::NONE);
    let offer = crate::AddOffer::new(
        &fields,
        friend.public(),
        Role::Full,
        fixture.store.account_heads(false),
    );
    let record = offer.record(offer.sign(&friend).unwrap()).unwrap();
    let sealed = sign_plain(&fixture.liar, fields, &record.encode().unwrap()).unwrap();
    let ingested = fixture.store.ingest(&sealed.bytes, NOW).unwrap();
    assert!(!ingested.members_changed);
    assert_eq!(fixture.store.members().get(&friend.id()), None);
}

#[test]
fn an_add_without_the_new_devices_signature_is_refused() {
    let mut fixture = fixture();
    let friend = DeviceKeys::generate([9; 64]);
    let fields = fixture.fields(DocId::Account, 1, Hash::NONE);
    let offer = crate::AddOffer::new(&fields, friend.public(), Role::Full, Vec::new());
    let record = offer.record([7; 64]).unwrap();
    let sealed = sign_plain(&fixture.liar, fields, &record.encode().unwrap()).unwrap();
    assert!(matches!(
        fixture.store.ingest(&sealed.bytes, NOW),
        Err(IngestError::Record(crate::RecordError::Cosignature))
    ));
    let newer = sign_plain(&fixture.liar, fields, &[1, 77, 0]).unwrap();
    assert!(matches!(
        fixture.store.ingest(&newer.bytes, NOW),
        Err(IngestError::Record(crate::RecordError::Newer))
    ));
}

#[test]
fn wraps_that_hold_another_key_do_not_hide_the_right_one() {
    let mut fixture = fixture();
    let account = fixture.store.account().unwrap();
    let to = [fixture.store.keys.public()];
    let (right, wrong) = (EpochKey::generate([20; 32]), EpochKey::generate([21; 32]));
    let mut prev = peek_hash(
        &fixture.store,
        &ChainId {
            doc: DocId::Keys,
            ..fixture.chain
        },
    );
    for (seq, (key, claims)) in [(&wrong, right.id()), (&right, right.id())]
        .into_iter()
        .enumerate()
    {
        let writer = fixture.liar.id();
        let wraps = crate::keys::wrap_to_all(account, writer, 2, key, &[], &to, &mut OsEntropy);
        let mut wraps = wraps.unwrap();
        wraps[0].key_id = claims;
        let record = KeyRecord {
            epoch: None,
            hours: 0,
            membership: Vec::new(),
            wraps,
        };
        let fields = fixture.fields(DocId::Keys, u64::try_from(seq).unwrap() + 2, prev);
        let sealed = sign_plain(&fixture.liar, fields, &record.encode().unwrap()).unwrap();
        prev = sealed.hash;
        fixture.store.ingest(&sealed.bytes, NOW).unwrap();
    }
    let Store { db, ring, .. } = &mut fixture.store;
    assert!(
        ring.find(db, account, fixture.chain.writer, right.id())
            .unwrap()
            .is_some()
    );
}

fn peek_hash(store: &Store, chain: &ChainId) -> Hash {
    store
        .heads()
        .iter()
        .find(|head| head.chain == *chain)
        .unwrap()
        .hash
}

#[test]
fn the_document_says_these_numbers() {
    let document = include_str!("../../../docs/wire.md");
    let text = document.split_whitespace().collect::<Vec<_>>().join(" ");
    let grouped = |number: usize| match number {
        0..1000 => number.to_string(),
        1000..1_000_000 => format!("{},{:03}", number / 1000, number % 1000),
        _ => format!(
            "{},{:03},{:03}",
            number / 1_000_000,
            number / 1000 % 1000,
            number % 1000
        ),
    };
    let fixed = |number: u32| grouped(usize::try_from(number).unwrap());
    for said in [
        format!(
            "`header || body || signature`, at most {} bytes",
            grouped(MAX_ENVELOPE)
        ),
        format!("The header has {} bytes", bailey_envelope::HEADER_LEN),
        format!("{} bytes, fixed", bailey_envelope::TOMBSTONE_LEN),
        format!("1 to {} within a chain", fixed(MAX_SEGMENT)),
        format!(
            "more than {} chains of a writer",
            grouped(super::caps::MAX_CHAINS)
        ),
        format!(
            "of at most {} bytes once inflated",
            grouped(crate::segment::MAX_INFLATED)
        ),
        format!(
            "segment holds at most {}.",
            grouped(crate::segment::SEGMENT_ENTRIES)
        ),
        format!("wraps list, at most {}", crate::keys::MAX_WRAPS),
    ] {
        assert!(text.contains(&said), "docs/wire.md does not say: {said}");
    }
}

/// Members that lie fill the account with what they may write.
#[test]
fn an_account_that_is_full_is_still_brought_back_by_its_recovery_keys() {
    let mut fixture = fixture();
    let account = fixture.store.account.as_mut().unwrap();
    let filling = (0..u64::try_from(MAX_RECORDS).unwrap()).map(|no| {
        let mut hash = [9; 32];
        hash[..8].copy_from_slice(&no.to_be_bytes());
        Node {
            hash: Hash(hash),
            signer: DeviceId([u8::try_from(no / 100).unwrap() + 40; 32]),
            incarnation: Incarnation([1; 16]),
            seq: no + 1,
            parents: vec![Hash([8; 32])],
            act: Act::Ack {
                removal: Hash([7; 32]),
            },
        }
    });
    account.records.extend(filling);
    let recovery = *fixture.store.members().recovery().unwrap();
    let reset = Act::Reset {
        kept: Vec::new(),
        recovery,
    };
    let liar = fixture.liar.id();
    let remove = Act::Remove {
        devices: vec![liar],
    };
    assert!(fixture.store.check_room(&liar, &remove).is_err());
    assert!(fixture.store.check_room(&liar, &reset).is_err());
    assert!(fixture.store.check_room(&recovery.id(), &remove).is_err());
    assert!(fixture.store.check_room(&recovery.id(), &reset).is_ok());
}

/// Two chains of one writer that part at their first number.
fn forked(store: &mut Store, keys: &DeviceKeys, chain: ChainId, other: u8) -> bool {
    let fields = Fields {
        account: store.account().unwrap(),
        chain,
        kind: Kind::Tail,
        segment: 1,
        seq: 1,
        prev: Hash::NONE,
        before: None,
    };
    let key = EpochKey::generate([3; 32]).segment_key(chain.doc, 1);
    let sealed = |nonce| seal(keys, fields, 1, &key, b"x", [nonce; 24]).unwrap();
    let (first, second) = (sealed(0), sealed(other));
    // Its writer is where the tables look for it.
    assert_eq!(first.bytes[62..94], chain.writer.0);
    let _here = store.ingest(&first.bytes, NOW);
    match store.ingest(&second.bytes, NOW) {
        Err(IngestError::Fork(fork)) => fork.kept,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_one_member_has_set_aside_takes_no_room_of_the_proof_of_anothers_fork() {
    let mut fixture = fixture();
    let other = DeviceKeys::generate([9; 64]);
    let offer = fixture
        .store
        .offer_add(other.public(), Role::Watch)
        .unwrap();
    let signed = offer.sign(&other).unwrap();
    fixture.store.complete_add(&offer, signed, NOW).unwrap();
    // As many that are set aside as there is room for, and more forks than are kept.
    let mut prev = Hash::NONE;
    for seq in 1..=1100 {
        let sealed = fixture.seal(seq, prev, b"garbage");
        prev = sealed.hash;
        let set_aside = fixture.store.ingest(&sealed.bytes, NOW);
        assert!(matches!(set_aside, Err(IngestError::Quarantined { .. })));
    }
    let of = |keys: &DeviceKeys, n: u8| ChainId {
        doc: DocId::Box(bailey_model::BoxId([n; 16])),
        writer: keys.id(),
        incarnation: Incarnation([6; 16]),
    };
    let liar = fixture.liar.clone();
    let kept = (1..=40).filter(|n| forked(&mut fixture.store, &liar, of(&liar, *n), 1));
    let most = usize::try_from(chains::MAX_PROOFS).unwrap();
    assert_eq!(kept.count(), most);
    assert!(forked(&mut fixture.store, &other, of(&other, 1), 1));
    // What is kept already is no other proof.
    assert!(forked(&mut fixture.store, &liar, of(&liar, 1), 1));
    assert!(!forked(&mut fixture.store, &liar, of(&liar, 1), 2));
    let mut reader =
        crate::Reader::open(fixture.store.dir.as_path(), fixture.store.keys.clone()).unwrap();
    let rest = reader.check_rest().unwrap();
    let by = |keys: &DeviceKeys| {
        let forks = rest.forks.iter();
        forks.filter(|fork| fork.chain.writer == keys.id()).count()
    };
    assert_eq!((by(&liar), by(&other)), (most, 1));
}

/// Records that a removed device hands over, sixteen each time that it comes: how many
/// of them are kept.
fn hands_over(store: &mut Store, keys: &DeviceKeys, incarnation: u8, count: u64) -> usize {
    let account = store.account().unwrap();
    let (mut prev, mut kept) = (Hash::NONE, 0);
    for seq in 1..=count {
        let fields = Fields {
            account,
            chain: ChainId {
                doc: DocId::Account,
                writer: keys.id(),
                incarnation: Incarnation([incarnation; 16]),
            },
            kind: Kind::Record,
            segment: 0,
            seq,
            prev,
            before: None,
        };
        let act = match seq % 3 {
            0 => Act::Ack {
                removal: Hash([7; 32]),
            },
            1 => Act::Remove {
                devices: vec![store.device],
            },
            _ => Act::Role {
                device: store.device,
                role: Role::Watch,
            },
        };
        let body = Record::plain(act, Vec::new()).encode().unwrap();
        let sealed = sign_plain(keys, fields, &body).unwrap();
        prev = sealed.hash;
        match store.ingest_from(&keys.id(), &sealed.bytes, NOW) {
            Ok(_) => kept += 1,
            Err(IngestError::Misfit(_)) => break,
            Err(error) => panic!("{error}"),
        }
    }
    kept
}

#[test]
fn a_removed_device_adds_so_many_records_in_all_however_often_it_comes() {
    let Fixture {
        _dir,
        mut store,
        liar,
        ..
    } = fixture();
    // While it is a member what it says is bounded by kinds alone.
    assert_eq!(hands_over(&mut store, &liar, 1, 40), 40);
    store.remove(&[liar.id()], NOW).unwrap();
    let mut kept = 0;
    for connection in 2..12 {
        kept += hands_over(&mut store, &liar, connection, 16);
    }
    assert_eq!(kept, caps::MAX_HELD);
    // Nor does it help to come after a start.
    let keys = store.keys.clone();
    drop(store);
    let mut store = Store::open(_dir.path(), keys, NOW, Box::new(OsEntropy)).unwrap();
    assert_eq!(hands_over(&mut store, &liar, 20, 16), 0);
    // The others are none the worse, and neither is another that was removed.
    let other = DeviceKeys::generate([9; 64]);
    let offer = store.offer_add(other.public(), Role::Full).unwrap();
    let signed = offer.sign(&other).unwrap();
    store.complete_add(&offer, signed, NOW).unwrap();
    assert_eq!(hands_over(&mut store, &other, 1, 3), 3);
    store.remove(&[other.id()], NOW).unwrap();
    assert_eq!(hands_over(&mut store, &other, 2, 16), 16);
}

impl Fixture {
    /// The liar begins an epoch, as it should be.
    fn begins(&mut self, epochs: &[(u8, u32, u32)]) {
        let account = self.store.account().unwrap();
        let (to, writer) = ([self.store.keys.public()], self.liar.id());
        let mut prev = peek_hash(
            &self.store,
            &ChainId {
                doc: DocId::Keys,
                ..self.chain
            },
        );
        for (seq, (key, number, hours)) in (2..).zip(epochs) {
            let key = EpochKey::generate([*key; 32]);
            let wraps =
                crate::keys::wrap_to_all(account, writer, *number, &key, &[], &to, &mut OsEntropy);
            let record = KeyRecord {
                epoch: Some(crate::keys::Epoch {
                    number: *number,
                    key_id: key.id(),
                    made: NOW.0,
                }),
                hours: *hours,
                membership: Vec::new(),
                wraps: wraps.unwrap(),
            };
            let fields = self.fields(DocId::Keys, seq, prev);
            let sealed = sign_plain(&self.liar, fields, &record.encode().unwrap()).unwrap();
            prev = sealed.hash;
            self.store.ingest(&sealed.bytes, NOW).unwrap();
        }
    }

    /// Envelopes of one chain, each of a segment, a key, the epoch that it names, and a
    /// nonce: what is seen of it.
    fn seals(&mut self, all: &[(u32, u8, u32, u8)]) -> Vec<(u64, HowMisused)> {
        let (mut prev, mut content, mut open) = (Hash::NONE, Segment::new(&self.chain), 0);
        for (seq, (segment, key, epoch, nonce)) in (1..).zip(all) {
            if open != *segment {
                (content, open) = (Segment::new(&self.chain), *segment);
            }
            let body = content.append(&[pack(&entry(seq)).unwrap()], 720, NOW);
            let fields = Fields {
                segment: *segment,
                ..self.fields(DocId::Notices, seq, prev)
            };
            let key = EpochKey::generate([*key; 32]).segment_key(DocId::Notices, *segment);
            let sealed = seal(&self.liar, fields, *epoch, &key, &body, [*nonce; 24]).unwrap();
            prev = sealed.hash;
            let ingested = self.store.ingest(&sealed.bytes, NOW).unwrap();
            // Whatever is wrong with its key, it is read.
            assert_eq!(ingested.opened.len(), 1, "{seq}");
        }
        let seen = self.store.take_misuses();
        assert_eq!(self.store.take_misuses(), []);
        seen.iter().map(|it| (it.seq, it.how)).collect()
    }
}

#[test]
fn a_key_that_was_replaced_or_is_named_wrongly_or_a_nonce_used_twice_is_seen() {
    let epochs = [(11, 1, 720), (12, 2, 720), (13, 1, 24), (14, 3, 720)];
    let honest = [(1, 11, 1, 1), (1, 11, 1, 2), (2, 12, 2, 1), (3, 14, 3, 1)];
    for (sealed, expected) in [
        (honest.to_vec(), vec![]),
        // A window of its own has numbers of its own.
        (vec![(1, 12, 2, 1), (2, 13, 1, 2)], vec![]),
        (
            vec![(1, 11, 1, 1), (2, 12, 2, 1), (3, 11, 1, 1), (4, 11, 1, 1)],
            vec![(3, HowMisused::Replaced)],
        ),
        (
            vec![(1, 12, 2, 1), (2, 11, 3, 2)],
            vec![(2, HowMisused::Number)],
        ),
        (
            vec![(1, 11, 1, 1), (1, 11, 1, 2), (1, 11, 1, 1)],
            vec![(3, HowMisused::Nonce)],
        ),
    ] {
        let mut fixture = fixture();
        fixture.begins(&epochs);
        assert_eq!(fixture.seals(&sealed), expected, "{sealed:?}");
    }
}

#[test]
fn a_nonce_used_twice_is_seen_by_a_store_that_has_just_started() {
    let mut fixture = fixture();
    fixture.begins(&[(11, 1, 720)]);
    // Nothing of the segment is in memory any more when it goes on.
    let sealed = [(1, 11, 1, 1), (1, 11, 1, 2)];
    assert_eq!(fixture.seals(&sealed), []);
    fixture.store.cache.forget(&fixture.chain);
    let prev = peek_hash(&fixture.store, &fixture.chain);
    let mut content = Segment::new(&fixture.chain);
    for no in 1..=2 {
        let _body = content.append(&[pack(&entry(no)).unwrap()], 720, NOW);
    }
    let body = content.append(&[pack(&entry(3)).unwrap()], 720, NOW);
    let key = EpochKey::generate([11; 32]).segment_key(DocId::Notices, 1);
    let fields = fixture.fields(DocId::Notices, 3, prev);
    let sealed = seal(&fixture.liar, fields, 1, &key, &body, [2; 24]).unwrap();
    let _read = fixture.store.ingest(&sealed.bytes, NOW);
    let seen = fixture.store.take_misuses();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!(seen[0].how, HowMisused::Nonce);
}

#[test]
fn room_for_records_is_counted_by_writer_and_kind() {
    let mut fixture = fixture();
    let liar = fixture.liar.id();
    let ack = Act::Ack {
        removal: Hash([7; 32]),
    };
    let filling = (0..MAX_OF_KIND).map(|no| {
        let mut hash = [9; 32];
        hash[..8].copy_from_slice(&u64::try_from(no).unwrap().to_be_bytes());
        Node {
            hash: Hash(hash),
            signer: liar,
            incarnation: Incarnation([1; 16]),
            seq: u64::try_from(no).unwrap() + 1,
            parents: vec![Hash([8; 32])],
            act: ack.clone(),
        }
    });
    let filling: Vec<Node> = filling.collect();
    let account = fixture.store.account.as_mut().unwrap();
    account.records.extend(filling[1..].iter().cloned());
    assert!(fixture.store.check_room(&liar, &ack).is_ok(), "one is left");
    let account = fixture.store.account.as_mut().unwrap();
    account.records.extend(filling[..1].iter().cloned());
    assert!(fixture.store.check_room(&liar, &ack).is_err());
    // Another kind, and another writer, have theirs.
    let role = Act::Role {
        device: liar,
        role: Role::Stop,
    };
    let device = fixture.store.device;
    assert!(fixture.store.check_room(&liar, &role).is_ok());
    assert!(fixture.store.check_room(&device, &ack).is_ok());
}
