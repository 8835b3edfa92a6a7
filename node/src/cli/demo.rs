//! `bailey demo`: the whole road, on this machine, offline, without root.
//!
//! Each line that is printed is a check; the demo ends with 0 only if all of
//! them held. What the world's own witness and name server saw is asked, not
//! only what bailey says of itself.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bailey_world::{World, WorldSpec, at};
use serde_json::{Value, json};

use super::out;
use crate::api::Failure;

/// The world's servers end up here.
pub(super) fn serve(words: &[OsString]) -> Result<u8, Failure> {
    bailey_world::serve(words.iter().cloned())
}

/// Longest wait for any one thing.
const LIMIT: Duration = Duration::from_secs(10);
/// The promise: a notice is on the other device, and a stop done, within this.
const PROMPT: Duration = Duration::from_secs(1);

/// What the stranger does: a fetch by name that is allowed, a dial to the
/// printer that is not, and then it stays.
const STRANGER: &str = "curl -sS -o /dev/null -m 5 -w '%{http_code}\\n' http://shop.example/; \
    curl -s -o /dev/null -m 5 -w '%{time_total}' http://192.168.1.9/; echo \" $?\"; \
    sleep 600 & sleep 600";
/// What the careful one may not: a name outside its reach.
const CAREFUL: &str = "curl -sS -o /dev/null -m 5 -w '%{http_code}\\n' http://shop.example/; \
    curl -s -o /dev/null -m 5 -w '%{time_total}' http://neighbour.example/; echo \" $?\"";
/// Curl's exit codes for a name that does not exist, and for a dial refused.
const NO_SUCH_NAME: i32 = 6;
const NO_CONNECTION: i32 = 7;

/// Runs the demo.
pub(super) fn demo(as_json: bool) -> Result<u8, Failure> {
    let mut demo = Demo {
        as_json,
        failed: 0,
        started: Instant::now(),
    };
    demo.play()?;
    demo.end()
}

struct Demo {
    as_json: bool,
    failed: u32,
    started: Instant,
}

impl Demo {
    fn play(&mut self) -> Result<(), Failure> {
        let whole = std::env::current_exe()
            .map_err(|error| Failure::internal(format!("own program: {error}")))?;
        let own = whole.with_file_name("bailey");
        let server = vec![own.clone().into_os_string(), OsString::from("world-serve")];
        let world = World::start(WorldSpec::new(server, 2))
            .map_err(|error| Failure::host(format!("the demo's world: {error}")))?;
        self.say("A world of its own: a router, servers with public-looking addresses, a home network with a printer.")?;
        self.say("Two devices of one person in it, laptop and phone. Nothing leaves this machine; nothing runs as root.")?;
        let laptop = Device::start(&world, "n1", "laptop", &own)?;
        let phone = Device::start(&world, "n2", "phone", &own)?;
        self.pair(&laptop, &phone)?;
        let mut notices = phone.lines(&["notices", "--follow", "--json"])?;
        self.careful(&laptop, &world)?;
        let mut stranger = self.stranger(&laptop)?;
        self.notice(&mut notices, &laptop, &mut stranger)?;
        self.stop(&phone, &mut stranger)?;
        self.audits(&laptop, &phone)?;
        self.witness(&world)
    }

    fn pair(&mut self, laptop: &Device<'_>, phone: &Device<'_>) -> Result<(), Failure> {
        let mut add = laptop.lines(&["device", "add", "--yes", "--json"])?;
        let code = add.find(|row| row["code"].is_string())?;
        let code = code["code"].as_str().unwrap_or_default().to_owned();
        let mut join = phone.lines(&["device", "join", &code, "--json"])?;
        let ours = add.find(|row| row["words"].is_string())?;
        let theirs = join.find(|row| row["words"].is_string())?;
        let same = ours["words"] == theirs["words"];
        let words = ours["words"].as_str().unwrap_or_default().to_owned();
        self.check(
            same,
            &format!("The phone joins the laptop's account; both screens show: {words}"),
        )?;
        let joined = |row: &Value| row["state"] == "joined";
        let accounts = (
            add.find(joined)?["account"].clone(),
            join.find(joined)?["account"].clone(),
        );
        self.check(accounts.0 == accounts.1, "Both are in one account.")
    }

