//! The command line's side of the control socket.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bailey_channel::{Channel, Message};

use crate::api::{API, Ask, Failure, Tell};
use crate::paths::Paths;

/// How long a started node may take until its socket answers.
const START_LIMIT: Duration = Duration::from_secs(10);
/// Between two looks at the socket.
const START_STEP: Duration = Duration::from_millis(5);

/// A question under way.
#[derive(Debug)]
pub struct Client {
    channel: Channel,
    stream: UnixStream,
}

impl Client {
    /// Meets the user's node, starting one where none runs.
    ///
    /// # Errors
    /// When none runs and none can be started, or it is of another build.
    pub fn connect_or_start(paths: &Paths) -> Result<Self, Failure> {
        paths
            .create()
            .map_err(|error| Failure::host(error.to_string()))?;
        let socket = paths
            .socket()
            .map_err(|error| Failure::host(error.to_string()))?;
        match UnixStream::connect(&socket) {
            Ok(stream) => Self::greet(stream),
            Err(error) if is_absent(&error) => Self::start(paths, &socket),
            Err(error) => Err(Failure::host(format!("{}: {error}", socket.display()))),
        }
    }

    fn start(paths: &Paths, socket: &PathBuf) -> Result<Self, Failure> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(paths.log())
            .map_err(|error| Failure::host(format!("{}: {error}", paths.log().display())))?;
        let program = std::env::current_exe()
            .map_err(|error| Failure::internal(format!("own program: {error}")))?;
        let mut node = Command::new(&program)
            .args(["node", "--background"])
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|error| Failure::host(format!("{}: {error}", program.display())))?;
        let until = Instant::now() + START_LIMIT;
        loop {
            match UnixStream::connect(socket) {
                Ok(stream) => return Self::greet(stream),
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(Failure::host(format!("{}: {error}", socket.display()))),
            }
            // Another command may have started the node in the same moment; then
            // this one leaves with success and the socket appears all the same.
            let gone = node
                .try_wait()
                .ok()
                .flatten()
                .filter(|status| !status.success());
            if gone.is_some() || Instant::now() > until {
                return Err(Failure::host("the node did not start")
                    .hint(format!("its last words: {}", last_words(paths))));
            }
            std::thread::sleep(START_STEP);
        }
    }

    fn greet(stream: UnixStream) -> Result<Self, Failure> {
        let copy = stream
            .try_clone()
            .map_err(|error| Failure::internal(format!("control socket: {error}")))?;
        let mut client = Self {
            channel: Channel::new(stream),
            stream: copy,
        };
        match client.receive()?.value {
            Tell::Hello { api, .. } if api == API => Ok(client),
            Tell::Hello { pid, .. } => Err(Failure::host(format!(
                "the running node (process {pid}) is of another version"
            ))
            .hint("end it and run this command again")),
            Tell::Failed(failure) => Err(failure),
            _ => Err(Failure::internal("the node did not greet")),
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
