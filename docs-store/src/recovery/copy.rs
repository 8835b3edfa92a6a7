//! A copy of an account in a file: the envelopes that other devices may have, signed
//! and sealed as they stand, and a note of whoever wrote it.
//!
//! ```text
//! file = "bailey-copy-1\n" part part*        the first part is the note
//! part = length: u32, little endian, bytes
//! ```

use std::io::{self, Read, Write};

use bailey_envelope::MAX_ENVELOPE;

use crate::chains;
use crate::db::DbError;
use crate::reader::Reader;

const MAGIC: &[u8; 14] = b"bailey-copy-1\n";
/// Longest note.
const MAX_NOTE: usize = 64 << 10;
/// Envelopes of one copy: above it a file is none of ours.
const MAX_ENVELOPES: u64 = 10_000_000;

/// A copy that cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The file.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is something else, or of another version.
    #[error("this is no copy of an account by this version of bailey")]
    NoCopy,
    /// It ends within an envelope, or one is too long.
    #[error("the copy is cut off or damaged after {0} envelopes")]
    Damaged(u64),
    /// The database.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl From<rusqlite::Error> for CopyError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Db(error.into())
    }
}

/// How much was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Copied {
    /// Envelopes.
    pub envelopes: u64,
    /// Bytes of them.
    pub bytes: u64,
}

fn put(out: &mut dyn Write, part: &[u8]) -> io::Result<()> {
    let length = u32::try_from(part.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(part)
}

impl Reader {
    /// Writes a copy of all that other devices may have, at one moment. What is not
    /// sealed yet is not in it.
    ///
    /// # Errors
    /// [`CopyError`].
    pub fn copy_to(&mut self, note: &[u8], out: &mut dyn Write) -> Result<Copied, CopyError> {
        out.write_all(MAGIC)?;
        put(out, &note[..note.len().min(MAX_NOTE)])?;
        let tx = self.db.unchecked_transaction()?;
        let mut copied = Copied::default();
        // The account's records come first, then keys: the order of documents.
        for (_, chain) in chains::load(&tx)?
            .iter()
            .filter(|(id, _)| !id.doc.is_here())
        {
            let Some(row) = chain.row else { continue };
            let mut statement =
                tx.prepare_cached("SELECT bytes FROM envelopes WHERE chain = ?1 ORDER BY seq")?;
            let mut rows = statement.query([row])?;
            while let Some(row) = rows.next()? {
                let bytes: Vec<u8> = row.get(0)?;
                put(out, &bytes)?;
                copied.envelopes += 1;
                copied.bytes += bytes.len() as u64;
            }
        }
        out.flush()?;
        Ok(copied)
    }
}

/// Reads a copy, part by part.
pub struct CopyReader<R> {
    from: R,
    note: Vec<u8>,
    read: u64,
    over: bool,
}

impl<R> std::fmt::Debug for CopyReader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CopyReader")
            .field("read", &self.read)
            .finish_non_exhaustive()
    }
}

impl<R: Read> CopyReader<R> {
    /// Begins to read one.
    ///
    /// # Errors
    /// [`CopyError::NoCopy`], or the file.
    pub fn new(mut from: R) -> Result<Self, CopyError> {
        let mut magic = [0; MAGIC.len()];
        match from.read_exact(&mut magic) {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error.into()),
            Ok(()) if magic == *MAGIC => {}
            _ => return Err(CopyError::NoCopy),
        }
        let mut reader = Self {
            from,
            note: Vec::new(),
            read: 0,
            over: false,
        };
        reader.note = reader.part(MAX_NOTE)?.ok_or(CopyError::NoCopy)?;
        Ok(reader)
    }

    /// What whoever wrote it noted; nobody signed it.
    #[must_use]
    pub fn note(&self) -> &[u8] {
        &self.note
    }

    fn part(&mut self, most: usize) -> Result<Option<Vec<u8>>, CopyError> {
        let mut length = [0; 4];
        let mut have = 0;
        while have < length.len() {
            match self.from.read(&mut length[have..])? {
                0 if have == 0 => return Ok(None),
                0 => return Err(CopyError::Damaged(self.read)),
                count => have += count,
            }
        }
        let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
        if length > most {
            return Err(CopyError::Damaged(self.read));
        }
        let mut part = vec![0; length];
        match self.from.read_exact(&mut part) {
            Ok(()) => Ok(Some(part)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(CopyError::Damaged(self.read))
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl<R: Read> Iterator for CopyReader<R> {
    type Item = Result<Vec<u8>, CopyError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let part = self.part(MAX_ENVELOPE).transpose();
        match part {
            Some(Ok(_)) if self.read < MAX_ENVELOPES => self.read += 1,
            Some(Ok(_)) => {
                self.over = true;
                return Some(Err(CopyError::Damaged(self.read)));
            }
            _ => self.over = true,
        }
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(parts: &[&[u8]]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for part in parts {
            put(&mut bytes, part).unwrap();
        }
        bytes
    }

    #[test]
    fn a_copy_is_read_part_by_part_and_a_cut_one_says_where() {
        let bytes = file(&[b"note", b"one", b"two"]);
        let reader = CopyReader::new(&bytes[..]).unwrap();
        assert_eq!(reader.note(), b"note");
        let parts: Vec<_> = reader.map(Result::unwrap).collect();
        assert_eq!(parts, [b"one", b"two"]);
        for cut in 1..7 {
            let reader = CopyReader::new(&bytes[..bytes.len() - cut]).unwrap();
            let parts: Vec<_> = reader.collect();
            assert_eq!(parts.len(), 2);
            assert!(matches!(parts[1], Err(CopyError::Damaged(1))), "{parts:?}");
        }
        for other in [&b""[..], b"bailey-copy-2\n\0\0\0\0", b"bailey-copy-1\n"] {
            assert!(matches!(CopyReader::new(other), Err(CopyError::NoCopy)));
        }
        let huge = [&file(&[b""])[..], &[0xff; 4]].concat();
        let mut reader = CopyReader::new(&huge[..]).unwrap();
        assert!(matches!(reader.next(), Some(Err(CopyError::Damaged(0)))));
        assert!(reader.next().is_none());
    }
}
