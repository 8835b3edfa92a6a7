//! A device of an account that lies to the others: it has a member's keys and store,
//! speaks the real protocol, and serves what no honest device would.
//!
//! `bailey-member STATE DEVICE ADDRESS` dials the device with this id there, and says
//! `NAME DEVICE` on its standard output whenever a device was given a lie by this name,
//! and `up DEVICE` when a session is up. It ends with its standard input.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use bailey_docs_store::{OsEntropy, Store, load_or_create_device_keys};
use bailey_envelope::{
    ChainId, DeviceKeys, DocId, EpochKey, Fields, HEADER_LEN, Hash, Head, KeyId, Kind,
    MAX_PLAINTEXT, WrapContext, Wrapped, peek, seal, sign_plain, wrap,
};
use bailey_model::{AccountId, BoxId, DeviceId, Incarnation, Timestamp};
use bailey_sync::{Endpoint, EndpointConfig, IngestFailure, SyncCommand, SyncEvent};
use sha2::Digest as _;

type Fault = Box<dyn Error>;

/// The key that its lies are sealed under, which it wraps to whoever reads.
const KEY: [u8; 32] = [0x23; 32];
const EPOCH: u32 = 60;
/// Envelopes of one answer.
const MAX_RANGE: usize = 64;
/// What a bomb inflates to, in bytes.
const BOMB: usize = 128 << 20;

fn main() -> Result<(), Fault> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [state, device, address] = words.as_slice() else {
        return Err("usage: bailey-member STATE DEVICE ADDRESS".into());
    };
    // It ends with whoever started it.
    std::thread::spawn(|| {
        let _ended = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(lie(Path::new(state), device, address.parse()?))
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let ms = since.map_or(0, |since| since.as_millis());
    Timestamp(u64::try_from(ms).unwrap_or(u64::MAX))
}

#[expect(
    clippy::too_many_lines,
    reason = "one loop, from its keys to its answers"
)]
async fn lie(state: &Path, device: &str, address: SocketAddr) -> Result<(), Fault> {
    let keys = load_or_create_device_keys(&state.join("device.key"), None, &mut OsEntropy)?;
    let store = Store::open(state, keys.clone(), now(), Box::new(OsEntropy))?;
    let account = store.account().ok_or("there is no account")?;
    let lies = Liar {
        account,
        keys: &keys,
    }
    .lies(&store)?;
    let config = EndpointConfig {
        ed25519_secret: *keys.ed25519_secret(),
        device: keys.id(),
        account,
        incarnation: store.incarnation(),
        listen: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
        entropy: [7; 32],
    };
    let (_endpoint, commands, mut events) = Endpoint::start(config)?;
    let members: Vec<(DeviceId, [u8; 32])> = store
        .members()
        .iter()
        .map(|(device, member)| (*device, member.public.ed25519))
        .collect();
    let to = members.iter().map(|(device, _)| *device);
    let to = to.into_iter().find(|it| it.to_string() == device);
    let to = to.ok_or("no member has this id")?;
    commands.send(SyncCommand::Members(members)).await?;
    let heads = lies.iter().map(|(chain, lie)| lie.head(*chain));
    let heads = store.heads().into_iter().chain(heads).collect();
    commands.send(SyncCommand::Heads(heads)).await?;
    let addrs = vec![address];
    commands
        .send(SyncCommand::Peer { device: to, addrs })
        .await?;
    while let Some(event) = events.recv().await {
        let answer = match event {
            SyncEvent::Up { peer, .. } => {
                say("up", peer);
                None
            }
            SyncEvent::NeedRange {
                peer,
                chain,
                from_seq,
                max_bytes,
            } => {
                let lie = lies.get(&chain);
                let most = usize::try_from(max_bytes)?;
                let envelopes = match lie {
                    Some(lie) => lie.envelopes.clone(),
                    None => store.range(&chain, from_seq, MAX_RANGE, most)?,
                };
                if let Some(lie) = lie {
                    say(lie.name, peer);
                }
                Some(SyncCommand::Range {
                    peer,
                    chain,
                    from_seq,
                    envelopes,
                })
            }
            // It wants nothing of the others.
            SyncEvent::Envelope { peer, chain, .. } => Some(SyncCommand::IngestFailed {
                peer,
                chain,
                failure: IngestFailure::Permanent,
            }),
            _ => None,
        };
        if let Some(answer) = answer {
            commands.send(answer).await?;
        }
    }
    Ok(())
}

