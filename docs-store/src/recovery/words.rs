//! The recovery key as words: those of BIP-39, English, whose last bits are a sum of
//! the rest. Neither its passphrase nor its derivation is used.

use bailey_envelope::RecoverySeed;
use bip39::{Language, Mnemonic};
use zeroize::Zeroizing;

/// Words that are not a recovery key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WordsError {
    /// Too few or too many.
    #[error("a recovery key has 12 words (24 in the first accounts), and here are {0}")]
    Count(usize),
    /// Not in the list.
    #[error("word {at}, `{word}`, is none of a recovery key's")]
    Unknown {
        /// Its place, from 1.
        at: usize,
        /// What was typed, cut after 20 characters.
        word: String,
    },
    /// Each could be, together they are not.
    #[error("the words do not add up: one is another, or in another place")]
    Sum,
}

/// The words of a seed, in order: 12, or 24 of one that is longer.
#[must_use]
pub fn recovery_words(seed: &RecoverySeed) -> Vec<&'static str> {
    // Such lengths always have words.
    Mnemonic::from_entropy_in(Language::English, seed.entropy())
        .map(|mnemonic| mnemonic.words().collect())
        .unwrap_or_default()
}

/// Reads words, in upper or lower case, with whatever space between.
///
/// # Errors
/// [`WordsError`].
pub fn seed_of_words(text: &str) -> Result<RecoverySeed, WordsError> {
    let lower = Zeroizing::new(text.to_lowercase());
    let words: Vec<&str> = lower.split_whitespace().collect();
    let joined = Zeroizing::new(words.join(" "));
    let mnemonic = Mnemonic::parse_in_normalized(Language::English, &joined);
    let mnemonic = mnemonic.map_err(|error| match error {
        bip39::Error::UnknownWord(at) => WordsError::Unknown {
            at: at + 1,
            word: words
                .get(at)
                .map_or_else(String::new, |word| word.chars().take(20).collect()),
        },
        bip39::Error::InvalidChecksum => WordsError::Sum,
        _ => WordsError::Count(words.len()),
    })?;
    let (entropy, length) = mnemonic.to_entropy_array();
    let entropy = Zeroizing::new(entropy);
    RecoverySeed::from_entropy(&entropy[..length]).ok_or(WordsError::Count(words.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back_and_every_slip_is_named() {
        let seed = RecoverySeed::new([7; 16]);
        let words = recovery_words(&seed);
        assert_eq!(words.len(), 12);
        let text = words.join("\n  ").to_uppercase();
        assert_eq!(seed_of_words(&text).unwrap().0, seed.0);
        assert_eq!(seed_of_words("").unwrap_err(), WordsError::Count(0));
        let few = words[1..].join(" ");
        assert_eq!(seed_of_words(&few).unwrap_err(), WordsError::Count(11));
        let mut slip = words.clone();
        slip[3] = "bailey";
        let unknown = WordsError::Unknown {
            at: 4,
            word: "bailey".to_owned(),
        };
        assert_eq!(seed_of_words(&slip.join(" ")).unwrap_err(), unknown);
        let mut swapped = recovery_words(&RecoverySeed::new(*b"0123456789abcdef"));
        swapped.swap(0, 1);
        assert_eq!(
            seed_of_words(&swapped.join(" ")).unwrap_err(),
            WordsError::Sum
        );
    }

    #[test]
    fn a_long_seed_has_twice_the_words_and_they_are_those_of_the_standard() {
        let seed = RecoverySeed([9; 32]);
        let words = recovery_words(&seed);
        assert_eq!(words.len(), 24);
        assert_eq!(seed_of_words(&words.join(" ")).unwrap().0, seed.0);
        // The first vector of BIP-39.
        let zero = recovery_words(&RecoverySeed::new([0; 16]));
        assert_eq!((zero[0], zero[11]), ("abandon", "about"));
    }
}
