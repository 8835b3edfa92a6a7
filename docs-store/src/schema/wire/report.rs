//! A boundary report as it is stored.

use bailey_model::{
    Axis, AxisReport, AxisVerdict, BoundaryReport, BoxClass, BoxId, Fact, Incarnation, Level,
    Method, Tier,
};
use serde::{Deserialize, Serialize};

codes!(tier_code, tier_of, Tier { L1 = 1, L15 = 2, L2 = 3, Gated = 4 });
codes!(class_code, class_of, BoxClass { Plain = 1, Browser = 2 });
codes!(method_code, method_of, Method { Namespaces = 1, Bubblewrap = 2, Landlock = 3 });
codes!(axis_code, axis_of, Axis {
    Files = 1, Processes = 2, Syscalls = 3, Capabilities = 4, Network = 5, Limits = 6,
});
codes!(verdict_code, verdict_of, AxisVerdict {
    Fenced = 1, NotFenced = 2, Passes = 3, Decided = 4, NotMeasured = 5,
});

/// Levels that are no tier; the others have the tier's code.
const NOT_EARNED: u8 = 100;
const UNMEASURED: u8 = 101;

#[derive(Serialize, Deserialize)]
pub(super) struct WireReport {
    box_id: [u8; 16],
    incarnation: [u8; 16],
    asked: u8,
    class: u8,
    method: u8,
    image: String,
    level: u8,
    axes: Vec<WireAxis>,
}

#[derive(Serialize, Deserialize)]
struct WireAxis {
    axis: u8,
    verdict: u8,
    /// What was tried, what came of it, whether it held.
    facts: Vec<(String, String, Option<bool>)>,
}

impl From<&BoundaryReport> for WireReport {
    fn from(it: &BoundaryReport) -> Self {
        Self {
            box_id: it.box_id.0,
            incarnation: it.incarnation.0,
            asked: tier_code(it.asked),
            class: class_code(it.class),
            method: method_code(it.method),
            image: it.image.clone(),
            level: match it.level {
                Level::Earned(tier) => tier_code(tier),
                Level::NotEarned => NOT_EARNED,
                Level::Unmeasured => UNMEASURED,
            },
            axes: it.axes.iter().map(WireAxis::from).collect(),
        }
    }
}

impl From<&AxisReport> for WireAxis {
    fn from(it: &AxisReport) -> Self {
        let fact = |fact: &Fact| (fact.what.clone(), fact.got.clone(), fact.held);
        Self {
            axis: axis_code(it.axis),
            verdict: verdict_code(it.verdict),
            facts: it.facts.iter().map(fact).collect(),
        }
    }
}

impl WireReport {
    pub(super) fn report(self) -> Option<BoundaryReport> {
        let axis = |it: WireAxis| {
            let fact = |(what, got, held)| Fact { what, got, held };
            Some(AxisReport {
                axis: axis_of(it.axis)?,
                verdict: verdict_of(it.verdict)?,
                facts: it.facts.into_iter().map(fact).collect(),
            })
        };
        Some(BoundaryReport {
            box_id: BoxId(self.box_id),
            incarnation: Incarnation(self.incarnation),
            asked: tier_of(self.asked)?,
            class: class_of(self.class)?,
            method: method_of(self.method)?,
            image: self.image,
            level: match self.level {
                NOT_EARNED => Level::NotEarned,
                UNMEASURED => Level::Unmeasured,
                code => Level::Earned(tier_of(code)?),
            },
            axes: self.axes.into_iter().map(axis).collect::<Option<_>>()?,
        })
    }
}
