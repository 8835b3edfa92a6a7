//! Loads the two compiled programs; see `seccomp/table.rs` for what they say.

use std::io;

use crate::sys;

/// Permits what has a known number. First, because it must let the second in.
const KNOWN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/known.bpf"));
/// Refuses what stands in the table.
const REFUSED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/refused.bpf"));
/// Bytes of one instruction (`struct sock_filter`).
const INSTRUCTION: usize = 8;

/// Confines this process and all that it starts. Needs no_new_privs.
///
/// # Errors
/// When the kernel refuses a program.
pub(crate) fn load() -> io::Result<()> {
    for bytes in [KNOWN, REFUSED] {
        sys::load_filter(&mut instructions(bytes))?;
    }
    Ok(())
}

fn instructions(bytes: &[u8]) -> Vec<libc::sock_filter> {
    let (whole, _) = bytes.as_chunks::<INSTRUCTION>();
    whole
        .iter()
        .map(|&[a, b, jt, jf, k0, k1, k2, k3]| libc::sock_filter {
            code: u16::from_ne_bytes([a, b]),
            jt,
            jf,
            k: u32::from_ne_bytes([k0, k1, k2, k3]),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_programs_are_whole_and_within_the_kernels_bound() {
        for bytes in [KNOWN, REFUSED] {
            assert_eq!(bytes.len() % INSTRUCTION, 0);
            let count = instructions(bytes).len();
            // BPF_MAXINSNS of <linux/bpf_common.h>.
            assert!((10..4096).contains(&count), "{count}");
        }
    }
}
