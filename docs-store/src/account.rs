//! The account: who is a member, as a pure function of the records there are.

mod members;
mod record;

pub use members::{Member, Members};
pub(crate) use members::{Node, members_of};
pub(crate) use record::{Act, Genesis, MAX_SEEN, Record};
pub use record::{AddOffer, OfferError, RecordError, Role};
