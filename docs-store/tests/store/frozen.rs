//! What one device takes of another, what it refuses and what it sets aside: frozen, in
//! `frozen.txt`, a line an envelope, in the order in which they come.
//!
//! ```text
//! device NAME SECRETS             Ed25519 seed and X25519 secret, 64 bytes
//! seed recovery SEED              of the recovery keys, 16 bytes
//! account ID
//! incarnation phone HEX           of this start of the reader
//! record NAME HEX                 one of the account's records
//! take NAME WHAT HEX              taken: `new`, `waits`, `again` or `thinned`; after a
//!                                 colon the packed entries that can be read by it
//! refuse NAME CLASS WHY HEX       not taken; the chain is where it was
//! aside NAME WHY HEX              kept and not read; the chain goes on
//! ```
//!
//! The reader is `phone`. A reader in another language goes by the same file
//! (`tests/it/decoder`). What is bad in itself, whatever came before, stands in
//! `docs-store/envelope/vectors/v1.txt`.
//!
//! After a deliberate change of format, or of the library that deflates:
//! `WRITE_VECTORS=1 cargo test -p bailey-docs-store --test store frozen`.

#![expect(clippy::too_many_lines, reason = "lists of envelopes")]

use bailey_docs_store::{ChainId, DocId, Hash, IngestError, Outcome, Role, Store, Tombstone, pack};
use bailey_envelope::{
    DevicePublic, EpochKey, Fields, HEADER_LEN, KeyId, Kind, SegmentKey, Verified, WrapContext,
    Wrapped, peek, seal, sign_plain, unwrap, wrap,
};
use bailey_model::{AccountId, BoxId, DeviceId, Incarnation, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::Digest as _;

use crate::common::*;

const FILE: &str = include_str!("frozen.txt");
const HOUR: u64 = 3_600_000;
const LAPTOP: u8 = 1;
const PHONE: u8 = 2;
const SERVER: u8 = 3;
const STRANGER: u8 = 9;

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits = (0..text.len()).step_by(2);
    digits
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

/// The kind of a refusal, as docs/wire.md has them.
fn class(error: &IngestError) -> &'static str {
    match error {
        IngestError::TooLarge(_) => "large",
        IngestError::Malformed(_) => "malformed",
        IngestError::OtherAccount => "account",
        IngestError::NotMember(_) => "member",
        IngestError::BadSignature(_) => "signature",
        IngestError::Gap { .. } => "gap",
        IngestError::Fork(_) => "fork",
        IngestError::Misfit(_) | IngestError::TooManyChains(_) => "misfit",
        IngestError::Record(_) => "record",
        IngestError::KeyRecord(_) => "keys",
        IngestError::EarlyTombstone(_) => "early",
        IngestError::Quarantined { .. } | IngestError::NoAccount | IngestError::Db(_) => {
            panic!("{error}")
        }
    }
}

/// What comes of an envelope, as the file says it.
fn judge(reader: &mut Store, name: &str, bytes: &[u8]) -> String {
    let said = |error: &dyn std::fmt::Display| error.to_string().replace(' ', "_");
    match reader.ingest(bytes, NOW) {
        Ok(ingested) => {
            let outcome = match ingested.outcome {
                Outcome::New => "new",
                Outcome::Waiting => "waits",
                Outcome::Duplicate => "again",
                Outcome::Thinned => "thinned",
            };
            let opened = ingested.opened.iter().flat_map(|it| &it.entries);
            let entries: Vec<String> = opened.map(|entry| to_hex(&pack(entry).unwrap())).collect();
            format!("take {name} {outcome}:{}", entries.join(","))
        }
        Err(IngestError::Quarantined { reason, .. }) => format!("aside {name} {}", said(&reason)),
        Err(error) => format!("refuse {name} {} {}", class(&error), said(&error)),
    }
}

