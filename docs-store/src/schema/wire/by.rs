//! Who did something to a box.

use bailey_model::{ChangedBy, DeviceId, RequestId};
use serde::{Deserialize, Serialize};

/// Order is part of the format: new variants go last.
#[derive(Serialize, Deserialize)]
pub(super) enum WireBy {
    Here,
    Device([u8; 32], [u8; 16]),
}

impl From<ChangedBy> for WireBy {
    fn from(by: ChangedBy) -> Self {
        match by {
            ChangedBy::Here => Self::Here,
            ChangedBy::Device(device, request) => Self::Device(device.0, request.0),
        }
    }
}

impl From<WireBy> for ChangedBy {
    fn from(by: WireBy) -> Self {
        match by {
            WireBy::Here => Self::Here,
            WireBy::Device(device, request) => Self::Device(DeviceId(device), RequestId(request)),
        }
    }
}
