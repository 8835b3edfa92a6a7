//! A picture of a box's own display. The box can write what it likes where its
//! picture lies, so nothing there is believed: the file is opened without
//! waiting and without a link, read in bounds, and taken only as what the
//! display's server writes for the size that was asked.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;

use bailey_fence_plan::display::PICTURE;
use bailey_fence_plan::display::xwd::{self, Layout};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};

use super::Node;
use super::event::{ConnId, RunId};
use super::run_state::Phase;
use crate::api::{Failure, Tell};
use crate::png::Png;

/// Bytes of a picture in one message.
const PART: usize = 256 << 10;
/// A display that has only just begun to draw may be caught with half a header.
const TRIES: u32 = 3;
const BETWEEN: Duration = Duration::from_millis(50);

/// A box's display, as the node knows it.
#[derive(Debug)]
pub(crate) struct Screen {
    size: (u16, u16),
    /// Where its picture lies; known once the box is made.
    pub(crate) folder: Option<OwnedFd>,
    /// Its server ended before the box.
    ended: bool,
}

impl Screen {
    pub(crate) fn new(size: (u16, u16)) -> Self {
        Self {
            size,
            folder: None,
            ended: false,
        }
    }
}

impl Node {
    pub(super) fn on_screenshot(&mut self, conn: ConnId, target: &str) -> Result<(), Failure> {
        let state = self.fold.resolve(target, self.this)?;
        let name = &state.name;
        if state.writer != self.this {
            let device = self.fold.device_name(state.writer);
            return Err(Failure::usage(format!(
                "{name:?} runs on {device:?}: pictures stay on the device that runs the box"
            )));
        }
        let mut runs = self.runs.values();
        let run = runs.find(|run| run.box_id == state.id && run.phase == Phase::Running);
        let Some(run) = run else {
            return Err(Failure::usage(format!("{name:?} does not run")));
        };
        let Some(screen) = &run.screen else {
            return Err(Failure::usage(format!("{name:?} has no display"))
                .hint("bailey run --display virtual gives it one"));
        };
        if screen.ended {
            return Err(Failure::host(format!("the display of {name:?} has ended")));
        }
        let folder = screen.folder.as_ref().map(OwnedFd::try_clone);
        let folder = folder
            .unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()))
            .map_err(|error| Failure::internal(format!("the display's folder: {error}")))?;
        self.send_picture(conn, folder, screen.size);
        Ok(())
    }

    fn send_picture(&self, conn: ConnId, folder: OwnedFd, size: (u16, u16)) {
        let Some(answers) = self.conns.get(&conn).cloned() else {
            return;
        };
        let one_at_a_time = Arc::clone(&self.picturing);
        tokio::spawn(async move {
            let _turn = one_at_a_time.lock().await;
            let taken = tokio::task::spawn_blocking(move || take(&folder, size)).await;
            let taken = taken.unwrap_or_else(|error| Err(io::Error::other(error)));
            let tells: Vec<Tell> = match taken {
                Ok(file) => file
                    .chunks(PART)
                    .map(|part| Tell::Picture(part.to_vec()))
                    .chain([Tell::Done])
                    .collect(),
                Err(error) => {
                    let what = format!("the display's picture cannot be read: {error}");
                    vec![Tell::Failed(Failure::host(what))]
                }
            };
            for tell in tells {
                if answers.send((tell, Vec::new())).await.is_err() {
                    return;
                }
            }
        });
    }

    /// The display's server is gone; the box goes on.
    pub(super) fn on_display_ended(&mut self, id: RunId) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        if let Some(screen) = &mut run.screen {
            screen.ended = true;
        }
        if let Some(conn) = run.client {
            let note = "the box's display ended; nothing is drawn from here on".to_owned();
            self.tell(conn, Tell::Note(note));
        }
    }
}

/// The picture as PNG.
fn take(folder: &OwnedFd, size: (u16, u16)) -> io::Result<Vec<u8>> {
    let mut tries = 1;
    loop {
        match try_take(folder, size) {
            Err(_) if tries < TRIES => tries += 1,
            other => return other,
        }
        std::thread::sleep(BETWEEN);
    }
}

fn try_take(folder: &OwnedFd, size: (u16, u16)) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // Of the folder's own file system: nothing that is mounted there from inside.
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let file = openat2(folder, PICTURE, flags, Mode::empty(), within)?;
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("it is not a regular file"));
    }
    let file = std::fs::File::from(file);
    let mut header = [0; xwd::HEADER];
    file.read_exact_at(&mut header, 0)?;
    let layout = Layout::read(&header, size).map_err(io::Error::other)?;
    let mut png = Png::new(size);
    let mut line = vec![0; layout.line()];
    let mut at = layout.at();
    for _ in 0..layout.lines() {
        file.read_exact_at(&mut line, at)?;
        png.line(&layout.rgb(&line).map_err(io::Error::other)?)?;
        at += line.len() as u64;
    }
    png.finish()
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    const SIZE: (u16, u16) = (7, 5);

    fn folder(name: &str) -> (PathBuf, OwnedFd) {
        let path = std::env::temp_dir().join(format!("bailey-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let fd = std::fs::File::open(&path).unwrap().into();
        (path, fd)
    }

    fn put(folder: &Path, bytes: &[u8]) {
        std::fs::write(folder.join(PICTURE), bytes).unwrap();
    }

    #[test]
    fn a_picture_is_taken_and_one_that_is_cut_off_is_not() {
        let (path, fd) = folder("picture");
        let whole = xwd::example(SIZE, [9, 8, 7]);
        put(&path, &whole);
        assert!(try_take(&fd, SIZE).unwrap().starts_with(b"\x89PNG"));
        assert!(try_take(&fd, (7, 6)).is_err());
        for length in [0, 50, xwd::HEADER, whole.len() - 1] {
            put(&path, &whole[..length]);
            assert!(try_take(&fd, SIZE).is_err(), "{length}");
        }
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn what_the_box_puts_in_its_place_is_neither_followed_nor_waited_for() {
        let (path, fd) = folder("no-picture");
        let elsewhere = path.join("elsewhere");
        std::fs::write(&elsewhere, xwd::example(SIZE, [0; 3])).unwrap();
        let picture = path.join(PICTURE);
        for target in [elsewhere.as_path(), Path::new("elsewhere")] {
            std::os::unix::fs::symlink(target, &picture).unwrap();
            assert!(try_take(&fd, SIZE).is_err());
            std::fs::remove_file(&picture).unwrap();
        }
        nix::unistd::mkfifo(&picture, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(try_take(&fd, SIZE).is_err());
        std::fs::remove_file(&picture).unwrap();
        std::fs::create_dir(&picture).unwrap();
        assert!(try_take(&fd, SIZE).is_err());
        std::fs::remove_dir(&picture).unwrap();
        // The control: the same bytes as a file of their own.
        std::fs::rename(&elsewhere, &picture).unwrap();
        assert!(try_take(&fd, SIZE).is_ok());
        std::fs::remove_dir_all(path).unwrap();
    }
}
