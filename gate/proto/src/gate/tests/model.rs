//! Random inputs to the gate, each held against a reference that knows what may
//! come of it: no dial, datagram, echo or question without an entry that stands,
//! no byte but those that were sent, none after a reset, one end a flow, every
//! stage within its time, every table within its bound, and nothing left when
//! all is over.

use std::cell::RefCell;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use super::*;

mod boxed;
mod reference;
mod world;

use boxed::pattern;
use reference::{FAR, Far, Kind, Known, NAME, NAMED, REACHES, Stage};
use world::{World, box_end};

/// Steps in an ordinary run; with `PROPTEST_CASES`, as many more as it is more
/// than 256.
const STEPS: u64 = 100_000;

/// What happens. Numbers pick among what there is at that moment.
#[derive(Debug, Clone)]
enum Op {
    Syn(u8),
    SynAgain(u8),
    Ack(u8, u16),
    Data(u8, u16, u16),
    Fin(u8),
    Rst(u8),
    Stray(u8, u8, u16),
    Lose,
    Word(u8, bool),
    Dialled(u8, u8),
    FarSends(u8, u16),
    FarTakes(u8, Option<u16>),
    FarEnds(u8),
    FarBreaks(u8),
    Datagram(u8, u8),
    DatagramIn(u8, u8, bool),
    DatagramFails(u8, u8),
    NoSocket(bool),
    Echo(u8, u8),
    EchoBack(u8, bool),
    Ask(u8, bool),
    Answer(u8, bool),
    Caller(u8),
    CallerUdp(u8),
    Knocked(u8, bool),
    Pass(u16),
    PassLong(u8),
    Reach(u8),
    Moved(bool),
    Stop,
}

fn op() -> impl Strategy<Value = Op> {
    let windows = prop_oneof![Just(0), Just(1), Just(8), Just(65535), any::<u16>()];
    let tcp = prop_oneof![
        8 => any::<u8>().prop_map(Op::Syn),
        6 => any::<u8>().prop_map(Op::SynAgain),
        8 => (any::<u8>(), windows).prop_map(|(conn, window)| Op::Ack(conn, window)),
        8 => (any::<u8>(), 0_u16..300, 0_u16..2000).prop_map(|(c, b, l)| Op::Data(c, b, l)),
        3 => any::<u8>().prop_map(Op::Fin),
        1 => any::<u8>().prop_map(Op::Rst),
        3 => any::<(u8, u8, u16)>().prop_map(|(c, f, d)| Op::Stray(c, f, d)),
        2 => Just(Op::Lose),
        14 => (any::<u8>(), 0_u8..24).prop_map(|(at, how)| Op::Dialled(at, how)),
        6 => (any::<u8>(), 0_u16..5000).prop_map(|(c, len)| Op::FarSends(c, len)),
        4 => any::<(u8, Option<u16>)>().prop_map(|(c, room)| Op::FarTakes(c, room)),
        2 => any::<u8>().prop_map(Op::FarEnds),
        1 => any::<u8>().prop_map(Op::FarBreaks),
    ];
    let others = prop_oneof![
        8 => any::<(u8, u8)>().prop_map(|(src, far)| Op::Datagram(src, far)),
        4 => any::<(u8, u8, bool)>().prop_map(|(s, f, p)| Op::DatagramIn(s, f, p)),
        1 => any::<(u8, u8)>().prop_map(|(src, far)| Op::DatagramFails(src, far)),
        1 => any::<bool>().prop_map(Op::NoSocket),
        4 => any::<(u8, u8)>().prop_map(|(id, far)| Op::Echo(id, far)),
        2 => any::<(u8, bool)>().prop_map(|(at, ok)| Op::EchoBack(at, ok)),
        5 => any::<(u8, bool)>().prop_map(|(id, granted)| Op::Ask(id, granted)),
        5 => any::<(u8, bool)>().prop_map(|(at, ok)| Op::Answer(at, ok)),
        2 => any::<u8>().prop_map(Op::Caller),
        2 => any::<u8>().prop_map(Op::CallerUdp),
        2 => any::<(u8, bool)>().prop_map(|(at, ok)| Op::Knocked(at, ok)),
    ];
    prop_oneof![
        500 => tcp,
        250 => others,
        160 => (any::<u8>(), prop::bool::weighted(0.9)).prop_map(|(at, ok)| Op::Word(at, ok)),
        100 => (0_u16..900).prop_map(Op::Pass),
        6 => any::<u8>().prop_map(Op::PassLong),
        10 => any::<u8>().prop_map(Op::Reach),
        10 => any::<bool>().prop_map(Op::Moved),
        2 => Just(Op::Stop),
    ]
}

