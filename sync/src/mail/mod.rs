//! A mailbox and its devices over QUIC: the ends of [`bailey_session::mail`].

mod address;
mod device;
mod listener;

pub use address::{AddressError, MailAddress};
pub use bailey_session::ByeReason;
pub use bailey_session::mail::{MAX_PUTS, MailServer, MailServerEvent, Refusal};
pub use device::{MailCommand, MailDevice, MailEvent};
pub use listener::{Incoming, Line, LineEvent, Listener};

#[cfg(test)]
mod tests;
