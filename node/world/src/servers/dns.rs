//! The world's name server: bytes in, bytes out, every question written down.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::SystemTime;

use super::Log;
use super::zone::{Outcome, Record, TTL, Zone};
use crate::Asked;

/// Answer sizes without and with EDNS (RFC 1035, 4.2.1; the widely used 1,232).
const PLAIN_SIZE: usize = 512;
const EDNS_SIZE: u16 = 1232;

/// Longest name in text (RFC 1035, 2.3.4).
const MAX_NAME: usize = 255;

/// Response codes (RFC 1035, 4.1.1).
mod rcode {
    pub(super) const SERVER_FAILURE: u8 = 2;
    pub(super) const NAME_ERROR: u8 = 3;
}

/// A question that could be read.
#[derive(Debug, PartialEq, Eq)]
struct Query {
    id: [u8; 2],
    recursion: u8,
    name: String,
    qtype: u16,
    /// The question's bytes, for the answer.
    question: Vec<u8>,
    /// Size that the asker can take, where it said one.
    edns: Option<u16>,
}

/// Answers one datagram.
pub(super) fn serve_udp(
    socket: &UdpSocket,
    bytes: &[u8],
    from: SocketAddr,
    zone: &Arc<Zone>,
    names: &Log,
) {
    let Some(query) = read(bytes) else { return };
    note(names, &query, false, from.ip());
    match zone.ask(&query.name, query.qtype) {
        Outcome::Silence => {}
        Outcome::Later(pause) => {
            let (zone, socket) = (Arc::clone(zone), socket.try_clone());
            // A thread that cannot be had is an answer that does not come.
            let _none = thread::Builder::new().spawn(move || {
                thread::sleep(pause);
                let answer = fit(&query, zone.ask("shop.example", query.qtype));
                let _full = socket.and_then(|socket| socket.send_to(&answer, from));
            });
        }
        outcome => {
            let _full = socket.send_to(&fit(&query, outcome), from);
        }
    }
}

/// Answers the questions of a connection, one after the other.
pub(super) fn serve_tcp(mut stream: TcpStream, zone: &Zone, names: &Log) -> io::Result<()> {
    let from = stream.peer_addr()?.ip();
    loop {
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut bytes = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut bytes)?;
        let query = read(&bytes).ok_or(io::ErrorKind::InvalidData)?;
        note(names, &query, true, from);
        let outcome = match zone.ask(&query.name, query.qtype) {
            Outcome::Silence => continue,
            Outcome::Later(pause) => {
                thread::sleep(pause);
                zone.ask("shop.example", query.qtype)
            }
            outcome => outcome,
        };
        let answer = answer(&query, outcome);
        let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
        let mut framed = length.to_be_bytes().to_vec();
        framed.extend(answer);
        stream.write_all(&framed)?;
    }
}

fn note(names: &Log, query: &Query, tcp: bool, from: IpAddr) {
    let asked = Asked {
        at: SystemTime::now(),
        tcp,
        from: from.to_canonical(),
        qtype: query.qtype,
        name: query.name.clone(),
    };
    names.write(&asked.line());
}

/// Reads a query with one question; `None` for anything else.
fn read(bytes: &[u8]) -> Option<Query> {
    let head: &[u8; 12] = bytes.first_chunk()?;
    let &[i0, i1, flags, _, q0, q1, ..] = head;
    let is_query = flags & 0xf8 == 0;
    if !is_query || u16::from_be_bytes([q0, q1]) != 1 {
        return None;
    }
    let mut rest = bytes.get(12..)?;
    let start = rest;
    let mut name = String::new();
    loop {
        let (&length, after) = rest.split_first()?;
        if length == 0 {
            rest = after;
            break;
        }
        // Questions are first, so that nothing is there to point back to.
        let (label, after) = after
            .split_at_checked(usize::from(length))
            .filter(|_| length < 64)?;
        if !name.is_empty() {
            name.push('.');
        }
        name.push_str(&label.to_ascii_lowercase().escape_ascii().to_string());
        if name.len() > MAX_NAME.saturating_mul(4) {
            return None;
        }
        rest = after;
    }
    let (&[t0, t1, _, _], after) = rest.split_first_chunk::<4>()?;
    let question = start.get(..start.len().checked_sub(after.len())?)?.to_vec();
    Some(Query {
        id: [i0, i1],
        recursion: flags & 1,
        name,
        qtype: u16::from_be_bytes([t0, t1]),
        question,
        edns: edns(head, after),
    })
}

