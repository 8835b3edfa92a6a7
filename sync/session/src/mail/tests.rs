use std::collections::BTreeMap;

use bailey_envelope::{EpochKey, MailKey, TopicId};

use super::*;

const STORE: [u8; 16] = [5; 16];
const NOW: Duration = Duration::from_secs(100);

fn topic(n: u8) -> MailKey {
    MailKey::of_epoch(&EpochKey::generate([n; 32]))
}

fn blob(n: u8, text: &str) -> (TopicId, Vec<u8>) {
    let key = topic(n);
    (key.topic(), key.seal(text.as_bytes()).unwrap())
}

/// A mailbox of one connection: its blobs are numbered from 10 on.
struct Pair {
    client: MailClient,
    server: MailServer,
    kept: BTreeMap<TopicId, Vec<Vec<u8>>>,
    followed: Vec<TopicId>,
    refuse: Option<Refusal>,
    heard: Vec<MailClientEvent>,
    /// Whether reads are answered.
    reads: bool,
}

const FIRST: u64 = 10;

impl Pair {
    fn new() -> Self {
        Self {
            client: MailClient::new(NOW),
            server: MailServer::new(STORE, NOW),
            kept: BTreeMap::new(),
            followed: Vec::new(),
            refuse: None,
            heard: Vec::new(),
            reads: true,
        }
    }

    fn end(&self, topic: TopicId) -> u64 {
        FIRST + self.kept.get(&topic).map_or(0, |blobs| blobs.len() as u64)
    }

    /// Until neither has anything to say.
    fn settle(&mut self) {
        loop {
            let mut moved = false;
            while let Some(frame) = self.client.poll_transmit(NOW) {
                // As a stream cuts it.
                for piece in frame.chunks(700) {
                    self.server.handle_bytes(NOW, piece);
                }
                moved = true;
            }
            while let Some(event) = self.server.poll_event() {
                self.serve(event);
                moved = true;
            }
            while let Some(frame) = self.server.poll_transmit(NOW) {
                self.client.handle_bytes(NOW, &frame);
                moved = true;
            }
            while let Some(event) = self.client.poll_event() {
                self.heard.push(event);
                moved = true;
            }
            if !moved {
                return;
            }
        }
    }

    fn serve(&mut self, event: MailServerEvent) {
        match event {
            MailServerEvent::Put { put, topic, blob } => match self.refuse {
                Some(refusal) => self.server.handle_refused(put, refusal),
                None => {
                    let index = self.end(topic);
                    self.kept.entry(topic).or_default().push(blob);
                    self.server.handle_stored(put, topic, index);
                    if self.followed.contains(&topic) {
                        self.server.handle_grown(topic, index + 1);
                    }
                }
            },
            MailServerEvent::Follow { topic } => {
                self.followed.push(topic);
                self.server.handle_grown(topic, self.end(topic));
            }
            MailServerEvent::Unfollow { topic } => self.followed.retain(|other| *other != topic),
            MailServerEvent::Read { topic, from } if self.reads => {
                let at = from.max(FIRST);
                let found = self
                    .kept
                    .get(&topic)
                    .and_then(|blobs| blobs.get(usize::try_from(at - FIRST).unwrap()));
                self.server
                    .handle_read(topic, found.map(|blob| (at, blob.clone())));
            }
            MailServerEvent::Read { .. } | MailServerEvent::Closed(_) => {}
        }
    }

    fn take(&mut self) -> Vec<MailClientEvent> {
        std::mem::take(&mut self.heard)
    }
}

