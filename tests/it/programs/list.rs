//! What programs do in a box, as data.

/// One program: what it does, and what a person reads of it.
#[derive(Debug)]
pub(super) struct Program {
    /// Of its box.
    pub(super) name: &'static str,
    /// Of the server.
    pub(super) port: u16,
    /// As an entry has it.
    pub(super) proto: &'static str,
    /// What a term of a reach has after the port.
    pub(super) over: &'static str,
    /// Run by bash; what it is given is in the folder `$GIVEN`.
    pub(super) script: &'static str,
    /// A part of what it says where it worked, and only there.
    pub(super) says: &'static str,
    /// A part of what it says where it was refused.
    pub(super) fails: &'static str,
    /// Octets that go out and come in, at the least.
    pub(super) moves: (u64, u64),
    /// Milliseconds in which it fails, its own start included.
    pub(super) at_once: u64,
}

/// Far below what any of these programs waits for a server that is silent.
const AT_ONCE: u64 = 2000;

const TCP: Program = Program {
    name: "",
    port: 0,
    proto: "tcp",
    over: "",
    script: "",
    says: "",
    fails: "",
    moves: (0, 0),
    at_once: AT_ONCE,
};

pub(super) const WEB: &[Program] = &[
    Program {
        name: "curl-1",
        port: 8443,
        script: "curl -sS --http1.1 --cacert $GIVEN/ca.pem \
                 -w 'HTTP/%{http_version}: %{size_download} octets, %{num_connects}\\n' \
                 -o /dev/null https://work.example:8443/blob -o /dev/null https://work.example:8443/blob",
        // The second by the first one's connection.
        says: "HTTP/1.1: 1000000 octets, 0",
        fails: "curl: (7)",
        moves: (300, 2_000_000),
        ..TCP
    },
    Program {
        name: "curl-2",
        port: 8444,
        script: "curl -sS --http2 --cacert $GIVEN/ca.pem \
                 -w 'HTTP/%{http_version}: %{size_download} octets\\n' \
                 -o /dev/null https://work.example:8444/blob",
        says: "HTTP/2: 1000000 octets",
        fails: "curl: (7)",
        moves: (300, 1_000_000),
        ..TCP
    },
    Program {
        name: "git-https",
        port: 8443,
        script: "export GIT_SSL_CAINFO=$GIVEN/ca.pem
git clone -q https://work.example:8443/git/repo.git clone
cd clone; cat README; head -c 100000 /dev/urandom >more; git add more
git -c user.name=b -c user.email=b@b commit -qm more
git push -q origin HEAD:more; git ls-remote --heads origin",
        says: "refs/heads/more",
        fails: "Failed to connect to work.example port 8443",
        moves: (100_000, 200_000),
        ..TCP
    },
];

pub(super) const QUIC: &[Program] = &[Program {
    name: "quic",
    port: 4433,
    proto: "udp",
    over: "/udp",
    script: "$GIVEN/bailey-quic ask work.example 4433 $GIVEN/cert.der",
    says: "8 streams of 100000 octets came back turned around",
    fails: "an ICMP error came: refused",
    moves: (800_000, 800_000),
    at_once: AT_ONCE,
}];

pub(super) const SSH: &[Program] = &[
    Program {
        name: "ssh",
        port: 2222,
        script: "head -c 300000 /dev/urandom >sent
ssh -F $GIVEN/config work.example sha256sum <sent >theirs
sha256sum <sent | cmp - theirs && echo 'the same on both sides'",
        says: "the same on both sides",
        fails: "port 2222: Connection refused",
        moves: (300_000, 1000),
        ..TCP
    },
    Program {
        name: "git-ssh",
        port: 2222,
        script: "export GIT_SSH_COMMAND=\"ssh -F $GIVEN/config\"
git clone -q work.example:repo.git clone
cd clone; cat README; head -c 100000 /dev/urandom >more; git add more
git -c user.name=b -c user.email=b@b commit -qm more
git push -q origin HEAD:by-ssh; git ls-remote --heads origin",
        says: "refs/heads/by-ssh",
        fails: "port 2222: Connection refused",
        moves: (100_000, 200_000),
        ..TCP
    },
];

