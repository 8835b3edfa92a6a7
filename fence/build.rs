//! Compiles the table of refused system calls into the BPF programs that the
//! launcher loads (seccomp(2)). Done here, because libseccomp takes longer to
//! build them than a box takes to start.

use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};

use libseccomp::{ScmpArch, ScmpFilterContext};

#[path = "src/seccomp/compile.rs"]
mod compile;
#[path = "src/seccomp/table.rs"]
#[expect(dead_code, reason = "the tests read more of it")]
mod table;

use table::For;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/seccomp/compile.rs");
    println!("cargo:rerun-if-changed=src/seccomp/table.rs");
    let arch = match std::env::var("CARGO_CFG_TARGET_ARCH")?.as_str() {
        "x86_64" => ScmpArch::X8664,
        "aarch64" => ScmpArch::Aarch64,
        other => return Err(format!("the table was not judged for {other}").into()),
    };
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("no OUT_DIR")?);
    let refused = |rows: &[For]| compile::refused(arch, rows);
    write(&compile::known(arch)?, &out.join("known.bpf"))?;
    write(&refused(&[For::Every, For::Plain])?, &out.join("plain.bpf"))?;
    write(&refused(&[For::Every])?, &out.join("browser.bpf"))?;
    write(&refused(&[For::NoNetwork])?, &out.join("no-network.bpf"))?;
    write(
        &refused(&[For::NoNamespaces])?,
        &out.join("no-namespaces.bpf"),
    )
}

fn write(filter: &ScmpFilterContext, path: &Path) -> Result<(), Box<dyn Error>> {
    Ok(filter.export_bpf(File::create(path)?)?)
}
