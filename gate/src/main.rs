//! bailey-gate
fn main() {}
