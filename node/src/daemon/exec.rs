//! A further command in a running box.
//!
//! It has a launcher of its own, which joins the box by descriptors that
//! the node holds since the box was made: it can be no other box. Its command
//! line belongs to it as that of a run does.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use bailey_fence_plan::channel::{FromFence, JoinSpec, Stdio, ToFence};
use bailey_model::ChildExit;

use super::child::Program;
use super::event::{ConnId, FenceId, RunId};
use super::launchers::Serves;
use super::run_state::{Phase, Run};
use super::{Node, prepare};
use crate::account;
use crate::api::{ExecAsk, Failure, Tell};

/// Further commands in one box at once.
const MAX_EXECS: usize = 64;
/// How long one may take to join.
const JOIN_LIMIT: Duration = Duration::from_secs(30);
/// A command that was killed may have been so by the end of its box, which is
/// heard of a little later. So long it is waited for.
const KILLED_WAIT: Duration = Duration::from_millis(500);

/// The signal of an end by force.
const SIGKILL: ChildExit = ChildExit::Signal(9);

/// One further command.
#[derive(Debug)]
pub(super) struct Exec {
    run: RunId,
    conn: ConnId,
    fence: Program<ToFence>,
    pty: Option<OwnedFd>,
    begun: Instant,
    /// Whether its command was let go.
    going: bool,
    /// It was killed, then, and its box has not ended by now.
    killed: Option<Instant>,
}

impl Node {
    pub(super) fn begin_exec(
        &mut self,
        conn: ConnId,
        ask: ExecAsk,
        fds: VecDeque<OwnedFd>,
    ) -> Result<(), Failure> {
        let (id, name) = self.exec_target(&ask.target)?;
        if ask.command.is_empty() {
            return Err(Failure::usage("no command"));
        }
        if fds.len() != if ask.pty.is_some() { 0 } else { 3 } {
            return Err(Failure::usage("three streams, or a terminal"));
        }
        if self.execs.values().filter(|exec| exec.run == id).count() >= MAX_EXECS {
            let text = format!("{name} has {MAX_EXECS} further commands already");
            return Err(Failure::host(text));
        }
        let fault = |error: &dyn std::fmt::Display| Failure::host(format!("{name}: {error}"));
        let run = self.runs.get(&id).ok_or_else(|| fault(&"it has ended"))?;
        let pid1 = run.pid1.as_ref().ok_or_else(|| fault(&"it is not made"))?;
        let mut handed: Vec<OwnedFd> = fds.into();
        let copy = pid1.as_fd().try_clone_to_owned();
        handed.push(copy.map_err(|error| fault(&error))?);
        if let Some(cgroup) = &run.cgroup {
            handed.push(cgroup.open().map_err(|error| fault(&error))?);
        }
        for namespace in &run.namespaces {
            let copy = namespace.as_fd().try_clone_to_owned();
            handed.push(copy.map_err(|error| fault(&error))?);
        }
        let spec = join_spec(run, ask, self.open_files);
        let order = ToFence::Join(Box::new(spec));
        let launched = self.launch(Serves::Exec, order, handed);
        let (fence_id, fence) = launched.map_err(|error| fault(&error))?;
        let exec = Exec {
            run: id,
            conn,
            fence,
            pty: None,
            begun: Instant::now(),
            going: false,
            killed: None,
        };
        self.execs.insert(fence_id, exec);
        Ok(())
    }

    /// The running box of this node that is meant.
    fn exec_target(&self, target: &str) -> Result<(RunId, String), Failure> {
        let state = self.fold.resolve(target, self.this)?;
        let name = state.name;
        if state.writer != self.this {
            let device = self.fold.device_name(state.writer);
            let text = format!("{name} runs on {device}; a command can be added there alone");
            return Err(Failure::usage(text));
        }
        let same = |run: &Run| run.incarnation == state.incarnation;
        match self.runs.iter().find(|(_, run)| same(run)) {
            Some((_, run)) if run.phase == Phase::Running && run.is_held() => {
                Err(Failure::host(format!("{name} is paused")).hint(format!(
                    "bailey resume {} lets it go on",
                    crate::show::shell_word(&name)
                )))
            }
            Some((id, run)) if run.phase == Phase::Running => Ok((*id, name)),
            Some((_, run)) if run.phase == Phase::Making => {
                Err(Failure::host(format!("{name} is still starting")))
            }
            _ => Err(Failure::usage(format!("{name} does not run"))
                .hint(account::command("ps lists what does"))),
        }
    }

