//! What a box may use up, held by a cgroup of its own where the node was given
//! a part of the cgroup tree (cgroups(7), v2); elsewhere the launcher sets
//! resource limits.
//!
//! The kernel lets a group have either processes or groups below it with
//! controllers. So the node moves itself to the leaf `node`, turns the
//! controllers on, and makes a leaf `box-…` beside it for each box. What is to be
//! done is worked out from texts alone; one function does it.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bailey_model::{Incarnation, Limits};

use super::trash;
use crate::log::log;

/// The group of the node and its helpers.
const NODE: &str = "node";
/// How the groups of boxes are named, before the incarnation.
const BOX: &str = "box-";
/// The period of `cpu.max`, in microseconds.
const CPU_PERIOD: u64 = 100_000;
/// How long the groups that a killed node left may take to be empty.
const SWEEP_LIMIT: Duration = Duration::from_secs(2);
/// Between two looks at them.
const SWEEP_STEP: Duration = Duration::from_millis(5);

/// One thing to do in the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Op {
    /// Make a group; one that is there will do.
    Make(PathBuf),
    /// Write to one of its files.
    Write(PathBuf, String),
    /// The same, where the kernel has that file.
    WriteIfThere(PathBuf, String),
}

/// Where boxes get their groups, or why they get none.
#[derive(Debug)]
pub(super) enum Cgroups {
    /// Below this group of the node's own.
    Below { folder: PathBuf, cpu: bool },
    /// The launcher's resource limits take their place.
    None { why: String },
}

impl fmt::Display for Cgroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Below { folder, .. } => write!(f, "cgroups below {}", folder.display()),
            Self::None { why } => write!(f, "resource limits of the launcher ({why})"),
        }
    }
}

impl Cgroups {
    /// Before anything was looked for.
    pub(super) fn none() -> Self {
        Self::None {
            why: "not looked for".to_owned(),
        }
    }

    /// Looks for this process's own part of the tree and sets it up. To be
    /// called before it has children.
    pub(super) fn find() -> Self {
        match set_up() {
            Ok(found) => found,
            Err(why) => Self::None { why },
        }
    }

    /// Makes the group of a box, without limits; `None` where there is no place
    /// for one. `name` is its own among all of them.
    ///
    /// # Errors
    /// When there is a place and the group cannot be made.
    pub(super) fn make(&self, name: [u8; 16]) -> io::Result<Option<BoxCgroup>> {
        let Self::Below { folder, .. } = self else {
            return Ok(None);
        };
        let made = BoxCgroup {
            folder: folder.join(format!("{BOX}{}", Incarnation(name))),
            limits: Limits::default(),
        };
        run(&Op::Make(made.folder.clone()))?;
        Ok(Some(made))
    }

    /// Sets what the group of a box may use up.
    ///
    /// # Errors
    /// When a limit cannot be set; the group is gone then.
    pub(super) fn limit(&self, mut group: BoxCgroup, limits: &Limits) -> io::Result<BoxCgroup> {
        let cpu = matches!(self, Self::Below { cpu: true, .. });
        group.limits = *limits;
        for op in limit_ops(&group.folder, limits, cpu) {
            run(&op)?;
        }
        Ok(group)
    }

    /// What of the limits nothing holds, for the person.
    pub(super) fn missing(&self, limits: &Limits) -> Option<&'static str> {
        let held = matches!(self, Self::Below { cpu: true, .. });
        (limits.cpus_milli.is_some() && !held).then_some(
            "--limit cpus is not held: this node was given no cgroup with a cpu controller",
        )
    }
}

/// The group of one box. Dropped, it is removed.
#[derive(Debug)]
pub(super) struct BoxCgroup {
    folder: PathBuf,
    limits: Limits,
}

impl BoxCgroup {
    /// Its folder, for whoever puts a process into it.
    pub(super) fn open(&self) -> io::Result<OwnedFd> {
        let flags = rustix::fs::OFlags::RDONLY
            | rustix::fs::OFlags::DIRECTORY
            | rustix::fs::OFlags::NOFOLLOW
            | rustix::fs::OFlags::CLOEXEC;
        Ok(rustix::fs::open(
            &self.folder,
            flags,
            rustix::fs::Mode::empty(),
        )?)
    }

