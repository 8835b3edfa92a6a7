//! The log of a detached box: two files that take turns, so that the newest
//! output is kept and no box fills the disk.
//!
//! A file starts with [`MAGIC`] and its number, u64 little endian. A frame is a
//! kind (1 stdout, 2 stderr, 0 bytes that could not be kept, as u64), a length
//! as u32 little endian, and so many bytes. No frame lies in two files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// One file's bound in bytes; a log takes at most two of them.
const MAX_FILE: u64 = 8 << 20;
/// Most bytes of one frame.
pub(super) const MAX_FRAME: usize = 16 << 10;
const MAGIC: &[u8; 8] = b"baileyl1";
/// Bytes before a file's first frame.
const HEADER: usize = 16;
/// Bytes before a frame's own.
const FRAME: usize = 5;
/// The kind of a frame that says how much could not be kept.
const LOST: u8 = 0;
/// The newer file, written to.
const NEW: &str = "log";
/// The older one.
const OLD: &str = "log.1";
/// The one to come, until its start is written.
const NEXT: &str = "log.next";

/// The end that writes.
#[derive(Debug)]
pub(super) struct LogFile {
    folder: PathBuf,
    file: File,
    number: u64,
    /// Where the last whole frame ends.
    end: u64,
    /// Bytes that could not be written since.
    lost: u64,
}

impl LogFile {
    /// Takes an older run's log away.
    ///
    /// # Errors
    /// When it is there and stays.
    pub(super) fn remove(folder: &Path) -> io::Result<()> {
        for name in [NEW, OLD, NEXT] {
            match fs::remove_file(folder.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Begins a log in a folder, in place of one that is there.
    ///
    /// # Errors
    /// When a file cannot be made.
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        Self::remove(folder)?;
        Ok(Self {
            folder: folder.to_owned(),
            file: fresh(folder, NEW, 0)?,
            number: 0,
            end: HEADER as u64,
            lost: 0,
        })
    }

    /// Keeps what a stream said. What cannot be kept is counted, and the count
    /// kept as soon as anything can be: the box goes on.
    pub(super) fn append(&mut self, stream: u8, bytes: &[u8]) {
        for part in bytes.chunks(MAX_FRAME) {
            let lost = self.lost.to_le_bytes();
            let kept = match self.lost {
                0 => Ok(()),
                _ => self.frame(LOST, &lost),
            };
            let kept = kept.and_then(|()| {
                self.lost = 0;
                self.frame(stream, part)
            });
            if kept.is_err() {
                self.lost = self.lost.saturating_add(part.len() as u64);
            }
        }
    }

    fn frame(&mut self, kind: u8, bytes: &[u8]) -> io::Result<()> {
        let len = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        let mut frame = Vec::with_capacity(FRAME + bytes.len());
        frame.push(kind);
        frame.extend_from_slice(&len.to_le_bytes());
        frame.extend_from_slice(bytes);
        let size = frame.len() as u64;
        if self.end + size > MAX_FILE {
            self.turn()?;
        }
        if let Err(error) = self.file.write_all(&frame) {
            // Part of it may stand there: the next one begins where it did.
            self.file.set_len(self.end)?;
            self.file.seek(SeekFrom::Start(self.end))?;
            return Err(error);
        }
        self.end += size;
        Ok(())
    }

    /// The new file stands before the older one goes: where there is no room for
    /// it, nothing is lost of what is kept.
    fn turn(&mut self) -> io::Result<()> {
        let file = fresh(&self.folder, NEXT, self.number + 1)?;
        fs::rename(self.folder.join(NEW), self.folder.join(OLD))?;
        fs::rename(self.folder.join(NEXT), self.folder.join(NEW))?;
        self.file = file;
        self.number += 1;
        self.end = HEADER as u64;
        Ok(())
    }
}

fn fresh(folder: &Path, name: &str, number: u64) -> io::Result<File> {
    // A file of this name is one whose start could not be written.
    let path = folder.join(name);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    let mut header = [0_u8; HEADER];
    let (magic, rest) = header.split_at_mut(MAGIC.len());
    magic.copy_from_slice(MAGIC);
    rest.copy_from_slice(&number.to_le_bytes());
    file.write_all(&header)?;
    Ok(file)
}

/// One thing that a log holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// What a stream said.
    Said { stream: u8, bytes: Vec<u8> },
    /// So many bytes could not be kept; `None` where nobody knows how many,
    /// since they were written over before they were read.
    Lost(Option<u64>),
}

/// The end that reads, from the oldest that is kept.
#[derive(Debug)]
pub(super) struct LogReader {
    folder: PathBuf,
    /// The file that is read and its number.
    at: Option<(File, u64)>,
}

impl LogReader {
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            at: None,
        }
    }

    /// The next piece; `None` at the end of what is there now.
    ///
    /// # Errors
    /// When a file cannot be read, or is no log.
    pub(super) fn next(&mut self) -> io::Result<Option<Piece>> {
        loop {
            let Some((file, number)) = &mut self.at else {
                self.at = match open(&self.folder, OLD)? {
                    Some(found) => Some(found),
                    None => open(&self.folder, NEW)?,
                };
                if self.at.is_none() {
                    return Ok(None);
                }
                continue;
            };
            if let Some(piece) = read_frame(file)? {
                return Ok(Some(piece));
            }
            let next = *number + 1;
            let Some((newer, its)) = open(&self.folder, NEW)? else {
                return Ok(None);
            };
            if its < next {
                return Ok(None);
            }
            // A newer one is there, so nothing is written to this one any more;
            // what came before that is still to be read.
            if let Some(piece) = read_frame(file)? {
                return Ok(Some(piece));
            }
            if its == next {
                self.at = Some((newer, its));
                continue;
            }
            let older = open(&self.folder, OLD)?;
            let (found, its) = older.unwrap_or((newer, its));
            self.at = Some((found, its));
            if its != next {
                return Ok(Some(Piece::Lost(None)));
            }
        }
    }
}

