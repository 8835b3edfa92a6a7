//! One borrow that the TUN's crate does not offer.

/// The descriptor of a TUN, for as long as it is there.
pub(super) fn borrow(tun: &tun_tap::Iface) -> std::os::fd::BorrowedFd<'_> {
    use std::os::fd::{AsRawFd, BorrowedFd};
    // SAFETY: the interface owns the descriptor and outlives the borrow.
    unsafe { BorrowedFd::borrow_raw(tun.as_raw_fd()) }
}
