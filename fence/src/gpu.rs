//! Which render nodes the host has, and what of them a box can open.

use bailey_fence_plan::channel::BoxSpec;
use bailey_fence_plan::gpu::{self, FOLDER, MAX_NODES, RenderNode};
use bailey_model::{Axis, BoxClass, Fact};
use rustix::fs::{Access, AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::fs::{access, major, minor, openat, readlinkat, statat};
use rustix::io::Errno;

use crate::step::StepError;

/// Drivers of render nodes that no hardware is behind.
const IMITATIONS: [&str; 2] = ["vgem", "vkms"];

/// The render nodes of the host that this user may open.
pub(crate) fn nodes() -> Result<Vec<RenderNode>, StepError> {
    let mut nodes = Vec::new();
    for name in names()? {
        let path = format!("{FOLDER}/{name}");
        let Ok(found) = statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        let device = FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice;
        if !device || access(&path, Access::READ_OK | Access::WRITE_OK).is_err() {
            continue;
        }
        let number = (major(found.st_rdev), minor(found.st_rdev));
        let described = readlinkat(CWD, gpu::link(number), Vec::new()).ok();
        nodes.push(RenderNode {
            name,
            number,
            described: described.and_then(|text| text.into_string().ok()),
        });
    }
    Ok(nodes)
}

/// Names of render nodes here, in order.
fn names() -> Result<Vec<String>, StepError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = match openat(CWD, FOLDER, flags, Mode::empty()) {
        Ok(folder) => folder,
        Err(Errno::NOENT | Errno::ACCESS) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut names = Vec::new();
    for entry in Dir::new(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if gpu::is_render_node(&name) {
            names.push(name);
        }
    }
    names.sort();
    names.truncate(MAX_NODES);
    Ok(names)
}

/// Tries, inside the box, whether anything there can draw in hardware. Whoever
/// draws without a render node draws in software, whatever the page is told.
pub(crate) fn measure(spec: &BoxSpec) -> Option<(Axis, Fact)> {
    if spec.class == BoxClass::Plain && spec.display.is_none() && !spec.gpu {
        return None;
    }
    let opened: Vec<String> = names()
        .unwrap_or_default()
        .into_iter()
        .map(try_node)
        .collect();
    let got = if opened.is_empty() {
        "software: no render node".to_owned()
    } else {
        opened.join(", ")
    };
    let fact = Fact {
        what: "gpu".to_owned(),
        got,
        held: None,
    };
    Some((Axis::Files, fact))
}

fn try_node(name: String) -> String {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = openat(CWD, format!("{FOLDER}/{name}"), flags, Mode::empty());
    let found = opened.and_then(|node| rustix::fs::fstat(&node));
    let found = match found {
        Ok(found) => found,
        Err(errno) => return format!("software: {name}: {}", std::io::Error::from(errno)),
    };
    let link = gpu::link((major(found.st_rdev), minor(found.st_rdev)));
    let driver = readlinkat(CWD, format!("{link}/device/driver"), Vec::new());
    let driver = driver.ok().and_then(|path| path.into_string().ok());
    let driver = driver.as_deref().and_then(|path| path.rsplit('/').next());
    match driver {
        Some(driver) if IMITATIONS.contains(&driver) => format!("software: {name} ({driver})"),
        Some(driver) => format!("hardware: {name} ({driver})"),
        None => format!("hardware: {name} (driver unknown)"),
    }
}
