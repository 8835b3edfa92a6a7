//! The file in which a box reads what it was refused and what a person outside
//! could do about it.
//!
//! It is made anew and renamed over the old one, so that a reader never sees
//! half of it and the box's open files, locks and leases hold up nobody: the
//! box can neither write nor lease a file that is still being written. Nothing
//! there is ever read back.

use std::collections::VecDeque;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use bailey_fence_plan::refusals::{FILE, MAX_FILE};
use bailey_model::{Direction, FlowRefused, Host, Proto, Refusal, Timestamp};
use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::event::RunId;
use super::run_state::Run;
use super::{Node, clock};
use crate::grant;
use crate::log::log;
use crate::show;

/// Refusals in the file, the newest.
const MAX_LINES: usize = 64;
/// Least time between two writes: a box that is refused often wakes nobody the
/// more for it.
const PAUSE: Duration = Duration::from_millis(100);
/// Where it is until it is whole.
const UNFINISHED: &str = "refusals.new";
const HEAD: &str = "\
# What this box was refused, newest last, as the gate decided it. It is no fault of
# the network, and there is no way around it from in here. A person outside can
# grant it, where a command is given: ask them.
";

/// What a box was refused, and where it reads it.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    folder: Option<OwnedFd>,
    lines: VecDeque<Line>,
    /// Whether the file is behind.
    behind: bool,
    written: Option<Instant>,
    /// Whether the log has it that the file cannot be written.
    complained: bool,
}

#[derive(Debug)]
struct Line {
    ts: Timestamp,
    key: String,
    what: String,
    count: u64,
}

impl Refusals {
    /// The box is made, and its folder is this; it has a file from the start.
    pub(crate) fn open(&mut self, folder: Option<OwnedFd>) -> Result<(), Errno> {
        self.folder = folder;
        self.behind = true;
        self.write(Instant::now())
    }

    /// Something was refused. One that was so before moves to the end.
    pub(crate) fn note(
        &mut self,
        box_name: &str,
        ts: Timestamp,
        (refused, web): (&FlowRefused, bool),
    ) {
        let box_knows = matches!(refused.refusal, Refusal::BoxStopping | Refusal::BoxPaused);
        if refused.direction != Direction::Out || box_knows {
            return;
        }
        // What is known of a name's use by now is no other refusal.
        let key = describe(box_name, refused, false);
        let what = describe(box_name, refused, web);
        let known = self.lines.iter().position(|line| line.key == key);
        let known = known.and_then(|at| self.lines.remove(at));
        let before = known.map_or(0, |line| line.count);
        if self.lines.len() >= MAX_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(Line {
            ts,
            key,
            what,
            count: before + u64::from(refused.count),
        });
        self.behind = true;
    }

    /// Writes the file if it is behind and was not written just now; `None` if
    /// there was nothing to do.
    pub(crate) fn write_if_due(&mut self, now: Instant) -> Option<Result<(), Errno>> {
        let due = self.written.is_none_or(|written| now >= written + PAUSE);
        (self.behind && due).then(|| self.write(now))
    }

    fn write(&mut self, now: Instant) -> Result<(), Errno> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        // One that cannot be written now is not tried again at once.
        self.written = Some(now);
        let _none = unlinkat(folder, UNFINISHED, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(folder, UNFINISHED, flags, Mode::from_raw_mode(0o444))?;
        let written = std::fs::File::from(file).write_all(self.text().as_bytes());
        written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        renameat(folder, UNFINISHED, folder, FILE)?;
        self.behind = false;
        Ok(())
    }

    /// The newest that fit.
    fn text(&self) -> String {
        let (mut lines, mut room) = (Vec::new(), MAX_FILE - HEAD.len());
        for line in self.lines.iter().rev() {
            let times = match line.count {
                0 | 1 => String::new(),
                count => format!("  ×{count}"),
            };
            let line = format!("{}  {}{times}\n", line.ts, line.what);
            match room.checked_sub(line.len()) {
                Some(left) => room = left,
                None => break,
            }
            lines.push(line);
        }
        lines.reverse();
        HEAD.to_owned() + &lines.concat()
    }
}

impl Run {
    /// Enters a refusal where the box can read of it. A file that cannot be
    /// written keeps nothing from being decided.
    pub(super) fn note_for_box(&mut self, refused: &FlowRefused, web: bool) {
        self.told.note(&self.name, clock::now(), (refused, web));
        self.write_for_box();
    }

    fn write_for_box(&mut self) {
        if let Some(written) = self.told.write_if_due(Instant::now()) {
            self.complain(written);
        }
    }

    /// A box that holds old files open leaves no room for a new one, and knows the
    /// less for it: one line of the log until it can be written again.
    fn complain(&mut self, written: Result<(), Errno>) {
        let complained = std::mem::replace(&mut self.told.complained, written.is_err());
        if let Err(errno) = written
            && !complained
        {
            log!("{}: its refusals cannot be written: {errno}", self.name);
        }
    }
}

impl Node {
    /// The folder in which a box reads what it was refused.
    pub(super) fn lend_refusals(&mut self, id: RunId, folder: Option<OwnedFd>) {
        if let Some(run) = self.runs.get_mut(&id) {
            let written = run.told.open(folder);
            run.complain(written);
        }
    }

    /// Files that were held to their rate.
    pub(super) fn write_refusals(&mut self) {
        self.runs.values_mut().for_each(Run::write_for_box);
    }
}

