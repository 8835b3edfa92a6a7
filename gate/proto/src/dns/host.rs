//! Names on the wire and in their presentation form.

use std::fmt::Write as _;

use bailey_model::Host;
use hickory_proto::rr::Name;

/// The presentation form of a name, `None` for the root. Every octet that is
/// not a graphic ASCII character, and `.` and `\` inside a label, stands as
/// `\DDD`, so that no two names share a form.
pub(super) fn host_of(name: &Name) -> Option<Host> {
    let mut text = String::with_capacity(name.len());
    for label in name.iter() {
        if !text.is_empty() {
            text.push('.');
        }
        for byte in label {
            match byte {
                b'.' | b'\\' => _ = write!(text, "\\{byte:03}"),
                byte if byte.is_ascii_graphic() => text.push(char::from(*byte)),
                byte => _ = write!(text, "\\{byte:03}"),
            }
        }
    }
    Host::new(&text)
}

/// The name of a plain host (no escapes), fully qualified.
pub(super) fn name_of(host: &Host) -> Option<Name> {
    if host.as_str().contains('\\') {
        return None;
    }
    let mut name = Name::from_labels(host.as_str().split('.').map(str::as_bytes)).ok()?;
    name.set_fqdn(true);
    Some(name)
}
