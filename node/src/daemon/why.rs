//! Why a dial of a box is granted or refused, before it is tried or after.
//!
//! The gate judges where the box runs here; else the node does, by the reach
//! that the box has or had and by the registries alone. Nothing is dialled, and
//! no name is asked for.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use bailey_gate_proto::channel::ToGate;
use bailey_gate_proto::{
    AddrExplained, Explain, Explained, NameExplained, NameTable, Now, Policy, Whom, explain,
    is_mdns, refusal,
};
use bailey_model::link::{GATE_V4, GATE_V6};
use bailey_model::{AddrClass, HostPattern, Reach, ReachTerm, Refusal, Tier, Transport, Verdict};

use super::event::{ConnId, RunId};
use super::fold::BoxState;
use super::reading::Desk;
use super::run_state::Phase;
use super::{Node, reading, store};
use crate::api::{Failure, Tell};
use crate::rows::{self, FlowRow, WhyAddr, WhyRow};
use crate::{grant, show, unseen};

/// The gate's own addresses.
const GATE: [IpAddr; 2] = [IpAddr::V4(GATE_V4), IpAddr::V6(GATE_V6)];
/// Entries of the audit that are shown.
const LAST: usize = 5;
/// Questions that one gate has not answered.
const MAX_ASKED: usize = 64;

/// A question that a gate has, or whose answer is being written.
#[derive(Debug)]
pub(crate) struct Asked {
    conn: ConnId,
    state: BoxState,
    what: String,
    question: Explain,
    /// The transport, where one was said.
    over: Option<Transport>,
}

impl Node {
    pub(super) fn on_why(&mut self, conn: ConnId, target: &str, what: &str) -> Result<(), Failure> {
        let (question, over) = parse(what)?;
        let state = self.fold.resolve(target, self.this)?;
        if unseen::reason(&state.reach).is_some() {
            return Err(Failure::usage(format!(
                "{}: nothing decides its flows ({})",
                show::text(&state.name),
                show::text(&state.reach)
            )));
        }
        let asked = Asked {
            conn,
            what: what.to_owned(),
            question: question.clone(),
            over,
            state,
        };
        let run = self
            .runs
            .values_mut()
            .find(|run| run.incarnation == asked.state.incarnation && run.tier == Tier::Gated);
        let run = run.filter(|run| run.phase == Phase::Running);
        let gate = run.and_then(|run| run.gate.as_ref().map(|gate| (&mut run.questions, gate)));
        match gate {
            Some((questions, _)) if questions.why.len() >= MAX_ASKED => {
                return Err(Failure::host("its gate has too many questions already"));
            }
            Some((questions, gate)) if gate.send(ToGate::Explain(question), vec![]) => {
                questions.why.push_back(asked);
            }
            _ => self.explain_here(asked),
        }
        Ok(())
    }

    /// The gate's answer to the question that it was asked first.
    pub(super) fn on_explained(&mut self, id: RunId, explained: Explained) {
        let run = self.runs.get_mut(&id);
        if let Some(asked) = run.and_then(|run| run.questions.why.pop_front()) {
            self.answer_why(asked, explained, true);
        }
    }

    /// Without a gate: by the reach in its text.
    pub(super) fn explain_here(&mut self, asked: Asked) {
        let policy = Policy {
            reach: asked.state.reach.parse().unwrap_or_default(),
            ..Policy::default()
        };
        let explained = explain(Now::ZERO, &policy, &NameTable::new(), &[], &asked.question);
        self.answer_why(asked, explained, false);
    }

    fn answer_why(&self, asked: Asked, explained: Explained, by_gate: bool) {
        if let Some(desk) = self.desk(asked.conn) {
            let device = self.fold.device_name(asked.state.writer);
            let said = self.said_here(&asked.state);
            tokio::spawn(desk.why(
                asked,
                explained,
                Seen {
                    device,
                    said,
                    by_gate,
                },
            ));
        }
    }
}

/// From where it is looked at.
#[derive(Debug)]
struct Seen {
    device: String,
    /// What the box is called in a command here, if one here may grant it something.
    said: Option<String>,
    by_gate: bool,
}

