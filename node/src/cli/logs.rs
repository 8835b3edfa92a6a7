//! `bailey logs`.

use std::io::{self, IsTerminal as _, Write};

use super::args::LogsArgs;
use super::{out, read};
use crate::api::{Ask, Failure, Tell};
use crate::show;

/// Shows what a detached box wrote, each stream on its own.
pub(super) fn logs(args: &LogsArgs) -> Result<u8, Failure> {
    let ask = Ask::Logs {
        target: args.target.clone(),
        follow: args.follow,
    };
    let (stdout, stderr) = (io::stdout(), io::stderr());
    let mut streams = [
        Stream::new(args.raw && !stdout.is_terminal()),
        Stream::new(args.raw && !stderr.is_terminal()),
    ];
    let code = read::each(&ask, |tell| match tell {
        Tell::Log { stream: 1, bytes } => {
            streams[0].write(&bytes, &mut stdout.lock()).map_err(gone)
        }
        Tell::Log { bytes, .. } => streams[1].write(&bytes, &mut stderr.lock()).map_err(gone),
        Tell::Note(note) => {
            out::say(&show::text(&note));
            Ok(())
        }
        _ => Ok(()),
    })?;
    let [out, err] = &mut streams;
    out.finish(&mut stdout.lock()).map_err(gone)?;
    err.finish(&mut stderr.lock()).map_err(gone)?;
    Ok(code)
}

fn gone(error: io::Error) -> Failure {
    match error.kind() {
        // Whoever read has read enough.
        io::ErrorKind::BrokenPipe => Failure::unread(),
        _ => Failure::host(format!("output: {error}")),
    }
}

/// One stream on its way to a person or a program.
#[derive(Debug)]
struct Stream {
    raw: bool,
    /// The start of a character whose rest has not come.
    begun: Vec<u8>,
}

impl Stream {
    fn new(raw: bool) -> Self {
        Self {
            raw,
            begun: Vec::new(),
        }
    }

    fn write(&mut self, bytes: &[u8], to: &mut dyn Write) -> io::Result<()> {
        if self.raw {
            to.write_all(bytes)?;
            return to.flush();
        }
        self.begun.extend_from_slice(bytes);
        let whole = whole(&self.begun);
        let rest = self.begun.split_off(whole);
        let text = String::from_utf8_lossy(&self.begun);
        to.write_all(show::lines(&text).as_bytes())?;
        self.begun = rest;
        to.flush()
    }

    /// What never became a character.
    fn finish(&mut self, to: &mut dyn Write) -> io::Result<()> {
        let rest = std::mem::take(&mut self.begun);
        to.write_all(show::lines(&String::from_utf8_lossy(&rest)).as_bytes())?;
        to.flush()
    }
}

/// Bytes before a character that only begins; all where none does.
fn whole(bytes: &[u8]) -> usize {
    // A character has four bytes at most.
    for back in 1..=bytes.len().min(3) {
        let at = bytes.len() - back;
        let tail = bytes.get(at..).unwrap_or_default();
        if let Err(error) = std::str::from_utf8(tail)
            && error.valid_up_to() == 0
            && error.error_len().is_none()
        {
            return at;
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(raw: bool, parts: &[&[u8]]) -> Vec<u8> {
        let (mut stream, mut to) = (Stream::new(raw), Vec::new());
        for part in parts {
            stream.write(part, &mut to).unwrap();
        }
        stream.finish(&mut to).unwrap();
        to
    }

    #[test]
    fn what_steers_a_terminal_is_escaped_and_lines_stay_lines() {
        let text = shown(false, &[b"a\tb\n\x1b[31mred\r\n", "\u{202e}".as_bytes()]);
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text, "a\tb\n\\u{1b}[31mred\\u{d}\n\\u{202e}");
        assert_eq!(shown(true, &[b"\x1b[31m\xff"]), b"\x1b[31m\xff");
    }

    #[test]
    fn a_character_in_two_parts_is_one_character() {
        let text = "a\u{e9}\u{4e2d}\u{1f600}b".as_bytes();
        for cut in 0..=text.len() {
            let (one, other) = text.split_at(cut);
            assert_eq!(shown(false, &[one, other]), text, "{cut}");
        }
        // What never becomes one shows as the sign for that.
        assert_eq!(shown(false, &[b"a\xe4"]), "a\u{fffd}".as_bytes());
        assert_eq!(
            shown(false, &[b"\xff\xffb"]),
            "\u{fffd}\u{fffd}b".as_bytes()
        );
    }
}
