use super::*;
use crate::channel::Grant;
use crate::facts::{HostEntry, HostNames};
use crate::gpu::RenderNode;
use crate::guarded_names;

fn spec() -> BoxSpec {
    BoxSpec {
        hostname: "box".into(),
        command: vec![b"true".to_vec()],
        env: vec![(b"PATH".to_vec(), b"/usr/bin".to_vec())],
        cwd: b"/home/box".to_vec(),
        home: b"/home/box".to_vec(),
        grants: Vec::new(),
        stdio: Stdio::Pipes,
        uid: 1000,
        gid: 1000,
        tier: bailey_model::Tier::Gated,
        class: bailey_model::BoxClass::Plain,
        limits: bailey_model::Limits::default(),
        cgroup: false,
        display: None,
        gpu: false,
        weaker: false,
        open_files: 1024,
        broken: None,
    }
}

fn facts() -> HostFacts {
    HostFacts {
        entries: vec![
            HostEntry {
                path: "/usr",
                kind: EntryKind::Dir,
            },
            HostEntry {
                path: "/bin",
                kind: EntryKind::Symlink(b"usr/bin".to_vec()),
            },
            HostEntry {
                path: "/etc/ld.so.cache",
                kind: EntryKind::File,
            },
            HostEntry {
                path: "/etc/fonts",
                kind: EntryKind::Other,
            },
        ],
        grants: Vec::new(),
        gpu: Vec::new(),
        ipv6: true,
        memory: 8 << 30,
        names: HostNames {
            resolvers: b"nameserver 192.168.1.1\n".to_vec(),
            hosts: b"192.168.1.9 printer\n".to_vec(),
        },
    }
}

/// Path, read-only, kind, guarded names in it.
type Asked<'a> = (&'a str, bool, EntryKind, &'a [(&'a str, EntryKind)]);

