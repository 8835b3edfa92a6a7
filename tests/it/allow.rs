//! The reach of a running box: what it gets, what it loses, and how a refusal is
//! explained, outside and inside.

use std::time::{Duration, Instant};

use bailey_tests::{Output, Running, TestWorld, wait_until};
use bailey_world::at;
use serde_json::Value;

use crate::common::{LIMIT, attached, boxed, daemon, flows, hears_of, pair, stop, world};

/// Curl's exit code for a connection that was refused.
const REFUSED: i32 = 7;
/// Curl's exit code for a name that does not exist.
const NO_NAME: i32 = 6;
const PRINTER: &str = "192.168.1.9:80";

/// A box that stays, with this reach.
fn yard(world: &TestWorld, reach: &str) -> Running {
    attached(
        world,
        "n1",
        &["--name", "yard", "--reach", reach],
        "sleep 100",
    )
}

fn exec(world: &TestWorld, script: &str) -> Output {
    world.run("n1", &["exec", "yard", "--", "sh", "-c", script])
}

/// Curl's exit code in the box.
fn fetch(world: &TestWorld, whom: &str) -> i32 {
    let script = format!("curl -sS -m 5 -o /dev/null http://{whom}/");
    exec(world, &script).code.unwrap()
}

fn change(world: &TestWorld, way: &str, terms: &[&str]) -> Output {
    world.run("n1", &[&[way, "yard"], terms, &["--json"]].concat())
}

/// The reach that `ps` shows.
fn reach(world: &TestWorld, node: &str) -> String {
    let rows = world.run(node, &["ps", "--json"]).ok().json();
    let row = rows.iter().rev().find(|row| row["name"] == "yard").unwrap();
    row["reach"].as_str().unwrap().to_owned()
}

fn why(world: &TestWorld, what: &str) -> Value {
    let said = world.run("n1", &["why", "yard", what, "--json"]).ok();
    said.json().remove(0)
}

/// Runs the words that were printed for a person.
fn obey(world: &TestWorld, command: &str) -> Output {
    let words: Vec<&str> = command.split(' ').collect();
    let ["bailey", words @ ..] = &words[..] else {
        panic!("{command}")
    };
    world.run("n1", words)
}

#[test]
fn a_running_box_gets_and_loses_what_it_may_dial() {
    let (world, _daemons) = world(2);
    pair(&world, "n1", "n2");
    let _box = yard(&world, "shop.example:80");
    hears_of(&world, "n2", "yard");
    assert_eq!(fetch(&world, "shop.example"), 0);
    assert_eq!(fetch(&world, PRINTER), REFUSED);
    assert_eq!(fetch(&world, "neighbour.example"), NO_NAME);

    let said = change(&world, "allow", &[PRINTER, "neighbour.example"])
        .ok()
        .json();
    let new = "shop.example:80,192.168.1.9:80,neighbour.example";
    assert_eq!(
        (&said[0]["old"], &said[0]["reach"], &said[0]["changed"]),
        (&"shop.example:80".into(), &new.into(), &true.into())
    );
    assert_eq!(fetch(&world, PRINTER), 0);
    assert_eq!(fetch(&world, "neighbour.example"), 0);
    // The control: what was not named is no more open than before.
    assert_eq!(fetch(&world, "192.168.1.9:631"), REFUSED);
    assert_eq!(reach(&world, "n1"), new);
    let report = world.run("n1", &["report", "yard", "--json"]).ok().json();
    assert_eq!(report[0]["reach"], new);
    assert!(wait_until(LIMIT, || reach(&world, "n2") == new));

    let said = world.run("n1", &["deny", "yard", "neighbour.example", "shop.example"]);
    let said = said.ok().stdout;
    assert!(
        said.starts_with("yard: reach 192.168.1.9:80 · flows reset "),
        "{said}"
    );
    assert_eq!(fetch(&world, "neighbour.example"), NO_NAME);
    assert_eq!(fetch(&world, "shop.example"), NO_NAME);
    // Not by the address either, which the box was given for the name.
    assert_eq!(fetch(&world, &at::WEB_V4.to_string()), REFUSED);
    assert_eq!(fetch(&world, PRINTER), 0);
    assert_eq!(
        change(&world, "deny", &[PRINTER]).ok().json()[0]["reach"],
        "nothing"
    );
    assert_eq!(fetch(&world, PRINTER), REFUSED);

    let rows = flows(&world, "n1", "yard");
    let changes: Vec<&str> = rows
        .iter()
        .filter(|row| row["kind"] == "reach")
        .map(|row| row["reason"].as_str().unwrap())
        .collect();
    let (old, last) = ("shop.example:80", "192.168.1.9:80");
    assert_eq!(
        changes,
        [
            format!("{old} → {new}"),
            format!("{new} → {last}"),
            format!("{last} → nothing")
        ]
    );
    let shown = world.run("n1", &["flows", "yard"]).ok().stdout;
    assert!(shown.contains(&format!("{last} → nothing")), "{shown}");
    assert!(wait_until(LIMIT, || reach(&world, "n2") == "nothing"));
    // The next run begins with what it is given.
    let _ended = stop(&world, "n1", "yard");
    let next = boxed(&world, "n1", &["-q", "--name", "yard"], "true");
    let _ran = next.ok();
    assert_eq!(reach(&world, "n1"), "internet");
}

