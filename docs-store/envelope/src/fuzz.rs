//! Fuzz targets: they must return for any bytes, whatever those say.

use bailey_model::DeviceId;

use crate::{DeviceKeys, EpochKey, MAX_ENVELOPE, Verified, peek, verify};

/// Decodes, verifies and opens arbitrary bytes with fixed keys.
///
/// # Panics
/// If bytes that decode do not encode back to the same header.
pub fn envelope(bytes: &[u8]) {
    let Ok(header) = peek(bytes) else { return };
    assert!(
        bytes.len() <= MAX_ENVELOPE,
        "an envelope over the cap was taken"
    );
    assert!(
        bytes.starts_with(&header.encode()),
        "a header with two encodings was taken"
    );
    let keys = DeviceKeys::generate([1; 64]);
    let verified = verify(bytes, &keys.public());
    assert!(
        verified.is_err() || header.fields.chain.writer == keys.id(),
        "an envelope of another writer was taken: {}",
        DeviceId(keys.id().0)
    );
    if let Ok(stored) = Verified::from_stored(bytes) {
        let fields = &header.fields;
        let key = EpochKey::generate([2; 32]).segment_key(fields.chain.doc, fields.segment);
        drop(stored.open(&key));
        drop(stored.plain());
    }
}
