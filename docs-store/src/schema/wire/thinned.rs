//! What is left of thinned entries, as it is stored.

use bailey_model::{
    BoxId, DeviceId, Incarnation, Thinned, ThinnedDay, ThinnedFlow, ThinnedHost, Timestamp,
};
use serde::{Deserialize, Serialize};

use super::{bytes, class_code, class_of, whole};

/// Bytes out and in of a flow under way.
type Moved = (u64, u64);

/// The body; after the rest, where one of the flows under way has moved anything, what
/// each has.
pub(super) fn encode(it: &Thinned) -> postcard::Result<Vec<u8>> {
    let moved: Vec<Moved> = it
        .open
        .iter()
        .map(|it| (it.bytes_out, it.bytes_in))
        .collect();
    match moved.iter().all(|moved| *moved == (0, 0)) {
        true => bytes(&WireThinned::from(it)),
        false => bytes(&(WireThinned::from(it), moved)),
    }
}

/// Reads what [`encode`] wrote, and nothing else.
pub(super) fn decode(body: &[u8]) -> Option<Thinned> {
    if let Some(plain) = whole::<WireThinned>(body) {
        return plain.event();
    }
    let (plain, moved) = whole::<(WireThinned, Vec<Moved>)>(body)?;
    let mut event = plain.event()?;
    let something = moved.iter().any(|moved| *moved != (0, 0));
    if !something || moved.len() != event.open.len() {
        return None;
    }
    for (flow, moved) in event.open.iter_mut().zip(moved) {
        (flow.bytes_out, flow.bytes_in) = moved;
    }
    Some(event)
}

#[derive(Serialize, Deserialize)]
struct WireThinned {
    box_id: [u8; 16],
    writer: [u8; 32],
    incarnation: [u8; 16],
    segment: u32,
    last_seq: u64,
    first_no: u64,
    last_no: u64,
    from: u64,
    to: u64,
    hours: u32,
    days: Vec<(u32, Vec<WireHost>, u32)>,
    open: Vec<(u64, u32)>,
}

#[derive(Serialize, Deserialize)]
struct WireHost {
    name: String,
    class: Option<u8>,
    flows: u64,
    refused: u64,
    asked: u64,
    bytes_out: u64,
    bytes_in: u64,
}

impl From<&Thinned> for WireThinned {
    fn from(it: &Thinned) -> Self {
        let day = |day: &ThinnedDay| {
            let hosts = day.hosts.iter().map(WireHost::from).collect();
            (day.day, hosts, day.more)
        };
        Self {
            box_id: it.box_id.0,
            writer: it.writer.0,
            incarnation: it.incarnation.0,
            segment: it.segment,
            last_seq: it.last_seq,
            first_no: it.first_no,
            last_no: it.last_no,
            from: it.from.0,
            to: it.to.0,
            hours: it.hours,
            days: it.days.iter().map(day).collect(),
            open: it.open.iter().map(|it| (it.flow, it.place)).collect(),
        }
    }
}

impl WireThinned {
    fn event(self) -> Option<Thinned> {
        let open = |(flow, place)| ThinnedFlow {
            flow,
            place,
            bytes_out: 0,
            bytes_in: 0,
        };
        let day = |(day, hosts, more): (u32, Vec<WireHost>, u32)| {
            let hosts = hosts.into_iter().map(WireHost::host);
            Some(ThinnedDay {
                day,
                hosts: hosts.collect::<Option<_>>()?,
                more,
            })
        };
        Some(Thinned {
            box_id: BoxId(self.box_id),
            writer: DeviceId(self.writer),
            incarnation: Incarnation(self.incarnation),
            segment: self.segment,
            last_seq: self.last_seq,
            first_no: self.first_no,
            last_no: self.last_no,
            from: Timestamp(self.from),
            to: Timestamp(self.to),
            hours: self.hours,
            days: self.days.into_iter().map(day).collect::<Option<_>>()?,
            open: self.open.into_iter().map(open).collect(),
        })
    }
}

impl From<&ThinnedHost> for WireHost {
    fn from(it: &ThinnedHost) -> Self {
        Self {
            name: it.name.clone(),
            class: it.class.map(class_code),
            flows: it.flows,
            refused: it.refused,
            asked: it.asked,
            bytes_out: it.bytes_out,
            bytes_in: it.bytes_in,
        }
    }
}

impl WireHost {
    fn host(self) -> Option<ThinnedHost> {
        let class = match self.class {
            None => None,
            Some(code) => Some(class_of(code)?),
        };
        Some(ThinnedHost {
            name: self.name,
            class,
            flows: self.flows,
            refused: self.refused,
            asked: self.asked,
            bytes_out: self.bytes_out,
            bytes_in: self.bytes_in,
        })
    }
}
