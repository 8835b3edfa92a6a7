//! The keys of a client's Initial packets, which anybody can make from its
//! connection id (RFC 9001 §5.2, RFC 9369 §3.3).

use ring::aead::quic::{AES_128, HeaderProtectionKey};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf;

/// A version of QUIC whose Initial packets can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// RFC 9000.
    One,
    /// RFC 9369.
    Two,
}

/// Whether servers have spoken a version whose Initial packets are not read here:
/// drafts of version 1, and what Google, Meta and Microsoft had before it. Of any
/// other a server says only that it does not know it (RFC 8999 §6).
pub(super) fn is_spoken_elsewhere(version: u32) -> bool {
    let [first, second, third, _] = version.to_be_bytes();
    (first, second, third) == (0xff, 0, 0)
        || matches!(first, b'Q' | b'T') && second.is_ascii_digit() && third.is_ascii_digit()
        || version >> 4 == 0x0fac_eb00
        || version >> 4 == 0x0abc_d000
}

impl Version {
    pub(super) fn of(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::One),
            0x6b33_43cf => Some(Self::Two),
            _ => None,
        }
    }

    /// The two bits of a long header that say Initial (RFC 9000 §17.2, RFC 9369 §3.2).
    pub(super) fn initial(self) -> u8 {
        match self {
            Self::One => 0,
            Self::Two => 1,
        }
    }

    /// The same for Retry, which has no length.
    pub(super) fn retry(self) -> u8 {
        match self {
            Self::One => 3,
            Self::Two => 0,
        }
    }

    fn salt(self) -> [u8; 20] {
        match self {
            Self::One => [
                0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8,
                0x0c, 0xad, 0xcc, 0xbb, 0x7f, 0x0a,
            ],
            Self::Two => [
                0x0d, 0xed, 0xe3, 0xde, 0xf7, 0x00, 0xa6, 0xdb, 0x81, 0x93, 0x81, 0xbe, 0x6e, 0x26,
                0x9d, 0xcb, 0xf9, 0xbd, 0x2e, 0xd9,
            ],
        }
    }

    /// Labels of the packet's key, its nonce and its header's key.
    fn labels(self) -> [&'static [u8]; 3] {
        match self {
            Self::One => [b"quic key", b"quic iv", b"quic hp"],
            Self::Two => [b"quicv2 key", b"quicv2 iv", b"quicv2 hp"],
        }
    }
}

/// A client's keys.
pub(super) struct Keys {
    packet: LessSafeKey,
    iv: [u8; 12],
    header: HeaderProtectionKey,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}

impl Keys {
    /// The keys of whoever began a connection with this id; `None` never, as
    /// long as the lengths above are right.
    pub(super) fn new(version: Version, id: &[u8]) -> Option<Self> {
        let initial = hkdf::Salt::new(hkdf::HKDF_SHA256, &version.salt()).extract(id);
        let client: [u8; 32] = expand(&initial, b"client in")?;
        let client = hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, &client);
        let [key, iv, header] = version.labels();
        let key: [u8; 16] = expand(&client, key)?;
        let header: [u8; 16] = expand(&client, header)?;
        Some(Self {
            packet: LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).ok()?),
            iv: expand(&client, iv)?,
            header: HeaderProtectionKey::new(&AES_128, &header).ok()?,
        })
    }

    /// The mask of a header by its sample (RFC 9001 §5.4).
    pub(super) fn mask(&self, sample: &[u8]) -> Option<[u8; 5]> {
        self.header.new_mask(sample).ok()
    }

    fn nonce(&self, number: u64) -> Nonce {
        let mut nonce = self.iv;
        for (octet, of_number) in nonce.iter_mut().rev().zip(number.to_le_bytes()) {
            *octet ^= of_number;
        }
        Nonce::assume_unique_for_key(nonce)
    }

    /// Seals a payload as the client would; for what tries the reading.
    pub(super) fn seal(&self, number: u64, header: &[u8], payload: &mut Vec<u8>) -> Option<()> {
        let sealed =
            self.packet
                .seal_in_place_append_tag(self.nonce(number), Aad::from(header), payload);
        sealed.ok()
    }

    /// Opens a payload in place: what is in it, if it is authentic.
    pub(super) fn open<'p>(
        &self,
        number: u64,
        header: &[u8],
        payload: &'p mut [u8],
    ) -> Option<&'p mut [u8]> {
        self.packet
            .open_in_place(self.nonce(number), Aad::from(header), payload)
            .ok()
    }
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand-Label with no context (RFC 8446 §7.1).
fn expand<const N: usize>(secret: &hkdf::Prk, label: &[u8]) -> Option<[u8; N]> {
    const PREFIX: &[u8] = b"tls13 ";
    let [high, low] = u16::try_from(N).ok()?.to_be_bytes();
    let labelled = u8::try_from(PREFIX.len() + label.len()).ok()?;
    let mut out = [0; N];
    secret
        .expand(&[&[high, low, labelled], PREFIX, label, &[0]], Length(N))
        .and_then(|filled| filled.fill(&mut out))
        .ok()?;
    Some(out)
}
