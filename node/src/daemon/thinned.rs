//! What a person hears of thinning: what is gone, what is left of it, and who
//! dropped what too early.

use bailey_docs_store::{DocId, Early, Gone, Reader, Urgency};
use bailey_model::{Event, Incarnation, Notice, NoticeId, Rule, Timestamp};

use super::event::ConnId;
use super::fold::BoxState;
use super::reading::Desk;
use super::store::{self, Tag};
use super::{Node, clock};
use crate::account;
use crate::api::{Failure, FlowFilter, Tell};
use crate::days::{DayRow, date};
use crate::log::log;
use crate::rows::{FlowRow, short};
use crate::show;

/// Most rows of days that are sent for one question: years of a box of many hosts.
const MAX_DAYS: usize = 65_536;

impl Node {
    /// Devices say that they dropped what this one should still have of them.
    pub(super) fn on_early(&mut self, early: &[Early]) {
        for it in early {
            let device = self.fold.device_name(it.by);
            let DocId::Box(box_id) = it.chain.doc else {
                log!("{} dropped a part of {} early", short(&it.by), it.chain.doc);
                continue;
            };
            let id = match clock::random() {
                Ok(id) => NoticeId(id),
                Err(error) => return log!("entropy: {error}"),
            };
            let boxes = self.fold.boxes();
            let known = boxes
                .iter()
                .find(|state| (state.writer, state.id) == (it.chain.writer, box_id));
            let notice = Notice {
                id,
                rule: Rule::ThinnedEarly,
                box_id,
                box_name: known.map_or_else(|| box_id.to_string(), |state| state.name.clone()),
                incarnation: known.map_or(Incarnation([0; 16]), |state| state.incarnation),
                evidence: Vec::new(),
                text: format!(
                    "{device} dropped entries up to {}, whose window is over only {}; what is \
                     here stays",
                    it.to, it.until
                ),
            };
            self.append(
                DocId::Notices,
                Event::Notice(notice),
                Urgency::Urgent,
                Tag::None,
            );
        }
    }

    /// What is left of a box's thinned entries.
    pub(super) fn on_days(
        &mut self,
        conn: ConnId,
        target: &str,
        since_ms: Option<u64>,
    ) -> Result<(), Failure> {
        let state = self.fold.resolve(target, self.this)?;
        if let Some(desk) = self.desk(conn) {
            tokio::spawn(desk.days(state, Timestamp(since_ms.unwrap_or(0))));
        }
        Ok(())
    }
}

impl Desk {
    async fn days(self, state: BoxState, since: Timestamp) {
        let desk = self.clone();
        let read = tokio::task::spawn_blocking(move || {
            let mut reader = store::reader(&desk.paths, &desk.keys)?;
            let kept = reader
                .kept_days(state.id, state.writer, since)
                .map_err(|error| Failure::host(format!("store: {error}")))?;
            let rows = kept
                .iter()
                .flat_map(|it| DayRow::of(&state.name, it, since));
            Ok::<Vec<DayRow>, Failure>(rows.take(MAX_DAYS).collect())
        });
        let last = match read.await {
            Ok(Ok(rows)) => {
                for row in rows {
                    if !self.tell(Tell::Day(Box::new(row))).await {
                        return;
                    }
                }
                Tell::Done
            }
            Ok(Err(failure)) => Tell::Failed(failure),
            Err(error) => Tell::Failed(Failure::internal(format!("days: {error}"))),
        };
        self.tell(last).await;
    }
}

/// What stands first where a question reaches into what is thinned.
pub(super) fn note(
    reader: &mut Reader,
    state: &BoxState,
    filter: &FlowFilter,
) -> Result<Option<FlowRow>, Failure> {
    let gone = reader
        .gone(DocId::Box(state.id), state.writer)
        .map_err(|error| Failure::host(format!("store: {error}")))?;
    let Some(gone) = gone else {
        return Ok(None);
    };
    let since = filter.since_ms.unwrap_or(0);
    let until = filter.until_ms.unwrap_or(u64::MAX);
    if gone.to.0 < since || gone.from.0 >= until {
        return Ok(None);
    }
    Ok(Some(FlowRow::note(
        &state.name,
        gone.to,
        &text(&gone, state),
    )))
}

fn text(gone: &Gone, state: &BoxState) -> String {
    let name = show::shell_word(&state.name);
    let days = account::command(&format!("summary {name} --days"));
    let entries = match gone.entries {
        1 => "1 entry".to_owned(),
        entries => format!("{entries} entries"),
    };
    let until = date(gone.to);
    format!("until {until}: thinned, {entries}; what is left of each day: {days}")
}
