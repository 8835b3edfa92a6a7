//! The records of TLS that a ClientHello comes in (RFC 8446 §5.1).

use super::hello;
use super::{MAX_HELLO, Read, Spoken};

const HEAD: usize = 5;
const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
/// Every version since SSL 3.0 has this major number; the minor one is ignored.
const MAJOR: u8 = 3;
/// Most bytes in one record.
const MAX_RECORD: usize = 1 << 14;

/// Reads a stream's beginning.
pub(super) fn read(stream: &[u8]) -> Read {
    match begins(stream) {
        Begins::Tls => {}
        Begins::Perhaps => return Read::More(stream.len() + 1),
        Begins::Otherwise => return Read::Done(Spoken::Other),
    }
    let (mut message, mut rest) = (Vec::new(), stream);
    loop {
        let Some((&[kind, major, _, high, low], body)) = rest.split_first_chunk::<HEAD>() else {
            return more(stream, stream.len() - rest.len() + HEAD);
        };
        let length = usize::from(u16::from_be_bytes([high, low]));
        // Nothing may come between the parts of a message, and no part is empty.
        if kind != HANDSHAKE || major != MAJOR || !(1..=MAX_RECORD).contains(&length) {
            return Read::Done(Spoken::Unreadable);
        }
        // A record is only used whole: a server cannot know more of it either.
        let Some(part) = body.get(..length) else {
            return more(stream, stream.len() - rest.len() + HEAD + length);
        };
        message.extend_from_slice(part);
        match hello::read(&message) {
            Read::Done(spoken) => return Read::Done(spoken),
            Read::More(_) => rest = body.get(length..).unwrap_or_default(),
        }
    }
}

/// More is needed, but never more than is looked at.
fn more(stream: &[u8], whole: usize) -> Read {
    match stream.len() >= MAX_HELLO {
        true => Read::Done(Spoken::Unreadable),
        false => Read::More(whole.min(MAX_HELLO)),
    }
}

enum Begins {
    Tls,
    Perhaps,
    Otherwise,
}

/// Whether a stream is TLS, by as little as can tell.
fn begins(stream: &[u8]) -> Begins {
    let mut octets = stream.iter().copied();
    let (Some(kind), major) = (octets.next(), octets.next()) else {
        return Begins::Perhaps;
    };
    let may_be = (CHANGE_CIPHER_SPEC..=HANDSHAKE).contains(&kind)
        && major.is_none_or(|major| major == MAJOR);
    if !may_be {
        return Begins::Otherwise;
    }
    let length = stream.get(3..HEAD);
    match (kind, length, stream.get(HEAD)) {
        (_, None, _) => Begins::Perhaps,
        // Some servers skip these, and take the hello behind them.
        (ALERT | CHANGE_CIPHER_SPEC, Some([0, 1 | 2]), _) | (HANDSHAKE, Some([0, 0]), _) => {
            Begins::Tls
        }
        (HANDSHAKE, Some(_), None) => Begins::Perhaps,
        (HANDSHAKE, Some(_), Some(&hello::CLIENT_HELLO)) => Begins::Tls,
        _ => Begins::Otherwise,
    }
}
