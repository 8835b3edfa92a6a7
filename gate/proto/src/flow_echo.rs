//! What echo flows take from the common part: their verdict, and the way of
//! their replies and errors to the box.

use std::net::IpAddr;

use bailey_model::Refusal;
use bailey_model::Verdict;
use bailey_model::link::{GATE_V4, GATE_V6};

use crate::Now;
use crate::flow::Outlet;
use crate::flow_common::{Basis, Common, Ends};
use crate::icmp::EchoError;
use crate::icmp_wire;
use crate::packet;
use crate::policy::Decision;

/// The gate's own address of a family.
fn gate(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => GATE_V4.into(),
        IpAddr::V6(_) => GATE_V6.into(),
    }
}

impl Common {
    pub(crate) fn decide_echo(&self, now: Now, dst: IpAddr) -> Decision {
        self.policy.decide_echo(dst, self.names.names(now, dst))
    }

    /// As [`Self::stands`], of an echo flow.
    pub(crate) fn echo_stands(
        &self,
        dst: IpAddr,
        basis: &mut Basis,
    ) -> Result<(), (Decision, Refusal)> {
        if basis.generation == self.policy.generation {
            return Ok(());
        }
        let decision = self.policy.decide_echo(dst, basis.host.as_ref());
        match decision.verdict {
            Verdict::Allow(_) => {
                basis.generation = self.policy.generation;
                Ok(())
            }
            Verdict::Refuse(refusal) => Err((decision, refusal)),
        }
    }

    pub(crate) fn echo_in(
        &mut self,
        ends: Ends,
        seq: u16,
        data: &[u8],
        out: &mut dyn Outlet,
    ) -> bool {
        let way = (ends.dst.ip(), ends.src.ip());
        let written = icmp_wire::write_reply(&mut self.reply, way, (ends.src.port(), seq), data);
        if written {
            out.packet(&self.reply);
        }
        written
    }

    /// Tells the box that a packet of it is too long for the way.
    pub(crate) fn too_big(&mut self, ends: Ends, mtu: u32, about: &[u8], out: &mut dyn Outlet) {
        let way = (gate(ends.src.ip()), ends.src.ip());
        if icmp_wire::write_too_big(&mut self.reply, way, mtu, about) {
            out.packet(&self.reply);
        }
    }

    /// Carries an error on to the box, from who sent it where the box might ask
    /// them itself: addresses of the node's networks are not shown to a box
    /// that has no business there.
    pub(crate) fn echo_error(
        &mut self,
        now: Now,
        ends: Ends,
        error: EchoError,
        rest: u32,
        about: &[u8],
        out: &mut dyn Outlet,
    ) {
        let to = ends.src.ip();
        let shown = |from: &IpAddr| {
            from.is_ipv4() == to.is_ipv4()
                && matches!(self.decide_echo(now, *from).verdict, Verdict::Allow(_))
        };
        let from = error.from.filter(shown).unwrap_or_else(|| gate(to));
        let kind = (error.kind, error.code);
        if icmp_wire::write(
            &mut self.reply,
            (from, to),
            kind,
            rest,
            packet::quote(to, about),
        ) {
            out.packet(&self.reply);
        }
    }
}
