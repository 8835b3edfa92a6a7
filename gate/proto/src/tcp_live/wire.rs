//! A flow's interface as smoltcp sees it.

use std::num::{NonZeroU16, NonZeroUsize};

use bailey_model::link::MTU;
use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium, PacketMeta, RxToken, TxToken};
use smoltcp::time::Instant;

use crate::flow::Outlet;
use crate::seal;

/// smoltcp's device: one packet in, packets out through a scratch buffer.
pub(super) struct Wire<'a> {
    pub(super) packet: Option<&'a [u8]>,
    outlet: &'a mut dyn Outlet,
    scratch: &'a mut [u8],
}

impl<'a> Wire<'a> {
    pub(super) fn new(
        packet: Option<&'a [u8]>,
        outlet: &'a mut dyn Outlet,
        scratch: &'a mut [u8],
    ) -> Self {
        Self {
            packet,
            outlet,
            scratch,
        }
    }

    fn tx(&mut self) -> Tx<'_> {
        Tx {
            outlet: self.outlet,
            scratch: self.scratch,
            cut: None,
        }
    }
}

pub(super) struct Rx<'a>(&'a [u8]);

pub(super) struct Tx<'a> {
    outlet: &'a mut dyn Outlet,
    scratch: &'a mut [u8],
    cut: Option<u16>,
}

impl RxToken for Rx<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

impl TxToken for Tx<'_> {
    fn set_meta(&mut self, meta: PacketMeta) {
        self.cut = meta.segmentation_offload_size.map(NonZeroU16::get);
    }

    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let Self {
            outlet,
            scratch,
            cut,
        } = self;
        match scratch.get_mut(..len) {
            Some(space) => {
                let result = f(space);
                let open = outlet.finishes().then(|| seal::leave_open(space, cut));
                match open.flatten() {
                    Some(how) => outlet.unfinished(space, how),
                    None => {
                        seal::close(space);
                        outlet.packet(space);
                    }
                }
                result
            }
            // Never longer than the scratch, which holds the largest packet.
            None => f(&mut vec![0; len]),
        }
    }
}

impl Device for Wire<'_> {
    type RxToken<'t>
        = Rx<'t>
    where
        Self: 't;
    type TxToken<'t>
        = Tx<'t>
    where
        Self: 't;

    fn receive(&mut self, _: Instant) -> Option<(Rx<'_>, Tx<'_>)> {
        let packet = self.packet.take()?;
        Some((Rx(packet), self.tx()))
    }

    fn transmit(&mut self, _: Instant) -> Option<Tx<'_>> {
        Some(self.tx())
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = usize::from(MTU);
        // What comes out of a TUN never crossed a wire: a sum that the box's
        // own kernel has just made can only spoil the box's own flow. What goes
        // into it is sealed by the token, faster than smoltcp does, or not at all.
        capabilities.checksum.tcp = Checksum::None;
        capabilities.checksum.ipv4 = Checksum::Tx;
        if self.outlet.finishes() {
            let longest = NonZeroUsize::new(usize::from(MTU));
            capabilities.segmentation.tcpv4 = longest;
            capabilities.segmentation.tcpv6 = longest;
        }
        capabilities
    }
}