fn say(name: &str, peer: DeviceId) {
    println!("{name} {peer}");
    // Whoever reads it waits for the line.
    let _said = std::io::stdout().flush();
}

/// What is served of a chain, whatever was asked for.
struct Lie {
    name: &'static str,
    envelopes: Vec<Vec<u8>>,
    /// How far it says that it has the chain.
    told: u64,
}

impl Lie {
    fn head(&self, chain: ChainId) -> Head {
        let last = self.envelopes.last().map(Vec::as_slice).unwrap_or_default();
        Head {
            chain,
            seq: self.told,
            hash: Hash(sha2::Sha256::digest(last).into()),
        }
    }
}

struct Liar<'a> {
    account: AccountId,
    keys: &'a DeviceKeys,
}

impl Liar<'_> {
    fn fields(&self, doc: DocId, no: u8) -> Fields {
        Fields {
            account: self.account,
            chain: ChainId {
                doc,
                writer: self.keys.id(),
                incarnation: Incarnation([no; 16]),
            },
            kind: if doc.is_plain() {
                Kind::Record
            } else {
                Kind::Tail
            },
            segment: u32::from(!doc.is_plain()),
            seq: 1,
            prev: Hash::NONE,
            before: None,
        }
    }

    fn sealed(&self, fields: Fields, body: &[u8]) -> Result<Vec<u8>, Fault> {
        let key = EpochKey::generate(KEY).segment_key(fields.chain.doc, fields.segment);
        Ok(seal(self.keys, fields, EPOCH, &key, body, [0x55; 24])?.bytes)
    }

    /// A chain in which each holds one of these bodies.
    fn chain(&self, first: Fields, bodies: &[&[u8]]) -> Result<Vec<Vec<u8>>, Fault> {
        let mut all: Vec<Vec<u8>> = Vec::new();
        for (seq, body) in (1..).zip(bodies) {
            let prev = match all.last() {
                Some(last) => Hash(sha2::Sha256::digest(last).into()),
                None => Hash::NONE,
            };
            all.push(self.sealed(Fields { seq, prev, ..first }, body)?);
        }
        Ok(all)
    }

    /// A record that hands the key to every member.
    fn handed(&self, store: &Store) -> Result<Vec<u8>, Fault> {
        type Sealed = ([u8; 32], [u8; 16]);
        type Wrap = (DeviceId, u32, KeyId, DeviceId, [u8; 32], Sealed);
        let key = EpochKey::generate(KEY);
        let mut wraps: Vec<Wrap> = Vec::new();
        for (recipient, member) in store.members().iter() {
            let context = WrapContext {
                account: self.account,
                writer: self.keys.id(),
                epoch: EPOCH,
                recipient: *recipient,
                // No heads: an empty list.
                membership: &[0],
            };
            let Wrapped { enc, sealed } = wrap(&key, &context, &member.public, [6; 32])?;
            let sealed = (sealed[..32].try_into()?, sealed[32..].try_into()?);
            wraps.push((self.keys.id(), EPOCH, key.id(), *recipient, enc, sealed));
        }
        let none: Vec<Hash> = Vec::new();
        let body = postcard::to_extend(&(none, wraps), vec![1, 2])?;
        Ok(sign_plain(self.keys, self.fields(DocId::Keys, 1), &body)?.bytes)
    }

    fn lies(&self, store: &Store) -> Result<BTreeMap<ChainId, Lie>, Fault> {
        let of = |no: u8| self.fields(DocId::Box(BoxId([no; 16])), no);
        let victim = store.members().iter().map(|(device, _)| *device);
        let victim = victim.into_iter().find(|device| *device != self.keys.id());
        let victim = victim.ok_or("there is no other member")?;
        let garbage: [&[u8]; 3] = [b"\x01\x00garbage", b"", b"\x09more garbage"];
        let whole = self.chain(of(5), &garbage)?;
        let turned = self.chain(of(6), &garbage)?;
        let mut noise = vec![0; MAX_PLAINTEXT - 64 * 1024];
        for (at, byte) in (0_u32..).zip(noise.iter_mut()) {
            *byte = sha_byte(at);
        }
        let lies = [
            (
                "keys",
                self.fields(DocId::Keys, 1),
                vec![self.handed(store)?],
            ),
            ("garbage", of(2), self.chain(of(2), &garbage)?),
            ("bomb", of(3), vec![self.sealed(of(3), &bomb()?)?]),
            ("large", of(4), vec![self.sealed(of(4), &noise)?]),
            ("gapped", of(5), vec![whole[0].clone(), whole[2].clone()]),
            (
                "reordered",
                of(6),
                vec![turned[1].clone(), turned[0].clone(), turned[0].clone()],
            ),
            (
                "forged",
                Fields {
                    chain: ChainId {
                        writer: victim,
                        ..of(7).chain
                    },
                    ..of(7)
                },
                vec![self.in_the_name_of(victim)?],
            ),
            (
                "elsewhere",
                of(8),
                vec![self.sealed(
                    Fields {
                        account: AccountId([0x11; 32]),
                        ..of(8)
                    },
                    b"x",
                )?],
            ),
            ("noise", of(9), vec![noise.clone()]),
            ("keyless", of(10), vec![self.under_no_key(of(10))?]),
        ];
        let told = |name: &str, count: usize| match name {
            // More than it has.
            "gapped" | "reordered" => 3,
            _ => u64::try_from(count).unwrap_or(1),
        };
        Ok(lies
            .into_iter()
            .map(|(name, fields, envelopes)| {
                let told = told(name, envelopes.len());
                (
                    fields.chain,
                    Lie {
                        name,
                        envelopes,
                        told,
                    },
                )
            })
            .collect())
    }

    /// Another member's name in the header, and our signature.
    fn in_the_name_of(&self, victim: DeviceId) -> Result<Vec<u8>, Fault> {
        let ours = self.sealed(self.fields(DocId::Box(BoxId([7; 16])), 7), b"x")?;
        let mut header = peek(&ours)?;
        header.fields.chain.writer = victim;
        let (head, body) = (header.encode(), &ours[HEADER_LEN..ours.len() - 64]);
        let message = [&head[..], &sha2::Sha256::digest(body)].concat();
        let signature = self.keys.sign("bailey/env/v1\0", &message);
        Ok([&head[..], body, &signature].concat())
    }

    fn under_no_key(&self, fields: Fields) -> Result<Vec<u8>, Fault> {
        let key = EpochKey::generate([0x99; 32]).segment_key(fields.chain.doc, 1);
        Ok(seal(self.keys, fields, EPOCH + 1, &key, b"x", [0x55; 24])?.bytes)
    }
}

fn sha_byte(at: u32) -> u8 {
    sha2::Sha256::digest(at.to_be_bytes())[0]
}

/// A body that inflates a thousandfold.
fn bomb() -> Result<Vec<u8>, Fault> {
    let mut body = vec![1, 1];
    let zeros = std::io::repeat(0).take(u64::try_from(BOMB)?);
    flate2::read::DeflateEncoder::new(zeros, flate2::Compression::best()).read_to_end(&mut body)?;
    Ok(body)
}
