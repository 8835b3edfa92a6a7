//! What the audit costs a connection: a box whose gate asks its node, beside one
//! whose gate is answered at once by a stand-in, without an entry.
//!
//! bailey has no switch that turns the audit of flows off. So the bench puts this
//! program where a node of its own looks for its gate. It starts the real gate and
//! hands every message on, both ways, but what asks for an entry of an allowed flow
//! or tells of one: it answers those itself. Box, launcher, node, TUN and gate are
//! the real ones, and what is asked or told still goes to another process and back.

use std::fs::Permissions;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use bailey_channel::{Channel, ChannelError};
use bailey_gate_proto::channel::{FromGate, GateEvent, ToGate};
use bailey_tests::{TestWorld, binaries, run_within};

use crate::Effort;
use crate::inside::{SLACK, first_line, program};
use crate::places::{gated, parse};
use crate::server::Server;
use crate::table::{Figure, Mark, Row, Table};

/// The name by which a node starts a gate, and what the real one is called beside
/// the stand-in.
const GATE: &str = "bailey-gate";
const REAL: &str = "bailey-gate.real";
/// More rounds than of other rates: the two are close together.
const ROUNDS: usize = 3;

/// What stands for "off" in the table.
const OFF: &str = "off      the audit off: a stand-in of this bench's between node and gate \
answers each ask of the gate at once and enters nothing; box, TUN and gate are the real ones";

/// Whether this program was started as a gate.
pub(crate) fn is_gate() -> bool {
    std::env::args().next().as_deref() == Some(GATE)
}

/// Stands between a node and the real gate until one of them ends.
pub(crate) fn stand_in() -> ExitCode {
    match between() {
        Ok(()) | Err(ChannelError::Closed) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stand-in: {error}");
            ExitCode::FAILURE
        }
    }
}

fn between() -> Result<(), ChannelError> {
    let node = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (gate, theirs) = Channel::pair()?;
    let real = std::env::current_exe()?.with_file_name(REAL);
    let mut child = Command::new(real)
        .arg0(GATE)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn()?;
    let to_gate = Arc::new(Mutex::new(Channel::new(gate.try_clone()?)));
    let (mut from_node, also_to_gate) = (Channel::new(node.try_clone()?), Arc::clone(&to_gate));
    let gate_ends = gate.try_clone()?;
    let orders = std::thread::spawn(move || {
        let handed: Result<(), ChannelError> = (|| loop {
            let order = from_node.receive::<ToGate>()?;
            let fds: Vec<BorrowedFd<'_>> = order.fds.iter().map(OwnedFd::as_fd).collect();
            let mut gate = also_to_gate.lock().unwrap_or_else(PoisonError::into_inner);
            gate.send(&order.value, &fds)?;
        })();
        // The node is gone: so is its gate.
        let _gone = gate_ends.shutdown(std::net::Shutdown::Both);
        handed
    });
    let (mut from_gate, mut to_node) = (Channel::new(gate), Channel::new(node.try_clone()?));
    let answered: Result<(), ChannelError> = (|| loop {
        let said = from_gate.receive::<FromGate>()?.value;
        if let Some(answer) = answer_to(&said) {
            let mut gate = to_gate.lock().unwrap_or_else(PoisonError::into_inner);
            gate.send(&answer, &[])?;
        } else if !is_of_allowed(&said) {
            to_node.send(&said, &[])?;
        }
    })();
    let _gone = node.shutdown(std::net::Shutdown::Both);
    drop(orders.join());
    child.wait()?;
    answered
}

/// What a node would answer once all of it is entered.
fn answer_to(said: &FromGate) -> Option<ToGate> {
    match said {
        FromGate::Event {
            ticket: Some(ticket),
            ..
        } => Some(ToGate::Committed { ticket: *ticket }),
        FromGate::Noted { first, flows } => {
            let count = u64::try_from(flows.len()).unwrap_or(u64::MAX);
            let upto = first.saturating_add(count).saturating_sub(1);
            Some(ToGate::Entered { upto })
        }
        _ => None,
    }
}

/// Whether it tells of a flow whose beginning the node did not hear of.
fn is_of_allowed(said: &FromGate) -> bool {
    let FromGate::Event { event, .. } = said else {
        return false;
    };
    matches!(
        event,
        GateEvent::FlowNamed(_) | GateEvent::FlowEnded(_) | GateEvent::NameAsked(_)
    )
}

/// Programs with the stand-in among them; gone when this is dropped.
struct Programs(PathBuf);

impl Programs {
    fn new() -> io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("bailey-off-{}", std::process::id()));
        std::fs::create_dir(&folder)?;
        let made = Self(folder);
        std::fs::set_permissions(&made.0, Permissions::from_mode(0o755))?;
        for (from, to) in [
            ("bailey", "bailey"),
            ("bailey-node", "bailey-node"),
            ("bailey-fence", "bailey-fence"),
            (GATE, REAL),
            ("bailey-bench", GATE),
        ] {
            let to = made.0.join(to);
            std::fs::copy(binaries().join(from), &to)?;
            std::fs::set_permissions(&to, Permissions::from_mode(0o755))?;
        }
        Ok(made)
    }

    /// `bailey run` of a program of ours, with the audit off.
    fn gated(&self, world: &TestWorld, bench: &str) -> Result<Command, String> {
        let home = world.node("n1").map_err(|error| error.to_string())?.home();
        let mut command = world.command("n1", &self.0.join("bailey").to_string_lossy());
        for (name, folder) in [
            ("XDG_STATE_HOME", "off-state"),
            ("XDG_RUNTIME_DIR", "off-run"),
        ] {
            let folder = home.join(folder);
            let made = world.sh("n1", &format!("mkdir -p -m 700 {}", folder.display()));
            if made.code != Some(0) {
                return Err(first_line(&made.stderr));
            }
            command.env(name, folder);
        }
        let on = gated(world, "local", bench);
        command.args(on.get_args().skip_while(|word| *word != "run"));
        Ok(command)
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        // A folder of /tmp that stays is a nuisance, not a failure.
        let _left = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn measure(world: &TestWorld, server: &Server, effort: Effort, table: &mut Table) {
    table.fact(OFF.to_owned());
    let programs = Programs::new().map_err(|error| format!("programs: {error}"));
    for (name, threads, part) in [
        ("connections with the audit on, one at a time", "1", 0.75),
        ("connections with the audit on, 32 at a time", "32", 0.9),
    ] {
        let (mut on, mut off) = (Vec::new(), Vec::new());
        for _ in 0..effort.rounds * ROUNDS {
            let bench = program("bailey-bench");
            on.push(rate(gated(world, "local", &bench), server, effort, threads));
            let without = programs.as_ref().map_err(String::clone);
            let without = without.and_then(|programs| programs.gated(world, &bench));
            off.push(match without {
                Ok(command) => rate(command, server, effort, threads),
                Err(why) => Figure::Failed(why),
            });
        }
        table.add(Row {
            name,
            unit: "/s",
            bailey: Figure::median(&on),
            worst: None,
            peers: vec![("off", Figure::median(&off))],
            mark: Some(Mark::OfFirst(part)),
        });
    }
}

/// Connections a second that carry one byte.
fn rate(mut command: Command, server: &Server, effort: Effort, threads: &str) -> Figure {
    let millis = effort.short.as_millis().to_string();
    let tick = server.at("tick");
    command.args(["client", "tick", &tick, &millis, threads]);
    let output = run_within(effort.short + SLACK, &mut command);
    match output.code {
        Some(0) => parse(output.stdout.trim()),
        code => Figure::Failed(format!("code {code:?}: {}", first_line(&output.stderr))),
    }
}
