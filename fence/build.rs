//! Compiles the table of refused system calls into the two BPF programs that
//! the launcher loads (seccomp(2)). Done here, because libseccomp takes longer
//! to build them than a box takes to start.

use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};

use libseccomp::{ScmpAction, ScmpArgCompare, ScmpCompareOp, ScmpFilterContext, ScmpSyscall};

#[path = "src/seccomp/table.rs"]
mod table;

use table::{Answer, HIDDEN, NEWEST_KNOWN, ONLY_VALUES, REFUSED, Test};

const LOW: u64 = 0xffff_ffff;
/// Numbers of <asm-generic/errno.h>, the same on all supported architectures.
const EPERM: i32 = 1;
const ENOSYS: i32 = 38;
const EAFNOSUPPORT: i32 = 97;
/// libseccomp's tree instead of a list: fewer comparisons a call.
const BINARY_TREE: u32 = 2;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/seccomp/table.rs");
    if std::env::var_os("HOST") != std::env::var_os("TARGET") {
        return Err("the seccomp programs can only be built for the machine that builds".into());
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("no OUT_DIR")?);
    write(&known()?, &out.join("known.bpf"))?;
    write(&refused()?, &out.join("refused.bpf"))
}

/// Permits each call that has a number we know; the rest is answered ENOSYS.
fn known() -> Result<ScmpFilterContext, Box<dyn Error>> {
    let mut filter = context(ScmpAction::Errno(ENOSYS))?;
    for number in 0..=NEWEST_KNOWN {
        let call = ScmpSyscall::from_raw_syscall(number);
        let Ok(name) = call.get_name() else { continue };
        if HIDDEN.contains(&name.as_str()) {
            continue;
        }
        match ONLY_VALUES.iter().find(|(only, _)| *only == name) {
            None => {
                filter.add_rule(ScmpAction::Allow, call)?;
            }
            Some((_, values)) => {
                for value in *values {
                    let only = compare(&Test::Low(0, *value));
                    filter.add_rule_conditional(ScmpAction::Allow, call, &[only])?;
                }
            }
        }
    }
    Ok(filter)
}

/// Refuses what stands in the table; the rest is left to the other program.
fn refused() -> Result<ScmpFilterContext, Box<dyn Error>> {
    let mut filter = context(ScmpAction::Allow)?;
    for (name, tests, answer, _reason) in REFUSED {
        let call = match ScmpSyscall::from_name(name) {
            // A number below 0 is a call that this architecture never had.
            Ok(call) if call.as_raw_syscall() < 0 => continue,
            Ok(call) => call,
            Err(error) => return Err(format!("libseccomp does not know {name}: {error}").into()),
        };
        let action = ScmpAction::Errno(match answer {
            Answer::Eperm => EPERM,
            Answer::Enosys => ENOSYS,
            Answer::Eafnosupport => EAFNOSUPPORT,
        });
        let tests: Vec<ScmpArgCompare> = tests.iter().map(compare).collect();
        if tests.is_empty() {
            filter.add_rule(action, call)?;
        } else {
            filter.add_rule_conditional(action, call, &tests)?;
        }
    }
    Ok(filter)
}

/// A call by another entry than the machine's own (i386, x32) ends the process:
/// its numbers mean other calls.
fn context(default: ScmpAction) -> Result<ScmpFilterContext, Box<dyn Error>> {
    let mut filter = ScmpFilterContext::new(default)?;
    filter.set_act_badarch(ScmpAction::KillProcess)?;
    filter.set_ctl_optimize(BINARY_TREE)?;
    Ok(filter)
}

fn compare(test: &Test) -> ScmpArgCompare {
    match *test {
        Test::Low(arg, value) => {
            ScmpArgCompare::new(arg, ScmpCompareOp::MaskedEqual(LOW), u64::from(value))
        }
        Test::Is(arg, value) => ScmpArgCompare::new(arg, ScmpCompareOp::Equal, value),
        Test::IsNot(arg, value) => ScmpArgCompare::new(arg, ScmpCompareOp::NotEqual, value),
        Test::Above(arg, value) => ScmpArgCompare::new(arg, ScmpCompareOp::Greater, value),
        Test::Has(arg, bits) => ScmpArgCompare::new(arg, ScmpCompareOp::MaskedEqual(bits), bits),
    }
}

fn write(filter: &ScmpFilterContext, path: &Path) -> Result<(), Box<dyn Error>> {
    Ok(filter.export_bpf(File::create(path)?)?)
}
