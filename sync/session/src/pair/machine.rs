//! One connection of a pairing, from either end.

use core::mem;
use core::net::SocketAddr;
use std::collections::VecDeque;

use bailey_model::AccountId;

use super::code::PairSecret;
use super::pake::{Exchange, Side};
use super::proof::{self, Link};
use super::short::{PairPassword, PasswordKind, ShortCode};
use super::wire::{END_CANCELLED, END_PROTOCOL, END_REFUSED, END_VERSION, Introduction, PairFrame};
use super::{MAX_FIRST_PAYLOAD, MAX_PAIR_PAYLOAD, MAX_WELCOME, MAX_WELCOME_ADDRS};
use crate::DevicePublic;
use crate::wire::{Blob, Cut, Cutter, List, decode, encode};

/// Which end, and what it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PairEnd {
    /// The device of the account, which made the codes.
    Host {
        /// The secret of the long one.
        long: PairSecret,
        /// The short one, unless it is burnt.
        short: Option<ShortCode>,
    },
    /// The new device, which was given one of them.
    Joiner(PairPassword),
}

/// What a pairing starts from.
#[derive(Debug, Clone)]
pub struct PairConfig {
    /// Which end we are.
    pub end: PairEnd,
    /// Exporter of the connection ([`super::EXPORTER_LABEL`]).
    pub exporter: [u8; 32],
    /// Ed25519 key that the peer proved in TLS.
    pub peer_key: [u8; 32],
    /// Our public keys. The Ed25519 one is what we prove in TLS.
    pub device: DevicePublic,
    /// Our name, 1 to 64 characters.
    pub name: String,
    /// Bytes from the operating system, for this connection alone.
    pub entropy: [u8; 64],
}

/// What a new device needs to be one of the account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// The account chain, in order.
    pub envelopes: Vec<Vec<u8>>,
    /// Further addresses of the host.
    pub addrs: Vec<SocketAddr>,
    /// UDP port of its sessions.
    pub session_port: u16,
}

/// What a pairing says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PairEvent {
    /// Host: the peer knows the code. From now on no other try counts.
    Proved,
    /// Show these words, and who is at the other end. On the host a person
    /// compares them and [`Pairing::confirm`] follows.
    Words {
        /// Four of [`super::WORDS`]: 32 bits.
        words: [&'static str; 4],
        /// The peer's public keys.
        device: DevicePublic,
        /// The peer's own word for its name: untrusted text.
        name: String,
    },
    /// Joiner: sign this record, then [`Pairing::cosign`].
    Offer {
        /// The account.
        account: AccountId,
        /// The record that adds us.
        record: Vec<u8>,
    },
    /// Host: the record's second signature; [`Pairing::welcome`] follows.
    Cosigned(Vec<u8>),
    /// Joiner: we are of the account.
    Welcome(Welcome),
    /// Both know that it is complete. Nothing follows.
    Done,
    /// It is over without success. Nothing follows.
    Failed(PairFailure),
}

/// Why a pairing failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PairFailure {
    /// Host: the peer does not know the code. Joiner: the host refused it (it
    /// may be mistyped, used, expired), or does not know it itself.
    #[error("the code is wrong, used or expired")]
    WrongCode,
    /// The peer ended it: its person said no, or left.
    #[error("the other device ended the pairing")]
    Cancelled,
    /// We ended it.
    #[error("the pairing was ended here")]
    CancelledHere,
    /// Another version.
    #[error("the other device speaks another version of pairing")]
    Version,
    /// The peer sent what is no frame, or not in its place, or keys that are
    /// not those of its connection.
    #[error("the other device broke the protocol of pairing")]
    Protocol,
}

/// A step was asked for that is not the next one, or does not fit in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is not the next step of the pairing, or too long for it")]
pub struct WrongStep;

#[derive(Debug)]
enum Stage {
    // Host.
    AwaitOpen {
        long: PairSecret,
        short: Option<ShortCode>,
    },
    AwaitProve {
        key: [u8; 32],
    },
    AwaitReveal {
        commit: [u8; 32],
    },
    AwaitConfirm,
    AwaitOffer,
    AwaitCosign,
    AwaitWelcome,
    AwaitDone,
    // Joiner.
    AwaitAnswer {
        half: Exchange,
    },
    AwaitProof {
        key: [u8; 32],
        commit: [u8; 32],
    },
    AwaitHostOffer,
    AwaitOurCosign,
    AwaitHostWelcome,
    // Both.
    Over,
}

/// One connection of a pairing.
#[derive(Debug)]
pub struct Pairing {
    link: Link,
    me: Introduction,
    nonce: [u8; 32],
    /// For the exchange.
    seed: [u8; 32],
    kind: Option<PasswordKind>,
    stage: Stage,
    cutter: Cutter,
    out: VecDeque<Vec<u8>>,
    events: VecDeque<PairEvent>,
}

