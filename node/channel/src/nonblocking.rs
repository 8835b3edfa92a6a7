//! The end of a channel in a poll loop of its own.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::frame::{self, Inbox};
use crate::{ChannelError, Message, sys};

/// A channel that never waits: its owner polls the socket. It sends no
/// descriptors.
#[derive(Debug)]
pub struct PollChannel {
    socket: UnixStream,
    inbox: Inbox,
    outbox: VecDeque<u8>,
}

impl PollChannel {
    /// Takes a connected stream socket; it is made non-blocking.
    ///
    /// # Errors
    /// When the socket cannot be made non-blocking.
    pub fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            inbox: Inbox::default(),
            outbox: VecDeque::new(),
        })
    }

    /// Bytes queued and not yet sent; the caller bounds it.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.outbox.len()
    }

    /// Puts one frame behind those waiting.
    ///
    /// # Errors
    /// When the value is over a frame's bound.
    pub fn queue<T: Serialize>(&mut self, value: &T) -> Result<(), ChannelError> {
        self.outbox.extend(frame::encode(value, 0)?);
        Ok(())
    }

    /// Sends what the socket takes now; true if nothing is left.
    ///
    /// # Errors
    /// [`ChannelError::Closed`] when the other end is gone, or what failed.
    pub fn flush(&mut self) -> Result<bool, ChannelError> {
        loop {
            let (front, _) = self.outbox.as_slices();
            if front.is_empty() {
                return Ok(true);
            }
            match sys::send(self.socket.as_fd(), front, &[]) {
                Ok(count) => {
                    self.outbox.drain(..count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(frame::closed_or(error)),
            }
        }
    }

    /// The next value, if one has arrived whole.
    ///
    /// # Errors
    /// [`ChannelError::Closed`] when the other end is gone, or what failed.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Result<Option<Message<T>>, ChannelError> {
        loop {
            if let Some(message) = self.inbox.next()? {
                return Ok(Some(message));
            }
            match sys::receive(self.socket.as_fd(), &mut self.inbox) {
                Ok(0) => return Err(ChannelError::Closed),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(frame::closed_or(error)),
            }
        }
    }
}

impl AsFd for PollChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Channel;

    #[test]
    fn it_never_waits_and_tears_no_frame() {
        let (left, right) = Channel::pair().unwrap();
        let mut left = PollChannel::new(left).unwrap();
        let mut right = PollChannel::new(right).unwrap();
        assert!(right.receive::<Vec<u8>>().unwrap().is_none());
        left.queue(&vec![9_u8; 900_000]).unwrap();
        left.queue(&vec![1_u8]).unwrap();
        let mut lengths = Vec::new();
        while lengths.len() < 2 {
            left.flush().unwrap();
            while let Some(message) = right.receive::<Vec<u8>>().unwrap() {
                lengths.push(message.value.len());
            }
        }
        assert_eq!(lengths, [900_000, 1]);
        assert_eq!(left.queued_bytes(), 0);
        drop(left);
        assert!(matches!(
            right.receive::<Vec<u8>>(),
            Err(ChannelError::Closed)
        ));
    }
}
