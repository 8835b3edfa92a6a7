//! What attacks aim at: the person's files, sockets and processes outside.

use std::ffi::CString;
use std::fs;
use std::io::{self, Read as _};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::ExitCode;
use std::thread;

use crate::sys::{message_queue, remove_message_queue, remove_shared_memory, shared_memory};

/// Makes all of it in a folder, says where, and keeps it until its input ends.
/// This process is the one outside that attacks look for.
pub(crate) fn serve(folder: &str, mark: &str) -> ExitCode {
    match make(Path::new(folder), mark) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stage: {error}");
            ExitCode::FAILURE
        }
    }
}

fn make(folder: &Path, mark: &str) -> io::Result<()> {
    let secret = format!("the person's own {mark}\n");
    for (name, text) in [
        ("secret/key", secret.as_str()),
        ("ro/file", "shown\n"),
        ("rw/code", "old\n"),
        ("rw/.git/hooks/pre-commit", "#!/bin/sh\n"),
        ("rw/.git/config", "[core]\n"),
        ("rw/.ssh/authorized_keys", "ssh-ed25519 AAAA person\n"),
        ("rw/.bashrc", "\n"),
        ("input", "a file of the caller\n"),
    ] {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(path, text)?;
    }
    let shared = Path::new("/dev/shm").join(mark);
    fs::write(&shared, &secret)?;
    let listeners = [
        UnixListener::bind(folder.join("ro/socket"))?,
        UnixListener::bind(folder.join("rw/socket"))?,
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(mark)?)?,
    ];
    for path in ["ro/socket", "rw/socket"] {
        fs::set_permissions(folder.join(path), fs::Permissions::from_mode(0o777))?;
    }
    nix::unistd::mkfifo(&folder.join("ro/fifo"), nix::sys::stat::Mode::S_IRWXU)?;
    let _reader = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(folder.join("ro/fifo"))?;
    for listener in listeners {
        thread::spawn(move || listener.incoming().flatten().for_each(keep_a_while));
    }
    let tcp = TcpListener::bind("127.0.0.1:0")?;
    let port = tcp.local_addr()?.port();
    thread::spawn(move || tcp.incoming().flatten().for_each(drop));
    let key = i32::try_from(std::process::id()).unwrap_or(1);
    let memory = shared_memory(key, true).map_err(io::Error::from_raw_os_error)?;
    let queue = CString::new(format!("/{mark}")).map_err(io::Error::other)?;
    let queued = message_queue(&queue, true).is_ok();
    println!("port {port}");
    println!("key {key}");
    println!("pid {}", std::process::id());
    println!("ready");
    let _until = io::stdin().read_to_end(&mut Vec::new());
    remove_shared_memory(memory);
    if queued {
        remove_message_queue(&queue);
    }
    fs::remove_file(shared)
}

/// An attack looks at the other end while it is there.
fn keep_a_while(mut stream: std::os::unix::net::UnixStream) {
    thread::spawn(move || stream.read(&mut [0]));
}
