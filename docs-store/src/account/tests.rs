mod gossip;
mod model;
mod random;
mod records;
mod rules;
