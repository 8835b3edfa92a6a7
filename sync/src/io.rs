//! The two tasks of a connection: one reads its stream, one writes it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use quinn::{Connection, RecvStream, SendStream, VarInt};
use tokio::sync::{Notify, mpsc};

/// Most bytes of one piece.
const PIECE: usize = 64 * 1024;
/// How long the last frame may take to arrive before the connection is closed.
const FLUSH: Duration = Duration::from_millis(500);

/// Codes of a connection's end.
pub(crate) mod code {
    use quinn::VarInt;

    pub(crate) const LEAVING: VarInt = VarInt::from_u32(0);
    pub(crate) const NOT_MEMBER: VarInt = VarInt::from_u32(1);
    pub(crate) const DUPLICATE: VarInt = VarInt::from_u32(2);
    pub(crate) const REFUSED: VarInt = VarInt::from_u32(3);
}

/// What the tasks of a connection tell its owner.
#[derive(Debug)]
pub enum IoEvent {
    /// Bytes of the stream, in order.
    Bytes(Bytes),
    /// The writer can take another frame.
    Written,
    /// Nothing more comes.
    Gone(String),
}

/// The writing end. Dropping it sends what was given, then closes the
/// connection.
#[derive(Debug)]
pub struct Writer {
    slot: Arc<Slot>,
    connection: Connection,
}

/// Where one frame waits for its writer. A channel of one is two kilobytes, which a
/// mailbox has thousands of times.
#[derive(Debug, Default)]
struct Slot {
    place: Mutex<Place>,
    turned: Notify,
}

#[derive(Debug, Default)]
struct Place {
    frame: Option<Vec<u8>>,
    /// A [`Room`] is out.
    taken: bool,
    /// One of the two ends is gone.
    over: bool,
}

impl Slot {
    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room, unless a frame waits, room is out already, or an end is gone.
    fn room(&self) -> Option<Room<'_>> {
        let mut place = self.place();
        let free = !place.over && !place.taken && place.frame.is_none();
        place.taken |= free;
        free.then(|| Room(self))
    }

    /// Nothing more is put here.
    fn end(&self) {
        self.place().over = true;
        self.turned.notify_one();
    }

    /// The next frame; `None` once the owner is gone and all is taken.
    async fn next(&self) -> Option<Vec<u8>> {
        loop {
            {
                let mut place = self.place();
                if place.frame.is_some() || place.over {
                    return place.frame.take();
                }
            }
            // A turn that came meanwhile is kept.
            self.turned.notified().await;
        }
    }
}

/// Room for one frame, which is given back if nothing is sent.
#[derive(Debug)]
pub struct Room<'a>(&'a Slot);

impl Room<'_> {
    /// Hands the frame to the writer.
    pub fn send(self, frame: Vec<u8>) {
        self.0.place().frame = Some(frame);
        self.0.turned.notify_one();
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.0.place().taken = false;
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.slot.end();
    }
}

impl Writer {
    /// Room for one frame, if there is: what is chosen later is more urgent.
    #[must_use]
    pub fn room(&self) -> Option<Room<'_>> {
        self.slot.room()
    }

    /// Closes at once; what was not sent is lost.
    pub(crate) fn close_now(self, code: VarInt, reason: &str) {
        self.connection.close(code, reason.as_bytes());
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }
}

/// Starts both tasks. `tag` marks what they tell.
pub(crate) fn start<T: Send + 'static>(
    connection: Connection,
    send: SendStream,
    recv: RecvStream,
    tell: mpsc::Sender<T>,
    tag: impl Fn(IoEvent) -> T + Clone + Send + Sync + 'static,
) -> Writer {
    let slot = Arc::new(Slot::default());
    tokio::spawn(write(
        connection.clone(),
        send,
        slot.clone(),
        tell.clone(),
        tag.clone(),
    ));
    tokio::spawn(read(connection.clone(), recv, tell, tag));
    Writer { slot, connection }
}

async fn read<T: Send>(
    connection: Connection,
    mut recv: RecvStream,
    tell: mpsc::Sender<T>,
    tag: impl Fn(IoEvent) -> T + Send + Sync,
) {
    let why = loop {
        match recv.read_chunk(PIECE, true).await {
            Ok(Some(chunk)) => {
                if tell.send(tag(IoEvent::Bytes(chunk.bytes))).await.is_err() {
                    return;
                }
            }
            Ok(None) => break "the stream ended".to_owned(),
            Err(error) => match connection.close_reason() {
                Some(reason) => break reason.to_string(),
                None => break error.to_string(),
            },
        }
    };
    // Nobody is left to hear it when the owner is gone; that is its end too.
    let _ = tell.send(tag(IoEvent::Gone(why))).await;
}

async fn write<T: Send>(
    connection: Connection,
    mut send: SendStream,
    slot: Arc<Slot>,
    tell: mpsc::Sender<T>,
    tag: impl Fn(IoEvent) -> T + Send + Sync,
) {
    while let Some(frame) = slot.next().await {
        // The reader tells of a connection that fails.
        if send.write_all(&frame).await.is_err() || tell.send(tag(IoEvent::Written)).await.is_err()
        {
            break;
        }
    }
    slot.end();
    if send.finish().is_ok() {
        let _ = tokio::time::timeout(FLUSH, send.stopped()).await;
    }
    connection.close(code::LEAVING, b"");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_frame_waits_at_a_time_and_the_last_one_goes_out() {
        let slot = Arc::new(Slot::default());
        let other = slot.clone();
        let reader = tokio::spawn(async move {
            let mut all = Vec::new();
            while let Some(frame) = other.next().await {
                all.push(frame);
                // Whoever waits for room is told by another way.
                tokio::task::yield_now().await;
            }
            all
        });
        for byte in 0..9 {
            let room = loop {
                match slot.room() {
                    Some(room) => break room,
                    None => tokio::task::yield_now().await,
                }
            };
            assert!(slot.room().is_none(), "one is out");
            room.send(vec![byte]);
        }
        slot.end();
        assert!(slot.room().is_none());
        let all = reader.await.unwrap();
        assert_eq!(all, (0..9).map(|byte| vec![byte]).collect::<Vec<_>>());
    }

    #[test]
    fn room_that_is_not_used_is_there_again() {
        let slot = Slot::default();
        let room = slot.room();
        assert!(room.is_some() && slot.room().is_none());
        drop(room);
        assert!(slot.room().is_some());
    }
}
