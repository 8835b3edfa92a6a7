//! A running world, as its owner holds it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::{getegid, geteuid};

use crate::command::PATH;
use crate::control::Line;
use crate::servers::{CERTIFICATE, NAMES_LOG, WITNESS_LOG};
use crate::{Asked, ORDINARY_UID, Seen, WorldError, WorldSpec, at};

/// How long a world may take to come up. It takes well under a second.
const START: Duration = Duration::from_secs(20);

/// How long it may take to obey.
const OBEY: Duration = Duration::from_secs(5);

/// How long it may take to leave before it is killed.
const LEAVE: Duration = Duration::from_secs(3);

/// Between two looks at something that should be over.
const LOOK: Duration = Duration::from_millis(2);

/// A world of network namespaces. Dropping it ends every process in it and
/// removes its folder.
#[derive(Debug)]
pub struct World {
    server: Vec<OsString>,
    dir: PathBuf,
    uid: u32,
    gid: u32,
    ipv6: bool,
    init: u32,
    nodes: Vec<u32>,
    link: Mutex<Link>,
}

/// The pipes to the world's first process.
#[derive(Debug)]
struct Link {
    child: Child,
    to: Option<ChildStdin>,
    from: Receiver<Line>,
    log: PathBuf,
}

impl World {
    /// Makes the world and waits until everything in it answers.
    ///
    /// An ordinary caller stays who it is. A caller that is root makes
    /// `/dev/net/tun` usable by everybody, as distributions ship it, where the
    /// world needs it, and everything in the world runs as [`ORDINARY_UID`].
    ///
    /// # Errors
    /// Says which step failed, in that step's own words.
    pub fn start(spec: WorldSpec) -> Result<Self, WorldError> {
        spec.check()?;
        let root = geteuid().is_root();
        let (uid, gid) = if root {
            (ORDINARY_UID, ORDINARY_UID)
        } else {
            (geteuid().as_raw(), getegid().as_raw())
        };
        if root && spec.tun {
            open_tun();
        }
        let dir = make_folder(&spec.parent, root.then_some(uid))?;
        let mut link = match Link::start(&spec, &dir, uid, gid) {
            Ok(link) => link,
            Err(error) => {
                let _empty = fs::remove_dir_all(&dir);
                return Err(error);
            }
        };
        match link.greet() {
            Ok((init, ipv6, nodes)) => {
                let link = Mutex::new(link);
                Ok(Self {
                    server: spec.server,
                    dir,
                    uid,
                    gid,
                    ipv6,
                    init,
                    nodes,
                    link,
                })
            }
            Err(error) => {
                link.end();
                let _its_own_process_was_first = fs::remove_dir_all(&dir);
                Err(error)
            }
        }
    }

