//! Where the built programs are.

use std::fs::{self, Permissions};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::unistd::geteuid;

/// The programs that tests start.
const PROGRAMS: [&str; 11] = [
    "bailey",
    "bailey-attack",
    "bailey-bench",
    "bailey-fence",
    "bailey-gate",
    "bailey-helper",
    "bailey-mailbox",
    "bailey-member",
    "bailey-node",
    "bailey-quic",
    "bailey-world",
];

/// Folders of copies start with this, in `/tmp`.
const COPIES: &str = "bailey-bin-";

/// The folder that holds the programs, readable by the user of a world's nodes.
///
/// They are looked for beside the running test, where `cargo build` put them
/// with the same profile. Where the running user is root and the way to them is
/// closed to others, they are copied once to a folder that is not.
///
/// # Panics
/// A program is missing: the message says what to type.
pub fn binaries() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| find_binaries().unwrap_or_else(|problem| panic!("{problem}")))
}

/// The same, with the problem as a value.
///
/// # Errors
/// What is missing, and what to type.
pub fn find_binaries() -> Result<PathBuf, String> {
    let built = built().map_err(|error| format!("where is this program? {error}"))?;
    let missing: Vec<&str> = PROGRAMS
        .into_iter()
        .filter(|program| !built.join(program).is_file())
        .collect();
    if !missing.is_empty() {
        return Err(format!(
            "{} is missing in {}: these tests start the real programs, so build them first, \
             with the same profile: `cargo build --profile ci --workspace --bins` (or `make test`)",
            missing.join(", "),
            built.display()
        ));
    }
    if !geteuid().is_root() || open_to_all(&built) {
        return Ok(built);
    }
    copy(&built).map_err(|error| format!("copy the programs out of {}: {error}", built.display()))
}

/// The profile's folder: a test runs from `deps` in it, the bench from itself.
fn built() -> io::Result<PathBuf> {
    let exe = std::env::current_exe()?;
    let folder = exe.parent().ok_or(io::ErrorKind::NotFound)?;
    let profile = if folder.ends_with("deps") {
        folder.parent()
    } else {
        Some(folder)
    };
    Ok(profile.ok_or(io::ErrorKind::NotFound)?.to_path_buf())
}

/// Whether every user can pass to the programs, read and execute them.
fn open_to_all(built: &Path) -> bool {
    let has = |path: &Path, bits: u32| {
        fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & bits == bits)
    };
    built.ancestors().all(|folder| has(folder, 0o001))
        && PROGRAMS
            .iter()
            .all(|program| has(&built.join(program), 0o005))
}

/// Copies the programs, unless these very ones have been copied already; older
/// copies from the same place are removed.
fn copy(built: &Path) -> io::Result<PathBuf> {
    let mut place = DefaultHasher::new();
    built.hash(&mut place);
    let mut state = DefaultHasher::new();
    for program in PROGRAMS {
        let meta = fs::metadata(built.join(program))?;
        (meta.len(), meta.mtime(), meta.mtime_nsec()).hash(&mut state);
    }
    let prefix = format!("{COPIES}{:016x}-", place.finish());
    let name = format!("{prefix}{:016x}", state.finish());
    let parent = Path::new("/tmp");
    let target = parent.join(&name);
    if owned_by_root(&target) {
        return Ok(target);
    }

    // Under a name of its own first: another test may be doing the same.
    let making = parent.join(format!("{name}.{}", std::process::id()));
    fs::create_dir(&making)?;
    for program in PROGRAMS {
        fs::copy(built.join(program), making.join(program))?;
        fs::set_permissions(making.join(program), Permissions::from_mode(0o755))?;
    }
    fs::set_permissions(&making, Permissions::from_mode(0o755))?;
    if let Err(error) = fs::rename(&making, &target) {
        fs::remove_dir_all(&making)?;
        if !owned_by_root(&target) {
            return Err(error);
        }
    }
    remove_older(parent, &prefix, &name);
    Ok(target)
}

/// `/tmp` is everybody's: a folder of another user is not ours to run from.
fn owned_by_root(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir() && meta.uid() == 0)
}

fn remove_older(parent: &Path, prefix: &str, keep: &str) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(prefix) && !name.starts_with(keep) {
            // Another run that starts at this moment may be first.
            let _gone = fs::remove_dir_all(entry.path());
        }
    }
}
