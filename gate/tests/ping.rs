//! Echoes between the real `ping` in a box and real hosts.

#![expect(clippy::unwrap_used, reason = "a panic is the failure")]

mod world;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bailey_gate_proto::channel::GateEvent;
use bailey_model::{EndReason, Refusal};
use world::{PUBLIC_V4, PUBLIC_V6, Place, World, inside, no_facts};

/// Public, on the way through the router, and nobody's.
const NOBODY: &str = "8.8.8.8";
const SOON: Duration = Duration::from_millis(800);

/// Lets this user's group make ping sockets in a place.
fn allow(place: &Place) {
    let path = "/proc/sys/net/ipv4/ping_group_range";
    place.run(move || std::fs::write(path, "0 0").unwrap());
}

/// A world whose node and box may ping.
fn world(reach: &str) -> World {
    let world = World::new(reach, no_facts());
    allow(&world.node);
    allow(&world.inner);
    world
}

/// Runs `ping` in the box; whether it was answered, and what it said.
fn ping(world: &World, words: &str) -> (bool, String) {
    let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    world.inner.run(move || {
        let done = Command::new("ping")
            .args(["-n", "-c1", "-W2"])
            .args(words)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = [done.stdout, done.stderr].concat();
        (
            done.status.success(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    })
}

fn refused(world: &World) -> (Refusal, String) {
    world.event(|event| match event {
        GateEvent::FlowRefused(refused) => Some((refused.refusal, refused.proto.to_string())),
        _ => None,
    })
}

#[test]
fn a_granted_ping_is_answered_by_the_host_that_was_asked() {
    if !inside("a_granted_ping_is_answered_by_the_host_that_was_asked") {
        return;
    }
    let mut world = world("internet");
    for to in [PUBLIC_V4.to_string(), PUBLIC_V6.to_string()] {
        let (answered, said) = ping(&world, &to);
        assert!(answered && said.contains(" 0% packet loss"), "{said}");
        assert!(said.contains(&format!("from {to}: icmp_seq=1")), "{said}");
        let opened = world.event(|event| match event {
            GateEvent::FlowOpened(opened) if opened.tuple.dst_ip().to_string() == to => {
                Some(opened.clone())
            }
            _ => None,
        });
        assert_eq!(opened.tuple.proto.to_string(), "icmp");
        // Longer than the node's network takes in one piece; then so with DF.
        let (answered, said) = ping(&world, &format!("-M dont -s 9000 {to}"));
        assert!(answered, "{said}");
    }
    let (answered, said) = ping(&world, &format!("-M do -s 3000 {PUBLIC_V4}"));
    assert!(!answered && said.contains("mtu = 1500"), "{said}");
    // The box's kernel knows by now, and cuts the next one up itself.
    let (answered, said) = ping(&world, &format!("-s 3000 {PUBLIC_V4}"));
    assert!(answered, "{said}");
    // Nobody there: nobody answers.
    let (answered, said) = ping(&world, NOBODY);
    assert!(!answered && said.contains("100% packet loss"), "{said}");
    assert!(!said.contains("From "), "{said}");
    assert_eq!(world.stop(), 7);
    let ended = world.event(|event| match event {
        GateEvent::FlowEnded(ended) => Some(ended.clone()),
        _ => None,
    });
    assert_eq!(
        (ended.end, ended.bytes_out, ended.bytes_in),
        (EndReason::BoxStopped, 56, 56)
    );
    assert!(ended.outer_src.is_some());
}

#[test]
fn a_ping_outside_reach_is_prohibited_at_once() {
    if !inside("a_ping_outside_reach_is_prohibited_at_once") {
        return;
    }
    for to in ["192.168.77.1", "192.168.77.2", "fd77::1", "192.0.0.1"] {
        let world = world("internet");
        let start = Instant::now();
        let (answered, said) = ping(&world, to);
        assert!(!answered && start.elapsed() < SOON, "{said}");
        let word = if to.contains(':') {
            "Administratively prohibited"
        } else {
            "Packet filtered"
        };
        assert!(said.contains(word), "{said}");
        let want = (Refusal::OutsideReach, "icmp".to_owned());
        assert_eq!(refused(&world), want, "{to}");
    }
    // The control.
    let world = world("local");
    for to in ["192.168.77.1", "192.168.77.2", "fd77::1"] {
        let (answered, said) = ping(&world, to);
        assert!(answered, "{said}");
    }
}

#[test]
fn errors_from_the_way_reach_the_box() {
    if !inside("errors_from_the_way_reach_the_box") {
        return;
    }
    let world = world("internet");
    world
        .router
        .run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
    world.router.ip("route add unreachable 9.9.9.0/24");
    world.router.ip("route add 8.8.8.0/24 dev lo");
    let (answered, said) = ping(&world, &format!("-t 1 {NOBODY}"));
    // The router is none of the box's business: the gate stands for it.
    assert!(
        !answered && said.contains("From 192.0.0.1 icmp_seq=1 Time to live exceeded"),
        "{said}"
    );
    let (answered, said) = ping(&world, "9.9.9.9");
    assert!(
        !answered && said.contains("icmp_seq=1 Destination Host Unreachable"),
        "{said}"
    );
    world.node.ip("route add unreachable 8.8.4.0/24");
    let (answered, said) = ping(&world, "8.8.4.4");
    assert!(!answered && said.contains("Unreachable"), "{said}");
    // The control: with a longer life it passes the router.
    let (answered, said) = ping(&world, &format!("-t 2 {PUBLIC_V4}"));
    assert!(answered, "{said}");
}

#[test]
fn a_host_that_allows_no_ping_refuses_at_once_and_says_so() {
    if !inside("a_host_that_allows_no_ping_refuses_at_once_and_says_so") {
        return;
    }
    // A network's own beginning: no group at all.
    let world = World::new("internet", no_facts());
    allow(&world.inner);
    for (to, word) in [
        (PUBLIC_V4.to_string(), "Packet filtered"),
        (PUBLIC_V6.to_string(), "Administratively prohibited"),
    ] {
        let start = Instant::now();
        let (answered, said) = ping(&world, &to);
        assert!(!answered && said.contains(word), "{said}");
        assert!(start.elapsed() < SOON, "{said}");
    }
    assert_eq!(refused(&world), (Refusal::NoPing, "icmp".to_owned()));
    // The control: opened, and the next one passes.
    allow(&world.node);
    let (answered, said) = ping(&world, &PUBLIC_V4.to_string());
    assert!(answered, "{said}");
}
