//! The way from the box to the gate's DNS: port 53 of every address, over UDP
//! and TCP. A connection to it ends here; it is no flow and is never dialled.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use bailey_model::Transport;
use smoltcp::socket::tcp::{RecvError, State};
use smoltcp::wire::IpListenEndpoint;

use crate::Now;
use crate::channel::GateEvent;
use crate::dns::{Dns, DnsFacts, DnsOutput};
use crate::flow::{Action, DNS_TCP_IDLE, MAX_DNS_TCP, Outlet};
use crate::flow_common::{Common, Ends, Waits};
use crate::gate::census::Census;
use crate::packet::{Ip, datagram, segment};
use crate::tcp_live::{Engine, Engines, Out, Size};

/// The port of name servers (RFC 1035 §4.2).
pub(crate) const PORT: u16 = 53;
/// Most questions remembered for their answers' way back.
const MAX_ASKED: usize = 1024;
/// Longest question taken over TCP: a name, a type and options fit many times.
const MAX_QUESTION: usize = 4096;
/// Octets of the longest answer, with its length before it (RFC 1035 §4.2.2).
pub(crate) const MAX_ANSWER: usize = 2 + 65_535;
/// Answers that may wait in one connection before its next question is read.
const MAX_ANSWERS: usize = 128 << 10;

/// Most bytes that one connection holds: its two buffers, a question that is not
/// whole, answers, the last of which may be the longest, and the segment under way.
pub(crate) const MAX_CONNECTION_BYTES: usize = {
    let (from, to) = Size::Dns.bytes();
    from + to + 2 + MAX_QUESTION + from + MAX_ANSWERS + MAX_ANSWER
};

/// What a connection has to read.
enum Next {
    Question(Vec<u8>),
    Nothing,
    /// It is no such stream.
    Unsound,
}

/// A question by its asker and id: where it was put to.
type Key = (Transport, SocketAddr, u16);

#[derive(Debug)]
struct Connection {
    engine: Engine,
    /// What was read and is not yet a question.
    inbox: Vec<u8>,
    /// Answers not yet with smoltcp.
    outbox: VecDeque<u8>,
    in_flight: u32,
    until: Now,
    /// When what was said and not acknowledged is said again.
    again: Option<Now>,
}

#[derive(Debug)]
pub(crate) struct Door {
    dns: Dns,
    asked: HashMap<Key, SocketAddr>,
    order: VecDeque<Key>,
    connections: HashMap<Ends, Connection>,
    engines: Engines,
    scratch: Vec<u8>,
}

impl Door {
    pub(crate) fn new(seed: [u8; 32], facts: DnsFacts) -> Self {
        Self {
            dns: Dns::new(seed, facts),
            asked: HashMap::new(),
            order: VecDeque::new(),
            connections: HashMap::new(),
            engines: Engines::new(),
            scratch: crate::tcp_live::scratch(),
        }
    }

    pub(crate) fn dns(&mut self) -> &mut Dns {
        &mut self.dns
    }

    pub(crate) fn count(&self, census: &mut Census) {
        census.dns_questions = self.dns.held();
        census.dns_connections = self.connections.len();
        census.dns_engines = self.engines.used();
    }

    /// A datagram to port 53.
    pub(crate) fn handle_udp(&mut self, common: &mut Common, now: Now, ip: &Ip<'_>) {
        let Some((src_port, dst_port, data)) = datagram(ip.payload) else {
            return;
        };
        let ends = Ends {
            src: SocketAddr::new(ip.src, src_port),
            dst: SocketAddr::new(ip.dst, dst_port),
        };
        self.ask(common, now, Transport::Udp, ends, data);
    }

    fn ask(&mut self, common: &mut Common, now: Now, over: Transport, ends: Ends, data: &[u8]) {
        if common.stopping {
            return;
        }
        // Whoever asked does not run; it asks again when it does.
        if common.paused {
            return self.unanswered(ends);
        }
        let Some(&[hi, lo]) = data.first_chunk() else {
            return self.unanswered(ends);
        };
        let key = (over, ends.src, u16::from_be_bytes([hi, lo]));
        if self.asked.insert(key, ends.dst).is_none() {
            self.order.push_back(key);
            if self.order.len() > MAX_ASKED
                && let Some(oldest) = self.order.pop_front()
            {
                self.asked.remove(&oldest);
            }
        }
        let (policy, names) = (&common.policy, &mut common.names);
        let answers = self
            .dns
            .handle_query(now, ends.src, over, data, policy, names);
        if !answers && over == Transport::Tcp {
            self.unanswered(ends);
        }
    }

