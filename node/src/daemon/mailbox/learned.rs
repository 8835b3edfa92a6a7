//! Mailboxes that a code named when this device joined: used as those of `config.toml`,
//! after them, until a person forgets them.
//!
//! The file `mailboxes` beside the store has a line for each, `KEY@HOST:PORT`.

use std::io::Read as _;
use std::path::Path;

use bailey_sync::mail::MailAddress;

use super::Node;
use crate::api::{Failure, Tell};
use crate::config::MAX_MAILBOXES;
use crate::daemon::devices;
use crate::daemon::event::ConnId;
use crate::log::log;

const FILE: &str = "mailboxes";
/// Longest file: four lines of the longest name, and then some.
const MAX_FILE: u64 = 4096;
/// Digits of a key that a person may write in the place of all.
const MIN_DIGITS: usize = 4;

/// What came of a mailbox that a code named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Learnt {
    Kept,
    /// It is named already, by `config.toml` or an earlier code.
    Known,
    /// There are as many as there may be.
    Full,
}

/// Puts one behind those that there are.
fn learn(config: &[MailAddress], learned: &mut Vec<MailAddress>, named: &MailAddress) -> Learnt {
    let mut known = config.iter().chain(learned.iter());
    if known.any(|it| it.key == named.key) {
        return Learnt::Known;
    }
    if config.len() + learned.len() >= MAX_MAILBOXES {
        return Learnt::Full;
    }
    learned.push(named.clone());
    Learnt::Kept
}

/// Those of the configuration, then those that were learned, each once and no more than
/// there may be.
fn all(config: &[MailAddress], learned: &[MailAddress]) -> Vec<MailAddress> {
    let mut all = config.to_vec();
    for it in learned {
        let known = all.iter().any(|other| other.key == it.key);
        if !known && all.len() < MAX_MAILBOXES {
            all.push(it.clone());
        }
    }
    all
}

/// Whether a person means this one: all of it, its place, or digits of its key.
fn is_meant(mailbox: &MailAddress, said: &str) -> bool {
    let whole = mailbox.to_string();
    let digits = said.len() >= MIN_DIGITS && said.bytes().all(|it| it.is_ascii_hexdigit());
    let begins = digits && whole.starts_with(&said.to_ascii_lowercase());
    whole == said || mailbox.place() == said || begins
}

/// What does not read is passed over.
fn load(path: &Path) -> Vec<MailAddress> {
    let mut text = String::new();
    let read =
        std::fs::File::open(path).and_then(|file| file.take(MAX_FILE).read_to_string(&mut text));
    match read {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => log!("{}: {error}", path.display()),
    }
    let read = text.lines().filter_map(|line| line.parse().ok());
    read.take(MAX_MAILBOXES).collect()
}

impl super::Mailboxes {
    /// Whether a code named it.
    pub(in crate::daemon) fn is_learned(&self, mailbox: &MailAddress) -> bool {
        self.learned.iter().flatten().any(|it| it == mailbox)
    }
}

impl Node {
    fn learned(&mut self) -> &mut Vec<MailAddress> {
        let path = self.paths.state.join(FILE);
        self.mailboxes.learned.get_or_insert_with(|| load(&path))
    }

    /// All that this node uses.
    pub(super) fn mail_addresses(&mut self) -> Vec<MailAddress> {
        let learned = self.learned().clone();
        all(&self.config.sync.mailboxes, &learned)
    }

    /// The one for a code: one that is reached, else the first.
    pub(in crate::daemon) fn mailbox_for_code(&mut self) -> Option<MailAddress> {
        let running = self.mailboxes.all.iter();
        let mut reached = running.filter(|it| it.connection.is_some() && !it.forgotten);
        let reached = reached.next().map(|it| it.address.clone());
        reached.or_else(|| self.mail_addresses().into_iter().next())
    }

