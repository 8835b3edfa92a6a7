//! The mailbox: keeps blobs for devices that are not up together, and can read none.
//!
//! It has no key of any account. A blob is taken if its topic signed it
//! ([`bailey_envelope::verify_blob`]) and a quota has room; it is numbered, written,
//! and handed to whoever names the topic, until it is too old. One task ([`run`])
//! owns the index and every connection; reading and writing blobs are tasks beside
//! it, a few at a time.

#![forbid(unsafe_code)]

mod args;
mod clock;
mod hub;
mod identity;
mod index;
mod kept;
mod rates;

pub use args::{Args, StorePlace};
pub use hub::{RunError, run};
pub use index::Quotas;

/// Says a line on standard error. One that cannot be said is lost.
pub(crate) fn say(text: &str) {
    use std::io::Write as _;
    let _unheard = writeln!(std::io::stderr(), "bailey-mailbox: {text}");
}
