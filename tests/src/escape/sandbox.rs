//! What an attack runs in, and how it is started there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bailey_model::Tier;
use nix::unistd::geteuid;

use super::{Attack, Tried, Words, Yard};
use crate::{Output, Terminal, run_within};

/// How long one attack may take.
const LIMIT: Duration = Duration::from_secs(20);
/// Where the machine says how many inotify instances one user has.
const INOTIFY: &str = "/proc/sys/fs/inotify/max_user_instances";

/// What an attack runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sandbox {
    /// Nothing: an ordinary program of the user.
    Outside,
    /// New namespaces of every kind and nothing else.
    Namespaces,
    /// A box of this tier.
    Bailey(Tier),
    /// bubblewrap, as its manual advises for a program that is not trusted.
    Bubblewrap,
    /// nsjail with the same binds.
    Nsjail,
    /// firejail without a profile, with every general restriction it has.
    Firejail,
    /// Anthropic's sandbox-runtime, the secret denied and one folder allowed.
    SandboxRuntime,
}

impl Sandbox {
    /// Bailey's tiers, weakest first.
    pub const TIERS: [Self; 4] = [
        Self::Bailey(Tier::L1),
        Self::Bailey(Tier::L15),
        Self::Bailey(Tier::L2),
        Self::Bailey(Tier::Gated),
    ];
    /// Others', in the order of the table.
    pub const PEERS: [Self; 5] = [
        Self::Namespaces,
        Self::Bubblewrap,
        Self::Nsjail,
        Self::Firejail,
        Self::SandboxRuntime,
    ];

    /// A column's head.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Outside => "outside",
            Self::Namespaces => "unshare",
            Self::Bailey(Tier::L1) => "l1",
            Self::Bailey(Tier::L15) => "l1.5",
            Self::Bailey(Tier::L2) => "l2",
            Self::Bailey(Tier::Gated) => "gated",
            Self::Bubblewrap => "bwrap",
            Self::Nsjail => "nsjail",
            Self::Firejail => "firejail",
            Self::SandboxRuntime => "srt",
        }
    }

    /// The program that must be installed for it.
    #[must_use]
    pub const fn needs(self) -> Option<&'static str> {
        match self {
            Self::Outside | Self::Bailey(_) => None,
            Self::Namespaces => Some("unshare"),
            Self::Bubblewrap => Some("bwrap"),
            Self::Nsjail => Some("nsjail"),
            Self::Firejail => Some("firejail"),
            Self::SandboxRuntime => Some("srt"),
        }
    }

    /// Tries an attack in it.
    ///
    /// # Panics
    /// Its program cannot be started.
    #[must_use]
    pub fn attempt(self, yard: &Yard, attack: &Attack) -> Tried {
        let words = words(yard, attack);
        if attack.words == Words::Terminal {
            return self.on_a_terminal(yard, attack, &words);
        }
        let whole = around(yard, attack.words, self.words(yard, attack, &words));
        let output = run_within(LIMIT, self.as_user(yard).args(whole));
        judge(attack.name, &output)
    }

    /// The attack as it is started in it.
    fn words(self, yard: &Yard, attack: &Attack, words: &[String]) -> Vec<String> {
        let mut whole = self.prefix(yard);
        whole.push(text(&yard.program("bailey-attack")));
        whole.push(attack.name.to_owned());
        whole.extend_from_slice(words);
        whole
    }

    /// The command line up to the program.
    fn prefix(self, yard: &Yard) -> Vec<String> {
        let around = Around {
            ro: text(&yard.path("stage/ro")),
            rw: text(&yard.path("stage/rw")),
            programs: text(yard.programs()),
            own: text(&yard.path("box")),
        };
        match self {
            Self::Outside => Vec::new(),
            Self::Namespaces => namespaces(),
            Self::Bailey(tier) => around.bailey(yard, tier),
            Self::Bubblewrap => around.bubblewrap(),
            Self::Nsjail => around.nsjail(),
            Self::Firejail => around.firejail(),
            Self::SandboxRuntime => {
                let settings = text(&yard.path("stage/srt.json"));
                list(&["srt", "--settings", &settings])
            }
        }
    }

    /// The user's process that starts it. firejail wants its user to have a
    /// name: one that has none gets one in a mount namespace of root's.
    fn as_user(self, yard: &Yard) -> Command {
        if self == Self::SandboxRuntime {
            write_settings(yard);
        }
        if self != Self::Firejail || !geteuid().is_root() {
            let mut command = yard.command("env");
            if let Some(path) = std::env::var_os("PATH") {
                command.env("PATH", path);
            }
            return command;
        }
        let (uid, gid) = yard.ids();
        let home = yard.outside();
        let users = yard.path("passwd");
        let known = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let line = format!("yard:x:{uid}:{gid}:yard:{}:/bin/sh\n", home.display());
        let _written = fs::write(&users, known + &line);
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c"]);
        command
            .arg("mount --bind \"$1\" /etc/passwd; shift; exec \"$@\"")
            .arg("sh")
            .arg(users);
        command
            .arg("setpriv")
            .arg(format!("--reuid={uid}"))
            .arg(format!("--regid={gid}"));
        command
            .args(["--clear-groups", "env"])
            .current_dir(home)
            .env("HOME", home);
        command
    }

    /// What it types must come back to whoever started it to have got through.
    fn on_a_terminal(self, yard: &Yard, attack: &Attack, words: &[String]) -> Tried {
        let whole = self.words(yard, attack, words);
        let script = "\"$@\"; echo \"ended $?\"; echo \"typed: $(timeout --foreground 0.5 head -n 1)\"; echo over";
        let words: Vec<String> = ["-c", script, "sh"]
            .map(str::to_owned)
            .into_iter()
            .chain(whole)
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let start = |program: &std::ffi::OsStr| {
            let mut command = self.as_user(yard);
            command.arg(program);
            command
        };
        let terminal = Terminal::start(start, "sh", &words);
        terminal.wait_for(LIMIT, "\nover");
        let screen = terminal.screen();
        let _ended = terminal.finish(LIMIT);
        if screen.contains("typed: echo BAILEY-TYPED") {
            return Tried::Through("it ran in the caller's terminal".to_owned());
        }
        match line_of(attack.name, &screen) {
            Some(("through", _)) => Tried::Held("typed into a terminal of its own".to_owned()),
            Some((_, why)) => Tried::Held(why.to_owned()),
            None => Tried::NotHere(last_line(&screen)),
        }
    }
}

