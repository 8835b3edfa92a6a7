//! Conversations of segments as data, one file a rule of TCP, in `scripts/`.
//!
//! A line is one step. What the gate does must be what the next lines say, in
//! that order, and nothing may be left at the end. Sequence numbers count from
//! each side's first; a stranger's stand for themselves.
//!
//! ```text
//! reach internet                what the box may dial; first of all
//! > SYN seq 0                   the box sends; also: ack, win, mss, scale, plain,
//!                               opt HEX, urg, data "x", fill N, from PORT, to END, cut
//! < SYN ACK seq 0 ack 1         the gate sends to it; win N, mss N, data, fill too
//! < icmp 3 1                    an ICMP error, by type and code
//! entered | unwritten           a flow was asked to be entered: it stands, or not
//! asked / stands / fails        the same in two steps
//! dials                         the gate dials
//! dial ok | refused | timeout | no host | no network | no socket | itself
//! host: data "x" | fill N | fin | reset | room N | room all
//! host< "x" | fill N | fin | reset | close
//! ended closed out 5 in 7       a flow's end, as its entry has it
//! refused outside reach         a refusal is entered
//! came                          somebody comes by a published port
//! advance 200ms                 time passes, timers run
//! quiet 60s at most 20          as that, but what the gate sends is only counted
//! nothing                       nothing happened since
//! flows 1                       so many there are
//! stop                          the box is stopped
//! ```

use std::collections::HashMap;
use std::iter::Peekable;
use std::str::FromStr;

use super::*;
use crate::gate::tests::raw::{Got, SYN_OPTIONS};

/// The box's first sequence number: it wraps within every conversation.
const ISS: u32 = 0xffff_fff0;
const NAMES: [(&str, u8); 8] = [
    ("FIN", FIN),
    ("SYN", SYN),
    ("RST", RST),
    ("PSH", 8),
    ("ACK", ACK),
    ("URG", 32),
    ("ECE", 64),
    ("CWR", 128),
];

/// Why a step failed.
type Wrong = String;

/// A segment as a line has it.
#[derive(Debug, Default)]
struct Line {
    flags: u8,
    seq: Option<u32>,
    ack: Option<u32>,
    win: Option<u16>,
    mss: Option<u16>,
    urg: u16,
    options: Option<Vec<u8>>,
    data: Vec<u8>,
    from: Option<u16>,
    to: Option<SocketAddr>,
    cut: usize,
}

struct Words<'a>(Peekable<std::vec::IntoIter<&'a str>>);

impl<'a> Words<'a> {
    /// Words and quoted texts of a line; what follows ` # ` is for readers.
    fn of(line: &'a str) -> Self {
        let line = line.split(" # ").next().unwrap_or(line);
        let mut words = Vec::new();
        let mut rest = line.trim();
        while !rest.is_empty() {
            let end = match rest.strip_prefix('"') {
                Some(text) => text.find('"').map_or(rest.len(), |end| end + 2),
                None => rest.find(' ').unwrap_or(rest.len()),
            };
            words.push(&rest[..end]);
            rest = rest[end..].trim_start();
        }
        Self(words.into_iter().peekable())
    }

    fn next(&mut self) -> Result<&'a str, Wrong> {
        self.0.next().ok_or_else(|| "a word is missing".to_owned())
    }

    fn number<T: FromStr>(&mut self) -> Result<T, Wrong> {
        let word = self.next()?;
        word.parse().map_err(|_| format!("no number: {word}"))
    }

    fn is_over(&mut self) -> bool {
        self.0.peek().is_none()
    }

    fn rest(&mut self) -> String {
        Vec::from_iter(self.0.by_ref()).join(" ")
    }

    fn time(&mut self) -> Result<Duration, Wrong> {
        let word = self.next()?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("no time: {word}"));
        match word.strip_suffix("ms") {
            Some(ms) => Ok(Duration::from_millis(number(ms)?)),
            None => Ok(Duration::from_secs(number(word.trim_end_matches('s'))?)),
        }
    }

    /// Data, if the word says so.
    fn data(&mut self, word: &str) -> Result<Option<Vec<u8>>, Wrong> {
        match word {
            "data" => Ok(Some(self.next()?.trim_matches('"').as_bytes().to_vec())),
            "fill" => Ok(Some(vec![b'.'; self.number()?])),
            quoted if quoted.starts_with('"') => Ok(Some(quoted.trim_matches('"').into())),
            _ => Ok(None),
        }
    }

    fn segment(&mut self) -> Result<Line, Wrong> {
        let mut line = Line::default();
        while let Some(word) = self.0.next() {
            if let Some((_, flag)) = NAMES.iter().find(|(name, _)| *name == word) {
                line.flags |= flag;
                continue;
            }
            match word {
                "NONE" => {}
                "seq" => line.seq = Some(self.number()?),
                "ack" => line.ack = Some(self.number()?),
                "win" => line.win = Some(self.number()?),
                "mss" => line.mss = Some(self.number()?),
                "urg" => line.urg = self.number()?,
                "from" => line.from = Some(self.number()?),
                "cut" => line.cut = self.number()?,
                "to" => line.to = Some(self.number()?),
                "plain" => line.options = Some(Vec::new()),
                "opt" => line.options = Some(octets(self.next()?)?),
                _ => {
                    let data = self.data(word)?;
                    line.data = data.ok_or_else(|| format!("no such word: {word}"))?;
                }
            }
        }
        Ok(line)
    }
}

