//! What reaches the terminal. Data goes to stdout, everything else to stderr;
//! a reader that went away ends the command quietly.

use std::io::{self, Write as _};

use serde::Serialize;

use crate::api::Failure;
use crate::show;

/// A line of data.
///
/// # Errors
/// When nobody reads any more.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}")
        .and_then(|()| stdout.flush())
        .map_err(|error| gone(&error))
}

/// An object of data, as one line of JSON.
///
/// # Errors
/// When nobody reads any more.
pub(crate) fn json<T: Serialize>(value: &T) -> Result<(), Failure> {
    line(&json_text(value)?)
}

/// The text of an object, with whatever steers a terminal in JSON's own escapes:
/// whoever parses it finds the same text.
///
/// # Errors
/// A fault of the value's own.
pub(crate) fn json_text<T: Serialize>(value: &T) -> Result<String, Failure> {
    let text = serde_json::to_string(value)
        .map_err(|error| Failure::internal(format!("JSON: {error}")))?;
    Ok(match text.contains(show::is_unsafe) {
        true => show::json_text(&text),
        false => text,
    })
}

/// A line for a person beside the data.
pub(crate) fn say(text: &str) {
    // A terminal that is gone leaves nobody to tell.
    let _unwritable = writeln!(io::stderr(), "bailey: {text}");
}

/// A failure and its hint.
pub(crate) fn failure(failure: &Failure) {
    if failure.is_unread() {
        return;
    }
    say(&show::sentence(&failure.text));
    if let Some(hint) = &failure.hint {
        say(&format!("  {}", show::sentence(hint)));
    }
}

fn gone(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::unread(),
        _ => Failure::host(format!("stdout: {error}")),
    }
}
