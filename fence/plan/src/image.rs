//! Image `host`: the host's own programs, and the few files that they read.

use std::net::{IpAddr, Ipv4Addr};

use bailey_model::{Tier, link};

use crate::SetupOp;
use crate::channel::BoxSpec;
use crate::facts::{EntryKind, HostEntry, HostFacts};

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
    // Without them Debian's start script of Chromium stops. Only what the
    // package brings: beside it lie keys, and what an administrator orders.
    "/etc/chromium.d/README",
    "/etc/chromium.d/default-flags",
    "/etc/chromium.d/dev-shm",
    "/etc/chromium.d/extensions",
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
pub(crate) fn show(entry: &HostEntry, read_only: bool) -> Option<SetupOp> {
    match &entry.kind {
        EntryKind::Dir | EntryKind::File => Some(SetupOp::Image {
            at: entry.path.to_owned(),
            read_only,
        }),
        EntryKind::Symlink(target) => Some(SetupOp::Symlink {
            at: entry.path.as_bytes().to_vec(),
            target: target.clone(),
        }),
        EntryKind::Other => None,
    }
}

/// The files of `/etc` that are the box's own.
pub(crate) fn own_files(spec: &BoxSpec, facts: &HostFacts) -> Vec<SetupOp> {
    let home = String::from_utf8_lossy(&spec.home).into_owned();
    let (uid, gid, name) = (spec.uid, spec.gid, &spec.hostname);
    let services = if spec.tier == Tier::L2 {
        "files"
    } else {
        "files dns"
    };
    let texts = [
        (
            "/etc/passwd",
            format!(
                "box:x:{uid}:{gid}:box:{home}:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
            )
            .into_bytes(),
        ),
        (
            "/etc/group",
            format!("box:x:{gid}:\nnogroup:x:65534:\n").into_bytes(),
        ),
        ("/etc/hosts", hosts(spec, facts)),
        ("/etc/hostname", format!("{name}\n").into_bytes()),
        ("/etc/resolv.conf", resolvers(spec, facts)),
        (
            "/etc/nsswitch.conf",
            format!(
                "passwd: files\ngroup: files\nshadow: files\nhosts: {services}\n\
                 networks: files\nprotocols: files\nservices: files\n"
            )
            .into_bytes(),
        ),
    ];
    texts
        .into_iter()
        .map(|(at, contents)| SetupOp::File {
            at: at.into(),
            contents,
        })
        .collect()
}

/// Where the host's network is shared, its names are too: as copies, so that
/// nothing of the host's is open for the box, and a change of the host's is not
/// followed by a box that runs.
fn hosts(spec: &BoxSpec, facts: &HostFacts) -> Vec<u8> {
    let (here, name) = (Ipv4Addr::LOCALHOST, &spec.hostname);
    let own = format!("{here} localhost {name}\n::1 localhost ip6-localhost\n").into_bytes();
    if spec.tier.shares_network() {
        [own, facts.names.hosts.clone()].concat()
    } else {
        own
    }
}

/// Without a network nobody is asked: the resolver's default, the box's own
/// loopback, refuses at once.
fn resolvers(spec: &BoxSpec, facts: &HostFacts) -> Vec<u8> {
    match spec.tier {
        Tier::L1 | Tier::L15 => facts.names.resolvers.clone(),
        Tier::L2 => Vec::new(),
        Tier::Gated => format!("nameserver {}\n", IpAddr::V4(link::GATE_V4)).into_bytes(),
    }
}