fn octets(hex: &str) -> Result<Vec<u8>, Wrong> {
    let octet = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16);
    let octets = (0..hex.len() / 2).map(|at| octet(at * 2)).collect();
    let octets: Vec<u8> = Result::map_err(octets, |_| format!("no octets: {hex}"))?;
    match octets.len() % 4 {
        0 => Ok(octets),
        _ => Err("options are whole words".to_owned()),
    }
}

/// A conversation under way.
struct Player {
    rig: Rig,
    far: Far,
    /// What of the box the far end has been found to have.
    heard: usize,
    finish_heard: bool,
    /// The gate's first sequence number between two ends.
    irs: HashMap<Ends, u32>,
    ticket: Option<u64>,
    flow: FlowId,
    events: VecDeque<(Option<u64>, GateEvent)>,
    actions: VecDeque<Action>,
}

impl Player {
    fn new(reach: &str) -> Self {
        Self {
            rig: Rig::new(reach),
            far: Far::default(),
            heard: 0,
            finish_heard: false,
            irs: HashMap::new(),
            ticket: None,
            flow: FlowId(0),
            events: VecDeque::new(),
            actions: VecDeque::new(),
        }
    }

    fn settle(&mut self) {
        self.rig.turns(&mut self.far);
        self.events.extend(self.rig.events());
        self.actions.extend(self.rig.actions());
    }

    fn step(&mut self, line: &str) -> Result<(), Wrong> {
        let mut words = Words::of(line);
        match words.next()? {
            ">" => self.box_sends(words.segment()?)?,
            "<" if words.0.next_if_eq(&"icmp").is_some() => self.icmp(&mut words)?,
            "<" => {
                let line = words.segment()?;
                self.gate_sent(&line)?;
            }
            "asked" => self.asked()?,
            "stands" | "fails" if self.ticket.is_none() => return Err("nothing asked".into()),
            "stands" => self.word(true),
            "fails" => self.word(false),
            "entered" => {
                self.asked()?;
                self.word(true);
            }
            "unwritten" => {
                self.asked()?;
                self.word(false);
            }
            "dials" => self.dials(&mut words)?,
            "dial" => self.dialled(&words.rest())?,
            "host:" => self.host(&mut words)?,
            "host<" => self.host_heard(&mut words)?,
            "ended" => self.ended(&words.rest())?,
            "refused" => self.refused(&words.rest())?,
            "came" => {
                let publish = "80:8080".parse().unwrap();
                let client = at("127.0.0.1:51000");
                self.far = Far::default();
                let came = self.rig.gate.handle_accepted(self.rig.now, publish, client);
                self.flow = came.ok_or_else(|| "turned away".to_owned())?;
            }
            "advance" => {
                let time = words.time()?;
                self.pass(time);
            }
            "quiet" => self.quiet(&mut words)?,
            "nothing" => self.nothing()?,
            "flows" => {
                let (there, wanted) = (self.rig.gate.flows(), words.number()?);
                if there != wanted {
                    return Err(format!("{there} flows"));
                }
            }
            "stop" => drop(self.rig.gate.stop(self.rig.now, &mut self.rig.sink)),
            other => return Err(format!("no such step: {other}")),
        }
        self.settle();
        if words.is_over() {
            return Ok(());
        }
        Err(format!("too much: {}", words.rest()))
    }

