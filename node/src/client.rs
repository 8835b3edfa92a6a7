//! The command line's side of the control socket.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bailey_channel::{Channel, ChannelError, Message};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;

use crate::account;
use crate::api::{API, Ask, Failure, Tell};
use crate::paths::Paths;

/// How long a started node may take until its socket answers; it may have to
/// wait for one that is leaving.
const START_LIMIT: Duration = Duration::from_secs(15);
/// How long a node may take to greet.
const GREET_LIMIT: Duration = Duration::from_secs(10);
/// A larger log is put aside when the next node starts.
const MAX_LOG: u64 = 1 << 20;
/// What a node needs of its caller's environment.
const KEPT: [&str; 9] = [
    "HOME",
    "PATH",
    "LANG",
    "LC_ALL",
    "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "DBUS_SESSION_BUS_ADDRESS",
    "RUST_BACKTRACE",
];
/// Between two looks at the socket.
const START_STEP: Duration = Duration::from_millis(5);

/// A question under way.
#[derive(Debug)]
pub struct Client {
    channel: Channel,
    stream: UnixStream,
}

impl Client {
    /// Meets the user's node, starting one where none runs, and asks it. The
    /// question goes out before the node has greeted. Where no greeting comes, it
    /// was heard by nobody and is sent anew; after a greeting it never is.
    ///
    /// # Errors
    /// When none runs and none can be started, or it is of another build.
    pub fn ask(paths: &Paths, ask: &Ask, fds: &[BorrowedFd<'_>]) -> Result<Self, Failure> {
        paths
            .create()
            .map_err(|error| Failure::host(error.to_string()))?;
        let until = Instant::now() + START_LIMIT;
        let mut node: Option<Child> = None;
        loop {
            // One that is leaving at this moment is waited for.
            if let Some(stream) = reach(paths)? {
                match Self::greet(stream, ask, fds, GREET_LIMIT) {
                    Ok(client) => return Ok(client),
                    Err(Greeting::Left) => {}
                    Err(Greeting::Failed(failure)) => return Err(failure),
                }
            }
            let ended = match &mut node {
                Some(node) => node
                    .try_wait()
                    .map_err(|error| Failure::internal(format!("the started node: {error}")))?,
                None => {
                    node = Some(start(paths)?);
                    None
                }
            };
            let failed = ended.is_some_and(|status| !status.success());
            if failed || Instant::now() > until {
                return Err(Failure::host("the node did not start")
                    .hint(format!("its last words: {}", last_words(paths))));
            }
            if ended.is_some() {
                // Another node held the lock and serves, or has left since.
                node = None;
            }
            std::thread::sleep(START_STEP);
        }
    }

    /// Asks the node of these folders, if one runs; none is started. Each answer must
    /// come within `patience`.
    ///
    /// # Errors
    /// When one is there and does not answer, or is of another build.
    pub(crate) fn ask_running(
        paths: &Paths,
        ask: &Ask,
        patience: Duration,
    ) -> Result<Option<Self>, Failure> {
        let Some(stream) = reach(paths)? else {
            return Ok(None);
        };
        let client = match Self::greet(stream, ask, &[], patience) {
            Ok(client) => client,
            Err(Greeting::Left) => return Ok(None),
            Err(Greeting::Failed(failure)) => return Err(failure),
        };
        let bounded = client.stream.set_read_timeout(Some(patience));
        bounded.map_err(|error| Failure::internal(format!("control socket: {error}")))?;
        Ok(Some(client))
    }

    fn greet(
        stream: UnixStream,
        ask: &Ask,
        fds: &[BorrowedFd<'_>],
        limit: Duration,
    ) -> Result<Self, Greeting> {
        let internal =
            |error| Greeting::Failed(Failure::internal(format!("control socket: {error}")));
        let copy = stream.try_clone().map_err(internal)?;
        stream.set_read_timeout(Some(limit)).map_err(internal)?;
        let mut client = Self {
            channel: Channel::new(stream),
            stream: copy,
        };
        // A node of another version reads only the first, and says which it is. If
        // neither can be sent, it has left, or says why it does not read.
        let sent = client.channel.send(&API, &[]);
        let sent = sent.and_then(|()| client.send_question(ask, fds));
        match &sent {
            Ok(()) | Err(ChannelError::Closed) => {}
            Err(error) => {
                return Err(Greeting::Failed(Failure::host(format!(
                    "the question cannot be sent: {error}"
                ))));
            }
        }
        let hello = client.channel.receive::<Tell>();
        client.stream.set_read_timeout(None).map_err(internal)?;
        match hello.map(|message| message.value) {
            // One that has heard only the beginning.
            Ok(Tell::Hello { api, .. }) if api == API && sent.is_err() => Err(Greeting::Left),
            Ok(Tell::Hello { api, .. }) if api == API => Ok(client),
            Ok(Tell::Hello { pid, .. }) => Err(Greeting::Failed(
                Failure::host(format!(
                    "the running node (process {pid}) is of another version"
                ))
                .hint("end it and run this command again"),
            )),
            Ok(_) => Err(Greeting::Failed(Failure::internal(
                "the node did not greet",
            ))),
            Err(ChannelError::Closed) => Err(Greeting::Left),
            Err(error) => Err(Greeting::Failed(
                Failure::host(format!("the node does not answer: {error}"))
                    .hint("its process id stands in node.lock in bailey's state folder"),
            )),
        }
    }

    /// Where too many of the user's descriptors are under way for this process's
    /// own limit, it is raised as far as it may be.
    fn send_question(&mut self, ask: &Ask, fds: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
        match self.channel.send(ask, fds) {
            Err(ChannelError::Io(error)) if is_too_many(&error) => {
                let files = Resource::RLIMIT_NOFILE;
                let raised = getrlimit(files).and_then(|(_, hard)| setrlimit(files, hard, hard));
                raised.map_err(io::Error::from)?;
                self.channel.send(ask, fds)
            }
            sent => sent,
        }
    }

    /// Sends one message.
    ///
    /// # Errors
    /// When the node is gone.
    pub fn send(&mut self, ask: &Ask, fds: &[BorrowedFd<'_>]) -> Result<(), Failure> {
        Ok(self.channel.send(ask, fds)?)
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// When the node is gone.
    pub fn receive(&mut self) -> Result<Message<Tell>, Failure> {
        Ok(self.channel.receive()?)
    }

    /// A second sender on the same connection, for another thread. Only one
    /// of the two may send at a time.
    ///
    /// # Errors
    /// When there is no descriptor left.
    pub fn sender(&self) -> Result<Channel, Failure> {
        let copy = self.stream.try_clone();
        Ok(Channel::new(
            copy.map_err(|error| Failure::internal(error.to_string()))?,
        ))
    }
}

/// A connection to the running node: at the socket of this environment, else
/// where the node wrote that it listens. `None` where nothing answers.
///
/// # Errors
/// When the socket is there and cannot be used.
pub(crate) fn reach(paths: &Paths) -> Result<Option<UnixStream>, Failure> {
    let host = |error: &dyn std::fmt::Display| Failure::host(error.to_string());
    let own = paths.socket().map_err(|error| host(&error))?;
    match UnixStream::connect(&own) {
        Ok(stream) if is_own(&stream) => return Ok(Some(stream)),
        Ok(_) => {
            return Err(Failure::host(format!(
                "{}: somebody else listens there",
                own.display()
            )));
        }
        Err(error) if is_absent(&error) => {}
        Err(error) => return Err(Failure::host(format!("{}: {error}", own.display()))),
    }
    // The note may be of a node that is long gone, and somebody else's by now
    // what lies there: whatever is wrong with it, no node of ours is met.
    let written = paths.written_socket().map_err(|error| host(&error))?;
    Ok(written
        .filter(|written| *written != own)
        .and_then(|written| UnixStream::connect(written).ok())
        .filter(is_own))
}

/// Whether the other end runs as this user.
fn is_own(stream: &UnixStream) -> bool {
    getsockopt(stream, PeerCredentials)
        .is_ok_and(|peer| peer.uid() == nix::unistd::geteuid().as_raw())
}

/// Why a connection is of no use.
enum Greeting {
    /// The node closed it before it said anything.
    Left,
    Failed(Failure),
}

/// Starts a node that leaves by itself. Of the environment it gets what it
/// needs to find its folders; it closes what descriptors it inherits.
fn start(paths: &Paths) -> Result<Child, Failure> {
    let log_path = paths.log();
    let in_log = |error| Failure::host(format!("{}: {error}", log_path.display()));
    if std::fs::metadata(&log_path).is_ok_and(|found| found.len() > MAX_LOG) {
        std::fs::rename(&log_path, paths.old_log()).map_err(in_log)?;
    }
    let mut options = OpenOptions::new();
    let log = options
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&log_path)
        .map_err(in_log)?;
    let program = whole()?;
    let kept = KEPT
        .iter()
        .filter_map(|name| Some((name, std::env::var_os(name)?)));
    let account = account::chosen().map(|name| format!("--account={name}"));
    Command::new(&program)
        // As a person knows it, in a list of processes.
        .arg0(program.with_file_name("bailey"))
        .args(account)
        .args(["node", "--background"])
        .env_clear()
        .envs(kept)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .map_err(|error| Failure::host(format!("{}: {error}", program.display())))
}

/// The program that can do everything, in the folder of this one.
///
/// # Errors
/// When the system does not say where this program is.
pub(crate) fn whole() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe();
    let own = own.map_err(|error| Failure::internal(format!("own program: {error}")))?;
    Ok(own.with_file_name("bailey-node"))
}

fn is_too_many(error: &io::Error) -> bool {
    error.raw_os_error() == Some(nix::errno::Errno::ETOOMANYREFS as i32)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

/// The last line of the log, for a person.
fn last_words(paths: &Paths) -> String {
    let log = std::fs::read(paths.log()).unwrap_or_default();
    let text = String::from_utf8_lossy(&log);
    text.lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("none")
        .to_owned()
}
