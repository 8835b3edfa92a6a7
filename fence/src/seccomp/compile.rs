// From the table to BPF, with libseccomp, for any of the architectures. The
// build script runs it for the one that is built for, the tests for all.

use libseccomp::error::SeccompError;
use libseccomp::{
    ScmpAction, ScmpArch, ScmpArgCompare, ScmpCompareOp, ScmpFilterContext, ScmpSyscall,
};

use crate::table::{Answer, For, HIDDEN, NEWEST_KNOWN, ONLY_VALUES, REFUSED, Test};

const LOW: u64 = 0xffff_ffff;
/// libseccomp's tree instead of a list: fewer comparisons a call.
const BINARY_TREE: u32 = 2;

/// Number of <asm-generic/errno.h>, the same on all supported architectures.
pub(crate) fn errno(answer: Answer) -> i32 {
    match answer {
        Answer::Eperm => 1,
        Answer::Enosys => 38,
        Answer::Eprotonosupport => 93,
        Answer::Eafnosupport => 97,
    }
}

/// The number of a call on an architecture that has it, and that libseccomp
/// knows. One that it does not know is answered as unknown anyhow.
pub(crate) fn number(name: &str, arch: ScmpArch) -> Option<i32> {
    let call = ScmpSyscall::from_name_by_arch(name, arch).ok()?;
    // Below 0 stand calls that other architectures have.
    Some(call.as_raw_syscall()).filter(|number| *number >= 0)
}

/// Every call that is known on an architecture: number and name.
pub(crate) fn known_calls(arch: ScmpArch) -> impl Iterator<Item = (i32, String)> {
    (0..=NEWEST_KNOWN).filter_map(move |number| {
        let name = ScmpSyscall::from_raw_syscall(number).get_name_by_arch(arch);
        Some((number, name.ok()?))
    })
}

/// Permits each call that has a number we know; the rest is answered ENOSYS.
pub(crate) fn known(arch: ScmpArch) -> Result<ScmpFilterContext, SeccompError> {
    let mut filter = context(ScmpAction::Errno(errno(Answer::Enosys)), arch)?;
    for (_, name) in known_calls(arch) {
        if HIDDEN.iter().any(|(hidden, _)| *hidden == name) {
            continue;
        }
        // libseccomp wants the number here, and finds the other's itself.
        let call = ScmpSyscall::from_name(&name)?;
        match ONLY_VALUES.iter().find(|(only, _, _)| *only == name) {
            None => {
                filter.add_rule(ScmpAction::Allow, call)?;
            }
            Some((_, values, _)) => {
                for value in *values {
                    let only = masked(0, LOW, u64::from(*value));
                    filter.add_rule_conditional(ScmpAction::Allow, call, &[only])?;
                }
            }
        }
    }
    Ok(filter)
}

/// Refuses the rows of the table that hold for these boxes; the rest is left to
/// the other program.
pub(crate) fn refused(arch: ScmpArch, rows: &[For]) -> Result<ScmpFilterContext, SeccompError> {
    let mut filter = context(ScmpAction::Allow, arch)?;
    for (name, tests, answer, boxes, _reason) in REFUSED {
        if !rows.contains(boxes) || number(name, arch).is_none() {
            continue;
        }
        let call = ScmpSyscall::from_name(name)?;
        let action = ScmpAction::Errno(errno(*answer));
        for comparisons in alternatives(tests) {
            if comparisons.is_empty() {
                filter.add_rule(action, call)?;
            } else {
                filter.add_rule_conditional(action, call, &comparisons)?;
            }
        }
    }
    Ok(filter)
}

/// A call by another entry than the architecture's own (i386, x32, 32-bit Arm)
/// ends the process: its numbers mean other calls.
fn context(default: ScmpAction, arch: ScmpArch) -> Result<ScmpFilterContext, SeccompError> {
    let mut filter = ScmpFilterContext::new(default)?;
    if arch != ScmpArch::native() {
        filter.add_arch(arch)?;
        filter.remove_arch(ScmpArch::native())?;
    }
    filter.set_act_badarch(ScmpAction::KillProcess)?;
    filter.set_ctl_optimize(BINARY_TREE)?;
    Ok(filter)
}

/// Rules that together say what the conditions say: a rule of libseccomp holds
/// one comparison an argument.
fn alternatives(tests: &[Test]) -> Vec<Vec<ScmpArgCompare>> {
    let mut rules = vec![Vec::new()];
    for test in tests {
        let each = one_of(test);
        rules = rules
            .iter()
            .flat_map(|rule: &Vec<ScmpArgCompare>| {
                each.iter().map(move |one| {
                    let mut longer = rule.clone();
                    longer.push(*one);
                    longer
                })
            })
            .collect();
    }
    rules
}

/// Comparisons of which one holds exactly where the condition does.
fn one_of(test: &Test) -> Vec<ScmpArgCompare> {
    match *test {
        Test::Low(arg, value) => vec![masked(arg, LOW, u64::from(value))],
        Test::Is(arg, value) => vec![ScmpArgCompare::new(arg, ScmpCompareOp::Equal, value)],
        Test::Has(arg, bits) => vec![masked(arg, bits, bits)],
        Test::Part(arg, mask, bits) => vec![masked(arg, mask, bits)],
        Test::NoneOf(arg, [only]) => {
            vec![ScmpArgCompare::new(arg, ScmpCompareOp::NotEqual, *only)]
        }
        Test::NoneOf(arg, values) => {
            let mut found = Vec::new();
            let mut next = 0;
            for value in values {
                found.extend(blocks(next, *value).map(|(mask, at)| masked(arg, mask, at)));
                next = value + 1;
            }
            let above = next.saturating_sub(1);
            found.push(ScmpArgCompare::new(arg, ScmpCompareOp::Greater, above));
            found
        }
    }
}

/// The numbers from one up to another in blocks, each of one mask and value:
/// fewer comparisons than numbers.
fn blocks(mut from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
    std::iter::from_fn(move || {
        let left = to.checked_sub(from).filter(|left| *left > 0)?;
        // As wide as where it starts allows, and as what is left.
        let width = 1 << from.trailing_zeros().min(left.ilog2());
        let block = (!(width - 1), from);
        from += width;
        Some(block)
    })
}

fn masked(arg: u32, mask: u64, value: u64) -> ScmpArgCompare {
    ScmpArgCompare::new(arg, ScmpCompareOp::MaskedEqual(mask), value)
}
