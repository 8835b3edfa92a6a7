//! Executes the planned operations, in the box's namespaces.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use bailey_channel::Channel;
use bailey_fence_plan::channel::SetupError;
use bailey_fence_plan::{EMPTY_FOLDER, SetupOp};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::fs::{fstat, mkdirat, openat, openat2, symlinkat};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;
use rustix::pty::OpenptFlags;

use crate::init::{FromInit, Granted};
use crate::mounts::{self, NO_DEVICES, NO_PROGRAMS, NO_SET_ID, READ_ONLY};
use crate::netlink::Routing;
use crate::step::StepError;
use crate::sys::{self, MountChange, Propagation};

const PLAIN: u64 = NO_SET_ID | NO_DEVICES;
/// The root holds small files and mount points.
const ROOT_SIZE: &str = "16m";
/// Terminals that a box may have at once (devpts of the kernel's documentation).
const MOST_TERMINALS: &str = "128";
/// The loopback device is the first of every network namespace.
const LOOPBACK: u32 = 1;

mod shown;

/// A box that is being made.
#[derive(Debug)]
pub(crate) struct Builder {
    /// To the launcher.
    pub(crate) up: Channel,
    /// What is granted, once it is known.
    pub(crate) granted: Option<Granted>,
    /// The process's own namespaces but its network's, where they are held already.
    pub(crate) namespaces: Vec<OwnedFd>,
    root: Option<OwnedFd>,
    /// Mounts where a mount point may be made. Of these, links are followed
    /// only in those that hold nothing but what was planned.
    made: Vec<(u64, Links)>,
    /// Folders of those mounts that hold nothing but what was planned, by their
    /// path: nobody else can change what a path there leads to.
    known: Vec<(Vec<u8>, Rc<OwnedFd>)>,
    routing: Option<Routing>,
    /// What the box will have.
    pub(crate) terminal: Option<OwnedFd>,
    pub(crate) processes: Option<OwnedFd>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Links {
    Followed,
    Refused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Point {
    Dir,
    File,
}

impl Builder {
    pub(crate) fn new(up: Channel) -> Self {
        Self {
            up,
            granted: None,
            namespaces: Vec::new(),
            root: None,
            made: Vec::new(),
            known: Vec::new(),
            routing: None,
            terminal: None,
            processes: None,
        }
    }

    /// Closes all that was only for the building.
    pub(crate) fn into_up(self) -> Channel {
        self.up
    }

    /// Executes operations, in order; the error names the one that failed.
    pub(crate) fn run_all(&mut self, ops: &[SetupOp]) -> Result<(), SetupError> {
        ops.iter()
            .try_for_each(|op| self.run(op).map_err(|error| error.at(op.step(), op.path())))
    }

    fn run(&mut self, op: &SetupOp) -> Result<(), StepError> {
        match op {
            SetupOp::HostName(name) => rustix::system::sethostname(name.as_bytes())?,
            SetupOp::Loopback => self.routing()?.up(LOOPBACK)?,
            SetupOp::Tun {
                name,
                mtu,
                queue,
                v4,
                v6,
            } => self.tun(name, (*mtu, *queue), *v4, *v6)?,
            SetupOp::SlaveMounts => all_mounts(Propagation::Slave)?,
            SetupOp::PrivateMounts => all_mounts(Propagation::Private)?,
            SetupOp::Root => self.new_root()?,
            SetupOp::Dir { at } => drop(self.place(at, Point::Dir)?),
            SetupOp::Symlink { at, target } => {
                let (folder, name) = self.parent(at)?;
                symlinkat(target.as_slice(), folder, name)?;
            }
            SetupOp::File { at, contents } => self.file(at, contents)?,
            SetupOp::Tmpfs { at, mode, size } => self.tmpfs(at, *mode, size)?,
            SetupOp::ReadOnlyFolder { at, size } => self.shown(at, size)?,
            SetupOp::Image { at, read_only } => self.image(at.as_bytes(), *read_only)?,
            SetupOp::Device { at } => {
                let attributes = NO_SET_ID | NO_PROGRAMS;
                self.bind(&open_path(at.as_bytes())?, at.as_bytes(), attributes)?;
            }
            SetupOp::RenderNode { at } => {
                self.bind(&open_path(at)?, at, NO_SET_ID | NO_PROGRAMS)?;
            }
            SetupOp::DeviceFolder { at } => {
                self.bind(&open_path(at)?, at, PLAIN | NO_PROGRAMS | READ_ONLY)?;
            }
            SetupOp::Terminals { at } => self.terminals(at)?,
            SetupOp::OpenTerminal { rows, cols } => self.open_terminal(*rows, *cols)?,
            SetupOp::Proc { at } => self.proc(at)?,
            SetupOp::HostProc { at } => {
                let of = open_path(b"/proc")?;
                self.bind(&of, at, PLAIN | NO_PROGRAMS)?;
                self.processes = Some(open_folder(&self.find(at)?)?);
            }
            SetupOp::OwnFolder { at } => {
                let own = self.granted()?.own.reopen()?;
                self.bind(&own, at, PLAIN)?;
                self.remember(at, Links::Refused)?;
            }
            SetupOp::GrantWritable { index, at } => self.bind(&self.grant(*index)?, at, PLAIN)?,
            SetupOp::GrantFileReadOnly { index, at } => {
                let file = self.grant(*index)?;
                // The kind was looked at through the descriptor already; that
                // it is still the same file was checked just now.
                self.bind(&file, at, PLAIN | READ_ONLY)?;
            }
            SetupOp::GrantFolderReadOnly { index, at } => self.read_only(*index, at)?,
            SetupOp::Pin { index, below, at } => self.over_itself(*index, below, at, PLAIN)?,
            SetupOp::Cover { index, below, at } => {
                self.over_itself(*index, below, at, PLAIN | READ_ONLY)?;
            }
            SetupOp::Seal { at } => {
                let at = self.find(at)?;
                let change = MountChange {
                    set: READ_ONLY,
                    propagation: None,
                    recursive: false,
                };
                sys::mount_setattr(at.as_fd(), change)?;
            }
            SetupOp::Enter => mounts::enter(self.new_root_fd()?)?,
            SetupOp::WorkingFolder { at } => rustix::process::chdir(at.as_slice())?,
        }
        Ok(())
    }

    fn routing(&mut self) -> Result<&Routing, StepError> {
        if self.routing.is_none() {
            self.routing = Some(Routing::open()?);
        }
        self.routing
            .as_ref()
            .ok_or(StepError::Refused("there is no socket to the routing"))
    }

    fn tun(
        &mut self,
        name: &str,
        (mtu, queue): (u32, u32),
        v4: (Ipv4Addr, u8, Ipv4Addr),
        v6: Option<(Ipv6Addr, u8, Ipv6Addr)>,
    ) -> Result<(), StepError> {
        let tun = sys::tun(name).map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            StepError::because("/dev/net/tun cannot be used")(errno)
        })?;
        let socket = rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::DGRAM,
            None,
        )?;
        let index = rustix::net::netdevice::name_to_index(&socket, name)?;
        let routing = self.routing()?;
        routing.shape(index, mtu, queue, v6.is_some())?;
        routing.up(index)?;
        let mut families: Vec<(IpAddr, u8, IpAddr)> = vec![(v4.0.into(), v4.1, v4.2.into())];
        families.extend(v6.map(|(own, prefix, gateway)| (own.into(), prefix, gateway.into())));
        for (own, prefix, gateway) in families {
            routing.address(index, own, prefix)?;
            routing.default_route(index, gateway)?;
        }
        allow_ping();
        pace_nothing();
        self.tell(&FromInit::Tun, tun)
    }

    /// Gives a descriptor to the launcher and keeps no copy.
    fn tell(&mut self, what: &FromInit, fd: OwnedFd) -> Result<(), StepError> {
        let sent = self.up.send(what, &[fd.as_fd()]);
        sent.map_err(|_| StepError::Refused("the launcher is gone"))
    }

    /// The new root goes on top of the old one, where no path of the host
    /// leads: every host path still means what it did.
    fn new_root(&mut self) -> Result<(), StepError> {
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let options = [("mode", "0755"), ("size", ROOT_SIZE)];
        let root = mounts::new_filesystem("tmpfs", &options, attributes)?;
        mounts::attach(&root, &open_path(b"/")?)?;
        self.made.push((mounts::mount_id(&root)?, Links::Followed));
        self.root = Some(root);
        Ok(())
    }

    fn new_root_fd(&self) -> Result<&OwnedFd, StepError> {
        self.root
            .as_ref()
            .ok_or(StepError::Refused("there is no root yet"))
    }

    fn file(&mut self, at: &[u8], contents: &[u8]) -> Result<(), StepError> {
        let (folder, name) = self.parent(at)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(folder, name, flags, Mode::from_raw_mode(0o644))?;
        let mut rest = contents;
        while !rest.is_empty() {
            let count = rustix::io::write(&file, rest)?;
            rest = rest.get(count..).unwrap_or_default();
        }
        Ok(())
    }

    fn tmpfs(&mut self, at: &[u8], mode: u16, size: &str) -> Result<(), StepError> {
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let mode = format!("{mode:o}");
        let made = mounts::new_filesystem("tmpfs", &[("mode", &mode), ("size", size)], attributes)?;
        self.attach(&made, at, Point::Dir)?;
        self.made.push((mounts::mount_id(&made)?, Links::Followed));
        Ok(())
    }

    fn proc(&mut self, at: &[u8]) -> Result<(), StepError> {
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let proc =
            mounts::new_filesystem("proc", &[], attributes).map_err(|error| match error {
                StepError::Kernel(errno @ Errno::PERM) => StepError::Because {
                    errno,
                    why: "the host's own /proc is partly hidden, as in a container, so the kernel \
                      shows nobody a whole one",
                },
                other => other,
            })?;
        self.attach(&proc, at, Point::Dir)?;
        self.processes = Some(open_folder(&proc)?);
        Ok(())
    }

    fn terminals(&mut self, at: &[u8]) -> Result<(), StepError> {
        // Of all terminals of the machine, of which there are some thousands.
        let options = [
            ("ptmxmode", "0666"),
            ("mode", "0620"),
            ("max", MOST_TERMINALS),
        ];
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let terminals = mounts::new_filesystem("devpts", &options, attributes)?;
        self.attach(&terminals, at, Point::Dir)
    }

    fn open_terminal(&mut self, rows: u16, cols: u16) -> Result<(), StepError> {
        let (master, own) = new_terminal(self.new_root_fd()?, rows, cols)?;
        self.terminal = Some(own);
        self.tell(&FromInit::Pty, master)
    }

    fn image(&mut self, at: &[u8], read_only: bool) -> Result<(), StepError> {
        let attributes = if read_only { PLAIN | READ_ONLY } else { PLAIN };
        self.bind(&open_path(at)?, at, attributes)
    }

    fn granted(&self) -> Result<&Granted, StepError> {
        self.granted
            .as_ref()
            .ok_or(StepError::Refused("nothing is granted yet"))
    }

    fn grant(&self, index: usize) -> Result<OwnedFd, StepError> {
        let grant = self.granted()?.grants.get(index);
        grant
            .ok_or(StepError::Refused("there is no such grant"))?
            .reopen()
    }

    fn read_only(&mut self, index: usize, at: &[u8]) -> Result<(), StepError> {
        let empty = self.find(EMPTY_FOLDER)?;
        let view = mounts::read_only_view(&self.grant(index)?, &empty)?;
        self.attach(&view, at, Point::Dir)
    }

    /// Mounts what is in a writable grant over itself. Both ways to it are
    /// walked without links: from the grant, and from the new root.
    fn over_itself(
        &mut self,
        index: usize,
        below: &str,
        at: &[u8],
        attributes: u64,
    ) -> Result<(), StepError> {
        let inside = openat2(
            self.grant(index)?,
            below,
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
        )?;
        self.bind(&inside, at, attributes)
    }

    fn bind(&mut self, what: &OwnedFd, at: &[u8], attributes: u64) -> Result<(), StepError> {
        let kind = FileType::from_raw_mode(fstat(what)?.st_mode);
        let tree = mounts::copy(what, attributes)?;
        let point = if kind == FileType::Directory {
            Point::Dir
        } else {
            Point::File
        };
        self.attach(&tree, at, point)
    }

    fn remember(&mut self, at: &[u8], links: Links) -> Result<(), StepError> {
        let id = mounts::mount_id(&self.find(at)?)?;
        self.made.push((id, links));
        Ok(())
    }

    /// Puts a mount in its place, on which paths lead elsewhere from then on.
    fn attach(&mut self, tree: &OwnedFd, at: &[u8], point: Point) -> Result<(), StepError> {
        let place = self.place(at, point)?;
        mounts::attach(tree, &place)?;
        let below = |path: &[u8]| {
            path.strip_prefix(at)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        self.known.retain(|(path, _)| !below(path));
        Ok(())
    }

    /// The folder in which a new name is made, and the name.
    fn parent<'p>(&mut self, at: &'p [u8]) -> Result<(Rc<OwnedFd>, &'p [u8]), StepError> {
        let cut = at
            .iter()
            .rposition(|byte| *byte == b'/')
            .unwrap_or_default();
        let (folder, name) = at.split_at(cut);
        Ok((
            self.place(folder, Point::Dir)?,
            name.get(1..).unwrap_or_default(),
        ))
    }

    /// Opens a path of the new root that exists.
    fn find(&self, at: &[u8]) -> Result<OwnedFd, StepError> {
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat2(
            self.new_root_fd()?,
            at,
            flags,
            Mode::empty(),
            within,
        )?)
    }

    /// Opens a mount point, and makes what of it does not exist. Only the box's
    /// own mounts are written to: never a granted folder, nor through a link
    /// that lies in one.
    fn place(&mut self, at: &[u8], point: Point) -> Result<Rc<OwnedFd>, StepError> {
        let (mut walked, mut here) = match self.nearest(at) {
            Some((path, folder)) => (path.clone(), Rc::clone(folder)),
            None => (Vec::with_capacity(at.len()), Rc::new(self.find(b"/")?)),
        };
        let rest = at.get(walked.len()..).unwrap_or_default();
        let mut parts = rest
            .split(|byte| *byte == b'/')
            .filter(|part| !part.is_empty())
            .peekable();
        while let Some(part) = parts.next() {
            walked.push(b'/');
            walked.extend_from_slice(part);
            let point = if parts.peek().is_none() {
                point
            } else {
                Point::Dir
            };
            let mut linked = false;
            here = Rc::new(match self.find(&walked) {
                Ok(next) if is_link(&next)? => {
                    linked = true;
                    self.through_link(&next, &walked)?
                }
                Ok(next) => next,
                Err(StepError::Kernel(Errno::NOENT)) => {
                    if self.links(&here)?.is_none() {
                        return Err(StepError::Refused(
                            "it does not exist in the granted folder around it, and nothing is \
                             made there",
                        ));
                    }
                    make(&here, part, point)?
                }
                Err(error) => return Err(error),
            });
            if !linked && point == Point::Dir {
                self.know(&walked, &here)?;
            }
        }
        Ok(here)
    }

    /// The innermost known folder on the way to a path.
    fn nearest(&self, at: &[u8]) -> Option<&(Vec<u8>, Rc<OwnedFd>)> {
        let leads = |path: &[u8]| {
            at.strip_prefix(path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        let known = self.known.iter().filter(|(path, _)| leads(path));
        known.max_by_key(|(path, _)| path.len())
    }

    /// Remembers a folder that no one else can move or replace.
    fn know(&mut self, at: &[u8], folder: &Rc<OwnedFd>) -> Result<(), StepError> {
        if self.links(folder)? == Some(Links::Followed) {
            self.known.push((at.to_vec(), Rc::clone(folder)));
        }
        Ok(())
    }

    /// Follows a link that was planned; refuses any other.
    fn through_link(&self, found: &OwnedFd, path: &[u8]) -> Result<OwnedFd, StepError> {
        if self.links(found)? != Some(Links::Followed) {
            return Err(StepError::Refused("a symbolic link lies on the way to it"));
        }
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        Ok(openat2(
            self.new_root_fd()?,
            path,
            flags,
            Mode::empty(),
            within,
        )?)
    }

    /// How links are taken in the mount of an open file, `None` where it is not
    /// the box's own.
    fn links(&self, fd: &OwnedFd) -> Result<Option<Links>, StepError> {
        let id = mounts::mount_id(fd)?;
        Ok(self
            .made
            .iter()
            .find(|(made, _)| *made == id)
            .map(|(_, links)| *links))
    }
}

fn is_link(file: &OwnedFd) -> Result<bool, StepError> {
    Ok(FileType::from_raw_mode(fstat(file)?.st_mode) == FileType::Symlink)
}

/// A terminal of the box whose root that is: its master and its other end.
pub(crate) fn new_terminal(
    root: &OwnedFd,
    rows: u16,
    cols: u16,
) -> Result<(OwnedFd, OwnedFd), StepError> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let master = openat2(root, c"/dev/pts/ptmx", flags, Mode::empty(), within)?;
    rustix::pty::unlockpt(&master)?;
    let own = rustix::pty::ioctl_tiocgptpeer(
        &master,
        OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC,
    )?;
    let size = rustix::termios::Winsize {
        ws_row: rows,
        ws_col: cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(&master, size)?;
    Ok((master, own))
}

/// What the host and the box hear of one another's mounts.
fn all_mounts(propagation: Propagation) -> Result<(), StepError> {
    let change = MountChange {
        set: 0,
        propagation: Some(propagation),
        recursive: true,
    };
    Ok(sys::mount_setattr(open_path(b"/")?.as_fd(), change)?)
}

fn make(folder: &OwnedFd, name: &[u8], point: Point) -> Result<OwnedFd, StepError> {
    match point {
        Point::Dir => mkdirat(folder, name, Mode::from_raw_mode(0o755))?,
        Point::File => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            drop(openat(folder, name, flags, Mode::from_raw_mode(0o644))?);
        }
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, Mode::empty())?)
}

