#![expect(unreachable_pub, reason = "shared by the test binaries of this package")]

//! Plays the node: starts the real launcher as an ordinary user and speaks its
//! channel.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio as Streams};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bailey_channel::{Channel, Message};
use bailey_fence_plan::channel::{BoxSpec, FromFence, Grant, SetupError, Stdio, ToFence};
use bailey_model::ChildExit;

/// Whom boxes are made for where the tests run as root.
const ORDINARY: u32 = 54321;
/// Longer than anything here takes, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(30);

pub fn root() -> bool {
    nix::unistd::geteuid().is_root()
}

pub fn ids() -> (u32, u32) {
    if root() {
        (ORDINARY, ORDINARY)
    } else {
        (nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw())
    }
}

/// The launcher where an ordinary user can execute it.
fn launcher() -> &'static Path {
    static COPY: OnceLock<PathBuf> = OnceLock::new();
    COPY.get_or_init(|| {
        if root() {
            let _ = std::fs::set_permissions("/dev/net/tun", Permissions::from_mode(0o666));
        }
        let copy = folder("launcher").join("bailey-fence");
        std::fs::copy(env!("CARGO_BIN_EXE_bailey-fence"), &copy).unwrap();
        std::fs::set_permissions(&copy, Permissions::from_mode(0o755)).unwrap();
        copy
    })
}

/// A new folder that belongs to whom boxes are made for.
pub fn folder(name: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let path =
        std::env::temp_dir().join(format!("bailey-fence-{}-{number}-{name}", std::process::id()));
    std::fs::create_dir(&path).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    give(&path);
    path
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
    for part in path.ancestors().take_while(|part| *part != std::env::temp_dir()) {
        give(part);
    }
}

pub fn open_path(path: &Path) -> OwnedFd {
    let flags = nix::libc::O_PATH | nix::libc::O_CLOEXEC;
    OpenOptions::new().read(true).custom_flags(flags).open(path).unwrap().into()
}

/// What is asked of one launcher.
pub struct Ask {
    pub spec: BoxSpec,
    pub own: PathBuf,
    pub grants: Vec<PathBuf>,
    pub input: Vec<u8>,
}

impl Ask {
    pub fn new(command: &[&str]) -> Self {
        let (uid, gid) = ids();
        Self {
            spec: BoxSpec {
                hostname: "probe".into(),
                command: command.iter().map(|word| word.as_bytes().to_vec()).collect(),
                env: vec![(b"PATH".to_vec(), b"/usr/bin:/bin".to_vec())],
                cwd: b"/home/box".to_vec(),
                home: b"/home/box".to_vec(),
                grants: Vec::new(),
                stdio: Stdio::Pipes,
                uid,
                gid,
            },
            own: folder("own"),
            grants: Vec::new(),
            input: Vec::new(),
        }
    }

    pub fn python(script: &str) -> Self {
        Self::new(&["/usr/bin/python3", "-c", script])
    }

    pub fn shell(script: &str) -> Self {
        Self::new(&["/bin/sh", "-c", script])
    }

    pub fn grant(mut self, path: &Path, read_only: bool) -> Self {
        self.spec.grants.push(Grant { at: path.as_os_str().as_encoded_bytes().into(), read_only });
        self.grants.push(path.into());
        self
    }

    pub fn terminal(mut self, rows: u16, cols: u16) -> Self {
        self.spec.stdio = Stdio::Pty { rows, cols };
        self
    }

    /// Starts the launcher and waits until the box is made.
    pub fn make(self) -> Result<Made, SetupError> {
        self.make_with(|_| {})
    }

