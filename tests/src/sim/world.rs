//! Devices, the links between them, and time.

use std::collections::BTreeMap;
use std::time::Duration;

use bailey_docs_store::Role;
use bailey_model::DeviceId;
use bailey_session::PARTING_LATER;

use super::device::Device;
use super::dice::Dice;
use super::evil::{Effect, Evil, Forgery};
use super::history::{Action, choose};
use super::mailbox::{Mailbox, Mood};
use super::secrets::Secrets;
use super::{LONG_ONE_IN, Ran, TempDir, judge};

/// Most devices of a history, of a long one and of another.
const MAX_DEVICES: (usize, usize) = (6, 4);
/// Actions of a history at least, and what may come to it.
const LONG: (u64, u64) = (40, 80);
const SHORT: (u64, u64) = (8, 14);
/// Turns of the clock after all is mended, until nothing may be under way. An hour of
/// the slowest retries is far below.
const MAX_TURNS: u32 = 20_000;
/// How soon a device that was removed comes again, to hear so.
const AGAIN: Duration = Duration::from_secs(30);

/// Records that a member which keeps to no rule makes at the end.
const LAST_TRIES: usize = 3;
/// How long all goes on at least once it is mended.
const SETTLE: Duration = Duration::from_secs(5);

/// The simulated world of one history.
pub(super) struct World {
    pub(super) dice: Dice,
    dir: TempDir,
    pub(super) now: Duration,
    pub(super) devices: Vec<Device>,
    /// Most devices.
    pub(super) most: usize,
    actions: u64,
    /// Pairs that cannot reach each other now.
    cut: Vec<(usize, usize)>,
    cut_mail: Vec<usize>,
    /// When two of which one is no member may speak again.
    again: BTreeMap<(usize, usize), Duration>,
    /// The one that garbles what it sends, if there is one.
    liar: Option<usize>,
    pub(super) lied: bool,
    pub(super) mailbox: Option<Mailbox>,
    /// No two devices ever reach each other but through the mailbox.
    pub(super) by_mail: bool,
    pub(super) secrets: Secrets,
    /// How many keys of each device are known to `secrets`.
    learned: Vec<usize>,
    /// Whether what happens is said.
    told: bool,
    /// What must have no effect, and whether even one that goes back is sure of it.
    pub(super) barren: Vec<(bool, Effect)>,
    pub(super) ran: Ran,
}

impl World {
    pub(super) fn new(seed: u64, told: bool) -> Result<Self, String> {
        let mut dice = Dice::new(seed);
        let long = dice.one_in(LONG_ONE_IN);
        let (most, (least, more)) = match long {
            true => (MAX_DEVICES.0, LONG),
            false => (MAX_DEVICES.1, SHORT),
        };
        let dir = TempDir::new(&seed.to_string());
        let mut first = Device::new(&mut dice, &dir.0, 0);
        first.open(Duration::ZERO);
        let mut secrets = Secrets::new();
        secrets.add(&first.begin(Duration::ZERO));
        secrets.add(first.keys.secret_bytes());
        secrets.add(&first.keys.secret_bytes()[32..]);
        let mailbox = dice.one_in(3).then(|| Mailbox::new(&mut dice));
        let honest = mailbox.as_ref().is_some_and(|it| it.mood == Mood::Honest);
        let by_mail = honest && dice.one_in(2);
        let actions = least + dice.below(more);
        let mut world = Self {
            dice,
            dir,
            now: Duration::ZERO,
            devices: vec![first],
            most,
            actions,
            cut: Vec::new(),
            cut_mail: Vec::new(),
            again: BTreeMap::new(),
            liar: None,
            lied: false,
            mailbox,
            by_mail,
            secrets,
            learned: Vec::new(),
            told,
            barren: Vec::new(),
            ran: Ran::default(),
        };
        for _ in 0..=world.dice.below(3) {
            let role = world
                .dice
                .pick(&[Role::Full, Role::Full, Role::Watch, Role::Runs]);
            world.add(0, role)?;
        }
        if world.mailbox.is_some() && world.dice.one_in(2) {
            // Until that is mended, what there is goes by the mailbox.
            let pairs = (0..most).flat_map(|a| (0..a).map(move |b| (a, b)));
            world.cut.extend(pairs);
        }
        Ok(world)
    }

