//! The tokio end of a channel.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::frame::{self, Inbox};
use crate::{ChannelError, Message, sys};

/// What came of one [`AsyncChannel::step`].
#[derive(Debug)]
pub enum Step<T> {
    /// A value came.
    Message(Message<T>),
    /// What was queued has been sent.
    Flushed,
}

/// A channel on a tokio runtime.
///
/// Sending is in two steps, so that a `select!` loop can drop a half-done wait
/// without tearing a frame: [`queue`](Self::queue) never waits,
/// [`flush`](Self::flush) is cancel-safe, as is [`receive`](Self::receive).
#[derive(Debug)]
pub struct AsyncChannel {
    socket: UnixStream,
    inbox: Inbox,
    outbox: VecDeque<Outgoing>,
    queued_bytes: usize,
}

#[derive(Debug)]
struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
    fds: Vec<OwnedFd>,
}

impl AsyncChannel {
    /// Takes a connected stream socket; it is made non-blocking.
    ///
    /// # Errors
    /// When the socket cannot be registered with the runtime.
    pub fn new(socket: StdUnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self::from_tokio(UnixStream::from_std(socket)?))
    }

    /// Takes a socket that the runtime knows already.
    #[must_use]
    pub fn from_tokio(socket: UnixStream) -> Self {
        Self {
            socket,
            inbox: Inbox::default(),
            outbox: VecDeque::new(),
            queued_bytes: 0,
        }
    }

    /// The socket, for its peer's credentials.
    #[must_use]
    pub fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// Bytes queued and not yet sent; the caller bounds it.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Puts one frame behind those waiting.
    ///
    /// # Errors
    /// When the value is over a frame's bound.
    pub fn queue<T: Serialize>(
        &mut self,
        value: &T,
        fds: Vec<OwnedFd>,
    ) -> Result<(), ChannelError> {
        let bytes = frame::encode(value, fds.len())?;
        self.queued_bytes += bytes.len();
        self.outbox.push_back(Outgoing {
            bytes,
            sent: 0,
            fds,
        });
        Ok(())
    }

    /// Sends all that is queued; returns at once when nothing is. Cancel-safe.
    ///
    /// # Errors
    /// [`ChannelError::Closed`] when the other end is gone, or what failed.
    pub async fn flush(&mut self) -> Result<(), ChannelError> {
        while !self.outbox.is_empty() {
            self.socket.writable().await?;
            self.try_flush()?;
        }
        Ok(())
    }

    /// Sends what the socket takes now.
    fn try_flush(&mut self) -> Result<(), ChannelError> {
        while let Some(front) = self.outbox.front_mut() {
            let socket = &self.socket;
            let sent = socket.try_io(Interest::WRITABLE, || {
                let borrowed: Vec<_> = front.fds.iter().map(AsFd::as_fd).collect();
                let bytes = front.bytes.get(front.sent..).unwrap_or_default();
                sys::send(socket.as_fd(), bytes, &borrowed)
            });
            let count = match sent {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(frame::closed_or(error)),
            };
            front.sent += count;
            front.fds.clear();
            self.queued_bytes -= count;
            if front.sent == front.bytes.len() {
                self.outbox.pop_front();
            }
        }
        Ok(())
    }

    /// Queues one frame and sends all that is queued.
    ///
    /// # Errors
    /// As [`queue`](Self::queue) and [`flush`](Self::flush).
    pub async fn send<T: Serialize>(
        &mut self,
        value: &T,
        fds: Vec<OwnedFd>,
    ) -> Result<(), ChannelError> {
        self.queue(value, fds)?;
        self.flush().await
    }

    /// Waits for one value, and sends what is queued while it waits.
    /// Cancel-safe.
    ///
    /// # Errors
    /// [`ChannelError::Closed`] when the other end is gone, or what failed.
    pub async fn receive<T: DeserializeOwned>(&mut self) -> Result<Message<T>, ChannelError> {
        loop {
            if let Step::Message(message) = self.step().await? {
                return Ok(message);
            }
        }
    }

    /// As [`receive`](Self::receive), but comes back too when what was queued
    /// has been sent: a loop that stops queueing at a bound must hear of room.
    /// Cancel-safe.
    ///
    /// # Errors
    /// [`ChannelError::Closed`] when the other end is gone, or what failed.
    pub async fn step<T: DeserializeOwned>(&mut self) -> Result<Step<T>, ChannelError> {
        let had = !self.outbox.is_empty();
        self.try_flush()?;
        loop {
            if let Some(message) = self.inbox.next()? {
                return Ok(Step::Message(message));
            }
            if had && self.outbox.is_empty() {
                return Ok(Step::Flushed);
            }
            let interest = match self.outbox.is_empty() {
                true => Interest::READABLE,
                false => Interest::READABLE | Interest::WRITABLE,
            };
            let ready = self.socket.ready(interest).await?;
            if ready.is_writable() {
                self.try_flush()?;
            }
            if ready.is_readable() {
                self.read()?;
            }
        }
    }

    fn read(&mut self) -> Result<(), ChannelError> {
        let (socket, inbox) = (&self.socket, &mut self.inbox);
        match socket.try_io(Interest::READABLE, || sys::receive(socket.as_fd(), inbox)) {
            Ok(0) => Err(ChannelError::Closed),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(frame::closed_or(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Channel;

    #[tokio::test(flavor = "current_thread")]
    async fn frames_survive_a_wait_that_is_dropped_half_way() {
        let (left, right) = Channel::pair().unwrap();
        let mut left = AsyncChannel::new(left).unwrap();
        let mut right = AsyncChannel::new(right).unwrap();
        let big = vec![9_u8; 900_000];
        left.queue(&big, Vec::new()).unwrap();
        left.queue(
            &vec![1_u8],
            vec![std::io::stdin().as_fd().try_clone_to_owned().unwrap()],
        )
        .unwrap();
        let mut got = Vec::new();
        while got.len() < 2 {
            tokio::select! {
                biased;
                flushed = left.flush(), if left.queued_bytes() > 0 => flushed.unwrap(),
                message = right.receive::<Vec<u8>>() => {
                    let message = message.unwrap();
                    got.push((message.value.len(), message.fds.len()));
                }
            }
        }
        assert_eq!(got, [(900_000, 0), (1, 1)]);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn waiting_for_a_value_sends_what_is_queued() {
        let (left, right) = Channel::pair().unwrap();
        let mut left = AsyncChannel::new(left).unwrap();
        let mut right = AsyncChannel::new(right).unwrap();
        let big = vec![3_u8; 900_000];
        left.queue(&big, Vec::new()).unwrap();
        right.queue(&big, Vec::new()).unwrap();
        let (at_left, at_right) = tokio::join!(left.receive::<Vec<u8>>(), async {
            let got = right.receive::<Vec<u8>>().await.unwrap().value.len();
            right.flush().await.unwrap();
            got
        });
        assert_eq!(
            (at_left.unwrap().value.len(), at_right),
            (big.len(), big.len())
        );
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_loop_that_stops_queueing_at_a_bound_hears_of_room() {
        let (left, right) = Channel::pair().unwrap();
        let mut left = AsyncChannel::new(left).unwrap();
        let mut right = AsyncChannel::new(right).unwrap();
        let reader = tokio::spawn(async move {
            for _ in 0..100 {
                assert_eq!(
                    right.receive::<Vec<u8>>().await.unwrap().value.len(),
                    50_000
                );
            }
        });
        let mut queued = 0;
        while queued < 100 || left.queued_bytes() > 0 {
            if queued < 100 && left.queued_bytes() < 64_000 {
                left.queue(&vec![1_u8; 50_000], Vec::new()).unwrap();
                queued += 1;
                continue;
            }
            assert!(matches!(left.step::<u8>().await.unwrap(), Step::Flushed));
        }
        reader.await.unwrap();
    }
}
