//! Loads the compiled programs; see `seccomp/table.rs` for what they say.

use std::io;

use bailey_model::BoxClass;

use crate::sys;

/// Permits what has a known number. First, because it must let the next in.
const KNOWN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/known.bpf"));
/// Refuses what stands in the table.
const PLAIN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/plain.bpf"));
/// The same but for what a browser's own sandbox is made of.
const BROWSER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/browser.bpf"));
/// Refuses every socket but Unix ones.
const NO_NETWORK: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/no-network.bpf"));
/// Refuses what reaches other programs and their files where no namespace parts
/// them.
const NO_NAMESPACES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/no-namespaces.bpf"));
/// Bytes of one instruction (`struct sock_filter`).
const INSTRUCTION: usize = 8;

/// Confines this process and all that it starts, as its class of box is. Needs
/// no_new_privs.
///
/// # Errors
/// When the kernel refuses a program.
pub fn load(class: BoxClass) -> io::Result<()> {
    let refused = match class {
        BoxClass::Plain => PLAIN,
        BoxClass::Browser => BROWSER,
    };
    program(KNOWN)?;
    program(refused)
}

/// Takes the network from this process and all that it starts, where there is
/// no namespace to do it. Beside [`load`], before it or after. Needs
/// no_new_privs.
///
/// # Errors
/// When the kernel refuses the program.
pub fn load_no_network() -> io::Result<()> {
    program(NO_NETWORK)
}

/// Parts this process and all that it starts from the machine's shared memory,
/// queues and semaphores, from sockets with a path, from what files are beside
/// their contents, and from other processes' limits, where there is no namespace
/// to do it. Beside [`load`], before it or after. Needs no_new_privs.
///
/// # Errors
/// When the kernel refuses the program.
pub fn load_no_namespaces() -> io::Result<()> {
    program(NO_NAMESPACES)
}

fn program(bytes: &[u8]) -> io::Result<()> {
    sys::load_filter(&mut instructions(bytes))
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
    fn each_program_is_whole_and_within_the_kernels_bound() {
        for bytes in [KNOWN, PLAIN, BROWSER, NO_NETWORK, NO_NAMESPACES] {
            assert_eq!(bytes.len() % INSTRUCTION, 0);
            let count = instructions(bytes).len();
            // BPF_MAXINSNS of <linux/bpf_common.h>.
            assert!((10..4096).contains(&count), "{count}");
        }
    }
}