    /// Everything that happens, by the dice.
    pub(super) fn live(&mut self) -> Result<(), String> {
        if self.told {
            let mood = self.mailbox.as_ref().map(|it| it.mood);
            let roles = self.devices.iter().map(|it| it.member(it.id()));
            let roles: Vec<_> = roles.collect();
            eprintln!(
                "roles {roles:?}, mailbox {mood:?}, by mail {}",
                self.by_mail
            );
        }
        for _ in 0..self.actions {
            let action = choose(self);
            self.act(action)?;
            let span = Duration::from_millis(1 + self.dice.below(400));
            self.pass(span)?;
        }
        Ok(())
    }

    /// The one that keeps to no rule.
    pub(super) fn evil(&self) -> Option<usize> {
        let mut all = self.devices.iter();
        all.position(|device| device.evil.is_some())
    }

    fn act(&mut self, action: Action) -> Result<(), String> {
        if self.told {
            eprintln!("{:>8.3} s  {action:?}", self.now.as_secs_f64());
        }
        match action {
            Action::Write(at, doc, entries) => {
                self.ran.entries += self.devices[at].write(self.now, doc, entries)?;
            }
            Action::Add(by, role) => self.add(by, role)?,
            Action::Remove(by, whom) => {
                let whom = self.devices[whom].id();
                self.change(by, |store, now| store.remove(&[whom], now).map(drop))?;
            }
            Action::Role(by, whom, role) => {
                let whom = self.devices[whom].id();
                self.change(by, |store, now| store.set_role(whom, role, now).map(drop))?;
                if role == Role::Full {
                    self.raise(whom);
                }
            }
            Action::Rotate(at) => self.change(at, |store, now| store.rotate(now))?,
            Action::Cut(a, b) => {
                self.cut.push((a, b));
                self.part(a, b);
            }
            Action::CutMail(at) => {
                self.cut_mail.push(at);
                self.part_mail(at);
            }
            Action::Heal => {
                self.cut.clear();
                self.cut_mail.clear();
            }
            Action::Break(a, b) => self.part(a, b),
            Action::Kill(at) => {
                self.ran.crashes += 1;
                self.leave(at);
                self.devices[at].kill();
            }
            Action::Power(at) => {
                self.leave(at);
                self.ran.crashes += usize::from(self.devices[at].lose_power());
            }
            Action::Start(at) => self.devices[at].open(self.now),
            Action::Copy(at) => {
                self.leave(at);
                self.devices[at].kill();
                self.devices[at].copy();
                self.devices[at].open(self.now);
            }
            Action::Restore(at) => {
                self.leave(at);
                self.ran.crashes += usize::from(self.devices[at].restore());
                if self.dice.one_in(2) {
                    self.devices[at].open(self.now);
                }
            }
            Action::Clock(at, skew) => self.devices[at].skew = skew,
            Action::Lie(at) => (self.liar, self.lied) = (Some(at), true),
            Action::Turn(at) => self.turn_evil(at),
            Action::Forge(at, forgery) => self.forge(at, forgery),
        }
        if matches!(action, Action::Power(_) | Action::Restore(_)) {
            // Whoever went back may hear of what was forged before it hears again of
            // what it had heard first.
            self.barren.retain(|(sure, _)| *sure);
        }
        Ok(())
    }

    /// Changes the account, unless the device keeps to no rule: what it may it does
    /// otherwise.
    fn change(
        &mut self,
        by: usize,
        change: impl FnOnce(
            &mut bailey_docs_store::Store,
            bailey_model::Timestamp,
        ) -> Result<(), bailey_docs_store::AccountError>,
    ) -> Result<(), String> {
        if self.devices[by].evil.is_none() {
            self.devices[by].change(self.now, change)?;
        }
        Ok(())
    }

    fn add(&mut self, by: usize, role: Role) -> Result<(), String> {
        if self.devices[by].evil.is_some() {
            return Ok(());
        }
        let at = self.devices.len();
        let mut new = Device::new(&mut self.dice, &self.dir.0, at);
        new.open(self.now);
        let now = self.now;
        if self.devices[by].admit(now, &mut new, role)? {
            let secret = new.keys.secret_bytes();
            self.secrets.add(secret);
            self.secrets.add(&secret[32..]);
            self.devices.push(new);
        }
        Ok(())
    }

    /// A device keeps to no rule from here on, and may be all that the others have of
    /// each other.
    fn turn_evil(&mut self, at: usize) {
        self.devices[at].turn_evil();
        // It may have been given a role that it did not hear of yet.
        let id = self.devices[at].id();
        let full = |it: &Device| it.store.is_none() || it.member(id) == Some(Role::Full);
        if self.devices.iter().any(full) {
            self.raise(id);
        }
        if self.dice.one_in(2) {
            for a in (0..self.devices.len()).filter(|a| *a != at) {
                for b in (0..a).filter(|b| *b != at) {
                    self.cut.push((a, b));
                    self.part(a, b);
                }
            }
        }
    }

