//! What a person writes in `config.toml` (XDG configuration folder, `bailey/`).
//!
//! Read once, when the node starts. A key that is not known is refused with its
//! place: a setting that is misspelt must not be one that is silently not there.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bailey_sync::mail::MailAddress;
use serde::{Deserialize, Deserializer, de};

/// Most bytes of the file.
const MAX_CONFIG: u64 = 64 << 10;
/// Most boxes that have settings of their own.
const MAX_BOXES: usize = 1024;
/// Most mailboxes.
pub(crate) const MAX_MAILBOXES: usize = 4;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The window where nothing is said.
const WINDOW: Window = Window(DAY.saturating_mul(30));
/// The shortest and the longest window: a segment may be a day old before it
/// closes, and nobody can promise ten years.
const WINDOWS: (Duration, Duration) = (DAY, DAY.saturating_mul(3650));

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file is there and cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What failed.
        source: io::Error,
    },
    /// Somebody else could have written it.
    #[error(
        "{path}: belongs to uid {owner} with mode {mode:03o}; only you may be able to write it"
    )]
    Shared {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its permission bits.
        mode: u32,
    },
    /// It is no configuration.
    #[error("{path}: more than {MAX_CONFIG} bytes")]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// It says what is not understood; the text shows the place.
    #[error("{path}: {reason}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line, column, what is there and what is wrong with it.
        reason: String,
    },
}

/// The whole file; what is not said has its default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// `[audit]`
    pub audit: Audit,
    /// `[keys]`
    pub keys: Keys,
    /// `[metrics]`
    pub metrics: Metrics,
    /// `[sync]`
    pub sync: SyncSettings,
}

/// What is kept of what boxes did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Audit {
    /// How long an entry is kept: `"30d"`, `"36h"`; one to 3,650 days.
    pub window: Window,
    /// When what is written is safe from a power cut.
    pub durable: Durable,
    /// `[audit.box.NAME]`: what is different for one box.
    #[serde(rename = "box", deserialize_with = "few")]
    pub boxes: BTreeMap<String, BoxAudit>,
}

impl Audit {
    /// The window of a box by its name.
    #[must_use]
    pub fn window_of(&self, name: &str) -> Window {
        self.boxes
            .get(name)
            .and_then(|own| own.window)
            .unwrap_or(self.window)
    }
}

/// What is different for one box.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BoxAudit {
    /// How long its entries are kept.
    pub window: Option<Window>,
}

/// When what is written is safe from a power cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durable {
    /// At most 250 ms later; grants, stops and what raised a notice at once.
    #[default]
    Soon,
    /// Before anybody acts on it, each entry.
    Each,
}

/// How the device's keys are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Keys {
    /// What seals them on the disk.
    pub at_rest: AtRest,
}

/// What seals the device's keys on the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AtRest {
    /// The Secret Service, if it answers when they are made; as they are, later.
    #[default]
    Auto,
    /// The Secret Service, from now on.
    SecretService,
    /// Nothing, from now on: a file that only its owner can read.
    File,
}

/// Figures of the node for Prometheus.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Metrics {
    /// An address of the node's loopback to serve them on, `"127.0.0.1:9464"`.
    #[serde(deserialize_with = "loopback")]
    pub listen: Option<SocketAddr>,
}

/// How devices hear of one another beside their sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SyncSettings {
    /// One mailbox, or a few, as `bailey mailbox` prints itself: `"KEY@HOST:PORT"`.
    #[serde(rename = "mailbox", deserialize_with = "mailboxes")]
    pub mailboxes: Vec<MailAddress>,
}

/// How long entries are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window(Duration);

impl Window {
    /// As a span of time, a whole number of hours.
    #[must_use]
    pub fn span(self) -> Duration {
        self.0
    }
}

impl Default for Window {
    fn default() -> Self {
        WINDOW
    }
}

