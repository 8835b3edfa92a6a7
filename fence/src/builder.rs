//! Executes the planned operations, in the box's namespaces.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};

use bailey_channel::Channel;
use bailey_fence_plan::{EMPTY_FOLDER, SetupOp};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::fs::{fstat, mkdirat, openat, openat2, symlinkat};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;
use rustix::pty::OpenptFlags;

use crate::host::Held;
use crate::init::FromInit;
use crate::mounts::{self, NO_DEVICES, NO_PROGRAMS, NO_SET_ID, READ_ONLY};
use crate::netlink::Routing;
use crate::step::StepError;
use crate::sys::{self, MountChange};

const PLAIN: u64 = NO_SET_ID | NO_DEVICES;
/// The loopback device is the first of every network namespace.
const LOOPBACK: u32 = 1;

/// A box that is being made.
#[derive(Debug)]
pub(crate) struct Builder<'a> {
    own: Held,
    grants: Vec<Held>,
    up: &'a mut Channel,
    root: Option<OwnedFd>,
    /// Mounts where a mount point may be made. Of these, links are followed
    /// only in those that hold nothing but what was planned.
    made: Vec<(u64, Links)>,
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

impl<'a> Builder<'a> {
    pub(crate) fn new(own: Held, grants: Vec<Held>, up: &'a mut Channel) -> Self {
        Self {
            own,
            grants,
            up,
            root: None,
            made: Vec::new(),
            terminal: None,
            processes: None,
        }
    }

