#![expect(unreachable_pub, reason = "shared by the tests of this package")]
#![expect(dead_code, reason = "each test program uses a part of it")]
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

//! Plays the node: starts the real launcher as an ordinary user and speaks its
//! channel.

pub mod cgroup;
mod gate;
pub mod join;

use std::fs::{File, OpenOptions, Permissions};
use std::io::{PipeReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio as Streams};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Once, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bailey_channel::{Channel, Message};
use bailey_fence_plan::channel::{BoxSpec, FromFence, Grant, Measured, SetupError, Stdio, ToFence};
use bailey_model::{ChildExit, Tier};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Whom boxes are made for where the tests run as root.
const ORDINARY: u32 = 54321;
/// `struct virtio_net_hdr`, before each packet of a box's TUN.
pub const TUN_HEADER: usize = 10;
/// Longer than anything here takes, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(30);

pub fn root() -> bool {
    nix::unistd::geteuid().is_root()
}

pub fn ids() -> (u32, u32) {
    if root() {
        (ORDINARY, ORDINARY)
    } else {
        (
            nix::unistd::getuid().as_raw(),
            nix::unistd::getgid().as_raw(),
        )
    }
}

/// The launcher where an ordinary user can execute it.
pub fn launcher() -> &'static Path {
    static COPY: OnceLock<PathBuf> = OnceLock::new();
    COPY.get_or_init(|| launcher_named("bailey-fence"))
}

/// The same under another name, by which its processes are found.
pub fn launcher_named(name: &str) -> PathBuf {
    if root() {
        let _ = std::fs::set_permissions("/dev/net/tun", Permissions::from_mode(0o666));
    }
    let copy = folder("launcher").join(name);
    std::fs::copy(env!("CARGO_BIN_EXE_bailey-fence"), &copy).unwrap();
    std::fs::set_permissions(&copy, Permissions::from_mode(0o755)).unwrap();
    copy
}

/// A new folder that belongs to whom boxes are made for.
pub fn folder(name: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    static FIRST: Once = Once::new();
    FIRST.call_once(remove_old);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("{PREFIX}{}-{number}-{name}", std::process::id()));
    std::fs::create_dir(&path).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    give(&path);
    path
}

const PREFIX: &str = "bailey-fence-test-";

/// Removes what runs that are over have left.
fn remove_old() {
    for entry in std::fs::read_dir(std::env::temp_dir())
        .unwrap()
        .map_while(Result::ok)
    {
        let name = entry.file_name().to_string_lossy().into_owned();
        let run = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split('-').next());
        if run.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // Another run may be at it too.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Gives a path to whom boxes are made for.
pub fn give(path: &Path) {
    let (uid, gid) = ids();
    if root() {
        std::os::unix::fs::lchown(path, Some(uid), Some(gid)).unwrap();
    }
}

pub fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    for part in path
        .ancestors()
        .take_while(|part| *part != std::env::temp_dir())
    {
        give(part);
    }
}

pub fn open_path(path: &Path) -> OwnedFd {
    let flags = nix::libc::O_PATH | nix::libc::O_CLOEXEC;
    OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .unwrap()
        .into()
}

/// What is asked of one launcher.
pub struct Ask {
    pub spec: BoxSpec,
    pub own: PathBuf,
    pub grants: Vec<PathBuf>,
    pub input: Vec<u8>,
    /// What the command reads in place of `input`.
    pub stdin: Option<OwnedFd>,
    /// Folder of a delegated cgroup, with `launcher` and `box` in it.
    pub cgroup: Option<PathBuf>,
    /// Whether the launcher waits for the question with a box that is begun.
    pub ahead: bool,
}