impl Pairing {
    /// Starts one.
    ///
    /// # Errors
    /// [`WrongStep`] if our name is not 1 to 64 characters long.
    pub fn new(config: PairConfig) -> Result<Self, WrongStep> {
        let PairConfig {
            end,
            exporter,
            peer_key,
            device,
            name,
            entropy,
        } = config;
        let me = Introduction::new(&device, &name);
        if !me.name_fits() {
            return Err(WrongStep);
        }
        let (host, joiner) = match end {
            PairEnd::Host { .. } => (device.ed25519, peer_key),
            PairEnd::Joiner(_) => (peer_key, device.ed25519),
        };
        let (mut nonce, mut seed) = ([0; 32], [0; 32]);
        nonce.copy_from_slice(&entropy[..32]);
        seed.copy_from_slice(&entropy[32..]);
        let mut pairing = Self {
            link: Link {
                exporter,
                host,
                joiner,
            },
            me,
            nonce,
            seed,
            kind: None,
            stage: Stage::Over,
            cutter: Cutter::new(MAX_FIRST_PAYLOAD),
            out: VecDeque::new(),
            events: VecDeque::new(),
        };
        pairing.stage = match end {
            PairEnd::Host { long, short } => Stage::AwaitOpen { long, short },
            PairEnd::Joiner(password) => {
                let (half, element) = pairing.exchange(Side::Joiner, &password).ok_or(WrongStep)?;
                pairing.send(&PairFrame::Open {
                    code: password.kind(),
                    element,
                })?;
                Stage::AwaitAnswer { half }
            }
        };
        Ok(pairing)
    }

    fn exchange(&mut self, side: Side, password: &PairPassword) -> Option<(Exchange, [u8; 32])> {
        self.kind = Some(password.kind());
        Exchange::start(side, &password.bytes(), &self.link, self.seed)
    }

    /// Which code the peer, or we, tried; `None` before it was said.
    #[must_use]
    pub fn kind(&self) -> Option<PasswordKind> {
        self.kind
    }

    fn send(&mut self, frame: &PairFrame) -> Result<(), WrongStep> {
        let bytes = encode(frame, MAX_PAIR_PAYLOAD).ok_or(WrongStep)?;
        self.out.push_back(bytes);
        Ok(())
    }

    /// Bytes from the peer, in order.
    pub fn handle_bytes(&mut self, bytes: &[u8]) {
        self.cutter.push(bytes);
        while !self.is_over() {
            match self.cutter.next() {
                Cut::More => break,
                Cut::Bad => self.fail(END_PROTOCOL, PairFailure::Protocol),
                Cut::Payload(payload) => match decode::<PairFrame>(&payload) {
                    Some(frame) => self.handle_frame(frame),
                    None => self.fail(END_PROTOCOL, PairFailure::Protocol),
                },
            }
        }
    }

    fn handle_frame(&mut self, frame: PairFrame) {
        let step = match (mem::replace(&mut self.stage, Stage::Over), frame) {
            (_, PairFrame::End(reason)) => {
                self.events.push_back(PairEvent::Failed(match reason {
                    END_REFUSED => PairFailure::WrongCode,
                    END_VERSION => PairFailure::Version,
                    END_CANCELLED => PairFailure::Cancelled,
                    _ => PairFailure::Protocol,
                }));
                return;
            }
            (Stage::AwaitOpen { long, short }, PairFrame::Open { code, element }) => {
                self.handle_open(long, short, code, &element)
            }
            (Stage::AwaitAnswer { half }, PairFrame::Answer { element }) => {
                self.handle_answer(half, &element)
            }
            (Stage::AwaitProve { key }, PairFrame::Prove { commit, mac }) => {
                self.handle_prove(&key, commit, &mac)
            }
            (Stage::AwaitProof { key, commit }, PairFrame::Proof { mac, nonce, host }) => {
                self.handle_proof(&key, &commit, &mac, &nonce, &host)
            }
            (Stage::AwaitReveal { commit }, PairFrame::Reveal { nonce, joiner }) => {
                self.handle_reveal(&commit, &nonce, &joiner)
            }
            (
                Stage::AwaitHostOffer,
                PairFrame::Offer {
                    account,
                    record: Blob(record),
                },
            ) => {
                self.events.push_back(PairEvent::Offer {
                    account: AccountId(account),
                    record,
                });
                Ok(Stage::AwaitOurCosign)
            }
            (Stage::AwaitCosign, PairFrame::Cosign(Blob(cosignature))) => {
                self.events.push_back(PairEvent::Cosigned(cosignature));
                Ok(Stage::AwaitWelcome)
            }
            (
                Stage::AwaitHostWelcome,
                PairFrame::Welcome {
                    envelopes,
                    addrs,
                    port,
                },
            ) => self.handle_welcome(envelopes, addrs, port),
            (Stage::AwaitDone, PairFrame::Done) => {
                self.events.push_back(PairEvent::Done);
                Ok(Stage::Over)
            }
            _ => Err((END_PROTOCOL, PairFailure::Protocol)),
        };
        match step {
            Ok(stage) => self.stage = stage,
            Err((end, failure)) => self.fail(end, failure),
        }
    }

