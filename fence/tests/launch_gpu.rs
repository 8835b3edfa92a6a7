//! The graphics processor as a grant, with nodes of a machine that a test makes
//! up: in mounts of its own it sees another `/dev` and another `/sys`.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod support;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use bailey_fence_plan::channel::SetupError;
use support::{Ask, Made, folder, ids, launcher, write};

/// A render node (in truth the device that reads as zeros, 1:5), its neighbour
/// that sets modes, and what the kernel would say of a device on a bus.
const MACHINE: &str = "
mkdir $place/dev; mount -t tmpfs new $place/dev
mkdir -p $place/dev/net $place/dev/dri/by-path $place/dev/pts
for name in null full random urandom tty net/tun; do
  touch $place/dev/$name; mount --bind /dev/$name $place/dev/$name
done
for name in zero $NODES; do
  touch $place/dev/$name; mount --bind /dev/zero $place/dev/$name
done
mount --rbind $place/dev /dev
mount -t tmpfs new /sys
device=/sys/devices/pci0000:00/0000:00:02.0
mkdir -p /sys/dev/char $device/drm/renderD128 /sys/devices/pci0000:00/0000:00:03.0
echo 0x8086 > $device/vendor
ln -s ../../../bus/pci/drivers/i915 $device/driver
ln -s ../../../0000:00:02.0 $device/drm/renderD128/device
ln -s ../../devices/pci0000:00/0000:00:02.0/drm/renderD128 /sys/dev/char/1:5
";

/// The launcher on such a machine, still as an ordinary user.
fn machine(nodes: &str) -> PathBuf {
    let place = folder("machine");
    let script = place.join("launcher");
    let (uid, gid) = ids();
    let text = format!(
        "#!/bin/sh\nset -e\nNODES='{nodes}'\nplace={}\n\
         [ \"$1\" = inside ] || exec unshare --user --map-root-user --mount \"$0\" inside\n\
         {MACHINE}\nexec unshare --user --map-user={uid} --map-group={gid} {}\n",
        place.display(),
        launcher().display()
    );
    write(&script, &text);
    std::fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    script
}

fn on(machine: &Path, script: &str, gpu: bool) -> Result<Made, SetupError> {
    let mut ask = Ask::python(script);
    ask.spec.gpu = gpu;
    ask.start(machine, |_| {}).made()
}

fn fact(made: &Made) -> Option<String> {
    let mut facts = made.measured.facts.iter();
    let found = facts.find(|(_, fact)| fact.what == "gpu");
    found.map(|(_, fact)| fact.got.clone())
}

const LOOK: &str = "
import os
def tried(what):
  try: return what()
  except OSError as error: return error.strerror
def opened(path, flags=os.O_RDWR):
  fd = os.open(path, flags); return os.read(fd, 2)
device = '/sys/devices/pci0000:00/0000:00:02.0'
print(tried(lambda: os.listdir('/dev/dri')))
print(tried(lambda: opened('/dev/dri/renderD128')))
print(tried(lambda: opened('/dev/dri/card0')))
print(tried(lambda: open('/sys/dev/char/1:5/device/vendor').read()))
print(tried(lambda: os.listdir('/sys/devices/pci0000:00')))
print(tried(lambda: opened(device + '/vendor')))
print(tried(lambda: sorted(os.listdir('/sys'))))
";

#[test]
fn a_granted_render_node_opens_and_its_neighbours_are_not_there() {
    let machine = machine("dri/renderD128 dri/card0");
    let made = on(&machine, LOOK, true).unwrap();
    assert_eq!(fact(&made).unwrap(), "hardware: renderD128 (i915)");
    let out = made.go().end().ok();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(
        lines,
        [
            "['renderD128']",
            "b'\\x00\\x00'",
            "No such file or directory",
            "0x8086",
            "",
            "['0000:00:02.0']",
            "Read-only file system",
            "['dev', 'devices']",
        ]
    );
}

#[test]
fn a_render_node_that_is_not_granted_is_not_there() {
    // The control is the test above: on the same machine it opens.
    let machine = machine("dri/renderD128 dri/card0");
    let made = on(&machine, LOOK, false).unwrap();
    assert_eq!(fact(&made), None);
    let out = made.go().end().ok();
    let gone = |line: &&str| *line == "No such file or directory";
    assert_eq!(out.lines().filter(gone).count(), 7, "{out}");
}

#[test]
fn a_grant_of_what_the_machine_lacks_is_refused_and_never_silently_software() {
    for nodes in ["", "dri/card0"] {
        let error = on(&machine(nodes), "", true).err().unwrap();
        assert!(error.reason.contains("no render node"), "{error}");
    }
}