impl Ask {
    pub fn new(command: &[&str]) -> Self {
        let (uid, gid) = ids();
        Self {
            spec: BoxSpec {
                hostname: "probe".into(),
                command: command
                    .iter()
                    .map(|word| word.as_bytes().to_vec())
                    .collect(),
                env: vec![(b"PATH".to_vec(), b"/usr/bin:/bin".to_vec())],
                cwd: b"/home/box".to_vec(),
                home: b"/home/box".to_vec(),
                grants: Vec::new(),
                stdio: Stdio::Pipes,
                uid,
                gid,
                tier: Tier::Gated,
                class: bailey_model::BoxClass::Plain,
                limits: bailey_model::Limits::default(),
                cgroup: false,
                display: None,
                gpu: false,
                weaker: false,
                open_files: 1024,
                broken: None,
            },
            own: folder("own"),
            grants: Vec::new(),
            input: Vec::new(),
            stdin: None,
            cgroup: None,
            ahead: true,
        }
    }

    pub fn python(script: &str) -> Self {
        Self::new(&["/usr/bin/python3", "-c", script])
    }

    pub fn shell(script: &str) -> Self {
        Self::new(&["/bin/sh", "-c", script])
    }

    pub fn tier(mut self, tier: Tier) -> Self {
        self.spec.tier = tier;
        self
    }

    /// Of a launcher that does not wait first.
    pub fn at_once(mut self) -> Self {
        self.ahead = false;
        self
    }

    pub fn within(mut self, cgroup: &Path) -> Self {
        self.spec.cgroup = true;
        self.cgroup = Some(cgroup.into());
        self
    }

    pub fn grant(mut self, path: &Path, read_only: bool) -> Self {
        self.spec.grants.push(Grant {
            at: path.as_os_str().as_encoded_bytes().into(),
            read_only,
        });
        self.grants.push(path.into());
        self
    }

    pub fn terminal(mut self, rows: u16, cols: u16) -> Self {
        self.spec.stdio = Stdio::Pty { rows, cols };
        self
    }

    /// Starts the launcher and waits until the box is made.
    pub fn make(self) -> Result<Made, SetupError> {
        self.start(launcher(), |_| {}).made()
    }

    pub fn make_with(self, change: impl FnOnce(&mut Command)) -> Result<Made, SetupError> {
        self.start(launcher(), change).made()
    }

    /// Starts a launcher and tells it what to make.
    pub fn start(self, program: &Path, change: impl FnOnce(&mut Command)) -> Started {
        let mut command = as_ordinary(program);
        change(&mut command);
        let (launcher, mut channel) = spawn(command);
        if let Some(cgroup) = &self.cgroup {
            into_cgroup(&launcher, cgroup);
        }
        let cgroup = self.cgroup.as_ref();
        let cgroup = cgroup.map(|cgroup| open_path(&cgroup.join("box")));
        if self.ahead {
            let folder: Vec<_> = cgroup.iter().map(AsFd::as_fd).collect();
            channel.send(&ToFence::Await, &folder).unwrap();
        }
        self.ask(launcher, channel)
    }

    /// Tells a launcher what to make.
    pub fn ask(mut self, launcher: Child, mut channel: Channel) -> Started {
        let mut fds: Vec<OwnedFd> = Vec::new();
        let mut readers = Vec::new();
        if self.spec.stdio == Stdio::Pipes {
            fds.push(self.stdin.take().unwrap_or_else(|| {
                let (read, mut write) = std::io::pipe().unwrap();
                let input = self.input.clone();
                std::thread::spawn(move || write.write_all(&input));
                read.into()
            }));
            for _ in 0..2 {
                let (read, write) = std::io::pipe().unwrap();
                fds.push(write.into());
                readers.push(text_of(read));
            }
        }
        if let Some(cgroup) = &self.cgroup {
            fds.push(open_path(&cgroup.join("box")));
        }
        fds.push(open_path(&self.own));
        fds.extend(self.grants.iter().map(|path| open_path(path)));
        let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        channel
            .send(&ToFence::Start(Box::new(self.spec.clone())), &borrowed)
            .unwrap();
        Started {
            launcher,
            channel,
            spec: self.spec,
            cgroup: self.cgroup,
            readers,
        }
    }

    /// Makes the box, runs the command to its end.
    pub fn run(self) -> Outcome {
        self.make()
            .unwrap_or_else(|error| panic!("{error}"))
            .go()
            .end()
    }
}

