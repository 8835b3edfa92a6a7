//! The command line's words.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Run programs you do not trust in a box, see every connection, stop them from anywhere.
#[derive(Debug, Parser)]
#[command(name = "bailey", version, disable_help_subcommand = true)]
pub(crate) struct Line {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run a command in a box.
    Run(RunArgs),
    /// List the boxes of all your devices.
    Ps(JsonArgs),
    /// Show what a box dialled, and what was decided.
    Flows(FlowsArgs),
    /// Stop a box, here or on another device.
    Stop(StopArgs),
    /// Show the notices of all your devices.
    Notices(NoticesArgs),
    /// Let another device read this one's audit and stop its boxes.
    #[command(subcommand)]
    Device(DeviceVerb),
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
    /// What it may dial: nothing, internet, local, HOST[:PORT], ADDRESS[/LEN][:PORT]; comma-joined.
    #[arg(long, default_value = "internet")]
    pub(crate) reach: String,
    /// Grant a folder or file: PATH[:ro|:rw] (read-only unless :rw).
    #[arg(long = "grant", value_name = "PATH[:ro|:rw]")]
    pub(crate) grants: Vec<OsString>,
    /// Grant the current folder (read-write unless `ro`) and start in it.
    #[arg(long, value_name = "ro", num_args = 0..=1, require_equals = true, default_missing_value = "rw")]
    pub(crate) here: Option<String>,
    /// Pass a variable of the environment, or set one.
    #[arg(long = "env", value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<OsString>,
    /// Write how it ended to a file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) result: Option<PathBuf>,
    /// The command and its words.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct JsonArgs {
    /// One JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FlowsArgs {
    /// The box: NAME, its id, or NAME@DEVICE.
    #[arg(value_name = "BOX")]
    pub(crate) target: String,
    /// Go on with new entries as they are written.
    #[arg(long)]
    pub(crate) follow: bool,
    /// Only what is younger: 30s, 10m, 2h, 7d.
    #[arg(long, value_name = "AGE")]
    pub(crate) since: Option<String>,
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
pub(crate) enum DeviceVerb {
    /// Show a code with which another device joins this account.
    Add(DeviceAddArgs),
    /// Join the account of the device that shows CODE.
    Join(DeviceJoinArgs),
    /// List the devices of the account.
    List(JsonArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DeviceAddArgs {
    /// Address under which the other device reaches this one (repeatable).
    #[arg(long = "addr", value_name = "ADDRESS")]
    pub(crate) addrs: Vec<IpAddr>,
    /// Do not ask whether both screens show the same words.
    #[arg(long)]
    pub(crate) yes: bool,
    /// One JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DeviceJoinArgs {
    /// The code that the other device shows.
    pub(crate) code: String,
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