#[test]
fn every_frozen_envelope_is_judged_as_it_was() {
    let dir = TempDir::new();
    let mut reader = open_seeded(&dir, PHONE, NOW, 1);
    let (mut account, mut records) = (None, Vec::new());
    let (mut refused, mut aside, mut taken) = (0, 0, 0);
    for line in FILE.lines() {
        let (said, bytes) = line.rsplit_once(' ').unwrap();
        let words: Vec<&str> = said.split(' ').collect();
        let bytes = from_hex(bytes);
        match words[0] {
            "device" | "seed" => {}
            "incarnation" => assert_eq!(bytes, reader.incarnation().0),
            "account" => account = Some(AccountId(bytes.try_into().unwrap())),
            "record" => records.push(bytes),
            judged => {
                if let Some(account) = account.take() {
                    reader.join(account, &records, NOW).unwrap();
                }
                let before = reader.heads();
                assert_eq!(judge(&mut reader, words[1], &bytes), said);
                match judged {
                    "take" => taken += 1,
                    "aside" => aside += 1,
                    _ => refused += 1,
                }
                // Nothing of what is refused stays.
                assert!(judged != "refuse" || reader.heads() == before, "{said}");
            }
        }
    }
    assert!(
        refused >= 30 && aside >= 10 && taken >= 15,
        "{refused} refused, {aside} set aside, {taken} taken"
    );
}

#[test]
fn the_generator_still_makes_the_frozen_envelopes() {
    let now = render();
    if std::env::var_os("WRITE_VECTORS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/store/frozen.txt");
        std::fs::write(path, &now).unwrap();
        return;
    }
    assert_eq!(now, FILE);
}

fn render() -> String {
    let story = Story::new();
    let mut lines = Vec::new();
    for (name, no) in [
        ("laptop", LAPTOP),
        ("phone", PHONE),
        ("server", SERVER),
        ("stranger", STRANGER),
    ] {
        lines.push(format!("device {name} {}", to_hex(keys(no).secret_bytes())));
    }
    lines.push(format!("seed recovery {}", to_hex(&story.seed)));
    lines.push(format!("account {}", to_hex(&story.account.0)));
    for (at, bytes) in story.records.iter().enumerate() {
        lines.push(format!(
            "record of-the-account-{} {}",
            at + 1,
            to_hex(bytes)
        ));
    }
    let dir = TempDir::new();
    let mut reader = open_seeded(&dir, PHONE, NOW, 1);
    let incarnation = to_hex(&reader.incarnation().0);
    lines.push(format!("incarnation phone {incarnation}"));
    reader.join(story.account, &story.records, NOW).unwrap();
    for (name, bytes) in story.events(reader.incarnation()) {
        let said = judge(&mut reader, &name, &bytes);
        lines.push(format!("{said} {}", to_hex(&bytes)));
    }
    lines.join("\n") + "\n"
}

type Named = (String, Vec<u8>);

fn named(name: &str, bytes: Vec<u8>) -> Named {
    (name.to_owned(), bytes)
}

/// What an honest writer wrote, and what is made of it.
struct Story {
    account: AccountId,
    /// Of the recovery keys.
    seed: Vec<u8>,
    records: Vec<Vec<u8>>,
    /// Of the keys' document.
    keys: Vec<Vec<u8>>,
    notices: Vec<Vec<u8>>,
    /// Chains of the box, the one of the first start first.
    boxed: Vec<Vec<Vec<u8>>>,
    /// By a start whose every random byte was the same.
    worn: Vec<Vec<u8>>,
    epochs: Vec<(u32, EpochKey)>,
}

/// Entropy that is none.
struct Worn;

impl bailey_docs_store::Entropy for Worn {
    fn fill(&mut self, out: &mut [u8]) -> Result<(), bailey_docs_store::NoEntropy> {
        out.fill(0x77);
        Ok(())
    }
}

/// The key of what is made by hand here.
const OWN: [u8; 32] = [0x23; 32];
const OWN_EPOCH: u32 = 60;
const WORN: DocId = DocId::Box(BoxId([0x77; 16]));

