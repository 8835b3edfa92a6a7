//! TLS with WebSockets (RFC 6455): what a client sends comes back; without an
//! upgrade, a page that says which host was asked.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use ring::digest;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::certificate::{Certificate, base64};
use crate::at;
use crate::control::{Failure, Step as _};

/// The certificate, in the world's folder.
pub(crate) const CERTIFICATE: &str = "tls.pem";
/// Longest head of a request in bytes.
const MAX_HEAD: usize = 16 << 10;
/// Longest frame that is sent back, in bytes.
const MAX_FRAME: u64 = 1 << 20;
/// What a server mixes into a client's key.
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// Makes the certificate and writes it where programs can read it.
pub(super) fn config(dir: &Path) -> Result<Arc<ServerConfig>, Failure> {
    let certificate = Certificate::new(&at::TLS_NAMES).step("make the TLS servers' certificate")?;
    std::fs::write(dir.join(CERTIFICATE), certificate.pem())
        .step("write the TLS servers' certificate")?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivatePkcs8KeyDer::from(certificate.key);
    let chain = vec![CertificateDer::from(certificate.der)];
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| {
            builder
                .with_no_client_auth()
                .with_single_cert(chain, key.into())
        })
        .map_err(io::Error::other)
        .step("use the TLS servers' certificate")?;
    Ok(Arc::new(config))
}

/// Serves one connection.
pub(super) fn serve(stream: TcpStream, config: &Arc<ServerConfig>) -> io::Result<()> {
    let session = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(session, stream);
    let head = read_head(&mut stream)?;
    let field = |wanted: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| value.trim())
    };
    let Some(key) = field("sec-websocket-key") else {
        let text = format!("hello from {}\n", field("host").unwrap_or("nobody"));
        let length = text.len();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}"
        )?;
        stream.conn.send_close_notify();
        return stream.flush();
    };
    let mixed = digest::digest(
        &digest::SHA1_FOR_LEGACY_USE_ONLY,
        format!("{key}{MAGIC}").as_bytes(),
    );
    write!(
        stream,
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {}\r\n\r\n",
        base64(mixed.as_ref())
    )?;
    stream.flush()?;
    while echo(&mut stream)? {}
    Ok(())
}

fn read_head(stream: &mut impl Read) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut octet = [0];
        stream.read_exact(&mut octet)?;
        head.extend(octet);
        if head.len() > MAX_HEAD {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    String::from_utf8(head).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Sends one frame back; false after a close (§5.2, §5.5).
fn echo(stream: &mut (impl Read + Write)) -> io::Result<bool> {
    let mut head = [0; 2];
    stream.read_exact(&mut head)?;
    let [first, second] = head;
    let len = match second & 0x7f {
        126 => {
            let mut long = [0; 2];
            stream.read_exact(&mut long)?;
            u16::from_be_bytes(long).into()
        }
        127 => {
            let mut long = [0; 8];
            stream.read_exact(&mut long)?;
            u64::from_be_bytes(long)
        }
        short => short.into(),
    };
    // A client's frame is masked (§5.1).
    if len > MAX_FRAME || second & 0x80 == 0 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut mask = [0; 4];
    stream.read_exact(&mut mask)?;
    let mut data = vec![0; usize::try_from(len).unwrap_or_default()];
    stream.read_exact(&mut data)?;
    for (octet, mask) in data.iter_mut().zip(mask.into_iter().cycle()) {
        *octet ^= mask;
    }
    let first = match first & 15 {
        PING => first & 0xf0 | PONG,
        _ => first,
    };
    let mut out = vec![first];
    match len {
        0..126 => out.push(second & 0x7f),
        126..=0xffff => {
            out.push(126);
            out.extend(u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes());
        }
        _ => {
            out.push(127);
            out.extend(len.to_be_bytes());
        }
    }
    out.extend(data);
    stream.write_all(&out)?;
    stream.flush()?;
    Ok(first & 15 != CLOSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Both<'a>(&'a [u8], Vec<u8>);

    impl Read for Both<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.0.read(into)
        }
    }

    impl Write for Both<'_> {
        fn write(&mut self, from: &[u8]) -> io::Result<usize> {
            self.1.write(from)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_masked_frame_comes_back_in_the_clear_and_a_close_is_the_end() {
        let mut both = Both(&[0x81, 0x82, 1, 2, 3, 4, b'h' ^ 1, b'i' ^ 2], Vec::new());
        assert!(echo(&mut both).unwrap());
        assert_eq!(both.1, [0x81, 2, b'h', b'i']);
        let mut both = Both(&[0x88, 0x80, 0, 0, 0, 0], Vec::new());
        assert!(!echo(&mut both).unwrap());
        assert!(echo(&mut Both(&[0x81, 2, b'h', b'i'], Vec::new())).is_err());
    }
}