    /// A connection waits for one answer less.
    fn unanswered(&mut self, ends: Ends) {
        if let Some(connection) = self.connections.get_mut(&ends) {
            connection.in_flight = connection.in_flight.saturating_sub(1);
        }
    }

    /// A segment to port 53.
    pub(crate) fn handle_tcp(
        &mut self,
        common: &mut Common,
        now: Now,
        ip: &Ip<'_>,
        out: &mut dyn Outlet,
    ) {
        let Some(seg) = segment(ip.payload) else {
            return;
        };
        let ends = Ends {
            src: SocketAddr::new(ip.src, seg.src_port),
            dst: SocketAddr::new(ip.dst, seg.dst_port),
        };
        let mut wire = Out {
            outlet: out,
            scratch: &mut self.scratch,
        };
        if let Some(connection) = self.connections.get_mut(&ends) {
            connection.engine.ingress(now, ip.whole, &mut wire);
            connection.until = now + DNS_TCP_IDLE;
            return self.turn(common, now, ends, out);
        }
        if !seg.opens() || common.stopping || self.connections.len() >= MAX_DNS_TCP {
            return common.reset(ends, seg, out);
        }
        let mut engine = self
            .engines
            .take(Size::Dns, now, common.random(), wire.outlet.finishes());
        let at = IpListenEndpoint {
            addr: Some(ends.dst.ip().into()),
            port: ends.dst.port(),
        };
        if !engine.open(now, at, ip.whole, &mut wire) {
            self.engines.give_back(engine);
            return common.reset(ends, seg, out);
        }
        let connection = Connection {
            engine,
            inbox: Vec::new(),
            outbox: VecDeque::new(),
            in_flight: 0,
            until: now + DNS_TCP_IDLE,
            again: None,
        };
        self.connections.insert(ends, connection);
        self.turn(common, now, ends, out);
    }

    /// Reads questions, writes answers, closes what is done.
    fn turn(&mut self, common: &mut Common, now: Now, ends: Ends, out: &mut dyn Outlet) {
        // One at a time: an answer takes its room before the next question is read.
        let sound = loop {
            let Some(connection) = self.connections.get_mut(&ends) else {
                return;
            };
            match connection.next() {
                Next::Question(question) => {
                    self.ask(common, now, Transport::Tcp, ends, &question);
                    self.flush(common, now, out);
                }
                Next::Nothing => break true,
                Next::Unsound => break false,
            }
        };
        let Some(connection) = self.connections.get_mut(&ends) else {
            return;
        };
        let mut wire = Out {
            outlet: out,
            scratch: &mut self.scratch,
        };
        if !sound {
            connection.engine.reset(now, &mut wire);
        }
        connection.write(now, &mut wire);
        let over = !matches!(
            connection.engine.state(),
            State::SynReceived
                | State::Established
                | State::CloseWait
                | State::FinWait1
                | State::FinWait2
                | State::Closing
                | State::LastAck
        );
        if over {
            self.close(ends);
        }
    }

    fn close(&mut self, ends: Ends) {
        if let Some(connection) = self.connections.remove(&ends) {
            self.engines.give_back(connection.engine);
        }
    }

    /// Does what the DNS machine wants done.
    pub(crate) fn flush(&mut self, common: &mut Common, now: Now, out: &mut dyn Outlet) {
        while let Some(output) = self.dns.poll(now) {
            match output {
                DnsOutput::Reply {
                    client,
                    transport,
                    bytes,
                } => {
                    self.reply(common, now, client, transport, &bytes, out);
                }
                DnsOutput::Ask { id, entry } => {
                    let ticket = common.ticket(|_| Waits::Dns(id));
                    common.told.push(Some(ticket), GateEvent::NameAsked(entry));
                }
                DnsOutput::Upstream {
                    id,
                    server,
                    over,
                    bytes,
                } => {
                    common.actions.push_back(Action::Upstream {
                        id,
                        server,
                        over,
                        bytes,
                    });
                }
                DnsOutput::Cancel { id } => common.actions.push_back(Action::CancelUpstream(id)),
                DnsOutput::Web(host) => common.told.push(None, GateEvent::WebName(host)),
                DnsOutput::Refused(refused) => {
                    common.told.push(None, GateEvent::FlowRefused(refused));
                }
                DnsOutput::Answered(answered) => {
                    let event = GateEvent::NameAnswered(answered);
                    common.told.in_company(now, event);
                }
                DnsOutput::Counted(asked) => common.told.push(None, GateEvent::NameAsked(asked)),
            }
        }
    }