    pub fn make_with(self, change: impl FnOnce(&mut Command)) -> Result<Made, SetupError> {
        let (ours, theirs) = Channel::pair().unwrap();
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut command = if root() {
            let mut command = Command::new("setpriv");
            command.args([format!("--reuid={ORDINARY}"), format!("--regid={ORDINARY}")]);
            command.arg("--clear-groups").arg(launcher());
            command
        } else {
            Command::new(launcher())
        };
        command.stdin(OwnedFd::from(theirs)).stdout(Streams::null());
        change(&mut command);
        let child = command.spawn().unwrap();
        drop(command);
        let mut channel = Channel::new(ours);
        let mut fds: Vec<OwnedFd> = Vec::new();
        let mut readers = Vec::new();
        if self.spec.stdio == Stdio::Pipes {
            let (read, mut write) = std::io::pipe().unwrap();
            let input = self.input.clone();
            std::thread::spawn(move || write.write_all(&input));
            fds.push(read.into());
            for _ in 0..2 {
                let (mut read, write) = std::io::pipe().unwrap();
                fds.push(write.into());
                readers.push(std::thread::spawn(move || {
                    let mut text = Vec::new();
                    read.read_to_end(&mut text).unwrap();
                    String::from_utf8_lossy(&text).into_owned()
                }));
            }
        }
        fds.push(open_path(&self.own));
        fds.extend(self.grants.iter().map(|path| open_path(path)));
        let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        channel.send(&ToFence::Start(Box::new(self.spec)), &borrowed).unwrap();
        drop(fds);
        let (mut tun, mut terminal) = (None, None);
        loop {
            let Message { value, mut fds } = channel.receive::<FromFence>().unwrap();
            match value {
                FromFence::Tun => tun = fds.pop_front().map(File::from),
                FromFence::Pty => terminal = fds.pop_front().map(File::from),
                FromFence::Made { pid } => {
                    let [pidfd, seen, processes] = <[OwnedFd; 3]>::try_from(Vec::from(fds)).unwrap();
                    let readers = readers.try_into().ok();
                    return Ok(Made {
                        launcher: child,
                        channel,
                        pid,
                        pidfd,
                        seen,
                        processes,
                        tun,
                        terminal,
                        readers,
                        own: self.own,
                    });
                }
                FromFence::Failed(error) => {
                    let mut child = child;
                    child.wait().unwrap();
                    return Err(error);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Makes the box, runs the command to its end.
    pub fn run(self) -> Outcome {
        self.make().unwrap_or_else(|error| panic!("{error}")).go().end()
    }
}

/// A box that waits for its command to start, or runs it.
pub struct Made {
    pub launcher: Child,
    pub channel: Channel,
    pub pid: i32,
    pub pidfd: OwnedFd,
    pub seen: OwnedFd,
    pub processes: OwnedFd,
    pub tun: Option<File>,
    pub terminal: Option<File>,
    readers: Option<[JoinHandle<String>; 2]>,
    pub own: PathBuf,
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
        assert_eq!((self.end, self.err.as_str()), (ChildExit::Code(0), ""), "{}", self.out);
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
        let message = self.channel.receive::<FromFence>().unwrap();
        assert_eq!(message.value, FromFence::Running);
        self
    }

    /// Waits for the last message, and for the launcher.
    pub fn end(mut self) -> Outcome {
        let mut ran = false;
        let end = loop {
            match self.channel.receive::<FromFence>().unwrap().value {
                FromFence::Running => ran = true,
                FromFence::Ended(end) => break end,
                other => panic!("{other:?}"),
            }
        };
        assert!(self.launcher.wait().unwrap().success());
        assert_eq!(self.left(), 0, "processes of the box are left");
        let [out, err] = match self.readers.take() {
            Some(readers) => readers.map(|reader| reader.join().unwrap()),
            None => [String::new(), String::new()],
        };
        Outcome { end, ran, out, err }
    }

    /// Processes of the box, read from its own /proc.
    pub fn left(&self) -> usize {
        let dir = nix::dir::Dir::from_fd(self.processes.try_clone().unwrap());
        let Ok(mut dir) = dir else { return 0 };
        let names = dir.iter().map_while(Result::ok);
        names.filter(|entry| entry.file_name().to_bytes().iter().all(u8::is_ascii_digit)).count()
    }

    /// Waits until pid 1 is gone.
    pub fn gone(&self) -> bool {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let mut polled = [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)];
        poll(&mut polled, PollTimeout::from(10_000_u16)).unwrap() == 1
    }
}