#[test]
fn what_is_put_is_told_to_who_follows_from_where_it_was() {
    let mut pair = Pair::new();
    let blobs: Vec<_> = ["a", "b", "c"].map(|text| blob(1, text)).into();
    let topic = blobs[0].0;
    for (id, (topic, blob)) in (0..).zip(&blobs[..2]) {
        assert!(pair.client.put(id, *topic, blob.clone()));
    }
    pair.settle();
    let up = MailClientEvent::Up { store: STORE };
    let stored = |id| MailClientEvent::Stored { id };
    assert_eq!(pair.take(), [up, stored(0), stored(1)]);
    assert!(pair.client.follow(topic, FIRST + 1));
    pair.settle();
    let told = |index: u64| MailClientEvent::Blob {
        topic,
        index,
        blob: blobs[usize::try_from(index - FIRST).unwrap()].1.clone(),
    };
    let caught_up = MailClientEvent::CaughtUp {
        topic,
        next: FIRST + 2,
    };
    assert_eq!(pair.take(), [told(FIRST + 1), caught_up]);
    assert!(pair.client.put(2, topic, blobs[2].1.clone()));
    pair.settle();
    assert_eq!(pair.take(), [stored(2), told(FIRST + 2)]);
    pair.client.unfollow(topic);
    pair.settle();
    assert!(pair.client.put(3, topic, blobs[0].1.clone()));
    pair.settle();
    assert_eq!(pair.take(), [stored(3)]);
    assert!(pair.client.follow(topic, 0));
    pair.settle();
    assert_eq!(pair.take().len(), 5, "from the first that there is");
}

#[test]
fn a_topic_is_followed_anew_from_an_earlier_index() {
    let mut pair = Pair::new();
    let blobs: Vec<_> = ["a", "b"].map(|text| blob(1, text)).into();
    let topic = blobs[0].0;
    for (id, (topic, blob)) in (0..).zip(&blobs) {
        assert!(pair.client.put(id, *topic, blob.clone()));
    }
    assert!(pair.client.follow(topic, FIRST + 1));
    pair.settle();
    let _once = pair.take();
    pair.client.unfollow(topic);
    assert!(pair.client.follow(topic, FIRST), "before it is dropped");
    pair.settle();
    let indices: Vec<u64> = pair
        .take()
        .into_iter()
        .filter_map(|event| match event {
            MailClientEvent::Blob { index, .. } => Some(index),
            _ => None,
        })
        .collect();
    assert_eq!(indices, [FIRST, FIRST + 1]);
    pair.client.unfollow(topic);
    assert!(pair.client.follow(topic, FIRST));
    pair.client.unfollow(topic);
    pair.settle();
    assert_eq!(pair.take(), [], "the last word counts");
}

#[test]
fn refusals_come_in_the_order_of_puts() {
    let mut pair = Pair::new();
    let (topic, good) = blob(1, "a");
    let mut bad = good.clone();
    bad[500] ^= 1;
    assert!(pair.client.put(0, topic, good.clone()));
    assert!(pair.client.put(1, topic, bad));
    assert!(pair.client.put(2, topic, good.clone()));
    pair.settle();
    pair.refuse = Some(Refusal::Full);
    assert!(pair.client.put(3, topic, good));
    pair.settle();
    let refused = |id, refusal| MailClientEvent::Refused { id, refusal };
    assert_eq!(
        pair.take()[1..],
        [
            MailClientEvent::Stored { id: 0 },
            refused(1, Refusal::Signature),
            MailClientEvent::Stored { id: 2 },
            refused(3, Refusal::Full),
        ]
    );
}

#[test]
fn answers_wait_for_those_before_whatever_is_done_first() {
    let mut server = open_server();
    let (topic, bytes) = blob(1, "a");
    for _ in 0..3 {
        let blob = crate::wire::Blob(bytes.clone());
        server.handle_bytes(NOW, &client_frame(&wire::FromDevice::Put { blob }));
    }
    server.handle_stored(3, topic, 7);
    server.handle_refused(2, Refusal::Full);
    assert_eq!(server.poll_transmit(NOW), None);
    server.handle_stored(1, topic, 6);
    let stored = |index| {
        let topic = topic.0;
        server_frame(&wire::FromMailbox::Stored { topic, index })
    };
    assert_eq!(server.poll_transmit(NOW), Some(stored(6)));
    let refused = server_frame(&wire::FromMailbox::Refused(Refusal::Full.code()));
    assert_eq!(server.poll_transmit(NOW), Some(refused));
    assert_eq!(server.poll_transmit(NOW), Some(stored(7)));
}

