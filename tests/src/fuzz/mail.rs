//! A device that says anything to a mailbox, and a mailbox that says anything to a
//! device. Somebody with a code who says anything in the blobs of a pairing.

use std::time::Duration;

use bailey_envelope::{EpochKey, MailKey, PairWay, TopicId};
use bailey_session::mail::{
    MAX_MAIL_PAYLOAD, MailClient, MailClientEvent, MailServer, MailServerEvent, Refusal,
};
use bailey_session::pair::{Attempt, MAX_ATTEMPTS, PairSecret, Post, PostEvent};

/// More than any input here can lead to: a machine without rest fails.
const MAX_OUTPUTS: usize = 100_000;
/// How long a frame's length is.
const LENGTH: usize = 4;
const STORE: [u8; 16] = [5; 16];

fn key() -> MailKey {
    MailKey::of_epoch(&EpochKey::generate([2; 32]))
}

fn blob() -> Vec<u8> {
    key().seal(b"an envelope").unwrap_or_default()
}

/// The first octet says what the mailbox makes of puts and how fast time goes, the
/// second how many octets come at once; the rest is what the device says.
pub(super) fn mailbox(data: &[u8]) {
    let [choice, step, said @ ..] = data else {
        return;
    };
    let mut now = Duration::ZERO;
    let mut server = MailServer::new(STORE, now);
    for piece in said.chunks(usize::from(*step) + 1) {
        server.handle_bytes(now, piece);
        now += Duration::from_millis(u64::from(*choice) * 8);
        serve(&mut server, now, *choice);
    }
}

fn serve(server: &mut MailServer, now: Duration, choice: u8) {
    if server.poll_timeout().is_some_and(|due| due <= now) {
        server.handle_timeout(now);
    }
    let mut outputs = 0;
    loop {
        outputs += 1;
        assert!(outputs < MAX_OUTPUTS, "outputs without an end");
        if let Some(event) = server.poll_event() {
            match event {
                MailServerEvent::Put { put, topic, .. } if choice & 1 == 0 => {
                    server.handle_stored(put, topic, 7);
                    server.handle_grown(topic, 8);
                }
                MailServerEvent::Put { put, .. } => server.handle_refused(put, Refusal::Full),
                MailServerEvent::Follow { topic } => server.handle_grown(topic, 8),
                MailServerEvent::Read { topic, from } if choice & 2 == 0 => {
                    server.handle_read(topic, Some((from.max(7), blob())));
                }
                MailServerEvent::Read { topic, .. } => server.handle_read(topic, None),
                MailServerEvent::Unfollow { .. } | MailServerEvent::Closed(_) => {}
            }
        } else if let Some(frame) = server.poll_transmit(now) {
            assert!(frame.len() <= LENGTH + MAX_MAIL_PAYLOAD);
        } else {
            return;
        }
    }
}

/// The first octet says how fast time goes and what the device follows, the second
/// how many octets come at once; the rest is what the mailbox says.
pub(super) fn device(data: &[u8]) {
    let [choice, step, said @ ..] = data else {
        return;
    };
    let mut now = Duration::ZERO;
    let mut client = MailClient::new(now);
    let topic = key().topic();
    let mut next = u64::from(*choice & 7);
    client.follow(topic, next);
    client.put(1, topic, blob());
    for piece in said.chunks(usize::from(*step) + 1) {
        while client.poll_transmit(now).is_some() {}
        client.handle_bytes(now, piece);
        now += Duration::from_millis(u64::from(*choice) * 8);
        client.handle_timeout(now);
        while let Some(event) = client.poll_event() {
            if let MailClientEvent::Blob {
                topic: of, index, ..
            } = event
            {
                assert_eq!(of, topic, "a blob that nobody asked for");
                assert!(index >= next, "a blob twice");
                next = index + 1;
            }
        }
    }
}

/// What a device says.
pub(super) fn devices() -> Vec<Vec<u8>> {
    let topic = key().topic();
    let mut pool = Vec::new();
    for put in [false, true] {
        let mut client = MailClient::new(Duration::ZERO);
        let mut server = MailServer::new(STORE, Duration::ZERO);
        let mut said = vec![0, 200];
        if put {
            client.put(1, topic, blob());
        }
        client.follow(topic, 3);
        for round in 0..6 {
            if round == 4 {
                client.unfollow(topic);
            }
            while let Some(frame) = client.poll_transmit(Duration::ZERO) {
                said.extend(&frame);
                server.handle_bytes(Duration::ZERO, &frame);
            }
            serve_for(&mut server, &mut client, topic);
        }
        pool.push(said);
    }
    pool
}