    /// Ends every process in it, whatever its namespaces.
    pub(super) fn kill(&self) {
        // Kernels before 5.14 have no such file; pid 1 is killed in any case.
        let kill = Op::WriteIfThere(self.folder.join("cgroup.kill"), "1".to_owned());
        if let Err(error) = run(&kill) {
            log!("{}: {error}", self.folder.display());
        }
    }

    /// What freezes it, where the kernel can (5.2).
    pub(super) fn freezer(&self) -> Option<Freezer> {
        let folder = self.folder.clone();
        folder
            .join("cgroup.freeze")
            .exists()
            .then_some(Freezer { folder })
    }

    /// The limits that its box ran into, in words.
    pub(super) fn met(&self) -> Vec<String> {
        let read = |name| fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        met(&self.limits, &read("memory.events"), &read("pids.events"))
    }
}

/// Freezes the group of one box, for as long as that is there.
#[derive(Debug)]
pub(super) struct Freezer {
    folder: PathBuf,
}

impl Freezer {
    /// Freezes it, or lets it go on.
    pub(super) fn set(&self, frozen: bool) -> io::Result<()> {
        let word = if frozen { "1" } else { "0" };
        let file = self.folder.join("cgroup.freeze");
        run(&Op::Write(file, word.to_owned()))
    }

    /// Whether every process in it stands, by the kernel's word.
    pub(super) fn stands(&self) -> io::Result<bool> {
        let events = fs::read_to_string(self.folder.join("cgroup.events"))?;
        Ok(events.lines().any(|line| line == "frozen 1"))
    }

    /// How many processes there are in it.
    pub(super) fn processes(&self) -> io::Result<u32> {
        let procs = fs::read_to_string(self.folder.join("cgroup.procs"))?;
        Ok(u32::try_from(procs.lines().count()).unwrap_or(u32::MAX))
    }
}

impl Drop for BoxCgroup {
    fn drop(&mut self) {
        self.kill();
        match fs::remove_dir(&self.folder) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // That of a box which was begun and not asked for may not be empty
            // yet, and the node's loop waits for nobody.
            Err(_) => trash::remove_group(&self.folder),
        }
    }
}

fn set_up() -> Result<Cgroups, String> {
    let read = |path: &Path| {
        fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let own = read(Path::new("/proc/self/cgroup"))?;
    let mounts = read(Path::new("/proc/self/mountinfo"))?;
    let folder = own_folder(&own, &mounts)?;
    let controllers = read(&folder.join("cgroup.controllers"))?;
    let here = read(&folder.join("cgroup.procs"))?;
    let (ops, cpu) = node_ops(&folder, &controllers, &here, std::process::id())?;
    for op in &ops {
        if let Err(error) = run(op) {
            undo(&folder);
            return Err(format!("{error} (no delegated cgroup)"));
        }
    }
    sweep(&folder);
    Ok(Cgroups::Below { folder, cpu })
}

/// The folder of the group that `/proc/self/cgroup` names, below a mount of the
/// v2 tree.
fn own_folder(cgroup: &str, mountinfo: &str) -> Result<PathBuf, String> {
    let path = cgroup
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .ok_or("this system has no cgroup v2")?;
    let mounts = mountinfo.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(3);
        let (root, at) = (fields.next()?, fields.next()?);
        (after.split(' ').next()? == "cgroup2").then_some((root, at))
    });
    for (root, at) in mounts {
        // Octal escapes stand for blanks; no tree is mounted at such a place.
        if at.contains('\\') {
            continue;
        }
        if let Ok(below) = Path::new(path).strip_prefix(root) {
            return Ok(Path::new(at).join(below));
        }
    }
    Err("cgroup v2 is not mounted where this node could use it".to_owned())
}

