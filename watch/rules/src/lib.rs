//! bailey-rules
