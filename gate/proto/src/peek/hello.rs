//! The ClientHello (RFC 8446 §4.1.2, RFC 5246 §7.4.1.2) and its `server_name`.

use bailey_model::Host;

use super::reader::Reader;
use super::{Hello, MAX_HELLO, Read, Spoken};

/// Handshake type of a ClientHello.
pub(super) const CLIENT_HELLO: u8 = 1;
/// A handshake message's type and length.
const HEAD: usize = 4;
/// Extension types (IANA, TLS ExtensionType values).
const SERVER_NAME: u16 = 0;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;
/// Longest host name in presentation form (RFC 1035 §2.3.4), and longest label.
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// Reads a handshake message's beginning.
pub(super) fn read(message: &[u8]) -> Read {
    let Some((&[kind, high, middle, low], _)) = message.split_first_chunk() else {
        let is_hello = message.first().is_none_or(|kind| *kind == CLIENT_HELLO);
        return match is_hello {
            true => Read::More(HEAD),
            false => Read::Done(Spoken::Other),
        };
    };
    if kind != CLIENT_HELLO {
        return Read::Done(Spoken::Other);
    }
    let length = u32::from_be_bytes([0, high, middle, low]);
    let whole = usize::try_from(length).map_or(usize::MAX, |length| length.saturating_add(HEAD));
    if whole > MAX_HELLO {
        return Read::Done(Spoken::Unreadable);
    }
    match message.get(HEAD..whole) {
        None => Read::More(whole),
        Some(body) => Read::Done(body_of(body).map_or(Spoken::Unreadable, Spoken::Hello)),
    }
}

fn body_of(body: &[u8]) -> Option<Hello> {
    let mut body = Reader(body);
    let (_version, _random) = (body.u16()?, body.array::<32>()?);
    let (_session, _suites, _compression) = (body.vec8()?, body.vec16()?, body.vec8()?);
    let (mut host, mut encrypted) = (None, false);
    if !body.is_empty() {
        let mut extensions = body.vec16()?;
        while !extensions.is_empty() {
            let (kind, data) = (extensions.u16()?, extensions.vec16()?);
            match kind {
                // A second one is forbidden, and who reads which is anybody's guess.
                SERVER_NAME if host.is_some() => return None,
                SERVER_NAME => host = Some(server_name(data)?),
                ENCRYPTED_CLIENT_HELLO => encrypted = true,
                _ => {}
            }
        }
    }
    body.is_empty().then_some(Hello { host, encrypted })
}

/// The one host name of a `server_name` extension.
fn server_name(mut data: Reader<'_>) -> Option<Host> {
    /// Name type of a host; no other was ever defined.
    const HOST_NAME: u8 = 0;
    let mut list = data.vec16()?;
    let (kind, name) = (list.u8()?, list.vec16()?);
    let whole = data.is_empty() && list.is_empty() && kind == HOST_NAME;
    host(name.0).filter(|_| whole)
}

/// A name as a host may have it: letters, digits, hyphens and underscores.
fn host(name: &[u8]) -> Option<Host> {
    let name = std::str::from_utf8(name).ok()?;
    let text = name.strip_suffix('.').unwrap_or(name);
    let octet = |octet: u8| octet.is_ascii_alphanumeric() || b"-_".contains(&octet);
    let label = |label: &str| (1..=MAX_LABEL).contains(&label.len()) && label.bytes().all(octet);
    let valid = text.len() <= MAX_NAME && text.split('.').all(label);
    Host::new(text).filter(|_| valid)
}
