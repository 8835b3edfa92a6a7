//! Reading for a command line: the store is read on a thread for blocking
//! work, the rows are sent by a task. A reader that is slow holds up nobody.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bailey_docs_store::{DeviceKeys, DocId, Pages, Reader};
use bailey_model::{DeviceId, Entry, Notice, Timestamp};
use tokio::sync::mpsc;

use super::event::{Answer, ConnId, NodeEvent};
use super::fold::BoxState;
use super::{store, thinned};
use crate::api::{Failure, FlowFilter, Tell};
use crate::paths::Paths;
use crate::row_fold::{Fold as RowFold, Late};
use crate::rows::{self, FlowRow, NoticeRow};
use crate::unseen;

/// How long a notice waits for the entries that raised it to arrive.
const EVIDENCE_LIMIT: Duration = Duration::from_secs(1);
/// Most pages that are kept between the two times they are needed: an hour or a day
/// is then read once.
const KEPT_PAGES: usize = 4;
/// Between two looks for them.
const EVIDENCE_STEP: Duration = Duration::from_millis(25);

/// Where answers go, and what they are read with.
#[derive(Debug, Clone)]
pub(super) struct Desk {
    pub(super) conn: ConnId,
    pub(super) answers: mpsc::Sender<Answer>,
    pub(super) events: mpsc::Sender<NodeEvent>,
    pub(super) paths: Paths,
    pub(super) keys: Arc<DeviceKeys>,
}

/// A notice, who raised it, and when.
#[derive(Debug)]
pub(super) struct Raised {
    pub(super) device: String,
    pub(super) writer: DeviceId,
    pub(super) ts: Timestamp,
    pub(super) notice: Notice,
    /// Where the entries that raised it stand.
    pub(super) doc: DocId,
}

impl Desk {
    /// Says something; `false` when nobody listens any more.
    pub(super) async fn tell(&self, tell: Tell) -> bool {
        self.answers.send((tell, Vec::new())).await.is_ok()
    }

    /// A box's rows: folded, or one an entry for a follower, who is then told
    /// how far they went.
    pub(super) async fn flows(self, state: BoxState, filter: FlowFilter, follow: bool) {
        let (conn, events) = (self.conn, self.events.clone());
        let desk = self.clone();
        let read = tokio::task::spawn_blocking(move || desk.read_flows(&state, &filter, follow));
        match read.await {
            Ok(Ok(Some(upto))) if follow => {
                // Without its loop the node is gone.
                let _gone = events.send(NodeEvent::HistoryRead { conn, upto }).await;
            }
            Ok(Ok(Some(_))) => {
                self.tell(Tell::Done).await;
            }
            // Nobody listens any more.
            Ok(Ok(None)) => {}
            Ok(Err(failure)) => {
                self.tell(Tell::Failed(failure)).await;
            }
            Err(error) => {
                let failure = Failure::internal(format!("reading: {error}"));
                self.tell(Tell::Failed(failure)).await;
            }
        }
    }

    /// Sends what is wanted, page by page, and gives the number of the last entry
    /// read; `None` when nobody listens. On a thread that may wait.
    fn read_flows(
        &self,
        state: &BoxState,
        filter: &FlowFilter,
        follow: bool,
    ) -> Result<Option<u64>, Failure> {
        let said = |row| {
            let tell = (Tell::Flow(Box::new(row)), Vec::new());
            self.answers.blocking_send(tell).is_ok()
        };
        // Where the network is not the gate's, that stands first.
        if let Some(why) = unseen::reason(&state.reach)
            && !said(FlowRow::note(&state.name, state.started, why))
        {
            return Ok(None);
        }
        // What another device keeps to itself is not here.
        if state.here && state.writer != self.keys.id() {
            let why = "its audit is kept on its own device alone";
            let listens = said(FlowRow::note(&state.name, state.started, why));
            return Ok(listens.then_some(0));
        }
        let since = Timestamp(filter.since_ms.unwrap_or(0));
        let mut reader = store::reader(&self.paths, &self.keys)?;
        // And where it is asked for what is gone, that.
        if let Some(row) = thinned::note(&mut reader, state, filter)?
            && !said(row)
        {
            return Ok(None);
        }
        let mut upto = 0;
        if follow {
            let mut pages = Pages::new(state.doc(), state.writer, since);
            while let Some(page) = next_page(&mut reader, &mut pages)? {
                upto = page.last().map_or(upto, |entry| upto.max(entry.no));
                let young = page.iter().filter(|entry| entry.ts >= since);
                let rows = young.filter_map(|entry| FlowRow::of(&state.name, entry));
                for row in rows.filter(|row| filter.matches(row)) {
                    if !said(row) {
                        return Ok(None);
                    }
                }
            }
            return Ok(Some(upto));
        }
        let until = filter.until_ms.map(|ms| Timestamp(ms).to_string());
        let wanted = |row: &FlowRow| {
            filter.matches(row) && until.as_ref().is_none_or(|until| row.ts < *until)
        };
        let took = each_row(&mut reader, state, since, |row| !wanted(&row) || said(row))?;
        Ok(took.then_some(0))
    }