/// Puts a launcher where the node would be.
fn into_cgroup(launcher: &Child, delegated: &Path) {
    let pid = launcher.id().to_string();
    std::fs::write(delegated.join("launcher/cgroup.procs"), pid).unwrap();
}

/// A program as whom boxes are made for.
pub fn as_ordinary(program: &Path) -> Command {
    if !root() {
        return Command::new(program);
    }
    let mut command = Command::new("/usr/bin/setpriv");
    command.args([format!("--reuid={ORDINARY}"), format!("--regid={ORDINARY}")]);
    command.arg("--clear-groups").arg(program);
    command
}

/// Starts a launcher with a channel as its input.
pub fn spawn(mut command: Command) -> (Child, Channel) {
    let (ours, theirs) = Channel::pair().unwrap();
    ours.set_read_timeout(Some(PATIENCE)).unwrap();
    command.stdin(OwnedFd::from(theirs)).stdout(Streams::null());
    (command.spawn().unwrap(), Channel::new(ours))
}

/// All that comes out of a pipe.
fn text_of(mut pipe: PipeReader) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        pipe.read_to_end(&mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    })
}

/// Waits until a launcher says that its command is executed.
fn runs(channel: &mut Channel) {
    let message = channel.receive::<FromFence>().unwrap();
    assert_eq!(message.value, FromFence::Running);
}

/// Waits for a launcher's last message and its end: how its command ended, and
/// whether it ran.
fn last(channel: &mut Channel, launcher: &mut Child) -> (ChildExit, bool) {
    let mut ran = false;
    let end = loop {
        match channel.receive::<FromFence>().unwrap().value {
            FromFence::Running => ran = true,
            FromFence::Ended(end) => break end,
            other => panic!("{other:?}"),
        }
    };
    assert!(launcher.wait().unwrap().success());
    (end, ran)
}

/// A launcher that makes its box.
pub struct Started {
    pub launcher: Child,
    pub channel: Channel,
    pub spec: BoxSpec,
    pub cgroup: Option<PathBuf>,
    readers: Vec<JoinHandle<String>>,
}

