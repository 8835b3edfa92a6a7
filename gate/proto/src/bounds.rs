//! How much memory a box can make its gate hold.

use crate::dns::{MAX_QUESTIONS, MAX_TCP_EXCHANGES};
use crate::flow::{MAX_DNS_TCP, MAX_PEEKED_BYTES, MAX_TCP_BUFFERS, MAX_WAITING_BYTES};
use crate::flow_dns::{MAX_ANSWER, MAX_CONNECTION_BYTES};
use crate::fragments::MAX_FRAGMENT_BYTES;
use crate::icmp::MAX_WAITING_ECHO_BYTES;
use crate::packet::MAX_PACKET;
use crate::tcp_live::MAX_SPARE_BYTES;

/// Most bytes of buffers that one box's gate holds, whatever the box does: of its TCP
/// flows and those kept for the next ones, of its questions to the gate's DNS, of
/// datagrams, echoes and fragments that wait, of hellos that are read. Tables beside
/// them are bounded in number, and small. The kernel's own buffers of sockets are not
/// in it.
pub const MAX_BUFFER_BYTES: usize = MAX_TCP_BUFFERS
    + MAX_SPARE_BYTES
    + MAX_DNS_TCP * MAX_CONNECTION_BYTES
    // Answers that resolvers are still to give, and what they are read into.
    + MAX_QUESTIONS * MAX_ANSWER
    + MAX_TCP_EXCHANGES * 2 * MAX_ANSWER
    // Of flows that go out and of those that came in; the last one that is let in may
    // be the longest.
    + 2 * (MAX_WAITING_BYTES + MAX_PACKET)
    + MAX_WAITING_ECHO_BYTES
    + MAX_PACKET
    + MAX_PEEKED_BYTES
    + MAX_FRAGMENT_BYTES
    + MAX_PACKET;
