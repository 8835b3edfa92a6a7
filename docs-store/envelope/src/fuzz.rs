//! Fuzz targets: they must return for any bytes, whatever those say.

use bailey_model::DeviceId;

use crate::{
    DeviceKeys, EpochKey, MAX_ENVELOPE, MailKey, MailOpenError, Verified, peek, verify, verify_blob,
};

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

/// The topic that [`blob`] reads.
fn topic() -> MailKey {
    MailKey::of_epoch(&EpochKey::generate([2; 32]))
}

/// Verifies and opens arbitrary bytes as a blob of a mailbox.
///
/// # Panics
/// If a blob opens that sealing again does not make, or that a mailbox refuses.
pub fn blob(bytes: &[u8]) {
    let verified = verify_blob(bytes);
    match topic().open(bytes) {
        Ok(envelope) => {
            assert_eq!(verified, Ok(topic().topic()), "a blob of no topic opened");
            assert_eq!(
                topic().seal(&envelope).as_deref(),
                Ok(bytes),
                "an envelope has two blobs"
            );
        }
        Err(MailOpenError::Blob(error)) => assert_eq!(verified, Err(error)),
        Err(_) => {}
    }
}

/// Blobs that [`blob`] takes, small and larger.
#[must_use]
pub fn blobs() -> Vec<Vec<u8>> {
    [0, 1, 878, 879, 5000]
        .into_iter()
        .filter_map(|length| topic().seal(&vec![7; length]).ok())
        .collect()
}
