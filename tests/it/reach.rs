//! Each form of a reach, as a box meets it: what it opens, and what beside it.

use bailey_tests::TestWorld;
use bailey_world::at;
use serde_json::Value;

use crate::common::{boxed, flows, world};

/// Tries of a box, by its Python: one word each.
const TRIES: &str = r"
import errno, socket, sys, time
def end(kind, host, port):
    begun = time.monotonic()
    try:
        family, kind, _, _, to = socket.getaddrinfo(host, int(port), type=kind)[0]
        with socket.socket(family, kind) as s:
            s.settimeout(5); s.connect(to); s.send(b'GET / HTTP/1.0\r\n\r\n'); s.recv(1)
        code = 'open'
    except socket.gaierror as error: code = 'no-name' if error.errno == socket.EAI_NONAME else 'no-data'
    except OSError as error: code = errno.errorcode.get(error.errno, 'late')
    return code if time.monotonic() - begun < 2 else code + '-late'
kinds = {'tcp': socket.SOCK_STREAM, 'udp': socket.SOCK_DGRAM}
for word in sys.argv[1:]:
    kind, host, port = word.split(',')
    print(end(kinds[kind], host, port))
";

/// How the tries end under a reach: `kind,host,port` each.
#[track_caller]
fn ends(world: &TestWorld, name: &str, reach: &str, tries: &[&str]) -> Vec<String> {
    let start = [
        "run", "-q", "--name", name, "--reach", reach, "--", "python3", "-c", TRIES,
    ];
    let output = world.run("n1", &[&start[..], tries].concat()).ok();
    output.stdout.lines().map(str::to_owned).collect()
}

#[test]
fn a_star_grants_names_below_and_not_the_name_itself() {
    let (world, _daemons) = world(1);
    let tries = [
        "tcp,www.shop.example,80",
        "tcp,short.shop.example,80",
        "tcp,shop.example,80",
        "tcp,www.shop.example,7",
        "tcp,neighbour.example,80",
        "tcp,any.wild.example,80",
        "tcp,wild.example,80",
    ];
    let told = ends(&world, "stars", "*.shop.example:80,*.wild.example", &tries);
    // A name above a granted one is there, and has nothing.
    let want = [
        "open",
        "open",
        "no-data",
        "ECONNREFUSED",
        "no-name",
        "open",
        "no-data",
    ];
    assert_eq!(told, want);
    let rows = flows(&world, "n1", "stars");
    let row = rows.iter().find(|row| row["kind"] == "flow").unwrap();
    assert_eq!(
        (&row["dst_host"], &row["rule"]),
        (&"www.shop.example".into(), &"*.shop.example:80".into())
    );
    let asked = world.dns_log().unwrap();
    assert!(asked.iter().all(|asked| asked.name != "shop.example"));
    let told = ends(
        &world,
        "both",
        "*.shop.example,shop.example:80",
        &tries[..3],
    );
    assert_eq!(told, ["open", "open", "open"]);
}

#[test]
fn ports_and_transports_open_themselves_alone() {
    let (world, _daemons) = world(1);
    let (web, six) = (at::WEB_V4, at::WEB_V6);
    let of = |kind: &str, host: &str, port: u16| format!("{kind},{host},{port}");
    let tries: Vec<String> = ["shop.example".to_owned(), web.to_string(), six.to_string()]
        .iter()
        .flat_map(|host| [of("tcp", host, 7), of("udp", host, 7), of("tcp", host, 80)])
        .collect();
    let tries: Vec<&str> = tries.iter().map(String::as_str).collect();
    let (yes, no) = ("open", "ECONNREFUSED");
    let absent = "no-name";
    for (number, (reach, want)) in [
        // A name opens the addresses that it was answered with, by number too.
        (
            "shop.example:7/udp",
            [no, yes, no, no, yes, no, no, yes, no],
        ),
        (
            "shop.example:7,80/tcp",
            [yes, no, yes, yes, no, yes, yes, no, yes],
        ),
        (
            "93.184.216.34:7",
            [absent, absent, absent, yes, yes, no, no, no, no],
        ),
        (
            "93.184.216.32/30:80",
            [absent, absent, absent, no, no, yes, no, no, no],
        ),
        (
            "93.184.216.36/30",
            [absent, absent, absent, no, no, no, no, no, no],
        ),
        (
            "[2606:2800:220:1::1]:7/tcp",
            [absent, absent, absent, no, no, no, yes, no, no],
        ),
        (
            "2606:2800:220::/48/udp",
            [absent, absent, absent, no, no, no, no, yes, no],
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let told = ends(&world, &format!("yard{number}"), reach, &tries);
        assert_eq!(told, want, "{reach}");
    }
}

#[test]
fn a_clouds_metadata_is_granted_by_no_word() {
    let (world, _daemons) = world(1);
    // The control: outside a box it answers.
    let there = "curl -sS -m 5 -o /dev/null http://169.254.169.254/";
    assert_eq!(world.sh("n1", there).code, Some(0));
    world
        .set_name("cloud.example", &["169.254.169.254"])
        .unwrap();
    let tries = [
        "tcp,169.254.169.254,80",
        "udp,169.254.169.254,7",
        "tcp,168.63.129.16,80",
        "tcp,100.100.100.200,80",
        "tcp,fd00:ec2::254,80",
        "tcp,64:ff9b::a9fe:a9fe,80",
        "tcp,::ffff:169.254.169.254,80",
    ];
    for (number, reach) in [
        "internet",
        "local",
        "internet,local",
        "169.254.0.0/16",
        "169.254.169.254:80",
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("yard{number}");
        let told = ends(&world, &name, reach, &tries);
        assert!(
            told.iter().all(|end| end == "ECONNREFUSED"),
            "{reach}: {told:?}"
        );
        let rows = flows(&world, "n1", &name);
        let refused: Vec<&Value> = rows.iter().filter(|row| row["kind"] == "refused").collect();
        assert!(refused.len() >= tries.len(), "{rows:#?}");
        assert!(
            refused.iter().all(|row| row["dst_class"] == "metadata"),
            "{reach}: {refused:#?}"
        );
    }
    // Nor by a name that is answered with it.
    let args = ["-q", "--name", "named", "--reach", "cloud.example"];
    let output = boxed(
        &world,
        "n1",
        &args,
        "curl -sS -m 5 http://cloud.example/; echo $?",
    );
    assert_eq!(output.stdout, "6\n", "{output}");
    let rows = flows(&world, "n1", "named");
    let withheld = rows.iter().find(|row| row["reason"] == "answer withheld");
    assert_eq!(withheld.unwrap()["dst_class"], "metadata");
}