impl Story {
    fn new() -> Self {
        let dir = TempDir::new();
        let mut writer = open_seeded(&dir, LAPTOP, NOW, 1);
        writer.create_account("laptop", NOW).unwrap();
        let seed = writer.recovery_seed().unwrap().unwrap().entropy().to_vec();
        for (no, role) in [(PHONE, Role::Watch), (SERVER, Role::Runs)] {
            let offer = writer.offer_add(keys(no).public(), role).unwrap();
            let signed = offer.sign(&keys(no)).unwrap();
            writer.complete_add(&offer, signed, NOW).unwrap();
        }
        let enter = |writer: &mut Store, doc, texts: &[&str], ms| {
            write(writer, doc, texts, at(ms));
            writer.seal_all(at(ms)).unwrap();
        };
        enter(&mut writer, BOX, &["one", "two"], 0);
        enter(&mut writer, BOX, &["three"], 10);
        enter(&mut writer, DocId::Notices, &["look"], 20);
        enter(&mut writer, DocId::Notices, &["look again"], 30);
        let first = writer.incarnation();
        writer.rotate(at(100)).unwrap();
        enter(&mut writer, BOX, &["four"], 110);
        drop(writer);
        let mut writer = open_seeded(&dir, LAPTOP, at(200), 2);
        enter(&mut writer, BOX, &["five"], 210);
        writer.remove(&[keys(SERVER).id()], at(220)).unwrap();
        enter(&mut writer, BOX, &["six"], 230);
        drop(writer);
        let mut writer = Store::open(dir.path(), keys(LAPTOP), at(300), Box::new(Worn)).unwrap();
        enter(&mut writer, WORN, &["seven"], 310);
        enter(&mut writer, WORN, &["eight"], 320);
        let heads = writer.heads();
        let of = |doc: DocId| -> Vec<Vec<Vec<u8>>> {
            let mut chains: Vec<ChainId> = heads.iter().map(|head| head.chain).collect();
            chains.retain(|chain| chain.doc == doc);
            chains.sort_by_key(|chain| chain.incarnation != first);
            let whole = |chain| writer.range(&chain, 1, usize::MAX, usize::MAX).unwrap();
            chains.into_iter().map(whole).collect()
        };
        let account = writer.account().unwrap();
        let handed = of(DocId::Keys).concat();
        let epochs = handed.iter().filter_map(|bytes| epoch_in(account, bytes));
        Self {
            account,
            seed,
            records: of(DocId::Account).concat(),
            epochs: epochs.collect(),
            keys: handed,
            notices: of(DocId::Notices).concat(),
            boxed: of(BOX),
            worn: of(WORN).concat(),
        }
    }

    fn fields(&self, doc: DocId, incarnation: u8) -> Fields {
        Fields {
            account: self.account,
            chain: ChainId {
                doc,
                writer: keys(LAPTOP).id(),
                incarnation: Incarnation([incarnation; 16]),
            },
            kind: if doc.is_plain() {
                Kind::Record
            } else {
                Kind::Tail
            },
            segment: u32::from(!doc.is_plain()),
            seq: 1,
            prev: Hash::NONE,
            before: None,
        }
    }

    /// The key that an envelope was sealed under.
    fn key_of(&self, bytes: &[u8]) -> SegmentKey {
        let header = peek(bytes).unwrap();
        let mut epochs = self.epochs.iter();
        let (_, key) = epochs.find(|(_, key)| key.id() == header.key_id).unwrap();
        key.segment_key(header.fields.chain.doc, header.fields.segment)
    }

    fn body_of(&self, bytes: &[u8]) -> Vec<u8> {
        let verified = Verified::from_stored(bytes).unwrap();
        verified.open(&self.key_of(bytes)).unwrap().to_vec()
    }

    /// Sealed by the laptop itself, under a key that it wrapped to the phone.
    fn sealed(&self, fields: Fields, body: &[u8]) -> Vec<u8> {
        let key = EpochKey::generate(OWN).segment_key(fields.chain.doc, fields.segment);
        let sealed = seal(&keys(LAPTOP), fields, OWN_EPOCH, &key, body, [0x55; 24]);
        sealed.unwrap().bytes
    }

    /// What an envelope holds, sealed anew under the same key.
    fn sealed_anew(&self, fields: Fields, epoch: u32, of: &[u8]) -> Vec<u8> {
        let sealed = seal(
            &keys(LAPTOP),
            fields,
            epoch,
            &self.key_of(of),
            &self.body_of(of),
            [0x55; 24],
        );
        sealed.unwrap().bytes
    }

    /// A record that hands a key to the phone under this name.
    fn handed(&self, incarnation: u8, epoch: u32, key: &EpochKey, key_id: KeyId) -> Vec<u8> {
        let phone = keys(PHONE);
        let context = WrapContext {
            account: self.account,
            writer: keys(LAPTOP).id(),
            epoch,
            recipient: phone.id(),
            membership: &[0],
        };
        let Wrapped { enc, sealed } = wrap(key, &context, &phone.public(), [6; 32]).unwrap();
        let wrap = Wrap {
            writer: context.writer,
            epoch,
            key_id,
            recipient: context.recipient,
            enc,
            sealed: (
                sealed[..32].try_into().unwrap(),
                sealed[32..].try_into().unwrap(),
            ),
        };
        let none: Vec<Hash> = Vec::new();
        let body = postcard::to_stdvec(&(none, vec![wrap])).unwrap();
        let fields = self.fields(DocId::Keys, incarnation);
        let record = sign_plain(&keys(LAPTOP), fields, &[&[1, 2], &body[..]].concat());
        record.unwrap().bytes
    }

