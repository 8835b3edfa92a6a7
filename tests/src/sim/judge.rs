//! What is promised, asked of a world that is mended.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use bailey_docs_store::{ChainId, DocId, Hash, Role};
use bailey_envelope::{Verified, peek};
use bailey_model::{DeviceId, Event};

use super::device::Device;
use super::evil::{Effect, Expect};
use super::history::DOCS;
use super::mailbox::Mood;
use super::secrets::SECRET;
use super::world::World;

/// Devices that read no more and are given all there is, at most, in one history.
const MAX_THIEVES: usize = 2;

/// Texts that a device reads of a document, by their writers.
type Texts = BTreeMap<DocId, BTreeSet<(DeviceId, u64)>>;

/// Whether two hold each other for members.
fn together(one: &Device, other: &Device) -> bool {
    one.trusts(other) && other.trusts(one)
}

/// Every two that keep to the rules and hold each other for members.
fn pairs(world: &World) -> impl Iterator<Item = (&Device, &Device)> {
    let others = |one: &Device| {
        let at = one.at;
        world.honest().filter(move |other| other.at < at)
    };
    let all = world.honest().map(move |one| (one, others(one)));
    let all = all.flat_map(|(one, others)| others.map(move |other| (one, other)));
    all.filter(|(one, other)| together(one, other))
}

/// Chains of which two envelopes of one number were made.
fn forked(world: &World) -> BTreeSet<ChainId> {
    let evil = world.devices.iter().filter_map(|it| it.evil.as_ref());
    let forged = evil.flat_map(|evil| &evil.forged);
    let forked = forged.filter(|(_, forged)| forged.expect == Expect::Fork);
    forked.map(|(chain, _)| *chain).collect()
}

/// In what two differ, for whoever has to find out why.
fn difference(one: &Device, other: &Device, but: &BTreeSet<ChainId>) -> Option<String> {
    let (ours, theirs) = (one.heads(), other.heads());
    let all: BTreeSet<&ChainId> = ours.keys().chain(theirs.keys()).collect();
    let uneven: Vec<_> = all
        .into_iter()
        .filter(|chain| ours.get(chain) != theirs.get(chain) && !but.contains(chain))
        .map(|chain| {
            let seq = |of: &BTreeMap<_, bailey_docs_store::Head>| of.get(chain).map(|it| it.seq);
            (chain, seq(&ours), seq(&theirs))
        })
        .collect();
    let differs = !uneven.is_empty();
    differs.then(|| format!("devices {} and {}: {uneven:?}", one.at, other.at))
}

/// Whether every two that hold each other for members are equally far.
pub(super) fn same(world: &World) -> bool {
    let forked = forked(world);
    pairs(world).all(|(one, other)| difference(one, other, &forked).is_none())
}

pub(super) fn differences(world: &World) -> String {
    let forked = forked(world);
    let all = pairs(world).filter_map(|(one, other)| difference(one, other, &forked));
    all.collect::<Vec<_>>().join("; ")
}

/// All of it.
pub(super) fn judge(world: &mut World) -> Result<(), String> {
    members(world)?;
    effects(world)?;
    forks(world)?;
    went_back(world)?;
    let mut texts: BTreeMap<usize, Texts> = BTreeMap::new();
    let mut read = 0;
    for device in world.honest() {
        let of = texts_of(world, device)?;
        let all = of.values().flatten();
        read += all.filter(|(writer, _)| *writer != device.id()).count();
        texts.insert(device.at, of);
    }
    world.ran.read = read;
    agree(world, &texts)?;
    nothing_lost(world, &texts)?;
    if let Some(mailbox) = &world.mailbox {
        mailbox.look(&world.secrets)?;
        world.ran.letters = mailbox.blobs();
    }
    world.ran.devices = world.devices.len();
    removed_is_removed(world)
}

