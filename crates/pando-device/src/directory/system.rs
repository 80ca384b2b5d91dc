//! System calls that std does not offer, as safe functions over borrowed descriptors.
//!
//! They do not retry or interpret: each makes one call and returns its result.

#![expect(unsafe_code, reason = "system calls through libc")]

use std::ffi::{CStr, CString};
use std::fs;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};

/// Maximum number of parts of one vectored write on Linux.
pub(super) const VECTOR_PARTS_MAX: usize = 1024;

fn offset_of(value: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(value).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// `pwritev`: returns how many bytes were written.
pub(super) fn write_vectored_at(
    file: &fs::File,
    parts: &[IoSlice<'_>],
    offset: u64,
) -> io::Result<usize> {
    let count = libc::c_int::try_from(parts.len().min(VECTOR_PARTS_MAX)).expect("a bound");
    let offset = offset_of(offset)?;
    // SAFETY: IoSlice has the layout of iovec (std guarantees it), `count` of them are there, and
    // each borrows memory that is readable for its length during the call.
    let written = unsafe {
        libc::pwritev(
            file.as_raw_fd(),
            parts.as_ptr().cast::<libc::iovec>(),
            count,
            offset,
        )
    };
    usize::try_from(written).map_err(|_| io::Error::last_os_error())
}

/// `preadv2` with `RWF_NOWAIT`, which is how a ring first tries a read. `WouldBlock` when the bytes
/// are not cached, another error when the file cannot be read in this way.
pub(super) fn read_without_waiting(file: &fs::File, buffer: &mut [u8]) -> io::Result<usize> {
    let part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: the one part describes memory that is borrowed mutably during the call.
    let read = unsafe { libc::preadv2(file.as_raw_fd(), &raw const part, 1, 0, libc::RWF_NOWAIT) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

/// `fallocate` with mode 0: allocates and extends.
pub(super) fn allocate(file: &fs::File, offset: u64, len: u64) -> io::Result<()> {
    let (offset, len) = (offset_of(offset)?, offset_of(len)?);
    // SAFETY: a call on a descriptor that `file` keeps open; no memory is passed.
    check(unsafe { libc::fallocate(file.as_raw_fd(), 0, offset, len) })
}

/// `fallocate` that makes a hole and keeps the length.
pub(super) fn punch(file: &fs::File, offset: u64, len: u64) -> io::Result<()> {
    let (offset, len) = (offset_of(offset)?, offset_of(len)?);
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: a call on a descriptor that `file` keeps open; no memory is passed.
    check(unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, len) })
}

/// `FS_NOCOW_FL`: from linux/fs.h, which libc has in part.
const NO_COPY_ON_WRITE: libc::c_uint = 0x0080_0000;

/// Asks a copy-on-write file system (btrfs) to write the blocks of `file`, which is empty, in
/// place. Does nothing on other file systems.
pub(super) fn write_in_place(file: &fs::File) -> io::Result<()> {
    let mut answer = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the descriptor is open and `answer` has room for a statfs.
    check(unsafe { libc::fstatfs(file.as_raw_fd(), answer.as_mut_ptr()) })?;
    // SAFETY: all zeros is a valid statfs, and the call has filled it.
    let answer = unsafe { answer.assume_init() };
    // The types of the two differ between targets.
    if i128::from(answer.f_type) != i128::from(libc::BTRFS_SUPER_MAGIC) {
        return Ok(());
    }
    let mut flags: libc::c_uint = 0;
    // SAFETY: the call stores an int, whatever its number says of a long.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_GETFLAGS, &raw mut flags) })?;
    flags |= NO_COPY_ON_WRITE;
    // SAFETY: the call reads an int.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_SETFLAGS, &raw const flags) })
}

/// Returns the alignment of direct I/O on `file` in bytes, if the file system reports it (`statx`).
pub(super) fn direct_alignment(file: &fs::File) -> Option<usize> {
    let mut answer = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path is a C string, `answer` has room for a statx, and the descriptor is open.
    let result = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            answer.as_mut_ptr(),
        )
    };
    check(result).ok()?;
    // SAFETY: all zeros is a valid statx, and the call has only added to it.
    let answer = unsafe { answer.assume_init() };
    if answer.stx_mask & libc::STATX_DIOALIGN == 0 {
        return None;
    }
    let alignment = answer.stx_dio_offset_align.max(answer.stx_dio_mem_align);
    usize::try_from(alignment).ok().filter(|bytes| *bytes != 0)
}