    fn events(&self, of_reader: Incarnation) -> Vec<Named> {
        let counted = |name: &str, all: &[Vec<u8>]| -> Vec<Named> {
            let all = all.iter().enumerate();
            all.map(|(at, bytes)| (format!("{name}-{}", at + 1), bytes.clone()))
                .collect()
        };
        [
            self.bad_records(),
            self.bad_key_records(),
            counted("of-the-keys", &self.keys),
            vec![named("key-of-what-is-made-by-hand", {
                let key = EpochKey::generate(OWN);
                self.handed(0x35, OWN_EPOCH, &key, key.id())
            })],
            self.before_the_first(of_reader),
            vec![named("first-of-the-box", self.boxed[0][0].clone())],
            self.after_the_first(),
            counted("again-and-on", &self.boxed[0]),
            self.after_the_third(),
            self.after_a_restart(),
            counted("of-one-nonce", &self.worn),
            self.without_a_key(),
            self.aside(),
            self.tombstones(),
        ]
        .concat()
    }
}

/// As the keys' document has it.
#[derive(Serialize, Deserialize)]
struct Wrap {
    writer: DeviceId,
    epoch: u32,
    key_id: KeyId,
    recipient: DeviceId,
    enc: [u8; 32],
    sealed: ([u8; 32], [u8; 16]),
}

/// The key of an epoch that a record hands to the phone.
fn epoch_in(account: AccountId, bytes: &[u8]) -> Option<(u32, EpochKey)> {
    type Handed = (Vec<Hash>, Vec<Wrap>);
    type Epoch = ((u32, KeyId, u64), u32, Handed);
    let body = Verified::from_stored(bytes).unwrap().plain().unwrap();
    let (membership, wraps): Handed = match body.split_first_chunk().unwrap() {
        ([1, 3], fields) => postcard::from_bytes::<Epoch>(fields).unwrap().2,
        ([1, 2], fields) => postcard::from_bytes(fields).unwrap(),
        (kind, _) => panic!("{kind:?}"),
    };
    let phone = keys(PHONE);
    let wrap = wraps.iter().find(|wrap| wrap.recipient == phone.id())?;
    let mut sealed = [0; 48];
    sealed[..32].copy_from_slice(&wrap.sealed.0);
    sealed[32..].copy_from_slice(&wrap.sealed.1);
    let context = WrapContext {
        account,
        writer: wrap.writer,
        epoch: wrap.epoch,
        recipient: wrap.recipient,
        membership: &postcard::to_stdvec(&membership).unwrap(),
    };
    let enc = wrap.enc;
    let key = unwrap(&Wrapped { enc, sealed }, &context, &phone, wrap.key_id).unwrap();
    Some((wrap.epoch, key))
}

fn signed(by: u8, head: &[u8], body: &[u8]) -> Vec<u8> {
    let message = [head, &sha2::Sha256::digest(body)].concat();
    [head, body, &keys(by).sign("bailey/env/v1\0", &message)].concat()
}

/// Header bytes changed, and the whole signed anew by the writer.
fn resigned(bytes: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut head = bytes[..HEADER_LEN].to_vec();
    change(&mut head);
    signed(LAPTOP, &head, &bytes[HEADER_LEN..bytes.len() - 64])
}

/// The body of a record: version, act, `seen` of none, a second signature, the act's.
fn record(act: u8, second: [u8; 64], rest: &impl Serialize) -> Vec<u8> {
    let mut body = vec![1, act, 0];
    body.extend_from_slice(&second);
    body.extend(postcard::to_stdvec(rest).unwrap());
    body
}

const UNSIGNED: [u8; 64] = [0; 64];

