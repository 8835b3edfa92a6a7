//! A kernel's error with what was being done: one error a step.

use std::io;

use bailey_fence_plan::channel::SetupError;
use rustix::io::Errno;

/// Why one step failed, before its name is put to it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StepError {
    /// What the kernel said.
    #[error("{}", io::Error::from(*.0))]
    Kernel(#[from] Errno),
    /// What the kernel said, and what that means here.
    #[error("{why}: {}", io::Error::from(*errno))]
    Because { errno: Errno, why: &'static str },
    /// It was not the kernel's refusal.
    #[error("{0}")]
    Refused(&'static str),
}

impl StepError {
    pub(crate) fn because(why: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| Self::Because { errno, why }
    }

    /// Names the step and the path.
    pub(crate) fn at(&self, step: &str, path: Option<&[u8]>) -> SetupError {
        let errno = match self {
            Self::Kernel(errno) | Self::Because { errno, .. } => errno.raw_os_error(),
            Self::Refused(_) => 0,
        };
        SetupError {
            step: step.to_owned(),
            path: path.map(<[u8]>::to_vec),
            reason: self.to_string(),
            errno,
        }
    }
}

impl From<io::Error> for StepError {
    fn from(error: io::Error) -> Self {
        Self::Kernel(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}
