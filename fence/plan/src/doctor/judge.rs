//! From what was tried to one finding a rung.

use super::words::{
    E2BIG, EACCES, EINVAL, ENODEV, ENOENT, ENOSPC, ENOSYS, EPERM, errno, shell_word, tried,
};
use super::{AtRest, Finding, Observed, Outcome, Rung, Tried};
use crate::fallback::LANDLOCK_ALONE;

/// What stands for a group that has no number here (user_namespaces(7)).
const NOBODY: u32 = 65534;
const NO_BOX: &str = "no box of namespaces; only weaker ones are left";
/// What puts the launcher's profile in place.
pub const LOAD_PROFILE: &str = "bailey doctor --print-apparmor | sudo tee \
     /etc/apparmor.d/bailey-fence >/dev/null && sudo apparmor_parser --replace \
     /etc/apparmor.d/bailey-fence";
/// Where the launcher lies once it is installed.
pub const INSTALLED: &str = "/usr/libexec/bailey/bailey-fence";

/// One finding a rung, in order.
#[must_use]
pub fn judge(seen: &Observed, keys: &AtRest) -> Vec<Finding> {
    vec![
        user_namespace(seen),
        user_map(seen),
        namespaces(seen),
        in_them(seen, Rung::Propagation, seen.propagation),
        in_them(seen, Rung::MountApi, seen.mount_api),
        in_them(seen, Rung::Tmpfs, seen.tmpfs),
        overlay(seen),
        proc(seen),
        in_them(seen, Rung::Loopback, seen.loopback),
        tun(seen),
        seccomp(seen),
        landlock(seen),
        bubblewrap(seen),
        cgroup(seen),
        browser(seen),
        profiles(seen),
        confined(seen),
        at_rest(keys),
        ipv6(seen),
        ping(seen),
        abstract_sockets(seen),
    ]
}

fn finding(rung: Rung, outcome: Outcome, fact: impl Into<String>) -> Finding {
    Finding {
        rung,
        outcome,
        fact: fact.into(),
        lost: String::new(),
        remedy: String::new(),
    }
}

impl Finding {
    fn loses(mut self, lost: impl Into<String>) -> Self {
        self.lost = lost.into();
        self
    }

    fn helped_by(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }
}

/// What starts a container with one thing more, nothing of the machine changed.
fn in_container(seen: &Observed, option: &str) -> Option<String> {
    let kind = seen.confined.container.as_deref()?;
    let engine = if kind.contains("podman") {
        "podman"
    } else {
        "docker"
    };
    Some(format!("{engine} run {option} IMAGE bailey doctor"))
}

/// The launcher's own profile, or first a place where it can have one.
fn own_profile(seen: &Observed) -> String {
    if seen.launcher.of_root {
        return LOAD_PROFILE.to_owned();
    }
    let folder: &[u8] = match seen.launcher.path.iter().rposition(|byte| *byte == b'/') {
        Some(cut) => seen.launcher.path.get(..cut).unwrap_or_default(),
        None => b".",
    };
    let of = |name: &str| shell_word(&[folder, b"/", name.as_bytes()].concat());
    format!(
        "sudo install -D -m 755 -t /usr/libexec/bailey {} {} {} && /usr/libexec/bailey/bailey doctor",
        of("bailey"),
        of("bailey-fence"),
        of("bailey-gate")
    )
}

