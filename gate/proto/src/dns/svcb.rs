//! Service bindings (RFC 9460): what of them a box may have.

use std::net::IpAddr;

use hickory_proto::rr::Name;
use hickory_proto::rr::rdata::svcb::{IpHint, SvcParamKey, SvcParamValue};
use hickory_proto::rr::rdata::{A, AAAA, SVCB};

/// Judges each address hint; an emptied hint goes. `false` if the record goes
/// with it, because it says that clients must heed a key that is gone.
pub(super) fn judge_hints(data: &mut SVCB, judge: &mut dyn FnMut(IpAddr) -> bool) -> bool {
    for (_, value) in &mut data.svc_params {
        match value {
            SvcParamValue::Ipv4Hint(IpHint(hints)) => {
                hints.retain(|A(ip)| judge(IpAddr::V4(*ip)));
            }
            SvcParamValue::Ipv6Hint(IpHint(hints)) => {
                hints.retain(|AAAA(ip)| judge(IpAddr::V6(*ip)));
            }
            _ => {}
        }
    }
    take(data, |key, value| match value {
        SvcParamValue::Ipv4Hint(IpHint(hints)) => hints.is_empty(),
        SvcParamValue::Ipv6Hint(IpHint(hints)) => hints.is_empty(),
        // A hint that did not parse as one cannot be judged.
        _ => matches!(key, SvcParamKey::Ipv4Hint | SvcParamKey::Ipv6Hint),
    })
}

/// Under a named reach: no other name, no addresses, and no encrypted
/// ClientHello, which would hide the name that the grant is for. `false` if the
/// record goes.
pub(super) fn strip(data: &mut SVCB, owner: &Name) -> bool {
    let same_name = data.target_name.is_root() || data.target_name.eq_ignore_root(owner);
    if data.svc_priority == 0 || !same_name {
        return false;
    }
    take(data, |key, _| {
        matches!(
            key,
            SvcParamKey::EchConfigList | SvcParamKey::Ipv4Hint | SvcParamKey::Ipv6Hint
        )
    })
}

/// Takes parameters out; `false` if one of them was mandatory.
fn take(data: &mut SVCB, goes: impl Fn(&SvcParamKey, &SvcParamValue) -> bool) -> bool {
    let mut gone = Vec::new();
    data.svc_params.retain(|(key, value)| {
        let goes = goes(key, value);
        if goes {
            gone.push(*key);
        }
        !goes
    });
    !data.svc_params.iter().any(|(_, value)| match value {
        SvcParamValue::Mandatory(keys) => keys.0.iter().any(|key| gone.contains(key)),
        _ => false,
    })
}
