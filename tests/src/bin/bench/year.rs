//! A year of a box under a window of 30 days: how large the store is after it, against
//! what one window takes.

use std::io;
use std::path::Path;

use bailey_docs_store::{
    Checkpointer, DeviceKeys, DocId, Moment, OsEntropy, Slice, Store, Urgency,
};
use bailey_model::{
    AddrClass, BoxId, Direction, EndReason, Event, FiveTuple, FlowEnded, FlowId, FlowOpened,
    Granted, Host, HostFrom, Proto, Timestamp,
};

use crate::Effort;
use crate::table::{Figure, Mark, Row, Table};

const BOX: DocId = DocId::Box(BoxId([9; 16]));
const DAY: u64 = 24 * 3_600_000;
/// The beginning of a day (UTC), so that a day of flows has as many hosts as it says.
const BEGINS: Timestamp = Timestamp(20_788 * DAY);
const DAYS: u64 = 365;
/// Days of the window.
const WINDOW: u64 = 30;
/// Hosts of each day.
const HOSTS: u64 = 24;

fn at(ms: u64) -> Timestamp {
    Timestamp(BEGINS.0 + ms)
}

pub(crate) fn measure(effort: Effort, table: &mut Table) {
    let figure = |figure: &io::Result<Sizes>, of: fn(&Sizes) -> f64| match figure {
        Ok(sizes) => Figure::Value(of(sizes)),
        Err(error) => Figure::Failed(error.to_string()),
    };
    let sizes = year(effort.flows_a_day);
    let row = |name, bailey, peers, mark| Row {
        name,
        unit: "MB",
        bailey,
        worst: None,
        peers,
        mark,
    };
    table.add(row(
        "a year simulated, under a window of 30 days",
        figure(&sizes, |sizes| sizes.year),
        vec![("one window", figure(&sizes, |sizes| sizes.window))],
        Some(Mark::AtMostOfFirst(1.1)),
    ));
}

/// Megabytes of the store, as a file.
#[derive(Debug)]
struct Sizes {
    /// With as much as a window ever holds, and nothing thinned yet.
    window: f64,
    /// After a year.
    year: f64,
}

/// The bench's own folder in the system's for temporary files.
struct Folder(std::path::PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder of /tmp that stays is a nuisance, not a failure.
        let _left = std::fs::remove_dir_all(&self.0);
    }
}

fn year(flows: u64) -> io::Result<Sizes> {
    let folder = std::env::temp_dir().join(format!("bailey-year-{}", std::process::id()));
    let folder = Folder(folder);
    let keys = DeviceKeys::generate([1; DeviceKeys::LEN]);
    let store = Store::open(&folder.0, keys, BEGINS, Box::new(OsEntropy));
    let mut store = store.map_err(io::Error::other)?;
    let made = store.create_account("year", BEGINS);
    made.map_err(io::Error::other)?;
    let checkpointer = store.checkpointer().map_err(io::Error::other)?;
    let mut window = 0.0;
    for no in 0..DAYS {
        day(&mut store, no, flows)?;
        // A segment is closed by its day, so this is the most that a window is.
        if no == WINDOW {
            window = size(&checkpointer, &folder.0)?;
        }
        thin(&mut store, no + 1)?;
        checkpointer.run().map_err(io::Error::other)?;
    }
    let year = size(&checkpointer, &folder.0)?;
    Ok(Sizes { window, year })
}

fn size(checkpointer: &Checkpointer, folder: &Path) -> io::Result<f64> {
    if !checkpointer.truncate().map_err(io::Error::other)? {
        return Err(io::Error::other("the write-ahead log is in use"));
    }
    let bytes = std::fs::metadata(folder.join("store.db"))?.len();
    #[expect(clippy::cast_precision_loss, reason = "a size for a person")]
    Ok(bytes as f64 / 1e6)
}

/// One day's flows, spread over it.
fn day(store: &mut Store, day: u64, flows: u64) -> io::Result<()> {
    for no in 0..flows {
        let now = at(day * DAY + no * DAY / flows);
        for event in flow(day, day * flows + no + 1, no) {
            let appended = store.append(BOX, event, now, Urgency::Normal);
            appended.map_err(io::Error::other)?;
        }
        if no % 25 == 24 {
            store.commit(false).map_err(io::Error::other)?;
            store.seal(now).map_err(io::Error::other)?;
        }
    }
    store.commit(false).map_err(io::Error::other)?;
    let sealed = store.seal_all(at((day + 1) * DAY));
    sealed.map(drop).map_err(io::Error::other)
}

/// Its beginning and its end.
fn flow(day: u64, id: u64, no: u64) -> [Event; 2] {
    let number = |value: u64| u16::try_from(value).unwrap_or(u16::MAX);
    let opened = FlowOpened {
        flow: FlowId(id),
        direction: Direction::Out,
        tuple: FiveTuple {
            proto: Proto::Tcp,
            src: ([192, 0, 0, 2], number(1024 + no % 60_000)).into(),
            dst: ([93, 184, 216, u8::try_from(no % HOSTS).unwrap_or(0)], 443).into(),
        },
        host: Host::new(&format!("host{}.shop{}.example", no % HOSTS, day % 7)),
        host_from: HostFrom::Dns,
        class: AddrClass::Internet,
        granted: Granted("internet".to_owned()),
    };
    let ended = FlowEnded {
        flow: FlowId(id),
        bytes_out: 400 + no * 7919 % 5_000,
        bytes_in: 1_000 + no * 104_729 % 900_000,
        duration_us: 20_000 + no * 15_485_863 % 90_000_000,
        end: EndReason::Closed,
        outer_src: Some(([10, 0, 0, 5], number(30_000 + no % 30_000)).into()),
    };
    [Event::FlowOpened(opened), Event::FlowEnded(ended)]
}

fn thin(store: &mut Store, day: u64) -> io::Result<()> {
    let now = Moment {
        wall: at(day * DAY),
        boot: [1; 16],
        up_ms: day * DAY,
    };
    while store.thin(&now).map_err(io::Error::other)? != Slice::Rest {}
    Ok(())
}
