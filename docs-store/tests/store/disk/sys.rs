//! The file system that SQLite calls: its own, with a look at each write.
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "each function hands one call on"
)]

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Once;

use rusqlite::ffi::{
    SQLITE_FULL, SQLITE_IOERR_DELETE, SQLITE_IOERR_FSYNC, SQLITE_IOERR_TRUNCATE,
    SQLITE_IOERR_WRITE, SQLITE_OK, sqlite3_file, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs,
    sqlite3_vfs_find, sqlite3_vfs_register,
};

use super::{Handle, Verdict};

/// What SQLite holds of an open file; its own file system's part follows it.
#[repr(C)]
struct File {
    base: sqlite3_file,
    /// `None`: a file that is on no disk of a test.
    handle: *mut Handle,
}

/// Makes this the file system of every database that is opened from now on.
pub(super) fn register() {
    static ONCE: Once = Once::new();
    // SAFETY: the file system found lives as long as the process, and so does the
    // leaked one, whose functions follow SQLite's contract for each.
    ONCE.call_once(|| unsafe {
        let real = sqlite3_vfs_find(std::ptr::null());
        assert!(!real.is_null());
        let mut vfs = *real;
        vfs.szOsFile += c_int::try_from(size_of::<File>()).unwrap();
        vfs.zName = c"bailey-test".as_ptr();
        vfs.pNext = std::ptr::null_mut();
        vfs.pAppData = real.cast();
        vfs.xOpen = Some(open);
        vfs.xDelete = Some(delete);
        assert_eq!(sqlite3_vfs_register(Box::leak(Box::new(vfs)), 1), SQLITE_OK);
    });
}

/// The part of a file that is its own file system's.
fn inner(file: *mut sqlite3_file) -> *mut sqlite3_file {
    // SAFETY: `szOsFile` bytes of both parts were allocated, this one first.
    unsafe { file.cast::<File>().add(1).cast() }
}

fn methods(file: *mut sqlite3_file) -> &'static sqlite3_io_methods {
    // SAFETY: an open file's methods are set, and they are static.
    unsafe { &*(*inner(file)).pMethods }
}

fn handle<'a>(file: *mut sqlite3_file) -> Option<&'a Handle> {
    // SAFETY: set at opening and freed at closing; SQLite uses a file from one
    // thread at a time and not after it is closed.
    unsafe { (*file.cast::<File>()).handle.as_ref() }
}

fn path_of<'a>(name: *const c_char) -> Option<&'a Path> {
    if name.is_null() {
        return None;
    }
    // SAFETY: SQLite's names end in a NUL and outlive the call.
    let name = unsafe { CStr::from_ptr(name) };
    Some(Path::new(OsStr::from_bytes(name.to_bytes())))
}

unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    let path = path_of(name);
    let watched = path.and_then(Handle::of);
    // SAFETY: as SQLite would call it, with the part of the file that is its own.
    let code = unsafe {
        let real = (*vfs).pAppData.cast::<sqlite3_vfs>();
        (*file).pMethods = std::ptr::null();
        // What was there is looked at before the file is made.
        if let (Some(watched), Some(path)) = (&watched, path) {
            watched.opened(path);
        }
        ((*real).xOpen.unwrap())(real, name, inner(file), flags, out)
    };
    if code == SQLITE_OK {
        let handle = watched.map_or(std::ptr::null_mut(), |it| Box::into_raw(Box::new(it)));
        // SAFETY: the memory of the file is SQLite's and large enough.
        unsafe {
            (*file.cast::<File>()).handle = handle;
            (*file).pMethods = &raw const METHODS;
        }
    }
    code
}

unsafe extern "C" fn delete(vfs: *mut sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    let watched = path_of(name).and_then(Handle::of);
    if watched.is_some_and(|watched| watched.delete() != Verdict::Go) {
        return SQLITE_IOERR_DELETE;
    }
    // SAFETY: as SQLite would call it.
    unsafe {
        let real = (*vfs).pAppData.cast::<sqlite3_vfs>();
        ((*real).xDelete.unwrap())(real, name, sync)
    }
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite closes a file once; the handle was made by `Box::into_raw`.
    unsafe {
        let code = (methods(file).xClose.unwrap())(inner(file));
        let handle = std::mem::replace(&mut (*file.cast::<File>()).handle, std::ptr::null_mut());
        if !handle.is_null() {
            drop(Box::from_raw(handle));
        }
        code
    }
}

