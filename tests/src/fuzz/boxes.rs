//! What a person, a manifest or a hostile folder makes of a box's plan: it is
//! refused, or every step of it stays in the box and shows nothing but what was
//! granted, as it was granted.

use bailey_fence_plan::channel::{BoxSpec, Grant, Stdio};
use bailey_fence_plan::{
    EntryKind, GrantFacts, Guard, HostEntry, HostFacts, SetupOp, guarded_names, looked_at, plan,
};
use bailey_model::{BoxClass, Limits, Tier};

/// Lines: a letter, a letter of how, a path. Before them four bytes that make
/// the host's files.
pub(super) fn boxes() -> Vec<Vec<u8>> {
    let lines = [
        "H./home/box\nC./home/box\nNbox\nGr/home/ann/src\nGw/home/ann/src/p\nGw/home/ann/src/p/.git/hooks\nGr/home/ann/notes",
        "H./home/box\nC./\nNa-1\nGw/home/ann\nGw/home/ann/.config\nGr/home/ann/.ssh\nGw/home/ann/.local/share",
        "H./srv/box\nC./srv\nNx\nT2\nGw/srv/data\nGw/srv/data/.git\nGr/srv\nGw/usr/local/x",
        "H./home/box\nC./home/box\nNb\nT1\nGr/etc/passwd\nGw/home/box/in\nGr/var/tmp\nGw/a/.config/fish",
    ];
    let texts = lines.iter().zip([1_u32, 77, 4_000_000_000, 42]);
    texts
        .map(|(line, seed)| [&seed.to_le_bytes(), line.as_bytes()].concat())
        .collect()
}

/// The target.
pub(super) fn run(data: &[u8]) {
    let _planned = planned(data);
}

/// The plan, where there is one, which has been looked at.
fn planned(data: &[u8]) -> Option<Vec<SetupOp>> {
    let (seed, text) = data.split_at(data.len().min(4));
    let tree = Tree(
        seed.iter()
            .fold(1, |sum, byte| sum * 257 + u64::from(*byte)),
    );
    let spec = spec_of(text);
    let facts = tree.facts(&spec);
    let ops = plan(&spec, &facts).ok()?;
    // The plan is a function of what it is given.
    assert_eq!(plan(&spec, &facts).as_ref(), Ok(&ops));
    for op in &ops {
        of_the_box(op, &spec);
    }
    ends_as_it_must(&ops, &spec);
    nothing_guarded_can_be_written(&ops, &spec, &facts);
    Some(ops)
}

fn spec_of(text: &[u8]) -> BoxSpec {
    let mut spec = BoxSpec {
        hostname: String::new(),
        command: vec![b"true".to_vec()],
        env: Vec::new(),
        cwd: Vec::new(),
        home: Vec::new(),
        grants: Vec::new(),
        stdio: Stdio::Pipes,
        uid: 1000,
        gid: 1000,
        tier: Tier::Gated,
        class: BoxClass::Plain,
        limits: Limits::default(),
        cgroup: false,
        display: None,
        gpu: false,
        weaker: false,
        open_files: 1024,
        broken: None,
    };
    for line in text.split(|byte| *byte == b'\n') {
        let Some((kind, rest)) = line.split_first() else {
            continue;
        };
        let (how, path) = rest.split_first().unwrap_or((&b'.', &[]));
        match kind {
            b'H' => spec.home = path.to_vec(),
            b'C' => spec.cwd = path.to_vec(),
            b'N' => spec.hostname = String::from_utf8_lossy(rest).into_owned(),
            b'G' => spec.grants.push(Grant {
                at: path.to_vec(),
                read_only: *how == b'r',
            }),
            b'T' => {
                spec.tier = match how {
                    b'1' => Tier::L1,
                    b'2' => Tier::L2,
                    b'3' => Tier::L15,
                    _ => Tier::Gated,
                };
            }
            b'P' => spec.stdio = Stdio::Pty { rows: 24, cols: 80 },
            b'U' => spec.uid = u32::from(*how),
            _ => {}
        }
    }
    spec
}

/// A host whose every path has one kind, made of a number.
struct Tree(u64);

