//! Two stores with nothing between them but blobs.

use bailey_envelope::verify_blob;
use bailey_model::{Entry, Event, Gap};

use super::*;
use crate::ingest::Outcome;
use crate::testing::TempDir;
use crate::{DeviceKeys, OsEntropy, Role, Urgency};

const NOW: Timestamp = Timestamp(1_796_000_000_000);

struct Device {
    _dir: TempDir,
    store: Store,
}

impl Device {
    fn new(n: u8) -> Self {
        let dir = TempDir::new();
        let keys = DeviceKeys::generate([n; 64]);
        let store = Store::open(dir.path(), keys, NOW, Box::new(OsEntropy)).unwrap();
        Self { _dir: dir, store }
    }

    fn id(&self) -> DeviceId {
        self.store.device()
    }

    /// A device that was made a member of another's account, and has heard nothing
    /// since.
    fn joined(host: &mut Self, n: u8) -> Self {
        let mut device = Self::new(n);
        let keys = DeviceKeys::generate([n; 64]);
        let offer = host.store.offer_add(keys.public(), Role::Full).unwrap();
        let signature = offer.sign(&keys).unwrap();
        host.store.complete_add(&offer, signature, NOW).unwrap();
        let account = host.store.account().unwrap();
        let mut records = Vec::new();
        for head in host.store.heads() {
            if head.chain.doc == DocId::Account {
                records.extend(host.store.range(&head.chain, 1, 100, 1 << 20).unwrap());
            }
        }
        device.store.join(account, &records, NOW).unwrap();
        device
    }

    fn enter(&mut self, doc: DocId) {
        let gap = Event::Gap(Gap {
            reason: "a test".to_owned(),
        });
        self.store.append(doc, gap, NOW, Urgency::Normal).unwrap();
        self.store.commit(true).unwrap();
        self.store.seal_all(NOW).unwrap();
    }

    /// All that there is for another device, each blob with its topic.
    fn mail_for(&mut self, to: DeviceId) -> Vec<(TopicId, Vec<u8>)> {
        let week = week_of(NOW.0);
        let mut blobs = Vec::new();
        for head in self.store.heads() {
            let to = head.chain.doc.is_plain().then_some((to, week));
            let found = self
                .store
                .mail_range(&head.chain, 1, to, (1000, 1 << 20), NOW)
                .unwrap();
            assert_eq!(found.last().unwrap().upto, head.seq);
            blobs.extend(found.into_iter().filter_map(|mailed| mailed.blob));
        }
        blobs
    }

    /// Takes what lies in topics that it follows; how many of them it could read.
    fn take(&mut self, blobs: &[(TopicId, Vec<u8>)]) -> usize {
        let mut taken = 0;
        loop {
            let before = taken;
            let topics = self.store.mail_topics(NOW, 1000).unwrap();
            for (topic, blob) in blobs.iter().filter(|(topic, _)| topics.contains(topic)) {
                let Ok(MailTaken::Envelope { bytes, .. }) = self.store.mail_open(*topic, blob)
                else {
                    panic!("does not open");
                };
                if let Ok(ingested) = self.store.ingest(&bytes, NOW) {
                    taken += usize::from(ingested.outcome != Outcome::Duplicate);
                }
            }
            if taken == before {
                return taken;
            }
        }
    }

    fn entries(&self, doc: DocId) -> Vec<(DeviceId, Entry)> {
        let keys = self.store.keys.clone();
        let mut reader = crate::Reader::open(&self.store.dir, keys).unwrap();
        reader.entries(doc, None).unwrap()
    }
}

fn pair() -> (Device, Device) {
    let mut host = Device::new(1);
    host.store.create_account("host", NOW).unwrap();
    let other = Device::joined(&mut host, 2);
    (host, other)
}

#[test]
fn what_is_put_is_found_and_read_by_who_holds_the_keys() {
    let (mut host, mut other) = pair();
    host.enter(DocId::Notices);
    let blobs = host.mail_for(other.id());
    assert!(blobs.len() > 3);
    for (topic, blob) in &blobs {
        assert_eq!(verify_blob(blob), Ok(*topic));
    }
    assert!(other.take(&blobs) > 0);
    assert_eq!(other.entries(DocId::Notices).len(), 1);
    assert_eq!(other.entries(DocId::Notices), host.entries(DocId::Notices));
    // Whoever has it may put it too, and it is the same blob.
    let again = other.mail_for(host.id());
    let sealed = |blobs: &[(TopicId, Vec<u8>)]| -> Vec<Vec<u8>> {
        let own: Vec<_> = blobs.iter().map(|(_, blob)| blob.clone()).collect();
        own
    };
    let theirs = sealed(&again);
    assert!(sealed(&blobs).iter().any(|blob| theirs.contains(blob)));
}

