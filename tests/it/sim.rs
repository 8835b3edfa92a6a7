//! Histories of a few devices, by chance. `make sim` runs more of them.

use bailey_tests::sim;

#[test]
fn whatever_befalls_its_devices_an_account_comes_together() {
    let sum = sim::run_many(1, 100).unwrap();
    // Histories in which nothing happens prove nothing.
    assert!(sum.devices > 250, "{sum}");
    assert!(sum.crashes > 250, "{sum}");
    assert!(sum.read > 5_000, "{sum}");
}