/// Those that hold each other for members hold the same devices for members, with the
/// same roles and keys.
fn members(world: &World) -> Result<(), String> {
    let roles = |device: &Device| -> BTreeMap<DeviceId, Role> {
        let store = device.store.iter();
        let members = store.flat_map(|store| store.members().iter());
        members.map(|(id, member)| (*id, member.role)).collect()
    };
    for (one, other) in pairs(world) {
        let (ours, theirs) = (roles(one), roles(other));
        if ours != theirs {
            let (one, other) = (one.at, other.at);
            return Err(format!(
                "devices {one} and {other} hold others for members: {ours:?}, {theirs:?}"
            ));
        }
    }
    for device in &world.devices {
        if device.public().id() != device.id() {
            return Err(format!("device {} is known by other keys", device.at));
        }
    }
    Ok(())
}

/// What somebody signed that might not changes nothing.
fn effects(world: &World) -> Result<(), String> {
    for device in world.honest().filter(|device| device.trusts(device)) {
        for (_, effect) in &world.barren {
            let had = match effect {
                Effect::NoMember(accomplice) => device.member(*accomplice).is_some(),
                Effect::NotFull(one) => device.member(*one) == Some(Role::Full),
                Effect::NoRemoval(record) => device.store.iter().any(|store| {
                    let mut removals = store.members().removals().iter();
                    removals.any(|removal| removal.record == *record && removal.stands)
                }),
            };
            if had {
                return Err(format!(
                    "device {} counts what could not be done by right: {effect:?}",
                    device.at
                ));
            }
        }
    }
    Ok(())
}

/// Nobody is told of two envelopes of one number where there are not two, and where
/// there are, of every two devices that have not the same one is told.
fn forks(world: &World) -> Result<(), String> {
    let forked = forked(world);
    let told = world.honest().flat_map(|device| &device.forks);
    // One that garbles what it sends says so of others too.
    if let Some(chain) = told.into_iter().find(|chain| !forked.contains(chain))
        && !world.lied
    {
        return Err(format!("a fork of {chain:?} that nobody made"));
    }
    for chain in &forked {
        for (one, other) in pairs(world) {
            let (ours, theirs) = (one.envelopes(chain)?, other.envelopes(chain)?);
            let parts = ours.iter().zip(&theirs).any(|(one, other)| one != other);
            if parts && !one.forks.contains(chain) && !other.forks.contains(chain) {
                let (one, other) = (one.at, other.at);
                return Err(format!("neither {one} nor {other} is told of {chain:?}"));
            }
        }
    }
    Ok(())
}

