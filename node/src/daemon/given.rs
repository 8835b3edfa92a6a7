//! What of the host a box is given at its start, and the entries that it starts.

use std::os::fd::OwnedFd;

use bailey_docs_store::{DocId, Urgency};
use bailey_model::{AuditHere, BoxGranted, BoxStarted, ChangedBy, Event, GrantKind};
use rustix::fs::FileType;

use super::event::RunId;
use super::run_state::listed;
use super::store::{Entering, Tag};
use super::{Node, bounds};
use crate::api::GrantAsk;

/// How the graphics processor is written.
const GPU: &str = "gpu";

/// One thing that a box is given, before the box has an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Given {
    written: String,
    path: String,
    kind: GrantKind,
    write: bool,
}

/// What a question grants, by what its descriptors hold.
pub(super) fn of(
    grants: &[GrantAsk],
    gpu: bool,
    held: &[OwnedFd],
) -> rustix::io::Result<Vec<Given>> {
    let text = |bytes: &[u8]| bounds::path(String::from_utf8_lossy(bytes).into_owned());
    let pairs = grants.iter().zip(held);
    let paths = pairs.map(|(grant, fd)| {
        let mode = rustix::fs::fstat(fd)?.st_mode;
        Ok(Given {
            written: text(&grant.written),
            path: text(&grant.path),
            kind: match FileType::from_raw_mode(mode) {
                FileType::Directory => GrantKind::Folder,
                FileType::Socket | FileType::Fifo => GrantKind::Socket,
                FileType::CharacterDevice | FileType::BlockDevice => GrantKind::Device,
                _ => GrantKind::File,
            },
            write: !grant.read_only,
        })
    });
    let gpu = gpu.then(|| Given {
        written: GPU.to_owned(),
        path: String::new(),
        kind: GrantKind::Device,
        write: true,
    });
    paths.chain(gpu.map(Ok)).collect()
}

impl Node {
    /// Enters that a run starts and what it is given, in one commit: the node's word of
    /// it, then the box's own.
    pub(super) fn enter_start(
        &mut self,
        id: RunId,
        (doc, here): (DocId, bool),
        started: BoxStarted,
        given: Vec<Given>,
    ) {
        let (box_id, incarnation) = (started.box_id, started.incarnation);
        // What a person granted is on the disk before anything uses it.
        let urgency = match given.is_empty() {
            true => Urgency::Prompt,
            false => Urgency::Urgent,
        };
        let granted = |it: Given| {
            Event::Granted(BoxGranted {
                box_id,
                incarnation,
                written: it.written,
                path: it.path,
                kind: it.kind,
                write: it.write,
                by: ChangedBy::Here,
            })
        };
        let granted: Vec<Event> = given.into_iter().map(granted).collect();
        let entering = |doc: DocId, tag| {
            move |event| Entering {
                doc,
                event,
                urgency,
                tag,
            }
        };
        let of_node = match here {
            // After the start that it is about, before anything of the box's own.
            true => vec![Event::AuditHere(AuditHere {
                box_id,
                incarnation,
            })],
            false => granted.clone(),
        };
        let listed = Event::BoxStarted(listed(&started, here));
        let mut all = vec![entering(DocId::Node, Tag::Listed(id))(listed)];
        all.extend(
            of_node
                .into_iter()
                .map(entering(DocId::Node, Tag::Given(id))),
        );
        let started = Event::BoxStarted(started);
        all.push(entering(doc, Tag::Started(id))(started));
        all.extend(granted.into_iter().map(entering(doc, Tag::Given(id))));
        self.append_all(all);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::Path;

    use super::*;

    #[test]
    fn each_thing_is_entered_by_what_it_is() {
        let root = std::env::temp_dir().join(format!("bailey-given-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        std::fs::write(root.join("file"), "x").unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
        let (mut grants, mut held) = (Vec::new(), Vec::new());
        let paths = [root.clone(), root.join("file"), root.join("socket")];
        for path in paths
            .iter()
            .map(std::path::PathBuf::as_path)
            .chain([Path::new("/dev/null")])
        {
            grants.push(GrantAsk {
                written: b"as/written".to_vec(),
                path: path.as_os_str().as_bytes().to_vec(),
                read_only: path == root,
            });
            let flags = rustix::fs::OFlags::PATH;
            held.push(rustix::fs::open(path, flags, rustix::fs::Mode::empty()).unwrap());
        }
        grants[1].written = "d/".repeat(4000).into_bytes();
        let given = of(&grants, true, &held).unwrap();
        let kinds: Vec<_> = given.iter().map(|it| (it.kind, it.write)).collect();
        assert_eq!(
            kinds,
            [
                (GrantKind::Folder, false),
                (GrantKind::File, true),
                (GrantKind::Socket, true),
                (GrantKind::Device, true),
                (GrantKind::Device, true),
            ]
        );
        assert_eq!(
            (given[0].written.as_str(), given[4].written.as_str()),
            ("as/written", GPU)
        );
        assert!(given[1].written.len() <= 4096 && given[1].written.contains('…'));
        assert_eq!(given[0].path, root.to_str().unwrap());
        std::fs::remove_dir_all(root).unwrap();
    }
}