impl Story {
    fn bad_records(&self) -> Vec<Named> {
        let fields = self.fields(DocId::Account, 0x32);
        let by = |no: u8, body: &[u8]| {
            let mut fields = fields;
            fields.chain.writer = keys(no).id();
            sign_plain(&keys(no), fields, body).unwrap().bytes
        };
        let friend = keys(40).public();
        let weak_ed25519 = DevicePublic {
            ed25519: std::array::from_fn(|at| u8::from(at == 0)),
            ..friend
        };
        let weak_x25519 = DevicePublic {
            x25519: [0; 32],
            ..friend
        };
        let second_encoding = DevicePublic {
            x25519: std::array::from_fn(|at| match at {
                0 => 0xf6,
                31 => 0x7f,
                _ => 0xff,
            }),
            ..friend
        };
        let add = |device: DevicePublic| record(2, [7; 64], &(device, 4_u8));
        let role = record(3, UNSIGNED, &(keys(PHONE).id(), 4_u8));
        let overlong = [&[1, 3, 0x80, 0], &role[3..]].concat();
        let two = [keys(PHONE).id(), keys(LAPTOP).id()];
        let falling = [two.iter().max().unwrap(), two.iter().min().unwrap()];
        let other_genesis = record(
            1,
            [7; 64],
            &(friend, keys(LAPTOP).public(), 30_u16, [1_u8; 16]),
        );
        vec![
            named("record-of-nothing", by(LAPTOP, &[])),
            named(
                "record-of-version-2",
                by(LAPTOP, &[&[2], &role[1..]].concat()),
            ),
            named(
                "record-of-act-7",
                by(LAPTOP, &[&[1, 7], &role[2..]].concat()),
            ),
            named(
                "record-of-role-9",
                by(LAPTOP, &record(3, UNSIGNED, &(two[0], 9_u8))),
            ),
            named("record-cut", by(LAPTOP, &role[..role.len() - 1])),
            named("record-and-a-byte", by(LAPTOP, &[&role[..], &[0]].concat())),
            named("record-with-a-longer-number", by(LAPTOP, &overlong)),
            named(
                "record-signed-twice-for-nothing",
                by(LAPTOP, &record(3, [7; 64], &(two[0], 4_u8))),
            ),
            named("add-without-the-second-signature", by(LAPTOP, &add(friend))),
            named("add-of-a-weak-ed25519-key", by(LAPTOP, &add(weak_ed25519))),
            named("add-of-a-weak-x25519-key", by(LAPTOP, &add(weak_x25519))),
            named(
                "add-of-a-second-encoding",
                by(LAPTOP, &add(second_encoding)),
            ),
            named(
                "remove-out-of-order",
                by(LAPTOP, &record(4, UNSIGNED, &falling.to_vec())),
            ),
            named(
                "remove-of-nobody",
                by(LAPTOP, &record(4, UNSIGNED, &Vec::<DeviceId>::new())),
            ),
            named("genesis-of-another-account", by(LAPTOP, &other_genesis)),
            named("record-by-a-stranger", by(STRANGER, &role)),
            // Signed by a member: it is kept, and changes nothing.
            named("role-given-without-the-role", by(PHONE, &role)),
        ]
    }

    fn bad_key_records(&self) -> Vec<Named> {
        let fields = self.fields(DocId::Keys, 0x33);
        let by = |body: &[u8]| sign_plain(&keys(LAPTOP), fields, body).unwrap().bytes;
        let good = Verified::from_stored(&self.keys[0])
            .unwrap()
            .plain()
            .unwrap();
        let none: (Vec<Hash>, Vec<Wrap>) = (Vec::new(), Vec::new());
        let none = [&[1, 2][..], &postcard::to_stdvec(&none).unwrap()].concat();
        let forged = {
            let mut bytes = self.keys[0].clone();
            bytes[HEADER_LEN + 40] ^= 1;
            bytes
        };
        vec![
            named("keys-of-version-2", by(&[&[2], &good[1..]].concat())),
            named("keys-of-kind-9", by(&[&[1, 9], &good[2..]].concat())),
            named("keys-cut", by(&good[..good.len() - 1])),
            named("keys-and-a-byte", by(&[good, &[0]].concat())),
            named(
                "keys-with-a-longer-number",
                by(&[&none[..3], &[0x80, 0]].concat()),
            ),
            named("keys-changed-on-the-way", forged),
        ]
    }

