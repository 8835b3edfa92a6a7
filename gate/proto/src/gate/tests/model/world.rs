//! The gate, the reference beside it, and the box, node and hosts around them.

use super::boxed::Conn;
use super::reference::*;
use super::*;
use crate::flow_progress::PROGRESS_EVERY;
use crate::gate::tests::raw::{self, Got};
use hickory_proto::op::Message;

/// What the gate put out during one call.
#[derive(Debug, Default)]
pub(super) struct Heard {
    packets: Vec<Vec<u8>>,
    datagrams: Vec<(UdpPort, SocketAddr, Vec<u8>)>,
    echoes: Vec<(FlowId, IpAddr, u16)>,
    fault: Option<SendFault>,
}

impl Heard {
    pub(super) fn has_fault(&self) -> bool {
        self.fault.is_some()
    }

    pub(super) fn set_fault(&mut self, fault: Option<SendFault>) {
        self.fault = fault;
    }
}

impl Outlet for Heard {
    fn packet(&mut self, packet: &[u8]) {
        self.packets.push(packet.to_vec());
    }

    fn datagram(&mut self, port: UdpPort, to: SocketAddr, data: &[u8]) -> Result<(), SendFault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        self.datagrams.push((port, to, data.to_vec()));
        Ok(())
    }

    fn can_echo(&mut self, _: IpAddr) -> bool {
        true
    }

    fn echo(
        &mut self,
        flow: FlowId,
        to: IpAddr,
        echo: crate::Echo<'_>,
    ) -> Result<Option<SocketAddr>, crate::EchoFault> {
        self.echoes.push((flow, to, echo.seq));
        Ok(None)
    }
}

pub(super) struct World {
    pub(super) gate: Gate,
    pub(super) heard: Heard,
    pub(super) now: Now,
    pub(super) rules: Rules,
    pub(super) stopped: bool,
    pub(super) reference: Reference,
    pub(super) conns: Vec<Conn>,
    /// The next packet to the box is lost.
    pub(super) lose: bool,
    /// SYNs into the box that it has not answered.
    pub(super) knocks: Vec<Got>,
    pub(super) iss: u32,
}

/// Box ports of TCP, and where each dials.
const DIALS: [(u16, usize); 6] = [(1, 0), (2, 0), (3, 1), (4, 2), (5, 4), (6, 5)];

pub(super) fn box_end(dst: SocketAddr, port: u16) -> SocketAddr {
    match dst {
        SocketAddr::V4(_) => SocketAddr::new(BOX_V4.into(), port),
        SocketAddr::V6(_) => SocketAddr::new(BOX_V6.into(), port),
    }
}

impl World {
    pub(super) fn new() -> Self {
        let rules = Rules {
            reach: 0,
            moved: false,
        };
        let facts = HostFacts {
            resolvers: vec![at("9.9.9.9:53")],
            ..HostFacts::default()
        };
        let config = GateConfig {
            reach: REACHES[0].parse().unwrap(),
            facts,
            published: Vec::new(),
            seed: [3; 32],
        };
        let conns = DIALS.map(|(port, far)| {
            let dst = at(FAR[far]);
            Conn::new(box_end(dst, 40_000 + port), dst)
        });
        Self {
            gate: Gate::new(Now::ZERO, config, rules.addrs()),
            heard: Heard::default(),
            now: Now::ZERO,
            rules,
            stopped: false,
            reference: Reference::default(),
            conns: conns.into(),
            lose: false,
            knocks: Vec::new(),
            iss: 0,
        }
    }

    /// Whether a new flow may begin.
    pub(super) fn permits_new(&self, kind: Kind, dst: SocketAddr) -> bool {
        !self.stopped && self.rules.permits(kind, dst, self.is_named(dst))
    }

    fn is_named(&self, dst: SocketAddr) -> bool {
        dst.ip() == IpAddr::from(NAMED) && self.reference.named_until > self.now
    }

    pub(super) fn tun(&mut self, packet: &[u8]) -> Step {
        self.gate.handle_tun(self.now, packet, &mut self.heard);
        self.settle()
    }

    pub(super) fn word(&mut self, at: usize, stands: bool) {
        let (ticket, flow) = self.reference.tickets.remove(at);
        let known = flow.and_then(|flow| self.reference.flows.get_mut(&flow));
        let waits = known.filter(|known| known.stage == Stage::Asked);
        if let Some(known) = waits {
            known.stage = match (stands, known.kind) {
                (false, _) => Stage::Over,
                (true, Kind::Tcp) => Stage::Dialling(self.now),
                (true, _) => Stage::Live(self.now),
            };
            known.last = self.now;
        }
        let name = self
            .reference
            .names
            .iter()
            .position(|(of, _)| *of == ticket);
        if let Some(name) = name {
            let (_, host) = self.reference.names.remove(name);
            self.reference.entered.extend(stands.then_some(host));
        }
        let now = self.now;
        self.gate
            .handle_ticket(now, ticket, stands, &mut self.heard);
        let step = self.settle();
        // An entry that stands leads on at once, where the reach still grants it.
        let Some(id) = flow.filter(|_| stands && !self.stopped) else {
            return;
        };
        let known = &self.reference.flows[&id];
        if known.kind == Kind::Tcp && known.stage == Stage::Dialling(now) {
            assert_eq!(step.dialled, [id], "an entry without a dial");
        }
    }

