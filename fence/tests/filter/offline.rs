//! The programs for every architecture, run by a machine of our own.

use std::collections::BTreeSet;
use std::fmt::Write;

use bailey_fence_plan::opened;
use bailey_model::BoxClass;
use libseccomp::ScmpArch;

use crate::bpf::{ARCHES, Call, KINDS, Kind, Says, Stack};
use crate::compile::{errno, known_calls, number};
use crate::samples::{arguments_for, both_sides, table_says};
use crate::table::{Answer, For, HIDDEN, LEFT, NEWEST_KNOWN, ONLY_VALUES, REFUSED, Refusal, Test};

#[test]
fn every_row_gives_its_answer_on_both_architectures() {
    let mut tried = 0;
    for (arch, name, _) in ARCHES {
        for kind in KINDS {
            let stack = Stack::new(arch, kind);
            for row in REFUSED.iter().filter(|row| kind.has(row.3)) {
                let Some(number) = number(row.0, arch) else {
                    continue;
                };
                for bad in [[0; 6], [u64::MAX; 6]] {
                    for arguments in arguments_for(row, bad) {
                        let says = stack.says(number, arguments);
                        // Without a network the sockets' rows have one answer.
                        let alone =
                            kind.beside == Some(For::NoNetwork) && row.0.starts_with("socket");
                        let answer = if alone { Answer::Eafnosupport } else { row.2 };
                        let expected = Says::Errno(errno(answer));
                        assert_eq!(says, expected, "{name} {kind:?} {row:?} {arguments:x?}");
                        tried += 1;
                    }
                }
            }
        }
    }
    println!("{} rows, {tried} calls", REFUSED.len());
}

#[test]
fn what_is_known_and_not_in_the_table_passes() {
    for (arch, name, _) in ARCHES {
        let mut passed = BTreeSet::new();
        for kind in KINDS {
            let stack = Stack::new(arch, kind);
            for (number, call) in known_calls(arch) {
                let hidden = HIDDEN.iter().any(|(name, _)| *name == call);
                let only = ONLY_VALUES.iter().any(|(name, _, _)| *name == call);
                if hidden || only || REFUSED.iter().any(|row| row.0 == call) {
                    continue;
                }
                for arguments in [[0; 6], [u64::MAX; 6], [1, 2, 3, 4, 5, 6]] {
                    assert_eq!(stack.says(number, arguments), Says::Allow, "{name} {call}");
                }
                passed.insert(call);
            }
        }
        // What any program starts with, and more than 200 others.
        for call in ["read", "write", "execve", "mmap", "futex", "exit_group"] {
            assert!(passed.contains(call), "{name}: {call}");
        }
        assert!(passed.len() > 200);
        println!(
            "{name}: {} calls pass whatever their arguments",
            passed.len()
        );
    }
}

/// Row by row on one side, as compiled on the other, around every value at
/// which an answer turns.
#[test]
fn the_programs_say_what_the_table_says_and_no_more() {
    let mut tried = 0;
    for (arch, name, _) in ARCHES {
        let stacks = KINDS.map(|kind| (kind, Stack::new(arch, kind)));
        for (number, call) in known_calls(arch) {
            for arguments in both_sides(&call) {
                for (kind, stack) in &stacks {
                    let expected = table_says(*kind, number, &call, &arguments);
                    let says = stack.says(number, arguments);
                    assert_eq!(says, expected, "{name} {kind:?} {call} {arguments:x?}");
                    tried += 1;
                }
            }
        }
    }
    println!("{tried} calls");
}

#[test]
fn socket_families_are_an_allow_list() {
    for (arch, _, _) in ARCHES {
        let socket = number("socket", arch).unwrap();
        for kind in KINDS {
            let stack = Stack::new(arch, kind);
            let passes: Vec<u64> = (0..1024)
                .filter(|family| stack.says(socket, [*family, 1, 0, 0, 0, 0]) == Says::Allow)
                .collect();
            let expected: &[u64] = match kind.beside {
                Some(For::NoNetwork) => &[1],
                Some(For::NoNamespaces) => &[2, 10, 16],
                _ => &[1, 2, 10, 16],
            };
            assert_eq!(passes, expected);
        }
    }
}