    fn before_the_first(&self, of_reader: Incarnation) -> Vec<Named> {
        let first = &self.boxed[0][0];
        let header = peek(first).unwrap();
        let body = &first[HEADER_LEN..first.len() - 64];
        let by = |no: u8, fields: Fields| {
            let mut fields = fields;
            fields.chain.writer = keys(no).id();
            let key = self.epochs[0]
                .1
                .segment_key(fields.chain.doc, fields.segment);
            let sealed = seal(&keys(no), fields, 1, &key, b"x", [0x55; 24]).unwrap();
            sealed.bytes
        };
        let fields = self.fields(BOX, 0x34);
        let own = Fields {
            chain: ChainId {
                incarnation: of_reader,
                ..fields.chain
            },
            ..fields
        };
        let elsewhere = Fields {
            account: AccountId([0x11; 32]),
            ..fields
        };
        let flipped = |at: usize| {
            let mut bytes = first.clone();
            bytes[at] ^= 1;
            bytes
        };
        let padded_more = [
            &first[..first.len() - 64],
            &[0; 8],
            &first[first.len() - 64..],
        ]
        .concat();
        vec![
            named("second-before-the-first", self.boxed[0][1].clone()),
            named("nothing", Vec::new()),
            named("cut-to-its-header", first[..HEADER_LEN].to_vec()),
            named("cut-by-a-byte", first[..first.len() - 1].to_vec()),
            named("and-a-byte", [&first[..], &[0]].concat()),
            named("padded-on-the-way", padded_more),
            named("of-another-version", resigned(first, |head| head[4] = 2)),
            named("longer-than-may-be", {
                let longer = [0, 0x10, 0, 0, 0, 0x10, 0, 0];
                resigned(first, |head| head[226..234].copy_from_slice(&longer))
            }),
            named("of-another-account", by(LAPTOP, elsewhere)),
            named(
                "of-another-account-by-its-header",
                resigned(first, |head| head[9] ^= 1),
            ),
            named("by-a-stranger", by(STRANGER, fields)),
            named(
                "signed-by-another-member",
                signed(PHONE, &header.encode(), body),
            ),
            named("header-changed-on-the-way", flipped(133)),
            named("epoch-changed-on-the-way", flipped(169)),
            named("key-id-changed-on-the-way", flipped(180)),
            named("nonce-changed-on-the-way", flipped(210)),
            named("body-changed-on-the-way", flipped(HEADER_LEN + 5)),
            named("signature-changed-on-the-way", flipped(first.len() - 40)),
            named("in-the-readers-own-name", by(PHONE, own)),
            named(
                "of-what-stays-where-it-is",
                by(LAPTOP, self.fields(DocId::Here(BoxId([9; 16])), 0x34)),
            ),
            named(
                "heads-in-a-box",
                by(
                    LAPTOP,
                    Fields {
                        kind: Kind::Head,
                        ..fields
                    },
                ),
            ),
            named(
                "segment-0",
                by(
                    LAPTOP,
                    Fields {
                        segment: 0,
                        ..fields
                    },
                ),
            ),
            named(
                "segment-65537",
                by(
                    LAPTOP,
                    Fields {
                        segment: 65_537,
                        ..fields
                    },
                ),
            ),
            named("a-record-in-a-segment", {
                let record = self.fields(DocId::Keys, 0x34);
                let record = Fields {
                    segment: 1,
                    ..record
                };
                sign_plain(&keys(LAPTOP), record, &[1, 2, 0, 0])
                    .unwrap()
                    .bytes
            }),
        ]
    }

    /// What could follow the first of the box.
    fn after_the_first(&self) -> Vec<Named> {
        let (first, second) = (&self.boxed[0][0], &self.boxed[0][1]);
        let (at_first, at_second) = (peek(first).unwrap(), peek(second).unwrap());
        let skipped = Fields {
            seq: 3,
            ..at_second.fields
        };
        let other_past = Fields {
            prev: Hash([0x66; 32]),
            ..at_second.fields
        };
        vec![
            named("number-given-twice", self.sealed(at_first.fields, b"other")),
            named("number-skipped", self.sealed(skipped, b"x")),
            named("after-another-past", self.sealed(other_past, b"x")),
            named(
                "other-key-within-a-segment",
                self.sealed(at_second.fields, b"x"),
            ),
        ]
    }

    fn after_the_third(&self) -> Vec<Named> {
        let last = self.boxed[0].last().unwrap();
        let header = peek(last).unwrap();
        let next = Fields {
            seq: header.fields.seq + 1,
            prev: Hash(sha2::Sha256::digest(last).into()),
            ..header.fields
        };
        let back = Fields { segment: 1, ..next };
        vec![named("back-in-the-segment-before", self.sealed(back, b"x"))]
    }