    /// What a shell does after each call, held against the reference.
    pub(super) fn settle(&mut self) -> Step {
        let mut step = Step::default();
        self.collect(&mut step);
        let mut turns = 0;
        while let Some(id) = self.gate.next_touched() {
            turns += 1;
            assert!(turns < 500, "turns without an end: {id:?}");
            let known = self.reference.flows.get_mut(&id).unwrap();
            assert!(matches!(known.stage, Stage::Live(_)), "{id:?}: {known:?}");
            assert!(known.socket, "{id:?} has no socket: {known:?}");
            let (now, heard) = (self.now, &mut self.heard);
            self.gate.turn(now, id, &mut known.far, heard);
            self.collect(&mut step);
        }
        self.check();
        step
    }

    fn collect(&mut self, step: &mut Step) {
        let events: Vec<_> = std::iter::from_fn(|| self.gate.poll_event()).collect();
        for (ticket, event) in &events {
            self.opened(*ticket, event, step);
        }
        let packets = std::mem::take(&mut self.heard.packets);
        for packet in &packets {
            self.packet(packet, step);
        }
        for (port, to, data) in std::mem::take(&mut self.heard.datagrams) {
            self.datagram(port, to, &data);
            step.datagrams += 1;
        }
        for (flow, to, _) in std::mem::take(&mut self.heard.echoes) {
            let known = &self.reference.flows[&flow];
            assert!(matches!(known.stage, Stage::Live(_)), "{known:?}");
            assert_eq!(known.ends.dst.ip(), to);
            assert!(self.rules.permits(Kind::Echo, known.ends.dst, known.named));
            step.echoes += 1;
        }
        while let Some(action) = self.gate.poll_action() {
            self.action(action, step);
        }
        for (_, event) in events {
            self.ended(event, step);
        }
    }

    fn opened(&mut self, ticket: Option<u64>, event: &GateEvent, step: &mut Step) {
        match event {
            GateEvent::FlowOpened(opened) => {
                let kind = match (opened.direction, opened.tuple.proto) {
                    (Direction::Out, Proto::Tcp) => Kind::Tcp,
                    (Direction::Out, Proto::Udp) => Kind::Udp,
                    (Direction::Out, _) => Kind::Echo,
                    (Direction::In { .. }, Proto::Tcp) => Kind::Came,
                    (Direction::In { .. }, _) => Kind::CameUdp,
                };
                let (src, dst) = (opened.tuple.src, opened.tuple.dst);
                let ends = match opened.direction {
                    Direction::Out => Ends { src, dst },
                    Direction::In { .. } => Ends { src: dst, dst: src },
                };
                let out = matches!(kind, Kind::Tcp | Kind::Udp | Kind::Echo);
                assert!(!out || self.permits_new(kind, dst), "opened: {opened:?}");
                assert!(!self.stopped && self.reference.at(kind, ends).is_none());
                let epoch = self
                    .conns
                    .iter()
                    .find(|conn| (conn.src, conn.dst) == (src, dst));
                let known = Known {
                    kind,
                    ends,
                    opened: self.now,
                    stage: Stage::Asked,
                    named: self.is_named(dst),
                    socket: kind == Kind::Came,
                    last: self.now,
                    far: Far {
                        key: epoch.map_or(0, |conn| conn.epoch),
                        mute: kind == Kind::Came,
                        ..Far::default()
                    },
                };
                let before = self.reference.flows.insert(opened.flow, known);
                assert!(before.is_none(), "a flow's number twice: {opened:?}");
                self.reference
                    .tickets
                    .push((ticket.unwrap(), Some(opened.flow)));
                step.opened.push(opened.flow);
            }
            GateEvent::NameAsked(asked) => {
                if let Some(ticket) = ticket {
                    self.reference.tickets.push((ticket, None));
                    self.reference.names.push((ticket, asked.host.clone()));
                }
            }
            GateEvent::FlowRefused(_)
            | GateEvent::FlowNamed(_)
            | GateEvent::FlowEnded(_)
            | GateEvent::FlowProgressed(_)
            | GateEvent::NameAnswered(_)
            | GateEvent::WebName(_) => {
                assert_eq!(ticket, None);
            }
        }
    }

