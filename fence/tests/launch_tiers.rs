//! What each tier shares and what it does not, seen from inside.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod support;

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use bailey_model::Tier;
use support::{Ask, as_ordinary};

/// Each tier's own line of what a script printed in it.
fn in_each(script: &str) -> [String; 4] {
    Tier::ALL.map(|tier| Ask::python(script).tier(tier).run().ok())
}

fn outside(script: &str) -> String {
    let mut command = as_ordinary("/usr/bin/python3".as_ref());
    let output = command.args(["-c", script]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_namespace_is_the_boxs_own_but_the_network_where_it_is_shared() {
    let script = "
import os
for name in ('user','mnt','pid','ipc','uts','cgroup','net'): print(name, os.readlink('/proc/self/ns/'+name))";
    let host = outside(script);
    for (tier, inside) in Tier::ALL.into_iter().zip(in_each(script)) {
        let shared: Vec<&str> = inside
            .lines()
            .zip(host.lines())
            .filter(|(one, other)| one == other)
            .filter_map(|(line, _)| line.split(' ').next())
            .collect();
        let expected: &[&str] = if tier.shares_network() { &["net"] } else { &[] };
        assert_eq!(shared, expected, "{tier}");
    }
}

#[test]
fn privileges_are_gone_at_every_tier_and_calls_are_filtered_from_l1_5_on() {
    let script = "
want=('CapInh','CapPrm','CapEff','CapBnd','CapAmb','NoNewPrivs','Seccomp','Seccomp_filters')
status=dict(line.split(':',1) for line in open('/proc/self/status').read().splitlines())
print(*(status[name].strip() for name in want))";
    let nothing = ["0000000000000000"; 5].join(" ");
    let [l1, l15, l2, gated] = in_each(script);
    assert_eq!(l1, format!("{nothing} 1 0 0\n"));
    for filtered in [l15, l2, gated] {
        assert_eq!(filtered, format!("{nothing} 1 2 2\n"));
    }
}

#[test]
fn the_hosts_loopback_is_reached_where_the_network_is_shared_and_only_there() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!(
        r"
import socket, errno
def dial(address, family=socket.AF_INET):
    s=socket.socket(family); s.settimeout(5)
    try: s.connect(address); return 'connected'
    except socket.timeout: return 'timeout'
    except OSError as e: return errno.errorcode[e.errno]
own=socket.create_server(('127.0.0.1',0))
print(dial(('127.0.0.1',{port})), dial(own.getsockname()))
"
    );
    let [l1, l15, l2, gated] = in_each(&script);
    for shared in [l1, l15] {
        assert_eq!(shared, "connected connected\n");
    }
    for apart in [l2, gated] {
        assert_eq!(apart, "ECONNREFUSED connected\n");
    }
}

#[test]
fn at_l2_there_is_a_loopback_and_no_way_out() {
    let script = r"
import socket, errno
print(socket.if_nameindex())
for family, address in ((socket.AF_INET,'93.184.216.34'),(socket.AF_INET6,'2606:2800:220:1::1')):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        s=socket.socket(family, kind)
        try: s.connect((address, 80)); print('connected')
        except OSError as e: print(errno.errorcode[e.errno])
try: socket.getaddrinfo('example.com', 80); print('found')
except socket.gaierror as e: print('no name')
print(socket.gethostbyname('localhost'))
a=socket.create_server(('::1',0), family=socket.AF_INET6); socket.create_connection(a.getsockname()[:2])";
    let mut made = Ask::python(script).tier(Tier::L2).make().unwrap();
    assert!(made.tun.take().is_none());
    let out = made.go().end().ok();
    let expected = "[(1, 'lo')]\nENETUNREACH\nENETUNREACH\nENETUNREACH\nENETUNREACH\n\
                    no name\n127.0.0.1\n";
    assert_eq!(out, expected);
}

#[test]
fn names_are_found_as_the_host_finds_them_where_the_network_is_shared() {
    let host = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    for tier in [Tier::L1, Tier::L15] {
        let mut made = Ask::shell("cat /etc/resolv.conf; echo ---; cat /etc/hosts")
            .tier(tier)
            .make()
            .unwrap();
        assert!(made.tun.take().is_none());
        let out = made.go().end().ok();
        let (resolvers, hosts) = out.split_once("---\n").unwrap();
        assert_eq!(resolvers, host("/etc/resolv.conf"));
        assert!(hosts.ends_with(&host("/etc/hosts")), "{hosts}");
        assert!(hosts.starts_with("127.0.0.1 localhost probe\n"), "{hosts}");
    }
}

#[test]
fn an_abstract_socket_outside_is_out_of_reach_and_one_inside_is_not() {
    let name = format!("bailey-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _listener = UnixListener::bind_addr(&address).unwrap();
    let script = format!(
        r"
import socket, errno, os
def dial(name):
    s=socket.socket(socket.AF_UNIX)
    try: s.connect(name); return 'connected'
    except OSError as e: return errno.errorcode[e.errno]
print(dial('\0{name}'), flush=True)
own=socket.socket(socket.AF_UNIX); own.bind('\0inside-%d' % os.getpid()); own.listen()
if os.fork()==0: print(dial(own.getsockname()), flush=True); os._exit(0)
os.wait()"
    );
    // The control: without a box the same program gets there.
    assert_eq!(outside(&script), "connected\nconnected\n");
    let [l1, l15, l2, gated] = in_each(&script);
    for scoped in [l1, l15] {
        assert_eq!(scoped, "EPERM\nconnected\n");
    }
    for apart in [l2, gated] {
        assert_eq!(apart, "ECONNREFUSED\nconnected\n");
    }
}

#[test]
fn programs_of_a_box_signal_and_trace_each_other_at_every_tier() {
    let script = r"
import os, signal, ctypes, time
pid=os.fork()
if pid==0: time.sleep(1000)
libc=ctypes.CDLL(None, use_errno=True)
print('attach', libc.ptrace(16,pid,0,0)); os.waitpid(pid, 0)
print('environ', len(open('/proc/%d/environ' % pid,'rb').read())>0)
os.kill(pid, signal.SIGKILL)
print('ended', os.WTERMSIG(os.waitpid(pid,0)[1]))";
    for out in in_each(script) {
        assert_eq!(out, "attach 0\nenviron True\nended 9\n");
    }
}

#[test]
fn the_kernels_landlock_is_reported() {
    let made = Ask::new(&["true"]).tier(Tier::L1).make().unwrap();
    let known = std::fs::read_to_string("/sys/kernel/security/lsm").unwrap_or_default();
    let abi = made.measured.landlock;
    if known.contains("landlock") {
        assert!(abi.is_some_and(|abi| abi > 0));
    }
    println!("Landlock ABI {abi:?}");
    made.go().end();
}
