//! An open file of a directory.
//!
//! All clones and threads share the descriptor, and every call passes its offset. A file keeps the
//! lock of its directory, so that nobody else opens the directory while the file can be written.

use std::fs;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;

use pando_sync::{Arc, thread};

use super::lock::DirectoryLock;
use super::probe::{self, NotDirect};
use super::root::Root;
use super::system;
use crate::buffer::IoBuf;
use crate::cast::usize_of;
use crate::device::{Create, File, OpenOptions};
use crate::error::{Error, Result};
use crate::fork::ForkGuard;

/// Size in bytes of one write of zeros where `fallocate` is missing.
const ZEROS_BYTES: usize = 1 << 18;
/// A descriptor that returns "try again" this often without progress is considered broken.
pub(crate) const RETRIES_MAX: u32 = 1000;

/// An open file of a directory.
#[derive(Debug, Clone)]
pub struct DirectoryFile {
    inner: Arc<FileInner>,
}

#[derive(Debug)]
struct FileInner {
    file: fs::File,
    name: String,
    /// 1 unless `direct`.
    alignment: usize,
    direct: bool,
    writable: bool,
    fork: Arc<ForkGuard>,
    _lock: Arc<DirectoryLock>,
}

impl DirectoryFile {
    /// Opens `name` in `root`. Buffered if the file system refuses direct files.
    pub(super) fn open(
        root: &Root,
        name: &str,
        options: OpenOptions,
        fork: Arc<ForkGuard>,
        lock: Arc<DirectoryLock>,
    ) -> Result<Self> {
        let fail = |error| Error::from_io("open", name, error);
        let mut file = root.open_file(name, options, 0).map_err(fail)?;
        let known = file.metadata().map_err(fail)?;
        if !known.is_file() {
            return Err(fail(io::ErrorKind::InvalidInput.into()));
        }
        if options.create != Create::Never && known.len() == 0 {
            // Allocated blocks can be written on a full disk only if they are written in place. A
            // file system that does not do that refuses such writes later, and reports it then.
            let _ = system::write_in_place(&file);
        }
        let mut alignment = 1;
        if options.direct {
            match probe::open_direct(root, name, options) {
                Ok(opened) => (file, alignment) = opened,
                Err(NotDirect::Refused(_)) => {}
                Err(NotDirect::Failed(error)) => return Err(fail(error)),
            }
        }
        Ok(Self {
            inner: Arc::new(FileInner {
                file,
                name: name.to_owned(),
                direct: alignment != 1,
                alignment,
                writable: options.write,
                fork,
                _lock: lock,
            }),
        })
    }

    /// Returns whether both are handles of one opening.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Returns the descriptor, which stays open as long as any handle of this opening lives.
    pub(crate) fn raw_fd(&self) -> RawFd {
        self.inner.file.as_raw_fd()
    }

    /// Makes an error of the operating system with this file's name.
    pub(crate) fn error(&self, operation: &'static str, source: io::Error) -> Error {
        Error::from_io(operation, &self.inner.name, source)
    }

    /// Makes the error for a file that ends before the requested bytes.
    pub(crate) fn short_read(&self, offset: u64, wanted: usize, got: usize) -> Error {
        Error::ShortRead {
            name: self.inner.name.clone(),
            offset,
            wanted,
            got,
        }
    }

    /// Returns how many of the `done` bytes of a request end at an aligned place, where it
    /// continues.
    pub(crate) fn aligned_part(&self, done: usize) -> usize {
        done - done % self.inner.alignment
    }

    /// Checks a request before its bytes are accessed.
    pub(crate) fn check_request(&self, write: bool, bytes: &[u8], offset: u64) -> Result<()> {
        if write {
            self.check_writable("write")?;
        } else {
            self.inner.fork.check()?;
        }
        // The kernel gives greater numbers another meaning: the position of the descriptor.
        if i64::try_from(offset.saturating_add(bytes.len() as u64)).is_err() {
            let operation = if write { "write" } else { "read" };
            return Err(self.error(operation, io::ErrorKind::InvalidInput.into()));
        }
        self.check_aligned(bytes, offset)
    }

    /// Checks that the file is open for writing. Also refuses children of the process that opened
    /// the file.
    fn check_writable(&self, operation: &'static str) -> Result<()> {
        self.inner.fork.check()?;
        if self.inner.writable {
            Ok(())
        } else {
            Err(self.error(operation, io::ErrorKind::PermissionDenied.into()))
        }
    }

    fn check_aligned(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let alignment = self.inner.alignment;
        if bytes.as_ptr().addr().is_multiple_of(alignment)
            && bytes.len().is_multiple_of(alignment)
            && offset.is_multiple_of(alignment as u64)
        {
            return Ok(());
        }
        Err(Error::Unaligned {
            name: self.inner.name.clone(),
            offset,
            len: bytes.len(),
            alignment,
        })
    }