unsafe extern "C" fn read(
    file: *mut sqlite3_file,
    to: *mut c_void,
    count: c_int,
    at: sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite's own arguments.
    unsafe { (methods(file).xRead.unwrap())(inner(file), to, count, at) }
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    from: *const c_void,
    count: c_int,
    at: sqlite3_int64,
) -> c_int {
    let mut through = count;
    let mut answer = SQLITE_OK;
    if let Some(handle) = handle(file) {
        // SAFETY: SQLite gives as many bytes as it says.
        let bytes = unsafe {
            std::slice::from_raw_parts(from.cast::<u8>(), usize::try_from(count).unwrap())
        };
        let (verdict, part) = handle.write(usize::try_from(at).unwrap(), bytes);
        through = c_int::try_from(part).unwrap();
        answer = match verdict {
            Verdict::Go => SQLITE_OK,
            Verdict::Full => SQLITE_FULL,
            Verdict::Half | Verdict::Fail | Verdict::Dead => SQLITE_IOERR_WRITE,
        };
    }
    if through > 0 {
        // SAFETY: SQLite's own arguments, or fewer bytes of them.
        let code = unsafe { (methods(file).xWrite.unwrap())(inner(file), from, through, at) };
        if code != SQLITE_OK {
            return code;
        }
        if let Some(handle) = handle(file) {
            handle.wrote();
        }
    }
    answer
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: sqlite3_int64) -> c_int {
    let len = usize::try_from(size).unwrap();
    if handle(file).is_some_and(|handle| handle.truncate(len) != Verdict::Go) {
        return SQLITE_IOERR_TRUNCATE;
    }
    // SAFETY: SQLite's own arguments.
    unsafe { (methods(file).xTruncate.unwrap())(inner(file), size) }
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    match handle(file) {
        // The disk of the test alone counts, and it has no cache to wait for.
        Some(handle) => match handle.sync() {
            Verdict::Go => SQLITE_OK,
            _ => SQLITE_IOERR_FSYNC,
        },
        // SAFETY: SQLite's own arguments.
        None => unsafe { (methods(file).xSync.unwrap())(inner(file), flags) },
    }
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, to: *mut sqlite3_int64) -> c_int {
    // SAFETY: SQLite's own arguments.
    unsafe { (methods(file).xFileSize.unwrap())(inner(file), to) }
}

unsafe extern "C" fn take_lock(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: SQLite's own arguments.
    unsafe { (methods(file).xLock.unwrap())(inner(file), level) }
}

unsafe extern "C" fn unlock(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: SQLite's own arguments.
    unsafe { (methods(file).xUnlock.unwrap())(inner(file), level) }
}

unsafe extern "C" fn is_reserved(file: *mut sqlite3_file, to: *mut c_int) -> c_int {
    // SAFETY: SQLite's own arguments.
    unsafe { (methods(file).xCheckReservedLock.unwrap())(inner(file), to) }
}

unsafe extern "C" fn control(file: *mut sqlite3_file, op: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: SQLite's own arguments.
    unsafe { (methods(file).xFileControl.unwrap())(inner(file), op, arg) }
}

unsafe extern "C" fn sector_size(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite's own arguments.
    unsafe { (methods(file).xSectorSize.unwrap())(inner(file)) }
}

unsafe extern "C" fn characteristics(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite's own arguments.
    unsafe { (methods(file).xDeviceCharacteristics.unwrap())(inner(file)) }
}

unsafe extern "C" fn shared_map(
    file: *mut sqlite3_file,
    page: c_int,
    size: c_int,
    extend: c_int,
    to: *mut *mut c_void,
) -> c_int {
    // SAFETY: SQLite's own arguments.
    unsafe { (methods(file).xShmMap.unwrap())(inner(file), page, size, extend, to) }
}

unsafe extern "C" fn shared_lock(
    file: *mut sqlite3_file,
    offset: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    // SAFETY: SQLite's own arguments.
    unsafe { (methods(file).xShmLock.unwrap())(inner(file), offset, count, flags) }
}

unsafe extern "C" fn shared_barrier(file: *mut sqlite3_file) {
    // SAFETY: SQLite's own arguments.
    unsafe { (methods(file).xShmBarrier.unwrap())(inner(file)) }
}

unsafe extern "C" fn shared_unmap(file: *mut sqlite3_file, delete: c_int) -> c_int {
    // SAFETY: SQLite's own arguments.
    unsafe { (methods(file).xShmUnmap.unwrap())(inner(file), delete) }
}

/// Version 2: shared memory, and no mapped reads.
static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(take_lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(is_reserved),
    xFileControl: Some(control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: Some(shared_map),
    xShmLock: Some(shared_lock),
    xShmBarrier: Some(shared_barrier),
    xShmUnmap: Some(shared_unmap),
    xFetch: None,
    xUnfetch: None,
};
