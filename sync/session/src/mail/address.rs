//! Where a mailbox is, and by which key it is known.

use core::fmt;
use core::net::Ipv6Addr;
use core::str::FromStr;

/// Longest name of a host in bytes (RFC 1035 §2.3.4, without the final dot).
pub(crate) const MAX_HOST: usize = 253;

/// A mailbox as a person writes it: `KEY@HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MailAddress {
    /// Its Ed25519 public key, in text 64 hexadecimal digits.
    pub key: [u8; 32],
    /// A name, an IPv4 address, or an IPv6 address (in text between brackets).
    pub host: String,
    /// Its UDP port.
    pub port: u16,
}

/// What is no address of a mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Not of this form at all.
    #[error("a mailbox is KEY@HOST:PORT, as the mailbox itself prints it")]
    Form,
    /// The key is no 64 hexadecimal digits.
    #[error("the key of a mailbox is 64 hexadecimal digits")]
    Key,
    /// No host, or none that can be one.
    #[error("the host of a mailbox is a name or an address; an IPv6 address stands in [ ]")]
    Host,
    /// No port from 1 to 65535.
    #[error("the port of a mailbox is a number from 1 to 65535")]
    Port,
}

impl FromStr for MailAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (key, place) = text.split_once('@').ok_or(AddressError::Form)?;
        let (host, port) = place.rsplit_once(':').ok_or(AddressError::Form)?;
        let key = unhex(key).ok_or(AddressError::Key)?;
        let digits = port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|port| digits && *port != 0);
        let inner = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let host = match inner {
            Some(v6) => v6
                .parse::<Ipv6Addr>()
                .map_err(|_| AddressError::Host)?
                .to_string(),
            None => host.to_owned(),
        };
        if inner.is_none() && !is_name(&host) {
            return Err(AddressError::Host);
        }
        let port = port.ok_or(AddressError::Port)?;
        Ok(Self { key, host, port })
    }
}

impl MailAddress {
    /// `HOST:PORT`, without the key: for a person to read.
    #[must_use]
    pub fn place(&self) -> String {
        let Self { host, port, .. } = self;
        match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        }
    }
}

/// Whether a host can be a name or an IPv4 address.
pub(crate) fn is_name(host: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    !host.is_empty() && host.len() <= MAX_HOST && host.bytes().all(fits)
}

impl fmt::Display for MailAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, "@{}", self.place())
    }
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut key = [0; 32];
    for (byte, pair) in key.iter_mut().zip(digits.chunks(2)) {
        let [high, low] = pair else { return None };
        *byte = u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_as_they_are_written() {
        let key = "0123456789abcdef".repeat(4);
        for place in ["mail.example:7000", "192.0.2.7:1", "[2001:db8::7]:65535"] {
            let text = format!("{key}@{place}");
            assert_eq!(text.parse::<MailAddress>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let key = "0123456789abcdef".repeat(4);
        for (text, wrong) in [
            (String::new(), AddressError::Form),
            ("mail.example:7000".to_owned(), AddressError::Form),
            (format!("{key}@mail.example"), AddressError::Form),
            (format!("{}@a:1", &key[1..]), AddressError::Key),
            (format!("{}é@a:1", &key[2..]), AddressError::Key),
            (format!("{key}@:1"), AddressError::Host),
            (format!("{key}@a b:1"), AddressError::Host),
            (format!("{key}@2001:db8::7:1"), AddressError::Host),
            (format!("{key}@[a]:1"), AddressError::Host),
            (format!("{key}@a:0"), AddressError::Port),
            (format!("{key}@a:+1"), AddressError::Port),
            (format!("{key}@a:65536"), AddressError::Port),
        ] {
            assert_eq!(text.parse::<MailAddress>(), Err(wrong), "{text}");
        }
    }
}