#[test]
fn a_removed_device_finds_no_topic_of_what_comes_after() {
    let (mut host, mut other) = pair();
    let mut third = Device::joined(&mut host, 3);
    host.enter(DocId::Notices);
    let blobs = host.mail_for(third.id());
    assert!(third.take(&blobs) > 0);
    let blobs = host.mail_for(other.id());
    assert!(other.take(&blobs) > 0, "the control");
    host.store.remove(&[third.id()], NOW).unwrap();
    host.enter(DocId::Notices);
    let inbox = host.mail_for(third.id());
    let topics = third.store.mail_topics(NOW, 1000).unwrap();
    let seen: Vec<_> = inbox
        .iter()
        .filter(|(topic, _)| topics.contains(topic))
        .collect();
    assert!(!seen.is_empty(), "what it could read before it still finds");
    third.take(&inbox);
    assert_eq!(third.entries(DocId::Notices).len(), 1);
    let blobs = host.mail_for(other.id());
    assert!(other.take(&blobs) > 0);
    assert_eq!(other.entries(DocId::Notices).len(), 2, "the control");
    // The others do not look into what it could write to.
    let week = week_of(NOW.0);
    let from_third = |store: &Device| {
        let inbox = Inbox {
            account: store.store.account().unwrap(),
            from: third.id(),
            to: store.id(),
            week,
        };
        let public = third.store.keys.public();
        MailKey::of_inbox(&store.store.keys, &public, &inbox)
            .unwrap()
            .topic()
    };
    let topics = other.store.mail_topics(NOW, 1000).unwrap();
    assert!(!topics.contains(&from_third(&other)));
}

#[test]
fn a_device_that_was_away_for_weeks_finds_the_inboxes_of_then() {
    let (mut host, mut other) = pair();
    host.enter(DocId::Notices);
    let blobs = host.mail_for(other.id());
    let inboxes = |device: &mut Device, weeks: u64| {
        let later = Timestamp(NOW.0 + weeks * 7 * 24 * 3_600_000);
        let topics = device.store.mail_topics(later, 1000).unwrap();
        let place =
            |topic: &&TopicId| matches!(device.store.mail.topics[*topic].0, MailPlace::Inbox(_));
        let inboxes: Vec<TopicId> = topics.iter().filter(place).copied().collect();
        blobs
            .iter()
            .filter(|(topic, _)| inboxes.contains(topic))
            .count()
    };
    let now = inboxes(&mut other, 0);
    assert!(now > 2, "{now}");
    assert_eq!(inboxes(&mut other, WEEKS_BACK), now);
    assert_eq!(inboxes(&mut other, WEEKS_BACK + 1), 0);
}

#[test]
fn what_does_not_belong_into_a_topic_is_refused() {
    let (mut host, mut other) = pair();
    host.enter(DocId::Notices);
    let blobs = host.mail_for(other.id());
    other.take(&blobs);
    other.enter(DocId::Notices);
    let back = other.mail_for(host.id());
    host.take(&back);
    let topics = other.store.mail_topics(NOW, 1000).unwrap();
    let key = |device: &Device, topic: &TopicId| device.store.mail.topics[topic].clone();
    let place = |topic: &&TopicId| matches!(key(&other, topic).0, MailPlace::Inbox(_));
    let inbox = *topics.iter().find(place).unwrap();
    let sealed = *topics.iter().find(|topic| !place(topic)).unwrap();
    let envelope = |device: &Device, doc, own: bool| {
        let heads = device.store.heads();
        let of = |head: &&bailey_envelope::Head| {
            head.chain.doc == doc && (head.chain.writer == device.id()) == own
        };
        let head = heads.iter().find(of).unwrap();
        device
            .store
            .range(&head.chain, 1, 1, 1 << 20)
            .unwrap()
            .remove(0)
    };
    let judge = |topic: TopicId, bytes: &[u8]| {
        let blob = key(&other, &topic).1.seal(bytes).unwrap();
        other.store.mail_open(topic, &blob)
    };
    assert!(judge(sealed, &envelope(&host, DocId::Notices, true)).is_ok());
    assert!(judge(inbox, &envelope(&host, DocId::Keys, true)).is_ok());
    for (topic, bytes, what) in [
        (
            sealed,
            envelope(&other, DocId::Notices, true),
            "another writer's",
        ),
        (sealed, envelope(&host, DocId::Keys, true), "a record"),
        (
            inbox,
            envelope(&host, DocId::Notices, true),
            "what is sealed",
        ),
        (inbox, b"nothing".to_vec(), "no envelope"),
    ] {
        assert!(
            matches!(judge(topic, &bytes), Err(MailFault::Place(_))),
            "{what}"
        );
    }
    let (topic, mut blob) = blobs
        .iter()
        .find(|(topic, _)| *topic == sealed)
        .cloned()
        .unwrap();
    blob[100] ^= 1;
    assert!(matches!(
        other.store.mail_open(topic, &blob),
        Err(MailFault::Open(_))
    ));
    let stranger = TopicId([9; 32]);
    assert_eq!(
        other.store.mail_open(stranger, &blob),
        Err(MailFault::Topic)
    );
}

