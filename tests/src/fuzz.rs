//! Targets that take any bytes, and where such bytes come from.
//!
//! Without a view into the running code there is nothing to steer by: each
//! input is a well-formed one of a small pool, changed at random, and its seed
//! alone makes it again.

mod boxes;
mod hellos;
mod mail;
mod noise;
mod pool;
mod talk;
mod texts;

use std::panic::{AssertUnwindSafe, catch_unwind};

use noise::Noise;

/// Something of bailey's that must bear any bytes.
pub struct Target {
    name: &'static str,
    run: fn(&[u8]),
    pool: Vec<Vec<u8>>,
    /// Makes a changed input pass the first check, which chance would not.
    mend: fn(&mut [u8]),
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Target({}, a pool of {})", self.name, self.pool.len())
    }
}

/// All targets: what a box, a resolver, a peer or a stored file says, and what a
/// person asks a box to be.
#[must_use]
pub fn targets() -> Vec<Target> {
    let target = |name, run, pool| Target {
        name,
        run,
        pool,
        mend: |_| {},
    };
    vec![
        target("gate_tun", bailey_gate_proto::fuzz::gate_tun, pool::tun()),
        target(
            "gate_packets",
            bailey_gate_proto::fuzz::gate_packets,
            pool::seeds(),
        ),
        target("dns", bailey_gate_proto::fuzz::fuzz_dns, pool::dns()),
        target("sni", bailey_gate_proto::fuzz::sni, hellos::streams()),
        target(
            "quic_initial",
            bailey_gate_proto::fuzz::quic_initial,
            hellos::datagrams(),
        ),
        target(
            "envelope",
            bailey_envelope::fuzz::envelope,
            pool::envelopes(),
        ),
        target(
            "blob",
            bailey_envelope::fuzz::blob,
            bailey_envelope::fuzz::blobs(),
        ),
        Target {
            mend: pool::mend_body,
            ..target("body", bailey_docs_store::fuzz_body, pool::bodies())
        },
        target("entry", bailey_docs_store::fuzz::entry, pool::entries()),
        target("row", bailey_docs_store::fuzz::row, pool::entries()),
        target(
            "key_record",
            bailey_docs_store::fuzz::key_record,
            bailey_docs_store::fuzz::key_records(),
        ),
        target(
            "account_record",
            bailey_docs_store::fuzz::account_record,
            bailey_docs_store::fuzz::account_records(),
        ),
        target("session", talk::session, talk::sessions()),
        target("pairing", talk::pairing, talk::pairings()),
        target("lan", talk::lan, talk::lans()),
        target("mailbox", mail::mailbox, mail::devices()),
        target("mail", mail::device, mail::mailboxes()),
        target("pieces", mail::pieces, mail::attempts()),
        target("texts", texts::run, pool::texts()),
        target("box_plan", boxes::run, boxes::boxes()),
        target(
            "display",
            bailey_fence_plan::display::xwd::target,
            pool::pictures(),
        ),
    ]
}

impl Target {
    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The input of a seed.
    #[must_use]
    pub fn input(&self, seed: u64) -> Vec<u8> {
        let mut noise = Noise::new(seed);
        let mut input = noise.input(&self.pool);
        // Now and then as it is: the first check has to bear it too.
        if noise.below(8) > 0 {
            (self.mend)(&mut input);
        }
        input
    }

    /// The inputs that all others are made of.
    #[must_use]
    pub fn pool(&self) -> &[Vec<u8>] {
        &self.pool
    }

    /// Runs it once.
    ///
    /// # Errors
    /// It panicked, with what it said.
    pub fn run(&self, input: &[u8]) -> Result<(), String> {
        catch_unwind(AssertUnwindSafe(|| (self.run)(input))).map_err(|payload| {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            text.or_else(|| payload.downcast_ref::<&str>().copied())
                .unwrap_or("it panicked without a word")
                .to_owned()
        })
    }
}

/// Bytes in hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|octet| format!("{octet:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told() {
        let target = Target {
            name: "broken",
            run: |input| assert!(input.is_empty(), "found {}", input.len()),
            pool: Vec::new(),
            mend: |_| {},
        };
        assert_eq!(target.run(&[]), Ok(()));
        assert_eq!(target.run(&[1]), Err("found 1".to_owned()));
        assert_eq!(hex(&[1, 0xfe]), "01fe");
    }
}
