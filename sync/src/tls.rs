//! Identity and trust: raw Ed25519 keys, TLS 1.3 only.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use bailey_model::DeviceId;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{IdleTimeout, TransportConfig, VarInt};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, PeerIncompatible, SignatureScheme,
};

use crate::{IDLE_TIMEOUT, KEEP_ALIVE};

/// What stands before the seed in a PKCS#8 v1 Ed25519 key (RFC 8410 §7).
const PKCS8_PREFIX: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];
/// What stands before the key in an Ed25519 SubjectPublicKeyInfo (RFC 8410 §4).
const SPKI_PREFIX: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];
/// Flow control of the stream: more than the credit of a session, so that a
/// frame never waits for a round trip, and little enough to bound memory.
const STREAM_WINDOW: u32 = 512 * 1024;

/// The server name that a client must give; it is not sent.
pub(crate) const SERVER_NAME: &str = "bailey";

/// Keys of the members, and whose each is. Read by the verifiers at every
/// handshake, written by the endpoint's task when the membership changes: the
/// library verifies by callback, so this is behind a lock.
pub(crate) type Pins = Arc<RwLock<HashMap<[u8; 32], DeviceId>>>;

/// A configuration that TLS refuses: a fault of this build or of the key.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// From rustls.
    #[error("tls: {0}")]
    Rustls(#[from] rustls::Error),
    /// The provider lacks the cipher of QUIC's first packets.
    #[error("tls: {0}")]
    Quic(#[from] quinn::crypto::rustls::NoInitialCipherSuite),
    /// A key without a public part.
    #[error("tls: not an Ed25519 key")]
    Key,
}

/// Who is let in.
#[derive(Debug, Clone)]
pub(crate) enum Trust {
    /// Whoever is a member now.
    Members(Pins),
    /// This one, if it is a member now.
    Member(Pins, DeviceId),
    /// This key, whose it may be.
    Key([u8; 32]),
    /// Anyone who proves some key; what follows decides.
    Anyone,
}

/// Our key as TLS wants it.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    provider: Arc<CryptoProvider>,
    key: Arc<CertifiedKey>,
}

impl Identity {
    /// From the 32-byte seed (RFC 8032 §5.1.5).
    pub(crate) fn new(seed: &[u8; 32]) -> Result<Self, TlsError> {
        let pkcs8 = [&PKCS8_PREFIX[..], &seed[..]].concat();
        let key = ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8))?;
        let spki = key.public_key().ok_or(TlsError::Key)?;
        let key = CertifiedKey::new(vec![CertificateDer::from(spki.as_ref().to_vec())], key);
        Ok(Self {
            provider: Arc::new(ring::default_provider()),
            key: Arc::new(key),
        })
    }

    /// The public part.
    pub(crate) fn key(&self) -> Result<[u8; 32], TlsError> {
        let spki = self.key.cert.first().ok_or(TlsError::Key)?;
        raw_key(spki).ok_or(TlsError::Key)
    }

    fn verifier(&self, trust: Trust) -> Arc<RawKeys> {
        let algorithms = self.provider.signature_verification_algorithms;
        Arc::new(RawKeys { trust, algorithms })
    }

    /// TLS of the side that is dialled, for any transport. `alpn`: the protocols, the one
    /// that is preferred first.
    pub(crate) fn server_tls(
        &self,
        trust: Trust,
        alpn: &[&[u8]],
    ) -> Result<rustls::ServerConfig, TlsError> {
        let resolver = rustls::server::AlwaysResolvesServerRawPublicKeys::new(self.key.clone());
        let mut tls = rustls::ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(self.verifier(trust))
            .with_cert_resolver(Arc::new(resolver));
        tls.alpn_protocols = alpn.iter().map(|alpn| alpn.to_vec()).collect();
        // A resumed session would skip the verifier.
        tls.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        tls.send_tls13_tickets = 0;
        tls.max_early_data_size = 0;
        Ok(tls)
    }

    /// TLS of the side that dials. `alpn` as for [`Self::server_tls`].
    pub(crate) fn client_tls(
        &self,
        trust: Trust,
        alpn: &[&[u8]],
    ) -> Result<rustls::ClientConfig, TlsError> {
        let resolver = rustls::client::AlwaysResolvesClientRawPublicKeys::new(self.key.clone());
        let mut tls = rustls::ClientConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(self.verifier(trust))
            .with_client_cert_resolver(Arc::new(resolver));
        tls.alpn_protocols = alpn.iter().map(|alpn| alpn.to_vec()).collect();
        tls.resumption = rustls::client::Resumption::disabled();
        tls.enable_early_data = false;
        tls.enable_sni = false;
        Ok(tls)
    }

    /// `alpn` as for [`Self::server_tls`].
    pub(crate) fn server(
        &self,
        trust: Trust,
        alpn: &[&[u8]],
    ) -> Result<quinn::ServerConfig, TlsError> {
        let tls = self.server_tls(trust, alpn)?;
        let mut config =
            quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
        config.transport_config(Arc::new(transport(1, STREAM_WINDOW)));
        config.validation_token.sent(0);
        // What waits for our decision whether to answer at all; it is taken at once.
        config
            .max_incoming(256)
            .incoming_buffer_size(16 * 1024)
            .incoming_buffer_size_total(1 << 20);
        Ok(config)
    }

    /// `alpn` as for [`Self::server_tls`].
    pub(crate) fn client(
        &self,
        trust: Trust,
        alpn: &[&[u8]],
    ) -> Result<quinn::ClientConfig, TlsError> {
        let tls = self.client_tls(trust, alpn)?;
        let mut config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
        config.transport_config(Arc::new(transport(0, STREAM_WINDOW)));
        Ok(config)
    }
}