/// Keeps what it accepts open, and says how each connection ended.
const LISTENER: &str = "import socket, threading\n\
    s = socket.create_server(('192.168.1.11', 5000)); print('listening', flush=True)\n\
    def hold(c):\n\
    \x20   try:\n\
    \x20       while part := c.recv(9): c.sendall(part)\n\
    \x20       print('closed', flush=True)\n\
    \x20   except ConnectionResetError: print('reset', flush=True)\n\
    while True: threading.Thread(target=hold, args=(s.accept()[0],)).start()";

/// Opens a connection, then says how it ends.
const HOLDER: &str = "python3 -c \"import socket\n\
    s = socket.create_connection(('192.168.1.11', 5000), 5); s.sendall(b'hi'); s.recv(9)\n\
    s.settimeout(60); print('open', flush=True)\n\
    try: print('ended', s.recv(9), flush=True)\n\
    except ConnectionResetError: print('reset', flush=True)\"; sleep 100";

#[test]
fn a_flow_that_is_denied_is_reset_on_both_sides_and_its_entry_says_so() {
    let (world, _daemons) = world(1);
    let mut listener = world.command("n1", "/usr/bin/python3");
    let listener = Running::start(listener.args(["-c", LISTENER]));
    listener.wait_line(LIMIT, |line| line == "listening");
    let words = ["--name", "yard", "--reach", "internet,192.168.1.11:5000"];
    let running = attached(&world, "n1", &words, HOLDER);
    running.wait_line(LIMIT, |line| line == "open");
    let follow = world.start("n1", &["flows", "yard", "--follow", "--json"]);
    // The control: a change that leaves the flow its grant leaves the flow.
    assert_eq!(
        change(&world, "deny", &["internet"]).ok().json()[0]["flows_reset"],
        0
    );
    std::thread::sleep(Duration::from_millis(300));
    assert!(!running.stdout().contains("reset") && !listener.stdout().contains("reset"));

    let said = change(&world, "deny", &["192.168.1.11"]).ok().json();
    assert_eq!(said[0]["flows_reset"], 1, "{said:?}");
    running.wait_line(LIMIT, |line| line == "reset");
    listener.wait_line(LIMIT, |line| line == "reset");
    // The change stands before what came of it.
    follow.wait_line(LIMIT, |line| line.contains("reach changed"));
    let kinds: Vec<String> = bailey_tests::json_lines(&follow.stdout())
        .iter()
        .map(|row| row["kind"].as_str().unwrap().to_owned())
        .collect();
    let last = kinds.iter().rposition(|kind| kind == "reach").unwrap();
    assert_eq!(
        kinds.get(last + 1).map(String::as_str),
        Some("end"),
        "{kinds:?}"
    );
    let rows = flows(&world, "n1", "yard");
    let flow = rows.iter().find(|row| row["kind"] == "flow").unwrap();
    assert_eq!(
        (&flow["end"], &flow["rule"]),
        (&"reach changed".into(), &"192.168.1.11:5000".into())
    );
}

