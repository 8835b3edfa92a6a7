//! How much of anything is taken of a writer, and of an account.

use bailey_envelope::{DevicePublic, Header, Kind};
use bailey_model::DeviceId;

use crate::account::Act;
use crate::chains::Chain;
use crate::error::IngestError;
use crate::store::Store;

/// Most chains of one writer: a start of it makes four, so this is ten starts a day for
/// nine years. Those of which only a tombstone is left are among them.
pub(super) const MAX_CHAINS: usize = 131_072;
/// Most records of an account that are taken: judging who is a member stays well
/// below a second.
pub(crate) const MAX_RECORDS: usize = 1024;
/// Most acts of one kind by one writer, so that no device uses up the account's room.
pub(crate) const MAX_OF_KIND: usize = 128;
/// Room that only removals, acks and resets may use. Members that lie can use it up; a
/// reset by the recovery keys then still finds room.
const KEPT_FREE: usize = 256;
/// Most records kept of one writer that is no member, and that nobody else rests on; as
/// many of all writers together that never were one. They decide nothing, and whoever
/// was removed may go on making them.
pub(crate) const MAX_HELD: usize = 32;
/// Highest segment number within one chain.
pub(super) const MAX_SEGMENT: u32 = 65_536;

impl Store {
    pub(super) fn check_caps(&self, chain: &Chain, header: &Header) -> Result<(), IngestError> {
        let fields = &header.fields;
        let writer = fields.chain.writer;
        if chain.seq == 0 {
            let chains = self.chains.keys().filter(|id| id.writer == writer).count();
            if chains >= MAX_CHAINS {
                return Err(IngestError::TooManyChains(writer));
            }
        }
        if fields.chain.doc.is_plain() {
            let fits = fields.segment == 0;
            return if fits {
                Ok(())
            } else {
                Err(IngestError::Misfit("segment"))
            };
        }
        match fields.kind {
            Kind::Tail | Kind::Closed => {}
            Kind::Head | Kind::Record => return Err(IngestError::Misfit("kind")),
        }
        if fields.segment == 0 || fields.segment > MAX_SEGMENT || fields.segment < chain.segment {
            return Err(IngestError::Misfit("segment"));
        }
        if fields.segment == chain.segment && header.key_id != chain.key_id {
            return Err(IngestError::Misfit("key within a segment"));
        }
        Ok(())
    }

    /// Whether the account has room for one more record.
    pub(super) fn check_room(&self, writer: &DeviceId, act: &Act) -> Result<(), IngestError> {
        let nodes = self.account.as_ref().map(|account| account.records.nodes());
        let nodes = nodes.unwrap_or_default();
        let shuts = matches!(
            act,
            Act::Remove { .. } | Act::Ack { .. } | Act::Reset { .. }
        );
        let recovery = self.members().recovery().map(DevicePublic::id);
        let room = match act {
            // Members can fill an account, and this is what is left then. Nobody else can
            // write one, and the number of these is bounded below.
            Act::Reset { .. } if recovery == Some(*writer) => usize::MAX,
            _ if shuts => MAX_RECORDS,
            _ => MAX_RECORDS - KEPT_FREE,
        };
        // What a joining device is handed is bounded as a whole, and comes in any order.
        if recovery != Some(*writer) && self.db.is_autocommit() && self.said_enough(writer) {
            return Err(IngestError::Misfit(
                "a device that is no member has said enough",
            ));
        }
        let kind = std::mem::discriminant(act);
        let same = nodes
            .iter()
            .filter(|node| node.signer == *writer && std::mem::discriminant(&node.act) == kind);
        if nodes.len() >= room || same.count() >= MAX_OF_KIND {
            return Err(IngestError::Misfit("account has too many records"));
        }
        Ok(())
    }
    /// Whether as much is held of a writer that is no member as may be.
    fn said_enough(&self, writer: &DeviceId) -> bool {
        let Some(account) = self.account.as_ref() else {
            return false;
        };
        let members = &account.members;
        if members.is_empty() || members.get(writer).is_some() {
            return false;
        }
        let was_member = members.was_removed(writer);
        let counts = |signer: &DeviceId| match was_member {
            true => signer == writer,
            false => members.writer(signer).is_none(),
        };
        let nodes = account.records.nodes().iter();
        let held = nodes.filter(|node| {
            let from = account.held.get(&(node.signer, node.incarnation));
            counts(&node.signer) && from.is_some_and(|from| node.seq >= *from)
        });
        held.count() >= MAX_HELD
    }
}
