//! Every order in which two sessions can send, hear, store, write and lose their
//! connection, at small sizes: breadth first, each state once.
//!
//! A state is reached anew from the beginning, so nothing of a session needs to be
//! copied; it is known by all that it holds. Time passes only where nothing else can
//! happen.

use std::collections::HashSet;

use super::*;

/// What may happen next. The number says to which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Its next frame goes onto the link.
    Send(usize),
    /// The next frame for it comes.
    Hear(usize),
    /// Its store does the next thing that it was asked for.
    Store(usize),
    /// It writes an envelope of its own.
    Write(usize),
    /// The connection breaks: what is on the link is lost, and both begin anew.
    Break,
    /// The next timer of a wait runs out.
    Wait,
}

/// What is explored.
#[derive(Debug, Clone, Copy)]
struct Size {
    /// Envelopes of each chain that the first has: of the account, and of a box, which
    /// rests on all of these.
    first: (u64, u64),
    /// Envelopes of its own document that the second has.
    second: u64,
    /// How often each may write meanwhile.
    writes: [usize; 2],
    breaks: usize,
}

struct Two {
    size: Size,
    nodes: [Node; 2],
    now: Duration,
    /// Whether each said that it has all, since it last lacked something.
    caught_up: [bool; 2],
}

/// States that are looked at: some seconds.
const MOST: usize = 50_000;
const OWN: DocId = DocId::Notices;

impl Two {
    fn new(size: Size) -> Self {
        let boxed = DocId::Box(BoxId([1; 16]));
        let mut first = super::Store::default();
        for _ in 0..size.first.0 {
            first.append(chain(1, DocId::Account), 0, 1);
        }
        for _ in 0..size.first.1 {
            first.append(chain(1, boxed), size.first.0, 1);
        }
        let mut second = super::Store::default();
        for _ in 0..size.second {
            second.append(chain(2, OWN), 0, 1);
        }
        Self {
            size,
            nodes: [Node::new(2, first), Node::new(1, second)],
            now: Duration::ZERO,
            caught_up: [false; 2],
        }
    }

    /// Takes what the session has to say.
    fn listen(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        while let Some(event) = node.session.poll_event() {
            match event {
                SessionEvent::Envelope { chain, bytes } => {
                    node.work.push_back(Work::Ingest(chain, bytes));
                }
                SessionEvent::NeedRange {
                    chain,
                    from,
                    max_bytes,
                } => node.work.push_back(Work::Range(chain, from, max_bytes)),
                SessionEvent::CaughtUp => self.caught_up[at] = true,
                SessionEvent::Up { .. } => {}
                SessionEvent::Fork { .. }
                | SessionEvent::LeftOut { .. }
                | SessionEvent::Closed(_) => panic!("{event:?}"),
            }
        }
    }

    /// Does it; `false` where it cannot happen now.
    fn step(&mut self, step: Step) -> bool {
        let now = self.now;
        match step {
            Step::Send(at) => {
                let node = &mut self.nodes[at];
                let Some(frame) = node.session.poll_transmit(now, &mut node.claims) else {
                    return false;
                };
                self.nodes[1 - at].line.push_back((now, frame));
                self.listen(at);
            }
            Step::Hear(at) => {
                let node = &mut self.nodes[at];
                let Some((_, bytes)) = node.line.pop_front() else {
                    return false;
                };
                node.session.handle_bytes(now, &bytes, &mut node.claims);
                self.listen(at);
            }
            Step::Store(at) => {
                if self.nodes[at].work.is_empty() {
                    return false;
                }
                self.nodes[at].turn(now, 1);
                self.listen(at);
            }
            Step::Write(at) => {
                if self.size.writes[at] == 0 {
                    return false;
                }
                self.size.writes[at] -= 1;
                let writer = u8::try_from(at).unwrap() + 1;
                let head = self.nodes[at].store.append(chain(writer, OWN), 0, 1);
                self.nodes[at].session.handle_local_heads(&[head]);
                self.caught_up[1 - at] = false;
                self.listen(at);
            }
            Step::Break => {
                if self.size.breaks == 0 {
                    return false;
                }
                self.size.breaks -= 1;
                for at in 0..2 {
                    // What the store was asked for by the session before is answered to
                    // the next.
                    self.nodes[at].reconnect(now);
                    self.caught_up[at] = false;
                    self.listen(at);
                }
            }
            Step::Wait => {
                let due = |node: &Node| node.session.poll_timeout();
                let waits = self.nodes.iter().filter_map(due);
                let waits = waits.filter(|(_, timer)| matches!(timer, Timer::Retry | Timer::Heads));
                let Some((at, _)) = waits.min() else {
                    return false;
                };
                self.now = at;
                for at in 0..2 {
                    self.nodes[at].session.handle_timeout(self.now);
                    self.listen(at);
                }
            }
        }
        true
    }

