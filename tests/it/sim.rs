//! Histories of a few devices, by chance. `make sim` runs more of them.

use bailey_tests::sim;

#[test]
fn whatever_befalls_its_devices_an_account_comes_together() {
    let sum = sim::run_many(1, 400).unwrap();
    // Histories in which nothing happens prove nothing.
    assert!(sum.devices > 1_000, "{sum}");
    assert!(sum.crashes > 300, "{sum}");
    assert!(sum.removed > 80, "{sum}");
    assert!(sum.forged > 100, "{sum}");
    assert!(sum.letters > 2_000, "{sum}");
    assert!(sum.read > 8_000, "{sum}");
}
