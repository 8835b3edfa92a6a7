//! bailey-session
