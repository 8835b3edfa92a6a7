//! A real listener and a real device on loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bailey_envelope::{EpochKey, MailKey};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::*;

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const LIMIT: Duration = Duration::from_secs(20);
const STORE: [u8; 16] = [9; 16];

fn address(listener: &Listener) -> MailAddress {
    MailAddress {
        key: listener.key(),
        host: "127.0.0.1".to_owned(),
        port: listener.local_addr().port(),
    }
}

/// A mailbox of one connection that keeps the last blob.
async fn mailbox(mut listener: Listener) {
    while let Some(incoming) = listener.next().await {
        let (tell, mut told) = mpsc::channel(4);
        let line = incoming.start(tell, |event| event);
        let mut server = MailServer::new(STORE, Duration::ZERO);
        let mut kept = None;
        while let Some(event) = told.recv().await {
            if let LineEvent::Bytes(bytes) = &event {
                server.handle_bytes(Duration::ZERO, bytes);
            }
            while let Some(event) = server.poll_event() {
                match event {
                    MailServerEvent::Put { put, topic, blob } => {
                        kept = Some(blob);
                        server.handle_stored(put, topic, 0);
                    }
                    MailServerEvent::Follow { topic } => server.handle_grown(topic, 1),
                    MailServerEvent::Read { topic, .. } => {
                        server.handle_read(topic, kept.clone().map(|blob| (0, blob)));
                    }
                    _ => {}
                }
            }
            while let Some(room) = line.room() {
                let Some(frame) = server.poll_transmit(Duration::ZERO) else {
                    break;
                };
                room.send(frame);
            }
        }
    }
}

async fn next(events: &mut mpsc::Receiver<MailEvent>) -> MailEvent {
    timeout(LIMIT, events.recv())
        .await
        .expect("in time")
        .expect("an event")
}

#[tokio::test]
async fn a_device_puts_and_reads_back_over_quic() {
    let listener = Listener::bind(&[1; 32], LOOPBACK).unwrap();
    let address = address(&listener);
    tokio::spawn(mailbox(listener));
    let (commands, mut events) = MailDevice::start(address, &[2; 32]);
    let MailEvent::Up {
        connection, store, ..
    } = next(&mut events).await
    else {
        panic!("not up");
    };
    assert_eq!(store, STORE);
    let key = MailKey::of_epoch(&EpochKey::generate([3; 32]));
    let (topic, blob) = (key.topic(), key.seal(&[7; 100_000]).unwrap());
    let put = |connection| MailCommand::Put {
        connection,
        id: 5,
        topic,
        blob: blob.clone(),
    };
    // One that was meant for another connection is passed over.
    commands.send(put(connection + 1)).await.unwrap();
    commands.send(put(connection)).await.unwrap();
    assert_eq!(next(&mut events).await, MailEvent::Stored { id: 5 });
    let from = 0;
    let follow = MailCommand::Follow {
        connection,
        topic,
        from,
    };
    commands.send(follow).await.unwrap();
    let index = 0;
    assert_eq!(
        next(&mut events).await,
        MailEvent::Blob { topic, index, blob }
    );
    let next_index = 1;
    assert_eq!(
        next(&mut events).await,
        MailEvent::CaughtUp {
            topic,
            next: next_index
        }
    );
}

#[tokio::test]
async fn a_mailbox_with_another_key_is_no_mailbox() {
    let listener = Listener::bind(&[1; 32], LOOPBACK).unwrap();
    let mut address = address(&listener);
    address.key[0] ^= 1;
    tokio::spawn(mailbox(listener));
    let (_commands, mut events) = MailDevice::start(address, &[2; 32]);
    assert!(matches!(next(&mut events).await, MailEvent::Down { .. }));
    let more = timeout(Duration::from_secs(2), events.recv()).await;
    assert!(more.is_err(), "{more:?}");
}
