//! What the system call filter of a class of box lets through that the plain
//! one refuses. The filter itself is a table of `fence`; a test holds the two
//! together.

use bailey_model::BoxClass;

/// One thing that a class opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// The calls, as the filter's table names them.
    pub calls: &'static [&'static str],
    /// What that comes to, for a person.
    pub what: &'static str,
}

const BROWSER: &[Opened] = &[
    Opened {
        calls: &["clone", "unshare"],
        what: "user namespaces of its own, with every capability inside them",
    },
    Opened {
        calls: &["clone", "unshare"],
        what: "process namespaces of its own",
    },
    Opened {
        calls: &["clone", "unshare"],
        what: "empty network namespaces of its own, whose interfaces, routes, queues and raw \
               packets reach more of the kernel",
    },
    Opened {
        calls: &["chroot"],
        what: "chroot, to take its own view of files away",
    },
];

/// What the class opens beside the plain one, for a browser to make its own
/// sandbox. Mounts, joining a namespace and all else stay refused.
#[must_use]
pub const fn opened(class: BoxClass) -> &'static [Opened] {
    match class {
        BoxClass::Plain => &[],
        BoxClass::Browser => BROWSER,
    }
}
