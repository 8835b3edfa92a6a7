//! A server of QUIC that turns around what it is told, and a client of it that
//! has no other use than to be run in a box.
//!
//! `bailey-quic serve ADDRESS CERT.der KEY.der` serves for ever;
//! `bailey-quic ask HOST PORT CERT.der` says what came of one connection.

use std::error::Error;
use std::net::{SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    ClientConfig, Connection, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, TransportConfig,
};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::io::Interest;

type Fault = Box<dyn Error>;

/// The protocol both speak (RFC 7301).
const ALPN: &[u8] = b"turn-around";
/// Streams that a client opens at once.
const STREAMS: u8 = 8;
/// Octets that each of them carries each way.
const OCTETS: usize = 100_000;
/// Longest stream that a server reads, in octets.
const MAX_OCTETS: usize = 1 << 20;
/// A connection that says nothing for this long is over.
const SILENCE: Duration = Duration::from_secs(5);

fn main() -> Result<(), Fault> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    match words.as_slice() {
        ["serve", address, certificate, key] => {
            runtime.block_on(serve(address.parse()?, certificate, key))
        }
        ["ask", host, port, certificate] => runtime.block_on(ask(host, port.parse()?, certificate)),
        _ => Err("usage: bailey-quic serve ADDRESS CERT KEY | ask HOST PORT CERT".into()),
    }
}

fn transport() -> Result<Arc<TransportConfig>, Fault> {
    let mut config = TransportConfig::default();
    config.max_idle_timeout(Some(SILENCE.try_into()?));
    Ok(Arc::new(config))
}

async fn serve(address: SocketAddr, certificate: &str, key: &str) -> Result<(), Fault> {
    let chain = vec![CertificateDer::from(std::fs::read(certificate)?)];
    let key = PrivatePkcs8KeyDer::from(std::fs::read(key)?);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key.into())?;
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    config.transport_config(transport()?);
    let endpoint = Endpoint::server(config, address)?;
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move {
            if let Ok(connection) = incoming.await {
                turn_around(connection).await;
            }
        });
    }
    Ok(())
}

async fn turn_around(connection: Connection) {
    while let Ok((mut send, mut receive)) = connection.accept_bi().await {
        tokio::spawn(async move {
            let Ok(mut said) = receive.read_to_end(MAX_OCTETS).await else {
                return;
            };
            said.reverse();
            // A client that left hears nothing.
            if send.write_all(&said).await.is_ok() {
                let _left = send.finish();
            }
        });
    }
}

async fn ask(host: &str, port: u16, certificate: &str) -> Result<(), Fault> {
    let mut trusted = rustls::RootCertStore::empty();
    trusted.add(CertificateDer::from(std::fs::read(certificate)?))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(trusted)
        .with_no_client_auth();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    config.transport_config(transport()?);
    let to = (host, port)
        .to_socket_addrs()?
        .next()
        .ok_or("the name has no address")?;
    let any = if to.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    // As browsers do, it listens to what ICMP says.
    let socket = UdpSocket::bind::<SocketAddr>(any.parse()?)?;
    match to {
        SocketAddr::V4(_) => setsockopt(&socket, sockopt::Ipv4RecvErr, &true)?,
        SocketAddr::V6(_) => setsockopt(&socket, sockopt::Ipv6RecvErr, &true)?,
    }
    let errors = socket.try_clone()?;
    errors.set_nonblocking(true)?;
    let errors = tokio::net::UdpSocket::from_std(errors)?;
    let endpoint = Endpoint::new(
        EndpointConfig::default(),
        None,
        socket,
        Arc::new(TokioRuntime),
    )?;
    let connection = tokio::select! {
        connection = endpoint.connect_with(config, to, host)? => connection?,
        error = errors.ready(Interest::ERROR) => {
            error?;
            return Err("an ICMP error came: refused".into());
        }
    };
    let mut streams = tokio::task::JoinSet::new();
    for seed in 0..STREAMS {
        let connection = connection.clone();
        streams.spawn(async move { one(&connection, seed).await.is_ok() });
    }
    let done = streams.join_all().await;
    if done != [true; STREAMS as usize] {
        return Err("a stream came back otherwise than it went".into());
    }
    println!("{STREAMS} streams of {OCTETS} octets came back turned around");
    connection.close(0_u8.into(), b"done");
    endpoint.wait_idle().await;
    Ok(())
}

async fn one(connection: &Connection, seed: u8) -> Result<(), Fault> {
    let mut said: Vec<u8> = (seed..=u8::MAX).cycle().take(OCTETS).collect();
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(&said).await?;
    send.finish()?;
    let heard = receive.read_to_end(MAX_OCTETS).await?;
    said.reverse();
    if heard == said {
        Ok(())
    } else {
        Err("otherwise".into())
    }
}