#[test]
fn a_dial_under_way_ends_when_it_is_denied() {
    let (world, _daemons) = world(1);
    let script = format!(
        "python3 -c \"import socket, time\ns = socket.socket(); s.settimeout(30)\n\
         print('dialling', flush=True)\ntry: s.connect(('{}', 80))\n\
         except ConnectionRefusedError: print('refused', flush=True)\"; sleep 100",
        at::BLACKHOLE_V4
    );
    let running = attached(&world, "n1", &["--name", "yard"], &script);
    running.wait_line(LIMIT, |line| line == "dialling");
    let open = wait_until(LIMIT, || {
        flows(&world, "n1", "yard")
            .iter()
            .any(|row| row["kind"] == "flow")
    });
    assert!(open);
    let begun = Instant::now();
    assert_eq!(
        change(&world, "deny", &["internet"]).ok().json()[0]["flows_reset"],
        1
    );
    running.wait_line(Duration::from_secs(5), |line| line == "refused");
    assert!(begun.elapsed() < Duration::from_secs(5));
    let rows = flows(&world, "n1", "yard");
    let flow = rows.iter().find(|row| row["kind"] == "flow").unwrap();
    assert_eq!(flow["end"], "reach changed");
}

#[test]
fn a_change_that_cannot_be_is_named_and_the_old_reach_stays() {
    let (world, _daemons) = world(1);
    let _box = yard(&world, "internet,shop.example:80");
    for (way, terms, code, said) in [
        ("allow", &["local", "a..b"][..], 2, "a..b"),
        ("allow", &["nothing"], 2, "`nothing` is no term"),
        ("allow", &["shop.example:99999"], 2, "1 to 65535"),
        ("deny", &["shop.example:80"], 2, "internet"),
        ("deny", &["10.0.0.1"], 2, "no term of the reach grants it"),
        ("deny", &["local"], 2, "no term of the reach grants it"),
        ("deny", &["internet", "x y"], 2, "x y"),
    ] {
        let output = change(&world, way, terms);
        assert_eq!(output.code, Some(code), "{way} {terms:?} {output}");
        assert!(output.stderr.contains(said), "{way} {terms:?} {output}");
        assert_eq!(reach(&world, "n1"), "internet,shop.example:80");
    }
    assert_eq!(fetch(&world, &at::SHARED_V4.to_string()), 0);
    assert_eq!(fetch(&world, PRINTER), REFUSED);
    // An equal one changes nothing, says so, and is no entry.
    let before = flows(&world, "n1", "yard").len();
    let said = change(&world, "allow", &["shop.example:80"]).ok().json();
    assert_eq!(
        (&said[0]["changed"], &said[0]["flows_reset"]),
        (&false.into(), &0.into())
    );
    let said = world.run("n1", &["allow", "yard", "internet"]).ok().stdout;
    assert!(said.contains("nothing changed"), "{said}");
    assert_eq!(flows(&world, "n1", "yard").len(), before);
    // Together they can go.
    let said = change(&world, "deny", &["shop.example", "internet"])
        .ok()
        .json();
    assert_eq!(said[0]["reach"], "nothing");

    let other = ["--name", "other", "--tier", "l2"];
    let _other = attached(&world, "n1", &other, "sleep 100");
    let output = world.run("n1", &["allow", "other", "internet"]);
    assert!(
        output.code == Some(2) && output.stderr.contains("l2 box"),
        "{output}"
    );
    let output = world.run("n1", &["why", "other", "shop.example"]);
    assert!(
        output.code == Some(2) && output.stderr.contains("no network"),
        "{output}"
    );
    assert_eq!(
        world.run("n1", &["allow", "nobody", "internet"]).code,
        Some(2)
    );
    let _ended = stop(&world, "n1", "yard");
    let output = change(&world, "allow", &["internet"]);
    assert!(
        output.code == Some(2) && output.stderr.contains("does not run"),
        "{output}"
    );
}

