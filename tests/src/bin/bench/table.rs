//! Figures, their peers, and the one table.

use std::fmt;

/// What one measurement gave.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Figure {
    /// A number, in the row's unit.
    Value(f64),
    /// The peer is not on this machine.
    NotInstalled,
    /// It could not be measured, and why.
    Failed(String),
}

impl Figure {
    /// The middle of several numbers; the first failure, if there is one.
    pub(crate) fn median(all: &[Self]) -> Self {
        let mut values = Vec::new();
        for figure in all {
            match figure {
                Self::Value(value) => values.push(*value),
                other => return other.clone(),
            }
        }
        values.sort_by(f64::total_cmp);
        let half = values.len() / 2;
        match (values.get(half.wrapping_sub(1)), values.get(half)) {
            (Some(below), Some(above)) if values.len() % 2 == 0 => {
                Self::Value(f64::midpoint(*below, *above))
            }
            (_, Some(middle)) => Self::Value(*middle),
            _ => Self::Failed("nothing was measured".to_owned()),
        }
    }

    /// The largest of several numbers; the first failure, if there is one.
    pub(crate) fn worst(all: &[Self]) -> Self {
        let mut worst = None;
        for figure in all {
            match figure {
                Self::Value(value) => worst = Some(worst.unwrap_or(*value).max(*value)),
                other => return other.clone(),
            }
        }
        worst.map_or_else(|| Self::median(all), Self::Value)
    }
}

/// A promise about a row.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mark {
    /// At least this part of the first peer.
    OfFirst(f64),
    /// At most this part of the first peer.
    AtMostOfFirst(f64),
    /// More than each of these peers that was measured.
    AheadOf(&'static [&'static str]),
    /// At most the first peer's, and this more, in the row's unit.
    NoMoreThanFirstAnd(f64),
    /// At most this, in the row's unit.
    AtMost(f64),
    /// At least this, in the row's unit.
    AtLeast(f64),
    /// At most this, in the row's unit, of the worst.
    WorstAtMost(f64),
}

/// One figure of bailey's with its peers.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) bailey: Figure,
    /// The largest of bailey's, where the middle alone would say too little.
    pub(crate) worst: Option<Figure>,
    pub(crate) peers: Vec<(&'static str, Figure)>,
    pub(crate) mark: Option<Mark>,
}

/// All rows, and what they were measured on.
#[derive(Debug)]
pub(crate) struct Table {
    facts: Vec<String>,
    rows: Vec<Row>,
    /// Why rows are missing.
    lacks: Vec<String>,
}

impl Table {
    pub(crate) const fn new(facts: Vec<String>) -> Self {
        Self {
            facts,
            rows: Vec::new(),
            lacks: Vec::new(),
        }
    }

    /// What somebody who reads the table has to know.
    pub(crate) fn fact(&mut self, fact: String) {
        self.facts.push(fact);
    }

    /// Rows are missing, and why.
    pub(crate) fn lacks(&mut self, why: String) {
        self.lacks.push(why);
    }

    /// Adds a row, and says so: a bench takes a while.
    pub(crate) fn add(&mut self, row: Row) {
        eprintln!("measured: {}", row.name);
        self.rows.push(row);
    }

