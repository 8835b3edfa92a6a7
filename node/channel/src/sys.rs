//! The two system calls: sendmsg(2) and recvmsg(2).

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

use crate::MAX_FDS;
use crate::frame::Inbox;

/// Bytes read in one call at first: most frames are smaller, and each page of it is
/// one that a new process has to be given.
const LITTLE: usize = 4 << 10;
/// And of an inbox that was once filled by that.
const MUCH: usize = 64 << 10;

/// Sends what fits, without SIGPIPE.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &rights };
    let sent = sendmsg::<()>(
        socket.as_raw_fd(),
        &[IoSlice::new(bytes)],
        control,
        MsgFlags::MSG_NOSIGNAL,
        None,
    )?;
    Ok(sent)
}

/// Reads what is there into the inbox; 0 is the end.
pub(crate) fn receive(socket: BorrowedFd<'_>, inbox: &mut Inbox) -> io::Result<usize> {
    if inbox.busy {
        return receive_much(socket, inbox);
    }
    let count = receive_into(&mut [0; LITTLE], socket, inbox)?;
    inbox.busy = count == LITTLE;
    Ok(count)
}

// Its buffer is in a stack frame of its own, which small reads do not touch.
#[inline(never)]
fn receive_much(socket: BorrowedFd<'_>, inbox: &mut Inbox) -> io::Result<usize> {
    receive_into(&mut [0; MUCH], socket, inbox)
}

fn receive_into(chunk: &mut [u8], socket: BorrowedFd<'_>, inbox: &mut Inbox) -> io::Result<usize> {
    let mut control = nix::cmsg_space!([RawFd; MAX_FDS]);
    let (count, received, cut) = {
        let mut parts = [IoSliceMut::new(chunk)];
        let message = recvmsg::<()>(
            socket.as_raw_fd(),
            &mut parts,
            Some(&mut control),
            MsgFlags::MSG_CMSG_CLOEXEC,
        )?;
        let mut received: Vec<OwnedFd> = Vec::new();
        for part in message.cmsgs()? {
            let ControlMessageOwned::ScmRights(raw) = part else {
                continue;
            };
            // SAFETY: the kernel has just installed these descriptors for this
            // process, and nothing else knows their numbers.
            received.extend(
                raw.into_iter()
                    .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }),
            );
        }
        (
            message.bytes,
            received,
            message.flags.contains(MsgFlags::MSG_CTRUNC),
        )
    };
    inbox.fds.extend(received);
    if cut {
        return Err(io::Error::other("descriptors were cut off"));
    }
    inbox
        .bytes
        .extend_from_slice(chunk.get(..count).unwrap_or_default());
    Ok(count)
}
