//! The harness that the integration tests and the benches share.
