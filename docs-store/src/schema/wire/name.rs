//! What a name was answered with, as it is stored.

use std::net::IpAddr;

use bailey_model::{Host, NameAnswer, NameAnswered};
use serde::{Deserialize, Serialize};

codes!(answer_code, answer_of, NameAnswer {
    Records = 1, NoRecords = 2, NoName = 3, Withheld = 4, Failed = 5,
});

#[derive(Serialize, Deserialize)]
pub(super) struct WireAnswered {
    host: String,
    qtype: u16,
    answer: u8,
    addrs: Vec<IpAddr>,
    more: u32,
    ttl: u32,
    count: u32,
}

impl From<&NameAnswered> for WireAnswered {
    fn from(it: &NameAnswered) -> Self {
        Self {
            host: it.host.as_str().to_owned(),
            qtype: it.qtype,
            answer: answer_code(it.answer),
            addrs: it.addrs.clone(),
            more: it.more,
            ttl: it.ttl,
            count: it.count,
        }
    }
}

impl WireAnswered {
    pub(super) fn event(self) -> Option<NameAnswered> {
        Some(NameAnswered {
            host: Host::new(&self.host)?,
            qtype: self.qtype,
            answer: answer_of(self.answer)?,
            addrs: self.addrs,
            more: self.more,
            ttl: self.ttl,
            count: self.count,
        })
    }
}
