//! Image `host`: the host's own programs, and the few files that they read.

use std::net::{IpAddr, Ipv4Addr};

use bailey_model::link;

use crate::SetupOp;
use crate::channel::BoxSpec;
use crate::facts::{EntryKind, HostEntry};

/// The programs. All but `/usr` are links into it on a merged system.
const PROGRAMS: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/gnu/store",
];

/// What programs read of `/etc`. Nothing that names users, machines, networks
/// or secrets: those files are written by us, or are not there.
const ETC: &[&str] = &[
    // The dynamic linker.
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    // Which program a generic name is.
    "/etc/alternatives",
    // Certificates of public authorities, not the private keys beside them.
    "/etc/ssl/certs",
    "/etc/ssl/cert.pem",
    "/etc/ssl/openssl.cnf",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/openssl.cnf",
    "/etc/pki/ca-trust/extracted",
    "/etc/crypto-policies",
    // Time, names of types, protocols and ports; address order.
    "/etc/localtime",
    "/etc/timezone",
    "/etc/mime.types",
    "/etc/protocols",
    "/etc/services",
    "/etc/gai.conf",
    // Fonts, and what interactive shells and pagers expect.
    "/etc/fonts",
    "/etc/inputrc",
    "/etc/terminfo",
    "/etc/locale.alias",
    "/etc/magic",
];

/// Host paths whose existence and kind a plan needs.
pub fn looked_at() -> impl Iterator<Item = &'static str> {
    PROGRAMS.iter().chain(ETC).copied()
}

/// Shows an entry of the host as it is there: a link stays a link, so that it
/// leads to the same name in the box.
pub(crate) fn show(entry: &HostEntry) -> Option<SetupOp> {
    match &entry.kind {
        EntryKind::Dir | EntryKind::File => Some(SetupOp::Image { at: entry.path }),
        EntryKind::Symlink(target) => Some(SetupOp::Symlink {
            at: entry.path.as_bytes().to_vec(),
            target: target.clone(),
        }),
        EntryKind::Other => None,
    }
}

/// The files of `/etc` that are the box's own.
pub(crate) fn own_files(spec: &BoxSpec) -> Vec<SetupOp> {
    let home = String::from_utf8_lossy(&spec.home).into_owned();
    let (uid, gid, name) = (spec.uid, spec.gid, &spec.hostname);
    let gate = IpAddr::V4(link::GATE_V4);
    let here = Ipv4Addr::LOCALHOST;
    let texts = [
        (
            "/etc/passwd",
            format!(
                "box:x:{uid}:{gid}:box:{home}:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
            ),
        ),
        ("/etc/group", format!("box:x:{gid}:\nnogroup:x:65534:\n")),
        (
            "/etc/hosts",
            format!("{here} localhost {name}\n::1 localhost ip6-localhost\n"),
        ),
        ("/etc/hostname", format!("{name}\n")),
        ("/etc/resolv.conf", format!("nameserver {gate}\n")),
        (
            "/etc/nsswitch.conf",
            "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n\
             protocols: files\nservices: files\n"
                .to_owned(),
        ),
    ];
    texts
        .into_iter()
        .map(|(at, text)| SetupOp::File {
            at: at.into(),
            contents: text.into_bytes(),
        })
        .collect()
}