    /// A node by its name, `n1` to `nN`.
    ///
    /// # Errors
    /// There is no such node.
    pub fn node(&self, name: &str) -> Result<Node<'_>, WorldError> {
        let number = name
            .strip_prefix('n')
            .and_then(|number| number.parse::<u8>().ok());
        let pid = number
            .and_then(|number| usize::from(number).checked_sub(1))
            .and_then(|index| self.nodes.get(index));
        match (number, pid) {
            (Some(number), Some(&pid)) => Ok(Node {
                world: self,
                number,
                pid,
            }),
            _ => Err(WorldError::NoNode(name.to_owned())),
        }
    }

    /// A command in the router's namespaces, as the world's root.
    #[must_use]
    pub fn inet_command(&self, program: impl AsRef<OsStr>) -> Command {
        self.enter("root", 0, program.as_ref(), &self.dir)
    }

    /// What nodes sent so far, in the order in which the witness saw it.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn witness(&self) -> Result<Vec<Seen>, WorldError> {
        self.log(WITNESS_LOG, Seen::parse)
    }

    /// What the world's name servers were asked so far.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn dns_log(&self) -> Result<Vec<Asked>, WorldError> {
        self.log(NAMES_LOG, Asked::parse)
    }

    /// Pulls a node's cable.
    ///
    /// # Errors
    /// The world is gone, or knows no such node.
    pub fn link_down(&self, node: &str) -> Result<(), WorldError> {
        self.node(node)?;
        self.link().ask(&format!("link {node} down"))
    }

    /// Plugs a node's cable in again.
    ///
    /// # Errors
    /// The world is gone, or knows no such node.
    pub fn link_up(&self, node: &str) -> Result<(), WorldError> {
        self.node(node)?;
        self.link().ask(&format!("link {node} up"))
    }

    /// Replaces what a name answers: addresses, or `>name` for an alias; none
    /// makes it a name that does not exist.
    ///
    /// # Errors
    /// A record is neither, or the world is gone.
    pub fn set_name(&self, name: &str, records: &[&str]) -> Result<(), WorldError> {
        let mut order = format!("name {name}");
        for record in records {
            order.push(' ');
            order.push_str(record);
        }
        self.link().ask(&order)
    }

    /// The world's folder; the nodes' own are below it.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The certificate of its TLS servers, which is its own authority.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.dir.join(CERTIFICATE)
    }

    /// Whether there is IPv6 in this world: false where the kernel has none.
    #[must_use]
    pub const fn has_ipv6(&self) -> bool {
        self.ipv6
    }

    /// The uid (and the gid) that nodes run as.
    #[must_use]
    pub const fn uid(&self) -> u32 {
        self.uid
    }

    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log<T>(&self, name: &str, parse: fn(&str) -> Option<T>) -> Result<Vec<T>, WorldError> {
        let path = self.dir.join(name);
        let text =
            fs::read_to_string(&path).map_err(|source| WorldError::Folder { path, source })?;
        Ok(text.lines().filter_map(parse).collect())
    }

    fn enter(&self, user: &str, node: u32, program: &OsStr, folder: &Path) -> Command {
        let mut words = self.server.iter();
        let mut command = Command::new(words.next().map_or(OsStr::new(""), OsString::as_os_str));
        command
            .args(words)
            .arg("enter")
            .args([self.uid, self.gid, self.init].map(|number| number.to_string()))
            .arg(user)
            .arg(node.to_string())
            .arg(program)
            .env_clear()
            .env("PATH", PATH)
            .env("LANG", "C.UTF-8")
            .current_dir(folder);
        command
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.link().end();
        let _its_own_process_was_first = fs::remove_dir_all(&self.dir);
    }
}

/// One node of a world.
#[derive(Debug, Clone, Copy)]
pub struct Node<'w> {
    world: &'w World,
    number: u8,
    pid: u32,
}

/// A process inside a node, boxes included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeProcess {
    /// Its pid as the node counts.
    pub pid: u32,
    /// Its program's words; empty for one that has none left.
    pub command: Vec<String>,
    /// Its name, as /proc/PID/comm has it.
    pub name: String,
    /// Its namespaces, as the links in /proc name them, such as `net:[4026532]`.
    pub namespaces: Vec<String>,
}

