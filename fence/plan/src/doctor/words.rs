//! Texts that several findings share.

use std::fmt::Write as _;

use super::Tried;

/// Names of the error numbers that these attempts end with, the same on all
/// architectures that we know (<asm-generic/errno-base.h>, <asm-generic/errno.h>).
const ERRNOS: &[(i32, &str)] = &[
    (1, "EPERM"),
    (2, "ENOENT"),
    (5, "EIO"),
    (6, "ENXIO"),
    (7, "E2BIG"),
    (12, "ENOMEM"),
    (13, "EACCES"),
    (16, "EBUSY"),
    (19, "ENODEV"),
    (20, "ENOTDIR"),
    (22, "EINVAL"),
    (24, "EMFILE"),
    (28, "ENOSPC"),
    (30, "EROFS"),
    (38, "ENOSYS"),
    (87, "EUSERS"),
    (95, "EOPNOTSUPP"),
    (97, "EAFNOSUPPORT"),
];

pub(super) const EPERM: i32 = 1;
pub(super) const ENOENT: i32 = 2;
pub(super) const E2BIG: i32 = 7;
pub(super) const EACCES: i32 = 13;
pub(super) const ENODEV: i32 = 19;
pub(super) const EINVAL: i32 = 22;
pub(super) const ENOSPC: i32 = 28;
pub(super) const ENOSYS: i32 = 38;

/// `EPERM`, or the number.
pub(super) fn errno(number: i32) -> String {
    let known = ERRNOS.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| format!("error {number}"), |(_, name)| (*name).to_owned())
}

/// What came of an attempt, in a word.
pub(super) fn tried(tried: Tried) -> String {
    match tried {
        Tried::NotTried => "not tried".to_owned(),
        Tried::Worked => "works".to_owned(),
        Tried::Refused(number) => errno(number),
    }
}

/// A path as one word of a shell.
pub(super) fn shell_word(path: &[u8]) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+@".contains(byte);
    if !path.is_empty() && path.iter().all(plain) {
        return path.iter().copied().map(char::from).collect();
    }
    let mut word = String::from("$'");
    for byte in path {
        match byte {
            b'\'' | b'\\' => {
                word.push('\\');
                word.push(char::from(*byte));
            }
            b' '..=b'~' => word.push(char::from(*byte)),
            // Writing to a String cannot fail.
            _ => drop(write!(word, "\\x{byte:02x}")),
        }
    }
    word.push('\'');
    word
}
