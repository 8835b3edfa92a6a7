//! Figures of a real mailbox: what a thousand accounts cost it while their devices are
//! connected, and a start on a million blobs.

use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bailey_envelope::{EpochKey, MailKey};
use bailey_sync::mail::{MailAddress, MailCommand, MailDevice, MailEvent};
use bailey_tests::{TestWorld, run_within};
use nix::sys::signal::Signal;
use sha2::Digest as _;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::Effort;
use crate::history::memory;
use crate::inside::{first_line, program};
use crate::sync::used_by;
use crate::table::{Figure, Mark, Row, Table};

/// Devices of an account, all of one address, as of one home.
const DEVICES: usize = 2;
/// Topics that each device writes in the time for which blobs are kept.
const TOPICS: usize = 5;
/// Blobs of each topic that lie there before anybody comes.
const BLOBS: usize = 5;
/// Blobs that each device puts while it is connected.
const PUTS: usize = 3;
/// Topics that a device follows and that hold nothing yet: inboxes of other weeks,
/// keys under which nothing is written any more.
const EMPTY: usize = 15;
/// Content of a blob, in turn: requests and notices are small, a batch of entries
/// is larger.
const CONTENTS: [usize; 5] = [200, 400, 700, 900, 3_000];
/// Content of the last blob that each device puts: what it wrote while it was away.
const LONG: usize = 60_000;
/// Devices that connect at once: as many as a mailbox that sees no reason to ask for
/// a proof of address takes from anywhere.
const AT_ONCE: usize = 8;
/// Bytes of the least blob, of which a million lie there for a start.
const LEAST: u64 = 1024;
/// Topics of that million.
const TOPICS_AT_START: usize = 20_000;
/// How long a device may take until it has all and its puts are answered.
const LIMIT: Duration = Duration::from_secs(120);
/// How long all of it may take.
const WHOLE: Duration = Duration::from_secs(580);
/// How long all are connected and have nothing to say.
const REST: Duration = Duration::from_secs(10);
/// What the mailbox needs to see that all have left.
const LEFT: Duration = Duration::from_secs(3);

pub(crate) fn measure(effort: Effort, table: &mut Table) {
    let world = TestWorld::new(1);
    let words = |words: &[&str]| {
        let mut command = world.command("n1", &program("bailey-bench"));
        run_within(WHOLE, command.arg("client").args(words))
    };
    if let Err(why) = addresses(&world, effort.accounts) {
        return table.add(row(
            "a mailbox of many accounts",
            "",
            Figure::Failed(why),
            None,
        ));
    }
    let (accounts, blobs) = (effort.accounts.to_string(), effort.blobs.to_string());
    let said = words(&["mailbox", &program("bailey-mailbox"), &accounts]);
    let mut numbers = said.stdout.split_whitespace();
    let most = Some(Mark::AtMost(100.0));
    let rows = [
        ("accounts at one mailbox, two devices each", "", None),
        ("  blobs there before", "", None),
        ("  its memory before anybody comes", "MiB", None),
        ("  with all connected and at rest", "MiB", most),
        ("  the most it ever was", "MiB", most),
        ("  after all have left", "MiB", None),
        ("  of each connection", "KiB", None),
        (
            "  until all had theirs and their puts were stored",
            "s",
            None,
        ),
        ("  processor's time of that, a connection", "ms", None),
        ("  a processor, with all connected and at rest", "%", None),
    ];
    for (name, unit, mark) in rows {
        let figure = match numbers.next() {
            Some(word) => crate::places::parse(word),
            None => Figure::Failed(first_line(&said.stderr)),
        };
        table.add(row(name, unit, figure, mark));
    }
    let said = words(&["mailbox-start", &program("bailey-mailbox"), &blobs]);
    let mut numbers = said.stdout.split_whitespace();
    for (name, unit) in [
        ("blobs there when a mailbox starts", ""),
        ("  from exec to its address printed", "s"),
        ("  its memory then", "MiB"),
    ] {
        let figure = match numbers.next() {
            Some(word) => crate::places::parse(word),
            None => Figure::Failed(first_line(&said.stderr)),
        };
        table.add(row(name, unit, figure, None));
    }
}

fn row(name: &'static str, unit: &'static str, bailey: Figure, mark: Option<Mark>) -> Row {
    Row {
        name,
        unit,
        bailey,
        worst: None,
        peers: Vec::new(),
        mark,
    }
}

/// The address of an account's home. All are this machine's loopback.
fn home(account: usize) -> String {
    format!("127.1.{}.{}", account / 250, account % 250 + 1)
}

