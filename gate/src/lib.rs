//! bailey-gate
