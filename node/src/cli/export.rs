//! `bailey export`: a box's rows for other tools.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::args::ExportArgs;
use super::{out, read, run};
use crate::api::{Ask, Failure, Tell};
use crate::export::Format;
use crate::show;

/// Between two words on how far it is.
const STEP: Duration = Duration::from_secs(1);
/// Rows between two looks at the clock.
const LOOK: u64 = 1024;

/// Writes every row that is wanted, as it is read.
pub(super) fn export(args: &ExportArgs) -> Result<u8, Failure> {
    let unknown = || Failure::usage(format!("--format {}", show::text(&args.format)));
    let format = Format::of(&args.format).ok_or_else(unknown)?;
    let ask = Ask::Flows {
        target: args.target.clone(),
        filter: read::filter(&args.filter)?,
        follow: false,
    };
    // Opened before anything is asked, and never through a link.
    let open = |path: &PathBuf| run::open_result("--output", path);
    let file = args.output.as_ref().map(open).transpose()?;
    let copy = file.as_ref().map(File::try_clone).transpose();
    let mut sink: BufWriter<Box<dyn Write>> = match copy.map_err(fault)? {
        Some(file) => BufWriter::new(Box::new(file)),
        None => BufWriter::new(Box::new(io::stdout())),
    };
    let mut progress = Progress::new();
    let head = format.head(read::now());
    sink.write_all(head.as_bytes()).map_err(fault)?;
    let code = read::each(&ask, |tell| {
        let Tell::Flow(row) = tell else {
            return Ok(());
        };
        let line = format.line(&row);
        let line = line.map_err(|error| Failure::internal(format!("JSON: {error}")))?;
        if let Some(line) = &line {
            sink.write_all(line.as_bytes()).map_err(fault)?;
        }
        progress.row(line.is_some());
        Ok(())
    })?;
    let foot = format.foot(read::now());
    sink.write_all(foot.as_bytes()).map_err(fault)?;
    sink.flush().map_err(fault)?;
    if let (Some(path), Some(file)) = (&args.output, file) {
        file.sync_all().map_err(fault)?;
        let shown = show::text(&path.to_string_lossy());
        out::say(&format!("{} rows in {shown}", progress.written));
    }
    progress.done(&args.format);
    Ok(code)
}

fn fault(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::unread(),
        _ => Failure::host(format!("export: {error}")),
    }
}

/// How far it is, said on a terminal now and then.
struct Progress {
    written: u64,
    left_out: u64,
    watched: bool,
    said: Instant,
}

impl Progress {
    fn new() -> Self {
        Self {
            written: 0,
            left_out: 0,
            watched: io::stderr().is_terminal(),
            said: Instant::now(),
        }
    }

    fn row(&mut self, written: bool) {
        self.written += u64::from(written);
        self.left_out += u64::from(!written);
        let all = self.written + self.left_out;
        if self.watched && all.is_multiple_of(LOOK) && self.said.elapsed() >= STEP {
            out::say(&format!("{all} rows"));
            self.said = Instant::now();
        }
    }

    /// What a format has no place for is not silently gone.
    fn done(&self, format: &str) {
        if self.left_out > 0 {
            let text = "rows have no place in";
            out::say(&format!(
                "{} {text} {format}; ndjson and csv have all",
                self.left_out
            ));
        }
    }
}
