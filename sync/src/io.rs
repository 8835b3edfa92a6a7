//! The two tasks of a connection: one reads its stream, one writes it.

use std::time::Duration;

use bytes::Bytes;
use quinn::{Connection, RecvStream, SendStream, VarInt};
use tokio::sync::mpsc;

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
    frames: mpsc::Sender<Vec<u8>>,
    connection: Connection,
}

impl Writer {
    /// Room for one frame, if there is: what is chosen later is more urgent.
    #[must_use]
    pub fn room(&self) -> Option<mpsc::Permit<'_, Vec<u8>>> {
        self.frames.try_reserve().ok()
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
    let (frames, waiting) = mpsc::channel(1);
    tokio::spawn(write(
        connection.clone(),
        send,
        waiting,
        tell.clone(),
        tag.clone(),
    ));
    tokio::spawn(read(connection.clone(), recv, tell, tag));
    Writer { frames, connection }
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
    mut frames: mpsc::Receiver<Vec<u8>>,
    tell: mpsc::Sender<T>,
    tag: impl Fn(IoEvent) -> T + Send + Sync,
) {
    while let Some(frame) = frames.recv().await {
        // The reader tells of a connection that fails.
        if send.write_all(&frame).await.is_err() || tell.send(tag(IoEvent::Written)).await.is_err()
        {
            break;
        }
    }
    if send.finish().is_ok() {
        let _ = tokio::time::timeout(FLUSH, send.stopped()).await;
    }
    connection.close(code::LEAVING, b"");
}