    /// Nothing is learnt from our element by who does not prove after it.
    fn handle_open(
        &mut self,
        long: PairSecret,
        short: Option<ShortCode>,
        code: PasswordKind,
        element: &[u8; 32],
    ) -> Result<Stage, (u8, PairFailure)> {
        self.kind = Some(code);
        let password = match code {
            PasswordKind::Long => Some(PairPassword::Long(long)),
            PasswordKind::Short => short.map(PairPassword::Short),
        };
        let password = password.ok_or((END_REFUSED, PairFailure::WrongCode))?;
        let protocol = (END_PROTOCOL, PairFailure::Protocol);
        let (half, ours) = self.exchange(Side::Host, &password).ok_or(protocol)?;
        let key = half.finish(element).ok_or(protocol)?;
        self.send(&PairFrame::Answer { element: ours })
            .map_err(|WrongStep| protocol)?;
        Ok(Stage::AwaitProve { key })
    }

    fn handle_answer(
        &mut self,
        half: Exchange,
        element: &[u8; 32],
    ) -> Result<Stage, (u8, PairFailure)> {
        let protocol = (END_PROTOCOL, PairFailure::Protocol);
        let key = half.finish(element).ok_or(protocol)?;
        let commit = proof::commit(&self.nonce, &self.me);
        let mac = proof::joiner_mac(&key, &self.link, &commit).ok_or(protocol)?;
        self.send(&PairFrame::Prove { commit, mac })
            .map_err(|WrongStep| protocol)?;
        Ok(Stage::AwaitProof { key, commit })
    }

    fn handle_prove(
        &mut self,
        key: &[u8; 32],
        commit: [u8; 32],
        mac: &[u8; 32],
    ) -> Result<Stage, (u8, PairFailure)> {
        if !proof::equal(proof::joiner_mac(key, &self.link, &commit), mac) {
            return Err((END_REFUSED, PairFailure::WrongCode));
        }
        let protocol = (END_PROTOCOL, PairFailure::Protocol);
        let mac =
            proof::host_mac(key, &self.link, &commit, &self.nonce, &self.me).ok_or(protocol)?;
        let proof = PairFrame::Proof {
            mac,
            nonce: self.nonce,
            host: self.me.clone(),
        };
        self.send(&proof).map_err(|WrongStep| protocol)?;
        self.events.push_back(PairEvent::Proved);
        Ok(Stage::AwaitReveal { commit })
    }

    fn handle_proof(
        &mut self,
        key: &[u8; 32],
        commit: &[u8; 32],
        mac: &[u8; 32],
        nonce: &[u8; 32],
        host: &Introduction,
    ) -> Result<Stage, (u8, PairFailure)> {
        if !proof::equal(proof::host_mac(key, &self.link, commit, nonce, host), mac) {
            return Err((END_REFUSED, PairFailure::WrongCode));
        }
        if host.ed25519 != self.link.host || !host.name_fits() {
            return Err((END_PROTOCOL, PairFailure::Protocol));
        }
        let reveal = PairFrame::Reveal {
            nonce: self.nonce,
            joiner: self.me.clone(),
        };
        self.send(&reveal)
            .map_err(|WrongStep| (END_PROTOCOL, PairFailure::Protocol))?;
        let words = proof::words(&self.link, &self.nonce, nonce, &self.me, host);
        self.tell_words(words, host);
        self.cutter.set_max(MAX_PAIR_PAYLOAD);
        Ok(Stage::AwaitHostOffer)
    }

    fn handle_reveal(
        &mut self,
        commit: &[u8; 32],
        nonce: &[u8; 32],
        joiner: &Introduction,
    ) -> Result<Stage, (u8, PairFailure)> {
        let fits = proof::commit(nonce, joiner) == *commit
            && joiner.ed25519 == self.link.joiner
            && joiner.name_fits();
        if !fits {
            return Err((END_PROTOCOL, PairFailure::Protocol));
        }
        let words = proof::words(&self.link, nonce, &self.nonce, joiner, &self.me);
        self.tell_words(words, joiner);
        self.cutter.set_max(MAX_PAIR_PAYLOAD);
        Ok(Stage::AwaitConfirm)
    }

