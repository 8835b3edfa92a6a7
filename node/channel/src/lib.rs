//! One frame a message over a Unix stream socket, with descriptors beside it.
//!
//! Format: length of the payload as u32 little endian, how many descriptors come
//! with it as one byte, then the payload
//! (postcard of a serde value). Descriptors (`SCM_RIGHTS`, unix(7)) travel
//! with the first byte of the frame that they belong to. Both ends are of one
//! build, so the payload carries no version.
//!
//! [`Channel`] blocks, for the launcher and the command line;
//! [`AsyncChannel`] (feature `tokio`) is cancel-safe in both directions;
//! [`PollChannel`] never waits, for the gate's own poll loop.

#[cfg(feature = "tokio")]
mod asynchronous;
mod frame;
mod nonblocking;
#[expect(
    unsafe_code,
    reason = "descriptors received by recvmsg are taken into ownership"
)]
mod sys;

#[cfg(feature = "tokio")]
pub use asynchronous::{AsyncChannel, Step};
pub use nonblocking::PollChannel;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use serde::Serialize;
use serde::de::DeserializeOwned;

use frame::Inbox;

/// Longest payload of one frame, in bytes.
pub const MAX_FRAME: usize = 1 << 20;
/// Most descriptors beside one frame (the kernel's own bound is 253).
pub const MAX_FDS: usize = 64;

/// What can go wrong on a channel.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The other end is gone. At a frame's edge it is a normal end.
    #[error("the other end closed the channel")]
    Closed,
    /// The socket failed.
    #[error("channel: {0}")]
    Io(#[from] io::Error),
    /// More bytes or descriptors than a frame may have.
    #[error("channel: a frame over its bound ({0})")]
    TooLarge(usize),
    /// The payload is not a value of the expected type.
    #[error("channel: bad payload: {0}")]
    Payload(#[from] postcard::Error),
}

/// A message and the descriptors that came with it.
#[derive(Debug)]
pub struct Message<T> {
    /// The value.
    pub value: T,
    /// The descriptors, close-on-exec, in the order sent.
    pub fds: VecDeque<OwnedFd>,
}

/// The blocking end of a channel.
#[derive(Debug)]
pub struct Channel {
    socket: UnixStream,
    inbox: Inbox,
}

impl Channel {
    /// Takes a connected stream socket.
    #[must_use]
    pub fn new(socket: UnixStream) -> Self {
        Self {
            socket,
            inbox: Inbox::default(),
        }
    }

    /// Two connected ends.
    ///
    /// # Errors
    /// When the kernel has no descriptors left.
    pub fn pair() -> Result<(UnixStream, UnixStream), ChannelError> {
        Ok(UnixStream::pair()?)
    }

    /// Sends one value with descriptors, all or an error.
    ///
    /// # Errors
    /// [`ChannelError::Closed`] when the other end is gone, or what failed.
    pub fn send<T: Serialize>(
        &mut self,
        value: &T,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), ChannelError> {
        let bytes = frame::encode(value, fds.len())?;
        let mut sent = 0;
        while sent < bytes.len() {
            let with = if sent == 0 { fds } else { &[] };
            match sys::send(
                self.socket.as_fd(),
                bytes.get(sent..).unwrap_or_default(),
                with,
            ) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(frame::closed_or(error)),
            }
        }
        Ok(())
    }

    /// Waits for one value.
    ///
    /// # Errors
    /// [`ChannelError::Closed`] when the other end is gone, or what failed.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Result<Message<T>, ChannelError> {
        loop {
            if let Some(message) = self.inbox.next()? {
                return Ok(message);
            }
            match sys::receive(self.socket.as_fd(), &mut self.inbox) {
                Ok(0) => return Err(ChannelError::Closed),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(frame::closed_or(error)),
            }
        }
    }

    /// A message that has arrived whole already, without reading the socket.
    ///
    /// # Errors
    /// When the bytes that arrived are not a frame.
    pub fn buffered<T: DeserializeOwned>(&mut self) -> Result<Option<Message<T>>, ChannelError> {
        self.inbox.next()
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Channel {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.socket.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};

    #[test]
    fn values_and_descriptors_arrive_together_and_in_order() {
        let (left, right) = Channel::pair().unwrap();
        let (mut left, mut right) = (Channel::new(left), Channel::new(right));
        let mut file = tempfile();
        file.write_all(b"inside").unwrap();
        file.rewind().unwrap();
        left.send(&("first", 1_u8), &[]).unwrap();
        left.send(&("second", 2_u8), &[file.as_fd()]).unwrap();
        left.send(&("third", 3_u8), &[]).unwrap();
        let first = right.receive::<(String, u8)>().unwrap();
        assert_eq!((first.value.1, first.fds.len()), (1, 0));
        let mut second = right.receive::<(String, u8)>().unwrap();
        assert_eq!(second.value, ("second".to_owned(), 2));
        let mut text = String::new();
        std::fs::File::from(second.fds.pop_front().unwrap())
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "inside");
        assert_eq!(right.receive::<(String, u8)>().unwrap().fds.len(), 0);
    }

    #[test]
    fn a_closed_end_is_closed_and_an_oversized_length_is_refused() {
        let (left, mut right) = Channel::pair().unwrap();
        let mut channel = Channel::new(left);
        right.write_all(&[255; 5]).unwrap();
        assert!(matches!(
            channel.receive::<u8>(),
            Err(ChannelError::TooLarge(_))
        ));
        let (left, right) = Channel::pair().unwrap();
        drop(right);
        let mut channel = Channel::new(left);
        assert!(matches!(channel.receive::<u8>(), Err(ChannelError::Closed)));
        assert!(matches!(
            channel.send(&1_u8, &[]),
            Err(ChannelError::Closed)
        ));
    }

    #[test]
    fn a_large_frame_passes_a_small_socket_buffer() {
        let (left, right) = Channel::pair().unwrap();
        let (mut left, mut right) = (Channel::new(left), Channel::new(right));
        let value = vec![7_u8; 900_000];
        let sent = value.clone();
        let sender = std::thread::spawn(move || left.send(&sent, &[]).unwrap());
        assert_eq!(right.receive::<Vec<u8>>().unwrap().value, value);
        sender.join().unwrap();
    }

    #[test]
    fn descriptors_stay_with_their_frame_when_frames_are_read_in_one_go() {
        let (left, right) = Channel::pair().unwrap();
        let (mut left, mut right) = (Channel::new(left), Channel::new(right));
        let (one, two) = (tempfile(), tempfile());
        left.send(&1_u8, &[one.as_fd()]).unwrap();
        left.send(&2_u8, &[]).unwrap();
        left.send(&3_u8, &[two.as_fd(), one.as_fd()]).unwrap();
        let counts: Vec<usize> = (0..3)
            .map(|_| right.receive::<u8>().unwrap().fds.len())
            .collect();
        assert_eq!(counts, [1, 0, 2]);
    }

    fn tempfile() -> std::fs::File {
        static LAST: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let no = LAST.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("bailey-channel-{}-{no}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file = std::fs::File::options()
            .create_new(true)
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }
}