/// How the node makes room for boxes, and whether processor time can be held.
fn node_ops(
    folder: &Path,
    controllers: &str,
    here: &str,
    own: u32,
) -> Result<(Vec<Op>, bool), String> {
    let has = |name| controllers.split_whitespace().any(|known| known == name);
    if !(has("memory") && has("pids")) {
        return Err("the node's cgroup has no memory and pids controllers".to_owned());
    }
    // Others in it are none of the node's, and keep controllers off.
    if here.split_whitespace().any(|pid| pid.parse() != Ok(own)) {
        return Err("the node's cgroup holds other processes too".to_owned());
    }
    let leaf = folder.join(NODE);
    let mut ops = vec![
        Op::Make(leaf.clone()),
        Op::Write(leaf.join("cgroup.procs"), own.to_string()),
    ];
    let wanted = ["memory", "pids", "cpu"]
        .into_iter()
        .filter(|name| has(name));
    let wanted: Vec<String> = wanted.map(|name| format!("+{name}")).collect();
    ops.push(Op::Write(
        folder.join("cgroup.subtree_control"),
        wanted.join(" "),
    ));
    Ok((ops, has("cpu")))
}

/// The limits of a box's group.
fn limit_ops(folder: &Path, limits: &Limits, cpu: bool) -> Vec<Op> {
    let mut ops = Vec::new();
    let mut write = |name: &str, text: String| ops.push(Op::Write(folder.join(name), text));
    if let Some(bytes) = limits.memory {
        write("memory.max", bytes.to_string());
        // All of it or none: a box without its largest process is no box.
        write("memory.oom.group", "1".to_owned());
    }
    if let Some(count) = limits.pids {
        write("pids.max", count.to_string());
    }
    if let Some(milli) = limits.cpus_milli.filter(|_| cpu) {
        let quota = u64::from(milli) * CPU_PERIOD / 1000;
        write("cpu.max", format!("{quota} {CPU_PERIOD}"));
    }
    if limits.memory.is_some() {
        // Not there where the kernel does not count swap.
        let swap = folder.join("memory.swap.max");
        ops.push(Op::WriteIfThere(swap, "0".to_owned()));
    }
    ops
}

/// Which limits were met, from the group's own counts.
fn met(limits: &Limits, memory_events: &str, pids_events: &str) -> Vec<String> {
    let count = |text: &str, name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        let found = lines.find(|(known, _)| *known == name)?;
        found
            .1
            .trim()
            .parse::<u64>()
            .ok()
            .filter(|count| *count > 0)
    };
    let mut words = Vec::new();
    if let (Some(bytes), Some(ended)) = (limits.memory, count(memory_events, "oom_kill")) {
        let noun = if ended == 1 { "process" } else { "processes" };
        let size = size(bytes);
        words.push(format!("memory limit {size} met, {ended} {noun} ended"));
    }
    if let (Some(limit), Some(refused)) = (limits.pids, count(pids_events, "max")) {
        let noun = if refused == 1 { "start" } else { "starts" };
        words.push(format!(
            "process limit {limit} met, {refused} {noun} refused"
        ));
    }
    words
}

/// `32 MiB`; bytes where nothing larger divides them.
fn size(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let whole = units
        .into_iter()
        .find(|(unit, _)| bytes.is_multiple_of(*unit));
    whole.map_or_else(
        || format!("{bytes} B"),
        |(unit, name)| format!("{} {name}", bytes / unit),
    )
}

fn run(op: &Op) -> io::Result<()> {
    let named = |path: &Path, error: io::Error| {
        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    };
    let (path, text) = match op {
        Op::Make(path) => {
            return match fs::create_dir(path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    Err(named(path, error))
                }
                _ => Ok(()),
            };
        }
        Op::WriteIfThere(path, _) if !path.exists() => return Ok(()),
        Op::Write(path, text) | Op::WriteIfThere(path, text) => (path, text),
    };
    let written = OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| named(path, error))
}

/// Back to where this process was. What fails here was not done before.
fn undo(folder: &Path) {
    let back = Op::Write(folder.join("cgroup.procs"), std::process::id().to_string());
    let _was_never_moved = run(&back);
    let _was_never_made = fs::remove_dir(folder.join(NODE));
}

