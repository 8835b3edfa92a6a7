//! bailey
fn main() {}