impl Node<'_> {
    /// Its name: `n1`, `n2`, ….
    #[must_use]
    pub fn name(&self) -> String {
        format!("n{}", self.number)
    }

    /// Its address on the LAN.
    #[must_use]
    pub const fn v4(&self) -> Ipv4Addr {
        at::node_v4(self.number)
    }

    /// Its address in the LAN's local IPv6 prefix.
    #[must_use]
    pub fn ula(&self) -> Ipv6Addr {
        at::node_ula(self.number)
    }

    /// Its address in the LAN's global IPv6 prefix.
    #[must_use]
    pub fn gua(&self) -> Ipv6Addr {
        at::node_gua(self.number)
    }

    /// A command as the node's ordinary user: no capability, an environment of
    /// PATH, LANG, HOME and the XDG folders only, in its home unless told
    /// otherwise.
    ///
    /// The process that is started passes signals to the command, ends with
    /// the command's code (128 and the number for a signal), and takes the
    /// command with it when it is killed.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self
            .world
            .enter("user", self.pid, program.as_ref(), &self.home());
        for (name, folder) in [
            ("HOME", "home"),
            ("XDG_CONFIG_HOME", "config"),
            ("XDG_STATE_HOME", "state"),
            ("XDG_CACHE_HOME", "cache"),
            ("XDG_DATA_HOME", "data"),
            ("XDG_RUNTIME_DIR", "run"),
        ] {
            command.env(name, self.dir().join(folder));
        }
        command
    }

    /// A command in the node's namespaces as the world's root: it may change
    /// the node's network.
    #[must_use]
    pub fn root_command(&self, program: impl AsRef<OsStr>) -> Command {
        self.world
            .enter("root", self.pid, program.as_ref(), &self.home())
    }

    /// The node's own folder: `home config state cache data run` are in it.
    #[must_use]
    pub fn dir(&self) -> PathBuf {
        self.world.dir.join(self.name())
    }

    /// The home of the node's user.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.dir().join("home")
    }

    /// Rewrites the node's resolv.conf.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set_resolv_conf(&self, text: &str) -> Result<(), WorldError> {
        self.rewrite("resolv.conf", text)
    }

    /// Rewrites the node's hosts file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set_hosts(&self, text: &str) -> Result<(), WorldError> {
        self.rewrite("hosts", text)
    }

    /// In place: the file itself is what the node sees.
    fn rewrite(&self, name: &str, text: &str) -> Result<(), WorldError> {
        let path = self.dir().join(name);
        fs::write(&path, text).map_err(|source| WorldError::Folder { path, source })
    }

    /// Every process in the node but its first, those in boxes included.
    ///
    /// # Errors
    /// The node's /proc cannot be read.
    pub fn processes(&self) -> Result<Vec<NodeProcess>, WorldError> {
        let proc = PathBuf::from(format!(
            "/proc/{}/root/proc/{}/root/proc",
            self.world.init, self.pid
        ));
        let entries = fs::read_dir(&proc).map_err(|source| WorldError::Folder {
            path: proc.clone(),
            source,
        })?;
        let pids = entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
            .filter(|pid| *pid != 1);
        // A process that ends meanwhile is not there.
        Ok(pids.filter_map(|pid| process(&proc, pid)).collect())
    }
}

fn process(proc: &Path, pid: u32) -> Option<NodeProcess> {
    let dir = proc.join(pid.to_string());
    let status = fs::read_to_string(dir.join("status")).ok()?;
    if status
        .lines()
        .any(|line| line.starts_with("State:") && line.contains('Z'))
    {
        return None;
    }
    let command = fs::read(dir.join("cmdline")).ok()?;
    let words = command
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty());
    let name = fs::read_to_string(dir.join("comm")).ok()?;
    let namespaces = fs::read_dir(dir.join("ns"))
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let link = fs::read_link(entry.ok()?.path()).ok()?;
            link.into_os_string().into_string().ok()
        });
    Some(NodeProcess {
        pid,
        command: words
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect(),
        name: name.trim_end().to_owned(),
        namespaces: namespaces.collect(),
    })
}