#[test]
fn a_number_that_is_not_known_is_answered_as_unknown() {
    for (arch, name, _) in ARCHES {
        let known: BTreeSet<i32> = known_calls(arch).map(|(number, _)| number).collect();
        for kind in KINDS {
            let stack = Stack::new(arch, kind);
            let beyond = [999, 1023, 1024, 0xffff, 0x3fff_ffff];
            for number in (0..600)
                .chain(beyond)
                .filter(|number| !known.contains(number))
            {
                for arguments in [[0; 6], [u64::MAX; 6]] {
                    let says = stack.says(number, arguments);
                    assert_eq!(says, Says::Errno(38), "{name} {number}");
                }
            }
            let clone3 = number("clone3", arch).unwrap();
            assert_eq!(stack.says(clone3, [0; 6]), Says::Errno(38));
            // What a tracer writes to skip a call.
            assert_ne!(stack.says(-1, [0; 6]), Says::Allow);
        }
    }
}

#[test]
fn another_entry_than_the_architectures_own_ends_the_process() {
    const I386: u32 = 0x4000_0003;
    const X86_64: u32 = 0xc000_003e;
    const ARM: u32 = 0x4000_0028;
    const AARCH64: u32 = 0xc000_00b7;
    const X32: u32 = 0x4000_0000;
    for (arch, name, own) in ARCHES {
        for kind in KINDS {
            let stack = Stack::new(arch, kind);
            for number in 0..1024 {
                let entries = [I386, X86_64, ARM, AARCH64];
                let foreign = entries.into_iter().filter(|entry| *entry != own);
                let mut calls: Vec<(u32, u32)> = foreign.map(|entry| (entry, number)).collect();
                if own == X86_64 {
                    calls.push((own, number | X32));
                }
                for (entry, number) in calls {
                    let call = Call {
                        entry,
                        number,
                        arguments: [0; 6],
                    };
                    // Each alone too: neither leaves it to the other.
                    for program in &stack.programs {
                        assert_eq!(program.run(&call), Says::Kill, "{name} {call:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn the_built_in_programs_are_these() {
    let arch = ScmpArch::native();
    let of = |class, beside| Stack::new(arch, Kind::new(class, beside)).programs;
    let plain = of(BoxClass::Plain, Some(For::NoNetwork));
    let browser = of(BoxClass::Browser, Some(For::NoNamespaces));
    let built: [(&[u8], &[u8]); 5] = [
        (
            include_bytes!(concat!(env!("OUT_DIR"), "/no-namespaces.bpf")),
            &browser[2].0,
        ),
        (
            include_bytes!(concat!(env!("OUT_DIR"), "/known.bpf")),
            &plain[0].0,
        ),
        (
            include_bytes!(concat!(env!("OUT_DIR"), "/plain.bpf")),
            &plain[1].0,
        ),
        (
            include_bytes!(concat!(env!("OUT_DIR"), "/browser.bpf")),
            &browser[1].0,
        ),
        (
            include_bytes!(concat!(env!("OUT_DIR"), "/no-network.bpf")),
            &plain[2].0,
        ),
    ];
    for (built, compiled) in built {
        assert!(built == compiled);
        println!("{} instructions", built.len() / 8);
    }
}

#[test]
fn the_table_names_calls_that_there_are() {
    let exists = |name: &str| {
        ARCHES
            .iter()
            .any(|(arch, _, _)| number(name, *arch).is_some())
    };
    let named = REFUSED.iter().map(|row| row.0);
    let named = named.chain(LEFT.iter().map(|(name, _)| *name));
    let named = named.chain(HIDDEN.iter().map(|(name, _)| *name));
    for name in named.chain(ONLY_VALUES.iter().map(|(name, _, _)| *name)) {
        assert!(exists(name), "{name}");
    }
    for (name, reason) in LEFT {
        let refused = |row: &Refusal| row.0 == *name && row.3 == For::Every;
        let refused = REFUSED.iter().any(refused);
        assert!(
            !refused && !reason.is_empty(),
            "{name} is refused after all"
        );
    }
    for row in REFUSED {
        assert!(!row.4.is_empty(), "{row:?} has no reason");
        for test in row.1 {
            if let Test::NoneOf(_, values) = test {
                assert!(values.is_sorted(), "{row:?}");
            }
        }
    }
    // The last number is a name here, so nothing before it is missing for the
    // age of the library.
    for (arch, _, _) in ARCHES {
        assert_eq!(known_calls(arch).last().unwrap().0, NEWEST_KNOWN);
    }
}

#[test]
fn what_a_browser_box_opens_is_said_in_words() {
    let mut rows: Vec<&str> = REFUSED
        .iter()
        .filter(|row| row.3 == For::Plain)
        .map(|row| row.0)
        .collect();
    let mut words: Vec<&str> = opened(BoxClass::Browser)
        .iter()
        .flat_map(|opened| opened.calls.iter().copied())
        .collect();
    rows.sort_unstable();
    words.sort_unstable();
    assert_eq!(rows, words);
    assert!(opened(BoxClass::Plain).is_empty());
}

#[test]
fn the_table_as_text() {
    let mut text = String::new();
    writeln!(text, "known: up to {NEWEST_KNOWN}; later numbers: ENOSYS").unwrap();
    for (arch, name, _) in ARCHES {
        writeln!(text, "known on {name}: {}", known_calls(arch).count()).unwrap();
    }
    writeln!(text, "\nanswered as unknown").unwrap();
    for (name, reason) in HIDDEN {
        writeln!(text, "{name}{} | ENOSYS | {reason}", on(name)).unwrap();
    }
    for (name, values, reason) in ONLY_VALUES {
        let low = "the low 32 bits of argument 0 are none of";
        writeln!(
            text,
            "{name}{} | {low} {values:#x?} | ENOSYS | {reason}",
            on(name)
        )
        .map(|()| text = text.replace("\n    ", " ").replace(",\n]", " ]"))
        .unwrap();
    }
    writeln!(
        text,
        "\nrefused: call | condition | answer | boxes | reason"
    )
    .unwrap();
    for row in REFUSED {
        writeln!(text, "{}", line(row)).unwrap();
    }
    writeln!(text, "\njudged, and let through").unwrap();
    for (name, reason) in LEFT {
        writeln!(text, "{name}{} | {reason}", on(name)).unwrap();
    }
    writeln!(text, "\na browser box opens").unwrap();
    for opened in opened(BoxClass::Browser) {
        writeln!(text, "{} | {}", opened.calls.join(", "), opened.what).unwrap();
    }
    insta::assert_snapshot!(text);
}

/// Where a call is not on both architectures.
fn on(name: &str) -> String {
    let mut there = ARCHES
        .iter()
        .filter(|(arch, _, _)| number(name, *arch).is_some());
    match (there.next(), there.next()) {
        (Some(_), Some(_)) => String::new(),
        (Some((_, only, _)), None) => format!(" ({only} only)"),
        _ => " (nowhere)".into(),
    }
}

fn line(row: &Refusal) -> String {
    let (name, tests, answer, boxes, reason) = row;
    let condition = |test: &Test| match *test {
        Test::Low(arg, value) => format!("low 32 bits of argument {arg} are {value:#x}"),
        Test::Is(arg, value) => format!("argument {arg} is {value}"),
        Test::NoneOf(arg, values) => format!("argument {arg} is none of {values:?}"),
        Test::Has(arg, bits) => format!("argument {arg} has {bits:#x}"),
        Test::Part(arg, mask, bits) => format!("argument {arg} has of {mask:#x} just {bits:#x}"),
    };
    let conditions: Vec<String> = tests.iter().map(condition).collect();
    let conditions = match conditions.as_slice() {
        [] => "always".to_owned(),
        some => some.join(" and "),
    };
    let answer = match answer {
        Answer::Eperm => "EPERM",
        Answer::Enosys => "ENOSYS",
        Answer::Eprotonosupport => "EPROTONOSUPPORT",
        Answer::Eafnosupport => "EAFNOSUPPORT",
    };
    let boxes = match boxes {
        For::Every => "every",
        For::Plain => "plain",
        For::NoNetwork => "no network namespace",
        For::NoNamespaces => "no namespaces",
    };
    let on = on(name);
    format!("{name}{on} | {conditions} | {answer} | {boxes} | {reason}")
}
