//! One TCP stream each way through a gate, beside loopback, by iperf3. Prints
//! a line a figure; takes some 20 s. `cargo bench -p bailey-gate`.

#![expect(clippy::unwrap_used, reason = "a panic is the failure")]

#[path = "../tests/world/mod.rs"]
mod world;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use world::{PUBLIC_V4, Place, World, inside, no_facts, v4};

fn main() {
    if std::env::args().any(|word| word == "--test" || word == "--list") || !inside("") {
        return;
    }
    let seconds = std::env::var("SECONDS_EACH").unwrap_or_else(|_| "3".to_owned());
    let mtu = std::env::var("MTU")
        .ok()
        .and_then(|mtu| mtu.parse().ok())
        .unwrap_or(65520);
    let world = World::with_mtu("internet,local", no_facts(), mtu);
    let servers = [serve(&world.router), serve(&world.node)];
    for (name, place, target) in [
        ("loopback", &world.router, "127.0.0.1".to_owned()),
        (
            "gate to the node itself",
            &world.inner,
            "192.168.77.2".to_owned(),
        ),
        ("veth", &world.node, PUBLIC_V4.to_string()),
        ("gate and veth", &world.inner, PUBLIC_V4.to_string()),
        (
            "gate and veth, IPv6",
            &world.inner,
            world::PUBLIC_V6.to_string(),
        ),
    ] {
        let out = iperf(place, &target, &seconds, &[]);
        let back = iperf(place, &target, &seconds, &["-R"]);
        println!("{name}: {out:.1} Gbit/s out, {back:.1} Gbit/s in");
    }
    let eight = iperf(&world.inner, &PUBLIC_V4.to_string(), &seconds, &["-P", "8"]);
    println!("gate, 8 streams: {eight:.1} Gbit/s out");
    servers.into_iter().for_each(end);
    connections(&world);
    round_trips(&world);
    cpu(&world);
}

fn serve(place: &Place) -> Child {
    let child = place.run(|| {
        Command::new("iperf3")
            .arg("-s")
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    });
    std::thread::sleep(Duration::from_millis(300));
    child
}

fn end(mut child: Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn iperf(place: &Place, target: &str, seconds: &str, more: &[&'static str]) -> f64 {
    let mut words = vec![
        "-c".to_owned(),
        target.to_owned(),
        "-t".to_owned(),
        seconds.to_owned(),
    ];
    words.extend([
        "-O".to_owned(),
        "1".to_owned(),
        "-f".to_owned(),
        "m".to_owned(),
    ]);
    words.extend(more.iter().map(|word| (*word).to_owned()));
    let output = place.run(move || Command::new("iperf3").args(words).output().unwrap());
    let text = String::from_utf8_lossy(&output.stdout);
    // The receiver's line is the last one with a rate.
    text.lines()
        .filter(|line| line.contains("receiver"))
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let at = words.iter().position(|word| *word == "Mbits/sec")?;
            words.get(at.checked_sub(1)?)?.parse::<f64>().ok()
        })
        .next_back()
        .unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)))
        / 1000.0
}

fn connections(world: &World) {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    let listener = world
        .router
        .run(|| TcpListener::bind("0.0.0.0:7000").unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                let mut byte = [0];
                while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
            });
        }
    });
    for (name, place) in [("loopback", &world.router), ("gate", &world.inner)] {
        let count = place.run(|| {
            let until = Instant::now() + Duration::from_secs(2);
            let mut count = 0_u32;
            while Instant::now() < until {
                let mut stream = TcpStream::connect(v4(7000)).unwrap();
                stream.write_all(b"x").unwrap();
                stream.read_exact(&mut [0]).unwrap();
                count += 1;
            }
            count
        });
        println!(
            "{name}: {} connections a second, one after the other",
            count / 2
        );
    }
}

fn round_trips(world: &World) {
    use std::io::{Read, Write};
    for (name, place) in [("loopback", &world.router), ("gate", &world.inner)] {
        let mut times = place.run(|| {
            let mut stream = std::net::TcpStream::connect(v4(7000)).unwrap();
            stream.set_nodelay(true).unwrap();
            (0..10_000)
                .map(|_| {
                    let start = Instant::now();
                    stream.write_all(b"x").unwrap();
                    stream.read_exact(&mut [0]).unwrap();
                    start.elapsed()
                })
                .collect::<Vec<_>>()
        });
        times.sort_unstable();
        println!(
            "{name}: round trip of one byte, median {:?}, p99 {:?}",
            times[5000], times[9900]
        );
    }
}

fn cpu(world: &World) {
    let stat = std::fs::read_to_string(format!("/proc/{}/status", world.gate.id()));
    for line in stat.unwrap_or_default().lines() {
        if line.starts_with("VmHWM") || line.starts_with("VmRSS") {
            println!("gate: {line}");
        }
    }
}
