//! The control socket: a task a connection between it and the loop.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bailey_channel::{AsyncChannel, ChannelError, Step};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};

use super::event::{ANSWERS, Answer, ConnId, NodeEvent};
use crate::api::{API, Failure, Tell};
use crate::log::log;

/// Connections at once; a person has a few.
const MAX_CONNECTIONS: usize = 256;

/// Places for connections. One is held by the accepting itself.
#[derive(Debug, Clone)]
pub(crate) struct Slots(Arc<Semaphore>);

impl Slots {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MAX_CONNECTIONS)))
    }

    /// Whether a connection is there, greeted or not: the loop may not have
    /// heard of it yet.
    pub(crate) fn any_taken(&self) -> bool {
        self.0.available_permits() + 1 < MAX_CONNECTIONS
    }
}

/// How long a command line may take until it has asked. It asks with its
/// greeting; one that does not must not keep a place from one that does.
const ASK_LIMIT: Duration = Duration::from_secs(5);
/// Answers are gathered to this many bytes before they are sent.
const GATHER: usize = 64 << 10;

/// Listens. A socket file left by a node that is gone is replaced: the lock
/// was taken before.
///
/// # Errors
/// When the socket cannot be made.
pub(crate) fn listen(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Accepts until the loop is gone.
pub(crate) async fn accept(listener: UnixListener, events: mpsc::Sender<NodeEvent>, slots: Slots) {
    let mut next = 0_u64;
    loop {
        let Ok(slot) = Arc::clone(&slots.0).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                log!("control socket: {error}");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                continue;
            }
        };
        next += 1;
        let (conn, events) = (ConnId(next), events.clone());
        tokio::spawn(async move {
            if is_own(&stream) {
                serve(conn, stream, &events).await;
                // The loop is gone: nobody is left to tell.
                let _gone = events.send(NodeEvent::Disconnected { conn }).await;
            }
            drop(slot);
        });
    }
}

/// Whether the other end runs as this user. The folder's mode says so already;
/// this holds where somebody widened it.
fn is_own(stream: &UnixStream) -> bool {
    stream
        .peer_cred()
        .is_ok_and(|peer| peer.uid() == nix::unistd::geteuid().as_raw())
}

async fn serve(conn: ConnId, stream: UnixStream, events: &mpsc::Sender<NodeEvent>) {
    let mut channel = AsyncChannel::from_tokio(stream);
    let (answers, mut outgoing) = mpsc::channel::<Answer>(ANSWERS);
    let hello = Tell::Hello {
        api: API,
        pid: std::process::id(),
    };
    if channel.send(&hello, Vec::new()).await.is_err() {
        return;
    }
    // One of another version has heard so by now.
    let deadline = tokio::time::Instant::now() + ASK_LIMIT;
    match tokio::time::timeout_at(deadline, channel.receive::<u32>()).await {
        Ok(Ok(first)) if first.value == API => {}
        _ => return,
    }
    if events
        .send(NodeEvent::Connected { conn, answers })
        .await
        .is_err()
    {
        return;
    }
    let (mut asked, mut last_said) = (false, false);
    loop {
        let room = channel.queued_bytes() < GATHER;
        let result = tokio::select! {
            answer = outgoing.recv(), if room => match answer {
                Some((tell, fds)) => {
                    last_said = matches!(tell, Tell::Done | Tell::Failed(_) | Tell::Ended(_));
                    channel.queue(&tell, fds)
                }
                // The loop has nothing more to say on this connection.
                None => {
                    if !last_said {
                        let slow = Failure::host("more came than was read in time");
                        let _full = channel.queue(&Tell::Failed(slow), Vec::new());
                    }
                    let _gone = channel.flush().await;
                    return;
                }
            },
            () = tokio::time::sleep_until(deadline), if !asked => return,
            step = channel.step() => match step {
                Ok(Step::Flushed) => Ok(()),
                Ok(Step::Message(message)) => {
                    asked = true;
                    let question = NodeEvent::Asked { conn, ask: message.value, fds: message.fds };
                    events.send(question).await.map_err(|_| ChannelError::Closed)
                }
                Err(error) => Err(error),
            },
        };
        if result.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Ask;

    /// What the loop hears of a command line that says it is of `api`.
    async fn heard(api: u32) -> Vec<NodeEvent> {
        let (own, theirs) = UnixStream::pair().unwrap();
        let (events, mut incoming) = mpsc::channel(8);
        let serving = tokio::spawn(async move { serve(ConnId(1), theirs, &events).await });
        let mut client = AsyncChannel::from_tokio(own);
        // Before the greeting, as a command line does.
        client.send(&api, Vec::new()).await.unwrap();
        client.send(&Ask::Ps, Vec::new()).await.unwrap();
        let hello = client.receive::<Tell>().await.unwrap().value;
        assert!(matches!(hello, Tell::Hello { api: API, .. }));
        let mut heard = Vec::new();
        while let Ok(event) =
            tokio::time::timeout(std::time::Duration::from_millis(200), incoming.recv()).await
        {
            let Some(event) = event else { break };
            heard.push(event);
        }
        drop(client);
        serving.await.unwrap();
        heard
    }

    #[tokio::test]
    async fn a_command_line_of_another_version_hears_which_this_is_and_nobody_hears_it() {
        assert!(heard(API + 1).await.is_empty());
        let asked = heard(API).await;
        assert!(matches!(
            asked.as_slice(),
            [
                NodeEvent::Connected { .. },
                NodeEvent::Asked { ask: Ask::Ps, .. }
            ]
        ));
    }

    #[tokio::test]
    async fn one_that_asks_nothing_gives_its_place_back() {
        for greets in [false, true] {
            let (own, theirs) = UnixStream::pair().unwrap();
            let (events, _incoming) = mpsc::channel(8);
            let begun = std::time::Instant::now();
            let serving = tokio::spawn(async move { serve(ConnId(1), theirs, &events).await });
            let mut client = AsyncChannel::from_tokio(own);
            if greets {
                client.send(&API, Vec::new()).await.unwrap();
            }
            serving.await.unwrap();
            assert!(begun.elapsed() >= ASK_LIMIT, "{greets}");
        }
    }

    #[tokio::test]
    async fn one_that_reads_too_slowly_is_told_so() {
        let (own, theirs) = UnixStream::pair().unwrap();
        let (events, mut incoming) = mpsc::channel(8);
        let serving = tokio::spawn(async move { serve(ConnId(1), theirs, &events).await });
        let mut client = AsyncChannel::from_tokio(own);
        client.send(&API, Vec::new()).await.unwrap();
        client.send(&Ask::Ps, Vec::new()).await.unwrap();
        let Some(NodeEvent::Connected { answers, .. }) = incoming.recv().await else {
            panic!("not connected");
        };
        // The loop drops one whose queue is full.
        let full = || Tell::Note("x".repeat(1000));
        while answers.try_send((full(), Vec::new())).is_ok() {}
        drop(answers);
        let mut last = None;
        while let Ok(message) = client.receive::<Tell>().await {
            last = Some(message.value);
        }
        let Some(Tell::Failed(failure)) = last else {
            panic!("{last:?}");
        };
        assert!(failure.text.contains("read in time"), "{failure:?}");
        serving.await.unwrap();
    }
}
