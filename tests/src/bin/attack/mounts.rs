//! What holds as long as it is mounted: names that are covered in a writable
//! folder.

use std::ffi::CStr;
use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::Path;

use crate::sys::{Arg, call};
use crate::{Attack, Held, Outcome, Through, Untried, errno};

pub(crate) const ALL: &[Attack] = &[("uncover", uncover)];

/// New namespaces of users and of mounts.
const NAMESPACES: u64 = 0x1000_0000 | 0x0002_0000;
/// Recursive and private.
const PRIVATE: u64 = 0x4000 | 0x4_0000;
const DETACH: u64 = 2;
/// What is covered in the folder, and a name beside it that is not.
const COVERED: [&CStr; 3] = [c".bashrc", c".git", c".ssh"];
const ASIDE: &CStr = c"uncovered";

/// The kernel lets nobody rename what something is mounted on, in the mount
/// namespace of who asks. In another one, where nothing is mounted there, a
/// descriptor of the folder reaches the same names.
fn uncover(words: &[&str]) -> Outcome {
    let [folder] = words else {
        return Untried("want a folder".to_owned());
    };
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    if let Err(number) = call(libc::SYS_unshare, &mut [Arg::Number(NAMESPACES)]) {
        return Held(format!("unshare: {}", errno(number)));
    }
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("0 {uid} 1\n")),
        ("gid_map", format!("0 {gid} 1\n")),
    ] {
        if let Err(error) = fs::write(Path::new("/proc/self").join(file), text) {
            return Held(format!("{file}: {error}"));
        }
    }
    let folder = match File::open(folder) {
        Ok(folder) => folder,
        Err(error) => return Untried(format!("{folder}: {error}")),
    };
    if let Err((what, number)) = leave_all_mounts() {
        return Held(format!("{what}: {}", errno(number)));
    }
    replace(&folder)
}

/// Goes where nothing is mounted but an empty folder.
fn leave_all_mounts() -> Result<(), (&'static str, i32)> {
    let none = || Arg::Number(0);
    let steps: &mut [(&str, libc::c_long, &mut [Arg<'_>])] = &mut [
        (
            "make private",
            libc::SYS_mount,
            &mut [
                none(),
                Arg::Text(c"/"),
                none(),
                Arg::Number(PRIVATE),
                none(),
            ],
        ),
        (
            "mount",
            libc::SYS_mount,
            &mut [
                Arg::Text(c"none"),
                Arg::Text(c"/tmp"),
                Arg::Text(c"tmpfs"),
                none(),
                none(),
            ],
        ),
        ("chdir", libc::SYS_chdir, &mut [Arg::Text(c"/tmp")]),
        (
            "mkdirat",
            libc::SYS_mkdirat,
            &mut [
                Arg::Number(crate::sys::HERE),
                Arg::Text(c"old"),
                Arg::Number(0o700),
            ],
        ),
        (
            "pivot_root",
            libc::SYS_pivot_root,
            &mut [Arg::Text(c"."), Arg::Text(c"old")],
        ),
        (
            "umount2",
            libc::SYS_umount2,
            &mut [Arg::Text(c"/old"), Arg::Number(DETACH)],
        ),
    ];
    for (what, number, args) in steps {
        call(*number, args).map_err(|number| (*what, number))?;
    }
    Ok(())
}

/// Renames the covered names, and back.
fn replace(folder: &File) -> Outcome {
    let mut refused = 0;
    for name in COVERED {
        match rename(folder, name, ASIDE) {
            Ok(()) => {
                let _back = rename(folder, ASIDE, name);
                return Through(format!("{} can be replaced", name.to_string_lossy()));
            }
            Err(number) => refused = number,
        }
    }
    Held(format!("renameat: {}", errno(refused)))
}

fn rename(folder: &File, from: &CStr, to: &CStr) -> Result<(), i32> {
    let at = || Arg::Number(u64::from(folder.as_raw_fd().unsigned_abs()));
    let args = &mut [at(), Arg::Text(from), at(), Arg::Text(to), Arg::Number(0)];
    call(libc::SYS_renameat2, args).map(drop)
}
