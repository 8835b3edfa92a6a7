//! A pairing through a mailbox that does with blobs what it likes, beside somebody who has
//! the code and writes what he likes: no sockets, no time.

use bailey_envelope::{MailKey, PairWay};
use bailey_model::AccountId;
use bailey_session::pair::{
    Attempt, PairConfig, PairEnd, PairEvent, PairPassword, Pairing, Post, PostEvent, Welcome,
};

use super::super::memory::{Memory, Proved};
use super::{PairSecret, keys};
use crate::tls::Identity;

const SECRET: PairSecret = PairSecret([7; 10]);
const MAILBOX: [u8; 32] = [9; 32];
const NOW: std::time::Duration = std::time::Duration::ZERO;
/// More deeds than an honest pairing takes.
const DEEDS: usize = 400;

/// splitmix64.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) >> 33).unwrap() % bound
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Came {
    words: Option<[&'static str; 4]>,
    offer: Option<Vec<u8>>,
    welcome: bool,
    done: bool,
}

struct End {
    host: bool,
    post: Post,
    tls: Option<Memory>,
    pairing: Option<Pairing>,
    attempt: Option<Attempt>,
    came: Came,
}

impl End {
    fn host() -> Self {
        Self {
            host: true,
            post: Post::host(SECRET, &MAILBOX),
            tls: None,
            pairing: None,
            attempt: None,
            came: Came::default(),
        }
    }

    fn joiner(n: u8) -> Self {
        let attempt = Attempt([n; 16]);
        let mut post = Post::joiner(SECRET, &MAILBOX, attempt);
        let mut tls = Memory::joiner(&identity(2)).unwrap();
        post.write(attempt, &tls.write(&[]).unwrap());
        Self {
            host: false,
            post,
            tls: Some(tls),
            pairing: None,
            attempt: Some(attempt),
            came: Came::default(),
        }
    }

    /// Does what the tasks of either side do.
    fn pump(&mut self) {
        while let Some(event) = self.post.poll_event() {
            match event {
                // Whoever comes later has nobody to talk to here.
                PostEvent::Opened(attempt) if self.attempt.is_none() => {
                    self.attempt = Some(attempt);
                    self.tls = Some(Memory::host(&identity(1)).unwrap());
                }
                PostEvent::Bytes(attempt, bytes) if self.attempt == Some(attempt) => {
                    self.read(attempt, &bytes);
                }
                PostEvent::Broken(attempt, _) if self.attempt == Some(attempt) => {
                    (self.tls, self.pairing) = (None, None);
                }
                _ => {}
            }
        }
        self.steps();
    }

    fn read(&mut self, attempt: Attempt, bytes: &[u8]) {
        let Some(tls) = &mut self.tls else { return };
        let Ok(plain) = tls.read(bytes) else {
            (self.tls, self.pairing) = (None, None);
            return;
        };
        self.post.write(attempt, &tls.write(&[]).unwrap());
        if self.pairing.is_none()
            && let Some(proved) = tls.proved()
        {
            let proved = proved.unwrap();
            let (end, n, peer) = match self.host {
                true => (
                    PairEnd::Host {
                        long: SECRET,
                        short: None,
                    },
                    1,
                    2,
                ),
                false => (PairEnd::Joiner(PairPassword::Long(SECRET)), 2, 1),
            };
            assert_eq!(proved.key, keys(peer).public().ed25519, "nobody else's key");
            self.pairing = Pairing::new(PairConfig {
                end,
                exporter: proved.exporter,
                peer_key: proved.key,
                device: keys(n).public(),
                name: "desk".to_owned(),
                entropy: [n; 64],
            })
            .ok();
        }
        if let Some(pairing) = &mut self.pairing {
            pairing.handle_bytes(&plain);
        }
    }

    fn steps(&mut self) {
        let Some(pairing) = &mut self.pairing else {
            return;
        };
        while let Some(event) = pairing.poll_event() {
            match event {
                PairEvent::Proved => self.post.keep(NOW, self.attempt),
                PairEvent::Words { words, .. } => {
                    self.came.words = Some(words);
                    self.post.keep(NOW, self.attempt);
                    if self.host {
                        pairing.confirm(true).unwrap();
                        pairing.offer(AccountId([5; 32]), vec![7; 700]).unwrap();
                    }
                }
                PairEvent::Offer { record, .. } => {
                    self.came.offer = Some(record);
                    pairing.cosign(vec![8; 64]).unwrap();
                }
                PairEvent::Cosigned(signature) => {
                    assert_eq!(signature, [8; 64]);
                    let welcome = Welcome {
                        envelopes: vec![vec![3; 4000]; 5],
                        addrs: vec![],
                        session_port: 9,
                    };
                    pairing.welcome(welcome).unwrap();
                }
                PairEvent::Welcome(welcome) => {
                    assert_eq!(welcome.envelopes, vec![vec![3; 4000]; 5]);
                    self.came.welcome = true;
                }
                PairEvent::Done => self.came.done = true,
                PairEvent::Failed(_) => {}
            }
        }
        while let (Some(frame), Some(tls), Some(attempt)) =
            (pairing.poll_transmit(), &mut self.tls, self.attempt)
        {
            self.post.write(attempt, &tls.write(&frame).unwrap());
        }
    }

    fn puts(&mut self, into: &mut Vec<Vec<u8>>) {
        self.pump();
        while let Some((id, _, blob)) = self.post.poll_put(NOW) {
            self.post.handle_stored(id);
            into.push(blob);
        }
    }
}

fn identity(n: u8) -> Identity {
    Identity::new(&keys(n).ed25519_secret()).unwrap()
}

/// What came to host and joiner. `evil` is how many of ten blobs are not handed over as
/// they should be.
fn paired(seed: u64, evil: usize) -> (Came, Came) {
    let mut chance = Chance(seed);
    let (mut host, mut joiner) = (End::host(), End::joiner(1));
    // Blobs by whom they go to, how many were handed over, and the next index.
    let (mut put, mut given, mut index) = ([Vec::new(), Vec::new()], [0, 0], 1);
    // An earlier try of the same joiner lies there too.
    let mut earlier = Vec::new();
    End::joiner(2).puts(&mut earlier);
    for _ in 0..DEEDS {
        joiner.puts(&mut put[0]);
        host.puts(&mut put[1]);
        let to = chance.below(2);
        let end = match to {
            0 => &mut host,
            _ => &mut joiner,
        };
        index += 1;
        let all: &Vec<Vec<u8>> = &put[to];
        let any = match all.len() {
            0 => earlier[0].clone(),
            count => all[chance.below(count)].clone(),
        };
        if chance.below(10) >= evil {
            if let Some(blob) = all.get(given[to]) {
                given[to] += 1;
                end.post.handle_blob(index, blob);
            }
            end.pump();
            continue;
        }
        match chance.below(7) {
            // Once more, or before its turn.
            0 | 1 => end.post.handle_blob(index, &any),
            // Kept back for good.
            2 => given[to] += usize::from(given[to] < all.len() && chance.below(8) == 0),
            3 => {
                let mut blob = any;
                let at = chance.below(blob.len());
                blob[at] ^= 1 << chance.below(8);
                end.post.handle_blob(index, &blob);
            }
            4 => {
                let other = &put[1 - to];
                if !other.is_empty() {
                    end.post
                        .handle_blob(index, &other[chance.below(other.len())]);
                }
            }
            5 => end.post.handle_blob(index, &earlier[0]),
            // Somebody with the code writes into another's streams.
            _ if chance.below(6) == 0 => {
                let way = [PairWay::ToHost, PairWay::ToJoiner][to];
                let number = u8::try_from(chance.below(9)).unwrap();
                let noise = vec![0x16; 1 + chance.below(600)];
                let piece = [&b"BLP\x01\0"[..], &[1; 16], &[0, 0, 0, number], &noise].concat();
                let key = MailKey::of_pairing(&SECRET.0, &MAILBOX, way);
                end.post.handle_blob(index, &key.seal(&piece).unwrap());
            }
            _ => {}
        }
        end.pump();
    }
    (host.came, joiner.came)
}

/// A whole handshake; what it proved to either side.
fn shaken(host: u8, joiner: u8) -> [Proved; 2] {
    let (mut there, mut here) = (
        Memory::host(&identity(host)).unwrap(),
        Memory::joiner(&identity(joiner)).unwrap(),
    );
    for _ in 0..3 {
        let _plain = there.read(&here.write(&[]).unwrap()).unwrap();
        let _plain = here.read(&there.write(&[]).unwrap()).unwrap();
    }
    [there, here].map(|end| end.proved().unwrap().unwrap())
}

#[test]
fn a_handshake_in_memory_proves_both_keys_and_has_an_exporter_of_its_own() {
    let [there, here] = shaken(1, 2);
    assert_eq!(there.key, keys(2).public().ed25519);
    assert_eq!(here.key, keys(1).public().ed25519);
    assert_eq!(there.exporter, here.exporter);
    assert_ne!(shaken(1, 2)[0].exporter, there.exporter);
}

#[test]
fn an_honest_mailbox_leads_to_the_same_words_and_to_the_end() {
    for seed in 0..20 {
        let (host, joiner) = paired(seed, 0);
        assert!(host.words.is_some() && host.words == joiner.words);
        assert!(host.done && joiner.done && joiner.welcome);
        assert_eq!(joiner.offer, Some(vec![7; 700]));
    }
}

#[test]
fn no_order_of_blobs_makes_a_false_pairing() {
    let (mut complete, mut begun) = (0, 0);
    for seed in 0..240 {
        let evil = 1 + usize::try_from(seed % 8).unwrap();
        let (host, joiner) = paired(seed, evil);
        if let (Some(there), Some(here)) = (host.words, joiner.words) {
            assert_eq!(there, here, "seed {seed}");
        }
        // What comes, comes as it was sent, and after what it rests on.
        assert!(
            host.words.is_none() || joiner.words.is_some(),
            "seed {seed}"
        );
        assert!(
            joiner.offer.is_none() || host.words.is_some(),
            "seed {seed}"
        );
        assert!(
            joiner.offer.iter().all(|offer| *offer == [7; 700]),
            "seed {seed}"
        );
        assert!(!host.done || joiner.welcome, "seed {seed}");
        complete += u32::from(host.done);
        begun += u32::from(joiner.words.is_some());
    }
    // Neither all of it held up, nor none.
    assert!(complete > 20 && begun < 230, "{complete} {begun}");
}