    fn careful(&mut self, laptop: &Device<'_>, world: &World) -> Result<(), Failure> {
        let args = [
            "run",
            "-q",
            "--name",
            "careful",
            "--reach",
            "shop.example:80",
            "--",
            "sh",
            "-c",
            CAREFUL,
        ];
        let output = laptop
            .command(&args)
            .output()
            .map_err(|error| Failure::host(error.to_string()))?;
        let stdout = String::from_utf8_lossy(&output.stdout);
        let mut lines = stdout.lines();
        let fetched = lines.next().is_some_and(|line| line.trim() == "200");
        self.check(
            fetched && output.status.success(),
            "A box that may reach shop.example:80 only fetches from it.",
        )?;
        let tried = lines.next().and_then(Tried::read);
        let flows = laptop.rows(&["flows", "careful", "--json"])?;
        let entered = flows.iter().any(|row| {
            row["kind"] == "refused"
                && row["reason"] == "name outside reach"
                && row["dst_host"] == "neighbour.example"
        });
        self.check(
            entered && tried.as_ref().is_some_and(|tried| tried.is(NO_SUCH_NAME)),
            &format!(
                "It asks for neighbour.example: no such name for it{}, and written down.",
                after(tried.as_ref())
            ),
        )?;
        let asked = world
            .dns_log()
            .map_err(|error| Failure::host(error.to_string()))?;
        let leaked = asked.iter().any(|asked| asked.name.contains("neighbour"));
        let shop = asked.iter().any(|asked| asked.name == "shop.example");
        self.check(
            shop && !leaked,
            "The world's name server was asked for shop.example, never for the other.",
        )
    }

    fn stranger<'a>(&mut self, laptop: &Device<'a>) -> Result<Lines, Failure> {
        let args = [
            "run", "--name", "stranger", "--reach", "internet", "--", "sh", "-c", STRANGER,
        ];
        let mut stranger = Lines::start(laptop.command(&args))?;
        let first = stranger.line()?;
        self.check(
            first.trim() == "200",
            "A stranger's program in a box with `internet` only fetches a page: allowed.",
        )?;
        Ok(stranger)
    }

    fn notice(
        &mut self,
        notices: &mut Lines,
        laptop: &Device<'_>,
        stranger: &mut Lines,
    ) -> Result<(), Failure> {
        let notice = notices.find(|row| row["box"] == "stranger")?;
        let seen = now_ms();
        let flows = laptop.rows(&["flows", "stranger", "--json"])?;
        let refused = flows
            .iter()
            .find(|row| row["kind"] == "refused" && row["dst_ip"] == at::PRINTER_V4.to_string());
        let tried = Tried::read(&stranger.line()?);
        self.check(
            refused.is_some() && tried.as_ref().is_some_and(|tried| tried.is(NO_CONNECTION)),
            &format!(
                "It tries the printer at 192.168.1.9: refused{}, and written down.",
                after(tried.as_ref())
            ),
        )?;
        let refused_at = refused
            .and_then(|row| row["ts"].as_str())
            .and_then(parse_ms)
            .unwrap_or(0);
        let took = Duration::from_millis(seen.saturating_sub(refused_at));
        let text = notice["text"].as_str().unwrap_or_default().to_owned();
        let evidence = notice["entries"].as_array().is_some_and(|entries| {
            entries
                .iter()
                .any(|entry| entry["dst_ip"] == at::PRINTER_V4.to_string())
        });
        self.check(
            evidence && took < PROMPT,
            &format!(
                "{} ms later the phone shows it, with the entry: stranger {text}",
                took.as_millis()
            ),
        )
    }

    fn stop(&mut self, phone: &Device<'_>, stranger: &mut Lines) -> Result<(), Failure> {
        let pressed = Instant::now();
        let rows = phone.rows(&["stop", "stranger", "--json"])?;
        let took = pressed.elapsed();
        let row = rows.first().cloned().unwrap_or_default();
        let receipt =
            ["processes_ended", "processes_left", "flows_reset"].map(|field| row[field].as_u64());
        let [ended, left, _] = receipt;
        let stopped = row["state"] == "stopped" && left == Some(0);
        let ended = ended.unwrap_or(0);
        self.check(
            stopped && ended > 0 && took < PROMPT,
            &format!(
                "One press there: {ended} processes ended, 0 left, receipt after {} ms.",
                took.as_millis()
            ),
        )?;
        let code = stranger.wait()?;
        self.check(
            code == Some(121),
            "The laptop's own command ends with 121: stopped by a person.",
        )?;
        let told = stranger.error("bailey: stopped ")?;
        self.check(
            numbers(&told) == receipt,
            &format!("It says the same there as the receipt here: stopped {told}"),
        )
    }

    fn audits(&mut self, laptop: &Device<'_>, phone: &Device<'_>) -> Result<(), Failure> {
        for name in ["stranger", "careful"] {
            let ours = laptop.rows(&["flows", name, "--json"])?;
            let until = Instant::now() + LIMIT;
            let theirs = loop {
                // A box that has not arrived yet is an error there.
                let theirs = phone.rows(&["flows", name, "--json"]);
                if theirs.as_ref().is_ok_and(|theirs| *theirs == ours) || Instant::now() > until {
                    break theirs?;
                }
                std::thread::sleep(Duration::from_millis(50));
            };
            self.check(
                !ours.is_empty() && ours == theirs,
                &format!(
                    "The audit of {name} reads the same on both: {} rows.",
                    ours.len()
                ),
            )?;
        }
        Ok(())
    }

    fn witness(&mut self, world: &World) -> Result<(), Failure> {
        let seen = world
            .witness()
            .map_err(|error| Failure::host(error.to_string()))?;
        let to =
            |address: std::net::IpAddr| seen.iter().filter(|seen| seen.dst.ip() == address).count();
        let (shop, printer) = (to(at::WEB_V4.into()), to(at::PRINTER_V4.into()));
        self.check(
            shop > 0 && printer == 0,
            &format!("A witness on the wire saw {shop} dials to the shop and {printer} packets to the printer."),
        )
    }

    fn say(&self, text: &str) -> Result<(), Failure> {
        if self.as_json {
            out::json(&json!({"v": 1, "say": text}))
        } else {
            out::line(&format!("  {text}"))
        }
    }

    fn check(&mut self, held: bool, text: &str) -> Result<(), Failure> {
        self.failed += u32::from(!held);
        if self.as_json {
            return out::json(&json!({"v": 1, "held": held, "check": text}));
        }
        out::line(&format!("{} {text}", if held { "✓" } else { "✕" }))
    }

    fn end(&self) -> Result<u8, Failure> {
        let seconds = self.started.elapsed().as_secs_f32();
        if self.as_json {
            out::json(&json!({"v": 1, "failed": self.failed, "seconds": seconds}))?;
        } else if self.failed == 0 {
            out::line(&format!(
                "All of it held, in {seconds:.1} s. Your own first box: bailey run -- bash"
            ))?;
        } else {
            out::line(&format!("{} of it did not hold.", self.failed))?;
        }
        Ok(u8::from(self.failed > 0))
    }
}

