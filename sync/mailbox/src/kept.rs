//! Blobs as objects: `topics/TOPIC/INDEX-HASH`, and the store's name as `store`.
//!
//! The name of an object says all that the index holds of it, so an index is
//! rebuilt from a listing and nothing has to be written together.

use std::path::PathBuf;
use std::sync::Arc;

use bailey_envelope::{MAX_BLOB, TopicId};
use futures_util::StreamExt as _;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _, PutMode, PutOptions};
use sha2::Digest as _;

use crate::StorePlace;
use crate::index::Index;

const TOPICS: &str = "topics";
const NAME: &str = "store";

/// What goes wrong with what is kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeptError {
    /// The folder cannot be made.
    #[error("{path}: {source}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The store refuses.
    #[error("store: {0}")]
    Store(#[from] object_store::Error),
    /// No random bytes.
    #[error("entropy: {0}")]
    Entropy(#[from] getrandom::Error),
    /// The store has an object of that name that is none of ours.
    #[error("the object `store` is not the 16 bytes of a mailbox's: something else is kept here")]
    Foreign,
    /// This build does without.
    #[cfg(not(feature = "s3"))]
    #[error("this build keeps blobs in folders only; one with the feature `s3` takes s3://")]
    NoS3,
}

/// Where the blobs are.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    store: Arc<dyn ObjectStore>,
    root: Path,
}

impl Kept {
    pub(crate) fn open(place: &StorePlace) -> Result<Self, KeptError> {
        match place {
            StorePlace::Folder(folder) => {
                let fault = |source| KeptError::Folder {
                    path: folder.clone(),
                    source,
                };
                let blobs = folder.join("blobs");
                make(&blobs).map_err(fault)?;
                let store = LocalFileSystem::new_with_prefix(blobs)?
                    .with_fsync(true)
                    .with_automatic_cleanup(true);
                Ok(Self {
                    store: Arc::new(store),
                    root: Path::default(),
                })
            }
            StorePlace::S3 { bucket, prefix } => s3(bucket, prefix),
        }
    }

    fn at(&self, part: &str) -> Path {
        self.root.clone().join(part)
    }

    fn object(&self, topic: TopicId, index: u64, hash: u64) -> Path {
        self.at(TOPICS)
            .join(topic.to_string())
            .join(format!("{index:016x}-{hash:016x}"))
    }

    /// The name of this store, made once.
    pub(crate) async fn name(&self) -> Result<[u8; 16], KeptError> {
        let place = self.at(NAME);
        match self.store.get(&place).await {
            Ok(found) => {
                if found.meta.size != 16 {
                    return Err(KeptError::Foreign);
                }
                let bytes = found.bytes().await?;
                bytes.as_ref().try_into().map_err(|_| KeptError::Foreign)
            }
            Err(object_store::Error::NotFound { .. }) => {
                let mut name = [0; 16];
                getrandom::fill(&mut name)?;
                let bytes = name.to_vec().into();
                self.store.put_opts(&place, bytes, create()).await?;
                Ok(name)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Fills an index with all that is there.
    pub(crate) async fn list(&self, index: &mut Index) -> Result<(), KeptError> {
        let prefix = self.at(TOPICS);
        let mut listing = self.store.list(Some(&prefix));
        while let Some(meta) = listing.next().await {
            let meta = meta?;
            let came = u64::try_from(meta.last_modified.timestamp_millis()).unwrap_or(0);
            if let Some((topic, at, hash)) = parse(&meta.location) {
                index.found(topic, at, hash, meta.size, came);
            }
        }
        index.listed();
        Ok(())
    }

    /// Writes a blob; it is on the disk when this returns. Never over another one.
    pub(crate) async fn put(
        &self,
        topic: TopicId,
        index: u64,
        hash: u64,
        blob: Vec<u8>,
    ) -> Result<(), KeptError> {
        let place = self.object(topic, index, hash);
        self.store.put_opts(&place, blob.into(), create()).await?;
        Ok(())
    }

    /// Reads one; `None` if it is not there, or is none.
    pub(crate) async fn get(
        &self,
        topic: TopicId,
        index: u64,
        hash: u64,
    ) -> Result<Option<Vec<u8>>, KeptError> {
        let found = match self.store.get(&self.object(topic, index, hash)).await {
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            found => found?,
        };
        if found.meta.size > MAX_BLOB as u64 {
            return Ok(None);
        }
        let bytes = found.bytes().await?;
        // What the disk made of it is nothing to hand out.
        Ok((hash_of(&bytes) == hash).then(|| bytes.to_vec()))
    }

    /// Removes one.
    pub(crate) async fn delete(
        &self,
        topic: TopicId,
        index: u64,
        hash: u64,
    ) -> Result<(), KeptError> {
        match self.store.delete(&self.object(topic, index, hash)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn create() -> PutOptions {
    PutOptions {
        mode: PutMode::Create,
        ..PutOptions::default()
    }
}

fn make(folder: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
}

/// The first 8 bytes of a blob's SHA-256.
pub(crate) fn hash_of(blob: &[u8]) -> u64 {
    let digest = sha2::Sha256::digest(blob);
    digest
        .iter()
        .take(8)
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Topic, index and hash of an object's name; `None` for a name that we do not give.
fn parse(place: &Path) -> Option<(TopicId, u64, u64)> {
    let mut parts = place.parts();
    let name = parts.next_back()?;
    let topic = parts.next_back()?;
    let hex = |text: &str| {
        let lower = text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        let fits = text.len() == 16 && lower;
        fits.then(|| u64::from_str_radix(text, 16).ok()).flatten()
    };
    let (index, hash) = name.as_ref().split_once('-')?;
    let mut id = [0; 32];
    let digits = topic.as_ref();
    if digits.len() != 64 {
        return None;
    }
    for (at, part) in id.chunks_mut(8).enumerate() {
        part.copy_from_slice(&hex(digits.get(16 * at..16 * at + 16)?)?.to_be_bytes());
    }
    Some((TopicId(id), hex(index)?, hex(hash)?))
}

#[cfg(not(feature = "s3"))]
fn s3(_bucket: &str, _prefix: &str) -> Result<Kept, KeptError> {
    Err(KeptError::NoS3)
}

/// A bucket; where it is and by which key comes from the environment, as other
/// programs for S3 read it (`AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_ACCESS_KEY_ID`,
/// `AWS_SECRET_ACCESS_KEY`).
#[cfg(feature = "s3")]
fn s3(bucket: &str, prefix: &str) -> Result<Kept, KeptError> {
    // One may be there already; it is the same.
    let _there = rustls::crypto::ring::default_provider().install_default();
    let store = object_store::aws::AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .build()?;
    Ok(Kept {
        store: Arc::new(store),
        root: Path::from(prefix),
    })
}

#[cfg(test)]
mod tests;
