//! Flows that come in, against a TCP stack in the box: whatever the order of
//! writes, reads, closes and lost packets, what arrives is what was sent.

use proptest::prelude::*;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpCidr};

use super::*;

#[derive(Debug, Default)]
struct Queues {
    to_box: VecDeque<Vec<u8>>,
    from_box: VecDeque<Vec<u8>>,
}

struct Rx(Vec<u8>);
struct Tx<'a>(&'a mut VecDeque<Vec<u8>>);

impl RxToken for Rx {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Tx<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut packet = vec![0; len];
        let result = f(&mut packet);
        self.0.push_back(packet);
        result
    }
}

impl Device for Queues {
    type RxToken<'a> = Rx;
    type TxToken<'a> = Tx<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Rx, Tx<'_>)> {
        let packet = self.to_box.pop_front()?;
        Some((Rx(packet), Tx(&mut self.from_box)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Tx<'_>> {
        Some(Tx(&mut self.from_box))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = 1500;
        capabilities
    }
}

/// The box: one program that listens on 8080 with small buffers.
struct Inner {
    queues: Queues,
    iface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    got: Vec<u8>,
    unsent: VecDeque<u8>,
    closing: bool,
}

impl Inner {
    fn new() -> Self {
        let mut queues = Queues::default();
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = 5;
        let mut iface = Interface::new(config, &mut queues, Instant::ZERO);
        iface.update_ip_addrs(|addrs| {
            addrs
                .push(IpCidr::new(IpAddr::V4(BOX_V4).into(), 29))
                .unwrap();
        });
        let buffer = || tcp::SocketBuffer::new(vec![0; 8000]);
        let mut socket = tcp::Socket::new(buffer(), buffer());
        socket.listen(8080).unwrap();
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(socket);
        Self {
            queues,
            iface,
            sockets,
            handle,
            got: Vec::new(),
            unsent: VecDeque::new(),
            closing: false,
        }
    }

    fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    fn read(&mut self, most: usize) {
        let mut buffer = vec![0; most];
        if let Ok(count) = self.socket().recv_slice(&mut buffer) {
            self.got.extend_from_slice(&buffer[..count]);
        }
    }

    fn write(&mut self) {
        let (front, _) = self.unsent.as_slices();
        let front = front.to_vec();
        if let Ok(count) = self.socket().send_slice(&front) {
            self.unsent.drain(..count);
        }
        if self.closing && self.unsent.is_empty() && self.socket().may_send() {
            self.socket().close();
        }
    }
}

/// What happens.
#[derive(Debug, Clone)]
enum Step {
    ClientSends(u16),
    ClientTakes(u16),
    ClientEnds,
    BoxSends(u16),
    BoxReads(u16),
    BoxEnds,
    Passes(u16),
    /// The next packet is lost, into the box or out of it.
    Loses(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => any::<u16>().prop_map(Step::ClientSends),
        3 => any::<u16>().prop_map(Step::ClientTakes),
        1 => Just(Step::ClientEnds),
        3 => any::<u16>().prop_map(Step::BoxSends),
        3 => any::<u16>().prop_map(Step::BoxReads),
        1 => Just(Step::BoxEnds),
        2 => (0_u16..3000).prop_map(Step::Passes),
        2 => any::<bool>().prop_map(Step::Loses),
    ]
}

struct World {
    rig: Rig,
    far: Far,
    inner: Inner,
    flow: FlowId,
    sent: Vec<u8>,
    wrote: Vec<u8>,
    lose_in: bool,
    lose_out: bool,
    box_ended: bool,
}

impl World {
    fn new() -> Self {
        let mut rig = Rig::new("nothing");
        let publish = "80:8080".parse().unwrap();
        let client = at("127.0.0.1:51000");
        let flow = rig.gate.handle_accepted(rig.now, publish, client).unwrap();
        let (ticket, _) = rig.opened();
        rig.word(ticket, true);
        let far = Far {
            room: Some(0),
            ..Far::default()
        };
        Self {
            rig,
            far,
            inner: Inner::new(),
            flow,
            sent: Vec::new(),
            wrote: Vec::new(),
            lose_in: false,
            lose_out: false,
            box_ended: false,
        }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::ClientSends(count) if !self.far.ended => {
                let from = self.sent.len();
                let bytes = (from..from + usize::from(count)).map(|at| at.to_le_bytes()[0]);
                let bytes: Vec<u8> = bytes.collect();
                self.sent.extend(&bytes);
                self.far.to_box.extend(bytes);
            }
            Step::ClientTakes(count) => {
                let room = self.far.room.get_or_insert(0);
                *room += usize::from(count);
            }
            Step::ClientEnds => self.far.ended = true,
            Step::BoxSends(count) if !self.box_ended => {
                let from = self.wrote.len();
                let bytes = (from..from + usize::from(count)).map(|at| at.to_le_bytes()[0] ^ 0x5a);
                let bytes: Vec<u8> = bytes.collect();
                self.wrote.extend(&bytes);
                self.inner.unsent.extend(bytes);
            }
            Step::BoxReads(count) => self.inner.read(count.into()),
            Step::BoxEnds => {
                self.box_ended = true;
                self.inner.closing = true;
            }
            Step::Passes(ms) => self.rig.pass(Duration::from_millis(ms.into())),
            Step::Loses(inwards) => {
                self.lose_in |= inwards;
                self.lose_out |= !inwards;
            }
            Step::ClientSends(_) | Step::BoxSends(_) => {}
        }
        self.settle();
    }

    /// Moves what can be moved now.
    fn settle(&mut self) {
        self.rig.gate.handle_ready(self.flow, true, true);
        for _ in 0..200 {
            self.rig.turns(&mut self.far);
            self.inner.write();
            let ms = i64::try_from(self.rig.now.as_millis()).unwrap();
            for packet in self.rig.sink.packets.drain(..) {
                if std::mem::take(&mut self.lose_in) {
                    continue;
                }
                self.inner.queues.to_box.push_back(packet);
            }
            self.inner.iface.poll(
                Instant::from_millis(ms),
                &mut self.inner.queues,
                &mut self.inner.sockets,
            );
            let answers: Vec<Vec<u8>> = self.inner.queues.from_box.drain(..).collect();
            let quiet = answers.is_empty();
            for packet in answers {
                if !std::mem::take(&mut self.lose_out) {
                    self.rig.tun(&packet);
                }
            }
            if quiet && self.rig.sink.packets.is_empty() && !self.rig.gate.has_touched() {
                return;
            }
        }
    }

    fn over(&self) -> bool {
        self.rig.gate.flows() == 0
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_arrives_is_what_was_sent_whatever_the_order(
        steps in proptest::collection::vec(step(), 0..40),
    ) {
        let mut world = World::new();
        world.settle();
        for step in &steps {
            world.take(step);
            prop_assert!(world.sent.starts_with(&world.inner.got));
            prop_assert!(world.wrote.starts_with(&world.far.from_box));
        }
        // At the end both close, everyone reads, and nothing more is lost.
        (world.lose_in, world.lose_out) = (false, false);
        world.far.room = None;
        world.take(&Step::ClientEnds);
        world.take(&Step::BoxEnds);
        for _ in 0..400 {
            if world.over() {
                break;
            }
            world.take(&Step::BoxReads(u16::MAX));
            world.take(&Step::Passes(500));
        }
        world.inner.read(usize::from(u16::MAX));
        prop_assert!(world.over(), "it does not end: {:?}", world.inner.socket().state());
        prop_assert!(world.inner.got == world.sent);
        prop_assert!(world.far.from_box == world.wrote && world.far.finished);
        let ended = world.rig.ended();
        let count = |bytes: &[u8]| u64::try_from(bytes.len()).unwrap();
        prop_assert_eq!(ended.end, EndReason::Closed);
        prop_assert_eq!(ended.bytes_in, count(&world.sent));
        prop_assert_eq!(ended.bytes_out, count(&world.wrote));
    }
}
