//! Texts of entries, held to what one entry may take.
//!
//! Paths and words are as long as the system lets them be, and a report has one
//! for each thing that was tried. An entry that is too large could not be written
//! at all; so what is too long is cut, and it is said that it was.

use bailey_model::{AxisReport, BoundaryReport, Fact};

/// Bytes of a command's words in an entry.
const MAX_COMMAND: usize = 8 << 10;
/// Bytes of the text of one fact.
const MAX_FACT: usize = 512;
/// Bytes of all facts of one side; there are six.
const MAX_FACTS: usize = 4 << 10;

/// Bytes of the path of a grant.
const MAX_PATH: usize = 4 << 10;

/// A path as it is entered.
pub(super) fn path(text: String) -> String {
    middle(text, MAX_PATH)
}

/// As many words as are kept of a command, and then how many there were more.
pub(super) fn command(words: Vec<String>) -> Vec<String> {
    let count = words.len();
    let mut left = MAX_COMMAND;
    let mut kept = Vec::new();
    for word in words {
        let cut = middle(word, left);
        left = left.saturating_sub(cut.len() + 1);
        kept.push(cut);
        if left == 0 {
            break;
        }
    }
    let more = count - kept.len();
    if more > 0 {
        kept.push(format!("… and {more} more words"));
    }
    kept
}

/// A report that fits; what did not hold is kept first.
pub(super) fn report(report: &mut BoundaryReport) {
    for axis in &mut report.axes {
        side(axis);
    }
}

fn side(axis: &mut AxisReport) {
    for fact in &mut axis.facts {
        fact.what = middle(std::mem::take(&mut fact.what), MAX_FACT);
        fact.got = middle(std::mem::take(&mut fact.got), MAX_FACT);
    }
    let size = |fact: &Fact| fact.what.len() + fact.got.len() + 4;
    let mut left = MAX_FACTS;
    let mut fits = vec![false; axis.facts.len()];
    for failed in [true, false] {
        for (fact, fits) in axis.facts.iter().zip(&mut fits) {
            if (fact.held == Some(false)) == failed && size(fact) <= left {
                left -= size(fact);
                *fits = true;
            }
        }
    }
    let more = fits.iter().filter(|fits| !**fits).count();
    if more == 0 {
        return;
    }
    let mut fits = fits.into_iter();
    axis.facts.retain(|_| fits.next().unwrap_or_default());
    axis.facts.push(Fact {
        what: format!("{more} more"),
        got: "too many for one entry".to_owned(),
        held: None,
    });
}

/// Cut in the middle to so many bytes at most, with a mark where.
fn middle(text: String, most: usize) -> String {
    const MARK: &str = "…";
    if text.len() <= most {
        return text;
    }
    let side = most.saturating_sub(MARK.len()) / 2;
    let head = (0..=side).rev().find(|at| text.is_char_boundary(*at));
    let tail = (text.len() - side..=text.len()).find(|at| text.is_char_boundary(*at));
    let head = text.get(..head.unwrap_or_default()).unwrap_or_default();
    let tail = text.get(tail.unwrap_or(text.len())..).unwrap_or_default();
    format!("{head}{MARK}{tail}")
}

#[cfg(test)]
mod tests {
    use bailey_model::{Axis, AxisVerdict};

    use super::*;

    fn fact(what: String, held: Option<bool>) -> Fact {
        Fact {
            what,
            got: "EROFS".to_owned(),
            held,
        }
    }

    #[test]
    fn a_short_command_is_kept_as_it_is_and_a_long_one_says_what_is_missing() {
        let words = vec!["ls".to_owned(), String::new()];
        assert_eq!(command(words.clone()), words);
        let long = command((0..8000).map(|n| n.to_string()).collect());
        assert!(long.iter().map(String::len).sum::<usize>() <= MAX_COMMAND + 40);
        let more = 8000 - (long.len() - 1);
        assert_eq!(long.last().unwrap(), &format!("… and {more} more words"));
        let one = command(vec!["é".repeat(MAX_COMMAND)]);
        assert!(one[0].len() <= MAX_COMMAND && one[0].contains('…'));
    }

    #[test]
    fn what_did_not_hold_is_kept_before_what_did() {
        let path = |n: usize| format!("write /{}{n}", "d".repeat(300));
        let mut facts: Vec<Fact> = (0..100).map(|n| fact(path(n), Some(true))).collect();
        facts.push(fact(path(100), Some(false)));
        let mut axis = AxisReport {
            axis: Axis::Files,
            verdict: AxisVerdict::NotFenced,
            facts,
        };
        side(&mut axis);
        assert!(axis.facts.iter().any(|fact| fact.held == Some(false)));
        let kept = axis.facts.len() - 1;
        assert!(kept > 5 && axis.facts[kept].what == format!("{} more", 101 - kept));
        let bytes: usize = axis.facts.iter().map(|fact| fact.what.len()).sum();
        assert!(bytes <= MAX_FACTS + 40);
        let before = axis.clone();
        axis.facts.pop();
        side(&mut axis);
        assert_eq!(axis.facts, before.facts[..kept]);
    }
}