#[test]
fn nothing_is_said_before_a_hello() {
    let mut server = MailServer::new(STORE, NOW);
    assert_eq!(server.poll_transmit(NOW), None);
    let frame = client_frame(&wire::FromDevice::Follow {
        topic: [1; 32],
        from: 0,
    });
    server.handle_bytes(NOW, &frame);
    assert_eq!(
        server.poll_event(),
        Some(MailServerEvent::Closed(crate::CloseReason::Ours(
            ByeReason::Protocol
        )))
    );
}

fn client_frame(frame: &wire::FromDevice) -> Vec<u8> {
    crate::wire::encode(frame, MAX_MAIL_PAYLOAD).unwrap()
}

fn server_frame(frame: &wire::FromMailbox) -> Vec<u8> {
    crate::wire::encode(frame, MAX_MAIL_PAYLOAD).unwrap()
}

fn open_server() -> MailServer {
    let mut server = MailServer::new(STORE, NOW);
    let version = MAIL_VERSION;
    server.handle_bytes(NOW, &client_frame(&wire::FromDevice::Hello { version }));
    assert!(server.poll_transmit(NOW).is_some());
    server
}

fn open_client() -> MailClient {
    let mut client = MailClient::new(NOW);
    assert!(client.poll_transmit(NOW).is_some());
    let (version, store) = (MAIL_VERSION, STORE);
    client.handle_bytes(
        NOW,
        &server_frame(&wire::FromMailbox::Welcome { version, store }),
    );
    assert_eq!(client.poll_event(), Some(MailClientEvent::Up { store }));
    client
}

#[test]
fn a_device_that_asks_for_too_much_is_closed() {
    let mut server = open_server();
    for n in 0..=MAX_FOLLOWS {
        let mut topic = [0; 32];
        topic[..8].copy_from_slice(&n.to_be_bytes());
        let from = 0;
        server.handle_bytes(
            NOW,
            &client_frame(&wire::FromDevice::Follow { topic, from }),
        );
        assert_eq!(server.is_closed(), n == MAX_FOLLOWS, "{n}");
    }
    let mut server = open_server();
    let put = client_frame(&wire::FromDevice::Put {
        blob: crate::wire::Blob(blob(1, "a").1),
    });
    for n in 0..=MAX_PUTS {
        server.handle_bytes(NOW, &put);
        assert_eq!(server.is_closed(), n == MAX_PUTS, "{n}");
    }
    let mut server = open_server();
    let alive = client_frame(&wire::FromDevice::Alive);
    (0..=MAIL_BURST).for_each(|_| server.handle_bytes(NOW, &alive));
    assert!(server.is_closed(), "frames that nobody asked for");
    let mut server = open_server();
    for _ in 0..2 {
        let (topic, from) = ([1; 32], 0);
        server.handle_bytes(
            NOW,
            &client_frame(&wire::FromDevice::Follow { topic, from }),
        );
    }
    assert!(server.is_closed(), "a topic twice");
    let mut server = open_server();
    server.handle_bytes(NOW, &u32::MAX.to_le_bytes());
    assert!(server.is_closed(), "a frame over its bound");
}

#[test]
fn one_blob_is_read_at_a_time_however_much_is_followed() {
    let mut pair = Pair::new();
    pair.reads = false;
    for n in 0..3 {
        let (topic, bytes) = blob(n, "a");
        pair.kept.insert(topic, vec![bytes; 5]);
        assert!(pair.client.follow(topic, 0));
    }
    while let Some(frame) = pair.client.poll_transmit(NOW) {
        pair.server.handle_bytes(NOW, &frame);
        while let Some(frame) = pair.server.poll_transmit(NOW) {
            pair.client.handle_bytes(NOW, &frame);
        }
    }
    let mut reads = 0;
    while let Some(event) = pair.server.poll_event() {
        reads += usize::from(matches!(event, MailServerEvent::Read { .. }));
        pair.serve(event);
    }
    assert_eq!(reads, 1);
}