pub(super) const DATABASES: &[Program] = &[
    Program {
        name: "psql",
        port: 5432,
        script: "psql -h work.example -U worker -d postgres -v ON_ERROR_STOP=1 <<'END'
begin;
create table kept (n int, text text);
insert into kept select n, repeat('x', 100) from generate_series(1, 5000) n;
commit;
\\copy kept to 'kept'
select count(*) || ' rows of ' || sum(length(text)) || ' letters' from kept;
drop table kept;
END
wc -l <kept",
        says: "5000 rows of 500000 letters",
        fails: "Connection refused",
        moves: (100, 500_000),
        ..TCP
    },
    Program {
        name: "redis",
        port: 6379,
        script: "cli='redis-cli -h work.example'
head -c 100000 /dev/zero | tr '\\0' a | $cli -x set long
$cli get long | wc -c
printf 'multi\\nincr n\\nincrby n 41\\nexec\\n' | $cli | tail -1",
        says: "42",
        fails: "Connection refused",
        moves: (100_000, 100_000),
        ..TCP
    },
];

pub(super) const IPERF: &[Program] = &[
    Program {
        name: "iperf-out",
        port: 5201,
        script: "iperf3 -4 -c work.example -n 64M",
        says: "iperf Done.",
        fails: "Connection refused",
        // The far end is at its end when it has counted enough.
        moves: (60 << 20, 100),
        ..TCP
    },
    Program {
        name: "iperf-in",
        port: 5201,
        script: "iperf3 -4 -c work.example -R -P 4 -n 64M",
        says: "iperf Done.",
        fails: "Connection refused",
        moves: (100, 60 << 20),
        ..TCP
    },
];

/// 10 Mbit/s for one second each way; iperf's own connection is TCP.
pub(super) const IPERF_UDP: Program = Program {
    name: "iperf-udp",
    port: 5201,
    proto: "udp",
    script: "timeout 10 iperf3 -4 -c work.example -u -b 10M -t 1 --bidir -l 1200",
    says: "iperf Done.",
    moves: (1_000_000, 1_000_000),
    ..TCP
};

/// Whatever else they want: no second try, no other server.
pub(super) const PIP: &[Program] = &[Program {
    name: "pip",
    port: 8443,
    script: "/usr/bin/python3 -m pip install --quiet --retries 0 --no-cache-dir \
             --disable-pip-version-check --cert $GIVEN/ca.pem --target here \
             --index-url https://work.example:8443/simple/ greet
cd here; /usr/bin/python3 greet.py",
    says: "hello from a wheel",
    fails: "No matching distribution found",
    moves: (500, 500),
    at_once: 10_000,
    ..TCP
}];

pub(super) const NPM: &[Program] = &[Program {
    name: "npm",
    port: 8443,
    script: "npm install --registry https://work.example:8443/npm/ --cafile $GIVEN/ca.pem \
             --fetch-retries=0 --no-audit --no-fund --no-update-notifier greet
node -e 'require(\"greet\")'",
    says: "hello from a tarball",
    fails: "ECONNREFUSED",
    moves: (500, 500),
    at_once: 10_000,
    ..TCP
}];

pub(super) const CARGO: &[Program] = &[Program {
    name: "cargo",
    port: 8443,
    script: "export CARGO_HOME=$HOME/cargo CARGO_NET_RETRY=0 CARGO_HTTP_CAINFO=$GIVEN/ca.pem
mkdir -p cargo work/src; touch work/src/lib.rs
cat >cargo/config.toml <<'END'
[source.crates-io]
replace-with = 'ours'
[source.ours]
registry = 'sparse+https://work.example:8443/cargo/'
END
cat >work/Cargo.toml <<'END'
[package]
name = 'work'
version = '0.1.0'
edition = '2021'
[dependencies]
greet = '1'
END
cd work; $GIVEN/cargo vendor -q --respect-source-config; cat vendor/greet/src/lib.rs",
    says: "hello from a crate",
    fails: "Could not connect to server",
    moves: (500, 500),
    at_once: 10_000,
    ..TCP
}];