/// One of so many; `None` of none.
fn pick(at: u8, of: usize) -> Option<usize> {
    usize::from(at).checked_rem(of)
}

impl World {
    fn take(&mut self, op: &Op) {
        match *op {
            Op::Syn(c) => self.syn(pick(c, self.conns.len()).unwrap()),
            Op::SynAgain(c) => self.syn_again(pick(c, self.conns.len()).unwrap()),
            Op::Ack(c, window) => self.box_says(c, |conn| conn.ack(window)),
            Op::Data(c, back, len) => {
                self.box_says(c, |conn| conn.data(back.into(), len.into()));
            }
            Op::Fin(c) => self.box_says(c, boxed::Conn::end),
            Op::Rst(c) => self.box_says(c, |conn| conn.reset()),
            Op::Stray(c, flags, far) => self.box_says(c, |conn| conn.stray(flags, far.into())),
            Op::Lose => self.lose = true,
            Op::Word(at, stands) => {
                if let Some(at) = pick(at, self.reference.tickets.len()) {
                    self.word(at, stands);
                }
            }
            Op::Dialled(at, how) => self.dial_ends(at, how),
            Op::FarSends(c, len) => self.far(c, |far| far.given += usize::from(len)),
            Op::FarTakes(c, room) => self.far(c, |far| far.room = room.map(Into::into)),
            Op::FarEnds(c) => self.far(c, |far| far.ended = true),
            Op::FarBreaks(c) => self.far(c, |far| far.broken = true),
            Op::Datagram(src, far) => self.datagram_out(src, far),
            Op::DatagramIn(src, far, port) => self.datagram_comes(src, far, port),
            Op::DatagramFails(src, far) => self.datagram_fails(src, far),
            Op::NoSocket(yes) => self.heard.set_fault(yes.then_some(SendFault::NoSocket)),
            Op::Echo(id, far) => self.echo(id, far),
            Op::EchoBack(at, ok) => self.echo_back(at, ok),
            Op::Ask(id, granted) => self.ask(id, granted),
            Op::Answer(at, ok) => self.answer(at, ok),
            Op::Caller(port) => self.caller(port),
            Op::CallerUdp(port) => self.caller_udp(port),
            Op::Knocked(at, ok) => self.knocked(at, ok),
            Op::Pass(ms) => self.pass(Duration::from_millis(ms.into())),
            Op::PassLong(s) => self.pass(Duration::from_secs(s.into())),
            Op::Reach(reach) => self.set_reach(reach),
            Op::Moved(moved) => {
                self.rules.moved = moved;
                self.gate.set_addrs(self.rules.addrs());
                self.gate.judge_anew(self.now, &mut self.heard);
                self.settle();
                self.check_live();
            }
            Op::Stop => self.stop(),
        }
    }

    /// A SYN between ends that may be in use.
    fn syn(&mut self, at: usize) {
        let (src, dst) = (self.conns[at].src, self.conns[at].dst);
        let ends = Ends { src, dst };
        let open = self.reference.at(Kind::Tcp, ends);
        self.iss = self.iss.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
        if let Some(id) = open {
            let known = self.reference.flows.get_mut(&id).unwrap();
            if matches!(known.stage, Stage::Live(_)) {
                // As if a stranger had sent it: nothing may come of it.
                let iss = self.conns[at].iss.wrapping_add(0x4000_0000);
                let syn = raw::Tcp {
                    seq: iss,
                    flags: SYN,
                    ..raw::Tcp::default()
                };
                let step = self.tun(&raw::tcp(src, dst, &syn));
                assert!(step.opened.is_empty() && step.ended.is_empty(), "{step:?}");
                return;
            }
            known.far.key += 1;
        }
        let iss = self.iss;
        let syn = self.conns[at].open(iss);
        let step = self.tun(&syn);
        let news = (step.opened.len(), step.refused > 0 || step.reset(ends));
        match (open, self.permits_new(Kind::Tcp, dst)) {
            // One dial for all SYNs of the same ends.
            (Some(_), _) => assert_eq!(news, (0, false), "{step:?}"),
            (None, true) => assert_eq!(news, (1, false), "{step:?}"),
            (None, false) => {
                assert!(step.opened.is_empty() && step.reset(ends), "{step:?}");
                self.reference.refusals += 1;
            }
        }
        assert!(step.dialled.is_empty() && step.ended.is_empty(), "{step:?}");
    }

