//! Programs as people use them, in a box behind the gate, with real servers in
//! the router's network: each works by one grant, and by nothing else.

mod list;
mod serve;

use bailey_tests::{Output, TestWorld, run};
use serde_json::Value;

use crate::common::{flows, world};
use list::Program;
use serve::{NAME, Served, installed};

/// How a flow that worked ends; some programs leave without closing.
const ENDS: [&str; 4] = ["closed", "reset by box", "reset by peer", "box stopped"];

/// A world, what is served in it, and each program of a list tried.
#[track_caller]
fn each(servers: &[&str], needs: &[&str], programs: &[Program]) {
    if !installed(needs) {
        return;
    }
    let (world, _daemons) = world(1);
    let served = Served::start(&world, servers);
    for program in programs {
        works_by_its_grant(&world, &served, program);
        fails_at_once_without(&world, &served, program);
    }
}

/// Runs a program's script in a box of this reach. The last line of its output
/// is what came of it and how many milliseconds it took.
#[track_caller]
fn boxed(world: &TestWorld, served: &Served, program: &Program, name: &str, reach: &str) -> Output {
    let files = served.given().display().to_string();
    let (grant, env) = (format!("{files}:ro"), format!("GIVEN={files}"));
    let script = format!(
        "if env | grep -i proxy; then exit 9; fi
begun=$(date +%s%3N)
(set -e
{}) 2>&1
code=$?; echo; echo \"code $code after $(($(date +%s%3N) - begun)) ms\"",
        program.script
    );
    let words = [
        "run", "--name", name, "--reach", reach, "--grant", &grant, "--env", &env, "--", "bash",
        "-c", &script,
    ];
    world.run("n1", &words).ok()
}

/// What the last line says.
#[track_caller]
fn came_of(output: &Output) -> (i32, u64) {
    let last = output.stdout.lines().last().unwrap_or_default();
    let words: Vec<&str> = last.split(' ').collect();
    let ["code", code, "after", took, "ms"] = words[..] else {
        panic!("{output}")
    };
    (code.parse().unwrap(), took.parse().unwrap())
}

/// The rows of a kind that are of this program's far end.
fn rows_of<'a>(rows: &'a [Value], program: &Program, kind: &str) -> Vec<&'a Value> {
    let of = |row: &&Value| {
        row["kind"] == kind
            && row["dst_host"] == NAME
            && row["dst_port"] == program.port
            && row["proto"] == program.proto
    };
    rows.iter().filter(of).collect()
}

#[track_caller]
fn works_by_its_grant(world: &TestWorld, served: &Served, program: &Program) {
    let name = program.name;
    let term = format!("{NAME}:{}{}", program.port, program.over);
    let output = boxed(world, served, program, name, &term);
    let (code, took) = came_of(&output);
    println!("{name}: worked in {took} ms");
    assert_eq!(code, 0, "{name}: {output}");
    assert!(output.stdout.contains(program.says), "{name}: {output}");
    let rows = flows(world, "n1", name);
    let opened = rows_of(&rows, program, "flow");
    assert!(!opened.is_empty(), "{name}: {rows:#?}");
    let mut moved = (0, 0);
    for row in opened {
        assert_eq!(
            (&row["verdict"], &row["rule"], &row["host_from"]),
            (&"allow".into(), &term.as_str().into(), &"dns".into()),
            "{name}"
        );
        let end = row["end"].as_str().unwrap_or_default();
        assert!(ENDS.contains(&end), "{name}: {row:#}");
        moved.0 += row["bytes_out"].as_u64().unwrap();
        moved.1 += row["bytes_in"].as_u64().unwrap();
    }
    let (out, into) = program.moves;
    assert!(
        moved.0 >= out && moved.1 >= into,
        "{name}: {moved:?} of {:?}: {rows:#?}",
        program.moves
    );
    // It tried nothing that a person would have to grant besides.
    let refused = rows.iter().any(|row| row["verdict"] == "refuse");
    assert!(!refused, "{name}: {rows:#?}");
}

/// The name is there, its port is not granted.
#[track_caller]
fn fails_at_once_without(world: &TestWorld, served: &Served, program: &Program) {
    let name = format!("{}-not", program.name);
    let output = boxed(world, served, program, &name, &format!("{NAME}:1"));
    let (code, took) = came_of(&output);
    println!("{name}: refused in {took} ms");
    assert_ne!(code, 0, "{name}: {output}");
    assert!(!output.stdout.contains(program.says), "{name}: {output}");
    assert!(output.stdout.contains(program.fails), "{name}: {output}");
    assert!(took < program.at_once, "{name}: {took} ms: {output}");
    let rows = flows(world, "n1", &name);
    let refused = rows_of(&rows, program, "refused");
    assert!(!refused.is_empty(), "{name}: {rows:#?}");
    for row in refused {
        assert_eq!(
            (&row["reason"], &row["dst_class"]),
            (&"outside reach".into(), &"internet".into()),
            "{name}"
        );
    }
    let told = format!(
        "would be granted by --reach …,{NAME}:{}{}",
        program.port, program.over
    );
    assert!(output.stderr.contains(&told), "{name}: {output}");
}

