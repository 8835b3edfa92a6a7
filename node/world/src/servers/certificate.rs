//! The certificate of the world's TLS servers: its own authority, made anew for
//! each world, so that no key lies in any file (RFC 5280, X.690).

use std::io;

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};

/// A certificate for some names, and its key as PKCS #8.
pub(super) struct Certificate {
    pub(super) der: Vec<u8>,
    pub(super) key: Vec<u8>,
}

mod tag {
    pub(super) const INTEGER: u8 = 0x02;
    pub(super) const BITS: u8 = 0x03;
    pub(super) const OCTETS: u8 = 0x04;
    pub(super) const ID: u8 = 0x06;
    pub(super) const TEXT: u8 = 0x0c;
    pub(super) const TIME: u8 = 0x17;
    pub(super) const LATE_TIME: u8 = 0x18;
    pub(super) const SEQUENCE: u8 = 0x30;
    pub(super) const SET: u8 = 0x31;
    /// In a subject's alternative names: a DNS name.
    pub(super) const DNS: u8 = 0x82;
    /// In a certificate: its version, its extensions.
    pub(super) const VERSION: u8 = 0xa0;
    pub(super) const EXTENSIONS: u8 = 0xa3;
}

/// 1.2.840.10045.4.3.2, 1.2.840.10045.2.1, 1.2.840.10045.3.1.7.
const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
/// 2.5.4.3 and 2.5.29.17.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];

impl Certificate {
    /// Makes one that signs itself.
    pub(super) fn new(names: &[&str]) -> io::Result<Self> {
        let random = SystemRandom::new();
        let fault = |_| io::Error::other("the certificate's key cannot be made");
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random)
            .map_err(fault)?;
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key.as_ref(), &random)
            .map_err(|_| io::Error::other("the certificate's key cannot be read"))?;
        let signed = body(names, pair.public_key().as_ref());
        let signature = pair.sign(&random, &signed).map_err(fault)?;
        let algorithm = sequence(&[value(tag::ID, ECDSA_WITH_SHA256)]);
        let der = sequence(&[signed, algorithm, bits(signature.as_ref())]);
        Ok(Self {
            der,
            key: key.as_ref().to_vec(),
        })
    }

    /// As programs read an authority's (RFC 7468).
    pub(super) fn pem(&self) -> String {
        let text = base64(&self.der);
        let lines = text.as_bytes().chunks(64).map(String::from_utf8_lossy);
        let lines: String = lines.map(|line| format!("{line}\n")).collect();
        format!("-----BEGIN CERTIFICATE-----\n{lines}-----END CERTIFICATE-----\n")
    }
}

/// What is signed.
fn body(names: &[&str], public_key: &[u8]) -> Vec<u8> {
    let common = sequence(&[
        value(tag::ID, COMMON_NAME),
        value(tag::TEXT, b"the servers of a world"),
    ]);
    let name = sequence(&[value(tag::SET, &common)]);
    let times = sequence(&[
        value(tag::TIME, b"200101000000Z"),
        value(tag::LATE_TIME, b"21200101000000Z"),
    ]);
    let curve = sequence(&[value(tag::ID, EC_PUBLIC_KEY), value(tag::ID, P256)]);
    let names: Vec<Vec<u8>> = names
        .iter()
        .map(|name| value(tag::DNS, name.as_bytes()))
        .collect();
    let alternative = sequence(&[
        value(tag::ID, ALTERNATIVE_NAMES),
        value(tag::OCTETS, &sequence(&names)),
    ]);
    sequence(&[
        value(tag::VERSION, &value(tag::INTEGER, &[2])),
        value(tag::INTEGER, &[1]),
        sequence(&[value(tag::ID, ECDSA_WITH_SHA256)]),
        name.clone(),
        times,
        name,
        sequence(&[curve, bits(public_key)]),
        value(tag::EXTENSIONS, &sequence(&[alternative])),
    ])
}

/// One value in DER.
fn value(tag: u8, contents: &[u8]) -> Vec<u8> {
    let len = contents.len();
    let mut out = vec![tag];
    let [high, low] = u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes();
    match len {
        0..=0x7f => out.push(low),
        0x80..=0xff => out.extend([0x81, low]),
        _ => out.extend([0x82, high, low]),
    }
    out.extend_from_slice(contents);
    out
}

fn sequence(parts: &[Vec<u8>]) -> Vec<u8> {
    value(tag::SEQUENCE, &parts.concat())
}

/// Whole octets: no bit of the last one is unused.
fn bits(octets: &[u8]) -> Vec<u8> {
    value(tag::BITS, &[&[0], octets].concat())
}

/// Base64 (RFC 4648 §4).
pub(super) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for part in bytes.chunks(3) {
        let octet = |at: usize| u32::from(part.get(at).copied().unwrap_or_default());
        let group = octet(0) << 16 | octet(1) << 8 | octet(2);
        for at in 0..4 {
            let index = usize::try_from(group >> (18 - 6 * at) & 63).unwrap_or_default();
            let letter = ALPHABET.get(index).copied().unwrap_or(b'=');
            out.push(if at <= part.len() { letter.into() } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_pads_as_its_examples_do() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes), text);
        }
    }

    #[test]
    fn lengths_take_as_many_octets_as_they_need() {
        assert_eq!(value(4, &[7; 2]), [4, 2, 7, 7]);
        assert_eq!(value(4, &[7; 200])[..4], [4, 0x81, 200, 7]);
        assert_eq!(value(4, &[7; 300])[..5], [4, 0x82, 1, 44, 7]);
    }
}
