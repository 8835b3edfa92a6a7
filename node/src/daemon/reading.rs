//! Reading for a command line: the store is read on a thread for blocking
//! work, the rows are sent by a task. A reader that is slow holds up nobody.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bailey_docs_store::{DeviceKeys, DocId};
use bailey_model::{DeviceId, Entry, Notice, Timestamp};
use tokio::sync::mpsc;

use super::event::{Answer, ConnId, NodeEvent};
use super::fold::BoxState;
use super::store;
use crate::api::{Failure, Tell};
use crate::paths::Paths;
use crate::rows::{self, FlowRow, Fold as RowFold, NoticeRow};
use crate::unseen;

/// How long a notice waits for the entries that raised it to arrive.
const EVIDENCE_LIMIT: Duration = Duration::from_secs(1);
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
}

impl Desk {
    /// Says something; `false` when nobody listens any more.
    pub(super) async fn tell(&self, tell: Tell) -> bool {
        self.answers.send((tell, Vec::new())).await.is_ok()
    }

    pub(super) async fn entries(
        &self,
        doc: DocId,
        writer: DeviceId,
    ) -> Result<Vec<Entry>, Failure> {
        let (paths, keys) = (self.paths.clone(), Arc::clone(&self.keys));
        let read = tokio::task::spawn_blocking(move || store::entries(&paths, &keys, doc, writer));
        let failed = |error| Failure::internal(format!("reading: {error}"));
        read.await.map_err(failed)?
    }

    /// A box's rows: folded, or one an entry for a follower, who is then told
    /// how far they went.
    pub(super) async fn flows(self, state: BoxState, since: Timestamp, follow: bool) {
        let entries = match self.entries(DocId::Box(state.id), state.writer).await {
            Ok(entries) => entries,
            Err(failure) => {
                self.tell(Tell::Failed(failure)).await;
                return;
            }
        };
        let upto = entries.last().map_or(0, |entry| entry.no);
        for row in flow_rows(&state, &entries, since, follow) {
            if !self.tell(Tell::Flow(Box::new(row))).await {
                return;
            }
        }
        drop(entries);
        if follow {
            let read = NodeEvent::HistoryRead {
                conn: self.conn,
                upto,
            };
            // Without its loop the node is gone.
            let _gone = self.events.send(read).await;
        } else {
            self.tell(Tell::Done).await;
        }
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
        let doc = DocId::Box(raised.notice.box_id);
        let until = Instant::now() + EVIDENCE_LIMIT;
        let wanted = |entry: &Entry| {
            raised
                .notice
                .evidence
                .iter()
                .any(|place| place.no == entry.no)
        };
        loop {
            let all = self.entries(doc, raised.writer).await.unwrap_or_default();
            let held: Vec<Entry> = all.into_iter().filter(wanted).collect();
            let whole = held.len() >= raised.notice.evidence.len();
            if whole || !fresh || Instant::now() > until {
                return held;
            }
            tokio::time::sleep(EVIDENCE_STEP).await;
        }
    }
}

/// Where the network is not the gate's, that stands first.
fn flow_rows(state: &BoxState, entries: &[Entry], since: Timestamp, follow: bool) -> Vec<FlowRow> {
    let mut rows = entry_rows(&state.name, entries, since, follow);
    if let Some(why) = unseen::reason(&state.reach) {
        rows.insert(0, FlowRow::note(&state.name, state.started, why));
    }
    rows
}

fn entry_rows(name: &str, entries: &[Entry], since: Timestamp, follow: bool) -> Vec<FlowRow> {
    if follow {
        let young = entries.iter().filter(|entry| entry.ts >= since);
        return young.filter_map(|entry| FlowRow::of(name, entry)).collect();
    }
    let mut fold = RowFold::default();
    entries.iter().for_each(|entry| fold.push(name, entry));
    let since = since.to_string();
    fold.finish()
        .into_iter()
        .filter(|row| row.ts >= since)
        .collect()
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
        evidence: notice.evidence.iter().map(|place| place.no).collect(),
        entries: entries.iter().filter_map(row).collect(),
        text: notice.text,
        box_name: notice.box_name,
    }
}
