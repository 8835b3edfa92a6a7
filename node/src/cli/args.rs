//! The command line's words.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use bailey_docs_store::Role;
use clap::{Args, Parser, Subcommand};

use crate::export::Format;

/// Run programs you do not trust in a box, see every connection, stop them from anywhere.
#[derive(Debug, Parser)]
#[command(name = "bailey", version, disable_help_subcommand = true)]
pub(crate) struct Line {
    /// Which of your accounts (`default` is the first; else what BAILEY_ACCOUNT says).
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) account: Option<String>,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What the first program does by itself: the same words as in [`Line`].
#[derive(Debug, Parser)]
#[command(name = "bailey", disable_help_subcommand = true)]
pub(crate) struct ShortLine {
    #[arg(long, global = true)]
    pub(crate) account: Option<String>,
    #[command(subcommand)]
    pub(crate) verb: ShortVerb,
}

/// Verbs of [`ShortLine`].
#[derive(Debug, Subcommand)]
pub(crate) enum ShortVerb {
    Run(Box<RunArgs>),
    Exec(ExecArgs),
}

impl Verb {
    /// Whether it looks at every account, so that one which is not there may be named.
    pub(crate) fn is_about_all_accounts(&self) -> bool {
        matches!(
            self,
            Self::Account(_) | Self::Doctor(_) | Self::Demo(_) | Self::WorldServe(_)
        )
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run a command in a box.
    Run(Box<RunArgs>),
    /// Run a further command in a running box.
    Exec(ExecArgs),
    /// List the boxes of all your devices.
    Ps(JsonArgs),
    /// Show what a box dialled, and what was decided.
    Flows(FlowsArgs),
    /// Show what your boxes talked to, in one screen.
    Summary(SummaryArgs),
    /// Write what a box dialled for other tools.
    Export(ExportArgs),
    /// Write the headers of a box's packets to a file, up to layer 4 and no payload.
    Pcap(PcapArgs),
    /// Print figures of the node, in Prometheus' text format.
    Metrics,
    /// Show what was measured inside a box before its command ran.
    Report(TargetArgs),
    /// Show what a detached box wrote.
    Logs(LogsArgs),
    /// Write a picture of a box's own display as PNG.
    Screenshot(ScreenshotArgs),
    /// Say what this machine can do for a box, what not, and what would help.
    Doctor(DoctorArgs),
    /// Let a running box dial more, here or on another device.
    Allow(ChangeArgs),
    /// Take away what a running box may dial, here or on another device; flows that go there
    /// are reset.
    Deny(ChangeArgs),
    /// Say why a box may or may not dial something, and what would let it.
    Why(WhyArgs),
    /// Stop a box, here or on another device.
    Stop(StopArgs),
    /// Let no process of a box run until it is resumed, here or on another device.
    Pause(StopArgs),
    /// Let the processes of a paused box go on, here or on another device.
    Resume(StopArgs),
    /// Show the notices of all your devices.
    Notices(NoticesArgs),
    /// Look after what is kept.
    #[command(subcommand)]
    Store(StoreVerb),
    /// Let another device read this one's audit and stop its boxes.
    #[command(subcommand)]
    Device(DeviceVerb),
    /// Keep accounts apart: each has a node, boxes, keys and devices of its own.
    #[command(subcommand)]
    Account(AccountVerb),
    /// Keep sealed envelopes for devices that are not up together.
    #[command(disable_help_flag = true)]
    Mailbox(MailboxArgs),
    /// Be the node (the other commands start one by themselves).
    Node(NodeArgs),
    /// See the whole of bailey work on this machine, offline, in under a minute.
    Demo(JsonArgs),
    /// The servers of the demo's world.
    #[command(hide = true)]
    WorldServe(WorldServeArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Say nothing but what the command says.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Name of the box; its own folder is kept under this name.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// What it may dial (gated only; internet unless said): nothing, internet, local, HOST[:PORT], ADDRESS[/LEN][:PORT]; comma-joined.
    #[arg(long)]
    pub(crate) reach: Option<String>,
    /// Grant a folder or file: PATH[:ro|:rw] (read-only unless :rw); `gpu` is the graphics processor (a folder of that name is ./gpu).
    #[arg(long = "grant", value_name = "PATH[:ro|:rw]")]
    pub(crate) grants: Vec<OsString>,
    /// Grant the current folder (read-write unless `ro`) and start in it.
    #[arg(long, value_name = "ro", num_args = 0..=1, require_equals = true, default_missing_value = "rw")]
    pub(crate) here: Option<String>,
    /// Pass a variable of the environment, or set one.
    #[arg(long = "env", value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<OsString>,
    /// What it is kept from: l1, l1.5, l2 (no network) or gated (each flow decided).
    #[arg(long, value_name = "TIER", default_value = "gated")]
    pub(crate) tier: String,
    /// What it is for: `browser` lets a browser make its own sandbox inside.
    #[arg(long, value_name = "CLASS", value_parser = ["browser"])]
    pub(crate) class: Option<String>,
    /// A display of its own.
    #[arg(long, value_name = "virtual", value_parser = ["virtual"])]
    pub(crate) display: Option<String>,
    /// What it may use up: mem=2G,cpus=2,pids=512,files=1024,time=1h.
    #[arg(long = "limit", value_name = "LIMITS")]
    pub(crate) limits: Option<String>,
    /// Where its audit is kept: `here` keeps it on this device alone.
    #[arg(long, value_name = "here", value_parser = ["here"])]
    pub(crate) audit: Option<String>,
    /// Let a port of this machine's loopback lead to a port of the box.
    #[arg(long, value_name = "HOSTPORT:BOXPORT")]
    pub(crate) publish: Vec<String>,
    /// Leave it running in the background; `bailey logs` shows what it writes.
    #[arg(long)]
    pub(crate) detach: bool,
    /// Start it although it is weaker than asked, and say so first.
    #[arg(long)]
    pub(crate) allow_weaker: bool,
    /// Write how it ended to a file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) result: Option<PathBuf>,
    /// The command and its words.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// The box: NAME or its id.
    #[arg(value_name = "BOX")]
    pub(crate) target: String,
    /// Pass a variable of the environment, or set one.
    #[arg(long = "env", value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<OsString>,
    /// The command and its words.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    /// The box: NAME, its id, or NAME@DEVICE.
    #[arg(value_name = "BOX")]
    pub(crate) target: String,
    /// One JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// The box: NAME or its id.
    #[arg(value_name = "BOX")]
    pub(crate) target: String,
    /// Go on with what it writes.
    #[arg(long)]
    pub(crate) follow: bool,
    /// Its bytes as they are, where they go to no terminal.
    #[arg(long)]
    pub(crate) raw: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ScreenshotArgs {
    /// The box: NAME or its id.
    #[arg(value_name = "BOX")]
    pub(crate) target: String,
    /// The file to write; never one that is there.
    #[arg(long, value_name = "FILE")]
    pub(crate) output: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print the AppArmor profile for the launcher, and how to load it.
    #[arg(long)]
    pub(crate) print_apparmor: bool,
    /// One JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct JsonArgs {
    /// One JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which rows are wanted.
#[derive(Debug, Args)]
pub(crate) struct FilterArgs {
    /// Only what is younger: 30s, 10m, 2h, 7d.
    #[arg(long, value_name = "AGE")]
    pub(crate) since: Option<String>,
    /// Only what is older.
    #[arg(long, value_name = "AGE")]
    pub(crate) until: Option<String>,
    /// Only this host, or `*.HOST`.
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// Only what was allowed, or refused.
    #[arg(long, value_name = "VERDICT", value_parser = ["allow", "refuse"])]
    pub(crate) verdict: Option<String>,
    /// Only addresses of a class: internet, local, private, loopback, metadata, …
    #[arg(long, value_name = "CLASS")]
    pub(crate) class: Option<String>,
    /// Only this dialled port.
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
}

#[derive(Debug, Args)]
pub(crate) struct SummaryArgs {
    /// The box: NAME, its id, or NAME@DEVICE; each unless it is said.
    #[arg(value_name = "BOX")]
    pub(crate) target: Option<String>,
    /// What is younger: 30s, 10m, 2h, 7d (24h unless it is said; all with --days).
    #[arg(long, value_name = "AGE")]
    pub(crate) since: Option<String>,
    /// Each day by itself, with what is left of those whose window is over.
    #[arg(long)]
    pub(crate) days: bool,
    /// One JSON object a line, one a host.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The box: NAME, its id, or NAME@DEVICE.
    #[arg(value_name = "BOX")]
    pub(crate) target: String,
    /// As what: ndjson (as `bailey flows --json`), csv, zeek (conn.log), zeek-dns (dns.log), eve (Suricata), ocsf.
    #[arg(long, value_name = "FORMAT", value_parser = Format::WORDS)]
    pub(crate) format: String,
    /// The file to write; stdout unless it is said.
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PcapArgs {
    /// The box: NAME or its id.
    #[arg(value_name = "BOX")]
    pub(crate) target: String,
    /// For how long at most: 30s, 10m, 2h, 1d.
    #[arg(long = "for", value_name = "TIME", default_value = "10m")]
    pub(crate) time: String,
    /// The file to write (pcapng).
    #[arg(long, value_name = "FILE")]
    pub(crate) write: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct FlowsArgs {
    /// The box: NAME, its id, or NAME@DEVICE.
    #[arg(value_name = "BOX")]
    pub(crate) target: String,
    /// Go on with new entries as they are written.
    #[arg(long, conflicts_with = "until")]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// One JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ChangeArgs {
    /// The box: NAME, its id, or NAME@DEVICE.
    #[arg(value_name = "BOX")]
    pub(crate) target: String,
    /// Terms as in --reach: internet, local, HOST[:PORT], ADDRESS[/LEN][:PORT].
    #[arg(value_name = "TERM", required = true)]
    pub(crate) terms: Vec<String>,
    /// How many seconds to wait for a receipt from another device.
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    pub(crate) wait: u64,
    /// One JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// The box: NAME, its id, or NAME@DEVICE.
    #[arg(value_name = "BOX")]
    pub(crate) target: String,
    /// What it dials: a name or an address; nothing is sent there.
    #[arg(value_name = "HOST[:PORT][/udp]")]
    pub(crate) what: String,
    /// One JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// The boxes: NAME, id, or NAME@DEVICE.
    #[arg(value_name = "BOX", required = true)]
    pub(crate) targets: Vec<String>,
    /// How many seconds to wait for a receipt from another device.
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    pub(crate) wait: u64,
    /// One JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct NoticesArgs {
    /// Go on with new ones.
    #[arg(long)]
    pub(crate) follow: bool,
    /// One JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreVerb {
    /// Look at every signature, seal and number, and change nothing.
    Check(JsonArgs),
    /// Put a damaged store in order while no node runs. Nothing is deleted.
    Repair(JsonArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum DeviceVerb {
    /// Show a code with which another device joins this account.
    Add(DeviceAddArgs),
    /// Join the account of the device that shows CODE.
    Join(DeviceJoinArgs),
    /// List the devices of the account.
    List(JsonArgs),
    /// Forget a mailbox that the code named when this device joined.
    Forget(DeviceForgetArgs),
    /// Write down the key that brings the account back, and check what is on paper.
    Recovery(RecoveryArgs),
    /// Bring an account back on a device that has none, by its recovery key and a copy.
    Recover(RecoverArgs),
    /// Remove a device from the account; its keys are never accepted again.
    Remove(DeviceRemoveArgs),
    /// Change what a device may do.
    Role(DeviceRoleArgs),
    /// Take this device out of its account.
    Leave(JsonArgs),
    /// Seal what this device enters from now on under new keys.
    Rotate(JsonArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum AccountVerb {
    /// Begin another account, by a name on this machine alone.
    Add(AccountAddArgs),
    /// List your accounts on this machine; no node is started for it.
    List(JsonArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AccountAddArgs {
    /// Letters, digits, - _ . (at most 32).
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// One JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DeviceAddArgs {
    /// Address under which the other device reaches this one (repeatable).
    #[arg(long = "addr", value_name = "ADDRESS", conflicts_with = "no_addr")]
    pub(crate) addrs: Vec<IpAddr>,
    /// No address in the long code: it works through the mailbox alone.
    #[arg(long, conflicts_with = "no_mailbox")]
    pub(crate) no_addr: bool,
    /// No mailbox in the long code.
    #[arg(long)]
    pub(crate) no_mailbox: bool,
    /// What the other device may do: `watch` reads, `stop` may stop boxes too, `full` may
    /// also add and remove devices, `runs` reads nothing of others.
    #[arg(long, value_name = "ROLE", default_value = "full", value_parser = role)]
    pub(crate) role: Role,
    /// Show no QR code.
    #[arg(long)]
    pub(crate) no_qr: bool,
    /// Do not ask whether both screens show the same words.
    #[arg(long)]
    pub(crate) yes: bool,
    /// One JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RecoveryArgs {
    /// Read the words from standard input and say whether they are right.
    #[arg(long)]
    pub(crate) check: bool,
    /// Print the words and ask for nothing.
    #[arg(long, conflicts_with = "check")]
    pub(crate) print: bool,
    /// Write a copy of the account to a new file: all that other devices may have, sealed.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["check", "print", "load"])]
    pub(crate) save: Option<PathBuf>,
    /// Take what a copy of the account has and this device has not.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["check", "print"])]
    pub(crate) load: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RecoverArgs {
    /// The copy, by `bailey device recovery --save` of any of the account's devices.
    #[arg(long = "from", value_name = "FILE")]
    pub(crate) copy: PathBuf,
    /// A device that stays, by the first digits of its id (repeatable); all others are out.
    #[arg(long, value_name = "ID")]
    pub(crate) keep: Vec<String>,
    /// One JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

fn role(text: &str) -> Result<Role, String> {
    [Role::Runs, Role::Watch, Role::Stop, Role::Full]
        .into_iter()
        .find(|role| role.as_str() == text)
        .ok_or_else(|| "one of watch, stop, full, runs".to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct DeviceJoinArgs {
    /// The code that the other device shows: the short one or the long one.
    #[arg(required = true, num_args = 1..=8)]
    pub(crate) code: Vec<String>,
    /// Where the other device is, with the port that it shows, in the place of a search
    /// in this network.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) at: Vec<SocketAddr>,
    /// One JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MailboxArgs {
    /// The words of bailey-mailbox: `bailey mailbox --help` shows them.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "WORDS"
    )]
    pub(crate) words: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct DeviceForgetArgs {
    /// The mailbox: HOST:PORT, or the first digits of its key.
    #[arg(value_name = "MAILBOX")]
    pub(crate) mailbox: String,
}

#[derive(Debug, Args)]
pub(crate) struct DeviceRemoveArgs {
    /// The device: its name, or the first digits of its id.
    #[arg(value_name = "DEVICE")]
    pub(crate) device: String,
    /// It is lost: say what it could read, and until when it was heard.
    #[arg(long)]
    pub(crate) lost: bool,
    /// By the recovery key, whose words are read from standard input: from any device of
    /// the account, whatever its role.
    #[arg(long)]
    pub(crate) recovery: bool,
    /// Remove this one too, in the same record (repeatable).
    #[arg(long, value_name = "DEVICE")]
    pub(crate) also: Vec<String>,
    /// One JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DeviceRoleArgs {
    /// The device: its name, or the first digits of its id.
    #[arg(value_name = "DEVICE")]
    pub(crate) device: String,
    /// watch reads; stop also stops boxes; full also changes the account; runs only writes.
    #[arg(value_parser = ["full", "stop", "watch", "runs"])]
    pub(crate) role: String,
    /// One JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// Leave when nothing has needed the node for some seconds.
    #[arg(long, hide = true)]
    pub(crate) background: bool,
    /// What this device calls itself (its host name, unless it was said before).
    #[arg(long, value_name = "NAME")]
    pub(crate) device_name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct WorldServeArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<OsString>,
}
