//! The code that a person carries.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::str::FromStr;

use bailey_envelope::PAIR_SECRET_LEN;
use sha2::{Digest as _, Sha256};

use crate::mail::{MAX_HOST, MailAddress, is_name};

/// Crockford's base 32: no I, L, O or U.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// Version in the first three bits: that of the protocol.
const VERSION: u8 = 2;
/// In its place where a mailbox is named.
const VERSION_MAILBOX: u8 = 3;
/// Addresses in a code: two or three networks of one machine, and short enough
/// to be typed.
const MAX_ADDRS: usize = 3;
const SECRET_LEN: usize = PAIR_SECRET_LEN;
const CHECK_LEN: usize = 3;
/// First byte of a mailbox's host: an IPv4 address follows, or an IPv6 one. Any other
/// is the length of a name.
const HOST_V4: u8 = 0;
const HOST_V6: u8 = 254;
/// A mailbox in bytes: key, first byte of the host, host, port; the longest host.
const MAX_MAILBOX: usize = 32 + 1 + MAX_HOST + 2;
/// Longest code in bytes: three IPv6 addresses and a mailbox of the longest name.
const MAX_LEN: usize = 1 + MAX_ADDRS * 18 + MAX_MAILBOX + SECRET_LEN + CHECK_LEN;
/// Symbols between two hyphens.
const GROUP: usize = 4;

/// The 80-bit secret of one pairing. Its `Debug` form hides it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PairSecret(pub [u8; SECRET_LEN]);

impl fmt::Debug for PairSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PairSecret(..)")
    }
}

/// What `device join` is given: where to, and the secret.
///
/// Bytes: one byte of version (3 bits: 2, or 3 with a mailbox), number of addresses
/// (2 bits) and their families (3 bits, the first address in the lowest, set for
/// IPv6); each address as 4 or 16 bytes and a port, big endian; with version 3 the
/// mailbox: its key (32 bytes), one byte (0 for an IPv4 address, 254 for an IPv6 one,
/// else the length of a name), the host, and a port, big endian; the secret; the first
/// three bytes of SHA-256 over `bailey/pair/code/v1`, a zero byte and all of it.
/// Written in Crockford's base 32, the last symbol filled with zero bits, in
/// groups of four.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairCode {
    addrs: Vec<SocketAddr>,
    mailbox: Option<MailAddress>,
    secret: PairSecret,
}

/// A text that is not a code, or addresses that do not fit in one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// A character that no code has.
    #[error("`{symbol}` (character {at}) does not occur in a code")]
    Symbol {
        /// The character.
        symbol: char,
        /// Its place, from 1.
        at: usize,
    },
    /// Too few or too many characters.
    #[error("a code of {symbols} characters is not whole: some are missing or too many")]
    Length {
        /// How many there are, hyphens and spaces not counted.
        symbols: usize,
    },
    /// All characters are possible, but not together.
    #[error("the code does not add up: a character is mistyped")]
    Check,
    /// Made by another version.
    #[error("the code is of version {0}, made by another release of bailey")]
    Version(u8),
    /// A short code with too few or too many words.
    #[error("a short code is a number and two words, as 417-falcon-teapot; here are {0} words")]
    Words(usize),
    /// A word that no code has.
    #[error("`{0}` is none of the words of a code")]
    Word(String),
    /// A number that no short code has.
    #[error("a short code begins with a number from 1 to 999")]
    Slot,
    /// No address, more than three, or one that means nothing elsewhere.
    #[error("a code needs one to three addresses that other devices can reach")]
    Addresses,
    /// A mailbox that cannot be one.
    #[error("the code names a mailbox that cannot be one")]
    Mailbox,
}

impl PairCode {
    /// A code for these addresses, of which the first is tried first.
    ///
    /// # Errors
    /// [`CodeError::Addresses`]: none, more than three, unspecified or multicast
    /// ones, port 0, or link-local IPv6 (it needs a zone that only one machine
    /// knows).
    pub fn new(addrs: &[SocketAddr], secret: PairSecret) -> Result<Self, CodeError> {
        Self::with_mailbox(addrs, None, secret)
    }

