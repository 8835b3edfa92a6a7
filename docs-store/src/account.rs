//! The account: who is a member, as a pure function of the records there are.

mod judge;
mod members;
mod offer;
mod record;
mod set;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use judge::{Held, Node, Records};
pub use members::{Member, Members, Removal};
pub use offer::{AddOffer, OfferError};
pub(crate) use record::{Act, Genesis, MAX_NAMED, MAX_SEEN, Record};
pub use record::{RecordError, Role};
