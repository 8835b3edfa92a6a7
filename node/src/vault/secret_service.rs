//! The Secret Service of a desktop (freedesktop.org Secret Service API 0.2), by its
//! own bus alone and without a prompt.
//!
//! Secrets travel "plain" over the bus, a Unix socket of this user's: whoever can
//! read there can ask the service as well.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use bailey_docs_store::{Entropy as _, Guard, GuardId, OsEntropy};
use zbus::{Connection, Message, ObjectPath, OwnedObjectPath, OwnedVariant, Variant};
use zeroize::{Zeroize as _, Zeroizing};

use super::VaultError;

/// How long one question may take: a service that has to ask a person is as good as
/// none to a node that starts.
const PATIENCE: Duration = Duration::from_secs(5);
const SERVICE: &str = "org.freedesktop.secrets";
const ROOT: &str = "/org/freedesktop/secrets";
const KIND: &str = "org.freedesktop.Secret.Service";
const COLLECTION: &str = "org.freedesktop.Secret.Collection";
const ITEM: &str = "org.freedesktop.Secret.Item";

/// Why the service is of no use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServiceError {
    /// No bus of this session.
    #[error("there is no session bus")]
    NoBus,
    /// The bus, or what is behind it, refuses or does not answer.
    #[error("{0}")]
    Bus(String),
    /// There is no keyring in it to put a key into.
    #[error("it has no default keyring")]
    NoKeyring,
    /// The keyring is there and locked.
    #[error(
        "its keyring is locked; unlock it (log in to the desktop, or its password manager), then again"
    )]
    Locked,
    /// It gave something else back than was put in.
    #[error("it does not give back what was put in")]
    Wrong,
}

impl From<zbus::Error> for ServiceError {
    fn from(error: zbus::Error) -> Self {
        Self::Bus(error.to_string())
    }
}

/// A secret as it travels: session, parameters, value, content type.
type Secret = (OwnedObjectPath, Vec<u8>, Vec<u8>, String);

/// A session with the service.
pub(crate) struct Service {
    bus: Connection,
    session: OwnedObjectPath,
}

impl Service {
    /// Reaches the service of this session's bus.
    pub(crate) async fn reach() -> Result<Self, ServiceError> {
        let bus = zbus::connection::Builder::address(own_bus()?.as_str())
            .method_timeout(PATIENCE)
            .build();
        let bus = tokio::time::timeout(PATIENCE, bus)
            .await
            .map_err(|_| ServiceError::Bus("the session bus does not answer".to_owned()))??;
        let words = ("plain", Variant::from(""));
        let reply = call(&bus, ROOT, KIND, "OpenSession", &words).await?;
        let (_, session): (OwnedVariant, OwnedObjectPath) = reply.body().deserialize()?;
        Ok(Self { bus, session })
    }

    /// Makes a key for the secret file at this path and puts it into the default
    /// keyring. It has been read back.
    pub(crate) async fn make(&self, path: &Path) -> Result<Guard, VaultError> {
        let mut key = [0; 32];
        OsEntropy.fill(&mut key)?;
        let guard = Guard::new(key);
        key.zeroize();
        let keyring = self.keyring().await?;
        let label = format!(
            "bailey: {}",
            crate::show::bytes(path.as_os_str().as_encoded_bytes())
        );
        let mut about = HashMap::new();
        about.insert(
            "org.freedesktop.Secret.Item.Label",
            Variant::from(label.as_str()),
        );
        about.insert(
            "org.freedesktop.Secret.Item.Attributes",
            Variant::from(attributes(guard.id())),
        );
        let mut secret: Secret = (
            self.session.clone(),
            Vec::new(),
            guard.secret_bytes().to_vec(),
            "application/octet-stream".to_owned(),
        );
        let words = (about, &secret, true);
        let made = call(&self.bus, &keyring, COLLECTION, "CreateItem", &words).await;
        secret.2.zeroize();
        let (item, _): (OwnedObjectPath, OwnedObjectPath) =
            made?.body().deserialize().map_err(ServiceError::from)?;
        // Where it would have to ask a person first, there is no item yet.
        if item.as_str() == "/" {
            return Err(ServiceError::Locked.into());
        }
        match self.find(guard.id()).await? {
            Some(_) => Ok(guard),
            None => Err(ServiceError::Wrong.into()),
        }
    }

