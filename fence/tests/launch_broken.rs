//! A layer that is left out on purpose is gone, the others are not, and the box
//! still starts: what the report's own tests rely on.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod support;

use std::collections::BTreeMap;

use bailey_fence_plan::channel::Layer;
use bailey_model::Tier;
use support::Ask;

/// One line a layer, from inside.
const LOOK: &str = r"
import os, errno
def status(pid, name): return dict(l.split(':',1) for l in open('/proc/%s/status' % pid).read().splitlines())[name].strip()
try: open('/usr/x','w'); print('ReadOnly written')
except OSError as e: print('ReadOnly', errno.errorcode[e.errno], os.statvfs('/usr').f_flag & os.ST_RDONLY)
print('Processes', 'own' if open('/proc/1/comm').read()=='bailey-fence\n' else 'shared')
print('Filter', status('self','Seccomp'))
print('Capabilities', status('self','CapBnd')!='0'*16)
print('Network', os.readlink('/proc/self/ns/net'))
print('Limits', open('/proc/sys/user/max_user_namespaces').read().strip())";

fn look(broken: Option<Layer>) -> BTreeMap<String, String> {
    let mut ask = Ask::python(LOOK).tier(Tier::L2);
    ask.spec.broken = broken;
    let made = ask
        .make()
        .unwrap_or_else(|error| panic!("{broken:?}: {error}"));
    let out = if broken == Some(Layer::Processes) {
        // All the machine's processes are in its /proc: none of its own ends
        // with it, so that it is empty is not asked.
        made.go().end_alone()
    } else {
        made.go().end().ok()
    };
    let pairs = out.lines().map(|line| line.split_once(' ').unwrap());
    pairs
        .map(|(layer, got)| (layer.to_owned(), got.to_owned()))
        .collect()
}

#[test]
fn each_layer_can_be_left_out_alone() {
    let host = std::fs::read_link("/proc/self/ns/net").unwrap();
    let whole = look(None);
    let held = [
        ("ReadOnly", "EROFS 1"),
        ("Processes", "own"),
        ("Filter", "2"),
        ("Capabilities", "False"),
        ("Limits", "0"),
    ];
    for (layer, expected) in held {
        assert_eq!(whole[layer], expected);
    }
    assert_ne!(whole["Network"], host.to_string_lossy());
    let left_out = [
        (Layer::ReadOnly, "EACCES 0"),
        (Layer::Processes, "shared"),
        (Layer::Filter, "0"),
        (Layer::Capabilities, "True"),
        (Layer::Network, &*host.to_string_lossy()),
        (Layer::Limits, "2147483647"),
    ];
    for (layer, expected) in left_out {
        let name = format!("{layer:?}");
        let mut seen = look(Some(layer));
        assert_eq!(seen.remove(&name).unwrap(), expected, "{name}");
        // Each network of its own has another name.
        let other = |all: &BTreeMap<String, String>| -> Vec<(String, String)> {
            let same = |(at, _): &(&String, &String)| **at != name && *at != "Network";
            all.iter()
                .filter(same)
                .map(|(at, got)| (at.clone(), got.clone()))
                .collect()
        };
        assert_eq!(other(&seen), other(&whole), "{name}");
    }
}
