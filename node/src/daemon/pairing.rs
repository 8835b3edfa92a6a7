//! Pairing (temporary shape for compiling).
use super::Node;
use super::event::ConnId;
use crate::api::Failure;
use bailey_docs_store::AddOffer;
use bailey_model::AccountId;
#[derive(Debug)]
pub(crate) struct PairingEvent;
#[derive(Debug)]
pub(super) struct Running;
impl Node {
    pub(super) fn begin_add(&mut self, _: ConnId, _: &[std::net::IpAddr]) -> Result<(), Failure> { Ok(()) }
    pub(super) fn begin_join(&mut self, _: ConnId, _: &str) -> Result<(), Failure> { Ok(()) }
    pub(super) fn answer_words(&mut self, _: ConnId, _: bool) {}
    pub(super) fn on_pairing(&mut self, _: ConnId, _: PairingEvent) {}
    pub(super) fn on_offered(&mut self, _: ConnId, _: Result<Box<AddOffer>, String>) {}
    pub(super) fn on_added(&mut self, _: ConnId, _: Result<(AccountId, Vec<Vec<u8>>), String>) {}
    pub(super) fn on_joined(&mut self, _: ConnId, _: Result<AccountId, String>) {}
}
