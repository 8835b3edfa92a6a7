//! What a flow says of its own name, held against the reach.

use std::net::SocketAddr;

use bailey_model::{FlowId, FlowNamed, Host, Refusal, Sni, Transport, Verdict};

use crate::channel::GateEvent;
use crate::flow_common::Common;
use crate::peek::{Hello, Spoken};
use crate::policy::Decision;

/// An allowed flow, as far as its name goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spoke<'a> {
    pub(crate) flow: FlowId,
    pub(crate) over: Transport,
    pub(crate) dst: SocketAddr,
    /// The name that it was opened for, if the gate's DNS gave one.
    pub(crate) host: Option<&'a Host>,
}

/// Most hosts that are remembered of a flow.
const MAX_SAID: usize = 4;

/// What a flow has said of its name so far. A reach that changes may open its end
/// by a name alone, and then all of it has to be granted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Said {
    hosts: Vec<Host>,
    /// It said what was not read, or more than is remembered.
    unread: bool,
}

impl Said {
    pub(crate) fn add(&mut self, spoken: &Spoken) {
        match spoken {
            Spoken::Hello(Hello {
                host: Some(host), ..
            }) if !self.hosts.contains(host) => {
                if self.hosts.len() < MAX_SAID {
                    self.hosts.push(host.clone());
                } else {
                    self.unread = true;
                }
            }
            Spoken::Unreadable => self.unread = true,
            Spoken::Hello(_) | Spoken::Other => {}
        }
    }

    /// Nobody reads from here on what else it says.
    pub(crate) fn unread(&mut self) {
        self.unread = true;
    }
}

impl Common {
    /// Judges all that a flow has said, by the reach of now.
    pub(crate) fn judge_all_said(
        &self,
        over: Transport,
        dst: SocketAddr,
        said: &Said,
    ) -> Result<(), (Decision, Refusal)> {
        let silent = said.hosts.is_empty() && !said.unread;
        if silent || !self.by_name_only(over, dst) {
            return Ok(());
        }
        let mut decisions = said
            .hosts
            .iter()
            .map(|host| self.policy.decide(over, dst, Some(host)));
        let refused = decisions.find(|decision| matches!(decision.verdict, Verdict::Refuse(_)));
        match refused {
            Some(decision) => Err((decision, Refusal::OtherHost)),
            None if said.unread => {
                let decision = self.policy.decide(over, dst, None);
                Err((decision, Refusal::UnreadableHello))
            }
            None => Ok(()),
        }
    }

    /// Whether an end is open by its name alone, so that a flow to it has to be
    /// for a host that is granted.
    pub(crate) fn by_name_only(&self, over: Transport, dst: SocketAddr) -> bool {
        let nameless = self.policy.decide(over, dst, None);
        matches!(nameless.verdict, Verdict::Refuse(_))
    }

    /// Judges a flow by its beginning. Where only a name opened it, another host
    /// is refused, and so is a ClientHello that cannot be read: it may be read
    /// elsewhere. An encrypted one is judged by the host that it has in the
    /// clear, which is what a server goes by that cannot decrypt it.
    pub(crate) fn judge_name(
        &self,
        spoke: Spoke<'_>,
        spoken: &Spoken,
    ) -> Result<(), (Decision, Refusal)> {
        let Spoke { over, dst, .. } = spoke;
        let (names, why) = match spoken {
            Spoken::Unreadable => (spoke.host, Refusal::UnreadableHello),
            Spoken::Hello(Hello {
                host: Some(host), ..
            }) => (Some(host), Refusal::OtherHost),
            Spoken::Hello(Hello { host: None, .. }) | Spoken::Other => return Ok(()),
        };
        if !self.by_name_only(over, dst) {
            return Ok(());
        }
        let decision = self.policy.decide(over, dst, names);
        match decision.verdict {
            Verdict::Allow(_) if why == Refusal::OtherHost => Ok(()),
            _ => Err((decision, why)),
        }
    }

    /// Tells what a flow's beginning says and its first entry does not.
    pub(crate) fn tell_name(&mut self, spoke: Spoke<'_>, spoken: Spoken) {
        let sni = match spoken {
            Spoken::Hello(Hello {
                host,
                encrypted: true,
            }) => Sni::Encrypted(host),
            Spoken::Hello(Hello {
                host: Some(host), ..
            }) if spoke.host == Some(&host) => return,
            Spoken::Hello(Hello {
                host: Some(host), ..
            }) => Sni::Host(host),
            Spoken::Hello(_) | Spoken::Other | Spoken::Unreadable => {
                // One that no name opened has none to prove, whatever the reach
                // has become since.
                if spoke.host.is_none() || !self.by_name_only(spoke.over, spoke.dst) {
                    return;
                }
                Sni::Unproven
            }
        };
        let flow = spoke.flow;
        let named = GateEvent::FlowNamed(FlowNamed { flow, sni });
        self.told.push(None, named);
    }
}
