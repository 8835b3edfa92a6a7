//! Figures of the node, in Prometheus' text format, version 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).
//!
//! A label's value is a word of a closed list of bailey's own, never a box, a host
//! or an address: their number is bounded, and nothing of a box is in them.

mod serve;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bailey_docs_store::DocId;
use bailey_model::{AddrClass, Event, FlowRefused, Proto, Tier};

pub(super) use serve::{Scrape, listen};

use super::Node;

/// What has been counted since the node started.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    /// By verdict and class of the address.
    flows: BTreeMap<(&'static str, &'static str), u64>,
    /// By verdict.
    names: BTreeMap<&'static str, u64>,
    /// By why.
    refusals: BTreeMap<&'static str, u64>,
    /// By how.
    ended: BTreeMap<&'static str, u64>,
    /// By rule.
    notices: BTreeMap<&'static str, u64>,
    bytes_out: u64,
    bytes_in: u64,
    started: u64,
    entries: u64,
    unwritten: u64,
}

/// What is so at the moment.
#[derive(Debug, Default)]
struct Now {
    boxes: BTreeMap<&'static str, u64>,
    flows: u64,
    devices: u64,
    connected: u64,
    waiting: u64,
}

impl Metrics {
    /// An entry of this node stands.
    pub(super) fn entered(&mut self, doc: DocId, event: &Event) {
        self.entries += 1;
        match event {
            // The same stands in the box's own document.
            Event::BoxStarted(_) => self.started += u64::from(doc == DocId::Node),
            Event::FlowOpened(opened) => add(&mut self.flows, ("allow", opened.class.as_str()), 1),
            Event::FlowRefused(refused) => self.refused(refused),
            Event::NameAsked(asked) => add(&mut self.names, "allow", u64::from(asked.count)),
            Event::FlowEnded(ended) => {
                add(&mut self.ended, ended.end.as_str(), 1);
                self.bytes_out = self.bytes_out.saturating_add(ended.bytes_out);
                self.bytes_in = self.bytes_in.saturating_add(ended.bytes_in);
            }
            Event::Notice(notice) => add(&mut self.notices, notice.rule.as_str(), 1),
            _ => {}
        }
    }

    fn refused(&mut self, refused: &FlowRefused) {
        let count = u64::from(refused.count);
        add(&mut self.refusals, refused.refusal.as_str(), count);
        match refused.proto {
            Proto::Dns => add(&mut self.names, "refuse", count),
            _ => {
                let class = refused.class.map_or("none", AddrClass::as_str);
                add(&mut self.flows, ("refuse", class), count);
            }
        }
    }

    /// An entry could not be written.
    pub(super) fn not_written(&mut self) {
        self.unwritten += 1;
    }

    fn text(&self, now: &Now) -> String {
        let mut page = Page::default();
        Self::gauges(&mut page, now);
        self.counters(&mut page);
        page.0
    }

    fn gauges(page: &mut Page, now: &Now) {
        let version = env!("CARGO_PKG_VERSION");
        page.family("bailey_build_info", "gauge", "The version that runs.");
        page.sample("bailey_build_info", &[("version", version)], 1);
        page.family("bailey_boxes", "gauge", "Boxes that run, by tier.");
        for tier in Tier::ALL {
            let count = now.boxes.get(tier.as_str()).copied().unwrap_or_default();
            page.sample("bailey_boxes", &[("tier", tier.as_str())], count);
        }
        for (name, help, value) in [
            ("bailey_flows_open", "Flows that are open.", now.flows),
            ("bailey_devices", "Devices of the account.", now.devices),
            (
                "bailey_devices_connected",
                "Devices whose session is up.",
                now.connected,
            ),
            (
                "bailey_store_waiting",
                "Asks that the store has not answered.",
                now.waiting,
            ),
        ] {
            page.family(name, "gauge", help);
            page.sample(name, &[], value);
        }
    }

    fn counters(&self, page: &mut Page) {
        for (name, help, value) in [
            ("bailey_boxes_started_total", "Boxes started.", self.started),
            (
                "bailey_entries_total",
                "Entries of this node that stand.",
                self.entries,
            ),
            (
                "bailey_entries_unwritten_total",
                "Entries that could not be written.",
                self.unwritten,
            ),
        ] {
            page.family(name, "counter", help);
            page.sample(name, &[], value);
        }
        let name = "bailey_flows_total";
        page.family(
            name,
            "counter",
            "Dials, by verdict and class of the address.",
        );
        for ((verdict, class), count) in &self.flows {
            page.sample(name, &[("verdict", verdict), ("class", class)], *count);
        }
        page.by(
            "bailey_names_total",
            "Questions for names, by verdict.",
            "verdict",
            &self.names,
        );
        page.by(
            "bailey_refusals_total",
            "Refusals, by why.",
            "reason",
            &self.refusals,
        );
        page.by(
            "bailey_flows_ended_total",
            "Flows that ended, by how.",
            "end",
            &self.ended,
        );
        page.by(
            "bailey_notices_total",
            "Notices, by rule.",
            "rule",
            &self.notices,
        );
        let name = "bailey_bytes_total";
        page.family(
            name,
            "counter",
            "Payload of flows that ended, from boxes and to them.",
        );
        page.sample(name, &[("direction", "out")], self.bytes_out);
        page.sample(name, &[("direction", "in")], self.bytes_in);
    }
}

