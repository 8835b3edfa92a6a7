//! `bailey summary`: what boxes talked to, in one screen.

use std::collections::BTreeMap;

use serde::Serialize;

use super::args::SummaryArgs;
use super::{out, read};
use crate::account;
use crate::api::{Ask, Failure, FlowFilter, Tell};
use crate::days::{DayRow, OTHERS};
use crate::rows::{self, BoxRow, FlowRow};
use crate::show;

/// Places that are told apart in a box; the rest is one of them.
const MAX_PLACES: usize = 10_000;
/// Places that are shown of a box.
const SHOWN: usize = 12;
/// What is summed up where nothing is said, and where each day is.
const SINCE: (&str, &str) = ("24h", "36500d");

/// What a box had to do with one host, or one address without a name.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
struct Place {
    class: Option<String>,
    flows: u64,
    refused: u64,
    bytes_out: u64,
    bytes_in: u64,
}

impl Place {
    fn weight(&self) -> (u64, u64, u64) {
        let bytes = self.bytes_out.saturating_add(self.bytes_in);
        (bytes, self.flows, self.refused)
    }

    fn add(&mut self, other: &Self) {
        self.class = self.class.take().or_else(|| other.class.clone());
        self.flows = self.flows.saturating_add(other.flows);
        self.refused = self.refused.saturating_add(other.refused);
        self.bytes_out = self.bytes_out.saturating_add(other.bytes_out);
        self.bytes_in = self.bytes_in.saturating_add(other.bytes_in);
    }
}

/// What a box did in a time.
#[derive(Debug, Default)]
struct Summary {
    places: BTreeMap<String, Place>,
    /// By day and place, where that is wanted.
    days: Option<BTreeMap<(String, String), Place>>,
    notes: Vec<String>,
}

impl Summary {
    fn push(&mut self, row: &FlowRow) {
        if row.kind == "note" {
            self.notes.extend(row.reason.clone());
        }
        if !matches!(row.kind.as_str(), "flow" | "refused") {
            return;
        }
        let addr = || row.dst_ip.map(|ip| ip.to_string());
        let name = match row.direction.as_deref() {
            Some("in") => row.outer_src_ip.map(|ip| format!("in ← {ip}")),
            _ => row.dst_host.clone().or_else(addr),
        };
        let name = name.unwrap_or_else(|| OTHERS.to_owned());
        let flow = row.kind == "flow";
        let place = Place {
            class: row.dst_class.clone(),
            flows: if flow { row.count } else { 0 },
            refused: if flow { 0 } else { row.count },
            bytes_out: row.bytes_out.unwrap_or(0),
            bytes_in: row.bytes_in.unwrap_or(0),
        };
        let day = row.ts.split('T').next().unwrap_or_default();
        self.add(day, name, &place);
    }

    /// What is left of a day whose entries are thinned.
    fn push_day(&mut self, row: &DayRow) {
        let place = Place {
            class: row.class.clone(),
            flows: row.flows,
            refused: row.refused,
            bytes_out: row.bytes_out,
            bytes_in: row.bytes_in,
        };
        // A name that was asked and no more is no place.
        if place.weight() > (0, 0, 0) {
            self.add(&row.day, row.host.clone(), &place);
        }
    }

    fn add(&mut self, day: &str, name: String, place: &Place) {
        let known = self.places.contains_key(&name) || self.places.len() < MAX_PLACES;
        let name = if known { name } else { OTHERS.to_owned() };
        if let Some(days) = &mut self.days {
            let key = (day.to_owned(), name.clone());
            let known = days.contains_key(&key) || days.len() < MAX_PLACES;
            let key = if known {
                key
            } else {
                (day.to_owned(), OTHERS.to_owned())
            };
            days.entry(key).or_default().add(place);
        }
        self.places.entry(name).or_default().add(place);
    }

    fn total(&self) -> Place {
        let mut total = Place::default();
        self.places.values().for_each(|place| total.add(place));
        total
    }

    /// The places, those that carried most first, then those that were only tried.
    fn ordered(&self) -> Vec<(&String, &Place)> {
        let mut places: Vec<_> = self.places.iter().collect();
        places.sort_by_key(|(name, place)| (std::cmp::Reverse(place.weight()), (*name).clone()));
        places
    }
}

/// Sums up a box, or each that did something.
pub(super) fn summary(args: &SummaryArgs) -> Result<u8, Failure> {
    let since = match (&args.since, args.days) {
        (Some(since), _) => since,
        (None, false) => SINCE.0,
        (None, true) => SINCE.1,
    };
    let since_ms = Some(read::since("--since", since)?);
    let mut boxes: Vec<BoxRow> = Vec::new();
    read::each(&Ask::Ps, |tell| {
        if let Tell::Box(row) = tell {
            boxes.push(row);
        }
        Ok(())
    })?;
    let named = |row: &BoxRow, target: &str| {
        let full = format!("{}@{}", row.name, row.device);
        [row.name.as_str(), row.id.as_str(), full.as_str()].contains(&target)
    };
    if let Some(target) = &args.target {
        boxes.retain(|row| named(row, target));
        if boxes.is_empty() {
            let text = format!("no box {}", show::text(target));
            return Err(Failure::usage(text).hint(account::command("ps lists what there is")));
        }
    }
    let mut silent = 0;
    for row in &boxes {
        let summary = sum_up(row, since_ms, args.days)?;
        if summary.places.is_empty() && args.target.is_none() {
            silent += 1;
        } else if args.json {
            print_json(row, &summary)?;
        } else {
            print(
                row,
                &summary,
                args.since.as_deref().or((!args.days).then_some(SINCE.0)),
            )?;
        }
    }
    if silent > 0 && !args.json {
        out::line(&format!("{silent} more boxes dialled nothing"))?;
    }
    Ok(0)
}

