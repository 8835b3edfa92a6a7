//! Files that are not the box's to read or write.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::path::Path;

use crate::sys::{is_open, open_at};
use crate::{Attack, Held, Outcome, Through, Untried, why};

pub(crate) const ALL: &[Attack] = &[
    ("read-outside", read_outside),
    ("write-outside", write_outside),
    ("write-read-only", write_read_only),
    ("inherited-folder", inherited_folder),
    ("stdin-folder", stdin_folder),
    ("stdin-file", |_| stdin_file()),
    ("root-of-others", root_of_others),
    ("shared-memory-file", shared_memory_file),
    ("devices", |_| devices()),
    ("hooks", hooks),
    ("ssh-keys", |words| writable(words, ".ssh/authorized_keys")),
    ("start-file", |words| writable(words, ".bashrc")),
    ("start-file-absent", start_file_absent),
];

/// Enough of `..` to be at the root from anywhere.
const UP: &str = "../../../../../../../../../../../..";
/// Descriptors that are looked at.
const MAX_FD: i32 = 1024;

fn holds(file: io::Result<File>, mark: &str) -> Result<(), String> {
    let mut text = String::new();
    let read = file.and_then(|file| file.take(4096).read_to_string(&mut text));
    match read {
        Ok(_) if text.contains(mark) => Ok(()),
        Ok(_) => Err("another file".to_owned()),
        Err(error) => Err(why(&error)),
    }
}

fn judged(result: Result<(), String>, what: &str) -> Outcome {
    match result {
        Ok(()) => Through(what.to_owned()),
        Err(why) => Held(why),
    }
}

fn read_outside(words: &[&str]) -> Outcome {
    let [path, mark] = words else {
        return Untried("want a path and what stands in it".to_owned());
    };
    judged(holds(File::open(path), mark), "read the person's file")
}

/// Accepted is through: it is either written, or lost without a word.
fn write_outside(words: &[&str]) -> Outcome {
    let [path] = words else {
        return Untried("want a path".to_owned());
    };
    let path = Path::new(path);
    let parent = path.parent().unwrap_or(path);
    let made = fs::create_dir_all(parent);
    let mut new = OpenOptions::new();
    let written = made.and_then(|()| new.write(true).create_new(true).open(path));
    match written {
        Ok(_) => {
            let _tidy = fs::remove_file(path);
            Through("the write was accepted".to_owned())
        }
        Err(error) => Held(why(&error)),
    }
}

fn write_read_only(words: &[&str]) -> Outcome {
    let [folder] = words else {
        return Untried("want a folder".to_owned());
    };
    let folder = Path::new(folder);
    if !folder.join("file").exists() {
        return Untried("it is not granted".to_owned());
    }
    let opened = OpenOptions::new().append(true).open(folder.join("file"));
    let new = folder.join("new");
    let made = OpenOptions::new().write(true).create_new(true).open(&new);
    match (opened, made) {
        (Err(one), Err(_)) => Held(why(&one)),
        (_, made) => {
            if made.is_ok() {
                let _tidy = fs::remove_file(new);
            }
            Through("opened for writing".to_owned())
        }
    }
}

/// Whether something the caller left open leads out.
fn inherited_folder(words: &[&str]) -> Outcome {
    let [path, mark] = words else {
        return Untried("want a path and what stands in it".to_owned());
    };
    let mut open = 0;
    for fd in (3..MAX_FD).filter(|fd| is_open(*fd)) {
        open += 1;
        if outwards(fd, path, mark).is_ok() {
            return Through(format!("by way of descriptor {fd}"));
        }
    }
    Held(format!("{open} descriptors, none leads there"))
}

fn stdin_folder(words: &[&str]) -> Outcome {
    let [path, mark] = words else {
        return Untried("want a path and what stands in it".to_owned());
    };
    judged(outwards(0, path, mark), "by way of the standard input")
}

fn outwards(fd: i32, path: &str, mark: &str) -> Result<(), String> {
    let path = CString::new(format!("{UP}{path}")).map_err(|error| error.to_string())?;
    holds(open_at(fd, &path), mark)
}

/// Whether a file that was opened to be read can be written.
fn stdin_file() -> Outcome {
    let link = Path::new("/proc/self/fd/0");
    match fs::metadata(link) {
        Ok(meta) if !meta.is_file() => return Held("it is not the caller's file".to_owned()),
        Ok(_) => {}
        Err(error) => return Untried(why(&error)),
    }
    match OpenOptions::new().append(true).open(link) {
        Ok(_) => Through("the caller's file is open for writing".to_owned()),
        Err(error) => Held(why(&error)),
    }
}

