//! What nobody outside an account may ever hold, and looking for it.

use std::collections::HashSet;

/// Stands in every entry that is written, and in nothing that crosses or lies
/// anywhere.
pub(super) const SECRET: &str = "sim-secret";

/// Bytes of a secret that are looked for: the first.
const LOOK: usize = 8;

/// Plain text and key material.
#[derive(Debug)]
pub(super) struct Secrets {
    known: HashSet<[u8; LOOK]>,
    /// By the first two bytes, whether there is one at all.
    first: Vec<bool>,
}

impl Secrets {
    pub(super) fn new() -> Self {
        let mut secrets = Self {
            known: HashSet::new(),
            first: vec![false; 1 << 16],
        };
        secrets.add(SECRET.as_bytes());
        secrets
    }

    pub(super) fn add(&mut self, secret: &[u8]) {
        if let Some(look) = secret.first_chunk::<LOOK>() {
            self.known.insert(*look);
            self.first[pair(look[0], look[1])] = true;
        }
    }

    /// Where in some bytes a secret begins.
    fn find(&self, bytes: &[u8]) -> Option<usize> {
        let mut windows = bytes.windows(LOOK).enumerate();
        let found = windows.find(|(_, window)| {
            self.first[pair(window[0], window[1])]
                && window
                    .first_chunk()
                    .is_some_and(|look| self.known.contains(look))
        });
        found.map(|(at, _)| at)
    }

    /// That there is none in them.
    pub(super) fn look(&self, bytes: &[u8], place: &str) -> Result<(), String> {
        match self.find(bytes) {
            None => Ok(()),
            Some(at) => {
                let end = bytes.len().min(at + SECRET.len());
                let plain = bytes[at..end] == *SECRET.as_bytes();
                let what = if plain { "an entry" } else { "a key" };
                Err(format!("{what} is in the clear at {at} of {place}"))
            }
        }
    }
}

fn pair(one: u8, next: u8) -> usize {
    usize::from(one) << 8 | usize::from(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_secret_is_found_wherever_it_lies() {
        let mut secrets = Secrets::new();
        secrets.add(&[7; 32]);
        assert_eq!(secrets.look(b"nothing of it", "here"), Ok(()));
        for hidden in [SECRET.as_bytes(), &[7; 32]] {
            let bytes = [b"before ", hidden, b" after"].concat();
            assert!(secrets.look(&bytes, "here").is_err());
        }
    }
}