/// Makes what is dialled at each home come from there too.
fn addresses(world: &TestWorld, accounts: usize) -> Result<(), String> {
    let node = world.node("n1").map_err(|error| error.to_string())?;
    let batch: String = (0..accounts)
        .map(|account| {
            let home = home(account);
            format!("route add local {home}/32 dev lo table local src {home}\n")
        })
        .collect();
    let file = node.dir().join("routes");
    fs::write(&file, batch).map_err(|error| error.to_string())?;
    let mut change = node.root_command("ip");
    let changed = run_within(LIMIT, change.arg("-batch").arg(&file));
    match changed.code {
        Some(0) => Ok(()),
        _ => Err(format!("ip: {}", first_line(&changed.stderr))),
    }
}

/// A mailbox's folder, which goes with this.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Self> {
        let name = format!("bailey-mailbox-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(folder.join("blobs/topics"))?;
        Ok(Self(folder))
    }

    /// The folder of a topic, made.
    fn topic(&self, topic: &str) -> io::Result<PathBuf> {
        let folder = self.0.join("blobs/topics").join(topic);
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder of /tmp that stays is a nuisance, not a failure.
        let _left = fs::remove_dir_all(&self.0);
    }
}

/// A running `bailey-mailbox`.
struct Mailbox {
    child: Child,
    address: MailAddress,
    /// From `exec` to its address printed.
    took: Duration,
}

impl Mailbox {
    fn start(program: &str, folder: &Path) -> io::Result<Self> {
        let began = Instant::now();
        let mut child = Command::new(program)
            .args(["--listen", "0.0.0.0:0", "--store"])
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let out = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        let took = began.elapsed();
        let address = line.trim().parse().map_err(io::Error::other)?;
        Ok(Self {
            child,
            address,
            took,
        })
    }

    /// MiB that it holds now, or held at most.
    fn holds(&self, most: bool) -> io::Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let name = if most { "VmHWM:" } else { "VmRSS:" };
        memory(&status, name).ok_or(io::ErrorKind::InvalidData.into())
    }

    fn used(&self) -> io::Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        used_by(&stat).ok_or(io::ErrorKind::InvalidData.into())
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            let _gone = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGTERM);
        }
        let _gone = self.child.wait();
    }
}

/// A number that no other of these topics has, as a key.
fn key(account: usize, device: usize, topic: usize) -> MailKey {
    let mut secret = [0; 32];
    for (part, number) in secret.chunks_mut(8).zip([account, device, topic]) {
        part.copy_from_slice(&(number as u64).to_be_bytes());
    }
    MailKey::of_epoch(&EpochKey::generate(secret))
}