/// The file by way of any other process's root or working folder.
fn root_of_others(words: &[&str]) -> Outcome {
    let [path, mark] = words else {
        return Untried("want a path and what stands in it".to_owned());
    };
    let Ok(entries) = fs::read_dir("/proc") else {
        return Untried("no /proc".to_owned());
    };
    let own = std::process::id().to_string();
    let mut seen = 0;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.bytes().all(|byte| byte.is_ascii_digit()) || name == own {
            continue;
        }
        seen += 1;
        for way in ["root", "cwd/../../../../../../../.."] {
            let there = entry.path().join(way).join(path.trim_start_matches('/'));
            if holds(File::open(there), mark).is_ok() {
                return Through(format!("by way of process {name}"));
            }
        }
    }
    Held(format!("{seen} other processes, none leads there"))
}

fn shared_memory_file(words: &[&str]) -> Outcome {
    let [mark] = words else {
        return Untried("want its name".to_owned());
    };
    let file = File::open(Path::new("/dev/shm").join(mark));
    judged(holds(file, mark), "read /dev/shm of the machine")
}

/// Device nodes beside those that every program needs.
fn devices() -> Outcome {
    let nodes = [
        "/dev/net/tun",
        "/dev/fuse",
        "/dev/kvm",
        "/dev/vsock",
        "/dev/vhost-vsock",
        "/dev/vhost-net",
        "/dev/kmsg",
        "/dev/mem",
        "/dev/userfaultfd",
        "/dev/ptp0",
        "/dev/loop-control",
        "/dev/dri/renderD128",
        "/dev/uinput",
    ];
    let opens = |node: &&&str| OpenOptions::new().read(true).write(true).open(node).is_ok();
    let opened: Vec<&str> = nodes.iter().filter(opens).copied().collect();
    if opened.is_empty() {
        Held("none".to_owned())
    } else {
        Through(opened.join(", "))
    }
}

/// What git runs on the person's next commit: the files, and the folder itself.
fn hooks(words: &[&str]) -> Outcome {
    let [folder] = words else {
        return Untried("want a folder".to_owned());
    };
    let git = Path::new(folder).join(".git");
    let hook = git.join("hooks/pre-commit");
    for file in [&hook, &git.join("config")] {
        if OpenOptions::new().append(true).open(file).is_ok() {
            return Through(format!("{} is writable", file.display()));
        }
    }
    // By it git finds its configuration and hooks elsewhere.
    let common = git.join("commondir");
    if fs::write(&common, ".\n").is_ok() {
        let _back = fs::remove_file(&common);
        return Through(format!("{} can be made", common.display()));
    }
    let (old, new) = (git.join("hooks"), git.join("hooks-moved"));
    let error = match fs::rename(&old, &new) {
        Ok(()) => {
            let _back = fs::rename(&new, &old);
            return Through("the folder of hooks can be replaced".to_owned());
        }
        Err(error) => error,
    };
    let (old, new) = (
        Path::new(folder).join(".git"),
        Path::new(folder).join("moved"),
    );
    if fs::rename(&old, &new).is_ok() {
        let _back = fs::rename(&new, &old);
        return Through("the repository can be replaced".to_owned());
    }
    Held(why(&error))
}

fn writable(words: &[&str], name: &str) -> Outcome {
    let [folder] = words else {
        return Untried("want a folder".to_owned());
    };
    let path = Path::new(folder).join(name);
    let opened = OpenOptions::new().append(true).open(&path);
    let Err(error) = opened else {
        return Through("open for writing".to_owned());
    };
    let aside = Path::new(folder).join("aside");
    if fs::rename(&path, &aside).is_ok() {
        let _back = fs::rename(&aside, &path);
        return Through("it can be replaced".to_owned());
    }
    match error.raw_os_error() {
        Some(libc::ENOENT) => Untried("it is not there".to_owned()),
        _ => Held(why(&error)),
    }
}

/// A start file where there was none.
fn start_file_absent(words: &[&str]) -> Outcome {
    let [folder] = words else {
        return Untried("want a folder".to_owned());
    };
    let path = Path::new(folder).join(".zshenv");
    match OpenOptions::new().write(true).create_new(true).open(&path) {
        Ok(_) => {
            let _tidy = fs::remove_file(path);
            Through("made one".to_owned())
        }
        Err(error) => Held(why(&error)),
    }
}
