//! A further command in a box that runs.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod support;

use std::io::Read;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use bailey_fence_plan::channel::ToFence;
use bailey_model::{ChildExit, Tier};
use support::cgroup::Delegated;
use support::join::Join;
use support::{Ask, Made};

const STATUS: &str = "
import os
want=('Uid','Gid','Groups','CapInh','CapPrm','CapEff','CapBnd','CapAmb','NoNewPrivs','Seccomp','Seccomp_filters','SigBlk','SigIgn')
status=dict(line.split(':',1) for line in open('/proc/self/status').read().splitlines())
for name in want: print(name, status[name].strip())
print(len(status['NSpid'].split()), os.getcwd(), sorted(os.environ.items()))
for name in ('user','mnt','pid','ipc','uts','cgroup','net'): print(name, os.readlink('/proc/self/ns/'+name))
print(open('/proc/self/limits').read())
print(oct(os.umask(0)), open('/proc/self/cgroup').read())
fds=[]
for fd in range(4096):
  try: os.fstat(fd); fds.append(fd)
  except OSError: pass
print(fds)";

/// A box whose first command does this once it reads a line, never by itself.
fn waiting(tier: Tier, then: &str) -> (Made, std::io::PipeWriter) {
    waiting_as(Ask::shell(&format!("read line; {then}")).tier(tier))
}

fn waiting_as(mut ask: Ask) -> (Made, std::io::PipeWriter) {
    let (input, writer) = std::io::pipe().unwrap();
    ask.stdin = Some(input.into());
    (ask.make().unwrap().go().running(), writer)
}

fn idle(tier: Tier) -> (Made, std::io::PipeWriter) {
    waiting(tier, "exit 0")
}

#[test]
fn a_joined_command_is_confined_as_the_first_is() {
    for tier in Tier::ALL {
        let mut ask = Ask::python(&format!("input()\n{STATUS}")).tier(tier);
        let (input, mut writer) = std::io::pipe().unwrap();
        ask.stdin = Some(input.into());
        let first = ask.make().unwrap().go().running();
        let joined = Join::python(STATUS).enter(&first).unwrap().go().end().ok();
        std::io::Write::write_all(&mut writer, b"\n").unwrap();
        let first = first.end().ok();
        assert_eq!(joined, first, "{tier}");
        assert!(joined.contains("CapBnd 0000000000000000"), "{joined}");
        assert!(joined.ends_with("[0, 1, 2]\n"), "{joined}");
    }
}

#[test]
fn a_joined_command_has_the_boxs_limits_and_counts_against_them() {
    let script = r"
import os, time
made=0
try:
    for _ in range(100):
        if os.fork()==0: time.sleep(1000)
        made+=1
except OSError: pass
print(made, flush=True)
open('/proc/self/oom_score_adj').read()
print(open('/proc/self/limits').read().count(' 256 '))";
    let mut ask = Ask::shell("read line").tier(Tier::L2);
    ask.spec.limits = "pids=24,files=256".parse().unwrap();
    let (input, _writer) = std::io::pipe().unwrap();
    ask.stdin = Some(input.into());
    let made = ask.make().unwrap().go().running();
    let mut joined = Join::python(script).enter(&made).unwrap().go();
    // Pid 1, the shell, the joined command's keeper and itself are there before.
    assert_eq!(joined.line(), "20\n");
    // The soft and the hard limit.
    assert_eq!(joined.line(), "2\n");
    joined.tell(&ToFence::Kill);
    joined.end();
}

