//! Other people's readers of what bailey writes.

use std::path::PathBuf;

/// The Python that has them, where `.ci/readers` could make one: beside the folder of
/// the profile that this test was built with.
#[must_use]
pub fn readers() -> Option<PathBuf> {
    let exe = std::env::current_exe().ok()?;
    let mut folders = exe.ancestors().map(|folder| folder.join("readers"));
    let found = folders.find(|folder| folder.join("packages").is_file())?;
    Some(found.join("bin/python"))
}