#[test]
fn another_device_that_asks_why_is_told_the_words_that_work_from_where_it_is() {
    let (world, _daemons) = world(2);
    pair(&world, "n1", "n2");
    let _box = yard(&world, "internet");
    hears_of(&world, "n2", "yard");
    let said = world
        .run("n2", &["why", "yard", PRINTER, "--json"])
        .ok()
        .json();
    assert_eq!(said[0]["judged_by"], "registries");
    assert_eq!(said[0]["grant"], "bailey allow yard@n1 192.168.1.9:80");
    // They do what they say.
    let allow = ["allow", "yard@n1", "192.168.1.9:80", "--json"];
    let _done = world.run("n2", &allow).ok();
    let reach = |node| {
        let why = ["why", "yard", PRINTER, "--json"];
        world.run(node, &why).ok().json()[0]["verdict"].clone()
    };
    assert_eq!(reach("n1"), "allow");
    // A device that may decide nothing is told where somebody may.
    let role = ["device", "role", "n2", "watch"];
    let _done = world.run("n1", &role).ok();
    let other = "192.168.1.9:81";
    let told = wait_until(LIMIT, || {
        let why = ["why", "yard", other, "--json"];
        let said = world.run("n2", &why).ok().json();
        said[0]["grant"] == "on n1: bailey allow yard 192.168.1.9:81"
    });
    assert!(told, "a device that may only watch is told to decide");
}

/// Tries a refused host without a pause, and keeps a granted connection busy.
const TRIER: &str = "python3 -c \"import socket, sys, select\n\
    live = socket.create_connection(('93.184.216.34', 7), 5); live.settimeout(5)\n\
    print('open', flush=True); tries = passed = echoed = 0\n\
    while not select.select([sys.stdin], [], [], 0)[0]:\n\
    \x20   s = socket.socket(); s.settimeout(5)\n\
    \x20   try: s.connect(('192.168.1.9', 80)); passed += 1\n\
    \x20   except ConnectionRefusedError: tries += 1\n\
    \x20   s.close(); live.sendall(b'x'); echoed += len(live.recv(9))\n\
    print('refused', tries, 'passed', passed, 'echoed', echoed, flush=True)\"; true";

#[test]
fn a_refused_host_stays_refused_through_a_hundred_changes_while_flows_run() {
    let (world, _daemons) = world(1);
    let mut running = attached(&world, "n1", &["--name", "yard"], TRIER);
    running.wait_line(LIMIT, |line| line == "open");
    for n in 0..50 {
        let term = format!("10.0.0.{n}:80,172.16.{n}.0/24");
        for way in ["allow", "deny"] {
            let said = change(&world, way, &[&term]).ok().json();
            assert_eq!(said[0]["flows_reset"], 0, "{said:?}");
        }
        // A change that fails is no change.
        assert_eq!(change(&world, "allow", &["a..b"]).code, Some(2));
    }
    drop(running.take_stdin());
    let said = running.wait_line(LIMIT, |line| line.starts_with("refused"));
    let numbers: Vec<u64> = said
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    let [refused, passed, echoed] = numbers[..] else {
        panic!("{said}")
    };
    assert!(refused > 100 && passed == 0 && echoed == refused, "{said}");
    assert_eq!(reach(&world, "n1"), "internet");
    let changes = flows(&world, "n1", "yard").into_iter();
    assert_eq!(changes.filter(|row| row["kind"] == "reach").count(), 100);
}