/// `None` where the file is not there, or its start is not written yet.
fn open(folder: &Path, name: &str) -> io::Result<Option<(File, u64)>> {
    let mut file = match File::open(folder.join(name)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut header = [0_u8; HEADER];
    match file.read_exact(&mut header) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
        Ok(()) => {}
    }
    let (magic, number) = header.split_at(MAGIC.len());
    let number = number.try_into().map(u64::from_le_bytes);
    match (magic == MAGIC, number) {
        (true, Ok(number)) => Ok(Some((file, number))),
        _ => Err(io::Error::other(format!("{name} is no log of a box"))),
    }
}

/// The next whole frame, or nothing.
fn read_frame(file: &mut File) -> io::Result<Option<Piece>> {
    let before = file.stream_position()?;
    let back = |file: &mut File| file.seek(SeekFrom::Start(before)).map(|_| None);
    let mut head = [0_u8; FRAME];
    if !fill(file, &mut head)? {
        return back(file);
    }
    let [kind, a, b, c, d] = head;
    let len = u32::from_le_bytes([a, b, c, d]) as usize;
    if len > MAX_FRAME {
        return Err(io::Error::other("a frame over its bound"));
    }
    let mut bytes = vec![0; len];
    if !fill(file, &mut bytes)? {
        return back(file);
    }
    if kind != LOST {
        return Ok(Some(Piece::Said {
            stream: kind,
            bytes,
        }));
    }
    let count = bytes.as_slice().try_into().ok().map(u64::from_le_bytes);
    Ok(Some(Piece::Lost(count)))
}

