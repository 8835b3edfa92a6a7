//! Why an incarnation is over.

use bailey_model::BoxEnd;

use super::short;

/// Why an incarnation is over, as one word group.
#[must_use]
pub fn end_text(end: &BoxEnd) -> String {
    match end {
        BoxEnd::Exited(exit) => format!("exited {}", exit.shell_code()),
        BoxEnd::Stopped(bailey_model::StoppedBy::Here) => "stopped here".to_owned(),
        BoxEnd::Stopped(bailey_model::StoppedBy::Device(device, _)) => {
            format!("stopped by device {}", short(device))
        }
        BoxEnd::ClientGone => "client gone".to_owned(),
        BoxEnd::FenceLost => "fence lost".to_owned(),
        BoxEnd::NotStarted(what) => format!("not started: {what}"),
        BoxEnd::NodeLost => "node lost".to_owned(),
        BoxEnd::Weaker(which) => format!("weaker than asked: {which}"),
        BoxEnd::TimeOut => "its time was up".to_owned(),
        BoxEnd::CoverLost(which) => format!("cover lost: {which}"),
    }
}