    fn ended(&mut self, event: GateEvent, step: &mut Step) {
        match event {
            GateEvent::FlowEnded(ended) => {
                let known = self.reference.flows.get_mut(&ended.flow).unwrap();
                assert!(known.stage != Stage::Over, "a second end: {ended:?}");
                known.stage = Stage::Over;
                assert!(!known.socket, "its socket stays open: {ended:?}");
                let count = |bytes| u64::try_from(bytes).unwrap();
                if known.kind == Kind::Tcp {
                    assert_eq!(ended.bytes_out, count(known.far.got), "{ended:?}");
                    assert!(ended.bytes_in <= count(known.far.given), "{ended:?}");
                }
                *self.reference.ends.entry(ended.end.as_str()).or_default() += 1;
                step.ended.push((ended.flow, ended.end));
            }
            GateEvent::FlowRefused(refused) => {
                self.reference.refusals_told += u64::from(refused.count);
                step.refused += 1;
            }
            GateEvent::FlowNamed(named) => {
                assert!(self.reference.flows.contains_key(&named.flow), "{named:?}");
            }
            GateEvent::FlowProgressed(it) => {
                let known = self.reference.flows.get_mut(&it.flow).unwrap();
                assert!(known.stage != Stage::Over, "after its end: {it:?}");
                let old = self.now.saturating_sub(known.opened) >= PROGRESS_EVERY;
                assert!(old && it.bytes_out + it.bytes_in > 0, "{it:?}");
                if known.kind == Kind::Tcp {
                    let count = |bytes| u64::try_from(bytes).unwrap();
                    assert_eq!(it.bytes_out, count(known.far.got), "{it:?}");
                    assert!(it.bytes_in <= count(known.far.given), "{it:?}");
                }
                *self.reference.told.entry("progressed").or_default() += 1;
            }
            GateEvent::NameAnswered(it) => {
                let asked = self.reference.entered.contains(&it.host);
                assert!(asked || it.addrs.is_empty(), "not asked: {it:?}");
                *self.reference.told.entry(it.answer.as_str()).or_default() += 1;
            }
            GateEvent::FlowOpened(_) | GateEvent::NameAsked(_) | GateEvent::WebName(_) => {}
        }
    }

    fn action(&mut self, action: Action, step: &mut Step) {
        match action {
            Action::Dial { flow, dst } => {
                let known = self.reference.flows.get_mut(&flow).unwrap();
                assert!(
                    matches!(known.stage, Stage::Dialling(_)),
                    "no entry: {known:?}"
                );
                assert!(known.kind == Kind::Tcp && dst == known.ends.dst && !known.socket);
                assert!(!self.stopped && self.rules.permits(Kind::Tcp, dst, known.named));
                known.socket = true;
                self.reference.dials.push(flow);
                step.dialled.push(flow);
            }
            Action::Close { flow, .. } => {
                let known = self.reference.flows.get_mut(&flow).unwrap();
                let held = std::mem::replace(&mut known.socket, false);
                assert!(held || known.kind == Kind::Echo, "closed twice: {known:?}");
                step.closed.push(flow);
            }
            Action::CloseUdp(port) => {
                let src = self.reference.ports.remove(&port);
                let uses = |known: &Known| known.kind == Kind::Udp && Some(known.ends.src) == src;
                step.closed_ports
                    .extend(src.filter(|_| self.reference.open().any(|(_, k)| uses(k))));
            }
            Action::Upstream { id, bytes, .. } => {
                let name = Message::from_vec(&bytes).unwrap().queries[0]
                    .name()
                    .to_ascii();
                let host = Host::new(name.trim_end_matches('.')).unwrap();
                assert!(
                    self.reference.entered.contains(&host),
                    "{host} has no entry"
                );
                let granted = match REACHES[self.rules.reach] {
                    "shop.example" => host.as_str() == NAME,
                    reach => reach.contains("internet"),
                };
                assert!(granted && !self.stopped, "{host} is out of reach");
                self.reference.asked.push((id, bytes));
            }
            Action::CancelUpstream(_) => {}
        }
    }

    fn datagram(&mut self, port: UdpPort, to: SocketAddr, data: &[u8]) {
        let [1, src, ..] = data else {
            panic!("whose? {data:?}")
        };
        let src = box_end(to, 9000 + u16::from(*src));
        let of = *self.reference.ports.entry(port).or_insert(src);
        assert_eq!(of, src, "one socket for two ports of the box");
        let id = self.reference.at(Kind::Udp, Ends { src, dst: to });
        let id = id.unwrap_or_else(|| panic!("no flow from {src} to {to}"));
        let known = self.reference.flows.get_mut(&id).unwrap();
        assert!(matches!(known.stage, Stage::Live(_)), "no entry: {known:?}");
        assert!(
            !self.stopped && self.rules.permits(Kind::Udp, to, known.named),
            "{known:?}"
        );
        known.last = self.now;
    }