#[test]
fn why_explains_before_and_after_and_its_words_grant_it() {
    let (world, _daemons) = world(1);
    let _box = yard(&world, "internet");
    let before = (
        world.witness().unwrap().len(),
        world.dns_log().unwrap().len(),
    );
    let said = why(&world, PRINTER);
    assert_eq!(
        (
            &said["verdict"],
            &said["reason"],
            &said["addrs"][0]["class"]
        ),
        (&"refuse".into(), &"outside reach".into(), &"local".into())
    );
    assert_eq!(
        (&said["refused"], &said["judged_by"]),
        (&0.into(), &"gate".into())
    );
    let said = why(&world, "shop.example:443");
    assert_eq!(
        (&said["verdict"], &said["rule"]),
        (&"allow".into(), &"internet".into())
    );
    assert_eq!(
        (&said["name"], &said["grant"]),
        (&"in reach".into(), &Value::Null)
    );
    let after = (
        world.witness().unwrap().len(),
        world.dns_log().unwrap().len(),
    );
    assert_eq!(after, before, "an explanation sends nothing");

    assert_eq!(fetch(&world, PRINTER), REFUSED);
    let said = why(&world, PRINTER);
    assert_eq!((&said["opened"], &said["refused"]), (&0.into(), &1.into()));
    assert_eq!(said["last"][0]["reason"], "outside reach");
    let grant = said["grant"].as_str().unwrap();
    assert_eq!(grant, "bailey allow yard 192.168.1.9:80");
    let shown = world.run("n1", &["why", "yard", PRINTER]).ok().stdout;
    assert!(
        shown.contains("✕ refused: outside reach") && shown.contains(grant),
        "{shown}"
    );
    let _changed = obey(&world, grant).ok();
    assert_eq!(fetch(&world, PRINTER), 0);
    let said = why(&world, PRINTER);
    assert_eq!(
        (&said["verdict"], &said["rule"]),
        (&"allow".into(), &PRINTER.into())
    );
    assert_eq!((&said["opened"], &said["grant"]), (&1.into(), &Value::Null));
}

#[test]
fn why_explains_a_name_by_what_the_gate_gave_for_it() {
    let (world, _daemons) = world(1);
    let _box = yard(&world, "internet");
    assert_eq!(fetch(&world, "shop.example"), 0);
    let said = why(&world, "shop.example");
    let given = said["addrs"].as_array().unwrap();
    assert!(
        given
            .iter()
            .any(|addr| addr["ip"] == at::WEB_V4.to_string()),
        "{said}"
    );
    assert!(
        said["named"].as_u64() > Some(0) && said["opened"].as_u64() > Some(0),
        "{said}"
    );
    let _denied = change(&world, "deny", &["internet"]).ok();
    let said = why(&world, "shop.example:80");
    assert_eq!(said["reason"], "name outside reach");
    let _changed = obey(&world, said["grant"].as_str().unwrap()).ok();
    assert_eq!(fetch(&world, "shop.example"), 0);
    assert_eq!(fetch(&world, "shop.example:7"), REFUSED);
    let said = why(&world, "shop.example:7");
    assert_eq!(said["name"], "in reach, not that port");
}

