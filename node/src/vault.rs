//! How the device's keys stand on the disk: sealed by a key of the person's Secret
//! Service where there is one, else in a file that only the person can read.
//!
//! ```text
//! none yet ── at_rest = auto, service answers and is unlocked ──► sealed
//!    │  └──── at_rest = secret-service ─────────────────────────► sealed, or no start
//!    └─────── else ─────────────────────────────────────────────► plain
//! plain  ──── at_rest = secret-service ─────────────────────────► sealed, or no start
//! sealed ──── at_rest = file ───────────────────────────────────► plain
//! ```
//!
//! What is sealed stays so whatever is reachable later: a service that is locked or
//! away ends the start with the reason, and nothing is made anew.

mod secret_service;

use std::path::Path;

use bailey_docs_store::{
    DeviceKeys, Guard, GuardId, Kept, OsEntropy, device_keys_kept, keep_device_keys,
    load_device_keys, load_or_create_device_keys,
};

use self::secret_service::{Service, ServiceError};
use crate::api::Failure;
use crate::config::AtRest;
use crate::log::log;

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VaultError {
    /// The file.
    #[error(transparent)]
    File(#[from] bailey_docs_store::KeyFileError),
    /// The Secret Service.
    #[error("Secret Service: {0}")]
    Service(#[from] ServiceError),
    /// It answers and has not got the key.
    #[error("Secret Service: it has no key {0}, which seals this device's keys")]
    Missing(GuardId),
    /// No random bytes for a new key.
    #[error(transparent)]
    Entropy(#[from] bailey_docs_store::NoEntropy),
}

impl From<VaultError> for Failure {
    fn from(error: VaultError) -> Self {
        Self::host(format!("device keys: {error}"))
    }
}

/// The device's keys; made, or kept in another way, where that is what is asked.
pub(crate) async fn device_keys(path: &Path, asked: AtRest) -> Result<DeviceKeys, VaultError> {
    match device_keys_kept(path)? {
        None => fresh(path, asked).await,
        Some(Kept::Plain) => {
            let keys = load_or_create_device_keys(path, None, &mut OsEntropy)?;
            if asked == AtRest::SecretService {
                let guard = Service::reach().await?.make(path).await?;
                keep_device_keys(path, &keys, Some(&guard), &mut OsEntropy)?;
                log!("device keys: sealed by the Secret Service from now on");
            }
            Ok(keys)
        }
        Some(Kept::Guarded(id)) => {
            let service = Service::reach().await?;
            let guard = service.find(id).await?.ok_or(VaultError::Missing(id))?;
            let keys = load_or_create_device_keys(path, Some(&guard), &mut OsEntropy)?;
            if asked == AtRest::File {
                keep_device_keys(path, &keys, None, &mut OsEntropy)?;
                log!("device keys: in a file that only you can read from now on");
                // What opens nothing any more may as well stay.
                if let Err(error) = service.forget(id).await {
                    log!("Secret Service: {error}");
                }
            }
            Ok(keys)
        }
    }
}

/// The device's keys as they are, for a command line that works without a node;
/// `None` where there are none.
pub(crate) fn existing_keys(path: &Path) -> Result<Option<DeviceKeys>, Failure> {
    let guard = match device_keys_kept(path).map_err(VaultError::from)? {
        Some(Kept::Guarded(id)) => Some(alone(async {
            Service::reach()
                .await?
                .find(id)
                .await?
                .ok_or(VaultError::Missing(id))
        })??),
        _ => None,
    };
    Ok(load_device_keys(path, guard.as_ref()).map_err(VaultError::from)?)
}

/// Waits where no runtime is.
fn alone<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::host(format!("runtime: {error}")))?;
    Ok(runtime.block_on(work))
}

/// Whether a device's keys are sealed; a file that nobody can use is not.
pub(crate) fn is_sealed(path: &Path) -> bool {
    matches!(device_keys_kept(path), Ok(Some(Kept::Guarded(_))))
}

/// Whether there is a service that would seal them now.
pub(crate) fn is_offered() -> bool {
    let offered = alone(async {
        match Service::reach().await {
            Ok(service) => service.keyring().await.is_ok(),
            Err(_) => false,
        }
    });
    offered.unwrap_or_default()
}

/// Keys of a device that has none yet.
async fn fresh(path: &Path, asked: AtRest) -> Result<DeviceKeys, VaultError> {
    let guard = match asked {
        AtRest::File => None,
        AtRest::SecretService => Some(Service::reach().await?.make(path).await?),
        AtRest::Auto => match sealed_if_there(path).await {
            Ok(guard) => Some(guard),
            Err(VaultError::Service(why)) => {
                log!("device keys: in a file that only you can read ({why})");
                None
            }
            Err(error) => return Err(error),
        },
    };
    Ok(load_or_create_device_keys(
        path,
        guard.as_ref(),
        &mut OsEntropy,
    )?)
}

async fn sealed_if_there(path: &Path) -> Result<Guard, VaultError> {
    Service::reach().await?.make(path).await
}
