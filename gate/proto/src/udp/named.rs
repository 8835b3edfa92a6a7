//! What a flow's datagrams say of its name.

use bailey_model::{FlowId, Refusal, Transport};

use super::{Flow, Udp};
use crate::flow::MAX_PEEKED_BYTES;
use crate::flow_common::{Common, Ends};
use crate::flow_name::Spoke;
use crate::peek::{DatagramPeek, Spoken};
use crate::policy::Decision;

/// How a flow's datagrams are looked at.
#[derive(Debug)]
pub(super) struct Watch {
    peek: DatagramPeek,
    /// Only a name opened it, so every connection in it has to be for a host
    /// that is granted; else the first one's name is all that is looked for.
    only: bool,
    /// Its name is told, or there is nothing to tell.
    said: bool,
}

impl Watch {
    pub(super) fn new(common: &Common, ends: Ends) -> Self {
        Self {
            peek: DatagramPeek::default(),
            only: common.by_name_only(Transport::Udp, ends.dst),
            said: false,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.peek.bytes()
    }

    /// Judges the first datagram of what would be a flow, so that a client that
    /// repeats it makes one entry with a count and not many flows.
    pub(super) fn judge_first(
        &self,
        common: &Common,
        ends: Ends,
        decision: &Decision,
        data: &[u8],
    ) -> Result<(), (Decision, Refusal)> {
        if !self.only {
            return Ok(());
        }
        let spoke = Spoke {
            flow: FlowId(0),
            over: Transport::Udp,
            dst: ends.dst,
            host: decision.host.as_ref(),
        };
        let looked = DatagramPeek::default().look(data);
        let mut spoken = looked.spoken.iter();
        spoken.try_for_each(|spoken| common.judge_name(spoke, spoken))
    }
}

impl Udp {
    /// Judges and tells what a datagram of a flow says, before it goes out.
    pub(super) fn judge_said(
        &mut self,
        common: &mut Common,
        id: FlowId,
        data: &[u8],
    ) -> Result<(), (Decision, Refusal)> {
        let Some(flow) = self.flows.get_mut(&id) else {
            return Ok(());
        };
        let dst = flow.ends.dst;
        let (host, heard) = (flow.basis.host.as_ref(), &mut flow.basis.said);
        let Some(watch) = &mut flow.watch else {
            return Ok(());
        };
        let spoke = Spoke {
            flow: id,
            over: Transport::Udp,
            dst,
            host,
        };
        // The reach may have become narrower since the flow began.
        watch.only = watch.only || common.by_name_only(Transport::Udp, dst);
        let before = watch.bytes();
        let mut looked = watch.peek.look(data);
        self.peeked_bytes = self.peeked_bytes.saturating_sub(before) + watch.bytes();
        if self.peeked_bytes > MAX_PEEKED_BYTES && watch.only {
            watch.said = true;
            let decision = common.policy.decide(Transport::Udp, dst, host);
            return Err((decision, Refusal::Limit));
        }
        if !looked.begins && !watch.said {
            looked.spoken.push(Spoken::Other);
        }
        for spoken in looked.spoken {
            let said = std::mem::replace(&mut watch.said, true);
            common.judge_name(spoke, &spoken)?;
            heard.add(&spoken);
            if !said {
                common.tell_name(spoke, spoken);
            }
        }
        let full = self.peeked_bytes > MAX_PEEKED_BYTES;
        if !watch.only && (watch.said || full) {
            self.peeked_bytes = self.peeked_bytes.saturating_sub(watch.bytes());
            heard.unread();
            flow.watch = None;
        }
        Ok(())
    }
}

impl Flow {
    /// Tells of a flow that ends with its beginning only half said.
    pub(super) fn tell_unsaid(&self, common: &mut Common, id: FlowId) {
        let unsaid = self.watch.as_ref().is_some_and(|watch| !watch.said);
        if unsaid && self.packets_out > 0 {
            let spoke = Spoke {
                flow: id,
                over: Transport::Udp,
                dst: self.ends.dst,
                host: self.basis.host.as_ref(),
            };
            common.tell_name(spoke, Spoken::Other);
        }
    }
}