/// What a mailbox says.
pub(super) fn mailboxes() -> Vec<Vec<u8>> {
    let topic = key().topic();
    let mut client = MailClient::new(Duration::ZERO);
    let mut server = MailServer::new(STORE, Duration::ZERO);
    let mut said = vec![3, 200];
    client.follow(topic, 3);
    client.put(1, topic, blob());
    for _ in 0..6 {
        while let Some(frame) = client.poll_transmit(Duration::ZERO) {
            server.handle_bytes(Duration::ZERO, &frame);
        }
        said.extend(serve_for(&mut server, &mut client, topic));
    }
    vec![said]
}

/// The secret of a code, and the key of its mailbox.
const PAIR: ([u8; 10], [u8; 32]) = ([6; 10], [7; 32]);

/// What blobs of a pairing hold, each behind its length in one octet and a half: a host
/// reads them, answers, and keeps the first attempt after a while.
pub(super) fn pieces(data: &[u8]) {
    let (secret, mailbox) = PAIR;
    let key = MailKey::of_pairing(&secret, &mailbox, PairWay::ToHost);
    let mut host = Post::host(PairSecret(secret), &mailbox);
    let (mut rest, mut index, mut now) = (data, 0, Duration::ZERO);
    let mut first: Option<Attempt> = None;
    while let Some(([high, low], tail)) = rest.split_first_chunk() {
        let length = usize::from(high & 0x0f) << 8 | usize::from(*low);
        let (content, tail) = tail.split_at(length.min(tail.len()));
        rest = tail;
        index += 1;
        now += Duration::from_millis(u64::from(high >> 4) * 100);
        host.handle_blob(index, &key.seal(content).unwrap_or_default());
        let mut open = 0;
        while let Some(event) = host.poll_event() {
            match event {
                PostEvent::Opened(attempt) => {
                    open += 1;
                    first.get_or_insert(attempt);
                    host.write(attempt, b"answer");
                }
                PostEvent::Bytes(_, bytes) => assert!(!bytes.is_empty()),
                PostEvent::Broken(..) => {}
                PostEvent::Closed => panic!("nobody tells a host so"),
            }
        }
        assert!(open <= MAX_ATTEMPTS);
        if index == 20 {
            host.keep(now, first);
        }
        let mut outputs = 0;
        while let Some((id, ..)) = host.poll_put(now) {
            outputs += 1;
            assert!(outputs < MAX_OUTPUTS, "outputs without an end");
            match low & 1 {
                0 => host.handle_stored(id),
                _ => host.handle_refused(now, id, Refusal::Full),
            }
        }
    }
}

/// Attempts as they are.
pub(super) fn attempts() -> Vec<Vec<u8>> {
    let piece = |kind: u8, attempt: u8, rest: &[u8]| {
        let content = [&b"BLP\x01"[..], &[kind], &[attempt; 16], rest].concat();
        let length = u16::try_from(content.len()).unwrap_or(0).to_be_bytes();
        [&length[..], &content].concat()
    };
    let numbered = |attempt, number: u8| piece(0, attempt, &[0, 0, 0, number, 0x16, 3, 1]);
    let in_order = (0..9).flat_map(|number| numbered(1, number)).collect();
    let many = (0..70).flat_map(|attempt| numbered(attempt, 0)).collect();
    let closed = [numbered(1, 0), piece(1, 1, &[]), piece(1, 0, &[])].concat();
    vec![in_order, many, closed]
}

/// Serves honestly, and hands over what is said.
fn serve_for(server: &mut MailServer, client: &mut MailClient, topic: TopicId) -> Vec<u8> {
    let mut said = Vec::new();
    loop {
        if let Some(event) = server.poll_event() {
            match event {
                MailServerEvent::Put { put, .. } => server.handle_stored(put, topic, 3),
                MailServerEvent::Follow { .. } => server.handle_grown(topic, 4),
                MailServerEvent::Read { .. } => server.handle_read(topic, Some((3, blob()))),
                MailServerEvent::Unfollow { .. } | MailServerEvent::Closed(_) => {}
            }
        } else if let Some(frame) = server.poll_transmit(Duration::ZERO) {
            client.handle_bytes(Duration::ZERO, &frame);
            said.extend(frame);
        } else {
            return said;
        }
    }
}