impl Tree {
    fn kind(&self, path: &[u8]) -> Option<EntryKind> {
        let hash = path.iter().fold(self.0, |sum, byte| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        match (hash >> 32) % 9 {
            0..=3 => Some(EntryKind::Dir),
            4 | 5 => Some(EntryKind::File),
            6 if hash % 4 == 0 => Some(EntryKind::Symlink(b"/etc".to_vec())),
            7 if hash % 4 == 0 => Some(EntryKind::Other),
            _ => None,
        }
    }

    /// What the launcher would see of it.
    fn facts(&self, spec: &BoxSpec) -> HostFacts {
        let entries = looked_at().filter_map(|path| {
            let kind = self.kind(path.as_bytes())?;
            Some(HostEntry { path, kind })
        });
        let grants = spec.grants.iter().map(|grant| {
            // A folder, where what lies in it is granted too.
            let around = |other: &Grant| {
                let below = other.at.strip_prefix(grant.at.as_slice());
                below.is_some_and(|rest| rest.starts_with(b"/"))
            };
            let kind = match self.kind(&grant.at) {
                _ if spec.grants.iter().any(around) => EntryKind::Dir,
                Some(kind) => kind,
                None => EntryKind::Dir,
            };
            let looked = !grant.read_only && kind == EntryKind::Dir;
            let names = if looked {
                guarded_names(&grant.at)
            } else {
                Vec::new()
            };
            let guarded = names.into_iter().filter_map(|(name, guard)| {
                let kind = self.below(spec, &grant.at, name)?;
                Some((name, guard, kind))
            });
            GrantFacts {
                kind,
                guarded: guarded.collect(),
                bare: looked && self.0.is_multiple_of(5),
            }
        });
        HostFacts {
            entries: entries.collect(),
            grants: grants.collect(),
            ipv6: self.0.is_multiple_of(2),
            memory: 1 << 30,
            ..HostFacts::default()
        }
    }

    /// What is at a path below a grant: nothing is below what is no folder.
    fn below(&self, spec: &BoxSpec, at: &[u8], name: &str) -> Option<EntryKind> {
        let mut path = at.to_vec();
        let mut kind = EntryKind::Dir;
        for part in name.split('/') {
            match kind {
                EntryKind::Dir => {}
                EntryKind::Symlink(_) => return Some(EntryKind::Symlink(Vec::new())),
                _ => return None,
            }
            path.push(b'/');
            path.extend_from_slice(part.as_bytes());
            let granted = |grant: &Grant| lies_in(&grant.at, &path);
            kind = if spec
                .grants
                .iter()
                .any(|grant| granted(grant) && grant.at != path)
            {
                EntryKind::Dir
            } else {
                self.kind(&path)?
            };
        }
        Some(kind)
    }
}

/// Whether a path is in a folder, or is it.
fn lies_in(path: &[u8], folder: &[u8]) -> bool {
    let rest = path.strip_prefix(folder);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/") || folder == b"/")
}

/// No step leaves the box's root, and each of the host's things is one that was
/// granted, at its own place.
fn of_the_box(op: &SetupOp, spec: &BoxSpec) {
    if let Some(path) = op.path().filter(|_| !matches!(op, SetupOp::Tun { .. })) {
        let odd = |part: &[u8]| matches!(part, b"" | b"." | b"..") || part.contains(&0);
        let rest = path
            .strip_prefix(b"/")
            .unwrap_or_else(|| panic!("relative: {op:?}"));
        let plain = rest.is_empty() || !rest.split(|byte| *byte == b'/').any(odd);
        assert!(plain, "it may lead elsewhere: {op:?}");
    }
    let granted = |index: &usize, at: &[u8], writable: bool| {
        let grant = spec
            .grants
            .get(*index)
            .unwrap_or_else(|| panic!("no such grant: {op:?}"));
        assert_eq!(grant.at, at, "not where it was granted: {op:?}");
        assert_eq!(!grant.read_only, writable, "not as it was granted: {op:?}");
        let kernels = [&b"/proc"[..], b"/sys", b"/dev", b"/run"];
        assert!(!kernels.iter().any(|folder| lies_in(at, folder)), "{op:?}");
    };
    match op {
        SetupOp::GrantWritable { index, at } => granted(index, at, true),
        SetupOp::GrantFolderReadOnly { index, at } | SetupOp::GrantFileReadOnly { index, at } => {
            granted(index, at, false);
        }
        SetupOp::Pin { index, below, at } | SetupOp::Cover { index, below, at } => {
            let grant = spec
                .grants
                .get(*index)
                .unwrap_or_else(|| panic!("no grant: {op:?}"));
            assert_eq!(*at, [&grant.at, &b"/"[..], below.as_bytes()].concat());
        }
        SetupOp::OwnFolder { at } => assert_eq!(*at, spec.home),
        SetupOp::Image { at, read_only } => {
            assert!(*read_only && looked_at().any(|path| path == *at), "{op:?}");
        }
        SetupOp::Device { at } => assert!(at.starts_with("/dev/"), "{op:?}"),
        SetupOp::File { at, contents } if at == b"/etc/passwd" => {
            // A home must not write a line of its own.
            let lines = contents.iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(lines, 2, "{op:?}");
        }
        _ => {}
    }
}

/// The root is sealed once everything is in it, then entered, then left alone.
fn ends_as_it_must(ops: &[SetupOp], spec: &BoxSpec) {
    let [.., dev, root, enter, folder] = ops else {
        panic!("too short: {ops:?}");
    };
    let sealed = |op: &SetupOp, path: &[u8]| matches!(op, SetupOp::Seal { at } if at == path);
    assert!(
        sealed(dev, b"/dev") && sealed(root, b"/"),
        "{dev:?}, {root:?}"
    );
    assert_eq!(*enter, SetupOp::Enter);
    assert!(matches!(folder, SetupOp::WorkingFolder { at } if *at == spec.cwd));
    let at = |wanted: SetupOp| ops.iter().position(|op| *op == wanted);
    let (slave, root) = (at(SetupOp::SlaveMounts), at(SetupOp::Root));
    assert!(
        slave.is_some() && slave < root,
        "the host hears of the first mounts"
    );
    let own = ops
        .iter()
        .position(|op| matches!(op, SetupOp::OwnFolder { .. }));
    let private = at(SetupOp::PrivateMounts);
    assert!(
        private.is_some() && private < own,
        "what the host mounts later appears in what is granted"
    );
}

/// Whatever lies over whatever: what must stay as it is lies under no writable
/// grant that does not name it.
fn nothing_guarded_can_be_written(ops: &[SetupOp], spec: &BoxSpec, facts: &HostFacts) {
    for (grant, fact) in spec.grants.iter().zip(&facts.grants) {
        for (name, guard, _) in &fact.guarded {
            let path = [&grant.at, &b"/"[..], name.as_bytes()].concat();
            // What is mounted last at or around it is what is met there.
            let mut mounts = ops.iter().filter(|op| {
                let of_host = matches!(
                    op,
                    SetupOp::GrantWritable { .. }
                        | SetupOp::GrantFolderReadOnly { .. }
                        | SetupOp::GrantFileReadOnly { .. }
                        | SetupOp::Pin { .. }
                        | SetupOp::Cover { .. }
                        | SetupOp::OwnFolder { .. }
                );
                of_host && op.path().is_some_and(|at| lies_in(&path, at))
            });
            let named = spec.grants.iter().any(|other| other.at == path);
            match (mounts.next_back(), guard) {
                (Some(SetupOp::GrantWritable { at, .. }), Guard::Cover) => {
                    panic!(
                        "{} can be written by way of {}",
                        path.escape_ascii(),
                        at.escape_ascii()
                    )
                }
                (Some(SetupOp::GrantWritable { .. }), Guard::CoverUnlessNamed) => {
                    assert!(named, "{} can be written", path.escape_ascii());
                }
                (Some(SetupOp::Pin { .. }), Guard::Cover | Guard::CoverUnlessNamed) => {
                    panic!(
                        "{} is held in its place and not covered",
                        path.escape_ascii()
                    )
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::noise::Noise;

    #[test]
    fn many_inputs_are_boxes_with_covered_names() {
        let pool = boxes();
        let plans: Vec<Vec<SetupOp>> = (0..8000)
            .filter_map(|seed| planned(&Noise::new(seed).input(&pool)))
            .collect();
        let with =
            |fits: fn(&SetupOp) -> bool| plans.iter().filter(|ops| ops.iter().any(fits)).count();
        let covers = with(|op| matches!(op, SetupOp::Cover { .. }));
        let pins = with(|op| matches!(op, SetupOp::Pin { .. }));
        assert!(
            plans.len() > 100 && covers > 30 && pins > 20,
            "{} {covers} {pins}",
            plans.len()
        );
    }

    #[test]
    fn a_step_that_leads_elsewhere_or_is_not_granted_is_found() {
        let spec = spec_of(b"H./home/box\nC./\nNbox\nGr/a\nGw/b");
        let wrong = [
            SetupOp::OwnFolder {
                at: b"/home/other".to_vec(),
            },
            SetupOp::Dir {
                at: b"/a/../b".to_vec(),
            },
            SetupOp::GrantWritable {
                index: 0,
                at: b"/a".to_vec(),
            },
            SetupOp::GrantWritable {
                index: 1,
                at: b"/c".to_vec(),
            },
            SetupOp::Image {
                at: "/home".to_owned(),
                read_only: true,
            },
        ];
        for op in wrong {
            let found = std::panic::catch_unwind(|| of_the_box(&op, &spec));
            assert!(found.is_err(), "{op:?}");
        }
    }
}
