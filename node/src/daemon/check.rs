//! `bailey store check`: everything that is kept is looked at beside the writer.

use bailey_docs_store::{Checked, CheckedRest, Fork};

use super::reading::Desk;
use super::store;
use crate::api::{Failure, Tell};
use crate::rows::{self, CheckRow};

impl Desk {
    /// Says a row a chain, then one for all else.
    pub(super) async fn check(self) {
        let desk = self.clone();
        let read = tokio::task::spawn_blocking(move || desk.check_all());
        let last = match read.await {
            Ok(Ok(())) => Tell::Done,
            Ok(Err(failure)) => Tell::Failed(failure),
            Err(error) => Tell::Failed(Failure::internal(format!("check: {error}"))),
        };
        self.tell(last).await;
    }

    fn check_all(&self) -> Result<(), Failure> {
        let fault = |error: &dyn std::fmt::Display| Failure::host(format!("store: {error}"));
        let mut reader = store::reader(&self.paths, &self.keys)?;
        let said = |row| {
            let tell = (Tell::Checked(Box::new(row)), Vec::new());
            self.answers.blocking_send(tell).is_ok()
        };
        for id in reader.chains().map_err(|error| fault(&error))? {
            let checked = reader.check_chain(&id).map_err(|error| fault(&error))?;
            if !said(row_of(checked)) {
                return Ok(());
            }
        }
        let rest = reader.check_rest().map_err(|error| fault(&error))?;
        said(row_of_rest(rest));
        Ok(())
    }
}

fn row_of(checked: Checked) -> CheckRow {
    let fault = |(seq, what): (u64, String)| match seq {
        0 => what,
        seq => format!("envelope {seq}: {what}"),
    };
    CheckRow {
        v: rows::V,
        doc: checked.chain.doc.to_string(),
        writer: Some(checked.chain.writer.to_string()),
        incarnation: Some(checked.chain.incarnation.to_string()),
        envelopes: checked.envelopes,
        entries: checked.entries,
        waiting: checked.waiting,
        thinned: checked.thinned,
        faulty: checked.faulty,
        faults: checked.faults.into_iter().map(fault).collect(),
        two_of_one: Vec::new(),
    }
}

fn two_of_one(fork: &Fork) -> String {
    let writer = rows::short(&fork.chain.writer);
    format!(
        "{writer} signed two envelopes with the number {} ({}): {} and {}",
        fork.seq, fork.chain.doc, fork.ours, fork.theirs
    )
}

fn row_of_rest(rest: CheckedRest) -> CheckRow {
    CheckRow {
        v: rows::V,
        doc: "store".to_owned(),
        writer: None,
        incarnation: None,
        envelopes: 0,
        entries: rest.rows,
        waiting: rest.aside,
        thinned: 0,
        faulty: rest.faults.len() as u64,
        faults: rest.faults,
        two_of_one: rest.forks.iter().map(two_of_one).collect(),
    }
}
