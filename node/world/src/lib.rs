//! bailey-world
