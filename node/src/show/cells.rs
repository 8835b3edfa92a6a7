//! The same text for files that other programs read.

use base64ct::{Base64, Encoding as _};

use super::{escaped, is_unsafe};

/// Bytes of a text that are kept beside it, where it is not shown as it is.
const MAX_EXACT: usize = 4096;

/// A text for a file: whole, with what would steer a terminal spelled out as
/// `\u{..}`; and where that changed it, its bytes in base64.
#[must_use]
pub fn exact(raw: &str) -> (String, Option<String>) {
    let shown = escaped(raw, &is_unsafe);
    let bytes = (shown != raw).then(|| base64(raw.as_bytes()));
    (shown, bytes)
}

/// As [`exact`], for bytes that may not be UTF-8.
#[must_use]
pub fn exact_bytes(raw: &[u8]) -> (String, Option<String>) {
    match std::str::from_utf8(raw) {
        Ok(text) => exact(text),
        Err(_) => {
            let text = String::from_utf8_lossy(raw);
            (escaped(&text, &is_unsafe), Some(base64(raw)))
        }
    }
}

/// A cell of CSV (RFC 4180). What a table would take for a formula gets an
/// apostrophe before it.
#[must_use]
pub fn csv_cell(raw: &str) -> String {
    let mut safe = escaped(raw, &is_unsafe);
    if safe.starts_with(['=', '+', '-', '@']) {
        safe.insert(0, '\'');
    }
    match safe.contains([',', '"']) {
        true => format!("\"{}\"", safe.replace('"', "\"\"")),
        false => safe,
    }
}

/// A string field of a Zeek log: a backslash and whatever is not printable ASCII
/// are `\xHH`, byte by byte, and so is the first byte of what would read as a field
/// that is not set or is empty.
#[must_use]
pub fn zeek_field(raw: &str) -> String {
    if raw.is_empty() {
        return "(empty)".to_owned();
    }
    let special = matches!(raw, "-" | "(empty)");
    let safe = escaped(raw, &is_unsafe);
    let mut field = String::with_capacity(safe.len());
    for (at, byte) in safe.bytes().enumerate() {
        let plain = (byte.is_ascii_graphic() || byte == b' ') && byte != b'\\';
        match plain && !(special && at == 0) {
            true => field.push(char::from(byte)),
            false => field.push_str(&format!("\\x{byte:02x}")),
        }
    }
    field
}

/// A text as JSON has it, in quotes, with whatever steers a terminal in JSON's own
/// escapes: whoever parses it finds the same text.
#[must_use]
pub fn json_text(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        if is_unsafe(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                safe.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            safe.push(c);
        }
    }
    safe
}

fn base64(raw: &[u8]) -> String {
    Base64::encode_string(raw.get(..MAX_EXACT).unwrap_or(raw))
}
