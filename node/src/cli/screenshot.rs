//! `bailey screenshot`.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use super::args::ScreenshotArgs;
use super::out;
use crate::api::{Ask, Failure, Tell};
use crate::client::Client;
use crate::paths::Paths;
use crate::show;

/// Longest picture that is taken from a node: one that compression did not make
/// smaller, of the largest display.
const MAX_PICTURE: usize = 64 << 20;

/// Writes the picture to a new file, which is made before anybody is asked for
/// it: what is there already is never touched.
pub(super) fn screenshot(args: &ScreenshotArgs) -> Result<u8, Failure> {
    let paths = Paths::from_env().map_err(|error| Failure::host(error.to_string()))?;
    let file = create(&args.output)?;
    let written = picture(&paths, &args.target).and_then(|picture| {
        let mut file = &file;
        file.write_all(&picture)
            .map_err(|error| fault(&args.output, &error))
    });
    if let Err(failure) = written {
        remove(&args.output, &file);
        return Err(failure);
    }
    let shown = show::bytes(args.output.as_os_str().as_bytes());
    out::say(&format!("{} → {shown}", show::text(&args.target)));
    Ok(0)
}

fn picture(paths: &Paths, target: &str) -> Result<Vec<u8>, Failure> {
    let target = target.to_owned();
    let mut client = Client::ask(paths, &Ask::Screenshot { target }, &[])?;
    let mut picture = Vec::new();
    loop {
        match client.receive()?.value {
            Tell::Picture(part) if picture.len() + part.len() <= MAX_PICTURE => {
                picture.extend(part);
            }
            Tell::Picture(_) => return Err(Failure::internal("the picture does not end")),
            Tell::Done => return Ok(picture),
            Tell::Failed(failure) => return Err(failure),
            _ => {}
        }
    }
}

fn fault(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    let shown = show::bytes(path.as_os_str().as_bytes());
    Failure::usage(format!("--output {shown}: {why}"))
}

fn create(path: &Path) -> Result<File, Failure> {
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let made = nix::fcntl::open(path, flags, Mode::S_IRUSR | Mode::S_IWUSR);
    made.map(File::from).map_err(|error| fault(path, &error))
}

/// Takes the empty file away again, unless another one lies there by now.
fn remove(path: &Path, file: &File) {
    let same = |found: std::fs::Metadata, made: std::fs::Metadata| {
        (found.dev(), found.ino()) == (made.dev(), made.ino())
    };
    if let (Ok(found), Ok(made)) = (std::fs::symlink_metadata(path), file.metadata())
        && same(found, made)
    {
        let _gone = std::fs::remove_file(path);
    }
}
