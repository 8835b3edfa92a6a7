//! Pairing: `device add` and `device join`, as the loop sees them.
//!
//! | step | host | joiner |
//! |---|---|---|
//! | 1 | shows the code | dials by it |
//! | 2 | both show the same words; a person at the host says yes | |
//! | 3 | the store makes an offer | signs it |
//! | 4 | the store adds the device, hands it the keys | |
//! | 5 | sends the account's records | becomes one of it |

mod links;

use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use bailey_docs_store::{AddOffer, DeviceKeys, Role};
use bailey_model::{AccountId, DeviceId};
use bailey_sync::mail::MailAddress;
use bailey_sync::pair::{
    AnyCode, HostCommand, HostEvent, JoinCommand, JoinConfig, JoinEvent, MAX_SHORT_CODES, PairHost,
    PairHostConfig, VALID_FOR, Welcome, join,
};
use tokio::sync::mpsc;

pub(super) use self::links::{links, own_addrs};
use super::event::{ConnId, NodeEvent};
use super::store::StoreAsk;
use super::{Node, clock};
use crate::api::{AddAsk, Failure, Grants, Tell};
use crate::log::log;

/// Addresses that fit into a code.
const MAX_ADDRS: usize = 3;

/// What came of a store's joining.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) conn: ConnId,
    /// The device that showed the code, and where its sessions are.
    pub(crate) host: DeviceId,
    pub(crate) addrs: Vec<SocketAddr>,
    pub(crate) account: Result<AccountId, String>,
}

/// What a pairing says.
#[derive(Debug)]
pub(crate) enum PairingEvent {
    /// At the host.
    Host(HostEvent),
    /// At the joiner.
    Join(JoinEvent),
}

/// A pairing under way, one a connection. Dropping it ends it.
#[derive(Debug)]
pub(super) enum Running {
    Host {
        commands: mpsc::Sender<HostCommand>,
        /// What the new device will be allowed.
        role: Role,
        offer: Option<Box<AddOffer>>,
        device: Option<bailey_docs_store::DevicePublic>,
        account: Option<AccountId>,
    },
    Join {
        commands: mpsc::Sender<JoinCommand>,
        /// The mailbox of the code.
        mailbox: Option<MailAddress>,
        host: Option<DeviceId>,
        /// The account that was offered, and what for.
        offered: Option<(AccountId, Role)>,
        /// The connection has said its last word.
        done: bool,
        /// The store has said that this device is a member.
        joined: bool,
    },
}

impl Node {
    /// Shows a code and waits for the other device.
    pub(super) fn begin_add(&mut self, conn: ConnId, ask: &AddAsk) -> Result<(), Failure> {
        self.start_endpoint()?;
        let role = ask.role;
        let advertise = match (ask.no_addr, ask.addrs.as_slice()) {
            (true, _) => Vec::new(),
            (false, []) => own_addrs(),
            (false, addrs) => addrs.to_vec(),
        };
        let mailbox = match ask.no_mailbox {
            true => None,
            false => self.mailbox_for_code(),
        };
        if ask.no_addr && mailbox.is_none() {
            return Err(Failure::usage("a code without an address needs a mailbox")
                .hint("[sync] mailbox in config.toml names one"));
        }
        if advertise.is_empty() && mailbox.is_none() {
            let none = "this device has no address that another could reach, and no mailbox";
            return Err(Failure::host(none).hint("--addr, if there is one after all"));
        }
        let short = self.short_codes.take(clock::moment().up_ms);
        let config = PairHostConfig {
            ed25519_secret: *self.keys.ed25519_secret(),
            device: self.keys.public(),
            name: self.name.clone(),
            listen: SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
            advertise: advertise.into_iter().take(MAX_ADDRS).collect(),
            mailbox: mailbox.clone(),
            short: short.is_ok(),
            links: links(),
            valid_for: VALID_FOR,
        };
        let (host, commands, events) =
            PairHost::start(config).map_err(|error| Failure::host(error.to_string()))?;
        let running = Running::Host {
            commands,
            role,
            offer: None,
            device: None,
            account: None,
        };
        self.pairings.insert(conn, running);
        self.hand_on_pairing(conn, events, PairingEvent::Host);
        let why = match short {
            Ok(()) => host.unfound().map(|why| {
                format!(
                    "the short code needs --at, since this network cannot be listened to: {why}"
                )
            }),
            Err(wait) => Some(format!(
                "no short code: {MAX_SHORT_CODES} were made this hour; the next in {}",
                minutes(wait)
            )),
        };
        let tell = Tell::Codes {
            long: host.code().to_string(),
            short: host.short().map(ToString::to_string),
            at: host.code().addrs().to_vec(),
            mailbox: mailbox.map(|mailbox| mailbox.to_string()),
            why,
        };
        self.tell(conn, tell);
        Ok(())
    }

