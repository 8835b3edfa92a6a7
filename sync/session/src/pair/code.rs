//! The code that a person carries.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::str::FromStr;

use sha2::{Digest as _, Sha256};

/// Crockford's base 32: no I, L, O or U.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// Version in the first three bits: that of the protocol.
const VERSION: u8 = 2;
/// Addresses in a code: two or three networks of one machine, and short enough
/// to be typed.
const MAX_ADDRS: usize = 3;
const SECRET_LEN: usize = 10;
const CHECK_LEN: usize = 3;
/// Longest code in bytes: three IPv6 addresses.
const MAX_LEN: usize = 1 + MAX_ADDRS * 18 + SECRET_LEN + CHECK_LEN;
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
/// Bytes: one byte of version (3 bits, 2), number of addresses (2 bits) and
/// their families (3 bits, the first address in the lowest, set for IPv6); each
/// address as 4 or 16 bytes and a port, big endian; the secret; the first three
/// bytes of SHA-256 over `bailey/pair/code/v1`, a zero byte and all of it.
/// Written in Crockford's base 32, the last symbol filled with zero bits, in
/// groups of four.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairCode {
    addrs: Vec<SocketAddr>,
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
}

impl PairCode {
    /// A code for these addresses, of which the first is tried first.
    ///
    /// # Errors
    /// [`CodeError::Addresses`]: none, more than three, unspecified or multicast
    /// ones, port 0, or link-local IPv6 (it needs a zone that only one machine
    /// knows).
    pub fn new(addrs: &[SocketAddr], secret: PairSecret) -> Result<Self, CodeError> {
        let usable = |addr: &SocketAddr| {
            let ip = addr.ip();
            let zoned = matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
            addr.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && !zoned
        };
        if addrs.is_empty() || addrs.len() > MAX_ADDRS || !addrs.iter().all(usable) {
            return Err(CodeError::Addresses);
        }
        let addrs = addrs
            .iter()
            .map(|addr| SocketAddr::new(addr.ip().to_canonical(), addr.port()))
            .collect();
        Ok(Self { addrs, secret })
    }

    /// Where to connect.
    #[must_use]
    pub fn addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// The secret.
    #[must_use]
    pub fn secret(&self) -> PairSecret {
        self.secret
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION << 5];
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
        if first >> 5 != VERSION {
            return Err(CodeError::Version(first >> 5));
        }
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
        let secret = <[u8; SECRET_LEN]>::try_from(rest).map_err(|_| CodeError::Check)?;
        Self::new(&addrs, PairSecret(secret))
    }
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

/// Whether so many bytes in so many symbols can be a code at all: one to three
/// addresses of either family, and no symbol too many.
fn whole(bytes: usize, symbols: usize) -> bool {
    let fixed = 1 + SECRET_LEN + CHECK_LEN;
    let possible = (1..=MAX_ADDRS)
        .flat_map(|count| (0..=count).map(move |v6| fixed + v6 * 18 + (count - v6) * 6))
        .any(|length| length == bytes);
    possible && (bytes * 8).div_ceil(5) == symbols
}
