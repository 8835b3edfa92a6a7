//! bailey-sync
