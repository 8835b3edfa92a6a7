//! A world of network namespaces, made without root, for demos and tests.
//!
//! Nothing in it leaves the machine. A *router*, called `inet` here, carries
//! public-looking addresses on its loopback with small servers behind them,
//! and a LAN on a bridge. Each *node* (`n1`, `n2`, …) is a device of its own
//! behind that router: its own network, mount, pid, ipc and uts namespaces, its
//! own `/run`, `/proc`, `resolv.conf` and `hosts`, and one user namespace that
//! maps only an ordinary uid, so that what runs there holds no capability.
//!
//! ```text
//!   n1 ── eth0 ┐                          ┌ 93.184.216.34  web, echo
//!   n2 ── eth0 ┼─ bridge ── router (inet) ┼ 9.9.9.9        names
//!              │   .1 router, .9 printer  └ …              see `at`
//!              └─ 192.168.1.0/24, fd12:3456:789a:1::/64, 2600:1f18:aaaa:1::/64
//! ```
//!
//! The servers and the set-up run in processes of the caller's own choosing:
//! [`WorldSpec::server`] names a program, with arguments, that calls [`serve`]
//! with the arguments that follow them. The world ends with its owner: its
//! first process reads a pipe of the owner's and leaves at its end, which makes
//! the kernel end everything in the pid namespaces below it.

#![deny(missing_docs)]

pub mod addresses;
mod command;
mod control;
mod error;
mod roles;
mod seen;
mod servers;
mod spec;
#[expect(
    unsafe_code,
    reason = "a hook between fork and exec, and one socket option"
)]
mod sys;
mod world;

pub use addresses as at;
pub use error::WorldError;
pub use roles::serve;
pub use seen::{Asked, Seen, SeenKind};
pub use spec::{ORDINARY_UID, WorldSpec};
pub use world::{Node, NodeProcess, World};
