//! The row of a boundary report.

use bailey_model::{AxisReport, BoundaryReport, Fact, Timestamp};

use super::{AxisRow, FactRow, ReportRow, V};

impl ReportRow {
    /// The row of a report.
    #[must_use]
    pub fn of(
        box_name: &str,
        device: &str,
        reach: &str,
        ts: Timestamp,
        report: &BoundaryReport,
    ) -> Self {
        let axis = |axis: &AxisReport| AxisRow {
            axis: axis.axis.as_str().to_owned(),
            verdict: axis.verdict.as_str().to_owned(),
            facts: axis.facts.iter().map(FactRow::of).collect(),
        };
        Self {
            v: V,
            ts: ts.to_string(),
            box_name: box_name.to_owned(),
            box_id: report.box_id.to_string(),
            incarnation: report.incarnation.to_string(),
            device: device.to_owned(),
            asked: report.asked.to_string(),
            level: report.level.as_str().to_owned(),
            class: report.class.as_str().to_owned(),
            method: report.method.as_str().to_owned(),
            image: report.image.clone(),
            reach: reach.to_owned(),
            axes: report.axes.iter().map(axis).collect(),
        }
    }
}

impl FactRow {
    fn of(fact: &Fact) -> Self {
        Self {
            what: fact.what.clone(),
            got: fact.got.clone(),
            held: fact.held,
        }
    }
}