#[test]
fn a_joined_command_is_in_the_boxs_cgroup() {
    let Some(delegated) = Delegated::make() else {
        println!("skipped: no cgroup of version 2 can be made here");
        return;
    };
    let (made, _writer) = waiting_as(Ask::shell("read line").within(&delegated.0));
    let out = Join::shell("grep ^0: /proc/self/cgroup; sleep 1000");
    let mut joined = out.enter(&made).unwrap().go();
    assert_eq!(joined.line(), "0::/\n");
    // Pid 1 and the first command, the joined command's keeper and itself.
    // What said the line may be ending still.
    let list = delegated.0.join("box/cgroup.procs");
    let inside = || std::fs::read_to_string(&list).unwrap().lines().count();
    let mut looks = 0;
    while inside() < 4 || made.left() != inside() {
        assert!(looks < 500, "{} and {}", inside(), made.left());
        looks += 1;
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    joined.tell(&ToFence::Kill);
    joined.end();
}

#[test]
fn a_joined_command_sees_the_boxs_processes_and_ends_them_at_every_tier() {
    for tier in Tier::ALL {
        let (made, _writer) = idle(tier);
        let first = *made.pids().last().unwrap();
        let script = format!("cat /proc/{first}/comm; hostname; kill -TERM {first}; echo $?");
        let out = Join::shell(&script).enter(&made).unwrap().go();
        // The kill ends the box, and with it the joined command, maybe before
        // it has said how it went.
        let said = out.end();
        assert!(said.out.starts_with("sh\nprobe\n"), "{tier}: {said:?}");
        assert_eq!(made.end().end, ChildExit::Signal(15), "{tier}");
    }
}

#[test]
fn a_joined_command_reaches_no_abstract_socket_outside() {
    let name = format!("bailey-join-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _listener = UnixListener::bind_addr(&address).unwrap();
    // The control: this process reaches it.
    UnixStream::connect_addr(&address).unwrap();
    let script = format!(
        r"
import socket, errno
try: socket.socket(socket.AF_UNIX).connect('\0{name}'); print('connected')
except OSError as e: print(errno.errorcode[e.errno])"
    );
    for tier in Tier::ALL {
        let (made, _writer) = idle(tier);
        let out = Join::python(&script).enter(&made).unwrap().go().end().ok();
        let expected = if tier.shares_network() {
            "EPERM\n"
        } else {
            "ECONNREFUSED\n"
        };
        assert_eq!(out, expected, "{tier}");
    }
}

#[test]
fn exit_codes_signals_and_what_cannot_be_executed_come_back() {
    let (made, _writer) = idle(Tier::Gated);
    let run = |script: &str| Join::shell(script).enter(&made).unwrap().go().end();
    assert_eq!(run("exit 7").end, ChildExit::Code(7));
    assert_eq!(run("kill -USR1 $$").end, ChildExit::Signal(10));
    let mut join = Join::shell("");
    join.spec.command = vec![b"no-such-program".to_vec()];
    let outcome = join.enter(&made).unwrap().go().end();
    assert_eq!((outcome.end, outcome.ran), (ChildExit::Code(127), false));
    let mut join = Join::shell("");
    join.spec.cwd = b"/nowhere".to_vec();
    let error = join.enter(&made).err().unwrap();
    assert_eq!(error.step, "go to the working folder");
    // None of them took the box along.
    assert_eq!(made.left(), 2);
}

#[test]
fn a_joined_terminal_is_the_boxs_own_and_controls_the_command() {
    let (made, _writer) = idle(Tier::Gated);
    let join = Join::shell("tty; stty size; read line; echo got $line; exec sleep 1000");
    let mut joined = join.terminal(31, 99).enter(&made).unwrap().go();
    let mut terminal = joined.terminal.take().unwrap();
    let mut seen = String::new();
    let mut until = |text: &str, terminal: &mut std::fs::File| {
        let mut bytes = [0; 256];
        while !seen.contains(text) {
            let count = terminal.read(&mut bytes).unwrap();
            seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        seen.clone()
    };
    assert!(until("31 99", &mut terminal).starts_with("/dev/pts/0\r\n"));
    std::io::Write::write_all(&mut terminal, b"word\n").unwrap();
    until("got word", &mut terminal);
    std::io::Write::write_all(&mut terminal, &[3]).unwrap();
    assert_eq!(joined.end().end, ChildExit::Signal(2));
    assert_eq!(made.left(), 2);
}

#[test]
fn a_kill_ends_all_that_the_joined_command_started_and_nothing_else() {
    for tier in [Tier::L1, Tier::Gated] {
        let (made, _writer) = idle(tier);
        let script = "trap '' TERM HUP INT
            setsid sleep 1000 & (setsid sh -c 'trap \"\" TERM; sleep 1000 & wait' &)
            echo ready; sleep 1000";
        let mut joined = Join::shell(script).enter(&made).unwrap().go();
        assert_eq!(joined.line(), "ready\n");
        assert!(made.left() >= 6, "{}", made.left());
        joined.tell(&ToFence::Kill);
        assert_eq!(joined.end().end, ChildExit::Signal(9), "{tier}");
        assert_eq!(made.left(), 2, "{tier}");
    }
}

#[test]
fn what_a_joined_command_leaves_behind_is_the_boxs() {
    let (made, writer) = idle(Tier::Gated);
    let script = "setsid sleep 1000 >/dev/null 2>&1 & exit 3";
    let joined = Join::shell(script).enter(&made).unwrap().go();
    assert_eq!(joined.end().end, ChildExit::Code(3));
    assert_eq!(made.left(), 3);
    drop(writer);
    // `end` sees that nothing is left.
    assert_eq!(made.end().end, ChildExit::Code(0));
}

#[test]
fn a_signal_reaches_the_joined_commands_group() {
    let (made, _writer) = idle(Tier::Gated);
    let script = "trap 'echo got; exit 3' TERM; echo ready; while :; do sleep 0.05; done";
    let mut joined = Join::shell(script).enter(&made).unwrap().go();
    assert_eq!(joined.line(), "ready\n");
    joined.tell(&ToFence::Signal(15));
    let outcome = joined.end();
    assert_eq!(
        (outcome.end, outcome.out.as_str()),
        (ChildExit::Code(3), "got\n")
    );
}

#[test]
fn the_end_of_the_box_ends_what_has_joined() {
    for started in [false, true] {
        let (mut made, _writer) = idle(Tier::Gated);
        let mut joined = Join::shell("trap '' TERM HUP; setsid sleep 1000 & sleep 1000")
            .enter(&made)
            .unwrap();
        if started {
            joined = joined.go().running();
        }
        made.tell(&ToFence::Kill);
        assert_eq!(made.end().end, ChildExit::Signal(9));
        assert_eq!(joined.end().end, ChildExit::Signal(9));
    }
}

#[test]
fn a_joined_commands_launcher_that_is_gone_takes_the_command_along_and_not_the_box() {
    for killed in [false, true] {
        for started in [false, true] {
            let (made, writer) = idle(Tier::Gated);
            let mut joined = Join::shell("trap '' TERM HUP; setsid sleep 1000 & sleep 1000")
                .enter(&made)
                .unwrap();
            if started {
                joined = joined.go().running();
            }
            if killed {
                joined.launcher.kill().unwrap();
            }
            let mut launcher = joined.abandon();
            launcher.wait().unwrap();
            support::until("the joined command's processes end", || made.left() == 2);
            drop(writer);
            assert_eq!(made.end().end, ChildExit::Code(0));
        }
    }
}

#[test]
fn nothing_joins_a_box_that_has_ended() {
    let (made, writer) = idle(Tier::Gated);
    let join = Join::shell("echo ran");
    let held = join.hold(&made);
    drop(writer);
    assert_eq!(made.end().end, ChildExit::Code(0));
    let error = join.with(held).err().unwrap();
    assert!(error.reason.contains("the box has ended"), "{error}");
}

/// Reads what a process shows to another of its user.
const PEEK: &str = r"
import os, errno, ctypes, sys
pid=int(sys.argv[1])
def tried(act):
    try: return 'read' if act() else 'empty'
    except OSError as e: return errno.errorcode[e.errno]
for what in ('mem','environ','maps','auxv','syscall'):
    def read(what=what):
        with open('/proc/%d/%s' % (pid, what),'rb') as f:
            if what=='mem': f.seek(int(open('/proc/%d/maps' % pid).readline().split('-')[0],16))
            return f.read(16)
    print(what, tried(read))
for what in ('exe','cwd','fd/0','ns/mnt'): print(what, tried(lambda what=what: os.readlink('/proc/%d/%s' % (pid, what))))
print('fds', tried(lambda: os.listdir('/proc/%d/fd' % pid)))
libc=ctypes.CDLL(None, use_errno=True)
print('attach', 'read' if libc.ptrace(16,pid,0,0)==0 else errno.errorcode[ctypes.get_errno()])
print('cmdline', open('/proc/%d/cmdline' % pid).read().replace('\0','|'))";

#[test]
fn nothing_can_be_read_of_what_joins_before_it_is_executed() {
    for tier in Tier::ALL {
        // The first command looks at a process whose number it is told.
        let script = "exec /usr/bin/python3 -c \"$0\" $line";
        let mut ask =
            Ask::new(&["/bin/sh", "-c", &format!("read line; {script}"), PEEK]).tier(tier);
        let (input, mut writer) = std::io::pipe().unwrap();
        ask.stdin = Some(input.into());
        let made = ask.make().unwrap().go().running();
        let mut join = Join::shell("sleep 1000");
        join.spec.env.push((b"SECRET".to_vec(), b"value".to_vec()));
        let before = made.pids();
        let joined = join.enter(&made).unwrap();
        let new: Vec<u32> = made.pids();
        let new: Vec<&u32> = new.iter().filter(|pid| !before.contains(pid)).collect();
        assert_eq!(new.len(), 1, "{new:?}");
        std::io::Write::write_all(&mut writer, format!("{}\n", new[0]).as_bytes()).unwrap();
        drop(writer);
        let out = made.end().ok();
        let lines: Vec<&str> = out.lines().collect();
        let (last, tried) = lines.split_last().unwrap();
        assert_eq!(*last, "cmdline bailey-fence|", "{tier}");
        for line in tried {
            assert!(
                line.ends_with(" EACCES") || line.ends_with(" EPERM"),
                "{tier}: {line}"
            );
        }
        assert_eq!(tried.len(), 11);
        drop(joined);
    }
}

#[test]
fn the_same_reads_work_on_a_process_that_may_be_read() {
    let script = "SECRET=value sleep 1000 & while [ \"$(cat /proc/$!/comm)\" != sleep ]; do :; done
         /usr/bin/python3 -c \"$0\" $!";
    for tier in Tier::ALL {
        let out = Ask::new(&["/bin/sh", "-c", script, PEEK])
            .tier(tier)
            .run()
            .ok();
        let lines: Vec<&str> = out.lines().collect();
        let (_, tried) = lines.split_last().unwrap();
        for line in tried {
            assert!(line.ends_with(" read"), "{tier}: {line}");
        }
    }
}

#[test]
fn a_joined_command_that_the_box_stops_is_ended_all_the_same() {
    let script = "while read pid; do kill -STOP $pid; echo stopped; done";
    let mut ask = Ask::shell(script);
    let (input, mut writer) = std::io::pipe().unwrap();
    ask.stdin = Some(input.into());
    let made = ask.make().unwrap().go().running();
    let mut joined = Join::shell("echo $PPID; sleep 1000")
        .enter(&made)
        .unwrap()
        .go();
    let keeper = joined.line();
    std::io::Write::write_all(&mut writer, keeper.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    joined.tell(&ToFence::Kill);
    assert_eq!(joined.end().end, ChildExit::Signal(9));
    support::until("the joined command's processes end", || made.left() == 2);
}
