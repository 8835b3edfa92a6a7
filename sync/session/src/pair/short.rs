//! The code that a person can say aloud.

use core::fmt;
use core::str::FromStr;

use super::code::{CodeError, PairCode, PairSecret};
use super::words::WORDS;

/// Highest slot number.
const MAX_SLOT: u16 = 999;
/// Words after the slot number: 16 bits.
const WORDS_IN_CODE: usize = 2;

/// A slot number, by which the device that shows the code is found in a network,
/// and two words, which nobody else is told: `417-falcon-teapot`.
///
/// Its `Debug` form hides the words.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ShortCode {
    slot: u16,
    words: [u8; WORDS_IN_CODE],
}

impl fmt::Debug for ShortCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ShortCode({}, ..)", self.slot)
    }
}

impl ShortCode {
    /// A code of these random bytes.
    #[must_use]
    pub fn of_random(bytes: [u8; 8]) -> Self {
        let [a, b, c, d, e, f, first, second] = bytes;
        let spread = u64::from_be_bytes([0, 0, a, b, c, d, e, f]) % u64::from(MAX_SLOT);
        Self {
            slot: u16::try_from(spread).unwrap_or(0) + 1,
            words: [first, second],
        }
    }

    /// The slot, 1 to 999: no secret.
    #[must_use]
    pub fn slot(&self) -> u16 {
        self.slot
    }

    fn words(&self) -> [&'static str; WORDS_IN_CODE] {
        self.words.map(|word| WORDS[usize::from(word)])
    }
}

impl fmt::Display for ShortCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = self.words();
        write!(f, "{}-{first}-{second}", self.slot)
    }
}

/// What both ends of a pairing know and nobody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PairPassword {
    /// The secret of a long code.
    Long(PairSecret),
    /// A short code.
    Short(ShortCode),
}

impl PairPassword {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Long(secret) => [&b"bailey/pair/long/v2\0"[..], &secret.0].concat(),
            Self::Short(code) => format!("bailey/pair/short/v2\0{code}").into_bytes(),
        }
    }

    pub(crate) fn kind(&self) -> PasswordKind {
        match self {
            Self::Long(_) => PasswordKind::Long,
            Self::Short(_) => PasswordKind::Short,
        }
    }
}

/// Which of a host's codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum PasswordKind {
    /// The long one, with the addresses.
    Long,
    /// The short one.
    Short,
}

/// What `device join` is given: either code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnyCode {
    /// With addresses and an 80-bit secret.
    Long(PairCode),
    /// To be said aloud.
    Short(ShortCode),
}

impl AnyCode {
    /// The secret in it.
    #[must_use]
    pub fn password(&self) -> PairPassword {
        match self {
            Self::Long(code) => PairPassword::Long(code.secret()),
            Self::Short(code) => PairPassword::Short(*code),
        }
    }
}

impl FromStr for AnyCode {
    type Err = CodeError;

    /// A short code is a number of up to three digits and two words, in upper or
    /// lower case, with hyphens or spaces between; all else is read as a long one.
    fn from_str(text: &str) -> Result<Self, CodeError> {
        let parts: Vec<&str> = text
            .split(|symbol: char| symbol == '-' || symbol.is_whitespace())
            .filter(|part| !part.is_empty())
            .collect();
        let slot = |part: &str| {
            let digits = part.len() <= 3 && part.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| part.parse().ok()).flatten()
        };
        let Some(slot) = parts.first().and_then(|first| slot(first)) else {
            return Ok(Self::Long(text.parse()?));
        };
        let &[_, first, second] = parts.as_slice() else {
            return Err(CodeError::Words(parts.len() - 1));
        };
        if !(1..=MAX_SLOT).contains(&slot) {
            return Err(CodeError::Slot);
        }
        let words = [word(first)?, word(second)?];
        Ok(Self::Short(ShortCode { slot, words }))
    }
}

fn word(text: &str) -> Result<u8, CodeError> {
    let lower = text.to_lowercase();
    WORDS
        .iter()
        .position(|word| *word == lower)
        .and_then(|at| u8::try_from(at).ok())
        .ok_or_else(|| CodeError::Word(text.chars().take(20).collect()))
}

/// Short codes that a device makes in an hour: each is one guess for whoever
/// reaches it, one in 65,536.
pub const MAX_SHORT_CODES: usize = 5;
/// The hour, in milliseconds.
const HOUR_MS: u64 = 60 * 60 * 1000;

/// Counts the short codes of the last hour.
#[derive(Debug, Clone, Default)]
pub struct ShortCodeBudget {
    made: Vec<u64>,
}

impl ShortCodeBudget {
    /// Takes one at this time, of a clock that never goes back, in milliseconds.
    ///
    /// # Errors
    /// How many milliseconds until there is one again.
    pub fn take(&mut self, now_ms: u64) -> Result<(), u64> {
        self.made
            .retain(|made| now_ms.saturating_sub(*made) < HOUR_MS);
        match self.made.first() {
            Some(oldest) if self.made.len() >= MAX_SHORT_CODES => {
                Err(HOUR_MS - now_ms.saturating_sub(*oldest))
            }
            _ => {
                self.made.push(now_ms);
                Ok(())
            }
        }
    }
}
