//! Points at which a test makes a step fail, as a full disk or a crash would.

#[cfg(test)]
thread_local! {
    static FAILS: std::cell::Cell<Option<u32>> = const { std::cell::Cell::new(None) };
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
