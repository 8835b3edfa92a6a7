//! Identifiers: fixed byte strings, shown as lower-case hex.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A text that is not the hex form of an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseIdError {
    /// Number of hex digits that the id has.
    pub want_digits: usize,
}

impl fmt::Display for ParseIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not an id: want {} hex digits", self.want_digits)
    }
}

impl std::error::Error for ParseIdError {}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $len:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub [u8; $len]);

        impl $name {
            /// Length in bytes.
            pub const LEN: usize = $len;

            /// The raw bytes.
            #[must_use]
            pub fn as_bytes(&self) -> &[u8] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                let error = ParseIdError { want_digits: $len * 2 };
                let digits = text.as_bytes();
                if digits.len() != $len * 2 {
                    return Err(error);
                }
                let mut bytes = [0_u8; $len];
                for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
                    let hex = std::str::from_utf8(pair).map_err(|_| error.clone())?;
                    if !pair.iter().all(u8::is_ascii_hexdigit) {
                        return Err(error);
                    }
                    *byte = u8::from_str_radix(hex, 16).map_err(|_| error.clone())?;
                }
                Ok(Self(bytes))
            }
        }
    };
}

id!(
    /// An account: SHA-256 of its genesis record.
    AccountId, 32
);
id!(
    /// A device: SHA-256 of its Ed25519 and X25519 public keys, in that order.
    DeviceId, 32
);
id!(
    /// A box, for as long as its own folder is kept.
    BoxId, 16
);
id!(
    /// One run: of a node (a writer's incarnation) or of a box.
    Incarnation, 16
);
id!(
    /// A notice.
    NoticeId, 16
);
id!(
    /// A request from a device to a node.
    RequestId, 16
);

/// Names one entry of a box's audit: whose, in which document, which number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EntryRef {
    /// The device that wrote the entry.
    pub writer: DeviceId,
    /// The box in whose audit the entry stands.
    pub box_id: BoxId,
    /// Number of the entry in that writer's audit of that box, from 1.
    pub no: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips_and_bad_text_is_refused() {
        let id = BoxId([0xab; 16]);
        assert_eq!(id.to_string().parse::<BoxId>(), Ok(id));
        for bad in [
            "",
            "ab",
            "zz".repeat(16).as_str(),
            "+b".repeat(16).as_str(),
            "é".repeat(16).as_str(),
        ] {
            assert_eq!(
                bad.parse::<BoxId>(),
                Err(ParseIdError { want_digits: 32 }),
                "{bad}"
            );
        }
    }
}
