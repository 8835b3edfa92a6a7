//! The kernel: what of it is reached, and with which privileges.

use super::held;

#[test]
fn io_uring_is_not_there() {
    held("io-uring");
}

#[test]
fn no_program_is_loaded_into_the_kernel() {
    held("bpf");
}

#[test]
fn the_machine_is_not_watched_by_perf() {
    held("perf-event");
}

#[test]
fn no_page_fault_is_held_by_a_program() {
    held("userfaultfd");
}

#[test]
fn no_key_is_put_into_a_keyring() {
    held("keyring");
}

#[test]
fn processes_are_not_compared() {
    held("kcmp");
}

#[test]
fn the_calls_that_read_other_memory_are_refused() {
    held("memory-of-own");
}

#[test]
fn no_file_is_opened_by_its_handle() {
    held("open-by-handle");
}

#[test]
fn memory_that_is_read_is_not_made_executable() {
    held("personality");
}

#[test]
fn nothing_is_mounted() {
    held("mount");
}

#[test]
fn nothing_is_unmounted() {
    held("umount");
}

#[test]
fn the_root_is_not_changed() {
    held("chroot");
}

#[test]
fn no_namespace_is_joined() {
    held("setns");
}

#[test]
fn the_newer_mount_calls_are_not_there() {
    held("new-mount-calls");
}

#[test]
fn no_user_namespace_is_made_by_unshare() {
    held("user-namespace-unshare");
}

#[test]
fn nor_by_clone() {
    held("user-namespace-clone");
}

#[test]
fn nor_by_clone3() {
    held("user-namespace-clone3");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_entry_of_32_bit_programs_is_closed() {
    held("i386-entry");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn no_socket_is_made_by_it() {
    held("i386-socket");
}

#[test]
fn set_id_programs_give_no_privilege() {
    held("no-new-privileges");
}

#[test]
fn there_is_no_capability() {
    held("capabilities");
}

#[test]
fn none_can_be_had_again() {
    held("bounding-set");
}