/// Whether there was as much.
fn fill(file: &mut File, bytes: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("bailey-log-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn rest(reader: &mut LogReader) -> Vec<Piece> {
        std::iter::from_fn(|| reader.next().unwrap()).collect()
    }

    fn said(stream: u8, text: &str) -> Piece {
        Piece::Said {
            stream,
            bytes: text.as_bytes().to_vec(),
        }
    }

    #[test]
    fn what_was_written_is_read_in_order_and_more_as_it_comes() {
        let folder = folder("order");
        let mut reader = LogReader::new(&folder);
        assert_eq!(reader.next().unwrap(), None);
        let mut log = LogFile::create(&folder).unwrap();
        log.append(1, b"one\n");
        log.append(2, b"two\n");
        assert_eq!(rest(&mut reader), [said(1, "one\n"), said(2, "two\n")]);
        log.append(1, b"three");
        assert_eq!(rest(&mut reader), [said(1, "three")]);
        let mode = fs::metadata(folder.join(NEW)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // A further run begins anew.
        let mut log = LogFile::create(&folder).unwrap();
        log.append(1, b"other");
        assert_eq!(rest(&mut LogReader::new(&folder)), [said(1, "other")]);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_log_never_takes_more_than_two_files_and_keeps_the_newest() {
        let folder = folder("bound");
        let mut log = LogFile::create(&folder).unwrap();
        let (mut early, mut steady) = (LogReader::new(&folder), LogReader::new(&folder));
        assert_eq!(early.next().unwrap(), None);
        let (mut number, mut heard) = (0_u64, 0_u64);
        let mut hear = |piece: Piece| {
            let Piece::Said { bytes, .. } = piece else {
                panic!("{piece:?}");
            };
            let found = u64::from_le_bytes(bytes.first_chunk().copied().unwrap());
            assert_eq!(found, heard);
            heard += 1;
        };
        while log.number < 3 {
            let mut line = vec![b'x'; MAX_FRAME];
            line[..8].copy_from_slice(&number.to_le_bytes());
            log.append(1, &line);
            number += 1;
            while let Some(piece) = steady.next().unwrap() {
                hear(piece);
            }
        }
        // One that reads along misses nothing.
        assert_eq!(heard, number);
        let size = |name: &str| fs::metadata(folder.join(name)).unwrap().len();
        assert!(size(NEW) <= MAX_FILE && size(OLD) <= MAX_FILE);
        // One that was too slow is told so, and goes on with what is kept.
        let pieces = rest(&mut LogReader::new(&folder));
        let last = pieces.last().unwrap();
        assert!(
            matches!(last, Piece::Said { bytes, .. } if bytes.starts_with(&(number - 1).to_le_bytes()))
        );
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_reader_that_was_overtaken_is_told() {
        let folder = folder("overtaken");
        let mut log = LogFile::create(&folder).unwrap();
        log.append(1, b"first");
        let mut reader = LogReader::new(&folder);
        assert_eq!(reader.next().unwrap(), Some(said(1, "first")));
        let line = vec![b'x'; MAX_FRAME];
        while log.number < 3 {
            log.append(1, &line);
        }
        log.append(2, b"last");
        let pieces = rest(&mut reader);
        assert_eq!(
            pieces
                .iter()
                .filter(|piece| **piece == Piece::Lost(None))
                .count(),
            1
        );
        assert_eq!(pieces.last(), Some(&said(2, "last")));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_cannot_be_kept_is_counted() {
        let folder = folder("lost");
        let mut log = LogFile::create(&folder).unwrap();
        log.append(1, b"before");
        let writable = std::mem::replace(&mut log.file, File::open("/dev/null").unwrap());
        log.append(1, b"four");
        log.append(2, b"six666");
        log.file = writable;
        log.append(1, b"after");
        let pieces = rest(&mut LogReader::new(&folder));
        assert_eq!(
            pieces,
            [said(1, "before"), Piece::Lost(Some(10)), said(1, "after")]
        );
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_turn_for_which_there_is_no_room_loses_nothing_that_is_kept() {
        let folder = folder("full");
        let mut log = LogFile::create(&folder).unwrap();
        log.append(1, b"first");
        log.end = MAX_FILE;
        // Nothing can be written at that place, as on a full disk.
        std::os::unix::fs::symlink("/dev/full", folder.join(NEXT)).unwrap();
        log.append(1, b"lost");
        log.append(2, b"too");
        let pieces = rest(&mut LogReader::new(&folder));
        assert_eq!(pieces, [said(1, "first")]);
        fs::remove_file(folder.join(NEXT)).unwrap();
        log.append(1, b"after");
        let pieces = rest(&mut LogReader::new(&folder));
        assert_eq!(
            pieces,
            [said(1, "first"), Piece::Lost(Some(7)), said(1, "after")]
        );
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_that_is_no_log_is_an_error_and_half_a_frame_is_waited_for() {
        let folder = folder("odd");
        fs::write(folder.join(NEW), b"0123456789abcdef").unwrap();
        assert!(LogReader::new(&folder).next().is_err());
        let mut log = LogFile::create(&folder).unwrap();
        let mut reader = LogReader::new(&folder);
        log.file.write_all(&[1, 3, 0, 0, 0, b'a']).unwrap();
        assert_eq!(reader.next().unwrap(), None);
        log.file.write_all(b"bc").unwrap();
        assert_eq!(reader.next().unwrap(), Some(said(1, "abc")));
        log.file.write_all(&[1, 0, 0, 0, 255]).unwrap();
        assert!(reader.next().is_err());
        fs::remove_dir_all(folder).unwrap();
    }
}