/// Whoever has two chains of a writer that went on from one place, or one that went on
/// from the middle of another, was told that the writer went back.
fn went_back(world: &World) -> Result<(), String> {
    for device in world.honest() {
        let writers = world
            .honest()
            .filter(|it| it.went_back && it.at != device.at);
        for writer in writers {
            let id = writer.id();
            let heads = device.heads();
            let mut from = BTreeSet::new();
            for chain in heads.keys().filter(|chain| chain.writer == id) {
                let first = device.envelopes(chain)?;
                let fields = first.first().and_then(|bytes| peek(bytes).ok());
                let Some((before, prev)) = fields.and_then(|header| {
                    let fields = header.fields;
                    Some((fields.before?, fields.prev))
                }) else {
                    continue;
                };
                let before = ChainId {
                    incarnation: before,
                    ..*chain
                };
                // One that has not all of the chain before cannot see where it goes on.
                let behind = heads.get(&before).is_some_and(|head| head.hash != prev);
                let middle = behind && has(device, &before, prev)?;
                if (!from.insert(before) || middle) && !device.back.contains(&id) {
                    let at = writer.at;
                    return Err(format!(
                        "device {} is not told that {at} went back",
                        device.at
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Whether a device has the envelope of a chain that this is the hash of.
fn has(device: &Device, chain: &ChainId, hash: Hash) -> Result<bool, String> {
    let all = device.envelopes(chain)?;
    let mut all = all.iter().filter_map(|it| Verified::from_stored(it).ok());
    Ok(all.any(|it| it.hash == hash))
}

/// Whether a member that keeps to no rule, or a mailbox that does not, may keep back the
/// keys of a chain: its writer went back, and nobody else has them.
fn keeps_back_keys(world: &World, device: &Device, chain: &ChainId) -> bool {
    let doc = DocId::Keys;
    let keys = ChainId { doc, ..*chain };
    let len = |of: &Device| of.heads().get(&keys).map_or(0, |head| head.seq);
    let went_back = world.device(chain.writer).is_some_and(|it| it.went_back);
    let given = world.honest().any(|it| len(it) > len(device));
    let mut evil = world.devices.iter().filter(|it| it.evil.is_some());
    let mailbox = world.mailbox.as_ref();
    let wicked = mailbox.is_some_and(|it| it.mood != Mood::Honest);
    let member = evil.any(|it| len(it) > len(device));
    // Of a chain that is here in part the rest is asked for, whoever has it.
    went_back && !given && len(device) == 0 && (wicked || member)
}

/// Whether a device may read what members write.
fn reads(device: &Device) -> bool {
    device.member(device.id()).is_some_and(Role::reads)
}

/// The texts that a device reads, each of which its writer must have given, once.
fn texts_of(world: &World, device: &Device) -> Result<Texts, String> {
    let honest = |id: &DeviceId| world.device(*id).is_some_and(|it| it.evil.is_none());
    let mut texts = Texts::new();
    let mut aside = BTreeSet::new();
    let mut waiting = BTreeSet::new();
    for (doc, reading) in DOCS.into_iter().zip(device.read(&DOCS)?) {
        for (chain, seq, reason) in &reading.aside {
            if honest(&chain.writer) {
                let at = device.at;
                return Err(format!(
                    "device {at} sets envelope {seq} of {chain:?} aside: {reason}"
                ));
            }
            aside.insert(*chain);
        }
        for chain in &reading.waiting {
            let writes = device.member(chain.writer).is_some() && honest(&chain.writer);
            if reads(device) && writes && !keeps_back_keys(world, device, chain) {
                let of = world.device(chain.writer).map(|it| it.at);
                return Err(format!(
                    "device {}: no key of device {of:?} for {chain:?}",
                    device.at
                ));
            }
            waiting.insert(*chain);
        }
        let of = texts.entry(doc).or_default();
        for (writer, entry) in reading.entries {
            let Event::Gap(gap) = &entry.event else {
                continue;
            };
            let Some(rest) = gap.reason.strip_prefix(SECRET) else {
                // What the store says itself of a start that was cut short.
                continue;
            };
            let no = entry.no;
            let by = world
                .device(writer)
                .ok_or_else(|| format!("{doc:?} {no}: no such writer"))?;
            let mut words = rest.split_whitespace().map(str::parse::<u64>);
            let (Some(Ok(at)), Some(Ok(text))) = (words.next(), words.next()) else {
                return Err(format!("{doc:?} {no}: {:?}", gap.reason));
            };
            if by.evil.is_some() {
                continue;
            }
            if at != by.at as u64 || !by.given.contains(&(doc, text)) {
                return Err(format!("{doc:?} {no} of {} was never written", by.at));
            }
            // What lay unsealed in a copy that was put back is sealed again.
            if !of.insert((writer, text)) && !by.went_back {
                return Err(format!("{doc:?} {no} of {} is there twice", by.at));
            }
        }
    }
    shown(world, device, &aside, &waiting)?;
    Ok(texts)
}

/// What a member made that does not read is shown by every device that has it.
fn shown(
    world: &World,
    device: &Device,
    aside: &BTreeSet<ChainId>,
    waiting: &BTreeSet<ChainId>,
) -> Result<(), String> {
    let evil = world.devices.iter().filter_map(|it| it.evil.as_ref());
    let heads = device.heads();
    for (chain, forged) in evil.flat_map(|evil| &evil.forged) {
        let whole = heads.get(chain).is_some_and(|head| head.seq == 2);
        let seen = aside.contains(chain) || waiting.contains(chain);
        if forged.expect == Expect::Aside && whole && !seen {
            return Err(format!("device {} shows nothing of {chain:?}", device.at));
        }
    }
    Ok(())
}

/// Those that hold each other for members read the same of those that both do.
fn agree(world: &World, texts: &BTreeMap<usize, Texts>) -> Result<(), String> {
    for (one, other) in pairs(world).filter(|(one, other)| reads(one) && reads(other)) {
        let of = |device: &Device, doc: &DocId| -> BTreeSet<(DeviceId, u64)> {
            let all = texts.get(&device.at).and_then(|texts| texts.get(doc));
            let members = all.into_iter().flatten();
            let members = members.filter(|(writer, _)| one.member(*writer).is_some());
            members.copied().collect()
        };
        for doc in &DOCS {
            let (ours, theirs) = (of(one, doc), of(other, doc));
            let differs: Vec<_> = ours.symmetric_difference(&theirs).collect();
            if !differs.is_empty() {
                let (one, other) = (one.at, other.at);
                return Err(format!(
                    "devices {one} and {other} read {doc:?} differently: {differs:?}"
                ));
            }
        }
    }
    Ok(())
}

/// What a member was told is written, every other that reads has.
fn nothing_lost(world: &World, texts: &BTreeMap<usize, Texts>) -> Result<(), String> {
    for writer in world.honest().filter(|writer| writer.trusts(writer)) {
        for device in world
            .honest()
            .filter(|it| reads(it) && together(it, writer))
        {
            for ((doc, _), acked) in writer.acked.iter().filter(|(_, acked)| acked.sure) {
                let of = texts.get(&device.at).and_then(|texts| texts.get(doc));
                let there = of.is_some_and(|of| of.contains(&(writer.id(), acked.text)));
                if !there {
                    return Err(format!(
                        "entry {} of device {} is lost to device {}",
                        acked.text, writer.at, device.at
                    ));
                }
            }
        }
    }
    Ok(())
}

/// A device that reads no more, given all that anybody has, reads nothing that was
/// written once its writer had heard so; and what it holds has no key in the clear.
fn removed_is_removed(world: &mut World) -> Result<(), String> {
    let barred: BTreeSet<DeviceId> = world
        .honest()
        .flat_map(|device| device.barred.keys().copied())
        .collect();
    let thieves = world.devices.iter();
    let thieves = thieves.filter(|device| barred.contains(&device.id()));
    let thieves: Vec<usize> = thieves.map(|device| device.at).collect();
    world.ran.removed = thieves.len();
    for at in thieves.into_iter().take(MAX_THIEVES) {
        let mut all = Vec::new();
        for device in world.honest().filter(|device| device.at != at) {
            for chain in device.heads().keys() {
                all.extend(device.envelopes(chain)?);
            }
        }
        let thief = &mut world.devices[at];
        thief.take_all(world.now, all);
        let id = thief.id();
        for reading in world.devices[at].read(&DOCS)? {
            for (writer, entry) in reading.entries {
                let (Event::Gap(gap), Some(by)) = (&entry.event, world.device(writer)) else {
                    continue;
                };
                let text = gap.reason.split_whitespace().nth(2);
                let text: Option<u64> = text.and_then(|text| text.parse().ok());
                let from = by.barred.get(&id).filter(|_| by.evil.is_none());
                if let (Some(text), Some(from)) = (text, from)
                    && text >= *from
                {
                    return Err(format!(
                        "device {at} reads entry {text} of device {}, which knew from \
                         {from} on that it may not",
                        by.at
                    ));
                }
            }
        }
        let folder = fs::read_dir(&world.devices[at].dir).map_err(|error| error.to_string())?;
        for file in folder {
            let path = file.map_err(|error| error.to_string())?.path();
            let bytes = fs::read(&path).map_err(|error| error.to_string())?;
            world.secrets.look(&bytes, "a folder of a removed device")?;
        }
    }
    Ok(())
}
