use super::*;

const FULL: Support = Support {
    namespaces: Ok(()),
    overlay: Ok(()),
    tun: Ok(()),
    bubblewrap: Ok(()),
    landlock: Ok(()),
};
const NOTHING: Support = Support {
    namespaces: Err(Rung::UserNamespace),
    overlay: Err(Rung::Overlay),
    tun: Err(Rung::Tun),
    bubblewrap: Err(Rung::Bubblewrap),
    landlock: Err(Rung::Landlock),
};

fn asked(tier: Tier, weaker: bool) -> Asked {
    Asked {
        tier,
        class: BoxClass::Plain,
        read_only_folder: false,
        weaker,
    }
}

fn methods(found: &[Way]) -> Vec<(Method, Tier)> {
    found.iter().map(|way| (way.method, way.tier)).collect()
}

#[test]
fn own_namespaces_come_first_and_landlock_last() {
    let found = ways(&asked(Tier::L15, true), &FULL).unwrap();
    let want = [Method::Namespaces, Method::Bubblewrap, Method::Landlock];
    assert_eq!(methods(&found), want.map(|method| (method, Tier::L15)));
}

#[test]
fn a_gated_box_has_its_gate_or_no_network_at_all() {
    let without = Support {
        tun: Err(Rung::Tun),
        ..FULL
    };
    let refused = ways(&asked(Tier::Gated, false), &without);
    assert_eq!(refused, Err(NoWay::OnlyWeaker(Rung::Tun)));
    let found = ways(&asked(Tier::Gated, true), &without).unwrap();
    assert!(found.iter().all(|way| way.tier == Tier::L2), "{found:?}");
    assert_eq!(
        found.first().map(|way| way.method),
        Some(Method::Namespaces)
    );
}

#[test]
fn bubblewrap_makes_all_but_gated_and_browser_boxes_in_full() {
    let only = Support {
        bubblewrap: Ok(()),
        ..NOTHING
    };
    for tier in [Tier::L1, Tier::L15, Tier::L2] {
        let found = ways(&asked(tier, false), &only).unwrap();
        assert_eq!(methods(&found), [(Method::Bubblewrap, tier)]);
    }
    let only_weaker = Err(NoWay::OnlyWeaker(Rung::UserNamespace));
    assert_eq!(ways(&asked(Tier::Gated, false), &only), only_weaker);
    let browser = Asked {
        class: BoxClass::Browser,
        ..asked(Tier::L2, false)
    };
    assert_eq!(ways(&browser, &only), only_weaker);
    // It has no overlay: a socket passes through a folder that is only read.
    let granted = Asked {
        read_only_folder: true,
        ..asked(Tier::L2, false)
    };
    assert_eq!(ways(&granted, &only), only_weaker);
}

#[test]
fn landlock_alone_is_never_taken_unasked() {
    let only = Support {
        landlock: Ok(()),
        ..NOTHING
    };
    for tier in Tier::ALL {
        let refused = ways(&asked(tier, false), &only);
        assert_eq!(refused, Err(NoWay::OnlyWeaker(Rung::UserNamespace)));
        let found = ways(&asked(tier, true), &only).unwrap();
        assert!(found.iter().all(|way| way.method == Method::Landlock));
    }
}

#[test]
fn where_nothing_is_left_the_refusal_names_the_first_rung_even_when_weaker_is_allowed() {
    for tier in Tier::ALL {
        for weaker in [false, true] {
            let refused = ways(&asked(tier, weaker), &NOTHING);
            assert_eq!(refused, Err(NoWay::Nothing(Rung::UserNamespace)));
        }
    }
}

/// Over everything that can be there or not: what may be taken without leave
/// is at the tier that was asked, and leave only ever adds.
#[test]
fn leave_to_be_weaker_only_ever_adds_ways() {
    let of = |bit: u32, bits: u32, rung| if bits & bit != 0 { Ok(()) } else { Err(rung) };
    for bits in 0..32 {
        let support = Support {
            namespaces: of(1, bits, Rung::UserNamespace),
            overlay: of(2, bits, Rung::Overlay),
            tun: of(4, bits, Rung::Tun),
            bubblewrap: of(8, bits, Rung::Bubblewrap),
            landlock: of(16, bits, Rung::Landlock),
        };
        for tier in Tier::ALL {
            for read_only_folder in [false, true] {
                let with = |weaker| {
                    let asked = Asked {
                        read_only_folder,
                        ..asked(tier, weaker)
                    };
                    ways(&asked, &support).unwrap_or_default()
                };
                let (full, all) = (with(false), with(true));
                assert!(all.starts_with(&full));
                assert!(full.iter().all(|way| way.tier == tier));
                assert!(full.iter().all(|way| way.method != Method::Landlock));
            }
        }
    }
}

