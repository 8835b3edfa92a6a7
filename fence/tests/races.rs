//! Granted folders that somebody changes while a box is made: what was seen is
//! what is mounted, and nothing outside is made or touched.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod support;

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bailey_fence_plan::channel::{FromFence, ToFence};
use bailey_model::Tier;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use support::{Ask, folder, give, open_path, write};

/// Boxes that are started under one race.
const ROUNDS: usize = 1000;
/// Fewer are no race: a machine that is slower than this has failed.
const LEAST: usize = 100;
/// A race ends after this, on a machine with other work too.
const TIME: Duration = Duration::from_secs(60);

/// Puts each in the place of the other, in one step.
fn swap(one: &Path, two: &Path) {
    renameat2(AT_FDCWD, one, AT_FDCWD, two, RenameFlags::RENAME_EXCHANGE).unwrap();
}

/// Runs `swapping` again and again until `racing` returns.
fn beside(swapping: impl Fn(usize) + Sync, racing: impl FnOnce()) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0.. {
                if over.load(Ordering::Relaxed) {
                    // An even number of turns leaves all as it was.
                    if turn % 2 == 0 {
                        break;
                    }
                }
                swapping(turn);
                // Long enough for a start to meet either, on two cores.
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        racing();
        over.store(true, Ordering::Relaxed);
    });
}

/// A descriptor as the person's command line holds it, under a name by which
/// the support opens it again.
fn held(path: &Path) -> (OwnedFd, PathBuf) {
    let fd = open_path(path);
    let name = format!("/proc/self/fd/{}", fd.as_raw_fd()).into();
    (fd, name)
}

#[test]
fn a_grant_replaced_while_its_box_is_made_is_refused_or_is_what_was_seen() {
    let around = folder("replaced");
    let (granted, victim) = (around.join("granted"), around.join("victim"));
    write(&granted.join("mark"), "seen");
    write(&victim.join("mark"), "victim");
    let link = around.join("link");
    symlink(&victim, &link).unwrap();
    give(&link);
    let before = seen(&victim);
    let (fd, name) = held(&granted);
    let (mut made, mut refused, mut naive) = (0, 0, 0);
    let script = format!("cat {0}/mark; : >{0}/new", granted.display());
    // A link in its place, or the other folder itself.
    let others = [&link, &victim];
    beside(
        |turn| swap(&granted, others[turn / 2 % 2]),
        || {
            let until = Instant::now() + TIME;
            while made + refused < ROUNDS && Instant::now() < until {
                let mut ask = Ask::shell(&script).tier(Tier::L2).grant(&granted, false);
                ask.grants[0].clone_from(&name);
                let own = ask.own.clone();
                match ask.make() {
                    Ok(ready) => {
                        assert_eq!(ready.go().end().ok(), "seen");
                        made += 1;
                    }
                    Err(error) => {
                        assert_eq!(error.step, "bind the granted", "{error}");
                        refused += 1;
                    }
                }
                // The control: who goes by the path meets the victim.
                let by_path = std::fs::read_to_string(granted.join("mark"));
                naive += usize::from(by_path.is_ok_and(|text| text == "victim"));
                std::fs::remove_dir_all(own).unwrap();
            }
        },
    );
    drop(fd);
    println!("{made} made, {refused} refused, {naive} by the path met the victim");
    assert!(made + refused >= LEAST && made > 0 && refused > 0 && naive > 0);
    assert_eq!(seen(&victim), before);
}

/// Everything of a folder that a stray step could change.
type Seen = BTreeMap<PathBuf, (u64, u32, u64, i64, i64, Vec<u8>)>;

fn seen(folder: &Path) -> Seen {
    let mut all = Seen::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(path) = folders.pop() {
        let meta = std::fs::symlink_metadata(&path).unwrap();
        let mut text = Vec::new();
        if meta.is_dir() {
            let entries = std::fs::read_dir(&path).unwrap();
            folders.extend(entries.map(|entry| entry.unwrap().path()));
        } else if meta.is_file() {
            text = std::fs::read(&path).unwrap();
        }
        let times = (meta.mtime(), meta.mtime_nsec());
        let name = path.strip_prefix(folder).unwrap().to_owned();
        all.insert(
            name,
            (meta.ino(), meta.mode(), meta.size(), times.0, times.1, text),
        );
    }
    all
}

/// Inodes and modes of a tree whose names are being swapped.
fn inodes(folder: &Path) -> Vec<(u64, u32)> {
    let mut all: Vec<_> = seen(folder)
        .values()
        .map(|(inode, mode, ..)| (*inode, *mode))
        .collect();
    all.sort_unstable();
    all
}

/// Equal seeds, equal trees.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(end).unwrap()).unwrap()
    }

    fn name(&mut self) -> &'static str {
        ["a", "b", "sub", "x", ".git", ".ssh", ".config"][self.below(7)]
    }
}

