//! A QR code on a terminal.

use std::io::IsTerminal as _;
use std::os::fd::AsFd as _;

use qrcode::{Color, EcLevel, QrCode};

/// Light cells around it (ISO/IEC 18004 asks for four).
const MARGIN: usize = 4;
/// Black on white, whatever the terminal's own colours are.
const PAINT: &str = "\u{1b}[38;5;16;48;5;231m";
const PLAIN: &str = "\u{1b}[0m";

/// Lines that show this text where standard output is a terminal wide enough.
pub(crate) fn on_terminal(text: &str) -> Option<String> {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(stdout.as_fd()).ok()?;
    let (picture, width) = lines(text)?;
    (width <= usize::from(size.ws_col)).then_some(picture)
}

/// Two rows of cells a line, in half blocks; with how many columns it takes. `None`
/// for a text that fits in none.
fn lines(text: &str) -> Option<(String, usize)> {
    let code = QrCode::with_error_correction_level(text, EcLevel::L).ok()?;
    let (side, cells) = (code.width(), code.to_colors());
    let whole = side + 2 * MARGIN;
    let dark = |x: usize, y: usize| {
        let inside = (MARGIN..MARGIN + side).contains(&x) && (MARGIN..MARGIN + side).contains(&y);
        inside && cells.get((y - MARGIN) * side + x - MARGIN) == Some(&Color::Dark)
    };
    let mut out = String::new();
    for y in (0..whole).step_by(2) {
        out.push_str(PAINT);
        out.extend((0..whole).map(|x| match (dark(x, y), dark(x, y + 1)) {
            (true, true) => '\u{2588}',
            (true, false) => '\u{2580}',
            (false, true) => '\u{2584}',
            (false, false) => ' ',
        }));
        out.push_str(PLAIN);
        out.push('\n');
    }
    Some((out, whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_code_is_small_and_has_its_margin_and_its_corners() {
        let code = "AAAA-BBBB-CCCC-DDDD-EEEE-FFFF-GGGG-HHHH";
        let (picture, width) = lines(code).unwrap();
        assert_eq!(width, 25 + 2 * MARGIN, "fits every terminal");
        let rows: Vec<&str> = picture.lines().collect();
        assert_eq!(rows.len(), width.div_ceil(2));
        let cells = |row: &str| -> Vec<char> {
            let row = row
                .strip_prefix(PAINT)
                .unwrap()
                .strip_suffix(PLAIN)
                .unwrap();
            row.chars().collect()
        };
        assert!(rows.iter().all(|row| cells(row).len() == width));
        assert!(cells(rows[0]).iter().all(|cell| *cell == ' '));
        // The upper edge of the first finder pattern: seven dark cells over a light row
        // but for its sides.
        let first: String = cells(rows[2])[MARGIN..MARGIN + 7].iter().collect();
        assert_eq!(
            first,
            "\u{2588}\u{2580}\u{2580}\u{2580}\u{2580}\u{2580}\u{2588}"
        );
        assert_eq!(lines(&"x".repeat(5000)), None);
    }
}
