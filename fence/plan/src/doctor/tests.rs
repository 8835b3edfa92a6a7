use super::*;

/// A machine on which everything works.
fn able() -> Observed {
    Observed {
        uid: 1000,
        gid: 1000,
        ping: Tried::Worked,
        ping_groups: Some((0, 2_147_483_647)),
        user_namespace: Tried::Worked,
        user_map: Tried::Worked,
        namespaces: Tried::Worked,
        propagation: Tried::Worked,
        mount_api: Tried::Worked,
        tmpfs: Tried::Worked,
        overlay: Tried::Worked,
        proc: Tried::Worked,
        loopback: Tried::Worked,
        tun: Tried::Worked,
        tun_mode: Some(0o666),
        nested: Tried::Worked,
        seccomp: Tried::Worked,
        landlock: 7,
        restrict: Tried::Worked,
        cgroup: Cgroup {
            path: Some("/user.slice/x".into()),
            delegated: true,
            made: Tried::Worked,
            controllers: ["cpu", "memory", "pids"].map(str::to_owned).to_vec(),
        },
        launcher: LauncherFile {
            path: b"/usr/libexec/bailey/bailey-fence".to_vec(),
            of_root: true,
        },
        ipv6: true,
        ..Observed::default()
    }
}

fn keys() -> AtRest {
    AtRest {
        path: "/home/ada/.local/state/bailey/device.key".into(),
        mode: Some(0o600),
        encrypted: true,
        sealed: false,
        service: false,
    }
}

#[test]
fn keys_on_the_disk_are_called_what_they_are() {
    let said = |mode, encrypted, sealed, service| {
        let keys = AtRest {
            mode,
            encrypted,
            sealed,
            service,
            ..keys()
        };
        let found = judge(&able(), &keys);
        let found = found.into_iter().find(|found| found.rung == Rung::Keys);
        let found = found.unwrap();
        format!(
            "{:7} {}: {} [{}]\n",
            found.outcome.as_str(),
            found.fact,
            found.lost,
            found.remedy
        )
    };
    let mut text = String::new();
    for mode in [None, Some(0o600), Some(0o640)] {
        for (encrypted, sealed, service) in [
            (false, false, false),
            (false, false, true),
            (false, true, true),
            (true, false, true),
            (true, true, true),
        ] {
            text += &said(mode, encrypted, sealed, service);
        }
    }
    insta::assert_snapshot!(text);
}

fn shown(seen: &Observed) -> String {
    let mut text = String::new();
    for found in judge(seen, &keys()) {
        let word = found.outcome.as_str();
        text += &format!("{:18} {word:7} {}\n", found.rung.as_str(), found.fact);
        for (name, what) in [("lost", &found.lost), ("remedy", &found.remedy)] {
            if !what.is_empty() {
                text += &format!("{:26} {name}: {what}\n", "");
            }
        }
    }
    let verdict = seen.verdict();
    let full: Vec<&str> = verdict.full.iter().map(|tier| tier.as_str()).collect();
    text + &format!(
        "full: {full:?}, any: {}, exit {}\n",
        verdict.any,
        verdict.exit_code()
    )
}

/// Nothing was tried after the rung that failed.
fn after(seen: Observed) -> Observed {
    Observed {
        namespaces: Tried::NotTried,
        propagation: Tried::NotTried,
        mount_api: Tried::NotTried,
        tmpfs: Tried::NotTried,
        overlay: Tried::NotTried,
        proc: Tried::NotTried,
        loopback: Tried::NotTried,
        tun: Tried::NotTried,
        nested: Tried::NotTried,
        ..seen
    }
}

#[test]
fn a_machine_that_can_do_everything() {
    insta::assert_snapshot!(shown(&able()));
}

#[test]
fn ubuntu_strips_user_namespaces_and_the_launcher_is_in_a_home() {
    let seen = after(Observed {
        user_map: Tried::Refused(1),
        settings: Settings {
            apparmor_userns: Some(1),
            ..Settings::default()
        },
        launcher: LauncherFile {
            path: b"/home/ada/bailey 1/bailey-fence".to_vec(),
            of_root: false,
        },
        ..able()
    });
    insta::assert_snapshot!(shown(&seen));
}

#[test]
fn docker_filters_namespaces_and_hides_parts_of_proc() {
    let seen = after(Observed {
        user_namespace: Tried::Refused(1),
        user_map: Tried::NotTried,
        tun_mode: None,
        confined: Confined {
            seccomp: 2,
            no_new_privs: false,
            label: Some("docker-default (enforce)".into()),
            container: Some("docker".into()),
        },
        cgroup: Cgroup::default(),
        ..able()
    });
    insta::assert_snapshot!(shown(&seen));
}

#[test]
fn bubblewrap_alone_is_let_make_namespaces() {
    let seen = after(Observed {
        user_map: Tried::Refused(13),
        bubblewrap: Some(Bubblewrap {
            version: "bubblewrap 0.8.0".into(),
            failed: None,
        }),
        profiles: vec![Profile {
            file: "bwrap-userns-restrict".into(),
            bwrap: true,
            bailey: false,
            userns: true,
        }],
        ..able()
    });
    insta::assert_snapshot!(shown(&seen));
    assert_eq!(seen.verdict().full, [Tier::L1, Tier::L15, Tier::L2]);
}