#[test]
fn curl_and_git_over_https_work_by_their_grant_alone() {
    let needs = ["curl", "git", "nghttpd", "openssl"];
    each(&["web", "h2"], &needs, list::WEB);
}

#[test]
fn quic_works_by_its_grant_alone() {
    each(&["quic"], &["openssl"], list::QUIC);
}

#[test]
fn ssh_and_git_over_it_work_by_their_grant_alone() {
    each(&["ssh"], &["ssh", "sshd", "git"], list::SSH);
}

#[test]
fn clients_of_databases_work_by_their_grant_alone() {
    let needs = ["psql", "redis-server", "redis-cli"];
    each(&["postgres", "redis"], &needs, list::DATABASES);
}

#[test]
fn iperf_measures_both_ways_by_its_grant_alone() {
    each(&["iperf"], &["iperf3"], list::IPERF);
}

#[test]
fn iperf_sends_datagrams_both_ways_where_both_transports_are_granted() {
    if !installed(&["iperf3"]) {
        return;
    }
    let (world, _daemons) = world(1);
    let served = Served::start(&world, &["iperf"]);
    works_by_its_grant(&world, &served, &list::IPERF_UDP);
    // The control: its connection alone is granted, its datagrams are not.
    let program = &list::IPERF_UDP;
    let term = format!("{NAME}:{}/tcp", program.port);
    let output = boxed(&world, &served, program, "half", &term);
    assert!(!output.stdout.contains(program.says), "{output}");
    let rows = flows(&world, "n1", "half");
    assert_eq!(rows_of(&rows, program, "flow").len(), 0, "{rows:#?}");
    let refused = rows_of(&rows, program, "refused");
    assert_eq!(refused[0]["reason"], "outside reach", "{rows:#?}");
}

#[test]
fn pip_installs_from_the_one_registry_that_is_granted() {
    each(&["web"], &["git", "openssl"], list::PIP);
}

#[test]
fn npm_installs_from_the_one_registry_that_is_granted() {
    each(&["web"], &["git", "openssl", "npm"], list::NPM);
}

#[test]
fn cargo_fetches_from_the_one_registry_that_is_granted() {
    each(&["web", "cargo"], &["git", "openssl"], list::CARGO);
}

#[test]
fn dig_is_answered_by_the_gate_whichever_server_it_asks() {
    let (world, _daemons) = world(1);
    let script = "for words in '' '@9.9.9.9' '+tcp @9.9.9.9' '@192.168.1.1'; do
  dig +time=3 +tries=1 $words shop.example A | grep -E 'status|SERVER:|93.184'
  dig +time=3 +tries=1 $words third.example A | grep -E 'status|EDE'
done";
    let words = ["run", "--name", "dig", "--reach", "shop.example:80", "--"];
    let output = world.run("n1", &[&words[..], &["sh", "-c", script]].concat());
    let said = output.ok().stdout;
    assert_eq!(said.matches("status: NOERROR").count(), 4, "{said}");
    assert_eq!(said.matches("93.184.216.34").count(), 4, "{said}");
    assert_eq!(said.matches("status: NXDOMAIN").count(), 4, "{said}");
    assert_eq!(said.matches("EDE: 15 (Blocked)").count(), 4, "{said}");
    // What is outside reach left the node by no way.
    let asked = world.dns_log().unwrap();
    let third = |asked: &&bailey_world::Asked| asked.name.starts_with("third");
    assert!(asked.iter().find(third).is_none(), "{asked:#?}");
    let rows = flows(&world, "n1", "dig");
    let named = |host: &str, verdict: &str| {
        let fits = |row: &&Value| row["dst_host"] == host && row["verdict"] == verdict;
        rows.iter().any(|row| fits(&row))
    };
    assert!(named("shop.example", "allow"), "{rows:#?}");
    assert!(named("third.example", "refuse"), "{rows:#?}");
}

#[test]
fn a_published_server_answers_two_hundred_clients_at_once() {
    if !installed(&["redis-server", "redis-benchmark"]) {
        return;
    }
    let (world, _daemons) = world(1);
    let words = "run -q --name cache --reach nothing --publish 6379:6379 --";
    let server = "redis-server --port 6379 --save --protected-mode no";
    let words: Vec<&str> = words.split(' ').chain(server.split(' ')).collect();
    let running = world.start("n1", &words);
    running.wait_line(crate::common::LIMIT, |line| {
        line.contains("Ready to accept connections")
    });
    let mut clients = world.command("n1", "redis-benchmark");
    clients.args("-h 127.0.0.1 -p 6379 -c 200 -n 10000 -t set,get --csv".split(' '));
    let said = run(&mut clients).ok().stdout;
    assert!(
        said.contains("\"SET\",") && said.contains("\"GET\","),
        "{said}"
    );
    let rows = flows(&world, "n1", "cache");
    let came: Vec<&Value> = rows.iter().filter(|row| row["direction"] == "in").collect();
    // Two hundred for each of the two commands, and one that asks for settings.
    assert!(came.len() > 400, "{} came", came.len());
    for row in came {
        assert_eq!(
            (&row["verdict"], &row["rule"]),
            (&"allow".into(), &"publish 6379:6379".into())
        );
    }
}