/// What one box did, by its entries and by what is left of those that are thinned.
fn sum_up(row: &BoxRow, since_ms: Option<u64>, days: bool) -> Result<Summary, Failure> {
    let mut summary = Summary {
        days: days.then(BTreeMap::new),
        ..Summary::default()
    };
    let target = format!("{}@{}", row.id, row.device);
    let ask = Ask::Days {
        target: target.clone(),
        since_ms,
    };
    read::each(&ask, |tell| {
        if let Tell::Day(row) = tell {
            summary.push_day(&row);
        }
        Ok(())
    })?;
    let filter = FlowFilter {
        since_ms,
        ..FlowFilter::default()
    };
    let ask = Ask::Flows {
        target,
        filter,
        follow: false,
    };
    read::each(&ask, |tell| {
        if let Tell::Flow(row) = tell {
            summary.push(&row);
        }
        Ok(())
    })?;
    Ok(summary)
}

fn print_json(row: &BoxRow, summary: &Summary) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Line<'a> {
        v: u32,
        #[serde(rename = "box")]
        name: &'a str,
        box_id: &'a str,
        device: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        day: Option<&'a str>,
        host: &'a str,
        #[serde(flatten)]
        place: &'a Place,
    }
    let days = summary.days.iter().flatten();
    let each: Vec<_> = match summary.days {
        Some(_) => days
            .map(|((day, host), place)| (Some(day.as_str()), host, place))
            .collect(),
        None => summary
            .ordered()
            .into_iter()
            .map(|(host, place)| (None, host, place))
            .collect(),
    };
    for (day, host, place) in each {
        out::json(&Line {
            v: rows::V,
            name: &row.name,
            box_id: &row.id,
            device: &row.device,
            day,
            host,
            place,
        })?;
    }
    Ok(())
}

fn print(row: &BoxRow, summary: &Summary, since: Option<&str>) -> Result<(), Failure> {
    let all = summary.total();
    let hosts = summary
        .places
        .values()
        .filter(|place| place.flows > 0)
        .count();
    let head = format!(
        "{} on {} · {} · {} to {} · {} out, {} in · {} refused",
        show::text(&row.name),
        show::text(&row.device),
        since.map_or_else(|| "all".to_owned(), |since| format!("last {since}")),
        counted(all.flows, "flow"),
        counted(hosts as u64, "place"),
        size(all.bytes_out),
        size(all.bytes_in),
        all.refused,
    );
    out::line(&head)?;
    for note in &summary.notes {
        out::line(&format!("  {}", show::text(note)))?;
    }
    if let Some(days) = &summary.days {
        for ((day, host), place) in days {
            out::line(&format!("  {}  {}", show::text(day), line(host, place)))?;
        }
        return Ok(());
    }
    let ordered = summary.ordered();
    for (host, place) in ordered.iter().take(SHOWN) {
        out::line(&format!("  {}", line(host, place)))?;
    }
    match ordered.len().saturating_sub(SHOWN) {
        0 => Ok(()),
        more => out::line(&format!(
            "  and {more} more: {}",
            account::command(&format!("summary {} --json", show::shell_word(&row.name)))
        )),
    }
}

fn line(host: &str, place: &Place) -> String {
    let mut how = Vec::new();
    if (place.flows, place.bytes_out, place.bytes_in) != (0, 0, 0) {
        how.push(counted(place.flows, "flow"));
        how.push(format!(
            "{} out, {} in",
            size(place.bytes_out),
            size(place.bytes_in)
        ));
    }
    if place.refused > 0 {
        how.push(format!("refused ×{}", place.refused));
    }
    let class = place.class.as_deref().map(show::text).unwrap_or_default();
    let host = show::host(host);
    format!("{host:<32} {class:<9} {}", how.join(" · "))
}

fn counted(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}

/// Bytes in the unit that a person reads (powers of a thousand).
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut unit = 0;
    let mut whole = bytes;
    let mut tenths = 0;
    while whole >= 1000 && unit + 1 < UNITS.len() {
        tenths = whole % 1000 / 100;
        whole /= 1000;
        unit += 1;
    }
    let name = UNITS.get(unit).copied().unwrap_or_default();
    match unit {
        0 => format!("{whole} {name}"),
        _ => format!("{whole}.{tenths} {name}"),
    }
}

#[cfg(test)]
mod tests {
    use bailey_model::{Entry, Event, Gap, Timestamp};

    use super::*;

    #[test]
    fn bytes_are_shown_in_their_unit() {
        for (bytes, shown) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (1_250_000, "1.2 MB"),
            (999_999, "999.9 kB"),
            (u64::MAX, "18446744.0 TB"),
        ] {
            assert_eq!(size(bytes), shown);
        }
    }

    #[test]
    fn places_are_bounded_and_nothing_of_them_is_lost() {
        let event = Event::Gap(Gap {
            reason: String::new(),
        });
        let (no, ts) = (1, Timestamp(1));
        let mut row = FlowRow::of("yard", &Entry { no, ts, event }).unwrap();
        row.kind = "flow".to_owned();
        row.bytes_out = Some(2);
        let mut summary = Summary::default();
        let rows = MAX_PLACES as u64 + 500;
        for n in 0..rows {
            row.dst_host = Some(format!("{n}.example"));
            summary.push(&row);
        }
        assert_eq!(summary.places.len(), MAX_PLACES + 1);
        assert_eq!(summary.places[OTHERS].flows, 500);
        let all = summary.total();
        assert_eq!((all.flows, all.bytes_out), (rows, 2 * rows));
        assert_eq!(summary.ordered()[0].0, OTHERS);
    }
}
