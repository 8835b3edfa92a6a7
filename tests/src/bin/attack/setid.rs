//! Set-id programs that outlive the box in a folder that it may write.

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::sys::{Arg, HERE, call};
use crate::{Attack, Held, Outcome, Through, Untried, why};

pub(crate) const ALL: &[Attack] = &[("set-id-bits", every_way)];

const MODE: u64 = 0o4755;
const O_CREAT: u64 = 0o100;
const O_WRONLY: u64 = 1;
#[cfg(target_arch = "x86_64")]
const O_TMPFILE: u64 = 0o20_200_000;
#[cfg(not(target_arch = "x86_64"))]
const O_TMPFILE: u64 = 0o20_040_000;

/// The ways to such a file: each is given a path, and is judged by what is there
/// then.
fn every_way(words: &[&str]) -> Outcome {
    let Some(folder) = words.first() else {
        return Untried("no folder".to_owned());
    };
    let mut made = Vec::new();
    let mut tried = 0;
    for (name, new, way) in WAYS {
        let path = Path::new(folder).join(format!("set-id-{name}"));
        let _old = fs::remove_file(&path);
        if !*new && let Err(error) = fs::write(&path, "") {
            return Untried(why(&error));
        }
        let Ok(text) = CString::new(path.as_os_str().as_encoded_bytes()) else {
            continue;
        };
        tried += 1;
        way(&text);
        let mode = fs::symlink_metadata(&path).map_or(0, |meta| meta.permissions().mode());
        if mode & 0o6000 != 0 {
            made.push(*name);
        }
        let _gone = fs::remove_file(&path);
    }
    if made.is_empty() {
        Held(format!("none of {tried} ways"))
    } else {
        Through(format!("by {}", made.join(", ")))
    }
}

/// Name, whether the file is made by it, the way.
type Way = (&'static str, bool, fn(&CString));

fn number(value: u64) -> Arg<'static> {
    Arg::Number(value)
}

const WAYS: &[Way] = &[
    #[cfg(target_arch = "x86_64")]
    ("chmod", false, |path| {
        let _tried = call(libc::SYS_chmod, &mut [Arg::Text(path), number(MODE)]);
    }),
    ("group", false, |path| {
        let _tried = call(
            libc::SYS_fchmodat,
            &mut [number(HERE), Arg::Text(path), number(0o2755)],
        );
    }),
    ("fchmod", false, |path| {
        let flags = O_WRONLY;
        let opened = call(
            libc::SYS_openat,
            &mut [number(HERE), Arg::Text(path), number(flags)],
        );
        let fd = opened.map_or(u64::MAX, i64::cast_unsigned);
        let _tried = call(libc::SYS_fchmod, &mut [number(fd), number(MODE)]);
        let _closed = call(libc::SYS_close, &mut [number(fd)]);
    }),
    ("fchmodat", false, |path| {
        let _tried = call(
            libc::SYS_fchmodat,
            &mut [number(HERE), Arg::Text(path), number(MODE)],
        );
    }),
    ("fchmodat2", false, |path| {
        let args = &mut [number(HERE), Arg::Text(path), number(MODE), number(0)];
        let _tried = call(452, args);
    }),
    #[cfg(target_arch = "x86_64")]
    ("open", true, |path| {
        let args = &mut [Arg::Text(path), number(O_CREAT | O_WRONLY), number(MODE)];
        let _tried = call(libc::SYS_open, args);
    }),
    ("openat", true, |path| {
        let args = &mut [
            number(HERE),
            Arg::Text(path),
            number(O_CREAT | O_WRONLY),
            number(MODE),
        ];
        let _tried = call(libc::SYS_openat, args);
    }),
    ("openat2", true, |path| {
        let mut how = [0_u8; 24];
        how[..8].copy_from_slice(&(O_CREAT | O_WRONLY).to_ne_bytes());
        how[8..16].copy_from_slice(&MODE.to_ne_bytes());
        let args = &mut [
            number(HERE),
            Arg::Text(path),
            Arg::Bytes(&mut how),
            number(24),
        ];
        let _tried = call(libc::SYS_openat2, args);
    }),
    #[cfg(target_arch = "x86_64")]
    ("creat", true, |path| {
        let _tried = call(libc::SYS_creat, &mut [Arg::Text(path), number(MODE)]);
    }),
    #[cfg(target_arch = "x86_64")]
    ("mknod", true, |path| {
        let args = &mut [Arg::Text(path), number(0o100_000 | MODE), number(0)];
        let _tried = call(libc::SYS_mknod, args);
    }),
    ("mknodat", true, |path| {
        let args = &mut [
            number(HERE),
            Arg::Text(path),
            number(0o100_000 | MODE),
            number(0),
        ];
        let _tried = call(libc::SYS_mknodat, args);
    }),
    // A nameless file that is given its name afterwards.
    ("tmpfile", true, |path| {
        let folder = Path::new(path.to_str().unwrap_or_default());
        let folder = folder.parent().unwrap_or(folder).as_os_str();
        let Ok(folder) = CString::new(folder.as_encoded_bytes()) else {
            return;
        };
        let args = &mut [
            number(HERE),
            Arg::Text(&folder),
            number(O_TMPFILE | O_WRONLY),
            number(MODE),
        ];
        let Ok(fd) = call(libc::SYS_openat, args) else {
            return;
        };
        let Ok(from) = CString::new(format!("/proc/self/fd/{fd}")) else {
            return;
        };
        let args = &mut [
            number(HERE),
            Arg::Text(&from),
            number(HERE),
            Arg::Text(path),
            number(0x400),
        ];
        let _tried = call(libc::SYS_linkat, args);
    }),
];
