//! bailey-docs-store
