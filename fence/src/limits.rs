//! What a box may use up, as far as the box's own processes carry it: counts of
//! its user namespace, and limits of each process. What the node's cgroup holds
//! is not here.

use std::os::fd::OwnedFd;

use bailey_fence_plan::channel::{Layer, SetupError};
use bailey_model::{BoxClass, Limits, Tier};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use crate::step::StepError;

/// How many namespaces of a kind a box may have at once that may make some, its
/// own one counted: a browser's sandbox takes two or three.
const NESTED: u64 = 32;
/// Of what all programs of a user share, a box may take one part in this many.
const SHARE: u64 = 4;
/// What is counted for a user and not for a process: signals that wait, bytes in
/// message queues, and memory that is kept from being swapped.
const SHARED: [Resource; 3] = [Resource::Sigpending, Resource::Msgqueue, Resource::Memlock];
/// Open files that a box may have at least, and where the system has no limit,
/// the kernel's own (fs.nr_open).
const FEWEST_FILES: u64 = 1024;
const MOST_FILES: u64 = 1 << 20;
/// What a kernel that does not say has for one user (`inotify(7)`).
const USUAL_INSTANCES: u64 = 128;
const USUAL_WATCHES: u64 = 8192;

/// What one user may have of the kernel at once, in all namespaces together.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct UserCounts {
    instances: u64,
    watches: u64,
    groups: u64,
    marks: u64,
}

impl UserCounts {
    /// Looks at the host's settings.
    pub(crate) fn look() -> Self {
        let number = |path: &str, usual: u64| {
            let text = std::fs::read_to_string(path).ok();
            let number = text.and_then(|text| text.trim().parse().ok());
            number.unwrap_or(usual)
        };
        Self {
            instances: number("/proc/sys/fs/inotify/max_user_instances", USUAL_INSTANCES),
            watches: number("/proc/sys/fs/inotify/max_user_watches", USUAL_WATCHES),
            groups: number("/proc/sys/fs/fanotify/max_user_groups", USUAL_INSTANCES),
            marks: number("/proc/sys/fs/fanotify/max_user_marks", USUAL_WATCHES),
        }
    }
}

/// What decides a box's limits.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Bounds {
    pub(crate) tier: Tier,
    pub(crate) class: BoxClass,
    pub(crate) limits: Limits,
    /// Whether a cgroup holds memory and processes.
    pub(crate) cgroup: bool,
    /// The soft limit of open files where none is asked.
    pub(crate) open_files: u64,
    pub(crate) broken: Option<Layer>,
}

impl Bounds {
    /// What the box may have at once, by the name below `/proc/sys/user`.
    fn counts(&self, of_user: UserCounts) -> [(&'static str, u64); 12] {
        let part = |whole: u64| (whole / SHARE).max(1);
        let browser = self.class == BoxClass::Browser;
        // At l1 no filter keeps a program from trying: a nested sandbox works.
        let any = if self.tier == Tier::L1 { NESTED } else { 0 };
        let sandbox = if browser { NESTED } else { any };
        [
            ("max_user_namespaces", sandbox),
            ("max_pid_namespaces", sandbox),
            ("max_net_namespaces", sandbox),
            // A name with a mount on it can be replaced from a mount namespace in
            // which nothing is mounted there: what covers a granted name would
            // fall off.
            ("max_mnt_namespaces", 0),
            ("max_ipc_namespaces", any),
            ("max_uts_namespaces", any),
            ("max_cgroup_namespaces", any),
            ("max_time_namespaces", any),
            ("max_inotify_instances", part(of_user.instances)),
            ("max_inotify_watches", part(of_user.watches)),
            ("max_fanotify_groups", part(of_user.groups)),
            ("max_fanotify_marks", part(of_user.marks)),
        ]
    }

    /// Bounds what is counted for a user across namespaces. Inside the box's
    /// user namespace, with its privileges still there, through its own /proc:
    /// none of the box's programs can write there later.
    pub(crate) fn set_counts(&self, proc: &OwnedFd, of_user: UserCounts) -> Result<(), SetupError> {
        if self.broken == Some(Layer::Limits) {
            return Ok(());
        }
        for (name, count) in self.counts(of_user) {
            let path = format!("sys/user/{name}");
            let flags = OFlags::WRONLY | OFlags::CLOEXEC;
            let written = openat(proc, path.as_str(), flags, Mode::empty())
                .and_then(|file| rustix::io::write(&file, count.to_string().as_bytes()));
            match written {
                // A kernel that does not count this.
                Err(Errno::NOENT) => {}
                Ok(_) => {}
                Err(errno) => {
                    let step = "bound what a user's programs share:";
                    return Err(StepError::from(errno).at(step, Some(name.as_bytes())));
                }
            }
        }
        Ok(())
    }

    /// The limits of this process and of all that it starts, which cannot raise
    /// them. That of processes counts those of the box's user namespace alone
    /// (since Linux 5.14), as a cgroup would.
    pub(crate) fn set_process_limits(&self) -> Result<(), SetupError> {
        if self.broken == Some(Layer::Limits) {
            return Ok(());
        }
        let Limits { memory, pids, .. } = self.limits;
        let here = !self.cgroup;
        let wanted = [
            (Resource::As, memory.filter(|_| here)),
            (Resource::Nproc, pids.map(u64::from).filter(|_| here)),
        ];
        for (resource, most) in wanted {
            let Some(most) = most else { continue };
            lower(resource, most).map_err(|errno| {
                let step = format!("limit {resource:?} to {most}");
                StepError::from(errno).at(&step, None)
            })?;
        }
        for resource in SHARED {
            share(resource).map_err(|errno| {
                let step = format!("limit {resource:?} to a part");
                StepError::from(errno).at(&step, None)
            })?;
        }
        Ok(())
    }

    /// The limit of open files, of the command and of who tries what it may do.
    /// The process that starts them keeps its own: it still has descriptors to
    /// send, of which the user may have many under way.
    pub(crate) fn limit_files(&self) -> Result<(), Errno> {
        match self.limits.files {
            _ if self.broken == Some(Layer::Limits) => Ok(()),
            Some(files) => lower(Resource::Nofile, files.into()),
            None => share_files(self.open_files),
        }
    }
}

/// A core dump of one byte at most. 0 would not stop a dump into a pipe
/// (core(5)); 1 does. Where the user may not even have one byte, 0 has to do.
pub(crate) fn limit_core() -> Result<(), Errno> {
    lower(Resource::Core, 1)
}

/// A part of the files that the user may have open. Of descriptors that are under
/// way in a socket the kernel counts all of a user's together, and lets nobody
/// send one who may not have so many open (unix(7), ETOOMANYREFS): so one box
/// cannot keep the node and the command line from sending theirs.
fn share_files(usual: u64) -> Result<(), Errno> {
    let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(MOST_FILES);
    let most = (hard / SHARE).max(hard.min(FEWEST_FILES));
    let limit = Rlimit {
        current: Some(usual.min(most)),
        maximum: Some(most),
    };
    setrlimit(Resource::Nofile, limit)
}

/// A part of what the user may have. Who may have any number is given no bound
/// here either.
fn share(resource: Resource) -> Result<(), Errno> {
    match getrlimit(resource).maximum {
        Some(whole) => lower(resource, whole / SHARE),
        None => Ok(()),
    }
}

/// Sets both limits, or keeps what is lower already.
fn lower(resource: Resource, most: u64) -> Result<(), Errno> {
    let most = getrlimit(resource)
        .maximum
        .map_or(most, |maximum| maximum.min(most));
    let limit = Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    setrlimit(resource, limit)
}