impl Link {
    fn start(spec: &WorldSpec, dir: &Path, uid: u32, gid: u32) -> Result<Self, WorldError> {
        let log = dir.join("world.log");
        let stderr = File::create(&log).map_err(|source| WorldError::Folder {
            path: log.clone(),
            source,
        })?;
        let mut words = spec.server.iter();
        let program = words.next().map(PathBuf::from).unwrap_or_default();
        let mut child = Command::new(&program)
            .args(words)
            .arg("outer")
            .arg(dir)
            .args([uid, gid, spec.nodes.into()].map(|number| number.to_string()))
            .args([spec.tun, spec.ping].map(|flag| u8::from(flag).to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .current_dir("/")
            // A terminal's Ctrl-C is for the owner, who then ends the world.
            .process_group(0)
            .spawn()
            .map_err(|source| WorldError::Spawn {
                program: program.clone(),
                source,
            })?;
        let (sender, from) = channel();
        let to = child.stdin.take();
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines() {
                    let Some(line) = line.ok().and_then(|line| Line::parse(&line)) else {
                        return;
                    };
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Self {
            child,
            to,
            from,
            log,
        })
    }

    /// Waits for the pids; the two lines come from two processes.
    fn greet(&mut self) -> Result<(u32, bool, Vec<u32>), WorldError> {
        let asked = "start";
        let deadline = Instant::now() + START;
        let (mut init, mut ready) = (None, None);
        loop {
            if let (Some(init), Some((ipv6, nodes))) = (init, &ready) {
                return Ok((init, *ipv6, Vec::clone(nodes)));
            }
            match self.receive(asked, deadline, START)? {
                Line::Init(pid) => init = Some(pid),
                Line::Ready { ipv6, nodes } => ready = Some((ipv6, nodes)),
                other => return Err(unexpected(asked, &other)),
            }
        }
    }

    fn ask(&mut self, order: &str) -> Result<(), WorldError> {
        if order.contains('\n') {
            return Err(WorldError::Spec("an order is one line".to_owned()));
        }
        let sent = self
            .to
            .as_mut()
            .is_some_and(|to| writeln!(to, "{order}").is_ok());
        if !sent {
            return Err(WorldError::Ended {
                asked: order.to_owned(),
                detail: self.words(),
            });
        }
        match self.receive(order, Instant::now() + OBEY, OBEY)? {
            Line::Done => Ok(()),
            other => Err(unexpected(order, &other)),
        }
    }

    fn receive(&self, asked: &str, deadline: Instant, limit: Duration) -> Result<Line, WorldError> {
        let asked = asked.to_owned();
        match self
            .from
            .recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            Ok(Line::Failed { step, detail }) => Err(WorldError::Step { step, detail }),
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => Err(WorldError::Late {
                asked,
                limit,
                detail: self.words(),
            }),
            Err(RecvTimeoutError::Disconnected) => Err(WorldError::Ended {
                asked,
                detail: self.words(),
            }),
        }
    }

    /// The last words in the log, for an error.
    fn words(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let mut last: Vec<&str> = text.lines().rev().take(5).collect();
        last.reverse();
        if last.is_empty() {
            String::new()
        } else {
            format!(": {}", last.join("; "))
        }
    }

    /// Ends the world: by the end of its input, else by force.
    fn end(&mut self) {
        drop(self.to.take());
        let deadline = Instant::now() + LEAVE;
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(LOOK),
                Ok(Some(_)) | Err(_) => return,
            }
        }
        // The kernel kills the first process with this one, and the rest with
        // the first.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn unexpected(asked: &str, line: &Line) -> WorldError {
    WorldError::Step {
        step: asked.to_owned(),
        detail: format!("the world answered `{line}`"),
    }
}

/// A new folder that every user can pass through and `owner` owns.
fn make_folder(parent: &Path, owner: Option<u32>) -> Result<PathBuf, WorldError> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    /// Names that were left by an owner with the same pid.
    const TRIES: u32 = 1000;
    let pid = std::process::id();
    let mut tries = 0;
    loop {
        // Short: paths of Unix sockets end after 107 bytes.
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("bw-{pid}-{count}"));
        let made = fs::create_dir(&path)
            .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o755)))
            .and_then(|()| chown(&path, owner, owner));
        match made {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < TRIES => {
                tries += 1;
            }
            Err(source) => return Err(WorldError::Folder { path, source }),
        }
    }
}

/// Gives `/dev/net/tun` the mode that distributions give it. Where that does
/// not help, the set-up's own try says why.
fn open_tun() {
    let _said_later = fs::set_permissions("/dev/net/tun", Permissions::from_mode(0o666));
}