impl<'de> Deserialize<'de> for Window {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let span = span(&text).ok_or_else(|| {
            de::Error::custom("a window is a whole number of days or hours: \"30d\", \"36h\"")
        })?;
        if span < WINDOWS.0 || span > WINDOWS.1 {
            return Err(de::Error::custom("a window is between 1d and 3650d"));
        }
        Ok(Self(span))
    }
}

fn span(text: &str) -> Option<Duration> {
    let (count, unit) = match (text.strip_suffix('d'), text.strip_suffix('h')) {
        (Some(days), _) => (days, 24 * 60 * 60),
        (None, Some(hours)) => (hours, 60 * 60),
        (None, None) => return None,
    };
    if count.is_empty() || !count.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = count.parse().ok()?;
    count.checked_mul(unit).map(Duration::from_secs)
}

fn few<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, BoxAudit>, D::Error> {
    let boxes = BTreeMap::deserialize(deserializer)?;
    if boxes.len() > MAX_BOXES {
        return Err(de::Error::custom(format!("more than {MAX_BOXES} boxes")));
    }
    Ok(boxes)
}

fn loopback<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    let addr = SocketAddr::deserialize(deserializer)?;
    if !addr.ip().is_loopback() {
        return Err(de::Error::custom(
            "metrics are served on the loopback alone",
        ));
    }
    Ok(Some(addr))
}

fn mailboxes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<MailAddress>, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "a mailbox, \"KEY@HOST:PORT\", or a list of them"
    )]
    enum Said {
        One(String),
        Several(Vec<String>),
    }
    let said = match Said::deserialize(deserializer)? {
        Said::One(one) => vec![one],
        Said::Several(several) => several,
    };
    if said.len() > MAX_MAILBOXES {
        return Err(de::Error::custom(format!(
            "more than {MAX_MAILBOXES} mailboxes"
        )));
    }
    let mut found: Vec<MailAddress> = Vec::new();
    for text in said {
        let one: MailAddress = text.parse().map_err(de::Error::custom)?;
        if found.iter().any(|other| other.key == one.key) {
            return Err(de::Error::custom("the same mailbox twice"));
        }
        found.push(one);
    }
    Ok(found)
}

impl Config {
    /// Reads `config.toml` of this folder. No file is an empty one.
    ///
    /// # Errors
    /// When it cannot be read, others can write it, or it says what is not known.
    pub fn load(folder: &Path) -> Result<Self, ConfigError> {
        let path = folder.join("config.toml");
        let at = |source| ConfigError::Io {
            path: path.clone(),
            source,
        };
        // A pipe in its place must not make the node wait.
        let opened = File::options()
            .read(true)
            .custom_flags(nix::libc::O_NONBLOCK)
            .open(&path);
        let file = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            opened => opened.map_err(at)?,
        };
        let meta = file.metadata().map_err(at)?;
        if !meta.is_file() {
            return Err(at(io::Error::other("no regular file")));
        }
        let own = nix::unistd::geteuid().as_raw();
        if (meta.uid() != own && meta.uid() != 0) || meta.mode() & 0o022 != 0 {
            return Err(ConfigError::Shared {
                owner: meta.uid(),
                mode: meta.mode() & 0o777,
                path,
            });
        }
        let mut text = String::new();
        let mut bounded = file.take(MAX_CONFIG + 1);
        bounded.read_to_string(&mut text).map_err(at)?;
        if text.len() as u64 > MAX_CONFIG {
            return Err(ConfigError::TooLarge { path });
        }
        Self::parse(&text).map_err(|reason| ConfigError::Syntax { path, reason })
    }

    /// What is wrong is one line, with its place.
    fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            let message = error.message().replace('\n', " ");
            match before {
                Some(before) => {
                    let line = before.split('\n').count();
                    let column = before.rsplit('\n').next().unwrap_or_default();
                    format!(
                        "line {line}, column {}: {message}",
                        column.chars().count() + 1
                    )
                }
                None => message,
            }
        })
    }
}

#[cfg(test)]
mod tests;
