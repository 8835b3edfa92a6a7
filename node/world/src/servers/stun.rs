//! Answers STUN binding requests (RFC 8489) with the address they came from.

use std::net::{IpAddr, SocketAddr, UdpSocket};

/// Message types and the magic cookie (RFC 8489, 5 and 18.2).
const BINDING_REQUEST: [u8; 2] = [0x00, 0x01];
const BINDING_SUCCESS: [u8; 2] = [0x01, 0x01];
const COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];
const XOR_MAPPED_ADDRESS: [u8; 2] = [0x00, 0x20];

/// Answers one datagram, if it is a binding request.
pub(super) fn serve(socket: &UdpSocket, bytes: &[u8], from: SocketAddr) {
    if let Some(answer) = answer(bytes, from) {
        let _full = socket.send_to(&answer, from);
    }
}

fn answer(bytes: &[u8], from: SocketAddr) -> Option<Vec<u8>> {
    let head: &[u8; 20] = bytes.first_chunk()?;
    let transaction = head.get(4..)?;
    if !head.starts_with(&BINDING_REQUEST) || !transaction.starts_with(&COOKIE) {
        return None;
    }
    let [port_high, port_low] = from.port().to_be_bytes();
    let [c0, c1, ..] = COOKIE;
    let (family, address): (u8, Vec<u8>) = match from.ip().to_canonical() {
        IpAddr::V4(address) => (1, address.octets().to_vec()),
        IpAddr::V6(address) => (2, address.octets().to_vec()),
    };
    let mut value = vec![0, family, port_high ^ c0, port_low ^ c1];
    value.extend(
        address
            .iter()
            .zip(transaction)
            .map(|(byte, key)| byte ^ key),
    );

    let value_len = u8::try_from(value.len()).ok()?;
    let mut out = Vec::new();
    out.extend(BINDING_SUCCESS);
    out.extend([0, value_len.checked_add(4)?]);
    out.extend(transaction);
    out.extend(XOR_MAPPED_ADDRESS);
    out.extend([0, value_len]);
    out.extend(value);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_comes_back_masked() {
        let mut request = vec![0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42];
        request.extend([7; 12]);
        let answer = answer(&request, "192.168.1.11:4660".parse().unwrap()).unwrap();
        assert_eq!(answer.len(), 32);
        assert_eq!(answer[..4], [1, 1, 0, 12]);
        let masked: Vec<u8> = vec![192 ^ 0x21, 168 ^ 0x12, 1 ^ 0xa4, 11 ^ 0x42];
        assert_eq!(answer[28..], masked);
    }

    #[test]
    fn noise_gets_no_answer() {
        assert_eq!(answer(&[0; 20], "1.2.3.4:5".parse().unwrap()), None);
        assert_eq!(answer(&[0, 1], "1.2.3.4:5".parse().unwrap()), None);
    }
}