    /// The same, with a mailbox that both devices reach; then no address is needed.
    ///
    /// # Errors
    /// As of [`Self::new`]; [`CodeError::Mailbox`]: a host that none can have, or port 0.
    pub fn with_mailbox(
        addrs: &[SocketAddr],
        mailbox: Option<MailAddress>,
        secret: PairSecret,
    ) -> Result<Self, CodeError> {
        let usable = |addr: &SocketAddr| {
            let ip = addr.ip();
            let zoned = matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
            addr.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && !zoned
        };
        let none = addrs.is_empty() && mailbox.is_none();
        if none || addrs.len() > MAX_ADDRS || !addrs.iter().all(usable) {
            return Err(CodeError::Addresses);
        }
        let possible = |it: &MailAddress| {
            it.port != 0 && (is_name(&it.host) || it.host.parse::<Ipv6Addr>().is_ok())
        };
        if !mailbox.iter().all(possible) {
            return Err(CodeError::Mailbox);
        }
        let addrs = addrs
            .iter()
            .map(|addr| SocketAddr::new(addr.ip().to_canonical(), addr.port()))
            .collect();
        Ok(Self {
            addrs,
            mailbox,
            secret,
        })
    }

    /// Where to connect.
    #[must_use]
    pub fn addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// Whether it has an address at all.
    #[must_use]
    pub fn is_addressed(&self) -> bool {
        !self.addrs.is_empty()
    }

    /// The mailbox through which the two can come together too.
    #[must_use]
    pub fn mailbox(&self) -> Option<&MailAddress> {
        self.mailbox.as_ref()
    }

    /// The secret.
    #[must_use]
    pub fn secret(&self) -> PairSecret {
        self.secret
    }

    fn to_bytes(&self) -> Vec<u8> {
        let version = match self.mailbox {
            None => VERSION,
            Some(_) => VERSION_MAILBOX,
        };
        let mut bytes = vec![version << 5];
        for (at, addr) in self.addrs.iter().enumerate() {
            bytes[0] += 1 << 3;
            match addr.ip() {
                IpAddr::V4(v4) => bytes.extend_from_slice(&v4.octets()),
                IpAddr::V6(v6) => {
                    bytes[0] |= 1 << at;
                    bytes.extend_from_slice(&v6.octets());
                }
            }
            bytes.extend_from_slice(&addr.port().to_be_bytes());
        }
        if let Some(mailbox) = &self.mailbox {
            put_mailbox(&mut bytes, mailbox);
        }
        bytes.extend_from_slice(&self.secret.0);
        let check = check(&bytes);
        bytes.extend_from_slice(&check);
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, CodeError> {
        let (body, told) = bytes
            .split_last_chunk::<CHECK_LEN>()
            .ok_or(CodeError::Check)?;
        if check(body) != *told {
            return Err(CodeError::Check);
        }
        let (&first, mut rest) = body.split_first().ok_or(CodeError::Check)?;
        let named = match first >> 5 {
            VERSION => false,
            VERSION_MAILBOX => true,
            other => return Err(CodeError::Version(other)),
        };
        let mut addrs = Vec::new();
        for at in 0..(first >> 3 & 0b11) {
            let ip: IpAddr = if first >> at & 1 == 1 {
                let (ip, tail) = rest.split_first_chunk::<16>().ok_or(CodeError::Check)?;
                rest = tail;
                Ipv6Addr::from(*ip).into()
            } else {
                let (ip, tail) = rest.split_first_chunk::<4>().ok_or(CodeError::Check)?;
                rest = tail;
                Ipv4Addr::from(*ip).into()
            };
            let (port, tail) = rest.split_first_chunk::<2>().ok_or(CodeError::Check)?;
            rest = tail;
            addrs.push(SocketAddr::new(ip, u16::from_be_bytes(*port)));
        }
        let mailbox = match named {
            true => Some(take_mailbox(&mut rest)?),
            false => None,
        };
        let secret = <[u8; SECRET_LEN]>::try_from(rest).map_err(|_| CodeError::Check)?;
        let code = Self::with_mailbox(&addrs, mailbox, PairSecret(secret))?;
        // One code has one form: a name that is an address, say, has another.
        if code.to_bytes().strip_suffix(told) != Some(body) {
            return Err(CodeError::Check);
        }
        Ok(code)
    }
}

fn put_mailbox(bytes: &mut Vec<u8>, mailbox: &MailAddress) {
    bytes.extend_from_slice(&mailbox.key);
    match mailbox.host.parse() {
        Ok(IpAddr::V4(v4)) => {
            bytes.push(HOST_V4);
            bytes.extend_from_slice(&v4.octets());
        }
        Ok(IpAddr::V6(v6)) => {
            bytes.push(HOST_V6);
            bytes.extend_from_slice(&v6.octets());
        }
        Err(_) => {
            // No host is longer than `MAX_HOST`, which is 253.
            bytes.push(u8::try_from(mailbox.host.len()).unwrap_or(HOST_V4));
            bytes.extend_from_slice(mailbox.host.as_bytes());
        }
    }
    bytes.extend_from_slice(&mailbox.port.to_be_bytes());
}

/// Takes a mailbox off the front.
fn take_mailbox(rest: &mut &[u8]) -> Result<MailAddress, CodeError> {
    let (key, tail) = rest.split_first_chunk::<32>().ok_or(CodeError::Check)?;
    let (kind, tail) = tail.split_first().ok_or(CodeError::Check)?;
    let length = match *kind {
        HOST_V4 => 4,
        HOST_V6 => 16,
        length => usize::from(length),
    };
    let (host, tail) = tail.split_at_checked(length).ok_or(CodeError::Check)?;
    let (port, tail) = tail.split_first_chunk::<2>().ok_or(CodeError::Check)?;
    *rest = tail;
    let host = match (*kind, <[u8; 4]>::try_from(host), <[u8; 16]>::try_from(host)) {
        (HOST_V4, Ok(v4), _) => Ipv4Addr::from(v4).to_string(),
        (HOST_V6, _, Ok(v6)) => Ipv6Addr::from(v6).to_string(),
        _ => core::str::from_utf8(host)
            .map_err(|_| CodeError::Mailbox)?
            .to_owned(),
    };
    Ok(MailAddress {
        key: *key,
        host,
        port: u16::from_be_bytes(*port),
    })
}

fn check(bytes: &[u8]) -> [u8; CHECK_LEN] {
    let digest = Sha256::new()
        .chain_update(b"bailey/pair/code/v1\0")
        .chain_update(bytes)
        .finalize();
    [digest[0], digest[1], digest[2]]
}

impl fmt::Display for PairCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut bits, mut held, mut symbols) = (0_u32, 0_u32, 0_usize);
        let mut put = |f: &mut fmt::Formatter<'_>, value: u32| {
            if symbols > 0 && symbols.is_multiple_of(GROUP) {
                f.write_str("-")?;
            }
            symbols += 1;
            fmt::Write::write_char(f, char::from(ALPHABET[(value & 31) as usize]))
        };
        for byte in self.to_bytes() {
            bits = bits << 8 | u32::from(byte);
            held += 8;
            while held >= 5 {
                held -= 5;
                put(f, bits >> held)?;
            }
            bits &= (1 << held) - 1;
        }
        if held > 0 {
            put(f, bits << (5 - held))?;
        }
        Ok(())
    }
}

