//! Proofs that both came to one key, and the words.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::wire::Introduction;
use super::words::WORDS;

/// What both ends know of the connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    pub(crate) exporter: [u8; 32],
    /// Ed25519 keys as TLS proved them.
    pub(crate) host: [u8; 32],
    pub(crate) joiner: [u8; 32],
}

pub(crate) fn commit(nonce: &[u8; 32], joiner: &Introduction) -> [u8; 32] {
    Sha256::new()
        .chain_update(b"bailey/pair/commit/v2\0")
        .chain_update(nonce)
        .chain_update(joiner.ed25519)
        .chain_update(joiner.x25519)
        .chain_update(joiner.name.as_bytes())
        .finalize()
        .into()
}

fn mac(key: &[u8; 32], parts: &[&[u8]]) -> Option<[u8; 32]> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    for part in parts {
        mac.update(part);
    }
    Some(mac.finalize().into_bytes().into())
}

pub(crate) fn joiner_mac(key: &[u8; 32], link: &Link, commit: &[u8; 32]) -> Option<[u8; 32]> {
    mac(
        key,
        &[
            b"bailey/pair/joiner/v2\0",
            &link.exporter,
            &link.host,
            &link.joiner,
            commit,
        ],
    )
}

pub(crate) fn host_mac(
    key: &[u8; 32],
    link: &Link,
    commit: &[u8; 32],
    nonce: &[u8; 32],
    host: &Introduction,
) -> Option<[u8; 32]> {
    mac(
        key,
        &[
            b"bailey/pair/host/v2\0",
            &link.exporter,
            &link.host,
            &link.joiner,
            commit,
            nonce,
            &host.ed25519,
            &host.x25519,
            host.name.as_bytes(),
        ],
    )
}

/// Compares in constant time; nothing equals what could not be computed.
pub(crate) fn equal(ours: Option<[u8; 32]>, theirs: &[u8; 32]) -> bool {
    ours.is_some_and(|ours| bool::from(ours.ct_eq(theirs)))
}

pub(crate) fn words(
    link: &Link,
    joiner_nonce: &[u8; 32],
    host_nonce: &[u8; 32],
    joiner: &Introduction,
    host: &Introduction,
) -> [&'static str; 4] {
    let digest = Sha256::new()
        .chain_update(b"bailey/pair/words/v2\0")
        .chain_update(link.exporter)
        .chain_update(joiner_nonce)
        .chain_update(host_nonce)
        .chain_update(joiner.ed25519)
        .chain_update(joiner.x25519)
        .chain_update(host.ed25519)
        .chain_update(host.x25519)
        .finalize();
    [0, 1, 2, 3].map(|at: usize| WORDS[usize::from(digest[at])])
}