#[test]
fn why_says_what_no_word_grants_and_what_a_box_that_ended_would_want() {
    let (world, _daemons) = world(1);
    let _box = yard(&world, "internet,local");
    // No word grants these, and it is said.
    for what in [
        "169.254.169.254:80",
        "127.0.0.1:80",
        "x.test",
        "224.0.0.251",
    ] {
        let said = why(&world, what);
        assert_eq!(
            (&said["verdict"], &said["grant"]),
            (&"refuse".into(), &Value::Null)
        );
        assert!(
            said["cannot"].as_str().unwrap().contains("no word grants"),
            "{said}"
        );
    }
    // Names of the link are asked for by a word of their own.
    assert_eq!(why(&world, "x.local")["grant"], "bailey allow yard mdns");
    // The gate's address stands for the node's loopback, port by port.
    for what in ["192.0.0.1:80/tcp", "host.bailey:80/tcp"] {
        let said = why(&world, what);
        assert_eq!(said["verdict"], "refuse", "{said}");
        assert_eq!(said["grant"], "bailey allow yard lo:80/tcp", "{said}");
    }
    let _allowed = change(&world, "allow", &["lo:80"]).ok();
    for what in ["192.0.0.1:80", "host.bailey:80"] {
        let said = why(&world, what);
        assert_eq!(
            (&said["verdict"], &said["rule"]),
            (&"allow".into(), &"lo:80".into()),
            "{said}"
        );
    }
    let _denied = change(&world, "deny", &["lo:80"]).ok();
    // What grants nothing is no part of a reach.
    for empty in [
        "169.254.169.254",
        "127.0.0.1:80",
        "x.local",
        "host.bailey:80",
        "240.0.0.1",
    ] {
        let refused = change(&world, "allow", &[empty]);
        assert_eq!(refused.code, Some(2), "{refused}");
        assert!(refused.stderr.contains("would grant nothing"), "{refused}");
    }
    for bad in ["internet", "10.0.0.0/8", "a.b,c.d", "*.a.b", ""] {
        assert_eq!(
            world.run("n1", &["why", "yard", bad]).code,
            Some(2),
            "{bad}"
        );
    }
    // After its end too, by its last reach.
    let _allowed = change(&world, "allow", &["shop.example"]).ok();
    let _denied = change(&world, "deny", &["internet", "local"]).ok();
    let _ended = stop(&world, "n1", "yard");
    let said = why(&world, "9.9.9.9:53/udp");
    assert_eq!(
        (&said["running"], &said["proto"]),
        (&false.into(), &"udp".into())
    );
    assert_eq!(
        said["grant"],
        "its next run: --reach shop.example,9.9.9.9:53/udp"
    );
}

#[test]
fn a_name_that_was_answered_with_a_local_address_is_explained() {
    let (world, _daemons) = world(1);
    let _box = yard(&world, "internet");
    assert_eq!(fetch(&world, "rebind.example"), NO_NAME);
    let said = why(&world, "rebind.example");
    assert!(
        said["cannot"].as_str().unwrap().contains("local address"),
        "{said}"
    );
}

#[test]
fn a_box_reads_what_it_was_refused_and_by_which_words_it_could_be_granted() {
    let (world, _daemons) = world(1);
    let _box = yard(&world, "shop.example");
    let read = || exec(&world, "cat /run/bailey/refusals").ok().stdout;
    let head = read();
    assert!(head.lines().all(|line| line.starts_with('#')), "{head}");
    let script = "curl -sS -m 5 http://192.168.1.9/; curl -sS -m 5 http://169.254.169.254/; \
                  getent hosts neighbour.example; curl -sS -m 5 http://192.168.1.9/; true";
    let _refused = exec(&world, script).ok();
    let told = wait_until(LIMIT, || read().contains("neighbour.example"));
    let text = read();
    assert!(told, "{text}");
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let of = |what: &str| {
        let found = lines.iter().find(|line| line.contains(what));
        *found.unwrap_or_else(|| panic!("{what}: {text}"))
    };
    let printer = of("tcp 192.168.1.9:80: refused, local, outside reach");
    let (_, words) = printer.split_once("grant it: ").unwrap();
    assert!(of("169.254.169.254:80").contains("no word grants it"));
    assert!(of("name neighbour.example").contains("bailey allow yard neighbour.example"));
    // It says nothing that a person has to believe: the words do what they say.
    assert_eq!(fetch(&world, PRINTER), REFUSED);
    let _changed = obey(&world, words.split("  ").next().unwrap()).ok();
    assert_eq!(fetch(&world, PRINTER), 0);
    // Another box's are its own.
    let other = ["-q", "--name", "other", "--reach", "nothing"];
    let script = "curl -sS -m 5 http://10.9.9.9/; sleep 1; cat /run/bailey/refusals";
    let output = boxed(&world, "n1", &other, script);
    assert!(
        output.stdout.contains("allow other 10.9.9.9:80"),
        "{output}"
    );
    assert!(!output.stdout.contains("192.168.1.9") && !read().contains("10.9.9.9"));
}