impl Node {
    /// What a box is called in a command of this device that grants it something; `None`
    /// where this device may not.
    fn said_here(&self, state: &BoxState) -> Option<String> {
        if state.writer == self.this {
            return Some(state.name.clone());
        }
        let members = self.devices.members();
        if !members.get(&self.this)?.role.may_decide() {
            return None;
        }
        let name = self.fold.device_name(state.writer);
        let same = members.iter().map(|(id, _)| self.fold.device_name(*id));
        let one = same.filter(|other| *other == name).count() == 1;
        let device = match one && !name.contains('@') {
            true => name,
            false => rows::short(&state.writer),
        };
        Some(format!("{}@{device}", state.name))
    }
}

impl Desk {
    async fn why(self, asked: Asked, explained: Explained, seen: Seen) {
        let desk = self.clone();
        let read = tokio::task::spawn_blocking(move || {
            let all = desk.concerned(&asked)?;
            Ok(row(&asked, &explained, &seen, &all))
        });
        let tell = match read.await {
            Ok(Ok(row)) => Tell::Why(Box::new(row)),
            Ok(Err(failure)) => Tell::Failed(failure),
            Err(error) => Tell::Failed(Failure::internal(format!("reading: {error}"))),
        };
        let last = matches!(tell, Tell::Why(_));
        if self.tell(tell).await && last {
            self.tell(Tell::Done).await;
        }
    }

    /// The rows of its newest run in which the name or address stands. On a thread
    /// that may wait.
    fn concerned(&self, asked: &Asked) -> Result<Concerned, Failure> {
        let mut reader = store::reader(&self.paths, &self.keys)?;
        let mut found = Concerned::default();
        let is_meant = meant(asked);
        reading::each_row(&mut reader, &asked.state, asked.state.started, |row| {
            if row.kind == "started" {
                found = Concerned::default();
            }
            if is_meant(&row) {
                found.push(row);
            }
            true
        })?;
        Ok(found)
    }
}

/// What of a run concerns a name or address.
#[derive(Debug, Default)]
struct Concerned {
    opened: u64,
    refused: u64,
    named: u64,
    /// The newest.
    last: VecDeque<FlowRow>,
    /// The newest answer that was kept from the box, with no dial after it.
    withheld: Option<FlowRow>,
}

impl Concerned {
    fn push(&mut self, row: FlowRow) {
        match row.kind.as_str() {
            "flow" => self.opened += row.count,
            "refused" => self.refused += row.count,
            "name" => self.named += row.count,
            _ => {}
        }
        if row.kind == "flow" {
            // A dial since then was of another answer.
            self.withheld = None;
        } else if row.reason.as_deref() == Some(Refusal::AnswerWithheld.as_str()) {
            self.withheld = Some(row.clone());
        }
        self.last.push_back(row);
        if self.last.len() > LAST {
            self.last.pop_front();
        }
    }
}

/// `HOST[:PORT][/tcp|/udp]`, or an address in the same form.
fn parse(what: &str) -> Result<(Explain, Option<Transport>), Failure> {
    let fault = || {
        Failure::usage(format!(
            "{}: want one HOST[:PORT][/udp], or ADDRESS[:PORT][/udp]",
            show::text(what)
        ))
    };
    let reach: Reach = what.parse().map_err(|error| {
        let failure = Failure::usage(format!("{error}"));
        failure.hint("HOST[:PORT][/udp], or ADDRESS[:PORT][/udp]")
    })?;
    let [term] = reach.terms() else {
        return Err(fault());
    };
    let (what, ports) = match term {
        ReachTerm::Name(HostPattern::Exact(host), ports) => (Whom::Name(host.clone()), ports),
        ReachTerm::Prefix { addr, len, ports } if *len == bits(*addr) => (Whom::Addr(*addr), ports),
        _ => return Err(fault()),
    };
    let port = match ports.ports[..] {
        [] => None,
        [port] => Some(port),
        _ => return Err(fault()),
    };
    let question = Explain {
        what,
        port,
        transport: ports.transport.unwrap_or(Transport::Tcp),
    };
    Ok((question, ports.transport))
}

