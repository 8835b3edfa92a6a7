//! An ordinary user of this machine: a home, a node, and what attacks aim at.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::unistd::{getegid, geteuid};

use crate::run::Running;
use crate::time::wait_until;
use crate::{Output, binaries};

/// Who that is where the caller is root: one without a name.
const ORDINARY: u32 = 54321;
/// How long anything of it may take to come up or to leave.
const LIMIT: Duration = Duration::from_secs(20);
/// Where system programs are.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A place of its own for one user, on the machine itself and not in a world:
/// other sandboxes run beside bailey, under the same conditions. Dropping it
/// ends its node with every box and removes the folder.
#[derive(Debug)]
pub struct Yard {
    dir: PathBuf,
    outside: PathBuf,
    programs: PathBuf,
    mark: String,
    stage: Option<Running>,
    node: Option<Running>,
    /// Where a port listens on the machine's loopback.
    pub(super) port: String,
    /// The key of shared memory of the machine.
    pub(super) key: String,
    /// A process of the same user, as the machine counts.
    pub(super) pid: String,
}

impl Yard {
    /// Makes the folder, starts the node and what attacks aim at. The node holds
    /// folders open that it was started with, as a careless caller leaves them.
    ///
    /// # Panics
    /// Something of it does not come up; the message says what.
    #[track_caller]
    #[must_use]
    pub fn new() -> Self {
        let mut yard = Self::without_node();
        yard.start_node();
        yard
    }

    /// The same without a node: the first command that needs one starts it.
    ///
    /// # Panics
    /// Something of it does not come up; the message says what.
    #[track_caller]
    #[must_use]
    pub fn without_node() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("bailey-yard-{}-{count}", std::process::id());
        let dir = Path::new("/tmp").join(&mark);
        make(&dir);
        for folder in ["home", "state", "config", "run", "box", "stage"] {
            make(&dir.join(folder));
        }
        // A home, where a person's files are; `/tmp` is a box's own.
        let home = if geteuid().is_root() {
            PathBuf::from("/home")
        } else {
            PathBuf::from(std::env::var_os("HOME").unwrap_or_default())
        };
        let outside = home.join(format!(".{mark}"));
        make(&outside);
        let mut yard = Self {
            dir,
            outside,
            programs: binaries().to_path_buf(),
            mark,
            stage: None,
            node: None,
            port: String::new(),
            key: String::new(),
            pid: String::new(),
        };
        yard.start_stage();
        yard
    }

    #[track_caller]
    fn start_stage(&mut self) {
        let mut command = self.command(self.program("bailey-attack"));
        let (folder, mark) = (self.dir.join("stage"), self.mark.clone());
        command
            .arg("stage")
            .arg(folder)
            .arg(&mark)
            .env("SECRET", &mark);
        let stage = Running::start(&mut command);
        let _ready = stage.wait_line(LIMIT, |line| line == "ready");
        let said = stage.stdout();
        let value = |key: &str| {
            let line = said.lines().find_map(|line| line.strip_prefix(key));
            line.unwrap_or_default().trim().to_owned()
        };
        (self.port, self.key, self.pid) = (value("port"), value("key"), value("pid"));
        self.stage = Some(stage);
    }

    #[track_caller]
    fn start_node(&mut self) {
        let mut command = self.command("sh");
        command.args(["-c", "exec 7</ 8</etc; exec \"$@\"", "sh"]);
        command.arg(self.program("bailey"));
        command.args(["node", "--device-name", "yard"]);
        let node = Running::start(&mut command);
        let socket = self.dir.join("run/bailey/control.sock");
        let up = wait_until(LIMIT, || {
            std::os::unix::net::UnixStream::connect(&socket).is_ok()
        });
        assert!(up, "the node did not come up:\n{}", node.stderr());
        self.node = Some(node);
    }

    /// A program as this user, with its folders and an environment of nothing else.
    #[must_use]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = if geteuid().is_root() {
            let mut command = Command::new("setpriv");
            let (uid, gid) = (format!("--reuid={ORDINARY}"), format!("--regid={ORDINARY}"));
            command.args([&uid, &gid, "--clear-groups"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.env_clear().env("PATH", PATH).env("LANG", "C.UTF-8");
        for (name, folder) in [
            ("HOME", "home"),
            ("XDG_CONFIG_HOME", "config"),
            ("XDG_STATE_HOME", "state"),
            ("XDG_RUNTIME_DIR", "run"),
        ] {
            command.env(name, self.dir.join(folder));
        }
        command.current_dir(self.dir.join("home"));
        command
    }

    /// Runs `bailey` with these words to its end.
    ///
    /// # Panics
    /// It cannot be started.
    #[track_caller]
    #[must_use]
    pub fn bailey(&self, words: &[&str]) -> Output {
        crate::run(self.command(self.program("bailey")).args(words))
    }

    /// One of the built programs.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// Where the built programs are.
    #[must_use]
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// A path below the folder of all of it.
    #[must_use]
    pub fn path(&self, below: &str) -> PathBuf {
        self.dir.join(below)
    }

    /// A folder of the user that no sandbox is given.
    #[must_use]
    pub fn outside(&self) -> &Path {
        &self.outside
    }

    /// Runs a script in namespaces where mounts can be made. In it, `$BAILEY`
    /// is the program and `$AS` what goes before a command that is to run as the
    /// user and not as that namespace's root. All of it ends with the script.
    ///
    /// # Panics
    /// It cannot be started.
    #[track_caller]
    #[must_use]
    pub fn with_mounts(&self, script: &str) -> Output {
        let (uid, gid) = ids();
        let mut command = self.command("unshare");
        command.args(["--user", "--map-root-user", "--mount", "--pid", "--fork"]);
        command.args(["--kill-child", "--mount-proc", "sh", "-ec", script]);
        let map = format!("unshare --user --map-user={uid} --map-group={gid} --");
        command.env("AS", map).env("BAILEY", self.program("bailey"));
        crate::run_within(LIMIT, &mut command)
    }

    /// What everything outside carries.
    #[must_use]
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// Who this user is.
    #[must_use]
    pub fn ids(&self) -> (u32, u32) {
        ids()
    }

    /// The process of the node, as the machine counts.
    #[must_use]
    pub fn node_pid(&self) -> Option<u32> {
        self.node
            .as_ref()
            .and_then(|node| node.pid().as_raw().try_into().ok())
    }

    /// Kills the node as nobody expects it.
    ///
    /// # Panics
    /// It had ended already.
    pub fn kill_node(&mut self) {
        if let Some(node) = self.node.take() {
            node.signal(nix::sys::signal::Signal::SIGKILL);
            let _ended = node.finish(LIMIT);
        }
    }
}

impl Default for Yard {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Yard {
    fn drop(&mut self) {
        self.node = None;
        // Its input's end makes it remove what it left in the machine.
        if let Some(mut stage) = self.stage.take() {
            drop(stage.take_stdin());
            let _ended = stage.finish(LIMIT);
        }
        for folder in [&self.outside, &self.dir] {
            let _gone = fs::remove_dir_all(folder);
        }
    }
}

fn ids() -> (u32, u32) {
    if geteuid().is_root() {
        (ORDINARY, ORDINARY)
    } else {
        (geteuid().as_raw(), getegid().as_raw())
    }
}

#[track_caller]
fn make(folder: &Path) {
    let (uid, gid) = ids();
    let made = fs::create_dir(folder)
        .and_then(|()| fs::set_permissions(folder, Permissions::from_mode(0o700)))
        .and_then(|()| chown(folder, Some(uid), Some(gid)));
    made.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
}
