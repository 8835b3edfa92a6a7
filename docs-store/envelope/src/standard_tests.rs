//! Vectors of the standards and of Wycheproof, which stand in `vectors/standard`: facts
//! of others, read here and held to beside the code that they are about (`keys/tests.rs`,
//! `seal/tests.rs`, `wrap/tests.rs`).

pub(crate) const RFC: &str = include_str!("../vectors/standard/rfc.txt");
pub(crate) const X25519: &str = include_str!("../vectors/standard/x25519.txt");
pub(crate) const ED25519: &str = include_str!("../vectors/standard/ed25519.txt");
pub(crate) const HKDF_SHA256: &str = include_str!("../vectors/standard/hkdf-sha256.txt");
pub(crate) const CHACHA: &str = include_str!("../vectors/standard/chacha20-poly1305.txt");
pub(crate) const XCHACHA: &str = include_str!("../vectors/standard/xchacha20-poly1305.txt");

/// The lines of a file, in words.
pub(crate) fn rows(file: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    let lines = file.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(' ').collect())
}

/// The lines of this name in [`RFC`], without it.
pub(crate) fn rfc(name: &'static str) -> Vec<Vec<&'static str>> {
    let named = rows(RFC).filter(|row| row[0] == name);
    let found: Vec<_> = named.map(|row| row[1..].to_vec()).collect();
    assert!(!found.is_empty(), "no vector of {name}");
    found
}

/// What a field says; `-` is nothing.
pub(crate) fn bytes(field: &str) -> Vec<u8> {
    let digits = if field == "-" { "" } else { field };
    assert!(digits.len().is_multiple_of(2), "{field}");
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect()
}

/// The same, where the length is known.
pub(crate) fn fixed<const N: usize>(field: &str) -> [u8; N] {
    bytes(field).try_into().unwrap()
}
