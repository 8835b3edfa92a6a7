//! Arguments for conditions, and what the table says of any.

use crate::bpf::{Kind, Says};
use crate::compile::errno;
use crate::table::{For, HIDDEN, NEWEST_KNOWN, ONLY_VALUES, REFUSED, Refusal, Test};

/// Bits that the kernel does not look at where it looks at 32.
const HIGH: u64 = 0x7abc_def0_0000_0000;

fn place(test: &Test) -> usize {
    match *test {
        Test::Low(arg, _)
        | Test::Is(arg, _)
        | Test::NoneOf(arg, _)
        | Test::Has(arg, _)
        | Test::Part(arg, _, _) => arg as usize,
    }
}

fn holds(test: &Test, arguments: &[u64; 6]) -> bool {
    let value = arguments[place(test)];
    match *test {
        Test::Low(_, low) => value & 0xffff_ffff == u64::from(low),
        Test::Is(_, all) => value == all,
        Test::NoneOf(_, values) => !values.contains(&value),
        Test::Has(_, bits) => value & bits == bits,
        Test::Part(_, mask, bits) => value & mask == bits,
    }
}

/// Values that fulfil a condition, on top of what the argument had.
fn fulfilling(test: &Test, before: u64) -> Vec<u64> {
    match *test {
        Test::Low(_, low) => vec![u64::from(low), u64::from(low) | HIGH],
        Test::Is(_, value) => vec![value],
        Test::Has(_, bits) if before == u64::MAX => vec![bits, u64::MAX],
        Test::Has(_, bits) => vec![before | bits, before | bits | HIGH],
        // SOCK_NONBLOCK and SOCK_CLOEXEC, the flags that stand beside a kind.
        Test::Part(_, _, bits) => vec![bits, bits | 0x8_0800, bits | HIGH],
        Test::NoneOf(_, values) => {
            let highest = values.last().unwrap();
            let mut found: Vec<u64> = (0..highest + 3).filter(|v| !values.contains(v)).collect();
            found.extend([u64::from(u32::MAX), u64::MAX]);
            found.extend(values.iter().map(|value| value | HIGH));
            found
        }
    }
}

/// Arguments that fulfil every condition of a row, the other ones as in `bad`.
pub(crate) fn arguments_for(row: &Refusal, bad: [u64; 6]) -> Vec<[u64; 6]> {
    let mut all = vec![bad];
    for test in row.1 {
        let longer = |before: &[u64; 6]| {
            let values = fulfilling(test, before[place(test)]);
            let set = |value| {
                let mut after = *before;
                after[place(test)] = value;
                after
            };
            values.into_iter().map(set).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

/// Values of an argument at which an answer could turn, for one call's rows.
fn turning(name: &str, argument: usize) -> Vec<u64> {
    let mut values = vec![0, u64::MAX];
    let rows = REFUSED.iter().filter(|row| row.0 == name);
    for test in rows.flat_map(|row| row.1) {
        if place(test) != argument {
            continue;
        }
        let around = |value: u64| {
            [
                value,
                value.wrapping_sub(1),
                value + 1,
                !value,
                value | HIGH,
            ]
        };
        match *test {
            Test::Low(_, low) => values.extend(around(low.into())),
            Test::Is(_, value) | Test::Has(_, value) => values.extend(around(value)),
            Test::Part(_, mask, value) => {
                values.extend(around(value));
                values.extend([value | 0x8_0800, value | !mask]);
            }
            Test::NoneOf(_, list) => values.extend(list.iter().flat_map(|value| around(*value))),
        }
    }
    for (only, list, _) in ONLY_VALUES {
        if *only == name && argument == 0 {
            values.extend(
                list.iter()
                    .flat_map(|v| [u64::from(*v), u64::from(*v) ^ HIGH]),
            );
            values.extend(list.iter().map(|v| u64::from(v ^ 0x40_0000)));
        }
    }
    values.sort_unstable();
    values.dedup();
    values
}

/// Arguments on both sides of every condition of a call's rows.
pub(crate) fn both_sides(name: &str) -> Vec<[u64; 6]> {
    let mut all = vec![[0; 6]];
    for argument in 0..6 {
        let values = turning(name, argument);
        let with = |before: &[u64; 6]| {
            let before = *before;
            let set = move |value: &u64| {
                let mut after = before;
                after[argument] = *value;
                after
            };
            values.iter().map(set).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(with).collect();
    }
    all
}

/// What the table says, read row by row.
pub(crate) fn table_says(kind: Kind, number: i32, name: &str, arguments: &[u64; 6]) -> Says {
    let only = ONLY_VALUES.iter().find(|(only, _, _)| *only == name);
    let value_is_one = |values: &[u32]| {
        let low = arguments[0] & 0xffff_ffff;
        values.iter().any(|value| u64::from(*value) == low)
    };
    let unknown = number > NEWEST_KNOWN
        || HIDDEN.iter().any(|(hidden, _)| *hidden == name)
        || only.is_some_and(|(_, values, _)| !value_is_one(values));
    let rows = REFUSED.iter().filter(|(call, tests, _, boxes, _)| {
        *call == name && kind.has(*boxes) && tests.iter().all(|test| holds(test, arguments))
    });
    let (beside, class): (Vec<&Refusal>, Vec<&Refusal>) =
        rows.partition(|row| matches!(row.3, For::NoNetwork | For::NoNamespaces));
    // Its program is loaded last, so its answer holds.
    let held = if beside.is_empty() { class } else { beside };
    let answers: Vec<i32> = held.iter().map(|row| errno(row.2)).collect();
    assert!(
        answers.windows(2).all(|pair| pair[0] == pair[1]),
        "{name} {arguments:x?} has several answers: {answers:?}"
    );
    match (answers.first(), unknown) {
        (Some(answer), _) => Says::Errno(*answer),
        (None, true) => Says::Errno(38),
        (None, false) => Says::Allow,
    }
}
