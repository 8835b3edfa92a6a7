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
        match values.get(values.len() / 2) {
            Some(middle) => Self::Value(*middle),
            None => Self::Failed("nothing was measured".to_owned()),
        }
    }
}

/// A promise about a row.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mark {
    /// At least this part of the first peer.
    OfFirst(f64),
    /// At most this, in the row's unit.
    AtMost(f64),
}

/// One figure of bailey's with its peers.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) bailey: Figure,
    pub(crate) peers: Vec<(&'static str, Figure)>,
    pub(crate) mark: Option<Mark>,
}

/// All rows.
#[derive(Debug)]
pub(crate) struct Table(Vec<Row>);

impl Table {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a row, and says so: a bench takes a while.
    pub(crate) fn add(&mut self, row: Row) {
        eprintln!("measured: {}", row.name);
        self.0.push(row);
    }

    /// Whether every figure of bailey's is there.
    pub(crate) fn complete(&self) -> bool {
        self.0
            .iter()
            .all(|row| matches!(row.bailey, Figure::Value(_)))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<44} {:>16}   {:<16} {:>16}  {:>8}",
            "", "bailey", "peer", "", "ratio"
        )?;
        for row in &self.0 {
            let mut peers = row.peers.iter();
            let first = peers.next();
            writeln!(
                f,
                "{:<46} {:>14}   {}",
                row.name,
                show(&row.bailey, row.unit),
                first.map(|peer| against(row, peer)).unwrap_or_default()
            )?;
            for peer in peers {
                writeln!(f, "{:<46} {:>14}   {}", "", "", against(row, peer))?;
            }
            let figures = std::iter::once(("bailey", &row.bailey));
            for (name, figure) in figures.chain(row.peers.iter().map(|(name, f)| (*name, f))) {
                if let Figure::Failed(why) = figure {
                    writeln!(f, "  {name} failed: {why}")?;
                }
            }
            if let Some(mark) = row.mark {
                writeln!(f, "  {}", judge(row, mark))?;
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

fn judge(row: &Row, mark: Mark) -> String {
    let (wanted, met) = match (mark, &row.bailey, row.peers.first()) {
        (Mark::OfFirst(part), Figure::Value(ours), Some((name, Figure::Value(theirs)))) => {
            (format!("at least {part} of {name}"), *ours >= part * theirs)
        }
        (Mark::AtMost(limit), Figure::Value(ours), _) => {
            (format!("at most {limit} {}", row.unit), *ours <= limit)
        }
        _ => return "mark: not measured".to_owned(),
    };
    format!("mark: {wanted}: {}", if met { "met" } else { "MISSED" })
}