    /// A device may do everything from here on, or may have.
    fn raise(&mut self, whom: DeviceId) {
        let evil = self.devices.iter_mut().filter(|device| device.id() == whom);
        for evil in evil.filter_map(|device| device.evil.as_mut()) {
            evil.was_full = true;
        }
        self.barren
            .retain(|(_, effect)| !matches!(effect, Effect::NotFull(one) if *one == whom));
    }

    fn forge(&mut self, at: usize, forgery: Forgery) {
        let id = self.devices[at].id();
        // Those that run say what is known of it; one that does not may know less.
        let honest = self.honest().map(|device| match device.store {
            Some(_) if !device.trusts(device) => None,
            Some(_) => device.member(id),
            None => Some(Role::Full),
        });
        let roles: Vec<Option<Role>> = honest.collect();
        let removed = roles.iter().all(Option::is_none);
        let was_full = |evil: &Evil| evil.was_full;
        let lowly = !self.devices[at].evil.as_ref().is_some_and(was_full);
        // One that was put out tries to come back.
        let forgery = if removed { Forgery::Record } else { forgery };
        let effects = self.devices[at].forge(self.now, forgery, !(removed || lowly));
        self.ran.forged += 1;
        let effects = effects.into_iter().map(|effect| (lowly, effect));
        self.barren.extend(effects);
    }

    /// Ends the connection of two.
    fn part(&mut self, a: usize, b: usize) {
        self.devices[a].hang_up(b);
        self.devices[b].hang_up(a);
    }

    fn part_mail(&mut self, at: usize) {
        self.devices[at].post.hang_up();
        if let Some(mailbox) = &mut self.mailbox {
            mailbox.hang_up(at);
        }
    }

    /// Ends every connection of one.
    fn leave(&mut self, at: usize) {
        for other in 0..self.devices.len() {
            self.part(at, other);
        }
        self.part_mail(at);
    }

    /// Lets everything go on for a while.
    fn pass(&mut self, span: Duration) -> Result<(), String> {
        let end = self.now + span;
        while self.turn(end)? {}
        self.now = end;
        Ok(())
    }

    /// One turn: everything that is due, then on to the next that is; false if that
    /// is after the end.
    fn turn(&mut self, end: Duration) -> Result<bool, String> {
        self.connect();
        for at in 0..self.devices.len() {
            self.devices[at].work(self.now)?;
        }
        self.learn();
        for at in 0..self.devices.len() {
            self.send(at)?;
        }
        self.work_mail()?;
        let due = self
            .devices
            .iter()
            .filter_map(|device| device.due(self.now));
        let mail = self.mailbox.as_ref().and_then(Mailbox::due);
        let Some(next) = due.chain(mail).min().filter(|next| *next < end) else {
            return Ok(false);
        };
        // What is due stays so while a device cannot do it: the clock goes on.
        self.now = next.max(self.now + Duration::from_millis(1));
        Ok(true)
    }

    /// Two that run, reach each other and hold each other for members connect. Where
    /// only one does, it hears why.
    fn connect(&mut self) {
        for a in 0..self.devices.len() {
            if self.mailbox.is_some() {
                self.connect_mail(a);
            }
            for b in 0..a {
                let apart = self.cut.contains(&(a, b)) || self.cut.contains(&(b, a));
                if apart || self.by_mail {
                    continue;
                }
                self.connect_two(a, b);
            }
        }
    }

    fn connect_two(&mut self, a: usize, b: usize) {
        let (one, other) = (&self.devices[a], &self.devices[b]);
        let (ids, now) = ((one.id(), other.id()), self.now);
        match (one.trusts(other), other.trusts(one)) {
            (true, true) => {
                if one.speaks_with(b) {
                    // One that is a member again begins as one.
                    if !one.only_parts_with(b) && !other.only_parts_with(a) {
                        return;
                    }
                    self.part(a, b);
                }
                self.devices[a].call(b, ids.1, now, None);
                self.devices[b].call(a, ids.0, now, None);
            }
            (false, false) => {}
            (trusts, _) => {
                let (in_, out) = if trusts { (b, a) } else { (a, b) };
                let out_id = self.devices[out].id();
                let known = self.devices[in_].knows_removed(out_id);
                let soon = self.again.get(&(a, b)).is_some_and(|at| *at > now);
                if !known || soon || self.devices[a].speaks_with(b) {
                    return;
                }
                self.again.insert((a, b), now + AGAIN);
                let in_id = self.devices[in_].id();
                self.devices[in_].call(out, out_id, now, Some(PARTING_LATER));
                self.devices[out].call(in_, in_id, now, None);
            }
        }
    }