    /// The launcher of a further command says something.
    pub(super) fn on_exec(&mut self, id: FenceId, said: FromFence, mut fds: VecDeque<OwnedFd>) {
        let Some(exec) = self.execs.get_mut(&id) else {
            return;
        };
        let run = self.runs.get(&exec.run);
        let ending = run.is_some_and(|run| run.phase != Phase::Running || run.is_without_pid1());
        match said {
            FromFence::Pty => exec.pty = fds.pop_front(),
            FromFence::Joined => self.go_exec(id),
            FromFence::Running | FromFence::DisplayEnded => {}
            // Its box is ending: that is what it ends by.
            FromFence::Failed(_) | FromFence::OnlyWeaker(_) if ending => {
                exec.killed = Some(Instant::now());
            }
            FromFence::Failed(error) | FromFence::OnlyWeaker(error) => {
                self.end_exec(id, Tell::Failed(Failure::host(error.to_string())));
            }
            FromFence::Ended(SIGKILL) => exec.killed = Some(Instant::now()),
            FromFence::Ended(exit) => self.end_exec(id, Tell::ExecEnded(exit)),
            FromFence::Tun
            | FromFence::Namespaces
            | FromFence::Display
            | FromFence::Refusals
            | FromFence::CoverLost { .. }
            | FromFence::Made { .. } => {
                let text = "the launcher made a box where it was to join one";
                self.end_exec(id, Tell::Failed(Failure::internal(text)));
            }
        }
    }

    fn go_exec(&mut self, id: FenceId) {
        let Some(exec) = self.execs.get_mut(&id) else {
            return;
        };
        let run = self.runs.get(&exec.run);
        // One that is ending takes no further command.
        let Some(run) = run.filter(|run| run.phase == Phase::Running && !exec.going) else {
            return;
        };
        if run.is_held() {
            let failure = Failure::host("its box was paused before it began");
            return self.end_exec(id, Tell::Failed(failure));
        }
        exec.going = true;
        exec.fence.send(ToFence::Go, vec![]);
        let (conn, pty) = (exec.conn, exec.pty.take().into_iter().collect());
        let (name, box_id) = (run.name.clone(), run.box_id);
        self.tell_with(conn, Tell::Running { name, box_id }, pty);
    }

    /// Its launcher is gone without a last word.
    pub(super) fn on_exec_gone(&mut self, id: FenceId) {
        let Some(exec) = self.execs.get_mut(&id) else {
            return;
        };
        if exec.killed.is_none() {
            let failure = Failure::host("its launcher went away, and the command with it");
            self.end_exec(id, Tell::Failed(failure));
        }
    }

    /// The last word for its command line; its launcher ends with it.
    fn end_exec(&mut self, id: FenceId, tell: Tell) {
        if let Some(exec) = self.execs.remove(&id) {
            self.finish(exec.conn, tell);
        }
    }

    /// A signal, or the end, of a command line that added a command.
    /// Whether there is one.
    pub(super) fn signal_exec(&self, conn: ConnId, signal: i32) -> bool {
        let exec = self.execs.values().find(|exec| exec.conn == conn);
        exec.is_some_and(|exec| exec.fence.send(ToFence::Signal(signal), vec![]))
    }

    pub(super) fn has_exec(&self, conn: ConnId) -> bool {
        self.execs.values().any(|exec| exec.conn == conn)
    }

    pub(super) fn drop_execs_of(&mut self, conn: ConnId) {
        self.execs.retain(|_, exec| exec.conn != conn);
    }

    /// Its box has ended, and is measured: every further command with it.
    pub(super) fn end_execs_in(&mut self, id: RunId, run: &Run) {
        let of_run = self.execs.iter().filter(|(_, exec)| exec.run == id);
        let ended: Vec<FenceId> = of_run.map(|(id, _)| *id).collect();
        for exec in ended {
            self.end_exec(exec, Tell::Ended(run.ended()));
        }
    }

    /// One that was killed in a box that goes on was killed by somebody there;
    /// one that does not join in time never will.
    pub(super) fn end_overdue_execs(&mut self, now: Instant) {
        let mut over = Vec::new();
        for (id, exec) in &self.execs {
            let goes_on = self
                .runs
                .get(&exec.run)
                .is_some_and(|run| run.phase == Phase::Running);
            if !goes_on {
                continue;
            }
            if exec.killed.is_some_and(|killed| now > killed + KILLED_WAIT) {
                over.push((*id, Tell::ExecEnded(SIGKILL)));
            } else if !exec.going && now > exec.begun + JOIN_LIMIT {
                let text = format!("it had not joined after {} s", JOIN_LIMIT.as_secs());
                over.push((*id, Tell::Failed(Failure::host(text))));
            }
        }
        for (id, tell) in over {
            self.end_exec(id, tell);
        }
    }
}

fn join_spec(run: &Run, ask: ExecAsk, open_files: u64) -> JoinSpec {
    JoinSpec {
        command: ask.command,
        env: prepare::environment(ask.env, ask.pty.is_some(), run.screen.is_some()),
        cwd: ask.cwd.unwrap_or_else(|| prepare::HOME.to_vec()),
        stdio: match ask.pty {
            Some((rows, cols)) => Stdio::Pty { rows, cols },
            None => Stdio::Pipes,
        },
        tier: run.tier,
        class: run.class,
        limits: run.limits,
        cgroup: run.cgroup.is_some(),
        open_files,
    }
}