    /// Whether every figure of bailey's is there and every mark is met.
    pub(crate) fn complete(&self) -> bool {
        self.lacks.is_empty()
            && self.rows.iter().all(|row| {
                matches!(row.bailey, Figure::Value(_))
                    && row
                        .mark
                        .is_none_or(|mark| judge(row, mark).is_some_and(|judged| judged.met))
            })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fact in &self.facts {
            writeln!(f, "{fact}")?;
        }
        for why in &self.lacks {
            writeln!(f, "not measured: {why}")?;
        }
        writeln!(
            f,
            "\n{:<52} {:>14}   {:<10} {:>14}  {:>6}",
            "", "bailey", "peer", "", "ratio"
        )?;
        for row in &self.rows {
            let mut peers = row.peers.iter();
            let first = peers.next();
            writeln!(
                f,
                "{:<52} {:>14}   {}",
                row.name,
                show(&row.bailey, row.unit),
                first.map(|peer| against(row, peer)).unwrap_or_default()
            )?;
            for peer in peers {
                writeln!(f, "{:<52} {:>14}   {}", "", "", against(row, peer))?;
            }
            if let Some(worst) = &row.worst {
                writeln!(f, "{:<52} {:>14}", "  the worst", show(worst, row.unit))?;
            }
            let figures = std::iter::once(("bailey", &row.bailey));
            for (name, figure) in figures.chain(row.peers.iter().map(|(name, f)| (*name, f))) {
                if let Figure::Failed(why) = figure {
                    writeln!(f, "  {name} failed: {why}")?;
                }
            }
            if let Some(mark) = row.mark {
                match judge(row, mark) {
                    Some(Judged { wanted, met: true }) => writeln!(f, "  mark: {wanted}: met")?,
                    Some(Judged { wanted, met: false }) => writeln!(f, "  mark: {wanted}: MISSED")?,
                    None => writeln!(f, "  mark: not measured")?,
                }
            }
        }
        Ok(())
    }
}

fn against(row: &Row, (name, figure): &(&'static str, Figure)) -> String {
    let ratio = match (&row.bailey, figure) {
        (Figure::Value(ours), Figure::Value(theirs)) if *theirs > 0.0 => {
            format!("{:.2}", ours / theirs)
        }
        _ => "-".to_owned(),
    };
    format!("{name:<10} {:>14}  {ratio:>6}", show(figure, row.unit))
}

fn show(figure: &Figure, unit: &str) -> String {
    match figure {
        Figure::Value(value) if *value >= 100.0 => format!("{value:.0} {unit}"),
        Figure::Value(value) => format!("{value:.2} {unit}"),
        Figure::NotInstalled => "not installed".to_owned(),
        Figure::Failed(_) => "failed".to_owned(),
    }
}

/// A mark in words, and whether it is met.
struct Judged {
    wanted: String,
    met: bool,
}

/// `None` if what it is about was not measured.
fn judge(row: &Row, mark: Mark) -> Option<Judged> {
    let Figure::Value(ours) = row.bailey else {
        return None;
    };
    let first = match row.peers.first() {
        Some((name, Figure::Value(theirs))) => Some((name, theirs)),
        _ => None,
    };
    let (wanted, met) = match mark {
        Mark::OfFirst(part) => {
            let (name, theirs) = first?;
            (format!("at least {part} of {name}"), ours >= part * theirs)
        }
        Mark::AtMostOfFirst(part) => {
            let (name, theirs) = first?;
            (format!("at most {part} of {name}"), ours <= part * theirs)
        }
        Mark::NoMoreThanFirstAnd(more) => {
            let (name, theirs) = first?;
            let wanted = format!("at most {name}'s and {more} {}", row.unit);
            (wanted, ours <= theirs + more)
        }
        Mark::AheadOf(names) => return ahead(row, ours, names),
        Mark::AtLeast(least) => (format!("at least {least} {}", row.unit), ours >= least),
        Mark::AtMost(most) => (format!("at most {most} {}", row.unit), ours <= most),
        Mark::WorstAtMost(limit) => {
            let Some(Figure::Value(worst)) = row.worst else {
                return None;
            };
            let wanted = format!("the worst at most {limit} {}", row.unit);
            (wanted, worst <= limit)
        }
    };
    Some(Judged { wanted, met })
}

/// A peer that failed is behind; one that is not installed is not compared.
fn ahead(row: &Row, ours: f64, names: &[&str]) -> Option<Judged> {
    let named = row.peers.iter().filter(|(name, _)| names.contains(name));
    let compared: Vec<_> = named
        .filter(|(_, figure)| *figure != Figure::NotInstalled)
        .collect();
    let behind = |figure: &Figure| match figure {
        Figure::Value(theirs) => ours > *theirs,
        Figure::Failed(_) | Figure::NotInstalled => true,
    };
    let names: Vec<&str> = compared.iter().map(|(name, _)| *name).collect();
    (!compared.is_empty()).then(|| Judged {
        wanted: format!("ahead of {}", names.join(" and ")),
        met: compared.iter().all(|(_, figure)| behind(figure)),
    })
}