#[test]
fn a_mailbox_that_says_what_nobody_asked_for_is_left() {
    let (known, bytes) = blob(1, "a");
    let frame = |index: u64, topic: TopicId, bytes: &[u8]| {
        server_frame(&wire::FromMailbox::Blob {
            topic: topic.0,
            index,
            blob: crate::wire::Blob(bytes.to_vec()),
        })
    };
    let stored = server_frame(&wire::FromMailbox::Stored {
        topic: known.0,
        index: 1,
    });
    let dropped = server_frame(&wire::FromMailbox::Dropped { topic: known.0 });
    let caught_up = server_frame(&wire::FromMailbox::CaughtUp {
        topic: known.0,
        next: 9,
    });
    let version = MAIL_VERSION;
    let welcome = server_frame(&wire::FromMailbox::Welcome {
        version,
        store: STORE,
    });
    let cases: [(&str, Vec<Vec<u8>>); 8] = [
        ("another topic", vec![frame(7, blob(2, "a").0, &bytes)]),
        ("before what was asked for", vec![frame(6, known, &bytes)]),
        (
            "the same index again",
            vec![frame(7, known, &bytes), frame(7, known, &bytes)],
        ),
        ("a size that no blob has", vec![frame(7, known, b"abc")]),
        ("an answer to no put", vec![stored]),
        ("an end that was not asked for", vec![dropped]),
        ("caught up twice", vec![caught_up.clone(), caught_up]),
        ("welcome twice", vec![welcome]),
    ];
    for (what, frames) in cases {
        let mut client = open_client();
        assert!(client.follow(known, 7));
        assert!(client.poll_transmit(NOW).is_some());
        for (at, frame) in frames.iter().enumerate() {
            assert!(!client.is_closed(), "{what}: at {at}");
            client.handle_bytes(NOW, frame);
        }
        assert!(client.is_closed(), "{what}");
    }
}

#[test]
fn silence_ends_a_connection_and_a_word_in_time_keeps_it() {
    let mut client = MailClient::new(NOW);
    assert_eq!(client.poll_timeout(), Some(NOW + crate::HELLO_TIMEOUT));
    client.handle_timeout(NOW + crate::HELLO_TIMEOUT);
    assert!(client.is_closed());

    let (mut client, mut server) = (open_client(), open_server());
    let mut now = NOW;
    for _ in 0..20 {
        now += crate::KEEP_ALIVE;
        client.handle_timeout(now);
        server.handle_timeout(now);
        let frame = client.poll_transmit(now).expect("alive");
        server.handle_bytes(now, &frame);
        let frame = server.poll_transmit(now).expect("alive");
        client.handle_bytes(now, &frame);
    }
    assert!(!client.is_closed() && !server.is_closed());
    server.handle_timeout(now + crate::SILENCE);
    assert!(server.is_closed());

    let mut client = open_client();
    let (topic, bytes) = blob(1, "a");
    assert!(client.put(1, topic, bytes));
    assert!(client.poll_transmit(NOW).is_some());
    let alive = server_frame(&wire::FromMailbox::Alive);
    client.handle_bytes(NOW + PUT_TIMEOUT, &alive);
    client.handle_timeout(NOW + PUT_TIMEOUT);
    assert!(client.is_closed(), "a put that is never answered");
}

#[test]
fn refusals_keep_their_numbers() {
    for code in 0..=255 {
        assert_eq!(Refusal::from_code(code).code(), code);
        assert!(!Refusal::from_code(code).to_string().is_empty());
    }
}
