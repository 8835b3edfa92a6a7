//! A display of a box's own: an X server without a screen, which runs inside
//! the box, under the same confinement as the command, and keeps its picture in
//! a file of a folder that the node can look into.
//!
//! The server listens on one socket of the box's own `/tmp` and nowhere else:
//! not by TCP, and not by an abstract name, which every process of a shared
//! network namespace would see.

use crate::SetupOp;
use crate::channel::BoxSpec;

pub mod xwd;

/// The X server.
pub const SERVER: &str = "/usr/bin/Xvfb";
/// Why there is none, where there is none.
pub const MISSING: &str = "it is not installed (Debian has it in the package xvfb)";
/// The one display of a box: the value of its `DISPLAY`.
pub const NAME: &str = ":0";
/// What the server says when it answers on that display.
pub const READY: &[u8] = b"0\n";
/// The folder of the picture: a small file system of its own, so that what lies
/// there can fill nothing else.
pub const FOLDER: &str = "/run/display";
/// The picture in it: a window dump that the server draws into.
pub const PICTURE: &str = "Xvfb_screen0";
/// Widest and highest display, in pixels.
pub const MAX_SIDE: u16 = 4096;
/// Room in it beside the pixels: for the header and the colour map.
const MARGIN: u64 = 128 << 10;
/// Room for so many pictures: one that is written anew lies beside the old one.
const PICTURES: u64 = 2;
/// Permissions of the folder: this user's alone.
const FOLDER_MODE: u16 = 0o700;

/// Whether a display can have this size.
#[must_use]
pub fn fits((width, height): (u16, u16)) -> bool {
    let side = 1..=MAX_SIDE;
    side.contains(&width) && side.contains(&height)
}

/// The server's words; it writes [`READY`] to the descriptor `ready` once it
/// answers.
#[must_use]
pub fn server((width, height): (u16, u16), ready: i32) -> Vec<String> {
    let screen = format!("{width}x{height}x24");
    let ready = ready.to_string();
    let words = [
        SERVER,
        NAME,
        // Neither by TCP nor by an abstract name.
        "-nolisten",
        "tcp",
        "-nolisten",
        "local",
        // What is drawn stays when the last program leaves.
        "-noreset",
        "-screen",
        "0",
        &screen,
        "-fbdir",
        FOLDER,
        "-displayfd",
        &ready,
    ];
    words.map(str::to_owned).into()
}

pub(crate) fn ops(spec: &BoxSpec) -> Option<SetupOp> {
    let (width, height) = spec.display?;
    let pixels = u64::from(width) * u64::from(height);
    Some(SetupOp::Tmpfs {
        at: FOLDER.into(),
        mode: FOLDER_MODE,
        size: (PICTURES * (pixels * 4 + MARGIN)).to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_display_has_a_size_and_a_bound() {
        assert!(fits((1, MAX_SIDE)) && !fits((0, 1)) && !fits((1, MAX_SIDE + 1)));
    }

    #[test]
    fn the_server_listens_on_a_path_only() {
        let words = server((1280, 800), 7).join(" ");
        assert_eq!(
            words,
            "/usr/bin/Xvfb :0 -nolisten tcp -nolisten local -noreset -screen 0 1280x800x24 \
             -fbdir /run/display -displayfd 7"
        );
    }
}