    fn box_sends(&mut self, line: Line) -> Result<(), Wrong> {
        let dst = line.to.unwrap_or_else(|| at(SHOP));
        let port = line.from.unwrap_or(40000);
        let src = match dst {
            SocketAddr::V4(_) => own(port),
            SocketAddr::V6(_) => SocketAddr::new(BOX_V6.into(), port),
        };
        let irs = self.irs.get(&Ends { src, dst }).copied().unwrap_or(0);
        let mut options = line.options.unwrap_or_else(|| match line.flags & SYN {
            0 => Vec::new(),
            _ => SYN_OPTIONS.to_vec(),
        });
        if let Some(mss) = line.mss {
            let [high, low] = mss.to_be_bytes();
            options = vec![2, 4, high, low, 1, 3, 3, raw::SCALE];
        }
        let segment = raw::Tcp {
            seq: ISS.wrapping_add(line.seq.ok_or("seq is missing")?),
            ack: line.ack.map_or(0, |ack| irs.wrapping_add(ack)),
            flags: line.flags,
            window: line.win.unwrap_or(65535),
            urgent: line.urg,
            options: &options,
            data: &line.data,
        };
        let packet = raw::tcp(src, dst, &segment);
        self.rig.tun(&packet[..packet.len() - line.cut]);
        Ok(())
    }

    fn gate_sent(&mut self, line: &Line) -> Result<(), Wrong> {
        let packet = self
            .rig
            .sink
            .packets
            .pop_front()
            .ok_or("the gate sends nothing")?;
        let got = raw::read_tcp(&packet).ok_or_else(|| format!("no segment: {packet:02x?}"))?;
        let ends = Ends {
            src: got.dst,
            dst: got.src,
        };
        if got.flags & SYN != 0 {
            self.irs.insert(ends, got.seq);
        }
        // A reset that answers no acknowledgement has no number of its own.
        let bare = got.flags & RST != 0 && got.seq == 0;
        let irs = self.irs.get(&ends).copied().filter(|_| !bare).unwrap_or(0);
        let seen = Got {
            seq: got.seq.wrapping_sub(irs),
            ack: if got.flags & ACK == 0 {
                0
            } else {
                got.ack.wrapping_sub(ISS)
            },
            ..got
        };
        let fits = seen.flags == line.flags
            && line.seq.is_none_or(|seq| seq == seen.seq)
            && line.ack.is_none_or(|ack| ack == seen.ack)
            && line.win.is_none_or(|win| win == seen.window)
            && line.mss.is_none_or(|mss| Some(mss) == seen.mss)
            && line.to.is_none_or(|to| to == seen.src)
            && line.from.is_none_or(|from| from == seen.dst.port())
            && line.data == seen.data;
        if fits {
            return Ok(());
        }
        let flags = NAMES.iter().filter(|(_, flag)| seen.flags & flag != 0);
        let flags: Vec<&str> = flags.map(|(name, _)| *name).collect();
        let Got { seq, ack, .. } = seen;
        let len = seen.data.len();
        Err(format!(
            "the gate sends {flags:?} seq {seq} ack {ack} win {} of {len}: {:?}",
            seen.window,
            String::from_utf8_lossy(&seen.data[..len.min(40)])
        ))
    }

    fn icmp(&mut self, words: &mut Words<'_>) -> Result<(), Wrong> {
        let packet = self
            .rig
            .sink
            .packets
            .pop_front()
            .ok_or("the gate sends nothing")?;
        if raw::read_tcp(&packet).is_some() {
            return Err("the gate sends a segment".to_owned());
        }
        let (_, kind, code) = read_icmp(&packet);
        match (kind, code) == (words.number()?, words.number()?) {
            true => Ok(()),
            false => Err(format!("the gate sends icmp {kind} {code}")),
        }
    }

    fn asked(&mut self) -> Result<(), Wrong> {
        match self.events.pop_front() {
            Some((Some(ticket), GateEvent::FlowOpened(opened))) => {
                (self.ticket, self.flow) = (Some(ticket), opened.flow);
                Ok(())
            }
            other => Err(format!("{other:?}")),
        }
    }

    fn word(&mut self, stands: bool) {
        if let Some(ticket) = self.ticket.take() {
            self.rig.word(ticket, stands);
        }
    }

