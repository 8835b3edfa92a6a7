//! One question of the box while it is being answered.

use std::collections::VecDeque;
use std::net::SocketAddr;

use bailey_model::{Host, Transport};
use hickory_proto::rr::{Name, Record, RecordType};

use super::request::Request;
use super::{AskId, ExchangeId, host_of};
use crate::policy::below;
use crate::{Now, mdns};

/// A name to put to a resolver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) name: Name,
    /// Its presentation form, for the entry.
    pub(super) host: Host,
    /// The name that the addresses are judged and given for.
    pub(super) grant: Host,
}

impl Target {
    /// `None` for the root, which no entry can name.
    pub(super) fn new(mut name: Name, grant: Host) -> Option<Self> {
        name.set_fqdn(true);
        let host = host_of(&name)?;
        Some(Self { name, host, grant })
    }

    /// Whether it is the link that is asked, and no resolver.
    pub(super) fn is_on_link(&self) -> bool {
        below(self.host.as_str(), mdns::ZONE)
    }
}

/// Where a question stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not entered yet.
    New,
    /// Its entry is not committed yet.
    Entry(AskId),
    /// With the resolvers.
    Resolvers,
    /// Another question's answer is its answer too.
    Shares(u64),
}

/// One message to one resolver.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    pub(super) id: ExchangeId,
    pub(super) server: SocketAddr,
    pub(super) over: Transport,
    pub(super) message_id: u16,
}

#[derive(Debug)]
pub(super) struct Question {
    pub(super) request: Request,
    pub(super) target: Target,
    /// What to ask next if the target has no answer (the search list).
    pub(super) targets: VecDeque<Target>,
    /// Whether one of the names asked before is there, without such records.
    pub(super) exists: bool,
    /// CNAMEs followed so far.
    pub(super) chain: Vec<Record>,
    pub(super) followed: u8,
    pub(super) stage: Stage,
    pub(super) tries: usize,
    pub(super) attempts: Vec<Attempt>,
    pub(super) retry_at: Option<Now>,
    /// Questions that have its answer too.
    pub(super) sharers: Vec<u64>,
    pub(super) deadline: Now,
}

impl Question {
    pub(super) fn new(
        request: Request,
        target: Target,
        targets: VecDeque<Target>,
        deadline: Now,
    ) -> Self {
        Self {
            request,
            target,
            targets,
            exists: false,
            chain: Vec::new(),
            followed: 0,
            stage: Stage::New,
            tries: 0,
            attempts: Vec::new(),
            retry_at: None,
            sharers: Vec::new(),
            deadline,
        }
    }

    pub(super) fn qtype(&self) -> RecordType {
        self.request.qtype
    }

    /// Turns to another name, with all resolvers before it again.
    pub(super) fn aim(&mut self, target: Target) {
        self.target = target;
        self.stage = Stage::New;
        self.tries = 0;
        self.retry_at = None;
    }
}
