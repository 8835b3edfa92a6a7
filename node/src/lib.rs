//! bailey-node
