//! From the start of the node to its end: its folders, its lock, its loop.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::event::EVENTS;
use super::limits::Cgroups;
use super::store::IN_FLIGHT;
use super::{Node, control, devices, fold, lock, metrics, store, trash};
use crate::api::Failure;
use crate::config::Config;
use crate::log::log;
use crate::paths::Paths;
use crate::vault;

/// Between two looks at what has no event: files, limits, idleness.
const TICK: Duration = Duration::from_millis(500);
/// Most events of one turn of the loop: what they ask of the store is committed
/// together.
const TOGETHER: usize = 64;
/// How long a node that leaves waits until its peers have heard so.
const GOODBYE: Duration = Duration::from_millis(1_500);

/// Is the node until it is told to end.
///
/// # Errors
/// When another one runs, or the machine does not allow it.
pub fn run(background: bool, said_name: Option<String>) -> Result<u8, Failure> {
    let paths = Paths::from_env().map_err(|error| Failure::host(error.to_string()))?;
    paths
        .create()
        .map_err(|error| Failure::host(error.to_string()))?;
    if background {
        // Before this process opens anything of its own.
        lock::close_inherited()
            .map_err(|error| Failure::host(format!("inherited descriptors: {error}")))?;
        // A session of its own: the terminal that started it may go away.
        nix::unistd::setsid().map_err(|error| Failure::host(format!("setsid: {error}")))?;
    }
    let _lock = match lock::take_or_defer(&paths)? {
        Some(lock) => lock,
        // Another one serves: a command that wanted a node has it.
        None if background => return Ok(0),
        // The error says which process it is.
        None => lock::take(&paths).map_err(|error| Failure::host(error.to_string()))?,
    };
    let config = match &paths.config {
        Some(folder) => Config::load(folder).map_err(|error| Failure::usage(error.to_string()))?,
        None => Config::default(),
    };
    confine_self()?;
    let open_files = raise_files()?;
    // While this process is all there is of the node.
    let cgroups = Cgroups::find();
    log!("limits: {cgroups}");
    let name = device_name(&paths, said_name)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(8)
        .enable_all()
        .build()
        .map_err(|error| Failure::host(format!("runtime: {error}")))?;
    runtime.block_on(serve(
        (paths, config),
        background,
        name,
        (cgroups, open_files),
    ))
}

/// What this device calls itself: as said now, as said before, or its host name.
fn device_name(paths: &Paths, said: Option<String>) -> Result<String, Failure> {
    let path = paths.state.join("device.name");
    let clean = |name: &str| name.trim().chars().take(fold::MAX_NAME).collect::<String>();
    if let Some(name) = said.as_deref().map(clean) {
        if name.is_empty() {
            return Err(Failure::usage("--device-name: empty"));
        }
        devices::write_private(&path, &name)
            .map_err(|error| Failure::host(format!("{}: {error}", path.display())))?;
        return Ok(name);
    }
    if let Ok(kept) = std::fs::read_to_string(&path)
        && !clean(&kept).is_empty()
    {
        return Ok(clean(&kept));
    }
    let host = nix::unistd::gethostname().unwrap_or_default();
    let name = clean(&host.to_string_lossy());
    Ok(if name.is_empty() {
        "device".to_owned()
    } else {
        name
    })
}

/// No other process of the user may read this one's memory, and no core dump
/// may hold its keys.
fn confine_self() -> Result<(), Failure> {
    let fault = |error| Failure::host(format!("confinement: {error}"));
    nix::sys::prctl::set_dumpable(false).map_err(fault)?;
    let core = nix::sys::resource::Resource::RLIMIT_CORE;
    nix::sys::resource::setrlimit(core, 1, 1).map_err(fault)
}

/// Boxes take descriptors of the node, more than a program may have open at first.
/// What that was, for the programs in boxes.
fn raise_files() -> Result<u64, Failure> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let fault = |error| Failure::host(format!("limit of open files: {error}"));
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(fault)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map_err(fault)?;
    Ok(soft)
}

