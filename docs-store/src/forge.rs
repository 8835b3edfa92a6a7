//! What a member that keeps to no rule could make with its own keys: for tests of
//! those that have to withstand it. Nothing here opens or signs for anybody else.

use bailey_envelope::{ChainId, DeviceKeys, Fields, Hash, Sealed, sign_plain};
use bailey_model::{DeviceId, Entry, Timestamp};

use crate::account::{Act, AddOffer, Record, Role};
use crate::schema::pack;
use crate::segment::Segment;

/// An act of the account, whether its signer may do it or not.
#[derive(Debug, Clone)]
pub enum ForgedAct<'a> {
    /// Adds a device, which signs it too.
    Add(&'a DeviceKeys, Role),
    /// Removes one.
    Remove(DeviceId),
    /// Gives one a role.
    Role(DeviceId, Role),
}

/// Signs a record of the account that rests on these heads; `None` if it cannot be
/// encoded.
#[must_use]
pub fn record(
    keys: &DeviceKeys,
    fields: Fields,
    act: &ForgedAct<'_>,
    seen: &[Hash],
) -> Option<Sealed> {
    let seen = seen.to_vec();
    let record = match act {
        ForgedAct::Add(device, role) => {
            let offer = AddOffer::new(&fields, device.public(), *role, seen);
            offer.record(offer.sign(device).ok()?)?
        }
        ForgedAct::Remove(device) => {
            let devices = vec![*device];
            Record::plain(Act::Remove { devices }, seen)
        }
        ForgedAct::Role(device, role) => {
            let (device, role) = (*device, *role);
            Record::plain(Act::Role { device, role }, seen)
        }
    };
    sign_plain(keys, fields, &record.encode()?).ok()
}

/// Bodies of the first envelopes of a chain's segment, one for each batch of entries,
/// whatever their numbers; `None` if an entry cannot be packed.
#[must_use]
pub fn bodies(
    chain: &ChainId,
    batches: &[Vec<Entry>],
    hours: u32,
    now: Timestamp,
) -> Option<Vec<Vec<u8>>> {
    let mut segment = Segment::new(chain);
    let body = |batch: &Vec<Entry>| {
        let packed = batch.iter().map(pack).collect::<Result<Vec<_>, _>>();
        Some(segment.append(&packed.ok()?, hours, now))
    };
    batches.iter().map(body).collect()
}