    /// The same SYN again, as a kernel repeats it.
    fn syn_again(&mut self, at: usize) {
        let conn = &self.conns[at];
        let ends = Ends {
            src: conn.src,
            dst: conn.dst,
        };
        if conn.epoch > 0 && self.reference.at(Kind::Tcp, ends).is_some() {
            let syn = conn.syn();
            let step = self.tun(&syn);
            assert!(step.opened.is_empty() && step.dialled.is_empty());
        }
    }

    /// A segment that is no SYN.
    fn box_says(&mut self, conn: u8, say: impl FnOnce(&mut boxed::Conn) -> Vec<u8>) {
        let conn = &mut self.conns[usize::from(conn) % 6];
        let ends = Ends {
            src: conn.src,
            dst: conn.dst,
        };
        if conn.epoch == 0 {
            return;
        }
        let packet = say(conn);
        let open = self.reference.at(Kind::Tcp, ends).is_some();
        let step = self.tun(&packet);
        assert!(
            step.opened.is_empty() && step.dialled.is_empty(),
            "{step:?}"
        );
        if !open {
            assert!(step.ended.is_empty() && step.refused == 0, "{step:?}");
        }
    }

    fn dial_ends(&mut self, at: u8, how: u8) {
        let Some(at) = pick(at, self.reference.dials.len()) else {
            return;
        };
        let id = self.reference.dials.remove(at);
        let known = self.reference.flows.get_mut(&id).unwrap();
        let (ends, named) = (known.ends, known.named);
        let mut dialled = Dialled {
            local: super::at("192.168.1.5:50000"),
            peer: ends.dst,
        };
        let outcome = match how {
            0 => Err(DialFault::Refused),
            1 => Err(DialFault::TimedOut),
            2 => Err(DialFault::HostUnreachable),
            3 => Err(DialFault::NetworkUnreachable),
            4 => Err(DialFault::NoSocket),
            5 => {
                dialled.local = ends.dst;
                Ok(dialled)
            }
            _ => Ok(dialled),
        };
        let waits = matches!(known.stage, Stage::Dialling(_));
        let lives = how > 5 && waits && self.rules.permits(Kind::Tcp, ends.dst, named);
        if lives {
            known.stage = Stage::Live(self.now);
        }
        let (now, heard) = (self.now, &mut self.heard);
        self.gate.handle_dialled(now, id, outcome, heard);
        let step = self.settle();
        match (waits, lives) {
            (_, true) => assert!(step.ended.is_empty(), "{step:?}"),
            (true, false) => assert_eq!((step.ended.len(), step.icmp + step.resets.len()), (1, 1)),
            // A late one means nothing any more.
            (false, false) => assert!(step.ended.is_empty() && step.resets.is_empty()),
        }
    }

    /// Something about the far end of a live flow, which its socket then tells.
    fn far(&mut self, conn: u8, change: impl FnOnce(&mut Far)) {
        let conn = &self.conns[usize::from(conn) % 6];
        let ends = Ends {
            src: conn.src,
            dst: conn.dst,
        };
        let Some(id) = self.reference.at(Kind::Tcp, ends) else {
            return;
        };
        let known = self.reference.flows.get_mut(&id).unwrap();
        if matches!(known.stage, Stage::Live(_)) {
            let (given, ended) = (known.far.given, known.far.ended);
            change(&mut known.far);
            if ended {
                known.far.given = given;
            }
            self.gate.handle_ready(id, true, true);
            self.settle();
        }
    }

