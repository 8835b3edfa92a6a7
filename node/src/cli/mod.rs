//! The command line: parses, asks the node, prints.

mod accounts;
mod allow;
mod args;
mod ask;
mod attend;
mod demo;
mod device;
mod doctor;
mod exec;
mod export;
mod logs;
mod mailbox;
mod members;
mod out;
mod pcap;
mod qr;
mod read;
mod recovery;
mod relay;
mod report;
mod run;
mod screenshot;
mod store;
mod summary;
mod why;

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use clap::Parser as _;

use crate::api::{Failure, Way};
use crate::{client, daemon};
use args::{AccountVerb, DeviceVerb, Line, ShortLine, ShortVerb, StoreVerb, Verb};

/// Runs the command line of this process, where it begins or joins a box; whatever else
/// it says, wrong words and a wish for help too, is for the program beside this one,
/// which this process becomes ([`main`]). The two are one crate: what is not reached
/// from here is not linked into the first program, which so starts in a third of the
/// time (ADR 0054).
#[must_use]
pub fn first() -> ExitCode {
    let Ok(line) = ShortLine::try_parse() else {
        return conclude(become_whole());
    };
    let account = line.account.as_deref();
    conclude(
        accounts::choose(account, false).and_then(|()| match line.verb {
            ShortVerb::Run(args) => run::run(&args),
            ShortVerb::Exec(args) => exec::exec(&args),
        }),
    )
}

/// Becomes the whole program, with the words as they are.
fn become_whole() -> Result<u8, Failure> {
    let program = client::whole()?;
    let mut words = std::env::args_os();
    let mut whole = Command::new(&program);
    if let Some(own) = words.next() {
        whole.arg0(own);
    }
    let error = whole.args(words).exec();
    Err(Failure::host(format!("{}: {error}", program.display())))
}

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let line = match Line::try_parse() {
        Ok(line) => line,
        Err(error) => {
            let code = if error.use_stderr() { 2 } else { 0 };
            let _unwritable = error.print();
            return ExitCode::from(code);
        }
    };
    let account = line.account.as_deref();
    let chosen = accounts::choose(account, line.verb.is_about_all_accounts());
    conclude(chosen.and_then(|()| dispatch(line.verb)))
}

fn conclude(done: Result<u8, Failure>) -> ExitCode {
    match done {
        Ok(code) => ExitCode::from(code),
        Err(failure) if failure.is_unread() => ExitCode::SUCCESS,
        Err(failure) => {
            out::failure(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}

fn dispatch(verb: Verb) -> Result<u8, Failure> {
    match verb {
        Verb::Run(args) => run::run(&args),
        Verb::Exec(args) => exec::exec(&args),
        Verb::Report(args) => report::report(&args),
        Verb::Logs(args) => logs::logs(&args),
        Verb::Screenshot(args) => screenshot::screenshot(&args),
        Verb::Doctor(args) => doctor::doctor(&args),
        Verb::Ps(args) => read::ps(&args),
        Verb::Flows(args) => read::flows(&args),
        Verb::Summary(args) => summary::summary(&args),
        Verb::Export(args) => export::export(&args),
        Verb::Pcap(args) => pcap::pcap(&args),
        Verb::Metrics => read::metrics(),
        Verb::Notices(args) => read::notices(&args),
        Verb::Allow(args) => allow::change(&args, Way::Allow),
        Verb::Deny(args) => allow::change(&args, Way::Deny),
        Verb::Why(args) => why::why(&args),
        Verb::Stop(args) => ask::stop(&args),
        Verb::Pause(args) => ask::pause(&args),
        Verb::Resume(args) => ask::resume(&args),
        Verb::Store(StoreVerb::Check(args)) => store::check(&args),
        Verb::Store(StoreVerb::Repair(args)) => store::repair(&args),
        Verb::Device(DeviceVerb::Add(args)) => device::add(&args),
        Verb::Device(DeviceVerb::Join(args)) => device::join(&args),
        Verb::Device(DeviceVerb::List(args)) => device::list(&args),
        Verb::Device(DeviceVerb::Forget(args)) => device::forget(&args),
        Verb::Device(DeviceVerb::Recovery(args)) => recovery::recovery(&args),
        Verb::Device(DeviceVerb::Recover(args)) => recovery::recover(&args),
        Verb::Device(DeviceVerb::Remove(args)) => members::remove(&args),
        Verb::Device(DeviceVerb::Role(args)) => members::role(&args),
        Verb::Device(DeviceVerb::Leave(args)) => members::leave(&args),
        Verb::Device(DeviceVerb::Rotate(args)) => members::rotate(&args),
        Verb::Account(AccountVerb::Add(args)) => accounts::add(&args),
        Verb::Account(AccountVerb::List(args)) => accounts::list(&args),
        Verb::Mailbox(args) => mailbox::mailbox(&args),
        Verb::Node(args) => daemon::run(args.background, args.device_name),
        Verb::Demo(args) => demo::demo(args.json),
        Verb::WorldServe(args) => demo::serve(&args.words),
    }
}