pub(crate) fn transport(streams_from_peer: u32, window: u32) -> TransportConfig {
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(streams_from_peer))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .stream_receive_window(VarInt::from_u32(window))
        .receive_window(VarInt::from_u32(window))
        .send_window(u64::from(window))
        .datagram_receive_buffer_size(None)
        .keep_alive_interval(Some(KEEP_ALIVE))
        .max_idle_timeout(IdleTimeout::try_from(IDLE_TIMEOUT).ok());
    config
}

/// The Ed25519 key in a SubjectPublicKeyInfo.
fn raw_key(spki: &[u8]) -> Option<[u8; 32]> {
    spki.strip_prefix(&SPKI_PREFIX)?.try_into().ok()
}

/// The key that the peer of a finished handshake proved.
pub(crate) fn peer_key(connection: &quinn::Connection) -> Option<[u8; 32]> {
    let identity = connection
        .peer_identity()?
        .downcast::<Vec<CertificateDer<'static>>>()
        .ok()?;
    only_key(&identity)
}

/// The key of a peer that showed one and no more.
pub(crate) fn only_key(shown: &[CertificateDer<'_>]) -> Option<[u8; 32]> {
    match shown {
        [spki] => raw_key(spki),
        _ => None,
    }
}

/// The protocol that a finished handshake agreed on.
pub(crate) fn protocol(connection: &quinn::Connection) -> Option<Vec<u8>> {
    connection
        .handshake_data()?
        .downcast::<quinn::crypto::rustls::HandshakeData>()
        .ok()?
        .protocol
}

#[derive(Debug)]
struct RawKeys {
    trust: Trust,
    algorithms: WebPkiSupportedAlgorithms,
}

impl RawKeys {
    fn judge(
        &self,
        spki: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
    ) -> Result<(), rustls::Error> {
        let unknown = || CertificateError::ApplicationVerificationFailure.into();
        let key = raw_key(spki)
            .filter(|_| more.is_empty())
            .ok_or(CertificateError::BadEncoding)?;
        let (pins, only) = match &self.trust {
            Trust::Anyone => return Ok(()),
            Trust::Key(only) if key == *only => return Ok(()),
            Trust::Key(_) => return Err(unknown()),
            Trust::Members(pins) => (pins, None),
            Trust::Member(pins, only) => (pins, Some(only)),
        };
        // A lock that a panic left behind lets nobody in.
        let device = pins.read().ok().and_then(|pins| pins.get(&key).copied());
        match (device, only) {
            (Some(_), None) => Ok(()),
            (Some(device), Some(only)) if device == *only => Ok(()),
            _ => Err(unknown()),
        }
    }

    fn signature(
        &self,
        message: &[u8],
        spki: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let spki = SubjectPublicKeyInfoDer::from(spki.as_ref());
        rustls::crypto::verify_tls13_signature_with_raw_key(
            message,
            &spki,
            signature,
            &self.algorithms,
        )
    }
}

impl ServerCertVerifier for RawKeys {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.judge(end_entity, intermediates)
            .map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(PeerIncompatible::Tls13RequiredForQuic.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for RawKeys {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.judge(end_entity, intermediates)
            .map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(PeerIncompatible::Tls13RequiredForQuic.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