    fn udp_ends(src: u8, far: u8) -> (u8, Ends) {
        let (src, dst) = (src % 3, at(FAR[usize::from(far) % FAR.len()]));
        let from = box_end(dst, 9000 + u16::from(src));
        (src, Ends { src: from, dst })
    }

    fn datagram_out(&mut self, src: u8, far: u8) {
        let (src, ends) = Self::udp_ends(src, far);
        let open = self.reference.at(Kind::Udp, ends);
        let faulty = self.heard.has_fault();
        let step = self.tun(&datagram_of(ends.src, ends.dst, &[1, src, far]));
        let Some(id) = open else {
            match self.permits_new(Kind::Udp, ends.dst) {
                true => assert_eq!((step.opened.len(), step.icmp), (1, 0), "{step:?}"),
                false => {
                    assert_eq!((step.opened.len(), step.icmp), (0, 1), "{step:?}");
                    self.reference.refusals += 1;
                }
            }
            return assert_eq!(step.datagrams, 0, "{step:?}");
        };
        let known = &self.reference.flows[&id];
        let permitted = self.rules.permits(Kind::Udp, ends.dst, known.named);
        let seen = (step.datagrams, step.icmp, step.ended.len());
        match known.stage {
            Stage::Asked => assert_eq!(seen, (0, 0, 0)),
            _ if permitted && !faulty => assert_eq!(seen, (1, 0, 0)),
            _ => assert_eq!(seen, (0, 1, 1)),
        }
    }

    fn datagram_comes(&mut self, src: u8, far: u8, other_port: bool) {
        let (_, ends) = Self::udp_ends(src, far);
        let port = self.reference.ports.iter().find(|(_, of)| **of == ends.src);
        let Some((&port, _)) = port else { return };
        let mut from = ends.dst;
        from.set_port(from.port() + u16::from(other_port));
        let lets = |known: &Known| {
            let waits = known.stage == Stage::Asked;
            known.kind == Kind::Udp && known.ends.src == ends.src && !waits
        };
        let near = |known: &&Known| lets(known) && known.ends.dst.ip() == from.ip();
        let open = self.reference.open().map(|(_, known)| known);
        let mut open: Vec<&Known> = open.filter(near).collect();
        // That very far end's, else the lowest port's.
        open.sort_by_key(|known| (known.ends.dst != from, known.ends.dst));
        let through = open.first().map(|known| {
            let permitted = self.rules.permits(Kind::Udp, known.ends.dst, known.named);
            (known.ends, permitted)
        });
        let (now, heard) = (self.now, &mut self.heard);
        self.gate.handle_datagram(now, port, from, b"back", heard);
        if let Some((ends, true)) = through {
            let id = self.reference.at(Kind::Udp, ends).unwrap();
            self.reference.flows.get_mut(&id).unwrap().last = now;
        }
        let step = self.settle();
        match through {
            Some((_, true)) => assert_eq!(step.datagrams_in, [(from, ends.src.port())]),
            Some((_, false)) => assert!(step.datagrams_in.is_empty() && step.ended.len() == 1),
            None => assert!(step.datagrams_in.is_empty() && step.ended.is_empty()),
        }
    }

    fn datagram_fails(&mut self, src: u8, far: u8) {
        let (_, ends) = Self::udp_ends(src, far);
        let port = self.reference.ports.iter().find(|(_, of)| **of == ends.src);
        let Some((&port, _)) = port else { return };
        let open = self.reference.at(Kind::Udp, ends);
        let asked = open.is_none_or(|id| self.reference.flows[&id].stage == Stage::Asked);
        let (fault, heard) = (SendFault::PortUnreachable, &mut self.heard);
        self.gate
            .handle_datagram_failed(port, ends.dst, fault, heard);
        let step = self.settle();
        assert_eq!(step.icmp, usize::from(!asked), "{step:?}");
    }

