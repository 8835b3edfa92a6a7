//! What a box may use up when no cgroup holds it, and what it may take of the
//! things that all programs of a user share.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod support;

use std::process::{Child, Stdio};

use bailey_fence_plan::channel::{FromFence, Layer};
use bailey_model::{BoxClass, ChildExit, Limits, Tier};
use support::cgroup::Delegated;
use support::{Ask, as_ordinary};

fn limited(script: &str, limits: &str) -> Ask {
    let mut ask = Ask::python(script).tier(Tier::L2);
    if !limits.is_empty() {
        ask.spec.limits = limits.parse::<Limits>().unwrap();
    }
    ask
}

/// Processes outside the box, of the same user.
struct Crowd(Vec<Child>);

impl Crowd {
    fn of(count: usize) -> Self {
        let start = |_| {
            let mut command = as_ordinary("/usr/bin/sleep".as_ref());
            command.arg("100").stdin(Stdio::null()).spawn().unwrap()
        };
        Self((0..count).map(start).collect())
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Forks until it may not, at most 200 times, and says how often it could.
const FORKS: &str = r"
import os, time, errno, resource
made, why = 0, 'none'
for _ in range(200):
    try: pid=os.fork()
    except OSError as e: why=errno.errorcode[e.errno]; break
    if pid==0: time.sleep(1000)
    made+=1
try: resource.setrlimit(resource.RLIMIT_NPROC, (4096,4096)); print('raised')
except (ValueError, OSError): pass
print(made, why)";

#[test]
fn a_fork_bomb_is_held_by_pids_however_many_processes_the_user_has() {
    // More than the box may have, outside it.
    let crowd = Crowd::of(48);
    // Pid 1 and the first process count.
    assert_eq!(limited(FORKS, "pids=32").run().ok(), "30 EAGAIN\n");
    // The control: without a limit nothing holds it.
    assert_eq!(limited(FORKS, "").run().ok(), "raised\n200 none\n");
    drop(crowd);
}

#[test]
fn a_thread_counts_as_a_process() {
    let script = r"
import threading, time
made=0
try:
    for _ in range(200):
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start(); made+=1
except RuntimeError: pass
print(made, flush=True)
import os; os._exit(0)";
    assert_eq!(limited(script, "pids=16").run().ok(), "14\n");
    assert_eq!(limited(script, "").run().ok(), "200\n");
}

#[test]
fn a_memory_hog_is_held_in_each_process_and_cannot_raise_the_limit() {
    let script = r"
import resource
try: resource.setrlimit(resource.RLIMIT_AS, (-1,-1)); print('raised')
except (ValueError, OSError): pass
try: hog=bytearray(512<<20); print('taken')
except MemoryError: print('refused')";
    assert_eq!(limited(script, "mem=256M").run().ok(), "refused\n");
    assert_eq!(limited(script, "").run().ok(), "raised\ntaken\n");
}

#[test]
fn scratch_folders_hold_no_more_than_the_boxs_memory() {
    let script =
        "for at in /tmp /dev/shm; do head -c 96M /dev/zero > $at/x; stat -c %s $at/x; done";
    let mut ask = Ask::shell(script).tier(Tier::L2);
    ask.spec.limits.memory = Some(64 << 20);
    let outcome = ask.run();
    assert_eq!(outcome.out, format!("{0}\n{0}\n", 64 << 20));
    let full = outcome.err.matches("No space left").count();
    assert_eq!(full, 2, "{}", outcome.err);
}

#[test]
fn open_files_are_held_and_the_limit_cannot_be_raised() {
    let script = r"
import os, errno, resource
try: resource.setrlimit(resource.RLIMIT_NOFILE, (4096,4096)); print('raised')
except (ValueError, OSError): pass
count=0
try:
    while count<200: os.open('/dev/null', os.O_RDONLY); count+=1
except OSError as e: print(errno.errorcode[e.errno])
print(count+3)";
    assert_eq!(limited(script, "files=64").run().ok(), "EMFILE\n64\n");
    let free = limited(script, "").run().ok();
    assert!(free.ends_with("203\n"), "{free}");
}

/// Takes inotify instances until there are none.
const INSTANCES: &str = r"
import ctypes, errno, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],)*2)
libc=ctypes.CDLL(None, use_errno=True)
count=0
while count<4000 and libc.inotify_init1(0)>=0: count+=1
print(count)";