/// Ends and removes the groups of boxes whose node was killed.
fn sweep(folder: &Path) {
    let until = Instant::now() + SWEEP_LIMIT;
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let left = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(BOX));
    for group in left.map(|entry| entry.path()) {
        let kill = Op::WriteIfThere(group.join("cgroup.kill"), "1".to_owned());
        if let Err(error) = run(&kill) {
            log!("{error}");
        }
        while let Err(error) = fs::remove_dir(&group) {
            if Instant::now() > until {
                log!("{}: {error}", group.display());
                break;
            }
            std::thread::sleep(SWEEP_STEP);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Limits = Limits {
        memory: Some(32 << 20),
        cpus_milli: Some(1500),
        pids: Some(64),
        files: Some(9),
        seconds: Some(9),
    };

    fn write(path: &str, text: &str) -> Op {
        Op::Write(path.into(), text.to_owned())
    }

    #[test]
    fn the_own_group_is_found_below_the_mount_that_shows_it() {
        let unified = "25 1 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
        let found = own_folder("0::/user.slice/a.service\n", unified);
        assert_eq!(found, Ok("/sys/fs/cgroup/user.slice/a.service".into()));
        // A container shows a part of the tree as if it were the whole.
        let part = "9 1 0:22 /../pod /cg rw - cgroup2 c rw\n10 1 0:22 /pod /cg rw - cgroup2 c rw\n";
        assert_eq!(own_folder("0::/pod/b\n", part), Ok("/cg/b".into()));
        // Version 1 beside it: the line of version 2 counts, wherever it stands.
        let hybrid = "4:memory:/x\n1:name=systemd:/y\n0::/z\n";
        let mounts = "3 1 0:9 / /sys/fs/cgroup/memory rw - cgroup c rw,memory\n\
                      4 1 0:8 / /sys/fs/cgroup/unified rw - cgroup2 c rw\n";
        assert_eq!(
            own_folder(hybrid, mounts),
            Ok("/sys/fs/cgroup/unified/z".into())
        );
        for (cgroup, mounts) in [("4:memory:/x\n", unified), ("0::/a\n", ""), ("", "")] {
            assert!(own_folder(cgroup, mounts).is_err(), "{cgroup:?}");
        }
    }

    #[test]
    fn the_node_moves_to_a_leaf_before_it_turns_controllers_on() {
        let folder = Path::new("/cg/unit");
        let (ops, cpu) = node_ops(folder, "cpu io memory pids\n", "7\n", 7).unwrap();
        assert!(cpu);
        assert_eq!(
            ops,
            [
                Op::Make("/cg/unit/node".into()),
                write("/cg/unit/node/cgroup.procs", "7"),
                write("/cg/unit/cgroup.subtree_control", "+memory +pids +cpu"),
            ]
        );
        let (ops, cpu) = node_ops(folder, "memory pids", "7\n", 7).unwrap();
        assert!(!cpu);
        assert_eq!(
            ops.last(),
            Some(&write("/cg/unit/cgroup.subtree_control", "+memory +pids"))
        );
    }

    #[test]
    fn nothing_is_touched_where_controllers_are_missing_or_others_live() {
        let folder = Path::new("/cg/unit");
        for (controllers, here) in [
            ("", "7\n"),
            ("hugetlb\n", "7\n"),
            ("memory\n", "7\n"),
            ("memory pids\n", "7\n8\n"),
            // A process of another namespace shows as 0.
            ("memory pids\n", "0\n7\n"),
        ] {
            assert!(node_ops(folder, controllers, here, 7).is_err(), "{here:?}");
        }
    }

    #[test]
    fn a_box_gets_its_limits_and_one_without_gets_none() {
        let folder = Path::new("/cg/box-1");
        assert_eq!(
            limit_ops(folder, &ALL, true),
            [
                write("/cg/box-1/memory.max", "33554432"),
                write("/cg/box-1/memory.oom.group", "1"),
                write("/cg/box-1/pids.max", "64"),
                write("/cg/box-1/cpu.max", "150000 100000"),
                Op::WriteIfThere("/cg/box-1/memory.swap.max".into(), "0".to_owned()),
            ]
        );
        assert_eq!(limit_ops(folder, &Limits::default(), true), []);
        let without = limit_ops(folder, &ALL, false);
        assert!(!without.iter().any(|op| format!("{op:?}").contains("cpu")));
    }

    #[test]
    fn limits_that_were_met_are_said_with_their_counts() {
        let memory = "low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\noom_group_kill 1\n";
        assert_eq!(
            met(&ALL, memory, "max 3\n"),
            [
                "memory limit 32 MiB met, 1 process ended",
                "process limit 64 met, 3 starts refused"
            ]
        );
        assert!(met(&ALL, "oom_kill 0\n", "max 0\n").is_empty());
        assert!(met(&ALL, "", "").is_empty());
        // What the machine as a whole ran out of is no limit of the box's.
        assert!(met(&Limits::default(), memory, "max 3\n").is_empty());
        assert_eq!(size(1536 << 10), "1536 KiB");
        assert_eq!(size(1000), "1000 B");
    }

    /// A folder with the files that the kernel would have put there.
    fn fake(name: &str, files: &[&str]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("bailey-cg-{name}-{}", std::process::id()));
        for file in files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        root
    }

    #[test]
    fn a_tree_is_written_as_planned_and_read_at_the_end() {
        let group = format!("{BOX}{}", Incarnation([7; 16]));
        let inside = |file: &str| format!("{group}/{file}");
        let files = [
            "memory.max",
            "memory.oom.group",
            "pids.max",
            "cpu.max",
            "cgroup.kill",
        ]
        .map(inside);
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let root = fake("box", &files);
        let cgroups = Cgroups::Below {
            folder: root.clone(),
            cpu: true,
        };
        let made = cgroups.make([7; 16]).unwrap().unwrap();
        let made = cgroups.limit(made, &ALL).unwrap();
        let read = |name: &str| fs::read_to_string(root.join(&group).join(name)).unwrap();
        assert_eq!(
            (read("pids.max"), read("cgroup.kill")),
            ("64".into(), String::new())
        );
        assert!(!root.join(&group).join("memory.swap.max").exists());
        fs::write(root.join(&group).join("memory.events"), "oom_kill 2\n").unwrap();
        assert_eq!(made.met(), ["memory limit 32 MiB met, 2 processes ended"]);
        assert!(made.open().is_ok());
        drop(made);
        assert_eq!(read("cgroup.kill"), "1");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_group_that_is_not_empty_yet_keeps_nobody_waiting_and_goes_all_the_same() {
        let root = fake("busy", &["unrelated"]);
        let cgroups = Cgroups::Below {
            folder: root.clone(),
            cpu: false,
        };
        let group = root.join(format!("{BOX}{}", Incarnation([2; 16])));
        let made = cgroups.make([2; 16]).unwrap().unwrap();
        // A process that has not ended yet.
        fs::write(group.join("busy"), "").unwrap();
        let begun = Instant::now();
        drop(made);
        let took = begun.elapsed();
        assert!(group.exists());
        assert!(took < Duration::from_millis(40), "{took:?}");
        fs::remove_file(group.join("busy")).unwrap();
        let until = Instant::now() + Duration::from_secs(5);
        while group.exists() {
            assert!(Instant::now() < until);
            std::thread::sleep(SWEEP_STEP);
        }
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_limit_that_cannot_be_written_makes_no_box() {
        let root = fake("fault", &["unrelated"]);
        let cgroups = Cgroups::Below {
            folder: root.clone(),
            cpu: true,
        };
        let made = cgroups.make([1; 16]).unwrap().unwrap();
        let error = cgroups.limit(made, &ALL).unwrap_err();
        assert!(error.to_string().contains("memory.max"), "{error}");
        // And what was made of its group is gone.
        assert_eq!(fs::read_dir(&root).unwrap().count(), 1);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn groups_of_a_killed_node_are_removed_and_nothing_else() {
        let root = fake("sweep", &["cgroup.procs", "node/cgroup.procs"]);
        fs::create_dir(root.join("box-1")).unwrap();
        fs::create_dir(root.join("box-2")).unwrap();
        sweep(&root);
        let left: std::collections::BTreeSet<_> = fs::read_dir(&root)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(left, ["cgroup.procs", "node"].map(String::from).into());
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn processor_time_that_nothing_holds_is_said() {
        let asked = |cpus_milli| Limits {
            cpus_milli,
            ..Limits::default()
        };
        let none = Cgroups::none();
        assert!(none.missing(&asked(Some(500))).is_some());
        assert!(none.missing(&asked(None)).is_none());
        let below = Cgroups::Below {
            folder: PathBuf::new(),
            cpu: true,
        };
        assert!(below.missing(&asked(Some(500))).is_none());
    }
}