/// The size in an OPT record (RFC 6891) that directly follows the question.
fn edns(head: &[u8; 12], after: &[u8]) -> Option<u16> {
    let &[.., a0, a1, n0, n1, x0, x1] = head;
    let &[root, t0, t1, s0, s1, ..] = after.first_chunk::<11>()?;
    let alone = [a0, a1, n0, n1] == [0; 4] && [x0, x1] != [0; 2];
    (alone && root == 0 && [t0, t1] == [0, 41]).then(|| u16::from_be_bytes([s0, s1]))
}

/// The answer, or where it is too long for a datagram an empty one with TC.
fn fit(query: &Query, outcome: Outcome) -> Vec<u8> {
    let limit = match query.edns {
        Some(size) => usize::from(size.min(EDNS_SIZE)).max(PLAIN_SIZE),
        None => PLAIN_SIZE,
    };
    let whole = answer(query, outcome);
    if whole.len() <= limit {
        return whole;
    }
    let mut cut = answer(query, Outcome::Records(Vec::new()));
    if let Some(flags) = cut.get_mut(2) {
        *flags |= 0x02;
    }
    cut
}

fn answer(query: &Query, outcome: Outcome) -> Vec<u8> {
    let (code, records) = match outcome {
        Outcome::Records(records) => (0, records),
        Outcome::NoName => (rcode::NAME_ERROR, Vec::new()),
        _ => (rcode::SERVER_FAILURE, Vec::new()),
    };
    // A negative answer says by its SOA how long it may be kept (RFC 2308).
    let negative = records.is_empty() && code != rcode::SERVER_FAILURE;
    let count = u16::try_from(records.len()).unwrap_or(u16::MAX);
    let mut out = query.id.to_vec();
    out.extend([0x80 | query.recursion, 0x80 | code, 0, 1]);
    out.extend(count.to_be_bytes());
    out.extend([0, u8::from(negative), 0, u8::from(query.edns.is_some())]);
    out.extend(&query.question);
    for (owner, ttl, record) in records {
        // The owner that was asked is at offset 12.
        let owner = if owner == query.name {
            vec![0xc0, 12]
        } else {
            encode(&owner)
        };
        record_into(&mut out, &owner, record.rtype(), ttl, &data(&record));
    }
    if negative {
        let mut soa = encode("ns.example");
        soa.extend(encode("hostmaster.example"));
        for number in [1, 3600, 600, 86400, TTL] {
            soa.extend(number.to_be_bytes());
        }
        record_into(&mut out, &encode("example"), 6, TTL, &soa);
    }
    if query.edns.is_some() {
        let [s0, s1] = EDNS_SIZE.to_be_bytes();
        out.extend([0, 0, 41, s0, s1, 0, 0, 0, 0, 0, 0]);
    }
    out
}

fn record_into(out: &mut Vec<u8>, owner: &[u8], rtype: u16, ttl: u32, data: &[u8]) {
    out.extend(owner);
    out.extend(rtype.to_be_bytes());
    out.extend([0, 1]);
    out.extend(ttl.to_be_bytes());
    out.extend(u16::try_from(data.len()).unwrap_or_default().to_be_bytes());
    out.extend(data);
}