#[test]
fn a_box_takes_a_part_of_what_the_users_programs_share() {
    let host = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").unwrap();
    let part = host.trim().parse::<u32>().unwrap() / 4;
    let count = |ask: Ask| ask.run().ok().trim().parse::<u32>().unwrap();
    let held = count(limited(INSTANCES, ""));
    // Other programs of the user may hold some at this moment.
    assert!(held <= part, "{held} of {part}");
    let mut broken = limited(INSTANCES, "");
    broken.spec.broken = Some(Layer::Limits);
    let unbounded = count(broken);
    assert!(unbounded > part, "{unbounded} of {part}");
}

/// Makes nested user namespaces and says why it could not.
const NESTED: &str = r"
import os, errno, ctypes, time
libc=ctypes.CDLL(None, use_errno=True)
made, why = 0, 'none'
for _ in range(64):
    r,w=os.pipe(); pid=os.fork()
    if pid==0:
        bad=libc.unshare(0x10000000); os.write(w, bytes([ctypes.get_errno() if bad else 0])); time.sleep(1000)
    code=os.read(r,1)[0]
    if code: why=errno.errorcode[code]; break
    made+=1
print(made, why)
try: open('/proc/sys/user/max_user_namespaces','w').write('99'); print('raised')
except OSError as e: print(errno.errorcode[e.errno])";

#[test]
fn nested_user_namespaces_are_counted_out_below_the_filter() {
    let ask = |tier, broken, class| {
        let mut ask = Ask::python(NESTED).tier(tier);
        ask.spec.broken = broken;
        ask.spec.class = class;
        ask.run().ok()
    };
    let plain = BoxClass::Plain;
    for tier in [Tier::L15, Tier::L2, Tier::Gated] {
        // The filter speaks first; without it the count does.
        assert_eq!(ask(tier, None, plain), "0 EPERM\nEACCES\n", "{tier}");
        let unfiltered = ask(tier, Some(Layer::Filter), plain);
        assert_eq!(unfiltered, "0 ENOSPC\nEACCES\n", "{tier}");
    }
    // The kernel may not have counted that of the trials out yet.
    let bounded = ["32 ENOSPC\nEACCES\n", "31 ENOSPC\nEACCES\n"];
    let made = ask(Tier::L1, None, plain);
    assert!(bounded.contains(&made.as_str()), "{made}");
    let made = ask(Tier::L2, Some(Layer::Filter), BoxClass::Browser);
    assert!(bounded.contains(&made.as_str()), "{made}");
}

#[test]
fn a_box_is_made_in_its_cgroup_and_sees_it_as_the_root_of_all() {
    let Some(delegated) = Delegated::make() else {
        println!("skipped: no cgroup of version 2 can be made here");
        return;
    };
    let mut ask = Ask::shell("grep ^0: /proc/self/cgroup /proc/1/cgroup").tier(Tier::L2);
    // What the cgroup holds is set by nobody else.
    ask.spec.limits.pids = Some(4);
    let made = ask.within(&delegated.0).make().unwrap();
    let inside = std::fs::read_to_string(delegated.0.join("box/cgroup.procs")).unwrap();
    // And who tried the boundary, which becomes the command.
    let inside: Vec<_> = inside.lines().map(str::to_owned).collect();
    assert_eq!((inside.len(), &inside[0]), (2, &made.pid.to_string()));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", made.pid)).unwrap();
    let processes = limits
        .lines()
        .find(|line| line.starts_with("Max processes"));
    let soft = processes.and_then(|line| line.split_whitespace().nth(2));
    assert_ne!(soft, Some("4"), "{limits}");
    let out = made.go().end().ok();
    assert_eq!(out, "/proc/self/cgroup:0::/\n/proc/1/cgroup:0::/\n");
}

#[test]
fn a_limit_that_nothing_can_start_under_is_refused() {
    let error = limited("", "files=3").make().err().unwrap();
    assert!(error.reason.contains("files is less"), "{error}");
}

#[test]
fn the_least_limits_still_start_a_command() {
    let mut ask = Ask::new(&["/bin/true"]).tier(Tier::L2);
    ask.spec.limits = "mem=8M,pids=2,files=16".parse().unwrap();
    assert_eq!(ask.run().end, ChildExit::Code(0));
}