/// A device of the world with its node.
struct Device<'a> {
    node: bailey_world::Node<'a>,
    program: std::path::PathBuf,
    _daemon: Ended,
}

impl<'a> Device<'a> {
    fn start(
        world: &'a World,
        node: &str,
        name: &str,
        own: &std::path::Path,
    ) -> Result<Self, Failure> {
        let node = world
            .node(node)
            .map_err(|error| Failure::host(error.to_string()))?;
        let mut daemon = node.command(own);
        // What it logs is not what is shown here.
        let log = std::fs::File::create(node.dir().join("node.log"))
            .map_err(|error| Failure::host(format!("the node's log: {error}")))?;
        daemon
            .stderr(log)
            .args(["node", "--device-name", name])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let daemon = daemon
            .spawn()
            .map_err(|error| Failure::host(format!("node: {error}")))?;
        Ok(Self {
            node,
            program: own.to_owned(),
            _daemon: Ended(daemon),
        })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.node.command(&self.program);
        command.args(args).stdin(Stdio::null());
        command
    }

    fn lines(&self, args: &[&str]) -> Result<Lines, Failure> {
        Lines::start(self.command(args))
    }

    fn rows(&self, args: &[&str]) -> Result<Vec<Value>, Failure> {
        let output = self
            .command(args)
            .output()
            .map_err(|error| Failure::host(error.to_string()))?;
        let fault = |what: &dyn std::fmt::Display| {
            Failure::host(format!("`bailey {}`: {what}", args.join(" ")))
        };
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            return Err(fault(&format!("{}: {}", output.status, words.trim())));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        text.lines()
            .map(|line| serde_json::from_str(line).map_err(|error| fault(&error)))
            .collect()
    }
}

/// What curl said of a try, in a box's own words: seconds and its exit code.
struct Tried {
    seconds: f64,
    code: i32,
}

