//! Sockets, terminals, and other places where programs meet.

use bailey_tests::escape::Yard;

use super::{held, passes};

#[test]
fn no_abstract_socket_is_reached() {
    held("abstract-socket");
}

#[test]
fn no_socket_is_reached_through_a_read_only_grant() {
    held("socket-in-read-only");
}

#[test]
fn no_fifo_is_reached_through_a_read_only_grant() {
    held("fifo-in-read-only");
}

/// It is a door, and the person is told of it before the start.
#[test]
fn a_socket_in_a_writable_grant_is_reached_and_named_at_the_start() {
    passes("socket-in-writable");
    let yard = Yard::new();
    let grant = format!("{}:rw", yard.path("stage/rw").display());
    let output = yard.bailey(&["run", "--grant", &grant, "--", "true"]).ok();
    assert!(
        output
            .stderr
            .contains("holds socket: what listens there is open to the box"),
        "{output}"
    );
}

#[test]
fn shared_memory_of_the_machine_is_not_found() {
    held("sysv-shared-memory");
}

#[test]
fn message_queues_of_the_machine_are_not_found() {
    held("message-queue");
}

#[test]
fn the_hosts_loopback_is_not_reached_where_the_network_is_not_shared() {
    held("loopback-of-host");
}

#[test]
fn the_hosts_sockets_are_not_listed_where_the_network_is_not_shared() {
    held("socket-names");
}

#[test]
fn the_hypervisor_is_not_reached_by_vsock() {
    held("vsock");
}

#[test]
fn rare_address_families_are_not_there() {
    held("odd-families");
}

#[test]
fn of_netlink_only_route_is_there() {
    held("netlink-others");
}

#[test]
fn nothing_is_typed_into_the_callers_terminal() {
    held("type-into-terminal");
}

#[test]
fn nor_with_bits_above_the_32nd() {
    held("type-with-high-bits");
}

#[test]
fn the_consoles_own_requests_are_refused() {
    held("terminal-of-linux");
}

#[test]
fn no_line_discipline_is_loaded() {
    held("line-discipline");
}

#[test]
fn one_box_cannot_take_all_that_a_user_may_watch() {
    held("take-all-inotify");
}