#[test]
fn a_box_has_a_part_of_the_terminals_and_open_files_of_the_machine() {
    let script = r"
import os, errno, resource
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
made, why = 0, 'none'
for _ in range(600):
    try: os.open('/dev/ptmx', os.O_RDWR|os.O_NOCTTY); made+=1
    except OSError as e: why=errno.errorcode[e.errno]; break
try: resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard + 1)); print('raised')
except ValueError: pass
print(made, why, soft, hard)";
    let (_, most) =
        nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap();
    let most = (most / 4).max(most.min(1024));
    let soft = most.min(1024);
    let out = limited(script, "").run().ok();
    assert_eq!(out, format!("128 ENOSPC {soft} {most}\n"));
}

#[test]
fn a_box_has_a_part_of_the_signals_queues_and_locked_memory_of_the_user() {
    let script = r"
import resource
for name in ['SIGPENDING', 'MSGQUEUE', 'MEMLOCK']:
    number = {'SIGPENDING': 11, 'MSGQUEUE': 12, 'MEMLOCK': 8}[name]
    soft, hard = resource.getrlimit(number)
    try: resource.setrlimit(number, (soft, -1)); print('raised')
    except (ValueError, OSError): pass
    print(soft, hard)";
    use nix::sys::resource::{Resource, getrlimit};
    let shared = [
        Resource::RLIMIT_SIGPENDING,
        Resource::RLIMIT_MSGQUEUE,
        Resource::RLIMIT_MEMLOCK,
    ];
    let want: Vec<String> = shared
        .into_iter()
        .map(|resource| match getrlimit(resource).unwrap() {
            (_, u64::MAX) => "raised\n-1 -1\n".to_owned(),
            (_, hard) => format!("{0} {0}\n", hard / 4),
        })
        .collect();
    assert!(want.iter().any(|text| !text.contains("raised")), "{want:?}");
    assert_eq!(limited(script, "").run().ok(), want.concat());
}

/// Goes to a mount namespace where nothing is mounted but an empty folder, with
/// a descriptor of the granted folder, and renames what is covered in it.
const UNCOVER: &str = r"
import ctypes, os, sys, errno
libc=ctypes.CDLL(None, use_errno=True)
def step(what, bad):
    if bad: print(what, errno.errorcode[ctypes.get_errno()]); sys.exit()
uid, gid = os.getuid(), os.getgid()
step('unshare', libc.unshare(0x10000000|0x20000))
for name, text in [('setgroups','deny'),('uid_map',f'0 {uid} 1'),('gid_map',f'0 {gid} 1')]:
    open('/proc/self/'+name,'w').write(text)
folder=os.open(sys.argv[1], os.O_RDONLY)
step('private', libc.mount(None, b'/', None, 0x44000, None))
step('tmpfs', libc.mount(b'none', b'/tmp', b'tmpfs', 0, None))
os.chdir('/tmp'); os.mkdir('old')
step('pivot', libc.syscall(155, b'.', b'old'))
step('detach', libc.umount2(b'/old', 2))
os.rename('.bashrc', 'moved', src_dir_fd=folder, dst_dir_fd=folder)
print('renamed')";

/// The kernel refuses to rename what is mounted upon in the mount namespace of
/// who asks, and in no other.
#[cfg(target_arch = "x86_64")]
#[test]
fn what_is_covered_cannot_be_renamed_from_a_mount_namespace_of_the_boxs_making() {
    let ask = |broken| {
        let given = support::folder("uncover");
        support::write(&given.join(".bashrc"), "the person's");
        let mut ask = Ask::python(UNCOVER).tier(Tier::L1).grant(&given, false);
        ask.spec
            .command
            .push(given.as_os_str().as_encoded_bytes().to_vec());
        ask.spec.broken = broken;
        (ask, given.join(".bashrc"))
    };
    let (held, covered) = ask(None);
    assert_eq!(held.run().ok(), "unshare ENOSPC\n");
    assert!(covered.exists());
    // The control: without the count it is renamed, and the box ended for it.
    let (through, covered) = ask(Some(Layer::Limits));
    let mut made = through.make().unwrap().go().running();
    let said = made.channel.receive::<FromFence>().unwrap().value;
    assert!(matches!(said, FromFence::CoverLost { .. }), "{said:?}");
    assert!(!covered.exists() && made.launcher.wait().unwrap().success());
}