fn list(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// What every sandbox is given alike.
struct Around {
    ro: String,
    rw: String,
    programs: String,
    own: String,
}

#[rustfmt::skip]
fn namespaces() -> Vec<String> {
    list(&[
        "unshare", "--user", "--map-root-user", "--mount", "--pid", "--ipc", "--uts", "--net",
        "--cgroup", "--fork", "--mount-proc", "sh", "-c", "\"$@\"; exit $?", "sh",
    ])
}

#[rustfmt::skip]
impl Around {
    fn bailey(&self, yard: &Yard, tier: Tier) -> Vec<String> {
        let (bailey, tier) = (text(&yard.program("bailey")), tier.to_string());
        let (ro, rw) = (format!("{}:ro", self.ro), format!("{}:rw", self.rw));
        let programs = format!("{}:ro", self.programs);
        list(&[
            &bailey, "run", "-q", "--tier", &tier, "--grant", &ro, "--grant", &rw,
            "--grant", &programs, "--",
        ])
    }

    fn bubblewrap(&self) -> Vec<String> {
        let Self { ro, rw, programs, own } = self;
        let mut whole = list(&["bwrap", "--unshare-all", "--die-with-parent", "--new-session"]);
        whole.extend(system("--symlink", "--ro-bind"));
        whole.extend(list(&[
            "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
            "--ro-bind", programs, programs, "--ro-bind", ro, ro, "--bind", rw, rw,
            "--bind", own, "/home/box", "--chdir", "/home/box", "--",
        ]));
        whole
    }

    fn nsjail(&self) -> Vec<String> {
        let mut whole = list(&["nsjail", "--mode", "o", "--really_quiet"]);
        let system = SYSTEM.iter().filter(|path| Path::new(path).exists());
        whole.extend(system.flat_map(|path| list(&["--bindmount_ro", path])));
        let own = format!("{}:/home/box", self.own);
        whole.extend(list(&[
            "--tmpfsmount", "/tmp", "--bindmount_ro", &self.programs, "--bindmount_ro", &self.ro,
            "--bindmount", &self.rw, "--bindmount", &own, "--cwd", "/home/box", "--",
        ]));
        whole
    }

    fn firejail(&self) -> Vec<String> {
        let Self { ro, rw, programs, .. } = self;
        list(&[
            "firejail", "--quiet", "--noprofile", "--nonewprivs", "--noroot", "--caps.drop=all",
            "--seccomp", "--net=none", "--ipc-namespace", "--private", "--private-dev", "--nodbus",
            &format!("--whitelist={programs}"), &format!("--whitelist={ro}"),
            &format!("--whitelist={rw}"), &format!("--read-only={ro}"), "--",
        ])
    }
}

/// What a program needs of the system.
const SYSTEM: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"];

/// The same as options: a link where the system has one, else a bind.
fn system(link: &str, bind: &str) -> Vec<String> {
    let mut whole = Vec::new();
    for path in SYSTEM {
        match fs::read_link(path) {
            Ok(target) => whole.extend([link.to_owned(), text(&target), (*path).to_owned()]),
            Err(_) if Path::new(path).exists() => {
                whole.extend([bind, path, path].map(str::to_owned));
            }
            Err(_) => {}
        }
    }
    whole
}

/// What srt wants to be told: it reads everything that is not denied.
fn write_settings(yard: &Yard) {
    let settings = serde_json::json!({
        "network": {"allowedDomains": [], "deniedDomains": []},
        "filesystem": {
            "denyRead": [text(&yard.path("stage/secret"))],
            "allowWrite": [text(&yard.path("stage/rw"))],
            "denyWrite": [text(&yard.path("stage/rw/.ssh"))],
        },
    });
    let _written = fs::write(yard.path("stage/srt.json"), settings.to_string());
}

/// What an attack is told.
fn words(yard: &Yard, attack: &Attack) -> Vec<String> {
    let stage = |below: &str| text(&yard.path("stage").join(below));
    let mark = yard.mark().to_owned();
    match attack.words {
        Words::None | Words::FileAsInput | Words::Terminal => Vec::new(),
        Words::Secret | Words::SecretAndOpenFolder | Words::SecretAndFolderAsInput => {
            vec![stage("secret/key"), mark]
        }
        Words::NewPath => vec![text(&yard.outside().join("new/file"))],
        Words::ReadOnly => vec![stage("ro")],
        Words::Writable => vec![stage("rw")],
        Words::InReadOnly(name) => vec![stage("ro") + "/" + name],
        Words::InWritable(name) => vec![stage("rw") + "/" + name],
        Words::Mark => vec![mark],
        Words::Process => vec![yard.pid.clone(), mark],
        Words::Port => vec![yard.port.clone()],
        Words::Key => vec![yard.key.clone()],
        Words::Inotify => {
            vec![
                fs::read_to_string(INOTIFY)
                    .unwrap_or_default()
                    .trim()
                    .to_owned(),
            ]
        }
    }
}

/// A careless caller around it.
fn around(yard: &Yard, words: Words, whole: Vec<String>) -> Vec<String> {
    let (script, path) = match words {
        Words::SecretAndOpenFolder => ("exec 7<\"$0\"; exec \"$@\"", PathBuf::from("/")),
        Words::SecretAndFolderAsInput => ("exec \"$@\" <\"$0\"", PathBuf::from("/")),
        Words::FileAsInput => ("exec \"$@\" <\"$0\"", yard.path("stage/input")),
        _ => return whole,
    };
    let mut outer = ["sh", "-c", script].map(str::to_owned).to_vec();
    outer.push(text(&path));
    outer.extend(whole);
    outer
}

/// What the attack said of itself; a sandbox's own failure is none of it.
fn judge(name: &str, output: &Output) -> Tried {
    match line_of(name, &output.stdout) {
        Some(("through", said)) => Tried::Through(said.to_owned()),
        Some(("held", said)) => Tried::Held(said.to_owned()),
        Some((_, said)) => Tried::NotHere(said.to_owned()),
        // Killed for it, before it could say so: 128 and SIGKILL or SIGSYS.
        None if matches!(output.code, Some(137 | 159)) => Tried::Held("killed".to_owned()),
        None => Tried::NotHere(format!("{:?} {}", output.code, last_line(&output.stderr))),
    }
}

fn line_of<'t>(name: &str, text: &'t str) -> Option<(&'t str, &'t str)> {
    text.lines().find_map(|line| {
        let (head, said) = line.trim().split_once(": ")?;
        let (word, named) = head.split_once(' ')?;
        (named == name).then_some((word, said))
    })
}

fn last_line(text: &str) -> String {
    let line = text.lines().rfind(|line| !line.trim().is_empty());
    line.unwrap_or_default().trim().to_owned()
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
