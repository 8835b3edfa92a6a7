//! The network's own translation prefixes.

use bailey_model::AddrClass;

use super::*;

const PREFIX: &str = "2606:2800:220:64::";

fn facts(nat64: &[(&str, u8)]) -> HostFacts {
    HostFacts {
        resolvers: vec![at("9.9.9.9:53")],
        nat64: nat64
            .iter()
            .map(|(prefix, len)| (prefix.parse().unwrap(), *len))
            .collect(),
        ..HostFacts::default()
    }
}

/// Whether a dial is refused at once, and as what.
fn dial(rig: &mut Rig, src: u16, dst: &str) -> Option<AddrClass> {
    let src = SocketAddr::new(IpAddr::V6(bailey_model::link::BOX_V6), src);
    rig.tun(&segment_of(src, at(dst), 1, 0, SYN, &[]));
    rig.events().into_iter().find_map(|(_, event)| match event {
        GateEvent::FlowRefused(refused) => refused.class,
        _ => None,
    })
}

#[test]
fn what_a_translated_address_carries_is_judged_once_its_prefix_is_known() {
    let mut rig = Rig::new("internet");
    let printer = &format!("[{PREFIX}c0a8:109]:80");
    let shop = &format!("[{PREFIX}5db8:d822]:80");
    assert_eq!(dial(&mut rig, 4001, printer), None, "the control");
    rig.gate.set_facts(facts(&[(PREFIX, 96)]));
    assert_eq!(dial(&mut rig, 4002, printer), Some(AddrClass::Local));
    let metadata = &format!("[{PREFIX}a9fe:a9fe]:80");
    assert_eq!(dial(&mut rig, 4003, metadata), Some(AddrClass::Metadata));
    assert_eq!(dial(&mut rig, 4004, shop), None, "a public one passes");
    // What the kernel lists says nothing of it, and takes nothing away.
    rig.gate.set_addrs(NodeAddrs {
        on_link: vec![("10.0.0.0".parse().unwrap(), 8)],
        has_v6_default: true,
        ..NodeAddrs::default()
    });
    let raw = &format!("[{PREFIX}c0a8:109]:9100");
    assert_eq!(dial(&mut rig, 4005, raw), Some(AddrClass::Private));
    // Another network.
    rig.gate.set_facts(facts(&[]));
    assert_eq!(dial(&mut rig, 4006, printer), None);
}

#[test]
fn a_gate_starts_with_what_its_node_knows() {
    let config = GateConfig {
        reach: "internet".parse().unwrap(),
        facts: facts(&[(PREFIX, 96)]),
        published: Vec::new(),
        seed: [3; 32],
    };
    let mut rig = Rig::new("internet");
    rig.gate = Gate::new(Now::ZERO, config, NodeAddrs::default());
    let printer = &format!("[{PREFIX}c0a8:109]:80");
    assert_eq!(dial(&mut rig, 4001, printer), Some(AddrClass::Private));
}
