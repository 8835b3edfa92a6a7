//! The planned operations as words for bubblewrap: the same mounts, made by it.

use crate::SetupOp;

/// Where this program is seen in such a box.
pub const LAUNCHER: &str = "/run/bailey-fence";
/// What it makes a `/dev` of by itself: the devices and links that are planned.
const DEV: &[u8] = b"/dev";

/// One argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// As it is.
    Text(Vec<u8>),
    /// The number of a descriptor that this is read from.
    Contents(Vec<u8>),
}

/// Where on the host the things lie that a box is given.
#[derive(Debug, Clone, Copy)]
pub struct Places<'a> {
    /// The own folder.
    pub own: &'a [u8],
    /// Each grant, in order.
    pub grants: &'a [&'a [u8]],
    /// This program.
    pub launcher: &'a [u8],
    /// Whether the box shares the network.
    pub network: bool,
    /// Whether this program is lent, inside, what it takes to bound the counts of
    /// the box's user namespace, and to give it up. Where a profile of AppArmor
    /// takes every capability, the loan could not even be given back.
    pub lend: bool,
}

/// Every argument up to the program.
///
/// # Errors
/// The step that bubblewrap cannot do.
pub fn arguments(ops: &[SetupOp], places: &Places<'_>) -> Result<Vec<Word>, &'static str> {
    let mut words = Words(Vec::new());
    for namespace in ["user", "pid", "ipc", "uts", "cgroup-try"] {
        words.text(format!("--unshare-{namespace}").as_bytes());
    }
    if !places.network {
        words.text(b"--unshare-net");
    }
    for flag in [
        "--die-with-parent",
        "--new-session",
        "--as-pid-1",
        "--clearenv",
    ] {
        words.text(flag.as_bytes());
    }
    words.all(&[b"--cap-drop", b"ALL"]);
    if places.lend {
        words.all(&[b"--cap-add", b"CAP_SYS_RESOURCE"]);
        words.all(&[b"--cap-add", b"CAP_SETPCAP"]);
    }
    let (seals, others): (Vec<&SetupOp>, Vec<&SetupOp>) = ops
        .iter()
        .partition(|op| matches!(op, SetupOp::Seal { .. }));
    for op in others {
        words.operation(op, places)?;
    }
    words.all(&[b"--ro-bind", places.launcher, LAUNCHER.as_bytes()]);
    for op in seals {
        if let SetupOp::Seal { at } = op {
            words.all(&[b"--remount-ro", at]);
        }
    }
    Ok(words.0)
}

struct Words(Vec<Word>);

impl Words {
    fn text(&mut self, text: &[u8]) {
        self.0.push(Word::Text(text.to_vec()));
    }

    fn all(&mut self, texts: &[&[u8]]) {
        texts.iter().for_each(|text| self.text(text));
    }

    fn operation(&mut self, op: &SetupOp, places: &Places<'_>) -> Result<(), &'static str> {
        let grant = |index: &usize| places.grants.get(*index).copied().ok_or("find the grant");
        let inside = |index, below: &str| -> Result<Vec<u8>, &'static str> {
            Ok([grant(index)?, b"/", below.as_bytes()].concat())
        };
        match op {
            SetupOp::HostName(name) => self.all(&[b"--hostname", name.as_bytes()]),
            SetupOp::Dir { at } => self.all(&[b"--dir", at]),
            SetupOp::Symlink { at, .. } if below(at, DEV) => {}
            SetupOp::Symlink { at, target } => self.all(&[b"--symlink", target, at]),
            SetupOp::File { at, contents } => {
                self.all(&[b"--perms", b"0644", b"--file"]);
                self.0.push(Word::Contents(contents.clone()));
                self.text(at);
            }
            SetupOp::Tmpfs { at, .. } if at == DEV => self.all(&[b"--dev", at]),
            SetupOp::Tmpfs { at, mode, size } => {
                let (mode, size) = (format!("{mode:04o}"), bytes(size)?);
                self.all(&[b"--perms", mode.as_bytes(), b"--size", size.as_bytes()]);
                self.all(&[b"--tmpfs", at]);
            }
            SetupOp::Image {
                at,
                read_only: true,
            } => {
                self.all(&[b"--ro-bind", at.as_bytes(), at.as_bytes()]);
            }
            SetupOp::Proc { at } => self.all(&[b"--proc", at]),
            SetupOp::OwnFolder { at } => self.all(&[b"--bind", places.own, at]),
            SetupOp::GrantWritable { index, at } => self.all(&[b"--bind", grant(index)?, at]),
            // A folder's sockets lead out, which is why a box with one is weaker.
            SetupOp::GrantFileReadOnly { index, at }
            | SetupOp::GrantFolderReadOnly { index, at } => {
                self.all(&[b"--ro-bind", grant(index)?, at]);
            }
            SetupOp::Pin { index, below, at } => {
                self.all(&[b"--bind", &inside(index, below)?, at]);
            }
            SetupOp::Cover { index, below, at } => {
                self.all(&[b"--ro-bind", &inside(index, below)?, at]);
            }
            // It does these by itself, or this program does, inside.
            SetupOp::Loopback
            | SetupOp::SlaveMounts
            | SetupOp::PrivateMounts
            | SetupOp::Root
            | SetupOp::Terminals { .. }
            | SetupOp::OpenTerminal { .. }
            | SetupOp::Enter
            | SetupOp::WorkingFolder { .. } => {}
            SetupOp::Device { at } if below(at.as_bytes(), DEV) => {}
            other => return Err(other.step()),
        }
        Ok(())
    }
}

fn below(path: &[u8], folder: &[u8]) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.starts_with(b"/"))
}

/// A size as bubblewrap takes it, in bytes.
fn bytes(size: &str) -> Result<String, &'static str> {
    let (number, shift) = match size.strip_suffix('m') {
        Some(number) => (number, 20),
        None => (size, 0),
    };
    let number: u64 = number.parse().map_err(|_| "bound a private folder")?;
    Ok((number << shift).to_string())
}
