//! Echo, discard and source: the servers of a stream's speed.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

use super::CHUNK;

/// Sends back what comes.
pub(super) fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = vec![0_u8; CHUNK];
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return stream.shutdown(Shutdown::Write);
        }
        stream.write_all(buffer.get(..count).unwrap_or_default())?;
    }
}

/// Reads to the end, then answers how many bytes there were, in decimal.
pub(super) fn discard(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = vec![0_u8; CHUNK];
    let mut total = 0_u64;
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return writeln!(stream, "{total}");
        }
        total = total.saturating_add(count.try_into().unwrap_or_default());
    }
}

/// Writes zeros until the reader leaves.
pub(super) fn source(mut stream: TcpStream) -> io::Result<()> {
    let buffer = vec![0_u8; CHUNK];
    loop {
        stream.write_all(&buffer)?;
    }
}
