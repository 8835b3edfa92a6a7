//! Frames as bytes: pure, shared by both kinds of channel.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{ChannelError, MAX_FDS, MAX_FRAME, Message};

/// Bytes of the length and the count of descriptors before a payload.
const HEADER: usize = 5;

/// What has arrived and is not yet taken. A frame's descriptors come with its
/// first byte, so a queue in order of arrival keeps them with their frame: the
/// header says how many are its own.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    pub(crate) bytes: Vec<u8>,
    taken: usize,
    /// Whether a small read was once filled.
    pub(crate) busy: bool,
    pub(crate) fds: VecDeque<OwnedFd>,
}

impl Inbox {
    /// Takes the first whole frame out.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<Message<T>>, ChannelError> {
        let rest = self.bytes.get(self.taken..).unwrap_or_default();
        let Some((header, rest)) = rest.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let [a, b, c, d, fd_count] = *header;
        let len = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        let fd_count = usize::from(fd_count);
        if len > MAX_FRAME || fd_count > MAX_FDS {
            return Err(ChannelError::TooLarge(len));
        }
        let Some(payload) = rest.get(..len) else {
            return Ok(None);
        };
        if self.fds.len() < fd_count {
            return Err(ChannelError::TooLarge(fd_count));
        }
        let value = postcard::from_bytes(payload)?;
        let fds = self.fds.drain(..fd_count).collect();
        self.taken += HEADER + len;
        if self.taken == self.bytes.len() {
            self.bytes.clear();
            self.taken = 0;
        } else if self.taken > MAX_FRAME {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        Ok(Some(Message { value, fds }))
    }
}

pub(crate) fn encode<T: Serialize>(value: &T, fd_count: usize) -> Result<Vec<u8>, ChannelError> {
    let mut bytes = postcard::to_extend(value, vec![0; HEADER])?;
    let len = bytes.len() - HEADER;
    let (Ok(wire_len), Ok(wire_fds)) = (u32::try_from(len), u8::try_from(fd_count)) else {
        return Err(ChannelError::TooLarge(len));
    };
    if len > MAX_FRAME || fd_count > MAX_FDS {
        return Err(ChannelError::TooLarge(len));
    }
    let [a, b, c, d] = wire_len.to_le_bytes();
    if let Some(header) = bytes.first_chunk_mut::<HEADER>() {
        *header = [a, b, c, d, wire_fds];
    }
    Ok(bytes)
}

/// A broken pipe is a closed end, not a fault.
pub(crate) fn closed_or(error: io::Error) -> ChannelError {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => ChannelError::Closed,
        _ => ChannelError::Io(error),
    }
}