    /// The number of an epoch says nothing: the key's name does.
    fn after_a_restart(&self) -> Vec<Named> {
        let (last, before) = self.boxed[1].split_last().unwrap();
        let header = peek(last).unwrap();
        let renumbered = self.sealed_anew(header.fields, header.epoch + 900, last);
        let mut all: Vec<Named> = (1..)
            .zip(before)
            .map(|(no, bytes)| (format!("after-a-restart-{no}"), bytes.clone()))
            .collect();
        all.push(named("under-a-number-of-no-epoch", renumbered));
        all
    }

    /// Its key is not here, or not as it is said.
    fn without_a_key(&self) -> Vec<Named> {
        let (real, claimed) = (
            EpochKey::generate([0x20; 32]),
            EpochKey::generate([0x21; 32]),
        );
        let under = |key: &EpochKey, no: u8| {
            let fields = self.fields(DocId::Box(BoxId([no; 16])), no);
            let key = key.segment_key(fields.chain.doc, 1);
            let sealed = seal(&keys(LAPTOP), fields, 70, &key, b"x", [0x55; 24]);
            sealed.unwrap().bytes
        };
        vec![
            named(
                "wrap-of-another-key-than-it-names",
                self.handed(0x36, 70, &real, claimed.id()),
            ),
            named("under-the-key-that-was-named", under(&claimed, 0x37)),
            named("under-the-key-that-was-wrapped", under(&real, 0x38)),
        ]
    }
}

fn deflated(bytes: &[u8]) -> Vec<u8> {
    use std::io::Read as _;
    let mut out = vec![1, 1];
    flate2::read::DeflateEncoder::new(bytes, flate2::Compression::best())
        .read_to_end(&mut out)
        .unwrap();
    out
}

impl Story {
    /// Signed by a member, in its place and bad inside; most in a chain of their own.
    fn aside(&self) -> Vec<Named> {
        let alone = |no: u8| self.fields(DocId::Box(BoxId([no; 16])), no);
        let first = &self.boxed[0][0];
        let of_first = self.body_of(first);
        let moved = {
            let header = peek(first).unwrap();
            let fields = alone(0x51);
            let head = bailey_envelope::Header { fields, ..header }.encode();
            signed(LAPTOP, &head, &first[HEADER_LEN..first.len() - 64])
        };
        let good = self.sealed(alone(0x52), &of_first);
        let renamed = {
            let key = EpochKey::generate([0x22; 32]);
            let key = key.segment_key(alone(0x53).chain.doc, 1);
            let sealed = seal(&keys(LAPTOP), alone(0x53), 1, &key, b"x", [0x55; 24]);
            let id = EpochKey::generate(OWN).id();
            resigned(&sealed.unwrap().bytes, |head| {
                head[170..202].copy_from_slice(&id.0)
            })
        };
        let inside = |no: u8, body: &[u8]| self.sealed(alone(no), body);
        let follows = {
            let fields = Fields {
                seq: 2,
                prev: Hash(sha2::Sha256::digest(inside(0x59, &of_first)).into()),
                ..alone(0x59)
            };
            self.sealed(fields, b"x")
        };
        let notice = peek(&self.notices[1]).unwrap().fields;
        vec![
            named("moved-to-another-box", moved),
            named(
                "other-nonce-than-it-was-sealed-with",
                resigned(&good, |head| head[210] ^= 1),
            ),
            named("other-key-than-it-was-sealed-with", renamed),
            named(
                "padding-that-says-something",
                self.with_dirty_padding(alone(0x54)),
            ),
            named("body-of-nothing", inside(0x55, b"")),
            named("body-of-version-9", inside(0x56, &[9, 0, 0])),
            named("body-of-codec-9", inside(0x57, &[1, 9, 0])),
            named(
                "body-that-inflates",
                inside(0x58, &deflated(&vec![0; 1024 * 1024 + 1])),
            ),
            named("body-of-another-actor", inside(0x59, &of_first)),
            named("after-one-set-aside", follows),
            named(
                "body-that-is-no-change",
                inside(0x5a, b"\x01\x00no change at all"),
            ),
            named(
                "body-that-does-not-inflate",
                inside(0x5b, &[1, 1, 0xff, 0xff]),
            ),
            named("first-notice", self.notices[0].clone()),
            named(
                "change-that-comes-again",
                self.sealed_anew(
                    notice,
                    peek(&self.notices[1]).unwrap().epoch,
                    &self.notices[0],
                ),
            ),
        ]
    }