impl FromStr for PairCode {
    type Err = CodeError;

    /// Reads a code, in upper or lower case, with or without hyphens and
    /// spaces; `O` is 0, `I` and `L` are 1.
    fn from_str(text: &str) -> Result<Self, CodeError> {
        let (mut bits, mut held, mut symbols) = (0_u32, 0_u32, 0_usize);
        let mut bytes = Vec::new();
        for (at, symbol) in text.trim().chars().enumerate() {
            if symbol == '-' || symbol.is_whitespace() {
                continue;
            }
            let plain = match symbol.to_ascii_uppercase() {
                'O' => '0',
                'I' | 'L' => '1',
                other => other,
            };
            let value = ALPHABET
                .iter()
                .position(|known| char::from(*known) == plain)
                .and_then(|value| u32::try_from(value).ok())
                .ok_or(CodeError::Symbol { symbol, at: at + 1 })?;
            symbols += 1;
            if symbols > (MAX_LEN * 8).div_ceil(5) {
                return Err(CodeError::Length {
                    symbols: text.chars().count(),
                });
            }
            bits = bits << 5 | value;
            held += 5;
            if held >= 8 {
                held -= 8;
                bytes.push((bits >> held & 0xff) as u8);
                bits &= (1 << held) - 1;
            }
        }
        if !whole(bytes.len(), symbols) {
            return Err(CodeError::Length { symbols });
        }
        if bits != 0 {
            return Err(CodeError::Check);
        }
        Self::from_bytes(&bytes)
    }
}

/// Whether so many bytes in so many symbols can be a code at all: up to three
/// addresses of either family, perhaps a mailbox, and no symbol too many.
fn whole(bytes: usize, symbols: usize) -> bool {
    let fixed = 1 + SECRET_LEN + CHECK_LEN;
    // Of a host the least is one letter.
    let least = fixed + 32 + 1 + 1 + 2;
    let addressed = (1..=MAX_ADDRS)
        .flat_map(|count| (0..=count).map(move |v6| fixed + v6 * 18 + (count - v6) * 6))
        .any(|length| length == bytes);
    let possible = addressed || (least..=MAX_LEN).contains(&bytes);
    possible && (bytes * 8).div_ceil(5) == symbols
}
