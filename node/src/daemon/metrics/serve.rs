//! The figures on the node's loopback, where a person asked for that: a GET of
//! `/metrics` that has the token.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use subtle::ConstantTimeEq as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::super::clock;
use super::super::event::NodeEvent;
use crate::log::log;

/// Scrapes at once.
const MAX_SCRAPES: usize = 8;
/// How long one may take.
const LIMIT: Duration = Duration::from_secs(5);
/// Most bytes of a request's head.
const MAX_HEAD: usize = 8 << 10;
/// Digits of a token.
const TOKEN: usize = 64;

/// Where the text goes.
pub(crate) type Scrape = oneshot::Sender<String>;

/// Listens there, and answers until the node is gone. The token is in this file, which
/// is made where it is not there.
///
/// # Errors
/// When the token cannot be kept or the address is not to be had.
pub(crate) async fn listen(
    addr: SocketAddr,
    token: &Path,
    events: mpsc::Sender<NodeEvent>,
) -> io::Result<SocketAddr> {
    let token: Arc<str> = token_of(token)?.into();
    let listener = TcpListener::bind(addr).await?;
    let local = listener.local_addr()?;
    let slots = Arc::new(Semaphore::new(MAX_SCRAPES));
    tokio::spawn(async move {
        while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    log!("metrics: {error}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let (token, events) = (Arc::clone(&token), events.clone());
            tokio::spawn(async move {
                // Whoever is slow or goes away has no answer.
                let _late = tokio::time::timeout(LIMIT, answer(stream, &token, &events)).await;
                drop(slot);
            });
        }
    });
    Ok(local)
}

/// The token that is kept, else a new one: 0600 from its first byte, and never
/// through a link.
fn token_of(path: &Path) -> io::Result<String> {
    let link = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    match File::options().read(true).custom_flags(link).open(path) {
        Ok(file) => {
            let mut text = String::new();
            file.take(2 * TOKEN as u64).read_to_string(&mut text)?;
            let text = text.trim();
            let whole = text.len() == TOKEN && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            match whole {
                true => Ok(text.to_owned()),
                false => Err(io::Error::other("its token file holds no token; remove it")),
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let bytes: [u8; TOKEN / 2] = clock::random().map_err(io::Error::other)?;
            let token = bytes.map(|byte| format!("{byte:02x}")).concat();
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(path)?;
            writeln!(file, "{token}")?;
            Ok(token)
        }
        Err(error) => Err(error),
    }
}

async fn answer(
    mut stream: TcpStream,
    token: &str,
    events: &mpsc::Sender<NodeEvent>,
) -> io::Result<()> {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < MAX_HEAD {
        match stream.read(&mut part).await? {
            0 => break,
            count => head.extend(part.iter().take(count)),
        }
    }
    let text = match judge(&head, token) {
        Ok(()) => {
            let (send, text) = oneshot::channel();
            let asked = events.send(NodeEvent::Scraped(send)).await;
            match (asked, text.await) {
                (Ok(()), Ok(text)) => response("200 OK", "", &text),
                _ => response("503 Service Unavailable", "", "the node is leaving\n"),
            }
        }
        Err((status, more)) => response(status, more, ""),
    };
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await
}

/// Whether a request may have the figures; else its status and a header. Without the
/// token nothing else is said of it.
fn judge(head: &[u8], token: &str) -> Result<(), (&'static str, &'static str)> {
    let head = String::from_utf8_lossy(head);
    let mut lines = head.split("\r\n");
    let request = lines.next().unwrap_or_default();
    let given = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("authorization"))
        .and_then(|(_, value)| value.trim().strip_prefix("Bearer "));
    let given = given.unwrap_or_default().trim().as_bytes();
    if !bool::from(given.ct_eq(token.as_bytes())) {
        return Err(("401 Unauthorized", "WWW-Authenticate: Bearer\r\n"));
    }
    let mut words = request.split(' ');
    match (words.next(), words.next()) {
        (Some("GET"), Some("/metrics")) => Ok(()),
        (Some("GET"), _) => Err(("404 Not Found", "")),
        _ => Err(("405 Method Not Allowed", "Allow: GET\r\n")),
    }
}

fn response(status: &str, more: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nCache-Control: no-store\r\nConnection: close\r\n{more}\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_get_with_the_token_has_the_figures() {
        let token = "ab".repeat(TOKEN / 2);
        let told = |request: &str, header: &str| {
            let head = format!("{request} HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n");
            let judged = judge(head.as_bytes(), &token);
            judged.map_or_else(
                |(status, _)| status.get(..3).unwrap().to_owned(),
                |()| "200".to_owned(),
            )
        };
        let right = format!("authorization: Bearer {token}");
        assert_eq!(told("GET /metrics", &right), "200");
        assert_eq!(told("GET /", &right), "404");
        assert_eq!(told("POST /metrics", &right), "405");
        for wrong in [
            String::new(),
            "Authorization: Bearer ".to_owned(),
            format!("Authorization: Basic {token}"),
            format!("Authorization: Bearer {}", "ac".repeat(TOKEN / 2)),
            format!("Authorization: Bearer {token}0"),
        ] {
            assert_eq!(told("GET /metrics", &wrong), "401", "{wrong}");
            assert_eq!(told("POST /", &wrong), "401", "{wrong}");
        }
        assert_eq!(judge(b"", &token).unwrap_err().0.get(..3), Some("401"));
    }

    #[test]
    fn a_token_is_made_once_and_nobody_else_reads_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = std::env::temp_dir().join(format!("bailey-token-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("metrics.token");
        let token = token_of(&path).unwrap();
        assert_eq!(token_of(&path).unwrap(), token);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!((mode & 0o777, token.len()), (0o600, TOKEN));
        let link = folder.join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(token_of(&link).is_err());
        std::fs::write(&path, "short\n").unwrap();
        assert!(token_of(&path).is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
