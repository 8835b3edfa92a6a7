//! Plays the node that runs a further command in a box.

use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::Child;
use std::thread::JoinHandle;

use bailey_channel::{Channel, Message};
use bailey_fence_plan::channel::{FromFence, JoinSpec, SetupError, Stdio, ToFence};

use super::{
    Made, Outcome, as_ordinary, into_cgroup, last, launcher, open_path, runs, spawn, text_of,
};

/// What is asked of one launcher.
pub struct Join {
    pub spec: JoinSpec,
}

/// What a node keeps of a box for it.
pub struct Held {
    pidfd: OwnedFd,
    namespaces: Vec<OwnedFd>,
    cgroup: Option<PathBuf>,
    like: JoinSpec,
}

impl Join {
    pub fn new(command: &[&str]) -> Self {
        let words = command.iter().map(|word| word.as_bytes().to_vec());
        Self {
            spec: JoinSpec {
                command: words.collect(),
                env: vec![(b"PATH".to_vec(), b"/usr/bin:/bin".to_vec())],
                cwd: b"/home/box".to_vec(),
                stdio: Stdio::Pipes,
                tier: bailey_model::Tier::Gated,
                class: bailey_model::BoxClass::Plain,
                limits: bailey_model::Limits::default(),
                cgroup: false,
                open_files: 1024,
            },
        }
    }

    pub fn python(script: &str) -> Self {
        Self::new(&["/usr/bin/python3", "-c", script])
    }

    pub fn shell(script: &str) -> Self {
        Self::new(&["/bin/sh", "-c", script])
    }

    pub fn terminal(mut self, rows: u16, cols: u16) -> Self {
        self.spec.stdio = Stdio::Pty { rows, cols };
        self
    }

    pub fn hold(&self, made: &Made) -> Held {
        let again = |fd: &OwnedFd| fd.try_clone().unwrap();
        Held {
            pidfd: again(&made.pidfd),
            namespaces: made.namespaces.iter().map(again).collect(),
            cgroup: made.cgroup.clone(),
            like: JoinSpec {
                tier: made.spec.tier,
                class: made.spec.class,
                limits: made.spec.limits,
                cgroup: made.spec.cgroup,
                ..self.spec.clone()
            },
        }
    }

    /// Joins a box, and waits until that is done.
    pub fn enter(self, made: &Made) -> Result<Joined, SetupError> {
        let held = self.hold(made);
        self.with(held)
    }

    pub fn with(self, held: Held) -> Result<Joined, SetupError> {
        let (launcher, mut channel) = spawn(as_ordinary(launcher()));
        // As the node's, it waited for whatever comes.
        channel.send(&ToFence::Await, &[]).unwrap();
        let mut fds: Vec<OwnedFd> = Vec::new();
        let (mut out, mut error) = (None, None);
        if held.like.stdio == Stdio::Pipes {
            fds.push(File::open("/dev/null").unwrap().into());
            let (read, write) = std::io::pipe().unwrap();
            out = Some(BufReader::new(read));
            fds.push(write.into());
            let (read, write) = std::io::pipe().unwrap();
            fds.push(write.into());
            error = Some(text_of(read));
        }
        fds.push(held.pidfd);
        if let Some(cgroup) = held.cgroup {
            into_cgroup(&launcher, &cgroup);
            fds.push(open_path(&cgroup.join("box")));
        }
        fds.extend(held.namespaces);
        let given: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        let ask = ToFence::Join(Box::new(held.like));
        channel.send(&ask, &given).unwrap();
        drop(given);
        drop(fds);
        let mut joined = Joined {
            launcher,
            channel,
            terminal: None,
            out,
            error,
        };
        loop {
            let Message { value, mut fds } = joined.channel.receive::<FromFence>().unwrap();
            match value {
                FromFence::Pty => joined.terminal = fds.pop_front().map(File::from),
                FromFence::Joined => return Ok(joined),
                FromFence::Failed(error) => {
                    joined.launcher.wait().unwrap();
                    return Err(error);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// A command that waits to start in a box, or runs there.
pub struct Joined {
    pub launcher: Child,
    pub channel: Channel,
    pub terminal: Option<File>,
    out: Option<BufReader<PipeReader>>,
    error: Option<JoinHandle<String>>,
}

impl Joined {
    pub fn tell(&mut self, what: &ToFence) {
        self.channel.send(what, &[]).unwrap();
    }

    pub fn go(mut self) -> Self {
        self.tell(&ToFence::Go);
        self
    }

    pub fn running(mut self) -> Self {
        runs(&mut self.channel);
        self
    }

    /// The next line that it prints.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.as_mut().unwrap().read_line(&mut line).unwrap();
        line
    }

    /// Goes away without a word.
    pub fn abandon(self) -> Child {
        self.launcher
    }

    /// Waits for the last message, and for the launcher.
    pub fn end(mut self) -> Outcome {
        let (end, ran) = last(&mut self.channel, &mut self.launcher);
        let mut out = String::new();
        if let Some(mut rest) = self.out.take() {
            rest.read_to_string(&mut out).unwrap();
        }
        let err = self.error.take().map(|error| error.join().unwrap());
        Outcome {
            end,
            ran,
            out,
            err: err.unwrap_or_default(),
        }
    }
}