    /// A code named a mailbox: it is used from now on.
    pub(in crate::daemon) fn learn_mailbox(&mut self, conn: ConnId, named: Option<MailAddress>) {
        let Some(named) = named else { return };
        let config = self.config.sync.mailboxes.clone();
        match learn(&config, self.learned(), &named) {
            Learnt::Kept => self.keep_learned(),
            Learnt::Known => {}
            Learnt::Full => {
                let text = format!(
                    "the mailbox {} of the code is not used: there are {MAX_MAILBOXES} already",
                    named.place()
                );
                self.tell(conn, Tell::Note(text));
            }
        }
    }

    fn keep_learned(&mut self) {
        let path = self.paths.state.join(FILE);
        let lines: Vec<String> = self.learned().iter().map(|it| format!("{it}\n")).collect();
        if let Err(error) = devices::write_private(&path, &lines.concat()) {
            log!("{}: {error}", path.display());
        }
    }

    /// It is used no more, from now on.
    pub(in crate::daemon) fn forget_mailbox(&mut self, mailbox: &MailAddress) {
        self.learned().retain(|it| it != mailbox);
        self.keep_learned();
        let named = self.config.sync.mailboxes.iter();
        if named.into_iter().any(|it| it.key == mailbox.key) {
            return;
        }
        for it in &mut self.mailboxes.all {
            if it.address == *mailbox {
                it.forget();
            }
        }
    }

    /// A person wants one forgotten.
    pub(in crate::daemon) fn on_mailbox_forget(
        &mut self,
        conn: ConnId,
        said: &str,
    ) -> Result<(), Failure> {
        let meant = |it: &&MailAddress| is_meant(it, said);
        let found: Vec<MailAddress> = self.learned().iter().filter(meant).cloned().collect();
        let [mailbox] = found.as_slice() else {
            let several = !found.is_empty();
            return Err(
                match self
                    .config
                    .sync
                    .mailboxes
                    .iter()
                    .any(|it| is_meant(it, said))
                {
                    _ if several => Failure::usage(format!("`{said}` is several mailboxes"))
                        .hint("HOST:PORT or more of the key, as bailey device list --json has it"),
                    true => Failure::usage(format!("`{said}` is named by config.toml"))
                        .hint("take it out there, and start the node anew"),
                    false => Failure::usage(format!("no code named a mailbox `{said}`"))
                        .hint("bailey device list shows them"),
                },
            );
        };
        self.forget_mailbox(mailbox);
        let text = format!("the mailbox {} is forgotten", mailbox.place());
        self.answer_all(conn, vec![Tell::Note(text)]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u8) -> MailAddress {
        MailAddress {
            key: [n; 32],
            host: format!("mail{n}.example"),
            port: 7000,
        }
    }

    #[test]
    fn what_the_configuration_names_comes_first_and_four_are_all() {
        let config = [address(1), address(2), address(3)];
        let mut learned = Vec::new();
        assert_eq!(learn(&config, &mut learned, &address(2)), Learnt::Known);
        assert_eq!(learn(&config, &mut learned, &address(4)), Learnt::Kept);
        assert_eq!(learn(&config, &mut learned, &address(4)), Learnt::Known);
        assert_eq!(learn(&config, &mut learned, &address(5)), Learnt::Full);
        let whole = [1, 2, 3, 4].map(address);
        assert_eq!(all(&config, &learned), whole);
        // A configuration that grew later leaves the learned one no room.
        let grown = [address(1), address(2), address(3), address(6)];
        assert_eq!(all(&grown, &learned), grown);
        // The key is the mailbox: the configuration says where it is.
        let mut moved = address(4);
        moved.host = "192.0.2.7".to_owned();
        assert_eq!(all(&[moved.clone()], &learned), [moved]);
    }

    #[test]
    fn a_person_means_one_by_its_place_or_the_beginning_of_its_key() {
        let it = address(0xab);
        for said in ["mail171.example:7000", "abab", "ABABAB", &it.to_string()] {
            assert!(is_meant(&it, said), "{said}");
        }
        for said in ["", "aba", "abac", "mail171.example", "mail17.example:7000"] {
            assert!(!is_meant(&it, said), "{said}");
        }
    }
}
