//! Landlock's scopes: at the tiers that share the network, nothing else keeps a
//! box from the abstract sockets of the user's other programs.

use bailey_model::Tier;
use landlock::{CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetError, RulesetStatus, Scope};
use serde::{Deserialize, Serialize};

/// The first ABI with scopes.
const SCOPES: u32 = 6;
/// `__SO_ACCEPTCON` in the flags of /proc/net/unix: it listens.
const LISTENS: u32 = 0x10000;

/// What a process is kept to, of its own kind only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Scopes {
    /// Nothing: namespaces hold both already, or the kernel cannot.
    Nothing,
    /// Abstract sockets.
    Sockets,
    /// Abstract sockets and signals.
    SocketsAndSignals,
}

impl Scopes {
    /// Of a box's own processes.
    pub(crate) fn of_box(tier: Tier, abi: Option<u32>) -> Self {
        if tier.shares_network() && has_scopes(abi) {
            Self::SocketsAndSignals
        } else {
            Self::Nothing
        }
    }

    /// Of a process that joins it. The kernel lets nobody into an existing
    /// domain, so it has one beside the box's: signals between the two are left
    /// to the namespaces, or nobody could end what runs in the box. Abstract
    /// sockets of the box, its memory and its descriptors stay closed to it.
    pub(crate) fn of_joiner(tier: Tier, abi: Option<u32>) -> Self {
        match Self::of_box(tier, abi) {
            Self::Nothing => Self::Nothing,
            Self::Sockets | Self::SocketsAndSignals => Self::Sockets,
        }
    }
}

fn has_scopes(abi: Option<u32>) -> bool {
    abi.is_some_and(|abi| abi >= SCOPES)
}

/// Confines this process and all that it starts. Needs no_new_privs.
///
/// # Errors
/// When the kernel does not hold all of it.
pub(crate) fn restrict(scopes: Scopes) -> Result<(), String> {
    let wanted = match scopes {
        Scopes::Nothing => return Ok(()),
        Scopes::Sockets => Scope::AbstractUnixSocket.into(),
        Scopes::SocketsAndSignals => Scope::AbstractUnixSocket | Scope::Signal,
    };
    let restricted = || -> Result<RulesetStatus, RulesetError> {
        let status = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .scope(wanted)?
            .create()?
            .restrict_self()?;
        Ok(status.ruleset)
    };
    match restricted() {
        Ok(RulesetStatus::FullyEnforced) => Ok(()),
        Ok(status) => Err(format!("Landlock: {status:?}")),
        Err(error) => Err(format!("Landlock: {error}")),
    }
}

/// Why no box may start that shares the network, from the ABI and the text of
/// /proc/net/unix: an abstract socket that a program could take the session
/// over by, and nothing to keep it from.
pub(crate) fn refusal(tier: Tier, abi: Option<u32>, sockets: &str) -> Option<String> {
    if !tier.shares_network() || has_scopes(abi) {
        return None;
    }
    let found = sockets.lines().find_map(dangerous)?;
    Some(format!(
        "{} can be reached from it, and this kernel cannot keep a box from abstract sockets \
         (Landlock ABI {SCOPES}, Linux 6.12): use the tier gated or l2",
        found.escape_default()
    ))
}

/// The name in a line of /proc/net/unix that is the listening end of a display
/// or of a message bus.
fn dangerous(line: &str) -> Option<&str> {
    let mut fields = line.split_ascii_whitespace();
    let flags = fields.nth(3)?;
    let name = fields.nth(3)?;
    let listens = u32::from_str_radix(flags, 16).ok()? & LISTENS != 0;
    let display = name.starts_with("@/tmp/.X11-unix/");
    let bus = name.starts_with('@') && (name.contains("dbus") || name.ends_with("/bus"));
    (listens && (display || bus)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "Num       RefCount Protocol Flags    Type St Inode Path\n";

    fn line(flags: &str, name: &str) -> String {
        format!("{HEAD}0000000000000000: 00000002 00000000 {flags} 0001 01 24025 {name}\n")
    }

    #[test]
    fn without_scopes_a_display_or_bus_that_listens_refuses_the_start() {
        for name in [
            "@/tmp/.X11-unix/X0",
            "@/tmp/dbus-Zq1",
            "@/home/ann/.cache/ibus/dbus-x",
            "@/run/user/1000/bus",
        ] {
            let sockets = line("00010000", name);
            for abi in [None, Some(5)] {
                let said = refusal(Tier::L1, abi, &sockets).unwrap();
                assert!(said.starts_with(name), "{said}");
                assert!(refusal(Tier::L15, abi, &sockets).is_some());
                // A network of its own: none of them is there.
                assert_eq!(refusal(Tier::L2, abi, &sockets), None);
                assert_eq!(refusal(Tier::Gated, abi, &sockets), None);
            }
            assert_eq!(refusal(Tier::L1, Some(6), &sockets), None);
            // The other end of a connection is no way in.
            assert_eq!(refusal(Tier::L1, None, &line("00000000", name)), None);
        }
    }

    #[test]
    fn other_sockets_and_odd_lines_refuse_nothing() {
        for name in ["/tmp/.X11-unix/X0", "/run/user/1000/bus", "@plain", ""] {
            assert_eq!(refusal(Tier::L1, None, &line("00010000", name)), None);
        }
        assert_eq!(refusal(Tier::L1, None, ""), None);
        assert_eq!(refusal(Tier::L1, None, "a b c\n\n@/tmp/.X11-unix/X0"), None);
    }

    #[test]
    fn scopes_are_asked_for_where_the_network_is_shared() {
        use Scopes::{Nothing, Sockets, SocketsAndSignals};
        for tier in [Tier::L1, Tier::L15] {
            assert_eq!(Scopes::of_box(tier, Some(6)), SocketsAndSignals);
            assert_eq!(Scopes::of_joiner(tier, Some(7)), Sockets);
            assert_eq!(Scopes::of_box(tier, Some(5)), Nothing);
        }
        assert_eq!(Scopes::of_box(Tier::Gated, Some(7)), Nothing);
        assert_eq!(Scopes::of_joiner(Tier::L2, None), Nothing);
    }
}
