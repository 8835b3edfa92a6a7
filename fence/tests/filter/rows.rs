//! Each row in earnest: the call is made with arguments that fulfil the row's
//! condition and are bad otherwise, under the built-in programs and without.
//! Without them it must get another answer, or it says nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use bailey_model::BoxClass;
use libseccomp::ScmpArch;

use crate::compile::{errno, number};
use crate::samples::arguments_for;
use crate::sys::{self, Filter, Got, Place, within};
use crate::table::{For, HIDDEN, ONLY_VALUES, REFUSED, Refusal};

const CLASSES: [BoxClass; 2] = [BoxClass::Plain, BoxClass::Browser];
const EPERM: Got = Got::Errno(1);
const ENOSYS: Got = Got::Errno(38);
const SIGSYS: Got = Got::Signal(31);
/// Samples of one row that are made in earnest; all are run by the machine of
/// our own.
const SAMPLES: usize = 4;

/// Calls that an ordinary user's kernel may answer as the filter does, so that
/// only our own machine can tell; with the reason.
const MAY_BE_THE_SAME: &[(&str, &str)] = &[
    ("vhangup", "asks for a privilege of the whole machine first"),
    (
        "init_module",
        "asks for a privilege of the whole machine first",
    ),
    (
        "finit_module",
        "asks for a privilege of the whole machine first",
    ),
    (
        "delete_module",
        "asks for a privilege of the whole machine first",
    ),
    (
        "kexec_load",
        "asks for a privilege of the whole machine first",
    ),
    (
        "kexec_file_load",
        "asks for a privilege of the whole machine first",
    ),
    ("swapon", "asks for a privilege of the whole machine first"),
    ("swapoff", "asks for a privilege of the whole machine first"),
    ("acct", "asks for a privilege of the whole machine first"),
    (
        "syslog",
        "asks for a privilege of the whole machine first, by a setting",
    ),
    (
        "open_by_handle_at",
        "asks for a privilege of the whole machine first, in older kernels",
    ),
    ("perf_event_open", "refused to all, by a setting"),
    ("bpf", "refused to all, by a setting"),
    ("memfd_secret", "not there, by a setting"),
    ("uselib", "gone from newer kernels"),
    ("sysfs", "gone from newer kernels"),
    ("lookup_dcookie", "gone from newer kernels"),
    ("nfsservctl", "gone from newer kernels"),
];

/// Arguments that the kernel finds bad before it does anything: no descriptor,
/// no address, no flag.
fn bad(name: &str) -> [u64; 6] {
    const NO: u64 = u64::MAX;
    match name {
        // A thread without shared signals.
        "clone" => [0x1_0000, NO, NO, NO, NO, NO],
        // To be the sibling of one's parent is for clone alone.
        "unshare" => [0x8000, NO, NO, NO, NO, NO],
        // To read a table that is not there.
        "modify_ldt" => [0, 0, 0, NO, NO, NO],
        // As ordinary users may, with bad flags for what is opened.
        "fanotify_init" => [0x200, NO, NO, NO, NO, NO],
        // The size of the log.
        "syslog" => [10, 0, 0, NO, NO, NO],
        _ => [NO; 6],
    }
}

fn native(name: &str) -> Option<i64> {
    number(name, ScmpArch::native()).map(i64::from)
}

/// A row as made in a place; `None` where it says nothing there.
fn tells_apart(row: &Refusal, number: i64, place: Place) -> Option<Got> {
    let arguments = arguments_for(row, bad(row.0)).swap_remove(0);
    let without = within(place, Filter::None, || sys::raw(number, &arguments));
    match without {
        Got::NotTried(_) => None,
        got => (got != Got::Errno(errno(row.2))).then_some(got),
    }
}

fn make(row: &Refusal, number: i64, place: Place, filter: Filter) {
    for arguments in arguments_for(row, bad(row.0)).into_iter().take(SAMPLES) {
        let got = within(place, filter, || sys::raw(number, &arguments));
        assert_eq!(
            got,
            Got::Errno(errno(row.2)),
            "{filter:?} {row:?} {arguments:x?}"
        );
    }
}

