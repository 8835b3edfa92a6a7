//! A box that may dial only public addresses or named hosts tries the node's
//! own networks, or private ones beyond: the first step of most attacks from a compromised program.

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
        // A look around by echoes is one too. What has no ports is shown without.
        let (tried, place) = match refused.proto {
            Proto::Tcp | Proto::Udp => (true, dst.to_string()),
            Proto::Other(1 | 58) => (true, dst.ip().to_string()),
            Proto::Dns | Proto::Other(_) => (false, String::new()),
        };
        let network = match refused.class {
            Some(AddrClass::Local) => "on your own network",
            Some(AddrClass::Private) => "on a private network beyond your own",
            _ => return None,
        };
        let granted_some = reach.names_local() || reach.terms().is_empty();
        if !tried || granted_some || self.is_quiet(observation.ts) {
            return None;
        }
        self.raised = Some(observation.ts);
        let text = format!(
            "tried {place}/{} {network}; its reach is {reach}. It was refused.",
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