fn user_namespace(seen: &Observed) -> Finding {
    let rung = Rung::UserNamespace;
    let number = match seen.user_namespace {
        Tried::Worked => return finding(rung, Outcome::Ok, "one can be made"),
        Tried::NotTried => return finding(rung, Outcome::No, "not tried").loses(NO_BOX),
        Tried::Refused(number) => number,
    };
    let filtered = in_container(seen, "--security-opt seccomp=unconfined");
    let no = |fact: String| finding(rung, Outcome::No, fact).loses(NO_BOX);
    match number {
        EACCES => no("EACCES: AppArmor denies it to programs without a profile".into())
            .helped_by(own_profile(seen)),
        EPERM if seen.settings.userns_clone == Some(0) => {
            no("EPERM: kernel.unprivileged_userns_clone is 0".into()).helped_by(WITHOUT)
        }
        EPERM if seen.confined.seccomp == 2 => {
            no("EPERM: the system call filter that this process is under".into())
                .helped_by(filtered.unwrap_or_else(|| WITHOUT.into()))
        }
        EPERM => no("EPERM: the system refuses it to ordinary users".into())
            .helped_by(filtered.unwrap_or_else(|| WITHOUT.into())),
        ENOSPC if seen.settings.max_user_namespaces == Some(0) => {
            no("ENOSPC: user.max_user_namespaces is 0".into()).helped_by(WITHOUT)
        }
        ENOSPC => no("ENOSPC: as many or as deep as the system allows".into())
            .helped_by("lsns --type user --output NS,NPROCS,PID,USER,COMMAND"),
        EINVAL => no("EINVAL: this kernel has none".into()).helped_by(WITHOUT),
        ENOSYS => no("ENOSYS: no clone3, by the kernel or a container's filter".into())
            .helped_by(filtered.unwrap_or_else(|| WITHOUT.into())),
        other => no(errno(other)),
    }
}

/// Where only a setting of the whole machine would help, which is never advised.
const WITHOUT: &str = "bailey run --tier l2 --allow-weaker -- CMD";

fn user_map(seen: &Observed) -> Finding {
    let rung = Rung::UserMap;
    match seen.user_map {
        Tried::Worked => finding(rung, Outcome::Ok, "the own user can be mapped"),
        Tried::NotTried => finding(rung, Outcome::No, "not tried").loses(NO_BOX),
        Tried::Refused(number @ (EPERM | EACCES)) => {
            let why = match (&seen.confined.label, seen.settings.apparmor_userns) {
                (_, Some(1)) => "kernel.apparmor_restrict_unprivileged_userns is 1",
                (Some(_), _) => "the profile that this process is under",
                _ => "as AppArmor does on Ubuntu",
            };
            let fact = format!("{}: made but stripped of its power: {why}", errno(number));
            finding(rung, Outcome::No, fact)
                .loses(NO_BOX)
                .helped_by(own_profile(seen))
        }
        Tried::Refused(number) => finding(rung, Outcome::No, errno(number)).loses(NO_BOX),
    }
}

fn namespaces(seen: &Observed) -> Finding {
    let rung = Rung::Namespaces;
    match seen.namespaces {
        Tried::Worked => finding(rung, Outcome::Ok, "all seven in one call"),
        other => {
            let found = finding(rung, Outcome::No, tried(other)).loses(NO_BOX);
            match other {
                Tried::Refused(ENOSPC) => {
                    found.helped_by("lsns --output TYPE,NPROCS,PID,USER,COMMAND")
                }
                _ => found,
            }
        }
    }
}

/// What is done in a box's namespaces and needs no more than them.
fn in_them(seen: &Observed, rung: Rung, what: Tried) -> Finding {
    match what {
        Tried::Worked => finding(rung, Outcome::Ok, "works"),
        Tried::NotTried => finding(rung, Outcome::No, "not tried: no namespaces").loses(NO_BOX),
        Tried::Refused(number) => {
            let no = finding(rung, Outcome::No, errno(number)).loses(NO_BOX);
            let remedy = match number {
                EACCES => in_container(seen, "--security-opt apparmor=unconfined")
                    .unwrap_or_else(|| own_profile(seen)),
                EPERM if rung == Rung::Loopback => own_profile(seen),
                EPERM => in_container(seen, "--security-opt seccomp=unconfined")
                    .unwrap_or_else(|| own_profile(seen)),
                _ => String::new(),
            };
            no.helped_by(remedy)
        }
    }
}

fn overlay(seen: &Observed) -> Finding {
    let lost = "no folder can be granted read-only: a plain bind would let sockets through";
    match seen.overlay {
        Tried::Worked => finding(Rung::Overlay, Outcome::Ok, "works"),
        Tried::Refused(ENODEV) => finding(Rung::Overlay, Outcome::Weaker, "ENODEV: not loaded")
            .loses(lost)
            .helped_by("sudo modprobe overlay"),
        other => finding(Rung::Overlay, Outcome::Weaker, tried(other)).loses(lost),
    }
}