/// Every way to change what is there, and a control beside them.
const TAMPER: &str = "exec 2>&1; cd /run/bailey; \
    echo forged > refusals; echo forged >> refusals; echo forged > more; true > refusals.new; \
    rm -f refusals; mv refusals other; ln refusals other; ln -sf /tmp/x refusals; \
    chmod 777 refusals; chmod 777 .; truncate -s 0 refusals; dd if=/dev/zero of=fill count=1; \
    cd /; rmdir /run/bailey; mv /run/bailey /run/other; ln -sfn /tmp /run/bailey; \
    mount -o remount,rw /run/bailey; umount /run/bailey; mount -t tmpfs x /run/bailey; \
    python3 -c \"import fcntl; f = open('/run/bailey/refusals'); \
    fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_RDLCK); print('leased')\"; \
    unshare -Urm sh -c 'echo inside $(id -u); umount /run/bailey; mount -o remount,rw,bind /run/bailey; \
    echo forged > /run/bailey/refusals'; \
    ls -A /run/bailey; cat /run/bailey/refusals; echo x > /tmp/control && echo writable";

#[test]
fn no_box_can_write_replace_or_fill_what_it_reads() {
    let (world, _daemons) = world(1);
    let classes = [
        &["--name", "plain"][..],
        &["--name", "web", "--class", "browser"],
    ];
    for words in classes {
        let name = words[1];
        let script = format!("{TAMPER}; sleep 100");
        let running = attached(&world, "n1", words, &script);
        running.wait_line(LIMIT, |line| line == "writable");
        let said = running.stdout();
        assert!(said.contains("Read-only file system"), "{said}");
        assert!(
            said.contains("PermissionError") && !said.contains("leased"),
            "{said}"
        );
        // A browser may be root of its own, and mounts nothing all the same.
        assert!(!said.contains("inside"), "{said}");
        let left: Vec<&str> = said.lines().filter(|line| *line == "refusals").collect();
        assert_eq!(left.len(), 1, "{said}");
        assert!(said.contains("# What this box was refused"), "{said}");
        let file = |script: &str| world.run("n1", &["exec", name, "--", "sh", "-c", script]);
        let text = file("cat /run/bailey/refusals").ok().stdout;
        assert!(!text.contains("forged"), "{text}");
        // Old files that it holds open take up no more than the folder has, and
        // when they are let go the folder has all that was refused.
        let hold = "for n in $(seq 24); do curl -sS -m 5 http://10.0.0.$n/ 2>/dev/null; \
                    eval \"exec $((n + 20))</run/bailey/refusals\" 2>/dev/null; sleep 0.12; done; \
                    stat -c %s /run/bailey/refusals; \
                    df --output=size,iused -B1 /run/bailey | tail -1";
        let output = world
            .run("n1", &["exec", name, "--", "bash", "-c", hold])
            .ok();
        let numbers: Vec<u64> = output
            .stdout
            .split_whitespace()
            .map(|word| word.parse().unwrap())
            .collect();
        let [bytes, size, files] = numbers[..] else {
            panic!("{output}")
        };
        assert!(bytes <= 16 << 10 && size <= 128 << 10, "{output}");
        // The control: it did hold them.
        assert!((8..=16).contains(&files), "{output}");
        let whole = wait_until(LIMIT, || {
            let text = file("cat /run/bailey/refusals").ok().stdout;
            (1..=24).all(|n| text.contains(&format!("10.0.0.{n}:")))
        });
        assert!(whole);
        let _ended = stop(&world, "n1", name);
    }
    // Where nothing is decided there is nothing to read.
    let output = boxed(&world, "n1", &["-q", "--tier", "l2"], "ls -A /run");
    assert_eq!(output.ok().stdout, "");
}