impl Tried {
    fn read(line: &str) -> Option<Self> {
        let (seconds, code) = line.trim().split_once(' ')?;
        Some(Self {
            seconds: seconds.parse().ok()?,
            code: code.parse().ok()?,
        })
    }

    /// Whether it came to this, and at once.
    fn is(&self, code: i32) -> bool {
        self.code == code && self.seconds < PROMPT.as_secs_f64()
    }
}

/// How long a try took, in words.
fn after(tried: Option<&Tried>) -> String {
    tried.map_or_else(String::new, |tried| {
        format!(" after {:.1} ms", tried.seconds * 1000.0)
    })
}

/// Processes ended, processes left and flows reset, as a box's own command
/// says them: `from device …: 3 processes ended, 0 left, 1 flow reset`.
fn numbers(told: &str) -> [Option<u64>; 3] {
    let mut parts = told
        .split_once(": ")
        .map_or("", |(_, numbers)| numbers)
        .split(", ")
        .map(|part| part.split(' ').next()?.parse().ok());
    [(); 3].map(|()| parts.next().flatten())
}

/// A process that ends with its owner.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // One that is gone already needs no end.
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

/// A command's lines as they come, each within the limit.
struct Lines {
    child: Ended,
    lines: mpsc::Receiver<String>,
    errors: mpsc::Receiver<String>,
}

impl Lines {
    fn start(mut command: Command) -> Result<Self, Failure> {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Failure::host(error.to_string()))?;
        let (lines, errors) = (heard(child.stdout.take()), heard(child.stderr.take()));
        Ok(Self {
            child: Ended(child),
            lines,
            errors,
        })
    }

    fn line(&mut self) -> Result<String, Failure> {
        self.lines
            .recv_timeout(LIMIT)
            .map_err(|_| Failure::host("the demo waited too long for a line"))
    }

    fn find(&mut self, wanted: impl Fn(&Value) -> bool) -> Result<Value, Failure> {
        let until = Instant::now() + LIMIT;
        while Instant::now() < until {
            if let Ok(value) = serde_json::from_str::<Value>(&self.line()?)
                && wanted(&value)
            {
                return Ok(value);
            }
        }
        Err(Failure::host("the demo waited too long for a row"))
    }

    /// What follows these words in a line of its standard error.
    fn error(&mut self, start: &str) -> Result<String, Failure> {
        loop {
            let line = self
                .errors
                .recv_timeout(LIMIT)
                .map_err(|_| Failure::host(format!("the demo did not hear `{start}`")))?;
            if let Some(rest) = line.strip_prefix(start) {
                return Ok(rest.to_owned());
            }
        }
    }

    fn wait(&mut self) -> Result<Option<i32>, Failure> {
        let until = Instant::now() + LIMIT;
        while Instant::now() < until {
            let status = self
                .child
                .0
                .try_wait()
                .map_err(|error| Failure::host(error.to_string()))?;
            if let Some(status) = status {
                return Ok(status.code());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(None)
    }
}

/// Lines of a pipe, read by a thread that ends with the pipe.
fn heard(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    if let Some(pipe) = pipe {
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
    }
    lines
}

fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// The milliseconds within its day of an RFC 3339 time, put onto today.
fn parse_ms(text: &str) -> Option<u64> {
    let time = text.split('T').nth(1)?.strip_suffix('Z')?;
    let mut parts = time.split([':', '.']).map(|part| part.parse::<u64>().ok());
    let (hour, minute, second, milli) = (
        parts.next()??,
        parts.next()??,
        parts.next()??,
        parts.next()??,
    );
    let of_day = ((hour * 60 + minute) * 60 + second) * 1000 + milli;
    let now = now_ms();
    let today = now - now % 86_400_000 + of_day;
    Some(if today > now + 43_200_000 {
        today - 86_400_000
    } else {
        today
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_print_is_read_or_is_nothing() {
        let told = "from device 512652e8: 4 processes ended, 0 left, 1 flow reset";
        assert_eq!(numbers(told), [Some(4), Some(0), Some(1)]);
        let told = "here: processes not counted, 0 left, 2 flows reset";
        assert_eq!(numbers(told), [None, Some(0), Some(2)]);
        assert_eq!(numbers("here"), [None; 3]);
        let tried = Tried::read("0.000138 7\n").unwrap();
        assert!(tried.is(NO_CONNECTION) && !tried.is(NO_SUCH_NAME));
        assert!(!Tried::read("5.000138 7").unwrap().is(NO_CONNECTION));
        assert!(Tried::read("200").is_none());
    }
}
