//! The store from outside: one device, several devices.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod aged;
mod check;
mod common;
mod crash;
mod damage;
mod devices;
mod disk;
mod epochs;
mod frozen;
mod joining;
mod journal;
mod ledger;
mod membership;
mod model;
mod pages;
mod recovery;
mod states;
mod thinning;