    fn reply(
        &mut self,
        common: &mut Common,
        now: Now,
        client: SocketAddr,
        over: Transport,
        bytes: &[u8],
        out: &mut dyn Outlet,
    ) {
        let Some(&[hi, lo]) = bytes.first_chunk() else {
            return;
        };
        let key = (over, client, u16::from_be_bytes([hi, lo]));
        let Some(server) = self.asked.remove(&key) else {
            return;
        };
        self.order.retain(|other| *other != key);
        match over {
            Transport::Udp => {
                common.datagram_in(server, client, bytes, out);
            }
            Transport::Tcp => {
                let ends = Ends {
                    src: client,
                    dst: server,
                };
                let Some(connection) = self.connections.get_mut(&ends) else {
                    return;
                };
                let Ok(len) = u16::try_from(bytes.len()) else {
                    return;
                };
                connection.in_flight = connection.in_flight.saturating_sub(1);
                connection.outbox.extend(len.to_be_bytes());
                connection.outbox.extend(bytes);
                connection.write(
                    now,
                    &mut Out {
                        outlet: out,
                        scratch: &mut self.scratch,
                    },
                );
            }
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Now> {
        let idle = self
            .connections
            .values()
            .map(|connection| {
                let again = connection.again.unwrap_or(connection.until);
                connection.until.min(again)
            })
            .min();
        [idle, self.dns.poll_timeout()].into_iter().flatten().min()
    }

    pub(crate) fn handle_timeout(&mut self, common: &mut Common, now: Now, out: &mut dyn Outlet) {
        self.dns.handle_timeout(now, &common.names);
        self.flush(common, now, out);
        let again = |connection: &Connection| connection.again.is_some_and(|at| at <= now);
        let mut late: Vec<Ends> = self
            .connections
            .iter()
            .filter(|(_, connection)| again(connection))
            .map(|(ends, _)| *ends)
            .collect();
        late.sort_unstable_by_key(|ends| (ends.src, ends.dst));
        for ends in late {
            self.turn(common, now, ends, out);
        }
        self.reset_all(now, out, |connection| connection.until <= now);
    }

    /// Resets every connection to the gate's DNS, and tells the last counts.
    pub(crate) fn stop(&mut self, common: &mut Common, now: Now, out: &mut dyn Outlet) {
        self.dns.close();
        self.flush(common, now, out);
        self.reset_all(now, out, |_| true);
    }

    fn reset_all(&mut self, now: Now, out: &mut dyn Outlet, which: impl Fn(&Connection) -> bool) {
        let mut ends: Vec<Ends> = self
            .connections
            .iter()
            .filter(|(_, connection)| which(connection))
            .map(|(ends, _)| *ends)
            .collect();
        ends.sort_unstable_by_key(|ends| (ends.src, ends.dst));
        for ends in ends {
            if let Some(connection) = self.connections.get_mut(&ends) {
                let mut wire = Out {
                    outlet: out,
                    scratch: &mut self.scratch,
                };
                connection.engine.reset(now, &mut wire);
            }
            self.close(ends);
        }
    }
}

impl Connection {
    /// Takes the next whole question out of the stream, if its answer has room.
    fn next(&mut self) -> Next {
        while self.outbox.len() < MAX_ANSWERS {
            if let Some((&[hi, lo], rest)) = self.inbox.split_first_chunk() {
                let len = usize::from(u16::from_be_bytes([hi, lo]));
                if len > MAX_QUESTION {
                    return Next::Unsound;
                }
                if let Some(question) = rest.get(..len) {
                    let question = question.to_vec();
                    self.in_flight += 1;
                    self.inbox.drain(..2 + len);
                    return Next::Question(question);
                }
            }
            if !self.engine.socket().can_recv() {
                break;
            }
            let inbox = &mut self.inbox;
            let read = self.engine.socket().recv(|bytes| {
                inbox.extend_from_slice(bytes);
                (bytes.len(), ())
            });
            if read.is_err() {
                break;
            }
        }
        Next::Nothing
    }

    fn write(&mut self, now: Now, wire: &mut Out<'_>) {
        loop {
            let (front, _) = self.outbox.as_slices();
            if front.is_empty() {
                break;
            }
            match self.engine.socket().send_slice(front) {
                Ok(count) if count > 0 => {
                    self.outbox.drain(..count);
                }
                _ => break,
            }
        }
        let finished = matches!(
            self.engine.socket().recv(|_| (0, ())),
            Err(RecvError::Finished)
        );
        if finished && self.outbox.is_empty() && self.in_flight == 0 {
            self.engine.socket().close();
        }
        self.again = self.engine.egress(now, wire);
    }
}

/// Whether a packet is for the gate's DNS.
pub(crate) fn is_for(ip: &Ip<'_>) -> bool {
    matches!(ip.payload.get(2..4), Some(&[hi, lo]) if u16::from_be_bytes([hi, lo]) == PORT)
}
