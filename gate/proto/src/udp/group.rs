//! The group of multicast DNS: what goes to it, and who answers.

use std::net::SocketAddr;

use bailey_model::{FlowId, Refusal, Transport};

use super::Udp;
use crate::flow::UdpPort;
use crate::flow_common::{Common, Ends};
use crate::mdns;
use crate::policy::Decision;

/// Refuses what is sent to the group and does not just ask.
pub(super) fn passes(common: &Common, ends: Ends, data: &[u8]) -> Result<(), (Decision, Refusal)> {
    if !mdns::is_group(ends.dst) || mdns::asks(data) {
        return Ok(());
    }
    let decision = common.policy.decide(Transport::Udp, ends.dst, None);
    Err((decision, Refusal::Protocol))
}

impl Udp {
    /// The flow by which a port asked in the group, if an answer may come from
    /// there.
    pub(super) fn asked_in_group(
        &self,
        common: &Common,
        port: UdpPort,
        from: SocketAddr,
    ) -> Option<(SocketAddr, FlowId)> {
        if !mdns::answers(from, &common.policy.addrs) {
            return None;
        }
        let port = self.ports.get(&port)?;
        let id = port.flows.get(&mdns::group_of(from))?;
        let open = self.flows.get(id)?.waiting.is_none();
        open.then_some((port.src, *id))
    }
}
