//! What belongs to the terminal of a command that runs in a box: its signals,
//! its window's size, its streams.

use std::io::IsTerminal as _;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use bailey_channel::Channel;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;

use super::out;
use super::relay::{self, Relay};
use crate::api::{Ask, Failure};
use crate::client::Client;

/// Whether this process's own terminal is the command's.
pub(super) fn has_terminal() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// A command in a box, seen from here.
#[derive(Debug)]
pub(super) struct Attended {
    /// The master of the command's terminal, where it has one.
    master: Arc<Mutex<Option<OwnedFd>>>,
    relay: Option<Relay>,
}

impl Attended {
    /// Forwards signals from now on, and carries the pipes where it has these.
    pub(super) fn new(
        client: &Client,
        outer: Option<[OwnedFd; 3]>,
        signals: SignalFd,
    ) -> Result<Self, Failure> {
        let master = Arc::new(Mutex::new(None));
        forward(signals, client.sender()?, Arc::clone(&master));
        Ok(Self {
            master,
            relay: outer.map(Relay::pipes),
        })
    }

    /// The command has this terminal.
    pub(super) fn terminal(&mut self, fd: OwnedFd) -> Result<(), Failure> {
        let relay = Relay::terminal(&fd);
        self.relay = Some(relay.map_err(|error| Failure::host(format!("terminal: {error}")))?);
        relay::resize(&fd);
        *lock(&self.master) = Some(fd);
        Ok(())
    }

    /// A line beside what the box writes; a raw terminal does not return by itself.
    pub(super) fn say(&self, text: &str) {
        let relayed = self.relay.as_ref().is_some_and(Relay::is_raw);
        let raw = relayed && std::io::stderr().is_terminal();
        let end = if raw { "\r" } else { "" };
        out::say(&format!("{text}{end}"));
    }

    /// Carries what was written and gives the terminal back.
    pub(super) fn finish(self) {
        drop(lock(&self.master).take());
        if let Some(relay) = self.relay {
            relay.finish();
        }
    }
}

fn lock<T>(value: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    value
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Forwards signals to the box's command, and the window's size to its pty.
fn forward(signals: SignalFd, mut sender: Channel, master: Arc<Mutex<Option<OwnedFd>>>) {
    std::thread::spawn(move || {
        while let Ok(Some(info)) = signals.read_signal() {
            let Ok(number) = i32::try_from(info.ssi_signo) else {
                continue;
            };
            if number == Signal::SIGWINCH as i32 {
                if let Some(master) = &*lock(&master) {
                    relay::resize(master);
                }
            } else if sender.send(&Ask::Signal(number), &[]).is_err() {
                return;
            }
        }
    });
}

/// Before any thread is started, so that only the signalfd gets them.
pub(super) fn block_signals() -> Result<SignalFd, Failure> {
    let mut set = SigSet::empty();
    for signal in [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGWINCH,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ] {
        set.add(signal);
    }
    set.thread_block()
        .and_then(|()| SignalFd::new(&set))
        .map_err(|error| Failure::host(format!("signals: {error}")))
}
