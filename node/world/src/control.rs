//! The lines that a world and its owner exchange.

use std::fmt;

/// One line from the world to its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    /// The pid of the world's first process, as its owner's namespace counts.
    Init(u32),
    /// Everything is up; the pids of the nodes' first processes, `n1` first,
    /// as the world's own namespace counts. `ipv6` says whether there is any.
    Ready { ipv6: bool, nodes: Vec<u32> },
    /// A holder has made its namespaces.
    Made,
    /// The pid of a node's first process.
    Node(u32),
    /// What was asked is done.
    Done,
    /// What was asked, or a step of the set-up, failed.
    Failed { step: String, detail: String },
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Init(pid) => write!(f, "init {pid}"),
            Self::Ready { ipv6, nodes } => {
                write!(f, "ready {}", u8::from(*ipv6))?;
                nodes.iter().try_for_each(|pid| write!(f, " {pid}"))
            }
            Self::Made => f.write_str("made"),
            Self::Node(pid) => write!(f, "node {pid}"),
            Self::Done => f.write_str("done"),
            Self::Failed { step, detail } => {
                write!(f, "failed {}\t{}", flat(step), flat(detail))
            }
        }
    }
}

/// A text with its line ends and tabs made harmless.
fn flat(text: &str) -> String {
    text.trim_end()
        .replace(['\t', '\r'], " ")
        .replace('\n', "; ")
}

impl Line {
    /// `None` for a line that is none of these.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "init" => rest.parse().ok().map(Self::Init),
            "ready" => {
                let (ipv6, pids) = rest.split_once(' ')?;
                let nodes = pids
                    .split(' ')
                    .map(str::parse)
                    .collect::<Result<_, _>>()
                    .ok()?;
                Some(Self::Ready {
                    ipv6: ipv6 == "1",
                    nodes,
                })
            }
            "made" => Some(Self::Made),
            "node" => rest.parse().ok().map(Self::Node),
            "done" => Some(Self::Done),
            "failed" => {
                let (step, detail) = rest.split_once('\t')?;
                Some(Self::Failed {
                    step: step.to_owned(),
                    detail: detail.to_owned(),
                })
            }
            _ => None,
        }
    }
}

/// A step that failed, on its way to the owner.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) step: String,
    pub(crate) detail: String,
}

impl Failure {
    pub(crate) fn new(step: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self {
            step: step.into(),
            detail: detail.to_string(),
        }
    }

    pub(crate) fn line(self) -> Line {
        Line::Failed {
            step: self.step,
            detail: self.detail,
        }
    }
}

/// Names the step of an error.
pub(crate) trait Step<T> {
    fn step(self, step: &str) -> Result<T, Failure>;
}

impl<T, E: fmt::Display> Step<T> for Result<T, E> {
    fn step(self, step: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(step, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back_as_they_went() {
        for line in [
            Line::Init(17),
            Line::Ready {
                ipv6: true,
                nodes: vec![4, 9],
            },
            Line::Made,
            Line::Node(3),
            Line::Done,
            Line::Failed {
                step: "mount /proc".into(),
                detail: "EPERM".into(),
            },
        ] {
            assert_eq!(Line::parse(&line.to_string()), Some(line));
        }
    }

    #[test]
    fn a_failure_stays_on_one_line() {
        let line = Line::Failed {
            step: "a\tb".into(),
            detail: "one\ntwo\n".into(),
        }
        .to_string();
        assert_eq!(line, "failed a b\tone; two");
    }
}