fn open_folder(at: &OwnedFd) -> Result<OwnedFd, StepError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(at, c".", flags, Mode::empty())?)
}

/// Opens a path of the host.
fn open_path(path: &[u8]) -> Result<OwnedFd, StepError> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(CWD, path, flags, Mode::empty())?)
}

/// Lets the box's group make ping sockets (icmp(7)) in this network, which would
/// let nobody. Where it cannot be written, as in a container, `ping` does not
/// work in the box, and nothing else is lost.
fn allow_ping() {
    let group = rustix::process::getgid().as_raw();
    let range = format!("{group} {group}\n");
    set(c"/proc/sys/net/ipv4/ping_group_range", &range);
}

/// Has the box's connections begin with a congestion control that every kernel has
/// and lets everybody use (tcp(7)). On the link to the gate nothing is lost, and
/// whoever paces their segments there only arms timers; on the way out the gate's
/// own connections have the machine's. Where it cannot be written, a stream is
/// slower.
fn pace_nothing() {
    set(c"/proc/sys/net/ipv4/tcp_congestion_control", "reno\n");
}

/// Writes a setting of this network, if that is allowed.
fn set(path: &CStr, value: &str) {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    if let Ok(setting) = openat(CWD, path, flags, Mode::empty()) {
        let _not_lost = rustix::io::write(&setting, value.as_bytes());
    }
}
