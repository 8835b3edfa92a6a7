//! What is promised, asked of a world that is mended.

use std::collections::{BTreeMap, BTreeSet};

use bailey_docs_store::{DocId, Role};
use bailey_model::{BoxId, DeviceId, Event};

use super::World;
use super::device::Device;

/// Stands in every entry that is written, and in nothing that crosses.
pub(super) const SECRET: &str = "sim-secret";

/// Nothing that is written crosses in the clear.
pub(super) fn secret(bytes: &[u8]) -> Result<(), String> {
    let found = bytes
        .windows(SECRET.len())
        .any(|window| window == SECRET.as_bytes());
    match found {
        true => Err("an entry crossed in the clear".to_owned()),
        false => Ok(()),
    }
}

/// Whether every device is as far as every other.
pub(super) fn same(world: &World) -> bool {
    let mut all = world.devices.iter().map(Device::heads);
    let first = all.next();
    all.all(|heads| Some(heads) == first)
}

/// In what they differ, for whoever has to find out why.
pub(super) fn differences(world: &World) -> String {
    let mut all: BTreeMap<_, Vec<(usize, u64)>> = BTreeMap::new();
    for device in &world.devices {
        for (chain, head) in device.heads() {
            all.entry(chain).or_default().push((device.at, head.seq));
        }
    }
    let count = world.devices.len();
    let uneven = |seen: &Vec<(usize, u64)>| {
        seen.len() < count || seen.iter().any(|(_, seq)| *seq != seen[0].1)
    };
    all.retain(|_, seen| uneven(seen));
    format!("{all:?}")
}

/// All of it.
pub(super) fn judge(world: &mut World) -> Result<(), String> {
    members(world)?;
    // Nobody signs two envelopes of one number here; only one that garbles says so.
    if let Some(fork) = world
        .devices
        .iter_mut()
        .find_map(|device| device.fork.take())
        && !world.lied
    {
        return Err(fork);
    }
    let boxes = [1, 2].map(|no| DocId::Box(BoxId([no; 16])));
    for doc in [
        DocId::Node,
        DocId::Notices,
        DocId::Requests,
        boxes[0],
        boxes[1],
    ] {
        let writers: BTreeMap<DeviceId, &Device> = world
            .devices
            .iter()
            .map(|device| (device.id(), device))
            .collect();
        let mut first: Option<(usize, BTreeSet<(DeviceId, u64)>)> = None;
        for device in &world.devices {
            if device.member(device.id()) == Some(Role::Runs) {
                continue;
            }
            let read = texts(device, doc, &writers)?;
            world.ran.read += read
                .iter()
                .filter(|(writer, _)| *writer != device.id())
                .count();
            match &first {
                None => first = Some((device.at, read)),
                Some((_, other)) if *other == read => {}
                Some((at, _)) => {
                    return Err(format!(
                        "devices {at} and {} read {doc:?} differently",
                        device.at
                    ));
                }
            }
        }
        let Some((_, read)) = first else { continue };
        for writer in &world.devices {
            for (_, acked) in writer.acked.iter().filter(|((of, _), _)| *of == doc) {
                if acked.sure && !read.contains(&(writer.id(), acked.text)) {
                    return Err(format!(
                        "entry {} of device {} is lost",
                        acked.text, writer.at
                    ));
                }
            }
        }
    }
    Ok(())
}

/// All hold the same devices for members, with the same roles and keys.
fn members(world: &World) -> Result<(), String> {
    for one in &world.devices {
        for other in &world.devices {
            let role = one.member(other.id());
            if role.is_none() || role != other.member(other.id()) {
                return Err(format!("device {} holds {} for {role:?}", one.at, other.at));
            }
            if other.public().id() != other.id() {
                return Err(format!("device {} is known by other keys", other.at));
            }
        }
    }
    Ok(())
}

/// The texts that a device reads, each of which its writer must have given, once.
fn texts(
    device: &Device,
    doc: DocId,
    writers: &BTreeMap<DeviceId, &Device>,
) -> Result<BTreeSet<(DeviceId, u64)>, String> {
    let mut read = BTreeSet::new();
    for (writer, no, event) in device.read(doc)? {
        let Event::Gap(gap) = &event else { continue };
        let Some(rest) = gap.reason.strip_prefix(SECRET) else {
            // What the store says itself of a start that was cut short.
            continue;
        };
        let of = writers
            .get(&writer)
            .ok_or_else(|| format!("{doc:?} {no}: no such writer"))?;
        let text = rest
            .split_whitespace()
            .nth(1)
            .and_then(|text| text.parse().ok());
        let text: u64 = text.ok_or_else(|| format!("{doc:?} {no}: {:?}", gap.reason))?;
        let at = rest.split_whitespace().next();
        if at != Some(of.at.to_string().as_str()) || !of.given.contains_key(&(doc, text)) {
            return Err(format!(
                "{doc:?} {no} of device {} was never written",
                of.at
            ));
        }
        if !read.insert((writer, text)) {
            return Err(format!("{doc:?} {no} of device {} is there twice", of.at));
        }
    }
    Ok(read)
}