    /// Sends rows as fast as they are read, then says up to which entry.
    pub(super) async fn rows(self, rows: Vec<FlowRow>, upto: u64) {
        for row in rows {
            if !self.tell(Tell::Flow(Box::new(row))).await {
                return;
            }
        }
        let conn = self.conn;
        // Without its loop the node is gone.
        let _gone = self
            .events
            .send(NodeEvent::HistoryRead { conn, upto })
            .await;
    }

    /// Notices with those of their entries that this device holds. A fresh one
    /// may be ahead of them: it waits a little.
    pub(super) async fn notices(self, raised: Vec<Raised>, fresh: bool, last: bool) {
        for raised in raised {
            let entries = self.evidence(&raised, fresh).await;
            if !self.tell(Tell::Notice(notice_row(raised, &entries))).await {
                return;
            }
        }
        if last {
            self.tell(Tell::Done).await;
        }
    }

    async fn evidence(&self, raised: &Raised, fresh: bool) -> Vec<Entry> {
        let doc = raised.doc;
        let until = Instant::now() + EVIDENCE_LIMIT;
        let numbers = entries_of(&raised.notice);
        loop {
            let (desk, writer, wanted) = (self.clone(), raised.writer, numbers.clone());
            let read = tokio::task::spawn_blocking(move || {
                let mut reader = store::reader(&desk.paths, &desk.keys)?;
                let entry = |no: &u64| reader.entry(doc, writer, *no);
                let held: Result<Vec<_>, _> = wanted.iter().map(entry).collect();
                held.map_err(|error| Failure::host(format!("store: {error}")))
            });
            let held = read.await.ok().and_then(Result::ok).unwrap_or_default();
            let held: Vec<Entry> = held.into_iter().flatten().collect();
            let whole = held.len() >= numbers.len();
            if whole || !fresh || Instant::now() > until {
                return held;
            }
            tokio::time::sleep(EVIDENCE_STEP).await;
        }
    }
}

fn next_page(reader: &mut Reader, pages: &mut Pages) -> Result<Option<Vec<Entry>>, Failure> {
    let page = reader.next_page(pages);
    page.map_err(|error| Failure::host(format!("store: {error}")))
}

/// Hands every row of a box that began at `since` or after to `take`, in order, as
/// long as it is taken; whether all were. On a thread that may wait.
pub(super) fn each_row(
    reader: &mut Reader,
    state: &BoxState,
    since: Timestamp,
    mut take: impl FnMut(FlowRow) -> bool,
) -> Result<bool, Failure> {
    let mut pages = Pages::new(state.doc(), state.writer, since);
    let (mut late, mut kept) = (Late::default(), Vec::new());
    // The pages behind those that are kept are read again.
    let mut behind = pages.clone();
    while let Some(page) = next_page(reader, &mut pages)? {
        late.push_page(&page);
        if kept.len() < KEPT_PAGES {
            kept.push(page);
            behind = pages.clone();
        }
    }
    let mut fold = RowFold::new(late, since);
    let mut hand_on = |page: &[Entry]| fold.page(&state.name, page).into_iter().all(&mut take);
    if !kept.into_iter().all(|page| hand_on(&page)) {
        return Ok(false);
    }
    while let Some(page) = next_page(reader, &mut behind)? {
        if !hand_on(&page) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Numbers of the entries that raised a notice. What is about a device names it with
/// number 0.
fn entries_of(notice: &Notice) -> Vec<u64> {
    let numbers = notice.evidence.iter().map(|place| place.no);
    numbers.filter(|no| *no > 0).collect()
}

fn notice_row(raised: Raised, entries: &[Entry]) -> NoticeRow {
    let Raised {
        device, ts, notice, ..
    } = raised;
    let row = |entry| FlowRow::of(&notice.box_name, entry);
    NoticeRow {
        v: rows::V,
        ts: ts.to_string(),
        id: notice.id.to_string(),
        rule: notice.rule.as_str().to_owned(),
        box_id: notice.box_id.to_string(),
        device,
        evidence: entries_of(&notice),
        entries: entries.iter().filter_map(row).collect(),
        text: notice.text,
        box_name: notice.box_name,
    }
}