    fn echo(&mut self, id: u8, far: u8) {
        let dst = SocketAddr::new(at(FAR[usize::from(far) % FAR.len()]).ip(), 0);
        let src = box_end(dst, u16::from(id % 3));
        let ends = Ends { src, dst };
        let open = self.reference.at(Kind::Echo, ends);
        let kind = if dst.is_ipv4() { 8 } else { 128 };
        let (mut packet, rest) = (Vec::new(), u32::from(id % 3) << 16 | 7);
        let way = (src.ip(), dst.ip());
        assert!(crate::icmp_wire::write(
            &mut packet,
            way,
            (kind, 0),
            rest,
            b"?"
        ));
        let step = self.tun(&packet);
        let seen = (step.opened.len(), step.echoes, step.icmp);
        let Some(id) = open else {
            let permitted = self.permits_new(Kind::Echo, dst);
            self.reference.refusals += u64::from(!permitted);
            return assert_eq!(seen, if permitted { (1, 0, 0) } else { (0, 0, 1) });
        };
        let known = self.reference.flows.get_mut(&id).unwrap();
        let permitted = self.rules.permits(Kind::Echo, dst, known.named);
        match known.stage {
            Stage::Asked => assert_eq!(seen, (0, 0, 0)),
            _ if permitted => assert_eq!(seen, (0, 1, 0)),
            _ => assert_eq!(seen, (0, 0, 1)),
        }
        known.last = self.now;
    }

    fn echo_back(&mut self, at: u8, right: bool) {
        let echoes = self.reference.open().filter(|(_, k)| k.kind == Kind::Echo);
        let ids: Vec<FlowId> = echoes.map(|(id, _)| *id).collect();
        let Some(at) = pick(at, ids.len()) else {
            return;
        };
        let known = self.reference.flows.get_mut(&ids[at]).unwrap();
        let from = match right {
            true => known.ends.dst.ip(),
            false => IpAddr::from([1, 1, 1, 1]),
        };
        let passes = right && known.stage != Stage::Asked;
        let passes = passes && self.rules.permits(Kind::Echo, known.ends.dst, known.named);
        if passes {
            known.last = self.now;
        }
        let (now, heard) = (self.now, &mut self.heard);
        self.gate
            .handle_echo_reply(now, ids[at], from, (7, b"!"), heard);
        let step = self.settle();
        assert_eq!(step.icmp, usize::from(passes), "{step:?}");
    }

    fn ask(&mut self, id: u8, granted: bool) {
        let name = if granted {
            "shop.example."
        } else {
            "evil.example."
        };
        // Two questions of one port and one number have one answer: no program asks
        // so.
        let id = u16::from(id) << 1 | u16::from(granted);
        let question = dns::question(id, name);
        let step = self.tun(&datagram_of(own(5353), at("8.8.8.8:53"), &question));
        assert!(step.opened.is_empty() && step.dialled.is_empty());
    }

    fn answer(&mut self, at: u8, ok: bool) {
        let Some(at) = pick(at, self.reference.asked.len()) else {
            return;
        };
        let (id, asked) = self.reference.asked.remove(at);
        let (now, heard) = (self.now, &mut self.heard);
        let name = hickory_proto::op::Message::from_vec(&asked).unwrap();
        let is_ours = name.queries[0].name().to_ascii().starts_with(NAME);
        let ip = if is_ours { NAMED } else { [93, 184, 216, 99] };
        let answer = dns::answer(&asked, ip);
        match ok {
            true => self
                .gate
                .handle_upstream(now, id, super::at("9.9.9.9:53"), &answer, heard),
            false => self.gate.handle_upstream_failed(now, id, heard),
        }
        self.settle();
    }

    fn caller(&mut self, port: u8) {
        let publish = "80:8080".parse().unwrap();
        let client = SocketAddr::from(([127, 0, 0, 1], 50_000 + u16::from(port)));
        let came = self.gate.handle_accepted(self.now, publish, client);
        let step = self.settle();
        assert_eq!(step.opened, Vec::from_iter(came));
        assert_eq!(came.is_none(), self.stopped);
        self.reference.refusals += u64::from(came.is_none());
    }

    fn caller_udp(&mut self, port: u8) {
        let publish = "80:8053/udp".parse().unwrap();
        let client = SocketAddr::from(([127, 0, 0, 1], 50_000 + u16::from(port % 4)));
        let (now, heard) = (self.now, &mut self.heard);
        self.gate
            .handle_came(now, (0, publish), client, b"hi", heard);
        let came = |known: &Known| {
            let asked = known.stage == Stage::Asked;
            known.kind == Kind::CameUdp && known.ends.dst.port() == client.port() && !asked
        };
        let ids = self.reference.open().filter(|(_, k)| came(k));
        let ids: Vec<FlowId> = ids.map(|(id, _)| *id).collect();
        for id in &ids {
            self.reference.flows.get_mut(id).unwrap().last = now;
        }
        let step = self.settle();
        assert_eq!(step.came, ids.len(), "{step:?}");
    }