fn bits(addr: std::net::IpAddr) -> u8 {
    if addr.is_ipv4() { 32 } else { 128 }
}

fn row(asked: &Asked, explained: &Explained, seen: &Seen, all: &Concerned) -> WhyRow {
    let state = &asked.state;
    let allowed = |addr: &AddrExplained| matches!(addr.verdict, Verdict::Allow(_));
    let given = explained.addrs.iter().any(allowed);
    let withheld = all.withheld.as_ref().filter(|_| !given);
    let why = refusal(explained);
    let (grant, cannot) = match (why, withheld) {
        (None, None) => (None, None),
        (None, Some(row)) => (None, Some(withheld_text(row))),
        (Some(_), _) => match term(asked, explained) {
            Some(term) => (Some(command(asked, seen, &term)), None),
            None => (None, Some(no_word(explained))),
        },
    };
    WhyRow {
        v: rows::V,
        box_name: state.name.clone(),
        box_id: state.id.to_string(),
        device: seen.device.clone(),
        running: state.ended.is_none(),
        what: asked.what.clone(),
        proto: match asked.question.transport {
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
        }
        .to_owned(),
        reach: state.reach.clone(),
        verdict: if why.is_none() { "allow" } else { "refuse" }.to_owned(),
        reason: why.map(|why| why.as_str().to_owned()),
        rule: rule(explained),
        name: explained
            .name
            .as_ref()
            .map(|name| name_word(name).to_owned()),
        addrs: explained.addrs.iter().map(addr_row).collect(),
        judged_by: if seen.by_gate { "gate" } else { "registries" }.to_owned(),
        opened: all.opened,
        refused: all.refused,
        named: all.named,
        last: all.last.iter().cloned().collect(),
        grant,
        cannot,
    }
}

/// Whether a row is of what was asked about.
fn meant(asked: &Asked) -> impl Fn(&FlowRow) -> bool {
    let Explain { what, port, .. } = asked.question.clone();
    let over = asked.over.map(|over| match over {
        Transport::Tcp => "tcp",
        Transport::Udp => "udp",
    });
    move |row: &FlowRow| {
        let named = match &what {
            Whom::Name(host) => row.dst_host.as_deref() == Some(host.as_str()),
            Whom::Addr(addr) => row.dst_ip == Some(*addr),
        };
        let same_port = row.dst_port.is_none() || port.is_none() || row.dst_port == port;
        let proto = row.proto.as_deref();
        let same_proto = over.is_none() || proto == over || proto == Some("dns");
        named && same_port && same_proto && row.direction.as_deref() != Some("in")
    }
}

/// The term that grants it.
fn rule(explained: &Explained) -> Option<String> {
    if let Some(name) = &explained.name {
        let NameExplained::Inside { by } = name else {
            return None;
        };
        return by.clone();
    }
    explained.addrs.iter().find_map(|addr| match &addr.verdict {
        Verdict::Allow(granted) => Some(granted.0.clone()),
        Verdict::Refuse(_) => None,
    })
}

/// Whether it is what `mdns` opens.
fn is_group(addr: IpAddr, port: Option<u16>) -> bool {
    port.is_some_and(|port| is_mdns(SocketAddr::new(addr, port)))
}

/// The term that would.
fn term(asked: &Asked, explained: &Explained) -> Option<String> {
    let Explain { what, port, .. } = &asked.question;
    match what {
        Whom::Name(host) if explained.name == Some(NameExplained::Nowhere) => {
            let word = grant::name_term(host, *port, asked.over);
            word.filter(|word| *word == ReachTerm::Mdns.to_string())
        }
        Whom::Name(_) if matches!(explained.name, Some(NameExplained::Inside { by: Some(_) })) => {
            // The name is granted, and none of its addresses is.
            let addr = explained.addrs.iter().find(|addr| addr.grantable())?;
            grant::addr_term(addr.addr, *port, asked.over)
        }
        Whom::Name(host) if explained.name.is_some() => grant::name_term(host, *port, asked.over),
        Whom::Addr(addr) if asked.over == Some(Transport::Udp) && is_group(*addr, *port) => {
            Some(ReachTerm::Mdns.to_string())
        }
        Whom::Name(_) | Whom::Addr(_) => {
            let addr = explained.addrs.first()?;
            match addr.class {
                // It stands for the node's loopback.
                AddrClass::Gate if GATE.contains(&addr.addr) => {
                    grant::loopback_term((*port)?, asked.over)
                }
                _ if addr.grantable() => grant::addr_term(addr.addr, *port, asked.over),
                _ => None,
            }
        }
    }
}