impl Started {
    pub fn made(mut self) -> Result<Made, SetupError> {
        let (mut tun, mut terminal, mut namespaces) = (None, None, Vec::new());
        let (mut gate, mut refusals) = (None, None);
        loop {
            let Message { value, mut fds } = self.channel.receive::<FromFence>().unwrap();
            match value {
                FromFence::Tun => {
                    let device = fds.pop_front().map(File::from).unwrap();
                    gate = Some(gate::Gate::start(&device));
                    tun = Some(device);
                }
                FromFence::Pty => terminal = fds.pop_front().map(File::from),
                FromFence::Namespaces => namespaces = fds.into(),
                FromFence::Refusals => refusals = fds.pop_front(),
                FromFence::Made { pid, measured } => {
                    // Its packets from here on are the test's.
                    drop(gate);
                    let [pidfd, _seen, processes] =
                        <[OwnedFd; 3]>::try_from(Vec::from(fds)).unwrap();
                    let Self {
                        launcher,
                        channel,
                        spec,
                        cgroup,
                        readers,
                    } = self;
                    let readers = readers.try_into().ok();
                    return Ok(Made {
                        launcher,
                        channel,
                        pid,
                        pidfd,
                        processes,
                        namespaces,
                        refusals,
                        measured,
                        alone: false,
                        spec,
                        cgroup,
                        tun,
                        terminal,
                        readers,
                    });
                }
                FromFence::Failed(error) => {
                    self.launcher.wait().unwrap();
                    return Err(error);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// A box that waits for its command to start, or runs it.
pub struct Made {
    pub launcher: Child,
    pub channel: Channel,
    pub pid: i32,
    pub pidfd: OwnedFd,
    pub processes: OwnedFd,
    pub namespaces: Vec<OwnedFd>,
    /// Where a gated box reads what it was refused.
    pub refusals: Option<OwnedFd>,
    pub measured: Measured,
    pub spec: BoxSpec,
    pub cgroup: Option<PathBuf>,
    alone: bool,
    pub tun: Option<File>,
    pub terminal: Option<File>,
    readers: Option<[JoinHandle<String>; 2]>,
}

#[derive(Debug)]
pub struct Outcome {
    pub end: ChildExit,
    pub ran: bool,
    pub out: String,
    pub err: String,
}

impl Outcome {
    /// What a probe printed, which must have gone well.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(
            (self.end, self.err.as_str()),
            (ChildExit::Code(0), ""),
            "{}",
            self.out
        );
        self.out
    }
}

impl Made {
    pub fn tell(&mut self, what: &ToFence) {
        self.channel.send(what, &[]).unwrap();
    }

    pub fn go(mut self) -> Self {
        self.tell(&ToFence::Go);
        self
    }

    /// Waits until the command is executed.
    pub fn running(mut self) -> Self {
        runs(&mut self.channel);
        self
    }

    /// As `end`, of a box that shares the host's processes.
    pub fn end_alone(mut self) -> String {
        self.alone = true;
        self.end().ok()
    }

    /// Waits for the last message, and for the launcher.
    pub fn end(mut self) -> Outcome {
        let (end, ran) = last(&mut self.channel, &mut self.launcher);
        if !self.alone {
            assert_eq!(self.left(), 0, "processes of the box are left");
        }
        let [out, err] = match self.readers.take() {
            Some(readers) => readers.map(|reader| reader.join().unwrap()),
            None => [String::new(), String::new()],
        };
        Outcome { end, ran, out, err }
    }

    /// Processes of the box that have not ended, read from its own /proc. One
    /// that has ended stays there until its parent asks.
    pub fn left(&self) -> usize {
        self.pids().len()
    }

    /// Their numbers inside the box, ascending.
    pub fn pids(&self) -> Vec<u32> {
        let within = PathBuf::from(format!("/proc/self/fd/{}", self.processes.as_raw_fd()));
        // A /proc whose namespace is gone cannot be read at all.
        let Ok(entries) = std::fs::read_dir(&within) else {
            return Vec::new();
        };
        let mut pids: Vec<u32> = entries
            .map_while(Result::ok)
            .filter(|entry| alive(&entry.path()))
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        pids.sort_unstable();
        pids
    }

    /// Waits until pid 1 is gone, and all with it.
    pub fn gone(&self) -> bool {
        let mut polled = [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)];
        let ended = poll(&mut polled, PollTimeout::from(10_000_u16)).unwrap() == 1;
        let until = Instant::now() + PATIENCE;
        while self.left() > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        ended && self.left() == 0
    }
}

/// Waits for something to come true.
#[track_caller]
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let patience = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < patience, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Processes of the machine, not ended, whose name, arguments or program (where
/// that may be seen) hold a text.
pub fn processes_with(text: &str) -> usize {
    let all = std::fs::read_dir("/proc").unwrap().map_while(Result::ok);
    all.filter(|entry| {
        let read =
            |file: &str| std::fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        let ended = read("stat")
            .rsplit(')')
            .next()
            .is_some_and(|rest| rest.starts_with(" Z"));
        let program = std::fs::read_link(entry.path().join("exe")).unwrap_or_default();
        let program = program.to_string_lossy();
        !ended
            && (read("comm").contains(text)
                || read("cmdline").contains(text)
                || program.contains(text))
    })
    .count()
}

/// Whether an entry of a /proc is a process that has not ended.
fn alive(entry: &Path) -> bool {
    let name = entry.file_name().unwrap_or_default().as_encoded_bytes();
    let stat = std::fs::read_to_string(entry.join("stat")).unwrap_or_default();
    let state = stat
        .rsplit(')')
        .next()
        .map(str::trim_start)
        .unwrap_or_default();
    name.iter().all(u8::is_ascii_digit) && !state.is_empty() && !state.starts_with(['Z', 'X'])
}
