//! Attacks, what they run in, and what came of them: shared by the escape
//! suite and by the table of `make escapes`.

mod catalogue;
mod sandbox;
mod yard;

pub use catalogue::{ATTACKS, Attack, Control, Promise, Words};
pub use sandbox::Sandbox;
pub use yard::Yard;

/// What came of an attack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tried {
    /// It got through, with what it got.
    Through(String),
    /// It was held, with what held it.
    Held(String),
    /// It cannot be tried there, with the reason.
    NotHere(String),
}