    /// A packet to the box.
    fn packet(&mut self, packet: &[u8], step: &mut Step) {
        let ip = packet::parse(packet).expect("a packet");
        assert_eq!(ip.whole.len(), packet.len());
        match ip.proto {
            packet::TCP => self.segment(raw::read_tcp(packet).unwrap(), step),
            packet::UDP => {
                let (src, dst, data) = packet::datagram(ip.payload).unwrap();
                if src == 53 {
                    self.name_answered(data);
                } else if dst == 8053 {
                    step.came += 1;
                } else {
                    step.datagrams_in.push((SocketAddr::new(ip.src, src), dst));
                }
            }
            _ => step.icmp += 1,
        }
    }

    fn name_answered(&mut self, data: &[u8]) {
        let message = Message::from_vec(data).unwrap();
        let is = |record: &hickory_proto::rr::Record| match &record.data {
            hickory_proto::rr::RData::A(a) => a.0.octets() == NAMED,
            _ => false,
        };
        if message.answers.iter().any(is) {
            let ttl = message.answers[0].ttl.into();
            let until = self.now + Duration::from_secs(ttl) + Duration::from_secs(60);
            self.reference.named_until = self.reference.named_until.max(until);
        }
    }

    fn segment(&mut self, got: Got, step: &mut Step) {
        let ends = Ends {
            src: got.dst,
            dst: got.src,
        };
        if got.flags & RST != 0 {
            step.resets.push(ends);
        } else {
            assert!(!step.reset(ends), "a segment after a reset: {got:?}");
        }
        let Some(at) = self
            .conns
            .iter()
            .position(|c| (c.src, c.dst) == (ends.src, ends.dst))
        else {
            if got.flags & (SYN | ACK) == SYN {
                let open = self.reference.at(Kind::Came, ends).or_else(|| self.came());
                let known = open.and_then(|id| self.reference.flows.get(&id));
                assert!(known.is_some_and(|k| k.stage != Stage::Asked), "{got:?}");
                self.knocks.push(got);
            }
            return;
        };
        let flow = self.reference.at(Kind::Tcp, ends);
        let known = flow.and_then(|id| self.reference.flows.get(&id));
        match known {
            Some(Known {
                stage: Stage::Live(_),
                far,
                ..
            }) => self.conns[at].check(&got, far.given, far.ended),
            // A closed one still acknowledges; nothing else may pass.
            _ => assert!(
                got.flags & RST != 0 || (got.flags & (SYN | FIN) == 0 && got.data.is_empty()),
                "without a dial: {got:?}, {known:?}"
            ),
        }
        if !std::mem::take(&mut self.lose) {
            self.conns[at].take(&got);
        }
    }

    /// Some flow that came in and is dialled by another address of the box.
    fn came(&self) -> Option<FlowId> {
        let known = |known: &Known| known.kind == Kind::Came && known.stage != Stage::Asked;
        self.reference
            .open()
            .find(|(_, k)| known(k))
            .map(|(id, _)| *id)
    }

    fn check(&mut self) {
        let census = self.gate.census();
        assert_eq!(census.beyond(), None);
        let open = self.reference.open().count();
        assert_eq!(
            self.gate.flows(),
            open,
            "flows of the gate and the reference"
        );
        assert_eq!(census.actions, 0);
        // Each flow has one deadline, and a few that were moved.
        assert!(
            census.deadlines <= 8 * (self.reference.flows.len() + 1),
            "{census:?}"
        );
        self.reference.check_times(self.now);
    }

    /// Moves the clock, and does what is due at each moment on the way.
    pub(super) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        let mut rounds = 0;
        while let Some(due) = self.gate.poll_timeout()
            && due <= until
        {
            rounds += 1;
            assert!(rounds < 5000, "timers without an end");
            self.now = self.now.max(due);
            self.gate.handle_timeout(self.now, &mut self.heard);
            self.settle();
        }
        self.now = until;
        self.check();
    }
}

/// What one input led to.
#[derive(Debug, Default)]
pub(super) struct Step {
    pub(super) opened: Vec<FlowId>,
    pub(super) dialled: Vec<FlowId>,
    pub(super) closed: Vec<FlowId>,
    pub(super) ended: Vec<(FlowId, EndReason)>,
    pub(super) resets: Vec<Ends>,
    pub(super) refused: usize,
    pub(super) icmp: usize,
    pub(super) datagrams: usize,
    pub(super) datagrams_in: Vec<(SocketAddr, u16)>,
    pub(super) echoes: usize,
    pub(super) came: usize,
    /// Ports whose socket was closed while a flow of theirs went on.
    pub(super) closed_ports: Vec<SocketAddr>,
}

impl Step {
    pub(super) fn reset(&self, ends: Ends) -> bool {
        self.resets.contains(&ends)
    }
}