fn add<K: Ord>(counts: &mut BTreeMap<K, u64>, key: K, count: u64) {
    let kept = counts.entry(key).or_default();
    *kept = kept.saturating_add(count);
}

/// The text as it grows.
#[derive(Debug, Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // A String takes whatever is written to it.
        let _whole = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        let pairs: Vec<String> = labels
            .iter()
            .map(|(label, word)| format!("{label}=\"{word}\""))
            .collect();
        let labels = match pairs.is_empty() {
            true => String::new(),
            false => format!("{{{}}}", pairs.join(",")),
        };
        let _whole = writeln!(self.0, "{name}{labels} {value}");
    }

    fn by(&mut self, name: &str, help: &str, label: &str, counts: &BTreeMap<&'static str, u64>) {
        self.family(name, "counter", help);
        for (word, count) in counts {
            self.sample(name, &[(label, word)], *count);
        }
    }
}

impl Node {
    /// The figures as text.
    pub(super) fn metrics_text(&self) -> String {
        let mut now = Now {
            devices: count(self.devices.known()),
            connected: count(self.devices.connected()),
            waiting: count(self.in_flight),
            ..Now::default()
        };
        for run in self.runs.values() {
            add(&mut now.boxes, run.tier.as_str(), 1);
            now.flows += count(run.open_flows.len());
        }
        self.metrics.text(&now)
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use bailey_model::{
        Direction, EndReason, FlowEnded, FlowId, Host, HostFrom, NameAsked, Notice, Refusal, Rule,
    };

    use super::*;

    #[test]
    fn what_was_entered_is_counted_by_words_of_closed_lists() {
        let mut metrics = Metrics::default();
        let doc = DocId::Box(bailey_model::BoxId([1; 16]));
        let refused = |proto, class| {
            Event::FlowRefused(FlowRefused {
                direction: Direction::Out,
                proto,
                src: None,
                dst: None,
                host: Host::new("secret.example"),
                host_from: HostFrom::Dns,
                class,
                refusal: Refusal::OutsideReach,
                count: 3,
            })
        };
        for event in [
            refused(Proto::Tcp, Some(AddrClass::Local)),
            refused(Proto::Udp, None),
            refused(Proto::Dns, None),
            Event::NameAsked(NameAsked {
                host: Host::new("secret.example").unwrap(),
                qtype: 1,
                count: 2,
            }),
            Event::FlowEnded(FlowEnded {
                flow: FlowId(1),
                bytes_out: 7,
                bytes_in: 9,
                duration_us: 1,
                end: EndReason::ResetByPeer,
                outer_src: None,
            }),
            Event::Notice(Notice {
                id: bailey_model::NoticeId([0; 16]),
                rule: Rule::LocalFromInternetOnly,
                box_id: bailey_model::BoxId([1; 16]),
                box_name: "secret".to_owned(),
                incarnation: bailey_model::Incarnation([0; 16]),
                evidence: Vec::new(),
                text: "secret".to_owned(),
            }),
        ] {
            metrics.entered(doc, &event);
        }
        metrics.not_written();
        let text = metrics.text(&Now::default());
        for line in [
            "bailey_boxes{tier=\"gated\"} 0",
            "bailey_entries_total 6",
            "bailey_entries_unwritten_total 1",
            "bailey_flows_total{verdict=\"refuse\",class=\"local\"} 3",
            "bailey_flows_total{verdict=\"refuse\",class=\"none\"} 3",
            "bailey_names_total{verdict=\"allow\"} 2",
            "bailey_names_total{verdict=\"refuse\"} 3",
            "bailey_refusals_total{reason=\"outside reach\"} 9",
            "bailey_flows_ended_total{end=\"reset by peer\"} 1",
            "bailey_notices_total{rule=\"local-from-internet-only\"} 1",
            "bailey_bytes_total{direction=\"out\"} 7",
            "bailey_bytes_total{direction=\"in\"} 9",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(!text.contains("secret"), "{text}");
    }
}