    /// What the box answers one who came in.
    fn knocked(&mut self, at: u8, listens: bool) {
        let Some(at) = pick(at, self.knocks.len()) else {
            return;
        };
        let knock = self.knocks.remove(at);
        let answer = raw::Tcp {
            seq: 77,
            ack: knock.seq.wrapping_add(1),
            flags: if listens { SYN | ACK } else { RST | ACK },
            window: 65535,
            ..raw::Tcp::default()
        };
        self.tun(&raw::tcp(knock.dst, knock.src, &answer));
    }

    fn set_reach(&mut self, reach: u8) {
        self.rules.reach = usize::from(reach) % REACHES.len();
        let reach = REACHES[self.rules.reach].parse().unwrap();
        let ended = self.gate.set_reach(self.now, reach, &mut self.heard);
        let step = self.settle();
        assert_eq!(step.ended.len(), usize::try_from(ended).unwrap());
        for (id, known) in self.reference.open() {
            let out = matches!(known.kind, Kind::Tcp | Kind::Udp | Kind::Echo);
            let grants = self.rules.permits(known.kind, known.ends.dst, known.named);
            // Where the node moved, a dial is judged when its entry stands or it ends.
            let moved = ended == 0 || self.rules.moved;
            assert!(!out || grants || moved, "{id:?} goes on: {known:?}");
        }
        self.check_live();
    }

    /// Nothing is established that would be refused now.
    fn check_live(&self) {
        for (id, known) in self.reference.open() {
            let live = matches!(known.stage, Stage::Live(_));
            let out = matches!(known.kind, Kind::Tcp | Kind::Udp | Kind::Echo);
            let grants = self.rules.permits(known.kind, known.ends.dst, known.named);
            assert!(!live || !out || grants, "{id:?} goes on: {known:?}");
        }
    }

    fn stop(&mut self) {
        let open = self.reference.open().count();
        self.stopped = true;
        let stopped = self.gate.stop(self.now, &mut self.heard);
        let step = self.settle();
        assert_eq!(
            (usize::try_from(stopped).unwrap(), step.ended.len()),
            (open, open)
        );
        assert_eq!(self.gate.flows(), 0);
    }

    /// Whatever was lost is said again, every far end takes all and ends: what
    /// lives comes to its end by itself.
    fn calm(&mut self) {
        self.lose = false;
        while !self.reference.tickets.is_empty() {
            self.word(0, true);
        }
        while !self.reference.dials.is_empty() {
            self.dial_ends(0, 9);
        }
        let is_tcp =
            |known: &Known| known.kind == Kind::Tcp && matches!(known.stage, Stage::Live(_));
        let lives = self.reference.open().filter(|(_, known)| is_tcp(known));
        let lives: Vec<FlowId> = lives.map(|(id, _)| *id).collect();
        for round in 0..80 {
            let over = |id| self.reference.flows[id].stage == Stage::Over;
            if lives.iter().all(over) {
                break;
            }
            for at in 0..self.conns.len() {
                let number = u8::try_from(at).unwrap();
                self.far(number, |far| (far.room, far.ended) = (None, true));
                if self.conns[at].epoch > 0 {
                    for packet in self.conns[at].repair() {
                        self.tun(&packet);
                    }
                }
            }
            // A kernel repeats itself for a moment; the gate by its own time, which
            // doubles up to a minute.
            self.pass(Duration::from_millis(if round < 40 { 500 } else { 5000 }));
        }
        for id in lives {
            let known = &self.reference.flows[&id];
            assert!(known.stage == Stage::Over, "it does not end: {known:?}");
        }
    }

