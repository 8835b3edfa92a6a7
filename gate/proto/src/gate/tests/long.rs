//! Packets that are longer than a segment of their connection.

use super::*;
use crate::Unfinished;

/// The bytes that each packet carried which the gate sent for 10 000 octets of the
/// far end, on a connection of the box whose segments carry 1460.
fn sent(rig: &mut Rig) -> Vec<usize> {
    let mut far = Far::default();
    let mut syn = segment_of(own(40000), at(SHOP), 100, 0, SYN, b"");
    let size = syn.windows(4).position(|four| four == [2, 4, 0xff, 0xc8]);
    syn[size.unwrap() + 2..][..2].copy_from_slice(&1460_u16.to_be_bytes());
    rig.tun(&syn);
    let (ticket, FlowOpened { flow, .. }) = rig.opened();
    rig.word(ticket, true);
    rig.actions();
    rig.dialled(flow, Ok(()));
    rig.turns(&mut far);
    let next = rig.seen().seq.wrapping_add(1);
    rig.send(40000, SHOP, 101, next, ACK, b"");
    rig.turns(&mut far);
    far.to_box.extend([7; 10_000]);
    rig.gate.handle_ready(flow, true, true);
    rig.turns(&mut far);
    let packets = std::mem::take(&mut rig.sink.packets);
    packets
        .iter()
        .map(|packet| read(packet).data.len())
        .collect()
}

#[test]
fn an_outlet_that_cuts_has_them_whole() {
    let mut rig = Rig::new("internet");
    rig.sink.finishes = true;
    assert_eq!(sent(&mut rig), [10_000]);
    let last = rig.sink.unfinished.last();
    let whole = Unfinished {
        segment: 20,
        header: 20,
        cut: Some(1460),
    };
    assert_eq!(last, Some(&whole));
    // The answer to the SYN is left unfinished too, and needs no cut.
    assert_eq!(rig.sink.unfinished[0].cut, None);
}

#[test]
fn any_other_has_segments() {
    let mut rig = Rig::new("internet");
    let sent = sent(&mut rig);
    assert!(sent.iter().all(|len| *len <= 1460), "{sent:?}");
    assert_eq!(sent.iter().sum::<usize>(), 10_000);
    assert!(rig.sink.unfinished.is_empty());
}
