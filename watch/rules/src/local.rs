//! A box that may dial only public addresses or named hosts tries the node's
//! own networks: the first step of most attacks from a compromised program.

use bailey_model::{AddrClass, FlowRefused, Proto, Reach, Rule, Timestamp};

use crate::Observation;

/// After a notice, further tries of the same box are silent for this long.
/// They stand in the audit; a person needs one notice, not a stream.
const QUIET_MS: u64 = 10 * 60 * 1000;

#[derive(Debug, Default)]
pub(crate) struct State {
    raised: Option<Timestamp>,
}

impl State {
    pub(crate) fn handle(
        &mut self,
        reach: &Reach,
        observation: &Observation<'_>,
        refused: &FlowRefused,
    ) -> Option<(Rule, String)> {
        let dst = refused.dst?;
        let transport = matches!(refused.proto, Proto::Tcp | Proto::Udp);
        let own_network = refused.class == Some(AddrClass::Local);
        let granted_some = reach.names_local() || reach.terms().is_empty();
        if !transport || !own_network || granted_some || self.is_quiet(observation.ts) {
            return None;
        }
        self.raised = Some(observation.ts);
        let text = format!(
            "tried {dst}/{} on your own network; its reach is {reach}. It was refused.",
            refused.proto
        );
        Some((Rule::LocalFromInternetOnly, text))
    }

    /// A clock that steps back ends the quiet: a notice too many beats one lost.
    fn is_quiet(&self, now: Timestamp) -> bool {
        self.raised
            .is_some_and(|last| now >= last && now.0 - last.0 < QUIET_MS)
    }
}