    /// Dials the device that shows the code.
    pub(super) fn begin_join(
        &mut self,
        conn: ConnId,
        code: &str,
        addrs: Vec<SocketAddr>,
    ) -> Result<(), Failure> {
        if self.account.is_some() {
            return Err(Failure::usage("this device belongs to an account already")
                .hint("a device joins before its first box; see docs/adr/0005"));
        }
        let code: AnyCode = code
            .parse()
            .map_err(|error| Failure::usage(format!("{error}")))?;
        let mailbox = match &code {
            AnyCode::Long(code) => code.mailbox().cloned(),
            AnyCode::Short(_) => None,
        };
        let config = JoinConfig {
            ed25519_secret: *self.keys.ed25519_secret(),
            device: self.keys.public(),
            name: self.name.clone(),
            code,
            addrs,
            links: links(),
        };
        let (commands, events) = join(config).map_err(|error| Failure::host(error.to_string()))?;
        let running = Running::Join {
            commands,
            mailbox,
            host: None,
            offered: None,
            done: false,
            joined: false,
        };
        self.pairings.insert(conn, running);
        self.hand_on_pairing(conn, events, PairingEvent::Join);
        Ok(())
    }

    fn hand_on_pairing<T: Send + 'static>(
        &self,
        conn: ConnId,
        mut from: mpsc::Receiver<T>,
        wrap: fn(T) -> PairingEvent,
    ) {
        let to = self.events.clone();
        tokio::spawn(async move {
            while let Some(event) = from.recv().await {
                if to
                    .send(NodeEvent::Pairing {
                        conn,
                        event: wrap(event),
                    })
                    .await
                    .is_err()
                {
                    return;
                }
            }
        });
    }

    /// The person's answer to the words.
    pub(super) fn answer_words(&mut self, conn: ConnId, same: bool) {
        let Some(Running::Host {
            commands,
            device,
            role,
            ..
        }) = self.pairings.get(&conn)
        else {
            return;
        };
        let sent = commands.try_send(HostCommand::Confirm(same)).is_ok();
        let (Some(device), role) = (*device, *role) else {
            return;
        };
        if same && sent {
            self.ask_store(StoreAsk::Offer { conn, device, role });
        }
    }

    pub(super) fn on_pairing(&mut self, conn: ConnId, event: PairingEvent) {
        match event {
            PairingEvent::Host(event) => self.on_host(conn, event),
            PairingEvent::Join(event) => self.on_join(conn, event),
        }
    }

    /// What a device of this role can read and do from now on.
    fn grants(&self, role: Role) -> Grants {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        let shared = |state: &&&super::fold::BoxState| !state.here;
        Grants {
            role,
            days: self
                .config
                .audit
                .window
                .span()
                .as_secs()
                .div_ceil(DAY.as_secs()),
            boxes: self.fold.boxes().iter().filter(shared).count(),
        }
    }

    fn on_host(&mut self, conn: ConnId, event: HostEvent) {
        let Some(Running::Host {
            role,
            offer,
            device,
            account,
            ..
        }) = self.pairings.get_mut(&conn)
        else {
            return;
        };
        match event {
            HostEvent::WrongTry { left } => log!("pairing: a wrong code, {left} tries left"),
            HostEvent::ShortBurnt => self.tell(conn, Tell::ShortBurnt),
            HostEvent::Older => {
                let text =
                    "a device with an earlier release of bailey tried to join; it needs this one's";
                self.tell(conn, Tell::Note(text.to_owned()));
            }
            HostEvent::Away(why) => {
                let text = format!("the mailbox of the long code is not reached: {why}");
                self.tell(conn, Tell::Note(text));
            }
            HostEvent::Words {
                words,
                device: public,
                name,
                remote,
            } => {
                *device = Some(public);
                let role = *role;
                if remote.is_none() {
                    let text = "the other device comes through the mailbox";
                    self.tell(conn, Tell::Note(text.to_owned()));
                }
                let tell = Tell::Words {
                    words: words.join(" "),
                    name,
                    device: public.id(),
                    grants: Some(self.grants(role)),
                };
                self.tell(conn, tell);
            }
            HostEvent::Cosigned(bytes) => {
                match (offer.take(), <[u8; 64]>::try_from(bytes.as_slice())) {
                    (Some(offer), Ok(cosignature)) => {
                        self.ask_store(StoreAsk::Add {
                            conn,
                            offer,
                            cosignature,
                        });
                    }
                    _ => self.end_pairing(conn, "the other device did not sign".to_owned()),
                }
            }
            HostEvent::Done => {
                let (account, device) = (*account, device.map(|public| public.id()));
                let role = *role;
                self.pairings.remove(&conn);
                if let (Some(account), Some(device)) = (account, device) {
                    let tell = Tell::Joined {
                        account,
                        device,
                        role,
                        mailbox: None,
                    };
                    self.tell(conn, tell);
                }
            }
            HostEvent::Failed(error) => self.end_pairing(conn, error.to_string()),
        }
    }

    fn on_join(&mut self, conn: ConnId, event: JoinEvent) {
        let Some(Running::Join {
            commands,
            mailbox,
            host,
            offered,
            done,
            joined,
        }) = self.pairings.get_mut(&conn)
        else {
            return;
        };
        match event {
            JoinEvent::Words {
                words,
                device,
                name,
            } => {
                *host = Some(device.id());
                self.tell(
                    conn,
                    Tell::Words {
                        words: words.join(" "),
                        name,
                        device: device.id(),
                        grants: None,
                    },
                );
            }
            JoinEvent::Offer { account, record } => {
                let signed = host.and_then(|host| sign_offer(&self.keys, account, host, &record));
                *offered = signed.map(|(role, _)| (account, role));
                let sent = signed.is_some_and(|(_, signature)| {
                    commands
                        .try_send(JoinCommand::Cosign(signature.to_vec()))
                        .is_ok()
                });
                if !sent {
                    self.end_pairing(conn, "the other device offered something else".to_owned());
                }
            }
            JoinEvent::Welcome { welcome, host: at } => {
                let named = (mailbox.clone(), *offered, *host);
                self.on_welcome(conn, welcome, at, named);
            }
            JoinEvent::Done => {
                *done = true;
                if *joined {
                    self.pairings.remove(&conn);
                }
            }
            JoinEvent::Failed(error) => self.end_pairing(conn, error.to_string()),
        }
    }

    /// What the host gave, and what the code, the offer and the connection said before.
    fn on_welcome(
        &mut self,
        conn: ConnId,
        welcome: Welcome,
        at: Option<SocketAddr>,
        (mailbox, offered, host): (
            Option<MailAddress>,
            Option<(AccountId, Role)>,
            Option<DeviceId>,
        ),
    ) {
        let port = welcome.session_port;
        let further = welcome.addrs.iter();
        let further = further.map(|addr| SocketAddr::new(addr.ip(), port));
        let addrs = at.into_iter().chain(further).collect();
        let envelopes = welcome.envelopes;
        // The account that was offered and signed for, and no other.
        match (first_account(&envelopes), offered, host) {
            (Some(account), Some((known, _)), Some(host)) if account == known => {
                // Before it is a member: a node that ends here still finds it.
                self.learn_mailbox(conn, mailbox);
                self.ask_store(StoreAsk::Join {
                    conn,
                    account,
                    envelopes,
                    host,
                    addrs,
                });
            }
            _ => self.end_pairing(conn, "the welcome is of another account".to_owned()),
        }
    }

    /// The store's offer goes to the new device.
    pub(super) fn on_offered(&mut self, conn: ConnId, made: Result<Box<AddOffer>, String>) {
        let Some(Running::Host {
            commands, offer, ..
        }) = self.pairings.get_mut(&conn)
        else {
            return;
        };
        let sent = made.and_then(|made| {
            let record = made.to_bytes().map_err(|error| error.to_string())?;
            let command = HostCommand::Offer {
                account: made.account,
                record,
            };
            *offer = Some(made);
            commands
                .try_send(command)
                .map_err(|error| error.to_string())
        });
        if let Err(why) = sent {
            self.end_pairing(conn, why);
        }
    }

    /// The new device is one of the account: it gets what it needs.
    pub(super) fn on_added(
        &mut self,
        conn: ConnId,
        added: Result<(AccountId, Vec<Vec<u8>>), String>,
    ) {
        let session_port = self.devices.port().unwrap_or(0);
        let Some(Running::Host {
            commands, account, ..
        }) = self.pairings.get_mut(&conn)
        else {
            return;
        };
        let sent = added.and_then(|(id, envelopes)| {
            *account = Some(id);
            let addrs = own_addrs()
                .into_iter()
                .map(|ip| SocketAddr::new(ip, session_port))
                .take(MAX_ADDRS);
            let welcome = Welcome {
                envelopes,
                addrs: addrs.collect(),
                session_port,
            };
            commands
                .try_send(HostCommand::Welcome(welcome))
                .map_err(|error| error.to_string())
        });
        if let Err(why) = sent {
            self.end_pairing(conn, why);
        }
    }

    /// This device is one of the account.
    pub(super) fn on_joined(&mut self, joined: Joined) {
        let Joined {
            conn,
            host,
            addrs,
            account,
        } = joined;
        // The last frame to the host is on its way until `done`; the command
        // line, and the pairing with it, may be gone by now.
        let mut role = Role::Runs;
        let mut mailbox = None;
        if let Some(Running::Join {
            done,
            joined,
            offered,
            mailbox: named,
            ..
        }) = self.pairings.get_mut(&conn)
        {
            *joined = true;
            mailbox = named.take();
            role = offered.map_or(role, |(_, role)| role);
            if *done || account.is_err() {
                self.pairings.remove(&conn);
            }
        }
        let mailbox = mailbox.filter(|it| self.mailboxes.is_learned(it));
        if let (Err(_), Some(mailbox)) = (&account, &mailbox) {
            self.forget_mailbox(mailbox);
        }
        let tell = account
            .map_err(|why| Failure::host(format!("pairing: {why}")))
            .and_then(|account| {
                self.account = Some(account);
                self.name_self();
                self.start_endpoint()?;
                self.learn_addrs(host, &addrs);
                Ok(Tell::Joined {
                    account,
                    device: host,
                    role,
                    mailbox: mailbox.map(|mailbox| mailbox.to_string()),
                })
            });
        self.tell(conn, tell.unwrap_or_else(Tell::Failed));
    }

    fn end_pairing(&mut self, conn: ConnId, why: String) {
        self.pairings.remove(&conn);
        self.tell(conn, Tell::Failed(Failure::host(format!("pairing: {why}"))));
    }
}

/// Signs what the host offered, if it is this device's own place in the account
/// that was named, by the device at the other end.
fn sign_offer(
    keys: &DeviceKeys,
    account: AccountId,
    host: DeviceId,
    record: &[u8],
) -> Option<(Role, [u8; 64])> {
    let offer = AddOffer::from_bytes(record).ok()?;
    let fits = offer.account == account && offer.signer == host;
    let signature = fits.then(|| offer.sign(keys).ok()).flatten()?;
    Some((offer.role()?, signature))
}

/// Milliseconds in words, the next whole minute.
fn minutes(ms: u64) -> String {
    match ms.div_ceil(60_000) {
        1 => "1 minute".to_owned(),
        more => format!("{more} minutes"),
    }
}

/// The account of the first envelope; the store checks each.
fn first_account(envelopes: &[Vec<u8>]) -> Option<AccountId> {
    let header = bailey_envelope::peek(envelopes.first()?).ok()?;
    Some(header.fields.account)
}