#[test]
fn every_row_is_refused_by_the_kernel_and_reaches_it_without_the_filter() {
    let (mut made, mut same) = (0, BTreeMap::new());
    for row in REFUSED {
        let Some(number) = native(row.0) else {
            continue;
        };
        let places = [Place::User, Place::Namespaces];
        let place = places
            .into_iter()
            .find(|place| tells_apart(row, number, *place).is_some());
        if place.is_none() {
            let known = MAY_BE_THE_SAME.iter().find(|(name, _)| *name == row.0);
            let (name, why) = known.unwrap_or_else(|| panic!("{row:?} says nothing here"));
            same.insert(*name, *why);
        }
        let place = place.unwrap_or(Place::User);
        for class in CLASSES {
            match (row.3, class) {
                (For::NoNetwork, _) => make(row, number, place, Filter::WithoutNetwork(class)),
                (For::NoNamespaces, _) => {
                    make(row, number, place, Filter::WithoutNamespaces(class))
                }
                (For::Plain, BoxClass::Browser) => {}
                (For::Plain | For::Every, _) => make(row, number, place, Filter::Of(class)),
            }
        }
        made += 1;
    }
    println!("{made} rows of {} on this architecture", REFUSED.len());
    for (name, why) in same {
        println!("{name}: the same without the filter here ({why})");
    }
}

#[test]
fn what_a_browser_box_opens_reaches_the_kernel() {
    let opened = REFUSED.iter().filter(|row| row.3 == For::Plain);
    for row in opened {
        let number = native(row.0).unwrap();
        let without = tells_apart(row, number, Place::User).unwrap();
        let arguments = arguments_for(row, bad(row.0)).swap_remove(0);
        let filter = Filter::Of(BoxClass::Browser);
        let got = within(Place::User, filter, || sys::raw(number, &arguments));
        assert_eq!(got, without, "{row:?}");
    }
}

#[test]
fn what_is_hidden_or_has_an_unjudged_value_is_unknown() {
    for class in CLASSES {
        let both = |number: i64, arguments: [u64; 6]| {
            [Filter::None, Filter::Of(class)]
                .map(|filter| within(Place::User, filter, || sys::raw(number, &arguments)))
        };
        for (name, _) in HIDDEN {
            let [without, with] = both(native(name).unwrap(), [u64::MAX; 6]);
            assert_ne!(without, ENOSYS);
            assert_eq!(with, ENOSYS);
        }
        for (name, values, _) in ONLY_VALUES {
            let number = native(name).unwrap();
            for value in *values {
                let [without, with] = both(number, [u64::from(*value); 6]);
                assert_eq!(without, with);
            }
            // READ_IMPLIES_EXEC.
            let [without, with] = both(number, [0x40_0000; 6]);
            assert!(matches!(without, Got::Value(_)));
            assert_eq!(with, ENOSYS);
        }
        assert_eq!(both(999, [0; 6])[1], ENOSYS);
        // Later than what was judged: a newer kernel answers, the filter hides it.
        let news: Vec<Got> = (457..480)
            .map(|number| {
                let [without, with] = both(number, [u64::MAX; 6]);
                assert_eq!(with, ENOSYS, "{number}");
                without
            })
            .filter(|without| *without != ENOSYS)
            .collect();
        println!(
            "{} calls of this kernel are later than the table",
            news.len()
        );
    }
}