fn proc(seen: &Observed) -> Finding {
    let rung = Rung::Proc;
    let hidepid = match &seen.hidepid {
        Some(value) => format!(", hidepid={value}"),
        None => String::new(),
    };
    match seen.proc {
        Tried::Worked => finding(rung, Outcome::Ok, format!("works{hidepid}")),
        Tried::Refused(EPERM) if !seen.proc_hidden.is_empty() => {
            let hidden = seen.proc_hidden.join(" ");
            let fact = format!("EPERM: parts of the host's own are hidden: {hidden}{hidepid}");
            let remedy = in_container(seen, "--security-opt systempaths=unconfined");
            finding(rung, Outcome::No, fact)
                .loses(NO_BOX)
                .helped_by(remedy.unwrap_or_else(|| "findmnt --submounts /proc".into()))
        }
        Tried::Refused(number) => finding(rung, Outcome::No, format!("{}{hidepid}", errno(number)))
            .loses(NO_BOX)
            .helped_by("findmnt --submounts /proc"),
        Tried::NotTried => finding(rung, Outcome::No, "not tried: no namespaces").loses(NO_BOX),
    }
}

fn tun(seen: &Observed) -> Finding {
    let rung = Rung::Tun;
    let lost = "no gated box: nothing can decide its flows";
    let no = |fact: String| finding(rung, Outcome::Weaker, fact).loses(lost);
    match (seen.tun, seen.tun_mode) {
        (Tried::Worked, _) => finding(rung, Outcome::Ok, "/dev/net/tun works"),
        (_, None) => no("ENOENT: there is no /dev/net/tun".into()).helped_by(
            in_container(seen, "--device /dev/net/tun")
                .unwrap_or_else(|| "sudo modprobe tun".into()),
        ),
        (Tried::Refused(EACCES), Some(mode)) => {
            no(format!("EACCES: /dev/net/tun has mode {mode:04o}")).helped_by(format!(
                "sudo setfacl --modify u:{}:rw /dev/net/tun",
                seen.uid
            ))
        }
        (Tried::Refused(ENOENT | ENODEV), Some(_)) => {
            no("ENODEV: the kernel has no TUN behind it".into()).helped_by("sudo modprobe tun")
        }
        (Tried::Refused(EPERM), Some(_)) => {
            let found = no("EPERM: made but not allowed".into());
            found.helped_by(
                in_container(seen, "--device /dev/net/tun").unwrap_or_else(|| own_profile(seen)),
            )
        }
        (other, _) => no(tried(other)),
    }
}

fn seccomp(seen: &Observed) -> Finding {
    match seen.seccomp {
        Tried::Worked => finding(Rung::Seccomp, Outcome::Ok, "a filter can be loaded"),
        other => finding(Rung::Seccomp, Outcome::No, tried(other))
            .loses("no box at all: none is made without a system call filter"),
    }
}

fn landlock(seen: &Observed) -> Finding {
    let rung = Rung::Landlock;
    match seen.landlock {
        0 => finding(rung, Outcome::Weaker, "none").loses(
            "l1 and l1.5 do not keep abstract sockets, and do not start while a desktop has some",
        ),
        abi if abi < LANDLOCK_ALONE => {
            finding(rung, Outcome::Weaker, format!("ABI {abi}: no scopes")).loses(
                "l1 and l1.5 do not keep abstract sockets, and do not start while a desktop has \
                 some",
            )
        }
        abi if !seen.restrict.worked() => {
            let fact = match seen.restrict {
                Tried::Refused(E2BIG) => format!("ABI {abi}, E2BIG: as many domains as may be"),
                other => format!("ABI {abi}, {}", tried(other)),
            };
            finding(rung, Outcome::Weaker, fact)
                .loses("l1 and l1.5, which are confined by it, and the last of the fallbacks")
        }
        abi => finding(
            rung,
            Outcome::Ok,
            format!("ABI {abi}: files, signals and abstract sockets"),
        ),
    }
}

fn bubblewrap(seen: &Observed) -> Finding {
    let rung = Rung::Bubblewrap;
    let needed = seen.support().namespaces.is_err();
    match &seen.bubblewrap {
        None if needed => finding(rung, Outcome::No, "not installed")
            .loses("a way for l1, l1.5 and l2 where the system lets it make namespaces")
            .helped_by("sudo apt-get install bubblewrap"),
        None => finding(rung, Outcome::Ok, "not installed, not needed"),
        Some(found) => match &found.failed {
            Some(said) => finding(rung, Outcome::No, format!("{}: {said}", found.version))
                .loses("a way for l1, l1.5 and l2"),
            None if needed => finding(rung, Outcome::Weaker, format!("{} works", found.version))
                .loses("no gated box by it, and no read-only folder that keeps sockets out"),
            None => finding(rung, Outcome::Ok, format!("{} works", found.version)),
        },
    }
}