    /// The key of this name, if the service has it.
    pub(crate) async fn find(&self, id: GuardId) -> Result<Option<Guard>, ServiceError> {
        let (unlocked, locked) = self.search(id).await?;
        let Some(item) = unlocked.first() else {
            return match locked.is_empty() {
                true => Ok(None),
                false => Err(ServiceError::Locked),
            };
        };
        let reply = call(&self.bus, item, ITEM, "GetSecret", &(&self.session,)).await?;
        let (secret,): (Secret,) = reply.body().deserialize()?;
        let value = Zeroizing::new(secret.2);
        let key = <[u8; 32]>::try_from(value.as_slice()).map_err(|_| ServiceError::Wrong)?;
        let guard = Guard::new(key);
        match guard.id() == id {
            true => Ok(Some(guard)),
            false => Err(ServiceError::Wrong),
        }
    }

    /// Takes the key of this name out.
    pub(crate) async fn forget(&self, id: GuardId) -> Result<(), ServiceError> {
        for item in self.search(id).await?.0 {
            call(&self.bus, &item, ITEM, "Delete", &()).await?;
        }
        Ok(())
    }

    async fn search(
        &self,
        id: GuardId,
    ) -> Result<(Vec<OwnedObjectPath>, Vec<OwnedObjectPath>), ServiceError> {
        let words = (attributes(id),);
        let reply = call(&self.bus, ROOT, KIND, "SearchItems", &words).await?;
        Ok(reply.body().deserialize()?)
    }

    /// The default keyring, unlocked.
    pub(crate) async fn keyring(&self) -> Result<OwnedObjectPath, ServiceError> {
        let reply = call(&self.bus, ROOT, KIND, "ReadAlias", &("default",)).await?;
        let (keyring,): (OwnedObjectPath,) = reply.body().deserialize()?;
        if keyring.as_str() == "/" {
            return Err(ServiceError::NoKeyring);
        }
        let properties = "org.freedesktop.DBus.Properties";
        let words = (COLLECTION, "Locked");
        let reply = call(&self.bus, &keyring, properties, "Get", &words).await?;
        let (locked,): (OwnedVariant,) = reply.body().deserialize()?;
        match bool::try_from(locked) {
            Ok(false) => Ok(keyring),
            Ok(true) => Err(ServiceError::Locked),
            Err(error) => Err(error.into()),
        }
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").finish_non_exhaustive()
    }
}

/// The bus of this session: what the environment names, else the runtime folder's.
/// A place that is named by nobody is not looked into.
fn own_bus() -> Result<String, ServiceError> {
    if let Some(named) = std::env::var_os("DBUS_SESSION_BUS_ADDRESS") {
        return named.into_string().map_err(|_| ServiceError::NoBus);
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").ok_or(ServiceError::NoBus)?;
    let path = Path::new(&runtime).join("bus");
    match path.to_str() {
        Some(text) if path.exists() && !text.contains([',', ';', '%', '=']) => {
            Ok(format!("unix:path={text}"))
        }
        _ => Err(ServiceError::NoBus),
    }
}

fn attributes(id: GuardId) -> HashMap<&'static str, String> {
    HashMap::from([
        ("application", "bailey".to_owned()),
        ("key", id.to_string()),
    ])
}

async fn call<B>(
    bus: &Connection,
    path: &str,
    interface: &str,
    method: &str,
    words: &B,
) -> Result<Message, ServiceError>
where
    B: serde::Serialize + zbus::DynamicType,
{
    let path = ObjectPath::try_from(path)?;
    Ok(bus
        .call_method(Some(SERVICE), path, Some(interface), method, words)
        .await?)
}
