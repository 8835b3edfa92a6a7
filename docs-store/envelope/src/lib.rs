//! bailey-envelope