    fn dials(&mut self, words: &mut Words<'_>) -> Result<(), Wrong> {
        let wanted = match words.is_over() {
            true => at(SHOP),
            false => words.number()?,
        };
        match self.actions.pop_front() {
            Some(Action::Dial { flow, dst }) if (flow, dst) == (self.flow, wanted) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }

    fn dialled(&mut self, how: &str) -> Result<(), Wrong> {
        (self.far, self.heard, self.finish_heard) = (Far::default(), 0, false);
        let mut ends = Dialled {
            local: at("192.168.1.5:50000"),
            peer: at(SHOP),
        };
        let outcome = match how {
            "ok" => Ok(ends),
            "itself" => {
                ends.local = ends.peer;
                Ok(ends)
            }
            "refused" => Err(DialFault::Refused),
            "timeout" => Err(DialFault::TimedOut),
            "no host" => Err(DialFault::HostUnreachable),
            "no network" => Err(DialFault::NetworkUnreachable),
            "no socket" => Err(DialFault::NoSocket),
            other => return Err(format!("no such outcome: {other}")),
        };
        let Rig { gate, sink, now } = &mut self.rig;
        gate.handle_dialled(*now, self.flow, outcome, sink);
        Ok(())
    }

    fn host(&mut self, words: &mut Words<'_>) -> Result<(), Wrong> {
        match words.next()? {
            "fin" => self.far.ended = true,
            "reset" => self.far.broken = true,
            "room" => {
                let room = words.next()?;
                self.far.room = (room != "all").then(|| room.parse().unwrap());
            }
            word => {
                let data = words
                    .data(word)?
                    .ok_or_else(|| format!("no such word: {word}"))?;
                self.far.to_box.extend(data);
            }
        }
        self.rig.gate.handle_ready(self.flow, true, true);
        Ok(())
    }

    fn host_heard(&mut self, words: &mut Words<'_>) -> Result<(), Wrong> {
        let word = words.next()?;
        match (word, self.actions.front()) {
            ("fin", _) => {
                let heard = std::mem::replace(&mut self.finish_heard, self.far.finished);
                return match self.far.finished && !heard {
                    true => Ok(()),
                    false => Err("no end came".to_owned()),
                };
            }
            ("reset", Some(Action::Close { reset: true, flow }))
            | ("close", Some(Action::Close { reset: false, flow }))
                if *flow == self.flow =>
            {
                self.actions.pop_front();
                return Ok(());
            }
            ("reset" | "close", other) => return Err(format!("{other:?}")),
            _ => {}
        }
        let wanted = words
            .data(word)?
            .ok_or_else(|| format!("no such word: {word}"))?;
        let new = &self.far.from_box[self.heard..];
        if new != wanted {
            return Err(format!(
                "{} bytes: {:?}",
                new.len(),
                String::from_utf8_lossy(new)
            ));
        }
        self.heard = self.far.from_box.len();
        Ok(())
    }

    fn ended(&mut self, wanted: &str) -> Result<(), Wrong> {
        let Some((None, GateEvent::FlowEnded(ended))) = self.events.pop_front() else {
            return Err("no end is told".to_owned());
        };
        let reason = ended.end.as_str();
        let whole = format!("{reason} out {} in {}", ended.bytes_out, ended.bytes_in);
        match wanted == reason || wanted == whole {
            true => Ok(()),
            false => Err(format!("it ended: {whole}")),
        }
    }

    fn refused(&mut self, wanted: &str) -> Result<(), Wrong> {
        let Some((None, GateEvent::FlowRefused(refused))) = self.events.pop_front() else {
            return Err("no refusal is told".to_owned());
        };
        match wanted == refused.refusal.as_str() {
            true => Ok(()),
            false => Err(refused.refusal.as_str().to_owned()),
        }
    }

    /// Time passes; how often the gate woke.
    fn pass(&mut self, time: Duration) -> usize {
        let until = self.rig.now + time;
        let mut woken = 0;
        while let Some(due) = self.rig.gate.poll_timeout()
            && due <= until
            && woken < 10_000
        {
            woken += 1;
            self.rig.now = self.rig.now.max(due);
            let Rig { gate, sink, now } = &mut self.rig;
            gate.handle_timeout(*now, sink);
            self.settle();
        }
        self.rig.now = until;
        woken
    }

    fn quiet(&mut self, words: &mut Words<'_>) -> Result<(), Wrong> {
        self.nothing()?;
        let time = words.time()?;
        if (words.next()?, words.next()?) != ("at", "most") {
            return Err("at most how many?".to_owned());
        }
        let most: usize = words.number()?;
        let woken = self.pass(time);
        let sent = std::mem::take(&mut self.rig.sink.packets).len();
        match woken.max(sent) <= most {
            true => Ok(()),
            false => Err(format!("it woke {woken} times and sent {sent} packets")),
        }
    }

    fn nothing(&self) -> Result<(), Wrong> {
        let packets = self.rig.sink.packets.iter();
        let packets: Vec<_> = packets.map(|packet| raw::read_tcp(packet)).collect();
        let heard = self.far.from_box.len() - self.heard;
        let end = self.far.finished && !self.finish_heard;
        let none = packets.is_empty() && self.events.is_empty() && self.actions.is_empty();
        match none && heard == 0 && !end {
            true => Ok(()),
            false => Err(format!(
                "left: {packets:?} {:?} {:?}, {heard} bytes and {end} at the host",
                self.events, self.actions
            )),
        }
    }
}

fn play(script: &str) -> Result<(), Wrong> {
    let lines = script.lines().enumerate();
    let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let first = lines
        .clone()
        .next()
        .map(|(_, line)| line)
        .unwrap_or_default();
    let reach = first.strip_prefix("reach ");
    if reach.is_some() {
        lines.next();
    }
    let mut player = Player::new(reach.unwrap_or("internet"));
    for (number, line) in lines {
        let stands = player.step(line);
        stands.map_err(|wrong| format!("line {}: {line}\n  {wrong}", number + 1))?;
    }
    player
        .nothing()
        .map_err(|wrong| format!("at the end: {wrong}"))
}

/// One test a file.
macro_rules! scripts {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                if let Err(wrong) = play(include_str!(concat!("scripts/", stringify!($name), ".seg"))) {
                    panic!("{wrong}");
                }
            }
        )*

        #[test]
        fn every_file_is_played() {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/gate/tests/scripts");
            let files = std::fs::read_dir(folder).unwrap();
            let mut files: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
            files.sort();
            let mut named = vec![$(concat!(stringify!($name), ".seg")),*];
            named.sort_unstable();
            assert_eq!(files, named);
        }
    };
}

