//! Who can read what: every order of what happens to a device's keys, at small sizes,
//! with real stores. Breadth first, each state of what the rules say once; a state is
//! reached anew from the beginning.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

use bailey_docs_store::{Reader, Role, Store};

use crate::common::{BOX, NOW, TempDir, gap, keys, open, pair, sync, text_of};

/// How far it is looked.
const DEPTH: usize = 5;

/// What happens at the writer. It enters something after each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The reader is a member no more.
    Remove,
    /// It is one, and reads no more.
    Lower,
    /// It reads again.
    Raise,
    /// New keys, on demand.
    Rotate,
    /// A new start.
    Restart,
    /// A copy of all that it has is put by.
    Copy,
    /// It goes back to the copy.
    Restore,
}

const STEPS: [Step; 7] = [
    Step::Remove,
    Step::Lower,
    Step::Raise,
    Step::Rotate,
    Step::Restart,
    Step::Copy,
    Step::Restore,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    Reads,
    Lowered,
    Removed,
}

/// What the rules say: how the reader stands with the writer, and which entries of the
/// writer's life of now it can read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Said {
    standing: Standing,
    can: BTreeMap<String, bool>,
}

impl Said {
    fn enter(&mut self, text: &str) {
        let can = self.standing == Standing::Reads;
        self.can.insert(text.to_owned(), can);
    }
}

/// What two histories have in common from which the same follows.
type Like = (Standing, BTreeSet<bool>);

fn like(said: &Said) -> Like {
    (said.standing, said.can.values().copied().collect())
}

struct World {
    writer: Option<(TempDir, Store)>,
    reader: (TempDir, Store),
    copy: Option<(TempDir, Said)>,
    now: Said,
    /// Of lives that are lost: what could be read then stays so.
    lost: BTreeMap<String, bool>,
    entered: usize,
}

fn copy_of(from: &Path) -> TempDir {
    let to = TempDir::new();
    for file in from.read_dir().unwrap() {
        let file = file.unwrap().path();
        std::fs::copy(&file, to.path().join(file.file_name().unwrap())).unwrap();
    }
    to
}

impl World {
    fn new() -> Self {
        let (dir, other) = (TempDir::new(), TempDir::new());
        let (mut writer, mut reader) = (open(&dir, 1, NOW), open(&other, 2, NOW));
        writer.create_account("writer", NOW).unwrap();
        pair(&mut writer, &mut reader, 2, Role::Watch, NOW);
        let mut world = Self {
            writer: Some((dir, writer)),
            reader: (other, reader),
            copy: None,
            now: Said {
                standing: Standing::Reads,
                can: BTreeMap::new(),
            },
            lost: BTreeMap::new(),
            entered: 0,
        };
        world.enter();
        world
    }

    fn store(&mut self) -> &mut Store {
        &mut self.writer.as_mut().unwrap().1
    }

    /// Enters one more, and hands all of it to the reader, whoever that is by now.
    fn enter(&mut self) {
        self.entered += 1;
        let text = format!("entry {}", self.entered);
        self.now.enter(&text);
        let store = self.store();
        let urgency = bailey_docs_store::Urgency::Normal;
        store.append(BOX, gap(text), NOW, urgency).unwrap();
        store.commit(true).unwrap();
        store.seal_all(NOW).unwrap();
        let (writer, reader) = (self.writer.as_ref().unwrap(), &mut self.reader.1);
        // It refuses none of it: what it cannot read it keeps.
        for _ in 0..2 {
            let (_, refused) = sync(&writer.1, reader, NOW);
            assert!(refused.is_empty(), "{refused:?}");
        }
        let _opened = reader.open_waiting(NOW).unwrap();
    }

    /// `false` where it cannot happen now.
    fn step(&mut self, step: Step) -> bool {
        let standing = self.now.standing;
        match step {
            Step::Remove if standing != Standing::Removed => {
                self.store().remove(&[keys(2).id()], NOW).unwrap();
                self.now.standing = Standing::Removed;
            }
            Step::Lower if standing == Standing::Reads => {
                self.store()
                    .set_role(keys(2).id(), Role::Runs, NOW)
                    .unwrap();
                self.now.standing = Standing::Lowered;
            }
            Step::Raise if standing == Standing::Lowered => {
                self.store()
                    .set_role(keys(2).id(), Role::Watch, NOW)
                    .unwrap();
                self.now.standing = Standing::Reads;
                // It is handed all that is not forgotten.
                self.now.can.values_mut().for_each(|can| *can = true);
            }
            Step::Rotate => self.store().rotate(NOW).unwrap(),
            Step::Restart => {
                let (dir, store) = self.writer.take().unwrap();
                drop(store);
                let store = open(&dir, 1, NOW);
                self.writer = Some((dir, store));
            }
            Step::Copy if self.copy.is_none() => {
                let (dir, store) = self.writer.take().unwrap();
                drop(store);
                self.copy = Some((copy_of(dir.path()), self.now.clone()));
                let store = open(&dir, 1, NOW);
                self.writer = Some((dir, store));
            }
            Step::Restore if self.copy.is_some() => {
                let (copy, said) = self.copy.take().unwrap();
                drop(self.writer.take());
                let dead = std::mem::replace(&mut self.now, said);
                let known = &self.now.can;
                let gone = dead.can.into_iter();
                let gone = gone.filter(|(text, can)| *can || !known.contains_key(text));
                self.lost.extend(gone);
                let store = open(&copy, 1, NOW);
                self.writer = Some((copy, store));
            }
            _ => return false,
        }
        self.enter();
        true
    }

    fn like(&self) -> (Like, Option<Like>) {
        (
            like(&self.now),
            self.copy.as_ref().map(|(_, said)| like(said)),
        )
    }

    fn check(&self, path: &[Step]) {
        let mut reader = Reader::open(self.reader.0.path(), keys(2)).unwrap();
        let read = reader.read(BOX, None).unwrap();
        let read: BTreeSet<String> = read
            .entries
            .iter()
            .map(|(_, entry)| text_of(&entry.event))
            .collect();
        for (text, can) in self.now.can.iter().chain(&self.lost) {
            // What could be read once is read, also where the writer has since gone back
            // behind its saying so.
            let once = self.lost.get(text).copied().unwrap_or(false);
            assert_eq!(read.contains(text), *can || once, "{text} after {path:?}");
        }
    }
}

#[test]
fn whatever_happens_to_keys_in_whatever_order_a_reader_reads_what_was_meant_for_it() {
    let reach = |path: &[Step]| {
        let mut world = World::new();
        path.iter().for_each(|step| assert!(world.step(*step)));
        world
    };
    let mut seen = BTreeSet::from([World::new().like()]);
    let mut waiting = VecDeque::from([Vec::new()]);
    let mut looked = 0;
    while let Some(path) = waiting.pop_front() {
        for step in STEPS {
            let mut world = reach(&path);
            if !world.step(step) {
                continue;
            }
            looked += 1;
            let mut longer = path.clone();
            longer.push(step);
            world.check(&longer);
            if longer.len() < DEPTH && seen.insert(world.like()) {
                waiting.push_back(longer);
            }
        }
    }
    // What is not alike, in every standing, with and without a copy; and what was tried.
    assert_eq!((seen.len(), looked), (10, 42));
}
