//! A flow's name by its first bytes, as it is stored.

use bailey_model::{FlowId, FlowNamed, Sni};
use serde::{Deserialize, Serialize};

use super::host_of;

#[derive(Serialize, Deserialize)]
pub(super) struct WireNamed {
    flow: u64,
    sni: WireSni,
}

/// Order is part of the format: new variants go last.
#[derive(Serialize, Deserialize)]
enum WireSni {
    Host(String),
    Encrypted(Option<String>),
    Unproven,
}

impl From<&FlowNamed> for WireNamed {
    fn from(it: &FlowNamed) -> Self {
        let sni = match &it.sni {
            Sni::Host(host) => WireSni::Host(host.as_str().to_owned()),
            Sni::Encrypted(outer) => {
                WireSni::Encrypted(outer.as_ref().map(|host| host.as_str().to_owned()))
            }
            Sni::Unproven => WireSni::Unproven,
        };
        let flow = it.flow.0;
        Self { flow, sni }
    }
}

impl WireNamed {
    pub(super) fn event(self) -> Option<FlowNamed> {
        let sni = match self.sni {
            WireSni::Host(host) => Sni::Host(host_of(Some(host))??),
            WireSni::Encrypted(outer) => Sni::Encrypted(host_of(outer)?),
            WireSni::Unproven => Sni::Unproven,
        };
        let flow = FlowId(self.flow);
        Some(FlowNamed { flow, sni })
    }
}