#[test]
fn without_a_network_only_unix_sockets_can_be_made() {
    let socket = libc::SYS_socket;
    for class in CLASSES {
        let made = |filter, family: u64, kind: u64| {
            within(Place::User, filter, || sys::raw(socket, &[family, kind, 0]))
        };
        for (family, kind) in [(1, 1), (1, 2), (2, 1), (2, 2), (10, 1), (10, 2), (16, 3)] {
            let with_network = made(Filter::Of(class), family, kind);
            assert!(
                matches!(with_network, Got::Value(_)),
                "{family}: {with_network:?}"
            );
            let alone = made(Filter::WithoutNetwork(class), family, kind);
            match family {
                1 => assert!(matches!(alone, Got::Value(_))),
                _ => assert_eq!(alone, Got::Errno(97), "{family}"),
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_i386_and_x32_entries_end_the_process() {
    type Attempt = fn() -> Got;
    let x32: Attempt = || sys::raw(0x4000_0000 | libc::SYS_getpid, &[]);
    let attempts: [(&str, Attempt); 3] = [
        ("getpid by int 0x80", sys::i386_getpid),
        ("socketcall by int 0x80", sys::i386_socketcall),
        ("getpid of x32", x32),
    ];
    for (what, attempt) in attempts {
        let without = within(Place::User, Filter::None, attempt);
        println!("{what}, without the filter: {without:?}");
        // A kernel without the entry ends the process itself, by a fault.
        assert_ne!(without, SIGSYS);
        for class in CLASSES {
            assert_eq!(
                within(Place::User, Filter::Of(class), attempt),
                SIGSYS,
                "{what}"
            );
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_tracer_cannot_change_a_call_into_a_refused_one() {
    const ESRCH: Got = Got::Errno(3);
    assert_eq!(
        within(Place::User, Filter::None, sys::kcmp_by_tracer),
        ESRCH
    );
    for class in CLASSES {
        let got = within(Place::User, Filter::Of(class), sys::kcmp_by_tracer);
        assert_eq!(got, EPERM);
    }
}

#[test]
fn a_filter_of_its_own_lifts_nothing() {
    let kcmp = libc::SYS_kcmp;
    for class in CLASSES {
        for listener in [false, true] {
            let act = || sys::after_own_filter(listener, kcmp);
            assert_eq!(within(Place::User, Filter::Of(class), act), EPERM);
        }
    }
    // The control: the program is loaded, and permits.
    let act = || sys::after_own_filter(false, kcmp);
    assert_eq!(within(Place::User, Filter::None, act), Got::Errno(3));
}

#[test]
fn nothing_is_typed_into_a_terminal_whatever_the_high_bits() {
    let plain = within(Place::User, Filter::None, || {
        sys::type_into_terminal(0x5412)
    });
    let high = 0x5412 | 1 << 32;
    let masked = within(Place::User, Filter::None, || sys::type_into_terminal(high));
    // The kernel looks at 32 bits: either both type, or it refuses both itself.
    assert_eq!(plain, masked);
    if plain != Got::Value(0) {
        println!("this kernel itself types for nobody: {plain:?}");
    }
    for class in CLASSES {
        for request in [
            0x5412,
            high,
            0x5412 | 0xffff_ffff << 32,
            0x541c,
            0x541c | 7 << 40,
        ] {
            let act = || sys::type_into_terminal(request);
            assert_eq!(within(Place::User, Filter::Of(class), act), EPERM);
        }
    }
}

#[test]
fn threads_start_though_clone3_is_unknown() {
    for class in CLASSES {
        assert_eq!(
            within(Place::User, Filter::Of(class), sys::thread),
            Got::Value(7)
        );
    }
}

#[test]
fn a_new_folder_keeps_no_set_id_bits_and_a_file_gets_none() {
    let folder = crate::support::folder("modes");
    let path = |name: &str| std::ffi::CString::new(format!("{}/{name}", folder.display())).unwrap();
    for (filter, name) in [(Filter::None, "a"), (Filter::Of(BoxClass::Plain), "b")] {
        let made = path(name);
        let act = || sys::make_folder(&made);
        assert_eq!(
            within(Place::User, filter, act),
            Got::Value(0o755),
            "{name}"
        );
        let made = path(&format!("{name}-file"));
        let act = || sys::make_file(&made, 0o6755);
        let expected = match filter {
            Filter::None => Got::Value(0o6755),
            _ => EPERM,
        };
        assert_eq!(within(Place::User, filter, act), expected, "{name}");
        // Without the bits the same call makes the file.
        let made = path(&format!("{name}-plain"));
        let act = || sys::make_file(&made, 0o755);
        assert_eq!(
            within(Place::User, filter, act),
            Got::Value(0o755),
            "{name}"
        );
    }
}

#[test]
fn a_browser_makes_its_sandbox_and_nothing_else() {
    let steps = within(
        Place::User,
        Filter::Of(BoxClass::Browser),
        sys::browser_sandbox,
    );
    if let Got::NotTried(errno) = within(Place::User, Filter::None, sys::browser_sandbox) {
        println!("this system lets no ordinary user make user namespaces (errno {errno})");
        return;
    }
    assert_eq!(steps, Got::Value(0), "the step that failed");
    let plain = within(
        Place::User,
        Filter::Of(BoxClass::Plain),
        sys::browser_sandbox,
    );
    assert_eq!(plain, Got::NotTried(1));
}

/// Says how long it takes; a bound would measure the machine.
#[test]
fn the_time_that_loading_takes() {
    for class in CLASSES {
        let mut times: Vec<Duration> = (0..41).map(|_| sys::time_of_loading(class)).collect();
        times.sort();
        println!("{class:?}: median {:?}, least {:?}", times[20], times[0]);
    }
}