fn describe(box_name: &str, refused: &FlowRefused, web: bool) -> String {
    let host = refused.host.as_ref().map(|host| show::text(host.as_str()));
    let whom = match (host, refused.dst) {
        (Some(host), Some(dst)) => format!("{host} ({dst})"),
        (Some(host), None) => host,
        (None, Some(dst)) => dst.to_string(),
        (None, None) => "anything more".to_owned(),
    };
    let proto = match refused.proto {
        Proto::Dns => "name".to_owned(),
        other => other.to_string(),
    };
    let class = refused.class.map(grant::class_words);
    let class = class.map(|class| format!("{class}, "));
    let why = refused.refusal.as_str();
    // Also what a box asks for literally: never words to copy.
    let of_zone = |host: &Host| host.as_str().starts_with("*.");
    let host_is_many = refused.host.as_ref().is_some_and(of_zone);
    let help = match grant::term(refused, web) {
        Some(term) => format!(
            "a person outside can grant it: {}",
            grant::command(box_name, &term)
        ),
        None if host_is_many => {
            "many different names, of which a person outside can grant each".to_owned()
        }
        None => "no word grants it".to_owned(),
    };
    let class = class.unwrap_or_default();
    format!("{proto} {whom}: refused, {class}{why}; {help}")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use bailey_model::{AddrClass, Host, HostFrom};

    use super::*;

    struct Place(PathBuf);

    impl Drop for Place {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    impl Place {
        fn new(name: &str) -> (Self, Refusals) {
            let path = format!("bailey-refusals-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(path);
            std::fs::create_dir(&path).unwrap();
            let mut refusals = Refusals::default();
            let folder = std::fs::File::open(&path).unwrap();
            refusals.open(Some(folder.into())).unwrap();
            (Self(path), refusals)
        }

        fn text(&self) -> String {
            std::fs::read_to_string(self.0.join(FILE)).unwrap()
        }
    }

    fn refused(host: Option<&str>, port: u16) -> FlowRefused {
        FlowRefused {
            direction: Direction::Out,
            proto: Proto::Tcp,
            src: None,
            dst: Some(([192, 168, 1, 9], port).into()),
            host: host.and_then(Host::new),
            host_from: HostFrom::None,
            class: Some(AddrClass::Local),
            refusal: Refusal::OutsideReach,
            count: 1,
        }
    }

    #[test]
    fn a_line_says_what_why_and_by_which_words_it_could_be_granted() {
        let (place, mut refusals) = Place::new("line");
        assert_eq!(place.text(), HEAD);
        refusals.note("yard", Timestamp(0), (&refused(None, 80), false));
        // Held to its rate, then written.
        assert_eq!(refusals.write_if_due(refusals.written.unwrap()), None);
        assert_eq!(place.text(), HEAD);
        let due = Instant::now() + PAUSE;
        assert_eq!(refusals.write_if_due(due), Some(Ok(())));
        let line = "1970-01-01T00:00:00.000Z  tcp 192.168.1.9:80: refused, local, outside reach; \
                    a person outside can grant it: bailey allow yard 192.168.1.9:80";
        assert_eq!(place.text(), format!("{HEAD}{line}\n"));
        let mut metadata = refused(None, 80);
        metadata.class = Some(AddrClass::Metadata);
        refusals.note("yard", Timestamp(0), (&refused(None, 80), false));
        refusals.note("yard", Timestamp(0), (&metadata, false));
        refusals.write(Instant::now()).unwrap();
        let text = place.text();
        assert!(text.contains(&format!("{line}  ×2\n")), "{text}");
        assert!(
            text.ends_with("metadata, outside reach; no word grants it\n"),
            "{text}"
        );
        // What came in was not the box's own try, and its end is no news.
        let client = ([127, 0, 0, 1], 5).into();
        for other in [
            FlowRefused {
                direction: Direction::In { client },
                ..refused(None, 81)
            },
            FlowRefused {
                refusal: Refusal::BoxStopping,
                ..refused(None, 81)
            },
        ] {
            refusals.note("yard", Timestamp(0), (&other, false));
        }
        assert_eq!(refusals.lines.len(), 2);
    }

    #[test]
    fn a_name_of_the_web_is_granted_at_its_port_and_is_one_line() {
        let (place, mut refusals) = Place::new("web");
        let name = FlowRefused {
            proto: Proto::Dns,
            dst: None,
            class: None,
            refusal: Refusal::NameOutsideReach,
            ..refused(Some("shop.example"), 0)
        };
        for (web, end) in [(false, "shop.example\n"), (true, "shop.example:443  ×2\n")] {
            refusals.note("yard", Timestamp(0), (&name, web));
            refusals.write(Instant::now()).unwrap();
            let text = place.text();
            assert!(
                text.ends_with(&format!("bailey allow yard {end}")),
                "{text}"
            );
            assert_eq!(text.matches("name shop.example").count(), 1, "{text}");
        }
    }

    #[test]
    fn the_file_is_bounded_and_holds_the_newest() {
        let (place, mut refusals) = Place::new("bound");
        let long = "x".repeat(1000);
        for port in 1..=1000 {
            refusals.note(&long, Timestamp(0), (&refused(Some(&long), port), false));
        }
        refusals.write(Instant::now()).unwrap();
        let text = place.text();
        assert!(
            text.len() <= MAX_FILE && text.len() > MAX_FILE / 2,
            "{}",
            text.len()
        );
        assert!(text.lines().last().unwrap().contains(":1000)"), "{text}");
        assert!(!text.contains(":1)"));
        assert!(refusals.lines.len() <= MAX_LINES);
    }

    #[test]
    fn an_unfinished_file_of_before_is_in_nobodys_way() {
        let (place, mut refusals) = Place::new("unfinished");
        std::fs::write(place.0.join(UNFINISHED), "half").unwrap();
        refusals.note("yard", Timestamp(0), (&refused(None, 80), false));
        refusals.write(Instant::now()).unwrap();
        assert!(place.text().contains("192.168.1.9:80"));
        assert!(!place.0.join(UNFINISHED).exists());
    }
}
