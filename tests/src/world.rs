//! A world whose nodes have bailey.

use std::ops::Deref;
use std::process::Command;
use std::time::Duration;

use bailey_world::{World, WorldSpec};

use crate::binaries::binaries;
use crate::run::{Output, Running, run, run_within};

/// How long a node may take to be told to leave.
const LEAVE: Duration = Duration::from_secs(5);

/// A [`World`] and the built programs.
#[derive(Debug)]
pub struct TestWorld {
    world: World,
}

impl Deref for TestWorld {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl TestWorld {
    /// A world with nodes `n1` to `nN`.
    ///
    /// # Panics
    /// The programs are not built, or the world did not start; the message
    /// says which step failed.
    #[track_caller]
    #[must_use]
    pub fn new(nodes: u8) -> Self {
        Self::with(nodes, |_| {})
    }

    /// The same, with a specification that is changed before.
    ///
    /// # Panics
    /// As [`Self::new`].
    #[track_caller]
    #[must_use]
    pub fn with(nodes: u8, change: impl FnOnce(&mut WorldSpec)) -> Self {
        let server = vec![binaries().join("bailey-world").into_os_string()];
        let mut spec = WorldSpec::new(server, nodes);
        change(&mut spec);
        let world = World::start(spec);
        Self {
            world: world.unwrap_or_else(|error| panic!("{error}")),
        }
    }

    /// `bailey` in a node.
    ///
    /// # Panics
    /// There is no such node.
    #[track_caller]
    #[must_use]
    pub fn bailey(&self, node: &str) -> Command {
        self.command(node, &binaries().join("bailey").to_string_lossy())
    }

    /// A program in a node.
    ///
    /// # Panics
    /// There is no such node.
    #[track_caller]
    #[must_use]
    pub fn command(&self, node: &str, program: &str) -> Command {
        self.node(node)
            .unwrap_or_else(|error| panic!("{error}"))
            .command(program)
    }

    /// Runs `bailey` with these words in a node to its end (20 s at most).
    ///
    /// # Panics
    /// It cannot be started.
    #[track_caller]
    #[must_use]
    pub fn run(&self, node: &str, words: &[&str]) -> Output {
        run(self.bailey(node).args(words))
    }

    /// Starts `bailey` with these words in a node, beside the test.
    ///
    /// # Panics
    /// It cannot be started.
    #[track_caller]
    #[must_use]
    pub fn start(&self, node: &str, words: &[&str]) -> Running {
        Running::start(self.bailey(node).args(words))
    }

    /// Runs a shell script in a node, outside every box, to its end.
    ///
    /// # Panics
    /// It cannot be started.
    #[track_caller]
    #[must_use]
    pub fn sh(&self, node: &str, script: &str) -> Output {
        run(self.command(node, "sh").args(["-c", script]))
    }

    /// Kills processes of a node by their pids there, as its user.
    ///
    /// # Panics
    /// `kill` cannot be started.
    #[track_caller]
    pub fn kill(&self, node: &str, signal: &str, pids: &[u32]) {
        let mut kill = self.command(node, "kill");
        kill.arg(format!("-{signal}"))
            .args(pids.iter().map(u32::to_string));
        // A process that has just ended is what the caller wants.
        let _ended = run_within(LEAVE, &mut kill);
    }

    /// Pids, as the node counts, of the processes whose program has this name.
    ///
    /// # Panics
    /// The node's /proc cannot be read.
    #[track_caller]
    #[must_use]
    pub fn pids(&self, node: &str, program: &str) -> Vec<u32> {
        let node = self.node(node).unwrap_or_else(|error| panic!("{error}"));
        let all = node.processes().unwrap_or_else(|error| panic!("{error}"));
        let named = |word: &String| word.rsplit('/').next() == Some(program);
        all.into_iter()
            .filter(|process| process.command.first().is_some_and(named))
            .map(|process| process.pid)
            .collect()
    }
}