/// Returns the number of bytes that an unprivileged process can still write to the file system of
/// `directory`.
pub(super) fn free_bytes(directory: &fs::File) -> io::Result<u64> {
    let mut answer = MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the descriptor is open and `answer` has room for a statvfs.
    check(unsafe { libc::fstatvfs(directory.as_raw_fd(), answer.as_mut_ptr()) })?;
    // SAFETY: all zeros is a valid statvfs, and the call has filled it.
    let answer = unsafe { answer.assume_init() };
    Ok(answer.f_bavail.saturating_mul(answer.f_frsize))
}

/// `openat`: `name` is looked up in `directory`. What it makes has the mode that std gives it.
pub(super) fn open_at(
    directory: &fs::File,
    name: &CStr,
    flags: libc::c_int,
) -> io::Result<fs::File> {
    const MODE: libc::c_uint = 0o666;
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: the name is a C string, the descriptor is open, and the mode is the one argument that
    // flags may ask for.
    let descriptor = unsafe { libc::openat(directory.as_raw_fd(), name.as_ptr(), flags, MODE) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has opened it, and nobody else knows it.
    Ok(unsafe { fs::File::from_raw_fd(descriptor) })
}

/// `mkdirat`: makes the directory `name` in `directory`.
pub(super) fn make_directory_at(directory: &fs::File, name: &CStr) -> io::Result<()> {
    // SAFETY: the name is a C string, and the descriptor is open.
    check(unsafe { libc::mkdirat(directory.as_raw_fd(), name.as_ptr(), 0o777) })
}

/// `unlinkat`: removes the file `name` of `directory`.
pub(super) fn unlink_at(directory: &fs::File, name: &CStr) -> io::Result<()> {
    // SAFETY: the name is a C string, and the descriptor is open.
    check(unsafe { libc::unlinkat(directory.as_raw_fd(), name.as_ptr(), 0) })
}

/// `renameat`: gives the file `name` of `directory` the name `to`.
pub(super) fn rename_at(directory: &fs::File, name: &CStr, to: &CStr) -> io::Result<()> {
    let descriptor = directory.as_raw_fd();
    // SAFETY: the names are C strings, and the descriptor is open.
    check(unsafe { libc::renameat(descriptor, name.as_ptr(), descriptor, to.as_ptr()) })
}

/// `readdir`: returns the names of all that is in `directory`, a descriptor that nobody has read
/// from.
pub(super) fn names(directory: fs::File) -> io::Result<Vec<CString>> {
    // SAFETY: the descriptor is open.
    let stream = unsafe { libc::fdopendir(directory.as_raw_fd()) };
    if stream.is_null() {
        return Err(io::Error::last_os_error());
    }
    // It is the stream's now.
    let _descriptor = directory.into_raw_fd();
    let mut names = Vec::new();
    let end = loop {
        // SAFETY: the call takes nothing, and returns where this thread has its error number.
        let number = unsafe { libc::__errno_location() };
        // SAFETY: it is this thread's alone. It tells the end from a failure.
        unsafe { *number = 0 };
        // SAFETY: the stream is open, and used by this thread alone.
        let entry = unsafe { libc::readdir64(stream) };
        if entry.is_null() {
            break io::Error::last_os_error();
        }
        // SAFETY: the entry stays as it is until the next call. It may be shorter than its type, so
        // no reference to all of it is made.
        let name = unsafe { &raw const (*entry).d_name };
        // SAFETY: the name is in the entry, and ends with a zero.
        let name = unsafe { CStr::from_ptr(name.cast()) };
        names.push(name.to_owned());
    };
    // SAFETY: the stream is open, and not used any more.
    unsafe { libc::closedir(stream) };
    match end.raw_os_error() {
        Some(0) => Ok(names),
        _ => Err(end),
    }
}