fn command(asked: &Asked, seen: &Seen, term: &str) -> String {
    let state = &asked.state;
    if state.ended.is_some() {
        let reach = match state.reach.as_str() {
            "nothing" => term.to_owned(),
            reach => format!("{reach},{term}"),
        };
        return format!("its next run: --reach {}", show::shell_word(&reach));
    }
    match &seen.said {
        Some(said) => grant::command(said, term),
        None => {
            let command = grant::command(&state.name, term);
            format!("on {}: {command}", show::text(&seen.device))
        }
    }
}

fn no_word(explained: &Explained) -> String {
    match explained.addrs.first() {
        None => "no word grants it: no such name is asked of anybody".to_owned(),
        Some(addr) => grant::no_word(addr.class),
    }
}

fn withheld_text(row: &FlowRow) -> String {
    let class = row.dst_class.as_deref().unwrap_or("other");
    match class {
        "local" => "it was answered with a local address, which a name does not open: \
                    `local` does, or the address itself"
            .to_owned(),
        "private" => "it was answered with a private address that is not on this machine's \
                      networks, which a name does not open: the address itself does"
            .to_owned(),
        class => format!("it was answered with a {class} address, which no name opens"),
    }
}

fn name_word(name: &NameExplained) -> &'static str {
    match name {
        NameExplained::Inside { by: Some(_) } => "in reach",
        NameExplained::Inside { by: None } => "in reach, not that port",
        NameExplained::Ancestor => "above a name in reach",
        NameExplained::Outside => "outside reach",
        NameExplained::Nowhere => "set aside for nobody",
    }
}

fn addr_row(addr: &AddrExplained) -> WhyAddr {
    let (verdict, reason, rule) = match &addr.verdict {
        Verdict::Allow(granted) => ("allow", None, Some(granted.0.clone())),
        Verdict::Refuse(why) => ("refuse", Some(why.as_str().to_owned()), None),
    };
    WhyAddr {
        ip: addr.addr,
        class: addr.class.as_str().to_owned(),
        verdict: verdict.to_owned(),
        reason,
        rule,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_host_or_address_with_one_port_is_explained_and_nothing_else() {
        let name = |text: &str| Whom::Name(bailey_model::Host::new(text).unwrap());
        let addr = |text: &str| Whom::Addr(text.parse().unwrap());
        for (text, what, port, over) in [
            ("shop.example", name("shop.example"), None, None),
            ("Shop.Example.:443", name("shop.example"), Some(443), None),
            (
                "shop.example:53/udp",
                name("shop.example"),
                Some(53),
                Some(Transport::Udp),
            ),
            ("192.168.1.9:80", addr("192.168.1.9"), Some(80), None),
            (
                "[2001:db8::1]:443/tcp",
                addr("2001:db8::1"),
                Some(443),
                Some(Transport::Tcp),
            ),
            ("2001:db8::1", addr("2001:db8::1"), None, None),
        ] {
            let (question, said) = parse(text).unwrap();
            assert_eq!(
                (question.what, question.port, said),
                (what, port, over),
                "{text}"
            );
            let expected = over.unwrap_or(Transport::Tcp);
            assert_eq!(question.transport, expected);
        }
        for bad in [
            "",
            "internet",
            "nothing",
            "*.a.b",
            "10.0.0.0/8",
            "a.b:1,2",
            "a.b,c.d",
            "a b",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