    fn with_dirty_padding(&self, fields: Fields) -> Vec<u8> {
        use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
        let good = self.sealed(fields, b"a body");
        let head = &good[..HEADER_LEN];
        let place = [&fields.chain.doc.to_bytes()[..], &1_u32.to_be_bytes()].concat();
        let mut key = [0; 32];
        hkdf::Hkdf::<sha2::Sha256>::new(Some(b"bailey/segment/v1\0"), &OWN)
            .expand(&place, &mut key)
            .unwrap();
        let mut plain = b"a body".to_vec();
        plain.resize(64, 0x99);
        let cipher = chacha20poly1305::XChaCha20Poly1305::new((&key).into());
        let nonce = chacha20poly1305::XNonce::from([0x55; 24]);
        let body = cipher.encrypt(
            &nonce,
            Payload {
                msg: &plain,
                aad: head,
            },
        );
        signed(LAPTOP, head, &body.unwrap())
    }
}

impl Story {
    fn tombstones(&self) -> Vec<Named> {
        let good = Tombstone {
            account: self.account,
            chain: self.fields(DocId::Box(BoxId([0x61; 16])), 0x61).chain,
            signer: keys(LAPTOP).id(),
            segment: 2,
            first_seq: 1,
            prev: Hash::NONE,
            last_seq: 57,
            last: Hash([0x66; 32]),
            first_no: 1,
            last_no: 4100,
            from: Timestamp(NOW.0 - 1500 * HOUR),
            to: Timestamp(NOW.0 - 1490 * HOUR),
            hours: 720,
            epoch: 1,
            key_id: self.epochs[0].1.id(),
            made: Timestamp(NOW.0 - HOUR),
        };
        let by = |no: u8, it: Tombstone| it.sign(&keys(no)).unwrap();
        let bytes = by(LAPTOP, good);
        let flipped = {
            let mut bytes = bytes.clone();
            bytes[240] ^= 1;
            bytes
        };
        let strangers = Tombstone {
            signer: keys(STRANGER).id(),
            ..good
        };
        let of_a_stranger = Tombstone {
            chain: ChainId {
                writer: keys(STRANGER).id(),
                ..good.chain
            },
            ..good
        };
        let chain = |doc| ChainId { doc, ..good.chain };
        let of_the_account = Tombstone {
            chain: chain(DocId::Account),
            segment: 0,
            epoch: 0,
            key_id: KeyId([0; 32]),
            ..good
        };
        let of_another_account = Tombstone {
            account: AccountId([0x11; 32]),
            ..good
        };
        let early = Tombstone {
            to: Timestamp(NOW.0 - 10 * HOUR),
            ..good
        };
        let later = Tombstone {
            first_seq: 60,
            prev: Hash([0x66; 32]),
            last_seq: 61,
            ..good
        };
        let parting = Tombstone {
            first_seq: 58,
            prev: Hash([0x67; 32]),
            last_seq: 61,
            ..good
        };
        let shrunk = {
            let mut bytes = bytes.clone();
            bytes[226..234].fill(0);
            bytes
        };
        vec![
            named("tombstone-cut", bytes[..bytes.len() - 1].to_vec()),
            named("tombstone-and-a-byte", [&bytes[..], &[0]].concat()),
            named("tombstone-of-version-2", {
                let mut bytes = bytes.clone();
                bytes[4] = 2;
                bytes
            }),
            named("tombstone-of-fewer-than-none", shrunk),
            named("tombstone-changed-on-the-way", flipped),
            named("tombstone-by-a-stranger", by(STRANGER, strangers)),
            named("tombstone-of-a-strangers-chain", by(LAPTOP, of_a_stranger)),
            named(
                "tombstone-of-another-account",
                by(LAPTOP, of_another_account),
            ),
            named("tombstone-among-the-records", by(LAPTOP, of_the_account)),
            named("tombstone-before-its-time", by(LAPTOP, early)),
            named("tombstone-after-a-gap", by(LAPTOP, later)),
            named("tombstone", bytes.clone()),
            named("tombstone-again", bytes),
            named("tombstone-of-another-past", by(LAPTOP, parting)),
        ]
    }
}
