//! The servers at the node's own address, as the bench sees them.

use std::time::Duration;

use bailey_tests::{Running, TestWorld, eventually};
use bailey_world::at;
use serde_json::Value;

use crate::inside::{first_line, program};

/// They run until this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    _running: Running,
    ports: Value,
}

impl Server {
    pub(crate) fn start(world: &TestWorld) -> Result<Self, String> {
        let own = at::node_v4(1).to_string();
        let mut serve = world.command("n1", &program("bailey-bench"));
        let running = Running::start(serve.args(["client", "serve", &own]));
        let ports = eventually(Duration::from_secs(10), || {
            serde_json::from_str(running.stdout().strip_suffix('\n')?).ok()
        });
        match ports {
            Some(ports) => Ok(Self {
                _running: running,
                ports,
            }),
            None => Err(format!("no server: {}", first_line(&running.stderr()))),
        }
    }

    /// Where one of them is.
    pub(crate) fn at(&self, name: &str) -> String {
        format!("{}:{}", at::node_v4(1), self.ports[name])
    }
}
