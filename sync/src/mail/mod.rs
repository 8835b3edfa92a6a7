//! A mailbox and its devices over QUIC: the ends of [`bailey_session::mail`].

mod device;
mod listener;

pub use bailey_session::ByeReason;
pub use bailey_session::mail::{
    AddressError, MAX_PUTS, MailAddress, MailServer, MailServerEvent, Refusal,
};
pub use device::{MailCommand, MailDevice, MailEvent};
pub use listener::{Incoming, Line, LineEvent, Listener};

#[cfg(test)]
mod tests;