fn blob(key: &MailKey, number: usize) -> io::Result<Vec<u8>> {
    let length = match number == BLOBS + PUTS - 1 {
        true => LONG,
        false => CONTENTS[number % CONTENTS.len()],
    };
    let mut content = vec![7; length];
    content[..8].copy_from_slice(&(number as u64).to_be_bytes());
    key.seal(&content).map_err(io::Error::other)
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

/// Lays what the accounts wrote earlier into the folder, as `docs/mailbox.md` has it.
fn lay(folder: &Folder, accounts: usize) -> io::Result<usize> {
    let (first, mut laid) = (unix_ms() - 1_000_000, 0);
    for account in 0..accounts {
        for (device, topic) in (0..DEVICES).flat_map(|it| (0..TOPICS).map(move |of| (it, of))) {
            let key = key(account, device, topic);
            let place = folder.topic(&key.topic().to_string())?;
            for number in 0..BLOBS {
                let blob = blob(&key, number)?;
                let hash = sha2::Sha256::digest(&blob);
                let hash: String = hash.iter().take(8).map(|b| format!("{b:02x}")).collect();
                let name = format!("{:016x}-{hash}", first + number as u64);
                fs::write(place.join(name), blob)?;
                laid += 1;
            }
        }
    }
    Ok(laid)
}

/// One device, connected, that has all of what it follows and whose puts are answered.
struct Connected {
    _commands: mpsc::Sender<MailCommand>,
    events: mpsc::Receiver<MailEvent>,
}

async fn connect(mut address: MailAddress, account: usize, own: usize) -> io::Result<Connected> {
    address.host = home(account);
    let mut entropy = [0; 32];
    entropy[..8].copy_from_slice(&((account * DEVICES + own) as u64).to_be_bytes());
    let (commands, mut events) = MailDevice::start(address, &entropy);
    let connection = loop {
        match next(&mut events).await? {
            MailEvent::Up { connection, .. } => break connection,
            // It tries again by itself.
            MailEvent::Down { .. } => {}
            other => return Err(io::Error::other(format!("{other:?}"))),
        }
    };
    let gone = |_| io::Error::other("the device's end is gone");
    let other = DEVICES - 1 - own;
    let follows = TOPICS + EMPTY;
    for topic in 0..follows {
        let topic = key(account, other, topic).topic();
        let follow = MailCommand::Follow {
            connection,
            topic,
            from: 0,
        };
        commands.send(follow).await.map_err(gone)?;
    }
    for put in 0..PUTS {
        let key = key(account, own, TOPICS - 1);
        let put = MailCommand::Put {
            connection,
            id: put as u64,
            topic: key.topic(),
            blob: blob(&key, BLOBS + put)?,
        };
        commands.send(put).await.map_err(gone)?;
    }
    let (mut blobs, mut told, mut stored) = (0, 0, 0);
    while blobs < TOPICS * BLOBS || told < follows || stored < PUTS {
        match next(&mut events).await? {
            MailEvent::Blob { .. } => blobs += 1,
            MailEvent::CaughtUp { .. } => told += 1,
            MailEvent::Stored { .. } => stored += 1,
            other => return Err(io::Error::other(format!("{other:?}"))),
        }
    }
    Ok(Connected {
        _commands: commands,
        events,
    })
}

async fn next(events: &mut mpsc::Receiver<MailEvent>) -> io::Result<MailEvent> {
    let event = timeout(LIMIT, events.recv()).await;
    let event = event.map_err(|_| io::Error::other("the mailbox says nothing"))?;
    event.ok_or_else(|| io::Error::other("the device's end is gone"))
}

async fn all(address: &MailAddress, accounts: usize) -> io::Result<Vec<Connected>> {
    let (mut coming, mut there) = (JoinSet::new(), Vec::new());
    for device in 0..accounts * DEVICES {
        if coming.len() >= AT_ONCE
            && let Some(one) = coming.join_next().await
        {
            there.push(one.map_err(io::Error::other)??);
        }
        let (account, own) = (device / DEVICES, device % DEVICES);
        coming.spawn(connect(address.clone(), account, own));
    }
    while let Some(one) = coming.join_next().await {
        there.push(one.map_err(io::Error::other)??);
    }
    Ok(there)
}

/// A mailbox with so many accounts: the numbers of [`measure`]'s first rows.
pub(crate) fn accounts(program: &str, accounts: &str) -> io::Result<String> {
    let accounts: usize = crate::client::number(accounts)?;
    let folder = Folder::new()?;
    let laid = lay(&folder, accounts)?;
    let mailbox = Mailbox::start(program, &folder.0)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let (before, used) = (mailbox.holds(false)?, mailbox.used()?);
        let began = Instant::now();
        let mut there = all(&mailbox.address, accounts).await?;
        let (took, came) = (began.elapsed(), mailbox.used()? - used);
        let used = mailbox.used()?;
        // What the other's puts bring is taken by then.
        sleep(REST).await;
        let rest = (mailbox.used()? - used) / REST.as_secs_f64();
        let with_all = mailbox.holds(false)?;
        for one in &mut there {
            while let Ok(event) = one.events.try_recv() {
                if let MailEvent::Down { why } = event {
                    return Err(io::Error::other(format!("one was lost: {why}")));
                }
            }
        }
        let most = mailbox.holds(true)?;
        #[expect(clippy::cast_precision_loss, reason = "a figure for a person")]
        let connections = there.len() as f64;
        drop(there);
        sleep(LEFT).await;
        let after = mailbox.holds(false)?;
        Ok(format!(
            "{accounts} {laid} {before:.1} {with_all:.1} {most:.1} {after:.1} {:.1} {:.1} {:.2} {:.2}",
            (with_all - before) * 1024.0 / connections,
            took.as_secs_f64(),
            came * 1e3 / connections,
            rest * 100.0,
        ))
    })
}

/// A start on so many blobs, which take no room on the disk: nobody reads one.
pub(crate) fn start(program: &str, blobs: &str) -> io::Result<String> {
    let blobs: usize = crate::client::number(blobs)?;
    let folder = Folder::new()?;
    let first = unix_ms() - 100_000_000;
    for topic in 0..TOPICS_AT_START {
        let place = folder.topic(&format!("{topic:064x}"))?;
        for number in (topic..blobs).step_by(TOPICS_AT_START) {
            let name = format!("{:016x}-{number:016x}", first + number as u64);
            fs::File::create(place.join(name))?.set_len(LEAST)?;
        }
    }
    let mailbox = Mailbox::start(program, &folder.0)?;
    let holds = mailbox.holds(false)?;
    Ok(format!(
        "{blobs} {:.2} {holds:.1}",
        mailbox.took.as_secs_f64()
    ))
}
