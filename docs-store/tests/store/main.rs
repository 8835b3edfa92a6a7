//! The store from outside: one device, several devices, figures.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod devices;
mod journal;
mod throughput;