fn cgroup(seen: &Observed) -> Finding {
    let rung = Rung::Cgroup;
    let lost = "limits hold for a process or the user (setrlimit), not for a whole box";
    let scope = "systemd-run --user --scope --property=Delegate=yes bailey node";
    let Some(_) = &seen.cgroup.path else {
        return finding(rung, Outcome::Weaker, "no cgroup v2 for this process").loses(lost);
    };
    if !seen.cgroup.delegated {
        return finding(rung, Outcome::Weaker, "the group is not the user's")
            .loses(lost)
            .helped_by(scope);
    }
    let missing: Vec<&str> = ["cpu", "memory", "pids"]
        .into_iter()
        .filter(|name| !seen.cgroup.controllers.iter().any(|has| has == name))
        .collect();
    if let Tried::Refused(number) = seen.cgroup.made {
        let fact = format!("no group can be made: {}", errno(number));
        return finding(rung, Outcome::Weaker, fact)
            .loses(lost)
            .helped_by(scope);
    }
    if missing.is_empty() {
        return finding(rung, Outcome::Ok, "delegated: cpu memory pids");
    }
    let fact = format!("delegated without {}", missing.join(" "));
    finding(rung, Outcome::Weaker, fact).loses(lost).helped_by(
        "printf '[Service]\\nDelegate=cpu memory pids\\n' | sudo install -D -m 644 /dev/stdin \
         /etc/systemd/system/user@.service.d/bailey.conf && sudo systemctl daemon-reload",
    )
}

fn browser(seen: &Observed) -> Finding {
    let rung = Rung::Browser;
    let lost = "a browser's own sandbox inside a box";
    match (seen.support().namespaces, seen.nested) {
        (Err(failed), _) => finding(
            rung,
            Outcome::Weaker,
            format!("browser box: no, it fails at {failed}"),
        )
        .loses(lost),
        (Ok(()), Tried::Worked) => finding(rung, Outcome::Ok, "browser box: yes"),
        (Ok(()), other) => {
            let why = format!("browser box: no, namespaces inside a box: {}", tried(other));
            finding(rung, Outcome::Weaker, why).loses(lost)
        }
    }
}

fn profiles(seen: &Observed) -> Finding {
    let rung = Rung::Profiles;
    let names: Vec<String> = seen
        .profiles
        .iter()
        .map(|profile| {
            let of = [
                (profile.bwrap, "bwrap"),
                (profile.bailey, "bailey"),
                (profile.userns, "userns"),
            ];
            let words: Vec<&str> = of
                .iter()
                .filter(|(is, _)| *is)
                .map(|(_, word)| *word)
                .collect();
            format!("{} ({})", profile.file, words.join(", "))
        })
        .collect();
    match names.is_empty() {
        true => finding(rung, Outcome::Ok, "none that names bwrap, bailey or userns"),
        false => finding(rung, Outcome::Ok, names.join("; ")),
    }
}

fn confined(seen: &Observed) -> Finding {
    let rung = Rung::Confined;
    let of = &seen.confined;
    let mut held = Vec::new();
    if of.seccomp > 0 {
        held.push(format!("seccomp mode {}", of.seccomp));
    }
    if of.no_new_privs {
        held.push("no new privileges".to_owned());
    }
    held.extend(of.label.as_ref().map(|label| format!("label {label}")));
    held.extend(
        of.container
            .as_ref()
            .map(|kind| format!("container {kind}")),
    );
    if held.is_empty() {
        return finding(rung, Outcome::Ok, "the doctor is not confined itself");
    }
    finding(rung, Outcome::Weaker, held.join(", ")).loses(
        "what was found holds for programs started from here; a terminal of the desktop or ssh \
         may do better",
    )
}

/// Has the node seal its keys when it starts next.
const SEAL_KEYS: &str = "d=${XDG_CONFIG_HOME:-~/.config}/bailey; mkdir -p $d && \
                         printf '[keys]\\nat_rest = \"secret-service\"\\n' >> $d/config.toml";

