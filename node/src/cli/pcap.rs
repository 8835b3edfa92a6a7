//! `bailey pcap`: the headers of a box's packets into a file.

mod pcapng;

use std::io::{BufWriter, Write as _};

use super::args::PcapArgs;
use super::{out, read, run};
use crate::api::{Ask, Failure, Tell};
use crate::show;

/// Writes what the gate of a box sees, until the time is up or the box ends.
pub(super) fn pcap(args: &PcapArgs) -> Result<u8, Failure> {
    let seconds = read::seconds("--for", &args.time)?;
    let seconds = u32::try_from(seconds).map_err(|_| Failure::usage("--for: a day at most"))?;
    // Opened before anything is asked, and never through a link.
    let file = run::open_result("--write", &args.write)?;
    let mut sink = BufWriter::new(file);
    let shown = show::text(&args.write.to_string_lossy());
    let fault = |error: std::io::Error| Failure::host(format!("--write {shown}: {error}"));
    let ask = Ask::Pcap {
        target: args.target.clone(),
        seconds,
    };
    let (mut count, mut said, mut last_us) = (0_u64, 0_u64, 0_u64);
    let code = read::each(&ask, |tell| {
        match tell {
            Tell::Capturing { name, .. } => {
                let name = show::exact(&name).0;
                sink.write_all(&pcapng::head(&name)).map_err(fault)?;
                out::say(&format!(
                    "headers of {} for {} into {shown}; its audit says so, and a notice",
                    show::text(&name),
                    show::text(&args.time),
                ));
            }
            Tell::Captured { packets, dropped } => {
                for packet in &packets {
                    sink.write_all(&pcapng::packet(packet)).map_err(fault)?;
                    last_us = packet.at_us;
                }
                count += u64::try_from(packets.len()).unwrap_or(u64::MAX);
                if dropped > said {
                    said = dropped;
                    let statistics = pcapng::statistics(last_us, count + dropped, dropped);
                    sink.write_all(&statistics).map_err(fault)?;
                }
            }
            Tell::CaptureEnded { why, dropped } => {
                let statistics = pcapng::statistics(last_us, count + dropped, dropped);
                sink.write_all(&statistics).map_err(fault)?;
                out::say(&format!("{count} packets, {dropped} dropped: {why}"));
            }
            _ => {}
        }
        // What was captured is there however this command ends.
        sink.flush().map_err(fault)
    })?;
    sink.get_ref().sync_all().map_err(fault)?;
    Ok(code)
}
