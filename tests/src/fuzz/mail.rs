//! A device that says anything to a mailbox, and a mailbox that says anything to a
//! device.

use std::time::Duration;

use bailey_envelope::{EpochKey, MailKey, TopicId};
use bailey_session::mail::{
    MAX_MAIL_PAYLOAD, MailClient, MailClientEvent, MailServer, MailServerEvent, Refusal,
};

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
