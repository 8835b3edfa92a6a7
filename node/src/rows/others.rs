//! Rows of entries that are no flow: names, and what of a box changed.

use bailey_model::{
    BoxGranted, ChangedBy, Entry, Event, HostFrom, NameAnswer, NameAnswered, NameAsked, Proto,
};

use super::qtype::qtype_text;
use super::{FlowRow, end_text, short};
use crate::unseen;

/// The type number of an entry that counts the names of a zone.
const EVERY_TYPE: u16 = 255;

impl FlowRow {
    pub(super) fn asked(mut self, asked: &NameAsked) -> Self {
        self = self.named(Proto::Dns, Some(&asked.host), HostFrom::Dns);
        self.verdict = Some("allow".to_owned());
        self.count = u64::from(asked.count);
        // Each of a zone's has its own row; this one is their number.
        // Nobody is asked for every type (ANY), so no name's own entry says it.
        let of_zone = asked.qtype == EVERY_TYPE;
        self.reason = of_zone.then(|| "different names".to_owned());
        self.qtype = (!of_zone).then(|| qtype_text(asked.qtype));
        self
    }

    /// The row of an answer whose question has another one, or none.
    pub(super) fn answer(mut self, it: &NameAnswered) -> Self {
        self = self.named(Proto::Dns, Some(&it.host), HostFrom::Dns);
        self.verdict = Some("allow".to_owned());
        self.qtype = Some(qtype_text(it.qtype));
        self.count = u64::from(it.count);
        self.answered(it);
        self
    }

    /// Writes into a name's row what it was answered.
    pub(crate) fn answered(&mut self, it: &NameAnswered) {
        self.rcode = Some(it.answer.rcode().to_owned());
        self.end = Some(match (it.answer, it.more) {
            (NameAnswer::Records, 1..) => format!("answered, and {} more", it.more),
            (answer, _) => answer.as_str().to_owned(),
        });
        if it.answer == NameAnswer::Records {
            self.answers = Some(it.addrs.clone());
            self.ttl = Some(it.ttl);
        }
    }

    pub(super) fn granted(mut self, it: &BoxGranted) -> Self {
        let path = match it.path.is_empty() {
            true => &it.written,
            false => &it.path,
        };
        let mode = if it.write { "rw" } else { "ro" };
        self.rule = Some(format!("{path}:{mode}"));
        let kind = it.kind.as_str();
        self.reason = Some(match *path == it.written {
            true => format!("{kind} {path}:{mode}"),
            false => format!("{kind} {path}:{mode}, as {}", it.written),
        });
        self
    }

    /// Of what happened to a box itself; `None` for entries of other documents.
    pub(super) fn of_box(mut self, entry: &Entry) -> Option<Self> {
        match &entry.event {
            Event::BoxStarted(started) => {
                self.reason = unseen::reason(&started.reach).map(str::to_owned);
            }
            Event::BoxEnded(ended) => self.end = Some(end_text(&ended.end)),
            Event::ReachChanged(changed) => {
                self.rule = Some(changed.new.clone());
                let by = by(changed.by);
                self.reason = Some(format!("{} → {}{by}", changed.old, changed.new));
            }
            Event::CaptureStarted(started) => {
                let seconds = started.seconds;
                self.reason = Some(format!("headers of its packets, for {seconds} s at most"));
            }
            Event::BoxPaused(it) => {
                let (count, hold) = (it.processes, it.hold.as_str());
                self.reason = Some(format!("processes {count}, held by {hold}{}", by(it.by)));
            }
            Event::BoxResumed(it) => {
                let by = by(it.by);
                self.reason = (!by.is_empty()).then(|| by.trim_start_matches(", ").to_owned());
            }
            Event::Gap(gap) => self.reason = Some(gap.reason.clone()),
            Event::Newer(newer) => {
                self.reason = Some(format!("kind {} of a newer version", newer.kind));
            }
            Event::Granted(it) => return Some(self.granted(it)),
            _ => return None,
        }
        Some(self)
    }
}

/// Who changed something, unless it was somebody at the node itself.
fn by(by: ChangedBy) -> String {
    match by {
        ChangedBy::Here => String::new(),
        ChangedBy::Device(device, _) => format!(", by device {}", short(&device)),
    }
}