    /// All that it is, so that equal states are found equal.
    fn key(&self) -> Hash {
        let node = |node: &Node| {
            let work: Vec<String> = node
                .work
                .iter()
                .map(|work| match work {
                    Work::Ingest(chain, bytes) => format!("{chain:?} {bytes:?}"),
                    Work::Range(chain, from, max) => format!("{chain:?} {from} {max}"),
                })
                .collect();
            let Node {
                session,
                store,
                claims,
                line,
                ..
            } = node;
            format!("{session:?} {:?} {claims:?} {line:?} {work:?}", store.0)
        };
        let [first, second] = &self.nodes;
        let all = format!(
            "{:?} {:?} {:?} {:?} {:?}",
            self.size,
            self.now,
            self.caught_up,
            node(first),
            node(second)
        );
        hash(all.as_bytes())
    }

    fn check_end(&self, path: &[Step]) {
        let [first, second] = &self.nodes;
        assert!(first.store == second.store, "it stands still: {path:?}");
        for (at, node) in self.nodes.iter().enumerate() {
            assert!(node.claims.is_empty(), "a chain stays claimed: {path:?}");
            assert!(self.caught_up[at], "nobody said so: {path:?}");
            assert!(node.session.is_up(), "it is over: {path:?}");
        }
    }
}

/// Looks at every state; gives how many there are, and how many are ends.
fn explore(size: Size) -> (usize, usize) {
    let acts = [
        Step::Send(0),
        Step::Send(1),
        Step::Hear(0),
        Step::Hear(1),
        Step::Store(0),
        Step::Store(1),
        Step::Write(0),
        Step::Write(1),
        Step::Break,
    ];
    let reach = |path: &[Step]| {
        let mut two = Two::new(size);
        path.iter().for_each(|step| assert!(two.step(*step)));
        two
    };
    let mut seen = HashSet::from([Two::new(size).key()]);
    let mut waiting = VecDeque::from([Vec::new()]);
    let mut ends = 0;
    while let Some(path) = waiting.pop_front() {
        assert!(
            seen.len() < MOST,
            "{size:?}: more states than are looked at"
        );
        let mut stands = true;
        let mut visit = |step| {
            let mut two = reach(&path);
            if !two.step(step) {
                return false;
            }
            if seen.insert(two.key()) {
                let mut longer: Vec<Step> = path.clone();
                longer.push(step);
                waiting.push_back(longer);
            }
            true
        };
        for step in acts {
            let happens = visit(step);
            // Nobody needs to write, and no connection needs to break.
            stands &= !happens || matches!(step, Step::Write(_) | Step::Break);
        }
        if stands && !visit(Step::Wait) {
            ends += 1;
            reach(&path).check_end(&path);
        }
    }
    (seen.len(), ends)
}

#[test]
fn two_sessions_come_to_rest_with_the_same_in_whatever_order_it_goes() {
    let size = |first, second, writes, breaks| Size {
        first,
        second,
        writes,
        breaks,
    };
    for (size, least) in [
        (size((1, 1), 1, [0, 0], 0), 300),
        (size((2, 1), 0, [0, 0], 1), 300),
        (size((1, 0), 0, [0, 1], 1), 1000),
        (size((0, 0), 0, [1, 1], 0), 1000),
    ] {
        let (states, ends) = explore(size);
        println!("{size:?}: {states} states, {ends} ends");
        assert!(states > least && ends > 0, "{size:?}: {states} {ends}");
    }
}
