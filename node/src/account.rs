//! Which of a person's accounts a process is about.
//!
//! The first one has no name of its own and is meant where none is said. Each further
//! one has a name, and by it a node of its own: folders, lock, control socket, port,
//! keys, configuration, boxes (ADR 0045). A process is about one of them from its
//! start to its end.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::sync::OnceLock;

use crate::show;

/// What the first one is called where a name is wanted.
pub(crate) const FIRST: &str = "default";
/// The variable that says which is meant, where `--account` does not.
pub(crate) const VARIABLE: &str = "BAILEY_ACCOUNT";
/// Where the folders of the others are, in those of the first: what is kept from boxes
/// of the first is kept from theirs.
pub(crate) const FOLDER: &str = "accounts";
/// Most of them beside the first; a person has a few.
pub(crate) const MAX_ACCOUNTS: usize = 64;
/// Longest name, in bytes: it is a part of the path of a socket.
const MAX_NAME: usize = 32;

/// What this process is about, once it was said.
static CHOSEN: OnceLock<Option<AccountName>> = OnceLock::new();

/// The name of an account that is not the first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccountName(String);

/// Why a text is no name of an account. It may be any text.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccountNameError {
    /// It could be no folder's name, or be read as something else.
    #[error(
        "account {}: want letters, digits, - _ . (at most {MAX_NAME}), a letter or digit first",
        show::text(.0)
    )]
    Characters(String),
}

impl AccountName {
    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What a person calls an account: `default` is the first.
    ///
    /// # Errors
    /// [`AccountNameError`].
    pub fn of(said: &str) -> Result<Option<Self>, AccountNameError> {
        match said {
            FIRST => Ok(None),
            said => said.parse().map(Some),
        }
    }
}

impl fmt::Display for AccountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for AccountName {
    type Err = AccountNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let bytes = text.as_bytes();
        let first = bytes.first().is_some_and(u8::is_ascii_alphanumeric);
        match first && bytes.len() <= MAX_NAME && bytes.iter().all(|byte| legal(*byte)) {
            true => Ok(Self(text.to_owned())),
            false => Err(AccountNameError::Characters(text.to_owned())),
        }
    }
}

/// Says what this process is about: by the option, else by the variable, else the
/// first. To be called once, before anything asks.
///
/// # Errors
/// [`AccountNameError`].
pub(crate) fn choose(
    option: Option<&str>,
    variable: Option<&OsStr>,
) -> Result<(), AccountNameError> {
    let variable = variable.filter(|value| !value.is_empty());
    let said = option.map_or_else(
        || variable.map(|value| value.to_string_lossy().into_owned()),
        |option| Some(option.to_owned()),
    );
    let name = said.as_deref().map_or(Ok(None), AccountName::of)?;
    // A second choice would be of another process.
    let _chosen_before = CHOSEN.set(name);
    Ok(())
}

/// What this process is about; `None` is the first.
pub(crate) fn chosen() -> Option<&'static AccountName> {
    CHOSEN.get().and_then(Option::as_ref)
}

/// As a person calls it.
pub(crate) fn shown(name: Option<&AccountName>) -> &str {
    name.map_or(FIRST, AccountName::as_str)
}

/// A command about this account, for a person who may be about another one by now:
/// `bailey stop yard`, or `bailey --account work stop yard`.
pub(crate) fn command(words: &str) -> String {
    command_of(chosen(), words)
}

fn command_of(name: Option<&AccountName>, words: &str) -> String {
    match name {
        Some(name) => format!("bailey --account {name} {words}"),
        None => format!("bailey {words}"),
    }
}

/// The accounts beside the first, by the folders in its state folder; what is not
/// called as one is none.
///
/// # Errors
/// When the folder is there and cannot be read.
pub(crate) fn listed(first: &Path) -> io::Result<Vec<AccountName>> {
    let entries = match std::fs::read_dir(first.join(FOLDER)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries.take(2 * MAX_ACCOUNTS) {
        let entry = entry?;
        let name = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        names.extend(name.filter(|_| entry.file_type().is_ok_and(|kind| kind.is_dir())));
    }
    names.sort();
    names.truncate(MAX_ACCOUNTS);
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_folder_and_nothing_else() {
        for good in ["work", "a", "0", "A.b-c_d", &"x".repeat(MAX_NAME)] {
            assert_eq!(good.parse::<AccountName>().unwrap().as_str(), good);
        }
        let long = "x".repeat(MAX_NAME + 1);
        for bad in [
            "",
            ".",
            "..",
            "../work",
            "a/b",
            "/",
            ".hidden",
            "-v",
            "a b",
            "a\n",
            "a\0",
            "ä",
            "\u{1b}[2J",
            "work\u{202e}",
            &long,
        ] {
            assert!(bad.parse::<AccountName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_name_shows_no_control_characters_and_not_all_of_it() {
        let error = format!("\u{1b}[2J\u{202e}{}", "x".repeat(9000));
        let error = error.parse::<AccountName>().unwrap_err().to_string();
        assert!(!error.contains(['\u{1b}', '\u{202e}']), "{error:?}");
        assert!(error.len() < 1000, "{}", error.len());
    }

    #[test]
    fn the_first_is_called_default_and_its_commands_are_as_ever() {
        assert_eq!(AccountName::of(FIRST), Ok(None));
        let work = AccountName::of("work").unwrap();
        assert_eq!(shown(work.as_ref()), "work");
        assert_eq!(shown(None), "default");
        assert_eq!(command_of(None, "stop yard"), "bailey stop yard");
        let command = command_of(work.as_ref(), "stop yard");
        assert_eq!(command, "bailey --account work stop yard");
    }

    #[test]
    fn what_is_no_name_in_the_folder_is_no_account() {
        let first = std::env::temp_dir().join(format!("bailey-accounts-{}", std::process::id()));
        assert_eq!(listed(&first).unwrap(), []);
        for name in ["work", "alone", ".hidden", "a b"] {
            std::fs::create_dir_all(first.join(FOLDER).join(name)).unwrap();
        }
        std::fs::write(first.join(FOLDER).join("file"), "").unwrap();
        let names: Vec<String> = listed(&first)
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(names, ["alone", "work"]);
        std::fs::remove_dir_all(first).unwrap();
    }
}