    /// Executes one operation.
    pub(crate) fn run(&mut self, op: &SetupOp) -> Result<(), StepError> {
        match op {
            SetupOp::HostName(name) => rustix::system::sethostname(name.as_bytes())?,
            SetupOp::Loopback => Routing::open()?.up(LOOPBACK)?,
            SetupOp::Tun {
                name,
                mtu,
                queue,
                v4,
                v6,
            } => self.tun(name, (*mtu, *queue), *v4, *v6)?,
            SetupOp::PrivateMounts => private_mounts()?,
            SetupOp::Root => self.new_root()?,
            SetupOp::Dir { at } => drop(self.place(at, Point::Dir)?),
            SetupOp::Symlink { at, target } => {
                let (folder, name) = self.parent(at)?;
                symlinkat(target.as_slice(), folder, name)?;
            }
            SetupOp::File { at, contents } => self.file(at, contents)?,
            SetupOp::Tmpfs { at, mode, size } => self.tmpfs(at, *mode, size)?,
            SetupOp::Image { at } => {
                self.bind(&open_path(at.as_bytes())?, at.as_bytes(), PLAIN | READ_ONLY)?
            }
            SetupOp::Device { at } => {
                let attributes = NO_SET_ID | NO_PROGRAMS;
                self.bind(&open_path(at.as_bytes())?, at.as_bytes(), attributes)?;
            }
            SetupOp::Terminals { at } => self.terminals(at)?,
            SetupOp::OpenTerminal { rows, cols } => self.open_terminal(*rows, *cols)?,
            SetupOp::Proc { at } => self.proc(at)?,
            SetupOp::OwnFolder { at } => {
                let own = self.own.reopen()?;
                self.bind(&own, at, PLAIN)?;
                self.remember(at, Links::Refused)?;
            }
            SetupOp::GrantWritable { index, at } => self.bind(&self.granted(*index)?, at, PLAIN)?,
            SetupOp::GrantFileReadOnly { index, at } => {
                let file = self.granted(*index)?;
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
                    private: false,
                    recursive: false,
                };
                sys::mount_setattr(at.as_fd(), change)?;
            }
            SetupOp::Enter => mounts::enter(self.new_root_fd()?)?,
            SetupOp::WorkingFolder { at } => rustix::process::chdir(at.as_slice())?,
        }
        Ok(())
    }

    fn tun(
        &mut self,
        name: &str,
        (mtu, queue): (u32, u32),
        v4: (Ipv4Addr, u8, Ipv4Addr),
        v6: Option<(Ipv6Addr, u8, Ipv6Addr)>,
    ) -> Result<(), StepError> {
        let tun =
            tun_tap::Iface::without_packet_info(name, tun_tap::Mode::Tun).map_err(|error| {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                StepError::because("/dev/net/tun cannot be used")(errno)
            })?;
        let tun = sys::own_tun(tun);
        let routing = Routing::open()?;
        let socket = rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::DGRAM,
            None,
        )?;
        let index = rustix::net::netdevice::name_to_index(&socket, name)?;
        routing.shape(index, mtu, queue, v6.is_some())?;
        routing.up(index)?;
        let mut families: Vec<(IpAddr, u8, IpAddr)> = vec![(v4.0.into(), v4.1, v4.2.into())];
        families.extend(v6.map(|(own, prefix, gateway)| (own.into(), prefix, gateway.into())));
        for (own, prefix, gateway) in families {
            routing.address(index, own, prefix)?;
            routing.default_route(index, gateway)?;
        }
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
        let options = [("mode", "0755"), ("size", "1m")];
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

    fn file(&self, at: &[u8], contents: &[u8]) -> Result<(), StepError> {
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
        mounts::attach(&made, &self.place(at, Point::Dir)?)?;
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
        mounts::attach(&proc, &self.place(at, Point::Dir)?)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        self.processes = Some(openat(&proc, c".", flags, Mode::empty())?);
        Ok(())
    }

    fn terminals(&mut self, at: &[u8]) -> Result<(), StepError> {
        let options = [("ptmxmode", "0666"), ("mode", "0620")];
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let terminals = mounts::new_filesystem("devpts", &options, attributes)?;
        Ok(mounts::attach(&terminals, &self.place(at, Point::Dir)?)?)
    }

    fn open_terminal(&mut self, rows: u16, cols: u16) -> Result<(), StepError> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let root = self.new_root_fd()?;
        let master = openat2(root, c"/dev/pts/ptmx", flags, Mode::empty(), within)?;
        rustix::pty::unlockpt(&master)?;
        let ours = rustix::pty::ioctl_tiocgptpeer(
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
        self.terminal = Some(ours);
        self.tell(&FromInit::Pty, master)
    }

    fn granted(&self, index: usize) -> Result<OwnedFd, StepError> {
        self.grants
            .get(index)
            .ok_or(StepError::Refused("there is no such grant"))?
            .reopen()
    }

    fn read_only(&self, index: usize, at: &[u8]) -> Result<(), StepError> {
        let empty = self.find(EMPTY_FOLDER)?;
        let view = mounts::read_only_view(&self.granted(index)?, &empty)?;
        mounts::attach(&view, &self.place(at, Point::Dir)?)?;
        Ok(())
    }

    /// Mounts what is in a writable grant over itself. Both ways to it are
    /// walked without links: from the grant, and from the new root.
    fn over_itself(
        &self,
        index: usize,
        below: &str,
        at: &[u8],
        attributes: u64,
    ) -> Result<(), StepError> {
        let inside = openat2(
            self.granted(index)?,
            below,
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
        )?;
        self.bind(&inside, at, attributes)
    }

    fn bind(&self, what: &OwnedFd, at: &[u8], attributes: u64) -> Result<(), StepError> {
        let kind = FileType::from_raw_mode(fstat(what)?.st_mode);
        let tree = mounts::copy(what, attributes)?;
        let point = if kind == FileType::Directory {
            Point::Dir
        } else {
            Point::File
        };
        Ok(mounts::attach(&tree, &self.place(at, point)?)?)
    }

    fn remember(&mut self, at: &[u8], links: Links) -> Result<(), StepError> {
        let id = mounts::mount_id(&self.find(at)?)?;
        self.made.push((id, links));
        Ok(())
    }

    /// The folder in which a new name is made, and the name.
    fn parent<'p>(&self, at: &'p [u8]) -> Result<(OwnedFd, &'p [u8]), StepError> {
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
    fn place(&self, at: &[u8], point: Point) -> Result<OwnedFd, StepError> {
        let mut here = self.find(b"/")?;
        let mut walked = Vec::with_capacity(at.len());
        let parts: Vec<&[u8]> = at
            .split(|byte| *byte == b'/')
            .filter(|p| !p.is_empty())
            .collect();
        for (number, part) in parts.iter().enumerate() {
            walked.push(b'/');
            walked.extend_from_slice(part);
            let last = number + 1 == parts.len();
            here = match self.find(&walked) {
                Ok(next) => self.through_link(next, &walked)?,
                Err(StepError::Kernel(Errno::NOENT)) => {
                    if self.links(&here)?.is_none() {
                        return Err(StepError::Refused(
                            "it does not exist in the granted folder around it, and nothing is \
                             made there",
                        ));
                    }
                    make(&here, part, if last { point } else { Point::Dir })?
                }
                Err(error) => return Err(error),
            };
        }
        Ok(here)
    }

    /// Follows a link that was planned; refuses any other.
    fn through_link(&self, found: OwnedFd, path: &[u8]) -> Result<OwnedFd, StepError> {
        if FileType::from_raw_mode(fstat(&found)?.st_mode) != FileType::Symlink {
            return Ok(found);
        }
        if self.links(&found)? != Some(Links::Followed) {
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

/// Nothing that the host mounts later appears in the box.
fn private_mounts() -> Result<(), StepError> {
    let change = MountChange {
        set: 0,
        private: true,
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

/// Opens a path of the host.
fn open_path(path: &[u8]) -> Result<OwnedFd, StepError> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(CWD, path, flags, Mode::empty())?)
}