    /// Calls `part` with the number of bytes done until that is `len`; `part` returns the number of
    /// further bytes. Returns the bytes done, fewer than `len` when no more bytes come. For a
    /// direct file, a piece that ends unaligned is tried again from the last aligned place.
    fn complete(
        &self,
        len: usize,
        operation: &'static str,
        mut part: impl FnMut(usize) -> io::Result<usize>,
    ) -> Result<usize> {
        let mut done = 0;
        let mut retries = 0;
        while done < len {
            match part(done) {
                Ok(0) => break,
                Ok(count) => {
                    assert!(count <= len - done, "more bytes moved than were asked for");
                    done += count;
                    retries = 0;
                    let aligned = self.aligned_part(done);
                    if done < len && aligned < done {
                        if aligned == done - count {
                            break;
                        }
                        done = aligned;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock && retries < RETRIES_MAX =>
                {
                    retries += 1;
                    thread::yield_now();
                }
                Err(error) => return Err(self.error(operation, error)),
            }
        }
        Ok(done)
    }

    fn written(&self, done: usize, len: usize) -> Result<()> {
        if done == len {
            Ok(())
        } else {
            Err(self.error("write", io::ErrorKind::WriteZero.into()))
        }
    }

    /// Extends the file to `end` by writing zeros.
    fn write_zeros(&self, end: u64) -> Result<()> {
        let zeros = IoBuf::new(ZEROS_BYTES);
        let mut position = self.len()?;
        while position < end {
            let count = (end - position).min(ZEROS_BYTES as u64);
            self.write_at(&zeros[..usize_of(count)], position)?;
            position += count;
        }
        Ok(())
    }

    /// As [`File::allocate`], but a failure leaves what was found.
    fn allocate_blocks(&self, offset: u64, len: u64) -> Result<()> {
        loop {
            return match system::allocate(&self.inner.file, offset, len) {
                Ok(()) => Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                    self.write_zeros(offset.saturating_add(len))
                }
                Err(error) => Err(self.error("allocate", error)),
            };
        }
    }
}

impl File for DirectoryFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.check_request(false, buffer, offset)?;
        let wanted = buffer.len();
        let got = self.complete(wanted, "read", |done| {
            self.inner
                .file
                .read_at(&mut buffer[done..], offset + done as u64)
        })?;
        if got == wanted {
            return Ok(());
        }
        Err(self.short_read(offset, wanted, got))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.check_request(true, bytes, offset)?;
        let done = self.complete(bytes.len(), "write", |done| {
            self.inner
                .file
                .write_at(&bytes[done..], offset + done as u64)
        })?;
        self.written(done, bytes.len())
    }

    fn write_vectored_at(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        self.check_writable("write")?;
        let mut position = offset;
        for part in parts {
            self.check_aligned(part, position)?;
            position += part.len() as u64;
        }
        let len = usize_of(position - offset);
        let done = self.complete(len, "write", |done| {
            let (first, within) = locate(parts, done);
            let rest = parts[first + 1..].iter().copied();
            let slices: Vec<IoSlice<'_>> = std::iter::once(&parts[first][within..])
                .chain(rest)
                .take(system::VECTOR_PARTS_MAX)
                .map(IoSlice::new)
                .collect();
            system::write_vectored_at(&self.inner.file, &slices, offset + done as u64)
        })?;
        self.written(done, len)
    }

    fn sync(&self) -> Result<()> {
        self.inner.fork.check()?;
        self.inner
            .file
            .sync_data()
            .map_err(|error| self.error("sync", error))
    }

    fn len(&self) -> Result<u64> {
        match self.inner.file.metadata() {
            Ok(metadata) => Ok(metadata.len()),
            Err(error) => Err(self.error("read the length of", error)),
        }
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.check_writable("set the length of")?;
        self.inner
            .file
            .set_len(len)
            .map_err(|error| self.error("set the length of", error))
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.check_writable("allocate")?;
        if len == 0 {
            return Ok(());
        }
        let before = self.len()?;
        let allocated = self.allocate_blocks(offset, len);
        if allocated.is_err() && self.len()? > before {
            // File systems keep what they found before the disk was full, which may be all of it.
            self.set_len(before)?;
        }
        allocated
    }

    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        self.check_writable("punch")?;
        if len == 0 {
            return Ok(());
        }
        loop {
            return match system::punch(&self.inner.file, offset, len) {
                Ok(()) => Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(self.error("punch", error)),
            };
        }
    }

    fn alignment(&self) -> usize {
        self.inner.alignment
    }

    fn is_direct(&self) -> bool {
        self.inner.direct
    }
}

/// Returns the part with byte `position` of all parts together, and the position in it.
fn locate(parts: &[&[u8]], position: usize) -> (usize, usize) {
    let mut before = 0;
    for (index, part) in parts.iter().enumerate() {
        if position < before + part.len() {
            return (index, position - before);
        }
        before += part.len();
    }
    panic!("byte {position} is behind the {before} bytes of a vectored write");
}