#[test]
fn the_refused_names_answer_says_what_refused_it_where_it_can() {
    let (world, _daemons) = world(1);
    let _box = yard(&world, "shop.example");
    let dig = |words: &str| {
        let script = format!("dig +noall +comments {words} 2>&1");
        exec(&world, &script).ok().stdout
    };
    for words in [
        "neighbour.example",
        "+tcp neighbour.example",
        "txt x.y.example",
    ] {
        let said = dig(words);
        assert!(
            said.contains("NXDOMAIN") && said.contains("EDE: 15 (Blocked)"),
            "{said}"
        );
        let text = said.lines().find(|line| line.contains("EDE:")).unwrap();
        assert!(
            text.contains("refused by bailey") && text.contains("bailey why"),
            "{text}"
        );
    }
    // The controls: without EDNS there is nowhere to say it, and a name in reach
    // has nothing to say.
    let plain = dig("+noedns neighbour.example");
    assert!(
        plain.contains("NXDOMAIN") && !plain.contains("EDE"),
        "{plain}"
    );
    let granted = dig("shop.example");
    assert!(
        granted.contains("NOERROR") && !granted.contains("EDE"),
        "{granted}"
    );
}

/// What the node's disk has no room for is not granted; what is taken back is
/// taken back.
#[test]
fn on_a_full_disk_a_deny_holds_and_an_allow_does_not() {
    let world = TestWorld::new(1);
    let node = world.node("n1").unwrap();
    let state = node.dir().join("state");
    let mut mount = node.root_command("mount");
    mount.args(["-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs"]);
    let _mounted = bailey_tests::run(mount.arg(&state)).ok();
    let _daemon = daemon(&world, "n1");
    let _box = yard(&world, "internet");
    assert_eq!(
        change(&world, "allow", &["10.1.1.1"]).code,
        Some(0),
        "the control"
    );
    let full = world.sh("n1", &format!("cat /dev/zero >{}/fill", state.display()));
    assert!(full.stderr.contains("No space left"), "{full}");
    // The store's files have room in themselves for some.
    let mut failed = None;
    for n in 0..1000 {
        let output = change(&world, "allow", &[&format!("10.2.{}.{}", n / 250, n % 250)]);
        if output.code != Some(0) {
            failed = Some(output);
            break;
        }
    }
    let failed = failed.expect("an allow that cannot be written");
    assert_eq!(failed.code, Some(125), "{failed}");
    assert!(failed.stderr.contains("its reach is as it was"), "{failed}");
    let output = change(&world, "allow", &[PRINTER]);
    assert_eq!(output.code, Some(125), "{output}");
    let said = why(&world, PRINTER);
    assert_eq!(said["verdict"], "refuse", "{said}");
    let output = change(&world, "deny", &["internet"]);
    assert!(output.stderr.contains("narrowed all the same"), "{output}");
    let said = why(&world, "93.184.216.34:80");
    assert_eq!(said["verdict"], "refuse", "{said}");
    let reach = || {
        let rows = world.run("n1", &["ps", "--json"]).ok().json();
        rows[0]["reach"].as_str().unwrap().to_owned()
    };
    assert!(reach().contains("internet"), "the audit says more for now");
    let _freed = world.sh("n1", &format!("rm {}/fill", state.display())).ok();
    let entered = || !reach().contains("internet");
    assert!(wait_until(LIMIT, entered), "{}", reach());
    assert_eq!(change(&world, "allow", &[PRINTER]).code, Some(0));
    assert_eq!(fetch(&world, PRINTER), 0);
    assert_eq!(fetch(&world, "93.184.216.34"), REFUSED);
}
