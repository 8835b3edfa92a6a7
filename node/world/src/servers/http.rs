//! A small HTTP/1.1 server: one request a connection.
//!
//! | path | answer |
//! |---|---|
//! | `/` | a page that says which host was asked, where, and by whom |
//! | `/bytes/N` | N zero bytes |
//! | `/slow` | one line each 100 ms, a hundred of them |
//! | `/hang` | nothing, until the client leaves |
//! | `/upload` (POST) | how many bytes of body came |
//!
//! At the metadata address every path answers a secret.

use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use super::CHUNK;
use crate::at;

/// Longest request head in bytes.
const MAX_HEAD: u64 = 16 << 10;

/// Lines of `/slow`, and the pause before each.
const SLOW_LINES: u32 = 100;
const SLOW_PAUSE: Duration = Duration::from_millis(100);

struct Request {
    path: String,
    host: String,
    length: u64,
}

/// Answers one request.
pub(super) fn serve(stream: TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let request = read_head(&mut reader)?;
    if reader.get_ref().local_addr()?.ip().to_canonical() == at::METADATA_V4 {
        return page(reader.get_mut(), "200 OK", "secret-of-the-machine\n");
    }
    match request.path.as_str() {
        "/" => {
            let (here, peer) = (
                reader.get_ref().local_addr()?,
                reader.get_ref().peer_addr()?,
            );
            let text = format!(
                "hello from {} at {} port {}\nyou are {}\n",
                request.host,
                here.ip().to_canonical(),
                here.port(),
                peer.ip().to_canonical()
            );
            page(reader.get_mut(), "200 OK", &text)
        }
        "/slow" => slow(reader.get_mut()),
        "/hang" => io::copy(&mut reader, &mut io::sink()).map(drop),
        "/upload" => {
            let count = io::copy(&mut reader.by_ref().take(request.length), &mut io::sink())?;
            page(reader.get_mut(), "200 OK", &format!("{count}\n"))
        }
        path => match path.strip_prefix("/bytes/").map(str::parse) {
            Some(Ok(count)) => zeros(reader.get_mut(), count),
            _ => page(reader.get_mut(), "404 Not Found", "no such page\n"),
        },
    }
}

fn read_head(reader: &mut BufReader<TcpStream>) -> io::Result<Request> {
    let mut head = reader.by_ref().take(MAX_HEAD);
    let mut first = String::new();
    head.read_line(&mut first)?;
    let path = first
        .split(' ')
        .nth(1)
        .ok_or(io::ErrorKind::InvalidData)?
        .to_owned();
    let mut request = Request {
        path,
        host: String::new(),
        length: 0,
    };
    loop {
        let mut line = String::new();
        if head.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "host" => value.trim().clone_into(&mut request.host),
            "content-length" => request.length = value.trim().parse().unwrap_or_default(),
            _ => {}
        }
    }
    Ok(request)
}

fn head(stream: &mut TcpStream, status: &str, length: u64) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())
}

fn page(stream: &mut TcpStream, status: &str, text: &str) -> io::Result<()> {
    head(stream, status, text.len().try_into().unwrap_or_default())?;
    stream.write_all(text.as_bytes())
}

fn zeros(stream: &mut TcpStream, mut count: u64) -> io::Result<()> {
    head(stream, "200 OK", count)?;
    let buffer = vec![0_u8; CHUNK];
    while count > 0 {
        let part = usize::try_from(count).unwrap_or(CHUNK).min(CHUNK);
        stream.write_all(buffer.get(..part).unwrap_or_default())?;
        count = count.saturating_sub(part.try_into().unwrap_or_default());
    }
    Ok(())
}

fn slow(stream: &mut TcpStream) -> io::Result<()> {
    let line = b"tick\n";
    let length = u64::from(SLOW_LINES).saturating_mul(line.len().try_into().unwrap_or_default());
    head(stream, "200 OK", length)?;
    for _ in 0..SLOW_LINES {
        thread::sleep(SLOW_PAUSE);
        stream.write_all(line)?;
    }
    Ok(())
}