    fn connect_mail(&mut self, at: usize) {
        let device = &mut self.devices[at];
        let runs = device.store.is_some() && device.account.is_some();
        let apart = self.cut_mail.contains(&at) || device.post.is_connected();
        if let (true, false, Some(mailbox)) = (runs, apart, &mut self.mailbox) {
            device.post.call(self.now);
            mailbox.accept(at, self.now);
        }
    }

    /// Keys that were made meanwhile are secret too.
    fn learn(&mut self) {
        self.learned.resize(self.devices.len(), 0);
        for (device, learned) in self.devices.iter().zip(&mut self.learned) {
            for key in device.made.from(*learned) {
                self.secrets.add(&key);
                *learned += 1;
            }
        }
    }

    /// What a device has to say goes on its way.
    fn send(&mut self, at: usize) -> Result<(), String> {
        for (to, mut frame) in self.devices[at].take_frames(self.now) {
            self.ran.bytes += frame.len();
            self.secrets.look(&frame, "what crosses")?;
            if self.liar == Some(at) && self.dice.one_in(6) {
                let byte = self.dice.index(frame.len());
                frame[byte] ^= 1 << self.dice.below(8);
            }
            let delay = Duration::from_millis(1 + self.dice.below(60));
            let pieces = self.halves(frame);
            self.devices[to].arrive(at, self.now + delay, pieces);
        }
        for other in self.devices[at].take_closed() {
            self.part(at, other);
        }
        Ok(())
    }

    fn halves(&mut self, mut frame: Vec<u8>) -> [Vec<u8>; 2] {
        let cut = self.dice.index(frame.len());
        let rest = frame.split_off(cut);
        [frame, rest]
    }

    fn work_mail(&mut self) -> Result<(), String> {
        let Some(mut mailbox) = self.mailbox.take() else {
            return Ok(());
        };
        for at in 0..self.devices.len() {
            for frame in self.devices[at].post.take_frames(self.now) {
                self.ran.bytes += frame.len();
                self.secrets.look(&frame, "what a mailbox gets")?;
                let delay = Duration::from_millis(1 + self.dice.below(60));
                mailbox.arrive(at, self.now + delay, frame);
            }
        }
        for (at, frame) in mailbox.work(self.now) {
            let delay = Duration::from_millis(1 + self.dice.below(60));
            let pieces = self.halves(frame);
            self.devices[at].post.arrive(self.now + delay, pieces);
        }
        let mut over = mailbox.take_closed();
        let own = (0..self.devices.len()).filter(|at| self.devices[*at].post.take_closed());
        over.extend(own.collect::<Vec<_>>());
        self.mailbox = Some(mailbox);
        for at in over {
            self.part_mail(at);
        }
        Ok(())
    }

    /// Everybody runs, is reachable, honest, and sees the others anew; until nothing
    /// is under way any more.
    pub(super) fn mend(&mut self) -> Result<(), String> {
        self.cut.clear();
        self.cut_mail.clear();
        self.again.clear();
        self.liar = None;
        for at in 0..self.devices.len() {
            if let Some(evil) = &mut self.devices[at].evil {
                evil.rest();
            }
            self.leave(at);
            self.devices[at].open(self.now);
        }
        // Whoever does not know of another yet hears of it first.
        self.pass(SETTLE)?;
        if let Some(evil) = self.evil() {
            // One that was put out, or never might, tries once more, everybody knowing.
            for _ in 0..LAST_TRIES {
                self.forge(evil, Forgery::Record);
            }
            self.pass(AGAIN + SETTLE)?;
        }
        for _ in 0..MAX_TURNS {
            self.turn(Duration::MAX)?;
            let mail = self.mailbox.as_ref().is_none_or(Mailbox::is_quiet);
            let mut all = self.honest();
            if mail && all.all(|device| device.is_quiet(self.now)) && judge::same(self) {
                return Ok(());
            }
        }
        let busy = self.devices.iter().map(|device| device.busy(self.now));
        let busy: Vec<String> = busy.collect();
        Err(format!(
            "never quiet: {}; {}",
            judge::differences(self),
            busy.join(", ")
        ))
    }

    /// Those that keep to the rules.
    pub(super) fn honest(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().filter(|device| device.evil.is_none())
    }

    /// A device by its id.
    pub(super) fn device(&self, id: DeviceId) -> Option<&Device> {
        self.devices.iter().find(|device| device.id() == id)
    }
}
