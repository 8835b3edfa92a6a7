//! Points at which a test makes a step fail, as a full disk or a crash would.

#[cfg(test)]
thread_local! {
    static FAILS: std::cell::Cell<Option<u32>> = const { std::cell::Cell::new(None) };
    static SPOILS: std::cell::Cell<Option<Vec<u8>>> = const { std::cell::Cell::new(None) };
    static PASSED: std::cell::RefCell<Vec<&'static str>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Fails if a test wants this one to.
#[cfg(test)]
pub(crate) fn point(name: &'static str) -> rusqlite::Result<()> {
    PASSED.with_borrow_mut(|passed| passed.push(name));
    match FAILS.get() {
        Some(0) => {
            FAILS.set(None);
            Err(rusqlite::Error::InvalidQuery)
        }
        left => {
            FAILS.set(left.map(|left| left - 1));
            Ok(())
        }
    }
}

/// Nothing, outside tests.
#[cfg(not(test))]
#[expect(clippy::unnecessary_wraps, reason = "as the one for tests")]
pub(crate) fn point(_name: &'static str) -> rusqlite::Result<()> {
    Ok(())
}

/// What is saved of entries: of a test that wants it, another entry in the place of the
/// first, as of a fault in what makes the saved form.
#[cfg(test)]
pub(crate) fn saved(packed: &[Vec<u8>]) -> std::borrow::Cow<'_, [Vec<u8>]> {
    let mut packed = std::borrow::Cow::Borrowed(packed);
    if let (Some(other), Some(_)) = (SPOILS.take(), packed.first()) {
        packed.to_mut()[0].clone_from(&other);
        SPOILS.set(Some(other));
    }
    packed
}

/// What is saved of entries: they themselves, outside tests.
#[cfg(not(test))]
pub(crate) fn saved(packed: &[Vec<u8>]) -> std::borrow::Cow<'_, [Vec<u8>]> {
    std::borrow::Cow::Borrowed(packed)
}

/// What is saved in the place of the first entry of a batch.
#[cfg(test)]
pub(crate) fn spoil(other: Option<Vec<u8>>) {
    SPOILS.set(other);
}

/// The point after so many fails.
#[cfg(test)]
pub(crate) fn at(count: Option<u32>) {
    PASSED.take();
    FAILS.set(count);
}

/// What was passed since.
#[cfg(test)]
pub(crate) fn passed() -> Vec<&'static str> {
    PASSED.take()
}
