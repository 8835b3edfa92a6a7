//! A peer that says anything: in a session, and in a pairing.

use std::time::Duration;

use bailey_envelope::{ChainId, DeviceKeys, DocId, Hash, Head};
use bailey_model::{AccountId, DeviceId, Incarnation};
use bailey_session::lan::{Asked, PORT, Service};
use bailey_session::pair::{
    PairConfig, PairEnd, PairEvent, PairPassword, PairSecret, Pairing, Welcome,
};
use bailey_session::{Claims, IngestFailure, MAX_PAYLOAD, Session, SessionConfig, SessionEvent};

const ACCOUNT: AccountId = AccountId([7; 32]);
const OURS: DeviceId = DeviceId([1; 32]);
const PEER: DeviceId = DeviceId([2; 32]);

/// More than any input here can lead to: a machine without rest fails.
const MAX_OUTPUTS: usize = 100_000;

/// How long a frame's length is.
const LENGTH: usize = 4;

fn open(peer: DeviceId, writer: DeviceId) -> Session {
    let config = SessionConfig {
        account: ACCOUNT,
        peer,
        incarnation: Incarnation([3; 16]),
        listen_port: 4001,
    };
    let mut session = Session::new(config, Duration::ZERO);
    let head = |doc| Head {
        chain: ChainId {
            doc,
            writer,
            incarnation: Incarnation([3; 16]),
        },
        seq: 3,
        hash: Hash([4; 32]),
    };
    session.handle_local_heads(&[head(DocId::Account), head(DocId::Node)]);
    session
}

/// The first octet says what the store makes of envelopes and how fast time
/// goes, the second how many octets come at once; the rest is what the peer says.
pub(super) fn session(data: &[u8]) {
    let [choice, step, said @ ..] = data else {
        return;
    };
    let (mut session, mut claims) = (open(PEER, OURS), Claims::new());
    let mut now = Duration::ZERO;
    for piece in said.chunks(usize::from(*step) + 1) {
        session.handle_bytes(now, piece, &mut claims);
        now += Duration::from_millis(u64::from(*choice) * 8);
        let sent = settle(&mut session, now, *choice, &mut claims);
        assert!(sent.iter().all(|frame| frame.len() <= LENGTH + MAX_PAYLOAD));
    }
}

/// Does what a session asks for and gives what it sends.
fn settle(session: &mut Session, now: Duration, choice: u8, claims: &mut Claims) -> Vec<Vec<u8>> {
    if session.poll_timeout().is_some_and(|(due, _)| due <= now) {
        session.handle_timeout(now);
    }
    let (mut events, mut seq) = (0, 0);
    let mut sent = Vec::new();
    loop {
        while let Some(event) = session.poll_event() {
            events += 1;
            assert!(events < MAX_OUTPUTS, "events without an end");
            match event {
                SessionEvent::NeedRange { chain, from, .. } => {
                    session.handle_range(chain, from, vec![vec![9; 100]; usize::from(choice & 3)]);
                }
                SessionEvent::Envelope { chain, .. } if choice & 4 == 0 => {
                    seq += 1;
                    session.handle_ingested(now, chain, seq, claims);
                }
                SessionEvent::Envelope { chain, .. } => {
                    let failure = if choice & 8 == 0 {
                        IngestFailure::Gap
                    } else {
                        IngestFailure::Permanent
                    };
                    session.handle_ingest_failed(now, chain, failure, claims);
                }
                _ => {}
            }
        }
        let Some(frame) = session.poll_transmit(now, claims) else {
            return sent;
        };
        sent.push(frame);
        assert!(sent.len() < MAX_OUTPUTS, "frames without an end");
    }
}

/// What an honest peer said in a session that caught up.
pub(super) fn sessions() -> Vec<Vec<u8>> {
    const CHOICE: u8 = 3;
    let (mut ours, mut our_claims) = (open(PEER, OURS), Claims::new());
    let (mut theirs, mut their_claims) = (open(OURS, PEER), Claims::new());
    let mut said = Vec::new();
    for _ in 0..8 {
        for frame in settle(&mut theirs, Duration::ZERO, CHOICE, &mut their_claims) {
            ours.handle_bytes(Duration::ZERO, &frame, &mut our_claims);
            said.extend(frame);
        }
        for frame in settle(&mut ours, Duration::ZERO, CHOICE, &mut our_claims) {
            theirs.handle_bytes(Duration::ZERO, &frame, &mut their_claims);
        }
    }
    [[CHOICE, 255], [CHOICE, 40], [7, 90], [15, 90]]
        .map(|start| [&start[..], &said].concat())
        .into()
}

