//! Untrusted text, wherever it is shown.
//!
//! Names, program names, paths and notices are bytes that a boxed program or
//! another device chose. They are kept as they are, and nothing of them reaches a
//! terminal or a file but through the functions here: all of them spell out what
//! [`is_unsafe`] names, in one way.

mod cells;
mod host;

pub use cells::{csv_cell, exact, exact_bytes, json_text, zeek_field};
pub use host::host;

/// Longest shown text in characters; longer is cut in the middle.
const COLUMNS: usize = 120;
/// As much of a sentence: its end says why.
const SENTENCE: usize = 600;

/// Makes a text safe for a terminal: control characters (C0, C1, DEL),
/// bidirectional and invisible ones become `\u{..}`; long text is cut in the
/// middle.
#[must_use]
pub fn text(raw: &str) -> String {
    cut(&escaped(raw, &is_unsafe), COLUMNS)
}

/// As [`text`], for a sentence of bailey's own that may hold such a text: longer
/// before it is cut, since its end says why.
#[must_use]
pub fn sentence(raw: &str) -> String {
    cut(&escaped(raw, &is_unsafe), SENTENCE)
}

/// As [`text`], for output of any length: lines and tabs stay, nothing is cut.
#[must_use]
pub fn lines(raw: &str) -> String {
    escaped(raw, &|c| is_unsafe(c) && !matches!(c, '\n' | '\t'))
}

fn escaped(raw: &str, is_unsafe: &dyn Fn(char) -> bool) -> String {
    raw.chars()
        .flat_map(|c| {
            if is_unsafe(c) {
                Shown::Escaped(c.escape_unicode())
            } else {
                Shown::Plain(Some(c))
            }
        })
        .collect()
}

/// As [`text`], for bytes that may not be UTF-8.
#[must_use]
pub fn bytes(raw: &[u8]) -> String {
    text(&String::from_utf8_lossy(raw))
}

/// A word for a command line that a person may copy: quoted where a shell
/// would read anything into it, and whole, since a part is another word.
#[must_use]
pub fn shell_word(raw: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,@*[]=+%".contains(c);
    let safe = escaped(raw, &is_unsafe);
    if !safe.is_empty() && safe.chars().all(|c| plain(c) && !"*[]".contains(c)) {
        return safe;
    }
    format!("'{}'", safe.replace('\'', "'\\''"))
}

/// Whether a character steers a terminal or is not seen there: controls (C0, C1,
/// DEL), bidirectional and invisible ones.
#[must_use]
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

fn cut(shown: &str, columns: usize) -> String {
    let count = shown.chars().count();
    if count <= columns {
        return shown.to_owned();
    }
    let side = (columns - 1) / 2;
    let head = shown.chars().take(side);
    let tail = shown.chars().skip(count - side);
    head.chain(std::iter::once('…')).chain(tail).collect()
}

enum Shown {
    Escaped(std::char::EscapeUnicode),
    Plain(Option<char>),
}

impl Iterator for Shown {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        match self {
            Self::Escaped(rest) => rest.next(),
            Self::Plain(c) => c.take(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_that_steers_a_terminal_passes(raw in any::<String>()) {
            let shown = text(&raw);
            prop_assert!(shown.chars().all(|c| !is_unsafe(c)));
            prop_assert!(shown.chars().count() <= COLUMNS);
            let shown = sentence(&raw);
            prop_assert!(shown.chars().all(|c| !is_unsafe(c)));
            prop_assert!(shown.chars().count() <= SENTENCE);
        }

        #[test]
        fn harmless_short_text_is_unchanged(raw in "[ -~]{0,119}") {
            prop_assert_eq!(text(&raw), raw);
        }
    }

    #[test]
    fn escapes_are_spelled_out_and_words_are_quoted() {
        assert_eq!(text("a\x1b[31mb\u{202e}"), "a\\u{1b}[31mb\\u{202e}");
        assert_eq!(bytes(b"a\xffb"), "a\u{fffd}b");
        assert_eq!(shell_word("shop.example:443"), "shop.example:443");
        assert_eq!(shell_word("a b'c"), "'a b'\\''c'");
        assert_eq!(shell_word("$(reboot)"), "'$(reboot)'");
        assert_eq!(shell_word(""), "''");
        let long = format!("{}.example:443", "a".repeat(300));
        assert_eq!(shell_word(&long), long);
    }
}