    /// After everything: all refusals told, nothing held.
    fn ends(mut self) -> std::collections::BTreeMap<&'static str, u64> {
        self.stop();
        let told = self.reference.refusals_told;
        assert!(
            told >= self.reference.refusals,
            "{told} of {}",
            self.reference.refusals
        );
        for at in (0..self.reference.tickets.len()).rev() {
            self.word(at, true);
        }
        self.pass(Duration::from_secs(600));
        assert_eq!(self.gate.census().leaked(), None);
        self.reference.ends
    }
}

/// Steps so far, and how flows ended: what was never seen proves nothing.
#[derive(Debug, Default)]
struct Tally {
    steps: u64,
    ends: std::collections::BTreeMap<&'static str, u64>,
    told: std::collections::BTreeMap<&'static str, u64>,
}

fn case(ops: &[Op], calm: bool, tally: &RefCell<Tally>) {
    let mut world = World::new();
    for op in ops {
        world.take(op);
        tally.borrow_mut().steps += 1;
    }
    if calm {
        world.calm();
    }
    for (what, count) in world.reference.told.clone() {
        *tally.borrow_mut().told.entry(what).or_default() += count;
    }
    for (end, count) in world.ends() {
        *tally.borrow_mut().ends.entry(end).or_default() += count;
    }
}

#[test]
fn the_gate_does_what_the_reference_allows() {
    // It knows of the variable, which this crate must not read.
    let Config { cases, .. } = Config::default();
    let wanted = STEPS * u64::from(cases) / 256;
    let config = Config {
        cases: 16,
        failure_persistence: None,
        max_shrink_iters: 50_000,
        ..Config::default()
    };
    let tally: RefCell<Tally> = RefCell::default();
    let cases = (prop::collection::vec(op(), 0..600), any::<bool>());
    while tally.borrow().steps < wanted {
        let mut runner = TestRunner::new(config.clone());
        let result = runner.run(&cases, |(ops, calm)| {
            let run = std::panic::AssertUnwindSafe(|| case(&ops, calm, &tally));
            std::panic::catch_unwind(run).map_err(|said| {
                let text = said.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| said.downcast_ref::<&str>().copied());
                TestCaseError::fail(text.unwrap_or_default().to_owned())
            })
        });
        if let Err(found) = result {
            panic!("{found}");
        }
    }
    let Tally { ends, told, .. } = tally.into_inner();
    println!("{ends:?} {told:?}");
    let seen = ["progressed", "answered", "failed"];
    let seen = seen.iter().all(|what| told.contains_key(what));
    assert!(seen, "something was never told: {told:?}");
    assert_eq!(ends.len(), 12, "some end was never reached: {ends:?}");
}

/// A world with one flow that waits for its entry, and then lives if `lives`.
fn one_flow(lives: bool) -> World {
    let mut world = World::new();
    world.take(&Op::Syn(0));
    if lives {
        world.take(&Op::Word(0, true));
        world.take(&Op::Dialled(0, 9));
        world.take(&Op::Ack(0, 65535));
    }
    world
}

#[test]
#[should_panic(expected = "no entry")]
fn a_dial_that_the_node_did_not_allow_is_found() {
    let mut world = one_flow(false);
    let (ticket, _) = world.reference.tickets[0];
    let (now, heard) = (world.now, &mut world.heard);
    world.gate.handle_ticket(now, ticket, true, heard);
    world.settle();
}

#[test]
#[should_panic(expected = "at 0")]
fn a_byte_that_nobody_sent_is_found() {
    let mut world = one_flow(true);
    world.far(0, |far| far.key += 1);
    world.take(&Op::Data(0, 0, 1));
}

#[test]
#[should_panic(expected = "flows of the gate and the reference")]
fn a_flow_that_is_not_told_is_found() {
    let mut world = one_flow(true);
    world.reference.flows.clear();
    world.settle();
}

#[test]
fn a_flow_of_the_model_carries_bytes_both_ways_and_ends() {
    let mut world = one_flow(true);
    world.take(&Op::Data(0, 0, 1000));
    world.take(&Op::FarSends(0, 3000));
    let (id, known) = world.reference.open().next().unwrap();
    assert_eq!((known.far.got, known.far.read), (1000, 3000), "{id:?}");
    assert_eq!(world.conns[0].got, 3000);
    world.calm();
    assert_eq!(
        world.ends().into_iter().collect::<Vec<_>>(),
        [("closed", 1)]
    );
}