#[test]
fn an_old_kernel_has_nothing_to_make_a_box_with() {
    let seen = after(Observed {
        user_namespace: Tried::Refused(22),
        user_map: Tried::NotTried,
        landlock: 0,
        abstract_sockets: vec!["@/tmp/.X11-unix/X0".into()],
        ..able()
    });
    insta::assert_snapshot!(shown(&seen));
    assert_eq!(seen.verdict().exit_code(), 125);
}

#[test]
fn what_is_there_by_its_version_alone_does_not_count() {
    let stacked = Observed {
        restrict: Tried::Refused(7),
        ..able()
    };
    let of = |seen: &Observed, rung| {
        let all = judge(seen, &keys());
        let found = all.iter().find(|finding| finding.rung == rung).unwrap();
        (found.outcome, found.fact.clone())
    };
    let (outcome, fact) = of(&stacked, Rung::Landlock);
    assert_eq!(outcome, Outcome::Weaker);
    assert!(fact.contains("E2BIG"), "{fact}");
    assert_eq!(stacked.support().landlock, Err(Rung::Landlock));
    let mut full = able();
    full.cgroup.made = Tried::Refused(28);
    let (outcome, fact) = of(&full, Rung::Cgroup);
    assert_eq!(outcome, Outcome::Weaker);
    assert!(fact.contains("ENOSPC"), "{fact}");
    for rung in [Rung::Landlock, Rung::Cgroup] {
        assert_eq!(of(&able(), rung).0, Outcome::Ok);
    }
}

#[test]
fn a_tun_that_is_not_the_users_costs_the_gate_alone() {
    let seen = Observed {
        tun: Tried::Refused(13),
        tun_mode: Some(0o600),
        ..able()
    };
    insta::assert_snapshot!(shown(&seen));
    assert_eq!(seen.verdict().exit_code(), 1);
}

/// Whatever fails, no advice changes a setting of the whole machine.
#[test]
fn no_remedy_is_a_setting_of_the_machine() {
    let errors = [1, 2, 12, 13, 19, 22, 28, 38, 99];
    let mut tries = vec![Tried::NotTried, Tried::Worked];
    tries.extend(errors.map(Tried::Refused));
    for container in [None, Some("docker".to_owned())] {
        for &tried in &tries {
            let seen = Observed {
                user_namespace: tried,
                user_map: tried,
                namespaces: tried,
                propagation: tried,
                mount_api: tried,
                tmpfs: tried,
                overlay: tried,
                proc: tried,
                loopback: tried,
                tun: tried,
                ping: tried,
                nested: tried,
                seccomp: tried,
                confined: Confined {
                    container: container.clone(),
                    ..Confined::default()
                },
                settings: Settings {
                    apparmor_userns: Some(1),
                    userns_clone: Some(0),
                    max_user_namespaces: Some(0),
                },
                ..able()
            };
            for found in judge(&seen, &keys()) {
                // A container's own network is not the machine's.
                let own = container.is_some() && found.rung == Rung::Ping;
                assert!(own || !found.remedy.contains("sysctl"), "{found:?}");
                assert!(!found.remedy.contains("/proc/sys"), "{found:?}");
                let lost = found.outcome == Outcome::Ok || !found.lost.is_empty();
                assert!(lost, "it says what is lost: {found:?}");
            }
        }
    }
}

#[test]
fn a_path_in_a_remedy_is_one_word_of_a_shell() {
    use words::shell_word;
    assert_eq!(shell_word(b"/usr/bin/x-1"), "/usr/bin/x-1");
    assert_eq!(shell_word(b"/a b;rm $x"), r"$'/a b;rm $x'");
    assert_eq!(shell_word(b"/it's\n\xff\\"), r"$'/it\'s\x0a\xff\\'");
    assert_eq!(shell_word(b""), "$''");
}

#[test]
fn a_host_that_lets_nobody_ping_is_told_of_no_setting_but_a_containers_own() {
    let found = |groups, container: Option<&str>| {
        let seen = Observed {
            ping: Tried::Refused(13),
            ping_groups: groups,
            confined: Confined {
                container: container.map(str::to_owned),
                ..Confined::default()
            },
            ..able()
        };
        assert_eq!(seen.verdict().exit_code(), 0, "it costs no tier");
        let all = judge(&seen, &keys());
        let row = all.into_iter().find(|found| found.rung == Rung::Ping);
        let row = row.unwrap();
        assert_eq!(row.outcome, Outcome::Weaker);
        let remedy = match row.remedy.is_empty() {
            true => "none",
            false => &row.remedy,
        };
        format!("{} | {} | {remedy}", row.fact, row.lost)
    };
    let rows = [
        found(Some((1, 0)), None),
        found(Some((5, 100)), None),
        found(Some((65534, 65534)), None),
        found(None, None),
        found(Some((1, 0)), Some("docker")),
    ];
    insta::assert_snapshot!(rows.join("\n"), @r"
    EACCES: ping_group_range 1 0 leaves group 1000 out | `ping` in a box is refused at once; no setting is advised, as the one that there is holds for the whole machine | none
    EACCES: ping_group_range 5 100 leaves group 1000 out | `ping` in a box is refused at once; no setting is advised, as the one that there is holds for the whole machine | none
    EACCES: ping_group_range 65534 65534 leaves group 1000 out | `ping` in a box is refused at once; no setting is advised, as the one that there is holds for the whole machine | none
    EACCES | `ping` in a box is refused at once; no setting is advised, as the one that there is holds for the whole machine | none
    EACCES: ping_group_range 1 0 leaves group 1000 out | `ping` in a box is refused at once | docker run --sysctl net.ipv4.ping_group_range='1000 1000' IMAGE bailey doctor
    ");
}