/// Folders, files and links at random, some of which lead to the victim. Gives
/// the entries that may be swapped with one another.
fn grow(chance: &mut Chance, root: &Path, victim: &Path) -> Vec<PathBuf> {
    let mut folders = vec![root.to_owned()];
    let mut entries = Vec::new();
    for _ in 0..24 {
        let path = folders[chance.below(folders.len())].join(chance.name());
        if path.symlink_metadata().is_ok() {
            continue;
        }
        match chance.below(6) {
            0..=2 => {
                std::fs::create_dir(&path).unwrap();
                folders.push(path.clone());
            }
            3 => std::fs::write(&path, "text").unwrap(),
            4 => symlink(victim, &path).unwrap(),
            _ => symlink("../victim/sub", &path).unwrap(),
        }
        give(&path);
        entries.push(path);
    }
    entries
}

/// A box with grants at random places of a random tree, which is swapped about
/// meanwhile. Counts what was made.
fn round(chance: &mut Chance, root: &Path, made: &AtomicUsize) {
    let mut ask = Ask::new(&["true"]).tier(Tier::L2);
    let own = ask.own.clone();
    let mut kept = Vec::new();
    for _ in 0..1 + chance.below(4) {
        let mut at = root.to_owned();
        for _ in 0..chance.below(4) {
            at.push(chance.name());
        }
        // What the person sees is in the tree, by whichever way.
        let Ok(real) = at.canonicalize() else {
            continue;
        };
        if !real.starts_with(root) || ask.spec.grants.iter().any(|grant| grant.at == bytes(&at)) {
            continue;
        }
        let Ok(file) = std::fs::metadata(&real).map(|_| real) else {
            continue;
        };
        let Ok(fd) = std::panic::catch_unwind(|| held(&file)) else {
            continue;
        };
        let shown = std::fs::read_link(&fd.1).unwrap();
        if !shown.starts_with(root) {
            continue;
        }
        let read_only = chance.below(2) == 0;
        ask = ask.grant(&at, read_only);
        *ask.grants.last_mut().unwrap() = fd.1.clone();
        kept.push(fd);
    }
    if let Ok(mut ready) = ask.make() {
        // What was covered may be swapped away: then it is over already, or soon.
        let _lost = ready.channel.send(&ToFence::Go, &[]);
        loop {
            match ready.channel.receive::<FromFence>().unwrap().value {
                FromFence::Ended(_) | FromFence::CoverLost { .. } => break,
                FromFence::Running => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(ready.launcher.wait().unwrap().success());
        made.fetch_add(1, Ordering::Relaxed);
    }
    std::fs::remove_dir_all(own).unwrap();
}

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_encoded_bytes().to_vec()
}

#[test]
fn nothing_is_made_or_touched_whatever_is_granted_and_swapped_about() {
    let until = Instant::now() + TIME;
    let (rounds, made) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let worker = |seed: u64| {
        let mut chance = Chance(seed);
        while rounds.load(Ordering::Relaxed) < ROUNDS && Instant::now() < until {
            let around = folder("grown");
            let (root, victim) = (around.join("root"), around.join("victim"));
            for name in ["sub/x/file", ".git/config", "file"] {
                write(&victim.join(name), "precious");
            }
            std::fs::create_dir(&root).unwrap();
            give(&root);
            let entries = grow(&mut chance, &root, &victim);
            let (before, all) = (seen(&victim), inodes(&root));
            let pairs: Vec<_> = (0..8)
                .map(|_| {
                    let pick = |chance: &mut Chance| entries[chance.below(entries.len())].clone();
                    (pick(&mut chance), pick(&mut chance))
                })
                // One below the other cannot change places with it.
                .filter(|(one, two)| !one.starts_with(two) && !two.starts_with(one))
                .collect();
            let turn_about = |turn: usize| {
                if let Some((one, two)) = pairs.get(turn / 2 % pairs.len().max(1)) {
                    // Another swap may have taken it elsewhere.
                    let flags = RenameFlags::RENAME_EXCHANGE;
                    let _there = renameat2(AT_FDCWD, one, AT_FDCWD, two, flags);
                }
            };
            beside(turn_about, || {
                for _ in 0..20 {
                    round(&mut chance, &root, &made);
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
            assert_eq!(seen(&victim), before, "seed {seed}: the victim was touched");
            assert_eq!(
                inodes(&root),
                all,
                "seed {seed}: something was made in a grant"
            );
            std::fs::remove_dir_all(around).unwrap();
        }
    };
    std::thread::scope(|scope| {
        for seed in [1, 2] {
            scope.spawn(move || worker(seed));
        }
    });
    let (rounds, made) = (rounds.into_inner(), made.into_inner());
    println!("{rounds} boxes asked for, {made} made");
    assert!(rounds >= LEAST && made > rounds / 20);
}

/// The control: who makes a mount point by its path makes it in the victim.
#[test]
fn a_mount_point_made_by_its_path_would_be_made_outside() {
    let around = folder("naive");
    let (root, victim) = (around.join("root"), around.join("victim"));
    write(&root.join("file"), "");
    write(&victim.join("file"), "");
    symlink(&victim, root.join("sub")).unwrap();
    let before = seen(&victim);
    std::fs::create_dir_all(root.join("sub/point")).unwrap();
    assert_ne!(seen(&victim), before);
}