#[test]
fn what_was_asked_wrongly_is_no_fault_of_the_machine() {
    let error = |step: &str, errno| SetupError {
        step: step.into(),
        path: None,
        reason: String::new(),
        errno,
    };
    assert_eq!(
        rung_of(&error("make the namespaces", 28)),
        Some(Rung::UserNamespace)
    );
    assert_eq!(rung_of(&error("mount a fresh", 1)), Some(Rung::Proc));
    assert_eq!(
        rung_of(&error("show read-only the granted", 1)),
        Some(Rung::Overlay)
    );
    assert_eq!(rung_of(&error("show read-only the granted", 22)), None);
    assert_eq!(rung_of(&error("bind the granted", 1)), None);
    assert_eq!(rung_of(&error("go to the working folder", 2)), None);
}

mod words {
    use bailey_model::Limits;

    use super::*;
    use crate::channel::{BoxSpec, Grant, Stdio};
    use crate::{EntryKind, GrantFacts, Guard, HostEntry, HostFacts, plan};

    fn spec(tier: Tier) -> BoxSpec {
        BoxSpec {
            hostname: "box-1".into(),
            command: vec![b"true".to_vec()],
            env: Vec::new(),
            cwd: b"/home/box".to_vec(),
            home: b"/home/box".to_vec(),
            grants: ["/w", "/r", "/f"]
                .iter()
                .map(|at| Grant {
                    at: at.as_bytes().to_vec(),
                    read_only: *at != "/w",
                })
                .collect(),
            stdio: Stdio::Pty { rows: 24, cols: 80 },
            uid: 1000,
            gid: 1000,
            tier,
            class: BoxClass::Plain,
            limits: Limits::default(),
            cgroup: false,
            display: None,
            gpu: false,
            weaker: false,
            open_files: 1024,
            broken: None,
        }
    }

    fn planned(tier: Tier) -> Vec<crate::SetupOp> {
        let grant = |kind, guarded| GrantFacts {
            kind,
            guarded,
            bare: false,
        };
        let git = [
            (".git", Guard::Pin, EntryKind::Dir),
            (".git/hooks", Guard::CoverUnlessNamed, EntryKind::Dir),
            (".git/config", Guard::CoverUnlessNamed, EntryKind::File),
        ];
        let facts = HostFacts {
            entries: vec![
                HostEntry {
                    path: "/usr",
                    kind: EntryKind::Dir,
                },
                HostEntry {
                    path: "/bin",
                    kind: EntryKind::Symlink(b"usr/bin".to_vec()),
                },
            ],
            grants: vec![
                grant(EntryKind::Dir, git.to_vec()),
                grant(EntryKind::Dir, Vec::new()),
                grant(EntryKind::File, Vec::new()),
            ],
            memory: 4 << 30,
            ..HostFacts::default()
        };
        plan(&spec(tier), &facts).unwrap()
    }

    fn places(network: bool) -> Places<'static> {
        Places {
            own: b"/state/boxes/a/home",
            grants: &[b"/w", b"/r", b"/f"],
            launcher: b"/opt/bailey-fence",
            network,
            lend: false,
        }
    }

    #[test]
    fn bubblewrap_is_asked_for_what_is_planned() {
        let words = arguments(&planned(Tier::L2), &places(false)).unwrap();
        let shown: Vec<String> = words
            .iter()
            .map(|word| match word {
                Word::Text(text) => String::from_utf8_lossy(text).into_owned(),
                Word::Contents(_) => "FD".to_owned(),
            })
            .collect();
        // One option and its values a line.
        insta::assert_snapshot!(shown.join(" ").replace(" --", "\n--"));
    }

    #[test]
    fn what_bubblewrap_cannot_do_is_refused_by_its_name() {
        let refused = arguments(&planned(Tier::Gated), &places(false));
        assert_eq!(refused, Err("make the network device"));
    }

    #[test]
    fn the_network_is_shared_only_where_it_is_meant_to_be() {
        let flag = Word::Text(b"--unshare-net".to_vec());
        let with = |tier, network| arguments(&planned(tier), &places(network)).unwrap();
        assert!(with(Tier::L2, false).contains(&flag));
        assert!(!with(Tier::L15, true).contains(&flag));
    }
}