async fn serve(
    (paths, config): (Paths, Config),
    background: bool,
    name: String,
    (cgroups, open_files): (Cgroups, u64),
) -> Result<u8, Failure> {
    let socket = paths
        .socket()
        .map_err(|error| Failure::host(error.to_string()))?;
    let (events, mut incoming) = mpsc::channel(EVENTS);
    let key_file = paths.state.join("device.key");
    store::not_without_its_key(&paths, &key_file)?;
    let keys = vault::device_keys(&key_file, config.keys.at_rest).await?;
    let opened = store::open(&paths, keys, config.audit.clone())?;
    let mut store_tells = opened.tells;
    let mut node = Node::new(paths, events.clone(), opened.asks, opened.keys, name);
    node.incarnation = opened.incarnation;
    node.config = config;
    node.cgroups = cgroups;
    node.open_files = open_files;
    node.devices.begin(opened.heads, opened.members);
    node.recover(opened.history, opened.account)?;
    let listener = control::listen(&socket)
        .map_err(|error| Failure::host(format!("{}: {error}", socket.display())))?;
    node.paths
        .write_socket(&socket)
        .map_err(|error| Failure::host(format!("node.socket: {error}")))?;
    node.serve_metrics().await?;
    let slots = control::Slots::new();
    let accepting = tokio::spawn(control::accept(listener, events, slots.clone()));
    let mut tick = tokio::time::interval(TICK);
    let mut end = Signals::new().map_err(|error| Failure::host(format!("signals: {error}")))?;
    let mut together = Vec::with_capacity(TOGETHER);
    loop {
        node.hand_over();
        tokio::select! {
            biased;
            tells = store_tells.recv() => match tells {
                Some(tells) => {
                    tells.into_iter().for_each(|tell| node.on_store(tell));
                    node.tell_entered();
                }
                None => return Err(Failure::internal("the store's thread is gone")),
            },
            () = end.wait(), if !node.leaving => node.leave(),
            _ = tick.tick() => node.on_tick(background, slots.any_taken()),
            count = incoming.recv_many(&mut together, TOGETHER), if node.in_flight < IN_FLIGHT => {
                if count == 0 {
                    return Err(Failure::internal("every sender of events is gone"));
                }
                together.drain(..).for_each(|event| node.on_event(event));
            }
            // After the tasks of this thread have had their turn: whoever waits
            // for an answer has it.
            () = tokio::task::yield_now(), if !node.over.is_empty() => node.clear_up(),
        }
        if node.leaving {
            // Whoever comes now is the next node's to serve.
            accepting.abort();
        }
        let done = node.runs.is_empty() && node.over.is_empty() && node.in_flight == 0;
        if node.leaving && done {
            break;
        }
    }
    // A socket file that stays is replaced by the next node.
    let _left = std::fs::remove_file(&socket);
    node.forget_listeners();
    node.put_last_mail(&mut store_tells, &mut incoming).await;
    node.keep_mailboxes();
    let endpoint = node.devices.take_endpoint();
    drop(node);
    say_goodbye(endpoint).await;
    store::finish(&mut store_tells).await;
    trash::wait_for_groups();
    Ok(0)
}

impl Node {
    /// Serves the figures, where the configuration asks for it.
    async fn serve_metrics(&mut self) -> Result<(), Failure> {
        if let Some(addr) = self.config.metrics.listen {
            let token = self.paths.state.join("metrics.token");
            let listening = metrics::listen(addr, &token, self.events.clone()).await;
            let fault = |error| Failure::host(format!("[metrics] listen = \"{addr}\": {error}"));
            self.metrics_at = Some(listening.map_err(fault)?);
        }
        Ok(())
    }
}

/// Waits until peers have heard that this node leaves.
async fn say_goodbye(endpoint: Option<bailey_sync::Endpoint>) {
    if let Some(endpoint) = endpoint
        && timeout(GOODBYE, endpoint.stopped()).await.is_err()
    {
        log!("sync: left without a goodbye");
    }
}

/// SIGTERM and SIGINT.
struct Signals {
    term: tokio::signal::unix::Signal,
    int: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
        })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}