#[test]
fn a_word_on_heads_is_its_signers_and_lies_in_its_own_topic() {
    let (mut host, mut other) = pair();
    host.enter(DocId::Node);
    let blobs = host.mail_for(other.id());
    other.take(&blobs);
    let heads = host.store.heads();
    let (topic, blob) = host
        .store
        .mail_heads(heads.clone(), Vec::new(), NOW)
        .unwrap()
        .unwrap();
    let blobs = host.mail_for(other.id());
    other.take(&blobs);
    assert!(other.store.mail_topics(NOW, 1000).unwrap().contains(&topic));
    let word = match other.store.mail_open(topic, &blob) {
        Ok(MailTaken::Heads(word)) => word,
        found => panic!("{found:?}"),
    };
    assert_eq!((word.signer, &word.heads), (host.id(), &heads));
    // Another member knows the topic and cannot speak for its writer.
    let lie = Heads {
        signer: other.id(),
        ..word
    };
    let lie = lie.sign(&other.store.keys).unwrap();
    let blob = other.store.mail.topics[&topic].1.seal(&lie).unwrap();
    assert!(matches!(
        other.store.mail_open(topic, &blob),
        Err(MailFault::Heads(VerifyError::Writer { .. }))
    ));
}

#[test]
fn what_another_puts_under_a_writers_name_is_no_word_of_that_writer() {
    let (mut host, mut other) = pair();
    host.enter(DocId::Notices);
    let blobs = host.mail_for(other.id());
    other.take(&blobs);
    let topics = other.store.mail_topics(NOW, 1000).unwrap();
    let of_epoch =
        |topic: &&TopicId| matches!(other.store.mail.topics[*topic].0, MailPlace::Writer(_));
    let topic = *topics.iter().find(of_epoch).unwrap();
    let heads = host.store.heads();
    let head = heads.iter().find(|head| head.chain.doc == DocId::Notices);
    let mut bytes = host
        .store
        .range(&head.unwrap().chain, 1, 1, 1 << 20)
        .unwrap()
        .remove(0);
    // Its nonce is another, and the signature holds no more.
    bytes[210] ^= 1;
    let blob = other.store.mail.topics[&topic].1.seal(&bytes).unwrap();
    let Ok(MailTaken::Envelope { chain, bytes, .. }) = other.store.mail_open(topic, &blob) else {
        panic!("it does not open");
    };
    assert_eq!(chain, head.unwrap().chain);
    let refused = other.store.ingest(&bytes, NOW).unwrap_err();
    assert!(!refused.is_signed(), "{refused}");
    // The control: what the writer signed itself and is wrong.
    let fields = bailey_envelope::Fields {
        account: host.store.account().unwrap(),
        chain,
        kind: bailey_envelope::Kind::Tail,
        segment: 1,
        seq: 1,
        prev: bailey_envelope::Hash::NONE,
        before: None,
    };
    let key = EpochKey::generate([7; 32]).segment_key(chain.doc, 1);
    let signed = bailey_envelope::seal(&host.store.keys, fields, 1, &key, b"x", [0; 24]);
    let refused = other.store.ingest(&signed.unwrap().bytes, NOW).unwrap_err();
    assert!(refused.is_signed(), "{refused}");
}

#[test]
fn what_a_device_asks_may_lie_in_its_inbox_and_nobody_elses() {
    let (mut host, mut other) = pair();
    host.enter(DocId::Requests);
    let week = week_of(NOW.0);
    let blobs = host.mail_for(other.id());
    let records: Vec<_> = {
        let topics = other.store.mail_topics(NOW, 1000).unwrap();
        let known = blobs.iter().filter(|(topic, _)| topics.contains(topic));
        known.cloned().collect()
    };
    other.take(&records);
    let heads = host.store.heads();
    let head = heads.iter().find(|head| head.chain.doc == DocId::Requests);
    let chain = head.unwrap().chain;
    let most = (1000, 1 << 20);
    let asked = host
        .store
        .mail_range(&chain, 1, Some((other.id(), week)), most, NOW)
        .unwrap();
    let blobs: Vec<_> = asked.into_iter().filter_map(|mailed| mailed.blob).collect();
    assert_eq!(blobs.len(), 1);
    assert_eq!(other.entries(DocId::Requests).len(), 0);
    assert_eq!(other.take(&blobs), 1);
    assert_eq!(other.entries(DocId::Requests).len(), 1);
    // What it did not write goes there from nobody, and is taken from nobody.
    let none = other
        .store
        .mail_range(&chain, 1, Some((host.id(), week)), most, NOW)
        .unwrap();
    assert_eq!(none, []);
    let bytes = other.store.range(&chain, 1, 1, 1 << 20).unwrap().remove(0);
    let topics = host.store.mail_topics(NOW, 1000).unwrap();
    let of_other = |topic: &&TopicId| matches!(host.store.mail.topics[*topic].0, MailPlace::Inbox(from) if from == other.id());
    let topic = topics.iter().find(of_other).unwrap();
    let blob = host.store.mail.topics[topic].1.seal(&bytes).unwrap();
    assert!(matches!(
        host.store.mail_open(*topic, &blob),
        Err(MailFault::Place(_))
    ));
}
