//! bailey-gate-proto
