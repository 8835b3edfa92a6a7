//! Questions under way when the reach becomes another one.

use bailey_model::{Host, Refusal};

use super::Dns;
use super::reply::Answer;
use crate::Now;
use crate::policy::{NameReach, Policy};

impl Dns {
    /// The node's search list, for names of one label.
    pub(crate) fn search(&self) -> &[Host] {
        &self.facts.search
    }

    /// The reach is another one: a question whose name it does not hold is
    /// answered as any outside it, and whatever a resolver still says is not
    /// passed on.
    pub(crate) fn handle_reach(&mut self, now: Now, policy: &Policy) {
        let outside = |number: &u64| {
            let target = &self.questions.get(number)?.target;
            let reach = policy.name_reach(&target.grant, &self.facts.search);
            (reach != NameReach::Inside).then(|| (*number, target.grant.clone()))
        };
        let gone: Vec<_> = self.questions.keys().filter_map(outside).collect();
        for (number, host) in gone {
            self.refuse(now, Some(host), None, Refusal::NameOutsideReach);
            self.turn_away(number, |request| Answer::outside_reach(request.name()));
        }
    }
}
