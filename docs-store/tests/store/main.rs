//! The store from outside: one device, several devices.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod check;
mod common;
mod devices;
mod joining;
mod journal;
mod pages;