fn at_rest(keys: &AtRest) -> Finding {
    let rung = Rung::Keys;
    let text = match keys.mode {
        Some(mode) => format!("a file of mode {mode:04o}"),
        None => "a file of mode 0600, not made yet".to_owned(),
    };
    let wide = keys.mode.is_some_and(|mode| mode & 0o077 != 0);
    let word = shell_word(keys.path.as_bytes());
    if wide {
        return finding(rung, Outcome::No, format!("{text}: others read it"))
            .loses("the device's keys: whoever has them is this device")
            .helped_by(format!("chmod 600 {word}"));
    }
    let sealed = "sealed by a key of your Secret Service";
    match (keys.sealed, keys.encrypted) {
        (true, true) => finding(
            rung,
            Outcome::Ok,
            format!("{text}, {sealed}, on an encrypted disk"),
        ),
        (true, false) => finding(
            rung,
            Outcome::Ok,
            format!("{text}, {sealed}: the disk alone does not open it"),
        ),
        (false, true) => finding(rung, Outcome::Ok, format!("{text}, on an encrypted disk")),
        (false, false) => {
            let fact = format!("{text}: anyone with the disk reads it");
            let weaker = finding(rung, Outcome::Weaker, fact)
                .loses("the device's keys and audit, with the disk");
            weaker.helped_by(match keys.service {
                true => SEAL_KEYS,
                false => "lsblk --output NAME,TYPE,FSTYPE,MOUNTPOINTS",
            })
        }
    }
}

fn ipv6(seen: &Observed) -> Finding {
    match seen.ipv6 {
        true => finding(Rung::Ipv6, Outcome::Ok, "the kernel speaks it"),
        false => finding(Rung::Ipv6, Outcome::Weaker, "the kernel does not speak it")
            .loses("boxes have IPv4 alone"),
    }
}

fn ping(seen: &Observed) -> Finding {
    let no = |fact: String| {
        finding(Rung::Ping, Outcome::Weaker, fact).loses("`ping` in a box is refused at once")
    };
    let (gid, groups) = (seen.gid, seen.ping_groups);
    match seen.ping {
        Tried::Worked => finding(Rung::Ping, Outcome::Ok, "a ping socket can be made"),
        Tried::Refused(EACCES) => {
            // Of none, the first is above the last; where groups are mapped, both
            // are nobody. Nobody is put out who is in.
            let (first, last) = match groups {
                Some((first, last)) if first <= last && first != NOBODY => {
                    (first.min(gid), last.max(gid))
                }
                _ => (gid, gid),
            };
            let fact = match groups {
                Some((first, last)) => {
                    format!("EACCES: ping_group_range {first} {last} leaves group {gid} out")
                }
                None => "EACCES".to_owned(),
            };
            // A container's network is its own, and so is the setting there. Anywhere
            // else it is the whole machine's, and those are nobody's to advise.
            let option = format!("--sysctl net.ipv4.ping_group_range='{first} {last}'");
            match in_container(seen, &option) {
                Some(command) => no(fact).helped_by(command),
                None => no(fact).loses(
                    "`ping` in a box is refused at once; no setting is advised, as the one \
                     that there is holds for the whole machine",
                ),
            }
        }
        other => no(tried(other)),
    }
}

fn abstract_sockets(seen: &Observed) -> Finding {
    let rung = Rung::AbstractSockets;
    let scoped = seen.landlock >= LANDLOCK_ALONE;
    match (seen.abstract_sockets.is_empty(), scoped) {
        (true, _) => finding(rung, Outcome::Ok, "none of a desktop"),
        (false, true) => {
            let names = seen.abstract_sockets.join(" ");
            finding(
                rung,
                Outcome::Ok,
                format!("{names}: Landlock keeps boxes from them"),
            )
        }
        (false, false) => {
            let names = seen.abstract_sockets.join(" ");
            finding(
                rung,
                Outcome::No,
                format!("{names}: nothing keeps l1 and l1.5 from them"),
            )
            .loses("l1 and l1.5, while they are there: whoever reaches one types and reads")
            .helped_by("bailey run --tier l2 -- CMD")
        }
    }
}
