//! The graphics processor as a grant: its render nodes, which draw and compute
//! and set no screen, and what of `/sys` a driver reads to know its device.

use crate::SetupOp;
use crate::channel::BoxSpec;

/// The folder of the nodes.
pub const FOLDER: &str = "/dev/dri";
/// How a render node is called, before its number (drm(7)). Its neighbours
/// (`card0`) set modes, and are never shown.
const NAME: &str = "renderD";
/// Most digits of that number.
const MAX_DIGITS: usize = 3;
/// Most nodes of one box.
pub const MAX_NODES: usize = 16;
/// Where the kernel describes devices.
const DEVICES: &str = "/sys/devices/";

/// A render node of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderNode {
    /// Its name in [`FOLDER`].
    pub name: String,
    /// Its device number.
    pub number: (u32, u32),
    /// The text of `/sys/dev/char/MAJOR:MINOR`, where that is a link.
    pub described: Option<String>,
}

/// Whether an entry of [`FOLDER`] is a render node by its name.
#[must_use]
pub fn is_render_node(name: &str) -> bool {
    name.strip_prefix(NAME).is_some_and(|number| {
        (1..=MAX_DIGITS).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit())
    })
}

/// The link by which a driver finds what describes a device.
#[must_use]
pub fn link((major, minor): (u32, u32)) -> String {
    format!("/sys/dev/char/{major}:{minor}")
}

pub(crate) fn ops(spec: &BoxSpec, nodes: &[RenderNode]) -> Vec<SetupOp> {
    let mut ops = Vec::new();
    let mut shown: Vec<String> = Vec::new();
    for node in nodes.iter().filter(|_| spec.gpu) {
        ops.push(SetupOp::RenderNode {
            at: format!("{FOLDER}/{}", node.name).into_bytes(),
        });
        let Some(folder) = device(node) else { continue };
        ops.push(SetupOp::Symlink {
            at: link(node.number).into_bytes(),
            target: node.described.clone().unwrap_or_default().into_bytes(),
        });
        // Two nodes of one device, or one device below another's folder.
        let below = |outer: &String| folder == *outer || folder.starts_with(&format!("{outer}/"));
        if !shown.iter().any(below) {
            ops.push(SetupOp::DeviceFolder {
                at: folder.clone().into_bytes(),
            });
            shown.push(folder);
        }
    }
    ops
}

/// The folder of the device whose node it is: of `…/0000:00:02.0/drm/renderD128`
/// the part before `drm`. What is described in any other way is not shown.
fn device(node: &RenderNode) -> Option<String> {
    let path = node.described.as_deref()?.strip_prefix("../../devices/")?;
    let rest = path.strip_suffix(&node.name)?.strip_suffix("/drm/")?;
    let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    let mut parts: Vec<&str> = rest.split('/').collect();
    if !parts.iter().all(|part| plain(part)) {
        return None;
    }
    // A paravirtual device describes itself by the one that carries it.
    if parts.last().is_some_and(|part| part.starts_with("virtio")) {
        parts.pop();
    }
    // A bus or all virtual devices is more than one device.
    (parts.len() >= 2 && parts.first() != Some(&"virtual"))
        .then(|| format!("{DEVICES}{}", parts.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(described: &str) -> RenderNode {
        RenderNode {
            name: "renderD128".into(),
            number: (226, 128),
            described: Some(described.to_owned()),
        }
    }

    #[test]
    fn only_render_nodes_are_granted() {
        for name in ["renderD128", "renderD0"] {
            assert!(is_render_node(name));
        }
        for name in [
            "card0",
            "renderD",
            "renderD1280",
            "renderD12x",
            "by-path",
            "renderD+1",
        ] {
            assert!(!is_render_node(name), "{name}");
        }
    }

    #[test]
    fn a_node_is_described_by_the_folder_of_its_own_device() {
        let of = |path: &str| device(&node(&format!("../../devices/{path}")));
        assert_eq!(
            of("pci0000:00/0000:00:02.0/drm/renderD128").unwrap(),
            "/sys/devices/pci0000:00/0000:00:02.0"
        );
        assert_eq!(
            of("pci0000:00/0000:00:01.0/virtio0/drm/renderD128").unwrap(),
            "/sys/devices/pci0000:00/0000:00:01.0"
        );
        assert_eq!(
            of("platform/vgem/drm/renderD128").unwrap(),
            "/sys/devices/platform/vgem"
        );
        for wrong in [
            "virtual/mem/null",
            "virtual/drm/renderD128",
            "pci0000:00/drm/renderD128",
            "pci0000:00/0000:00:02.0/drm/renderD129",
            "pci0000:00/../../../etc/drm/renderD128",
            "pci0000:00//drm/renderD128",
            "drm/renderD128",
        ] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
        assert_eq!(device(&node("/etc/pci/0/drm/renderD128")), None);
    }
}