/// The secret that both ends have.
const SECRET: PairSecret = PairSecret([5; 10]);
const HOST: PairEnd = PairEnd::Host {
    long: SECRET,
    short: None,
};
const JOINER: PairEnd = PairEnd::Joiner(PairPassword::Long(SECRET));

fn begin(end: PairEnd) -> Option<Pairing> {
    let (host, joiner) = (DeviceKeys::generate([1; 64]), DeviceKeys::generate([2; 64]));
    let (us, them) = match end {
        PairEnd::Host { .. } => (host.public(), joiner.public()),
        PairEnd::Joiner(_) => (joiner.public(), host.public()),
    };
    Pairing::new(PairConfig {
        end,
        exporter: [6; 32],
        peer_key: them.ed25519,
        device: us,
        name: "device".to_owned(),
        entropy: [8; 64],
    })
    .ok()
}

/// The first octet says which end we are, the second how many octets come at
/// once; the rest is what the peer says.
pub(super) fn pairing(data: &[u8]) {
    let [choice, step, said @ ..] = data else {
        return;
    };
    let end = if choice & 1 == 0 { HOST } else { JOINER };
    let Some(mut pairing) = begin(end) else {
        return;
    };
    for piece in said.chunks(usize::from(*step) + 1) {
        pairing.handle_bytes(piece);
        answer(&mut pairing);
    }
}

/// Does what a person and the store do, and gives what is sent.
fn answer(pairing: &mut Pairing) -> Vec<Vec<u8>> {
    let mut events = 0;
    while let Some(event) = pairing.poll_event() {
        events += 1;
        assert!(events < MAX_OUTPUTS, "events without an end");
        // The joining side is not asked, and says so.
        let _not_asked = match event {
            PairEvent::Words { .. } => pairing
                .confirm(true)
                .and_then(|()| pairing.offer(ACCOUNT, vec![1; 200])),
            PairEvent::Offer { .. } => pairing.cosign(vec![2; 64]),
            PairEvent::Cosigned(_) => pairing.welcome(Welcome {
                envelopes: vec![vec![3; 300]],
                addrs: vec![([192, 168, 1, 11], 4001).into()],
                session_port: 4001,
            }),
            _ => Ok(()),
        };
    }
    std::iter::from_fn(|| pairing.poll_transmit())
        .take(MAX_OUTPUTS)
        .collect()
}

/// What either end said in a pairing that succeeded.
pub(super) fn pairings() -> Vec<Vec<u8>> {
    let (Some(mut host), Some(mut joiner)) = (begin(HOST), begin(JOINER)) else {
        return Vec::new();
    };
    let (mut to_host, mut to_joiner) = (vec![0, 15], vec![1, 15]);
    for _ in 0..8 {
        for frame in answer(&mut joiner) {
            host.handle_bytes(&frame);
            to_host.extend(frame);
        }
        for frame in answer(&mut host) {
            joiner.handle_bytes(&frame);
            to_joiner.extend(frame);
        }
    }
    vec![to_host, to_joiner]
}

fn asked() -> Asked {
    Asked {
        id: 0x1234,
        service: Service::Pair,
        label: "417".to_owned(),
    }
}

/// What anybody says in the group, and to who asked there.
pub(super) fn lan(data: &[u8]) {
    if let Some(asked) = Asked::from_bytes(data) {
        assert!(asked.to_bytes().is_some() && asked.answer(4001).is_some());
    }
    let from = ([192, 168, 1, 11], PORT).into();
    if let Some(at) = asked().answered(data, from) {
        assert!(at.ip() == from.ip() && at.port() != 0);
    }
}

/// A question and its answer.
pub(super) fn lans() -> Vec<Vec<u8>> {
    [asked().to_bytes(), asked().answer(4001)]
        .into_iter()
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(said: &[u8], part: &[u8]) -> bool {
        said.windows(part.len()).any(|window| window == part)
    }

    /// A pool that stops at the first frame would reach nothing behind it.
    #[test]
    fn the_pools_go_to_the_end() {
        assert!(sessions().iter().all(|said| holds(said, &[9; 100])));
        let [to_host, to_joiner] = pairings().try_into().unwrap();
        assert!(to_host.ends_with(&[1, 0, 0, 0, 8]), "no Done: {to_host:?}");
        assert!(holds(&to_joiner, &[3; 300]), "no Welcome: {to_joiner:?}");
    }
}