fn data(record: &Record) -> Vec<u8> {
    match record {
        Record::Address(IpAddr::V4(address)) => address.octets().to_vec(),
        Record::Address(IpAddr::V6(address)) => address.octets().to_vec(),
        Record::Alias(name) | Record::Pointer(name) => encode(name),
        Record::Service(port, target) => {
            // Priority and weight 0.
            let mut out = vec![0; 4];
            out.extend(port.to_be_bytes());
            out.extend(encode(target));
            out
        }
        Record::Text(text) => {
            let mut out = vec![u8::try_from(text.len()).unwrap_or_default()];
            out.extend(text.bytes());
            out
        }
        Record::Https(bytes) => bytes.clone(),
    }
}

/// A name in wire form, from a table of ours that holds plain labels only.
fn encode(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for label in name.split('.') {
        out.push(u8::try_from(label.len()).unwrap_or_default());
        out.extend(label.bytes());
    }
    out.push(0);
    out
}

#[cfg(test)]
mod tests {
    use super::super::zone::rtype;
    use super::*;

    fn query(name: &str, qtype: u16, edns: Option<u16>) -> Vec<u8> {
        let mut out = vec![
            0xab,
            0xcd,
            1,
            0,
            0,
            1,
            0,
            0,
            0,
            0,
            0,
            u8::from(edns.is_some()),
        ];
        out.extend(encode(name));
        out.extend(qtype.to_be_bytes());
        out.extend([0, 1]);
        if let Some(size) = edns {
            let [s0, s1] = size.to_be_bytes();
            out.extend([0, 0, 41, s0, s1, 0, 0, 0, 0, 0, 0]);
        }
        out
    }

    fn ask(name: &str, qtype: u16, edns: Option<u16>) -> Vec<u8> {
        let query = read(&query(name, qtype, edns)).unwrap();
        let outcome = Zone::new().ask(&query.name, qtype);
        fit(&query, outcome)
    }

    #[test]
    fn the_name_is_lowered_and_the_question_kept() {
        let bytes = query("ShOp.Example", rtype::A, Some(4096));
        let query = read(&bytes).unwrap();
        assert_eq!(query.name, "shop.example");
        assert_eq!(query.edns, Some(4096));
        let answer = answer(&query, Zone::new().ask(&query.name, rtype::A));
        assert_eq!(&answer[12..12 + query.question.len()], &query.question[..]);
        assert_eq!(answer[6..8], [0, 1], "one answer");
        assert_eq!(answer[2..4], [0x81, 0x80]);
    }

    #[test]
    fn what_does_not_fit_says_so_and_fits_over_tcp() {
        for edns in [None, Some(1232), Some(4096)] {
            let cut = ask("big.example", rtype::A, edns);
            assert_eq!(cut[2] & 2, 2, "TC");
            assert_eq!(cut[6..8], [0, 0]);
        }
        let query = read(&query("big.example", rtype::A, None)).unwrap();
        let whole = answer(&query, Zone::new().ask("big.example", rtype::A));
        assert_eq!(whole[6..8], [0, 100]);
    }

    #[test]
    fn a_missing_name_is_a_name_error_with_its_soa() {
        let answer = ask("nowhere.example", rtype::A, None);
        assert_eq!(answer[3] & 0xf, rcode::NAME_ERROR);
        assert_eq!(answer[8..10], [0, 1]);
        let answer = ask("v6.example", rtype::A, None);
        assert_eq!(answer[3] & 0xf, 0);
        assert_eq!(answer[6..10], [0, 0, 0, 1]);
    }

    #[test]
    fn noise_is_not_a_query() {
        let good = query("shop.example", rtype::A, None);
        for end in 0..good.len() {
            assert_eq!(read(&good[..end]), None, "{end}");
        }
        let mut reply = good.clone();
        reply[2] |= 0x80;
        assert_eq!(read(&reply), None);
        let mut pointer = good;
        pointer[12] = 0xc0;
        assert_eq!(read(&pointer), None);
    }
}
