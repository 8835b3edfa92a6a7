//! What stands as the reach of a box whose flows nobody decides.
//!
//! Entries keep the tier in the text of the reach. No reach has a colon and a
//! blank in it, so none reads like one of these.

use bailey_model::{Reach, Tier};

/// The text that is entered.
pub(crate) fn reach_text(tier: Tier, reach: &Reach) -> String {
    match tier {
        Tier::L1 | Tier::L15 => format!("{tier}: {PASSES}"),
        Tier::L2 => format!("{tier}: {NONE}"),
        Tier::Gated => reach.to_string(),
    }
}

/// Why an audit holds no flows, where it cannot.
pub(crate) fn reason(reach: &str) -> Option<&'static str> {
    let (tier, what) = reach.split_once(": ")?;
    let tier: Tier = tier.parse().ok()?;
    match what {
        PASSES if tier.shares_network() => Some("not seen here: network passes"),
        NONE if tier == Tier::L2 => Some(NONE),
        _ => None,
    }
}

const PASSES: &str = "network passes";
const NONE: &str = "no network";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tier_without_a_gate_says_why_nothing_is_seen() {
        let reach = Reach::default();
        let of = |tier| reason(&reach_text(tier, &reach));
        assert_eq!(of(Tier::L1), Some("not seen here: network passes"));
        assert_eq!(of(Tier::L15), Some("not seen here: network passes"));
        assert_eq!(of(Tier::L2), Some("no network"));
        assert_eq!(of(Tier::Gated), None);
    }

    #[test]
    fn no_reach_reads_like_a_tier() {
        for tier in [Tier::L1, Tier::L15, Tier::L2] {
            let text = reach_text(tier, &Reach::default());
            assert!(text.parse::<Reach>().is_err(), "{text}");
        }
        assert_eq!(reason("l2: network passes"), None);
        assert_eq!(reason("internet"), None);
    }
}