fn granted(grants: &[Asked<'_>]) -> (BoxSpec, HostFacts) {
    let (mut spec, mut facts) = (spec(), facts());
    for (at, read_only, kind, inside) in grants {
        let at = at.as_bytes().to_vec();
        let guarded = guarded_names(&at)
            .into_iter()
            .filter_map(|(name, guard)| {
                let (_, kind) = inside.iter().find(|(known, _)| *known == name)?;
                Some((name, guard, kind.clone()))
            })
            .collect();
        spec.grants.push(Grant {
            at,
            read_only: *read_only,
        });
        facts.grants.push(GrantFacts {
            kind: kind.clone(),
            guarded,
            bare: false,
        });
    }
    (spec, facts)
}

fn lines(ops: &[SetupOp]) -> String {
    let mut text = String::new();
    for op in ops {
        let what = match op {
            SetupOp::File { contents, .. } => format!("{:?}", String::from_utf8_lossy(contents)),
            SetupOp::Symlink { target, .. } => format!("-> {}", target.escape_ascii()),
            SetupOp::Tmpfs { mode, size, .. } => format!("{mode:o} {size}"),
            SetupOp::ReadOnlyFolder { size, .. } => size.clone(),
            SetupOp::Image { read_only, .. } => {
                if *read_only { "read-only" } else { "writable" }.to_owned()
            }
            SetupOp::Tun { .. } | SetupOp::OpenTerminal { .. } | SetupOp::HostName(_) => {
                format!("{op:?}")
            }
            _ => String::new(),
        };
        let path = op.path().unwrap_or_default().escape_ascii();
        text.push_str(format!("{} | {path} {what}", op.step()).trim_end());
        text.push('\n');
    }
    text
}

#[test]
fn a_plain_box() {
    insta::assert_snapshot!(lines(&plan(&spec(), &facts()).unwrap()));
}

/// The lines of a plan that are not those of the plain box, which is gated.
fn difference(spec: &BoxSpec) -> String {
    let facts = facts();
    let lines = |spec: &BoxSpec| {
        let own = namespaces(spec);
        let ops = lines(&plan(spec, &facts).unwrap());
        format!("{own:?}\n{ops}")
    };
    let (plain, other) = (lines(&self::spec()), lines(spec));
    let only = |sign: &str, one: &str, two: &str| -> String {
        let lines = one.lines().filter(|line| !two.lines().any(|l| l == *line));
        lines.map(|line| format!("{sign} {line}\n")).collect()
    };
    only("-", &plain, &other) + &only("+", &other, &plain)
}

#[test]
fn each_tier_differs_from_a_gated_box_by_its_network_alone() {
    let differences = bailey_model::Tier::ALL.map(|tier| {
        let spec = BoxSpec { tier, ..spec() };
        format!("{tier}:\n{}", difference(&spec))
    });
    insta::assert_snapshot!(differences.concat());
}

#[test]
fn each_layer_that_a_plan_holds_can_be_left_out_alone() {
    let differences = [Layer::ReadOnly, Layer::Processes, Layer::Network].map(|layer| {
        let spec = BoxSpec {
            broken: Some(layer),
            ..spec()
        };
        format!("{layer:?}:\n{}", difference(&spec))
    });
    insta::assert_snapshot!(differences.concat());
    for layer in [Layer::Filter, Layer::Capabilities, Layer::Limits] {
        let spec = BoxSpec {
            broken: Some(layer),
            ..spec()
        };
        assert_eq!(difference(&spec), "");
    }
}

#[test]
fn scratch_folders_are_never_larger_than_the_boxs_memory() {
    let scratch = |memory| {
        let mut spec = spec();
        spec.limits.memory = memory;
        let sizes: Vec<String> = plan(&spec, &facts())
            .unwrap()
            .into_iter()
            .filter_map(|op| match op {
                SetupOp::Tmpfs {
                    mode: 0o1777, size, ..
                } => Some(size),
                _ => None,
            })
            .collect();
        assert_eq!(sizes.len(), 2);
        assert_eq!(sizes.first(), sizes.last());
        sizes.first().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(scratch(None), 2 << 30);
    assert_eq!(scratch(Some(64 << 20)), 64 << 20);
    assert_eq!(scratch(Some(4 << 30)), 2 << 30);
}

#[test]
fn a_browsers_box_has_a_display_and_the_graphics_processor() {
    let (mut spec, mut facts) = (spec(), facts());
    spec.class = bailey_model::BoxClass::Browser;
    spec.display = Some((1280, 800));
    spec.gpu = true;
    assert_eq!(plan(&spec, &facts), Err(PlanError::NoGpu));
    let node = |name: &str, minor, described: &str| RenderNode {
        name: name.into(),
        number: (226, minor),
        described: Some(format!("../../devices/{described}/drm/{name}")),
    };
    facts.gpu = vec![
        node("renderD128", 128, "pci0000:00/0000:00:02.0"),
        node("renderD129", 129, "pci0000:00/0000:00:02.0"),
        node("renderD130", 130, "virtual"),
    ];
    insta::assert_snapshot!(lines(&plan(&spec, &facts).unwrap()));
    // What the host has is not shown to whom it was not granted.
    (spec.gpu, spec.display) = (false, None);
    let plain = lines(&plan(&spec, &facts).unwrap());
    assert!(
        !plain.contains("render") && !plain.contains("/sys"),
        "{plain}"
    );
    spec.display = Some((1280, 4097));
    assert_eq!(plan(&spec, &facts), Err(PlanError::Display(1280, 4097)));
}

#[test]
fn a_box_with_a_terminal_and_nested_grants_without_ipv6() {
    let (mut spec, mut facts) = granted(&[
        ("/home/ann/src/p/.git/hooks", false, EntryKind::Dir, &[]),
        ("/home/ann/src-old", true, EntryKind::Dir, &[]),
        (
            "/home/ann/src/p",
            false,
            EntryKind::Dir,
            &[
                (".git", EntryKind::Dir),
                (".git/hooks", EntryKind::Dir),
                (".git/config", EntryKind::File),
                (".bashrc", EntryKind::File),
            ],
        ),
        ("/home/ann/src", true, EntryKind::Dir, &[]),
        ("/home/ann/notes.txt", true, EntryKind::File, &[]),
    ]);
    spec.stdio = Stdio::Pty { rows: 24, cols: 80 };
    facts.ipv6 = false;
    insta::assert_snapshot!(lines(&plan(&spec, &facts).unwrap()));
}

#[test]
fn nothing_is_planned_for_what_cannot_be_a_box() {
    let broken = |change: fn(&mut BoxSpec)| {
        let mut spec = spec();
        change(&mut spec);
        plan(&spec, &facts()).unwrap_err()
    };
    assert_eq!(broken(|s| s.uid = 0), PlanError::Root);
    assert_eq!(broken(|s| s.command.clear()), PlanError::Command);
    assert_eq!(
        broken(|s| s.command = vec![b"a\0b".to_vec()]),
        PlanError::Command
    );
    assert_eq!(
        broken(|s| s.env = vec![(b"A=B".to_vec(), vec![])]),
        PlanError::Environment
    );
    assert_eq!(
        broken(|s| s.hostname = "a.b".into()),
        PlanError::HostName("a.b".into())
    );
    assert_eq!(
        broken(|s| s.limits.memory = Some(1 << 20)),
        PlanError::TooLittle("mem")
    );
    assert_eq!(
        broken(|s| s.limits.pids = Some(1)),
        PlanError::TooLittle("pids")
    );
    assert_eq!(
        broken(|s| s.limits.files = Some(3)),
        PlanError::TooLittle("files")
    );
    for path in ["", "x", "/a/../b", "/a//b", "/a/", "/."] {
        let mut spec = spec();
        spec.cwd = path.into();
        assert_eq!(plan(&spec, &facts()), Err(PlanError::Path(path.into())));
    }
    for path in ["/", "/proc", "/dev/dri", "/run/user/1000", "/sys"] {
        let (spec, facts) = granted(&[(path, true, EntryKind::Dir, &[])]);
        assert_eq!(plan(&spec, &facts), Err(PlanError::Reserved(path.into())));
    }
    let (spec, facts) = granted(&[
        ("/a", true, EntryKind::Dir, &[]),
        ("/a", false, EntryKind::Dir, &[]),
    ]);
    assert_eq!(plan(&spec, &facts), Err(PlanError::Twice(b"/a".to_vec())));
    let (spec, facts) = granted(&[("/a", true, EntryKind::Other, &[])]);
    assert_eq!(
        plan(&spec, &facts),
        Err(PlanError::NotGrantable(b"/a".to_vec()))
    );
}

#[test]
fn what_others_run_or_trust_is_never_writable_by_name() {
    for path in [
        "/h/.ssh",
        "/h/.ssh/config",
        "/h/.config/systemd/user",
        "/h/.config/autostart/x",
        "/h/.bashrc",
    ] {
        let (spec, facts) = granted(&[(path, false, EntryKind::Dir, &[])]);
        assert_eq!(
            plan(&spec, &facts),
            Err(PlanError::NeverWritable(path.into())),
            "{path}"
        );
        let (spec, facts) = granted(&[(path, true, EntryKind::Dir, &[])]);
        assert!(plan(&spec, &facts).is_ok(), "{path}");
    }
    let (spec, facts) = granted(&[("/p/.git/hooks", false, EntryKind::Dir, &[])]);
    assert!(plan(&spec, &facts).is_ok());
}

#[test]
fn a_grant_that_is_a_guarding_folder_guards_what_is_in_it() {
    let (spec, facts) = granted(&[(
        "/p/.git",
        false,
        EntryKind::Dir,
        &[("hooks", EntryKind::Dir), ("config", EntryKind::File)],
    )]);
    let ops = plan(&spec, &facts).unwrap();
    let covered: Vec<&[u8]> = ops
        .iter()
        .filter(|op| matches!(op, SetupOp::Cover { .. }))
        .filter_map(SetupOp::path)
        .collect();
    assert_eq!(covered, [b"/p/.git/hooks".as_slice(), b"/p/.git/config"]);
}

#[test]
fn what_cannot_be_covered_is_refused() {
    let config = &[("config", EntryKind::File)];
    let (spec, facts) = granted(&[("/p/.git", false, EntryKind::Dir, config)]);
    assert_eq!(
        plan(&spec, &facts),
        Err(PlanError::NothingToCover(b"/p/.git/hooks".to_vec()))
    );
    // Where git's folder is not granted by name, it is covered whole.
    let (spec, facts) = granted(&[("/p", false, EntryKind::Dir, &[(".git", EntryKind::Dir)])]);
    assert!(plan(&spec, &facts).is_ok());
    let (spec, facts) = granted(&[(
        "/p",
        false,
        EntryKind::Dir,
        &[(".ssh", EntryKind::Symlink(b"x".to_vec()))],
    )]);
    assert_eq!(
        plan(&spec, &facts),
        Err(PlanError::GuardedLink(b"/p/.ssh".to_vec()))
    );
}
