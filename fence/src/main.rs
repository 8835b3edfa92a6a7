//! bailey-fence
fn main() {}