    fn tell_words(&mut self, words: [&'static str; 4], peer: &Introduction) {
        self.events.push_back(PairEvent::Words {
            words,
            device: peer.device(),
            name: peer.name.clone(),
        });
    }

    fn handle_welcome(
        &mut self,
        envelopes: List<Blob, MAX_WELCOME>,
        addrs: List<super::wire::Addr, MAX_WELCOME_ADDRS>,
        port: u16,
    ) -> Result<Stage, (u8, PairFailure)> {
        self.send(&PairFrame::Done)
            .map_err(|WrongStep| (END_PROTOCOL, PairFailure::Protocol))?;
        self.events.push_back(PairEvent::Welcome(Welcome {
            envelopes: envelopes.0.into_iter().map(|Blob(bytes)| bytes).collect(),
            addrs: addrs.0.into_iter().map(SocketAddr::from).collect(),
            session_port: port,
        }));
        self.events.push_back(PairEvent::Done);
        Ok(Stage::Over)
    }

    fn fail(&mut self, end: u8, failure: PairFailure) {
        self.stage = Stage::Over;
        self.out.clear();
        self.out
            .extend(encode(&PairFrame::End(end), MAX_FIRST_PAYLOAD));
        self.events.push_back(PairEvent::Failed(failure));
    }

    /// Host: a person compared the words. `false` ends it.
    ///
    /// # Errors
    /// [`WrongStep`]: the words were not shown yet, or it was said already.
    pub fn confirm(&mut self, same: bool) -> Result<(), WrongStep> {
        if !matches!(self.stage, Stage::AwaitConfirm) {
            return Err(WrongStep);
        }
        if same {
            self.stage = Stage::AwaitOffer;
        } else {
            self.cancel();
        }
        Ok(())
    }

    /// Host, after yes: the record that adds the new device.
    ///
    /// # Errors
    /// [`WrongStep`]: nobody confirmed yet, or the record is too long or empty.
    pub fn offer(&mut self, account: AccountId, record: Vec<u8>) -> Result<(), WrongStep> {
        if !matches!(self.stage, Stage::AwaitOffer) || record.is_empty() {
            return Err(WrongStep);
        }
        self.send(&PairFrame::Offer {
            account: account.0,
            record: Blob(record),
        })?;
        self.stage = Stage::AwaitCosign;
        Ok(())
    }

    /// Joiner: our signature over the offered record.
    ///
    /// # Errors
    /// [`WrongStep`]: nothing was offered, or the signature is too long or empty.
    pub fn cosign(&mut self, cosignature: Vec<u8>) -> Result<(), WrongStep> {
        if !matches!(self.stage, Stage::AwaitOurCosign) || cosignature.is_empty() {
            return Err(WrongStep);
        }
        self.send(&PairFrame::Cosign(Blob(cosignature)))?;
        self.stage = Stage::AwaitHostWelcome;
        Ok(())
    }

    /// Host: what the new device needs.
    ///
    /// # Errors
    /// [`WrongStep`]: no signature came yet, or it does not fit in a frame.
    pub fn welcome(&mut self, welcome: Welcome) -> Result<(), WrongStep> {
        let Welcome {
            envelopes,
            addrs,
            session_port,
        } = welcome;
        let fits = envelopes.len() <= MAX_WELCOME
            && addrs.len() <= MAX_WELCOME_ADDRS
            && envelopes.iter().all(|bytes| !bytes.is_empty());
        if !matches!(self.stage, Stage::AwaitWelcome) || !fits {
            return Err(WrongStep);
        }
        self.send(&PairFrame::Welcome {
            envelopes: List(envelopes.into_iter().map(Blob).collect()),
            addrs: List(addrs.into_iter().map(Into::into).collect()),
            port: session_port,
        })?;
        self.stage = Stage::AwaitDone;
        Ok(())
    }

    /// Host: the short code is worthless from now on; who is at it is refused.
    pub fn burn_short(&mut self) {
        match &mut self.stage {
            Stage::AwaitOpen { short, .. } => *short = None,
            Stage::Over => {}
            _ if self.kind == Some(PasswordKind::Short) => {
                self.fail(END_REFUSED, PairFailure::WrongCode);
            }
            _ => {}
        }
    }

    /// Ends it from our side.
    pub fn cancel(&mut self) {
        if !self.is_over() {
            self.fail(END_CANCELLED, PairFailure::CancelledHere);
        }
    }

    /// Whether nothing more is expected from the peer.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// The next frame to send.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.out.pop_front()
    }

    /// The next thing for the owner to do.
    pub fn poll_event(&mut self) -> Option<PairEvent> {
        self.events.pop_front()
    }
}
