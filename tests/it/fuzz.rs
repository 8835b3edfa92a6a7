//! The targets of `bailey-fuzz`, each over a few inputs: that they run, and
//! what they found once stays found.

use bailey_tests::fuzz::{hex, targets};

#[test]
fn every_target_bears_its_inputs() {
    for target in targets() {
        let name = target.name();
        let of_seeds = (0..200).map(|seed| (format!("seed {seed}"), target.input(seed)));
        let of_pool = target.pool().iter().cloned().enumerate();
        let of_pool = of_pool.map(|(at, input)| (format!("pool {at}"), input));
        for (from, input) in of_pool.chain(of_seeds) {
            if let Err(said) = target.run(&input) {
                panic!("{name}, {from}: {said}\n{}", hex(&input));
            }
        }
    }
}

#[test]
fn every_target_starts_from_something_and_a_seed_is_an_input() {
    for target in targets() {
        assert!(!target.pool().is_empty(), "{target:?}");
        assert!((0..50).all(|seed| target.input(seed) == target.input(seed)));
        let different: std::collections::BTreeSet<Vec<u8>> =
            (0..50).map(|seed| target.input(seed)).collect();
        assert!(different.len() > 30, "{target:?}: {}", different.len());
    }
}