scripts! {
    a_box_that_gives_up_by_a_reset
    a_box_that_gives_up_by_silence
    a_closed_window_is_probed_and_costs_nothing
    a_dial_that_meets_itself
    a_dial_without_an_answer_is_timed
    a_lost_end_is_said_again
    a_port_used_again_while_its_last_flow_is_remembered
    a_reset_from_the_box
    a_reset_from_the_host
    a_slow_host_closes_the_window
    a_slow_reader_that_has_said_all
    a_stopped_box
    a_syn_again_is_the_same_dial
    a_syn_of_a_live_flow_is_challenged
    an_end_that_is_acknowledged_twice
    an_unreachable_host_looks_unreachable
    both_ends_open_at_once
    both_ends_say_fin_at_once
    half_closed_by_the_box
    half_closed_by_the_host
    keep_alives_are_answered
    odd_options_are_borne
    old_and_strange_segments_are_acknowledged_and_dropped
    overlapping_segments_are_one_stream
    refused_by_reach_and_by_the_far_end_look_the_same
    scans_of_closed_ports
    scans_of_open_flows
    segments_that_are_cut_are_dropped
    small_windows_and_segments
    the_largest_window_scale
    urgent_data_is_inlined
    what_was_said_before_a_reset
}

#[test]
fn a_script_that_is_wrong_fails() {
    let wrong = |script: &str, says: &str| {
        let said = play(script).expect_err(script);
        assert!(said.contains(says), "{script}: {said}");
    };
    wrong("> SYN seq 0\nnothing", "line 2");
    wrong("> SYN seq 0\nentered\ndials 1.1.1.1:1", "Dial");
    wrong(
        "> SYN seq 0\nentered\ndials\ndial ok\n< SYN ACK seq 0 ack 2",
        "ack 1",
    );
    wrong("> SYN seq 0\nentered\ndials\ndial ok", "at the end");
    wrong("> ACK seq 0 ack 5\n< RST seq 6", "seq 5");
    wrong(
        "reach nothing\n> SYN seq 0\n< RST ACK ack 1\nrefused limit",
        "outside reach",
    );
    wrong("> SYN sec 0", "no such word");
    wrong("> SYN seq 0 \"x\"\nentered\ndials\nhost< \"x\"", "0 bytes");
    wrong("flows 1", "0 flows");
    wrong("hello", "no such step");
}
