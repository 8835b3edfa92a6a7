//! Where random bytes come from.

/// No random bytes: nothing can be sealed, so nothing goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system gives no random bytes")]
pub struct NoEntropy;

/// A source of random bytes fit for keys and nonces.
pub trait Entropy: Send {
    /// Fills a buffer.
    ///
    /// # Errors
    /// [`NoEntropy`] if there are none; the buffer's content is then not used.
    fn fill(&mut self, out: &mut [u8]) -> Result<(), NoEntropy>;
}

/// The operating system's source (getrandom(2)).
#[derive(Debug, Clone, Copy, Default)]
pub struct OsEntropy;

impl Entropy for OsEntropy {
    fn fill(&mut self, out: &mut [u8]) -> Result<(), NoEntropy> {
        getrandom::fill(out).map_err(|_| NoEntropy)
    }
}

/// An array of random bytes.
pub(crate) fn random<const N: usize>(source: &mut dyn Entropy) -> Result<[u8; N], NoEntropy> {
    let mut bytes = [0; N];
    source.fill(&mut bytes)?;
    Ok(bytes)
}
