//! Space on disk for what a command sorts and has no room for in memory (decision 131): files
//! without names in the directory of the store, which are gone once they are closed, also by a
//! crash.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use pando_sync::Arc;
use pando_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use rustix::fs::fstatvfs;

/// Files that are open at a time, at most: each takes a file descriptor, until its reply was sent
/// or its rows are written.
const FILES_MAX: usize = 64;

/// Memory that one sort takes, besides twice as much while it merges, at most.
pub(crate) const SORT_BYTES_MAX: usize = 4 << 20;

/// Where the files are made, and what they take.
#[derive(Debug)]
pub(crate) struct Scratch {
    directory: PathBuf,
    /// See [`SORT_BYTES_MAX`]; less with little memory.
    sort_bytes: AtomicUsize,
    files: AtomicUsize,
    /// Bytes of all files, also of those beside these.
    bytes: Arc<AtomicU64>,
}

/// A file without a name.
#[derive(Debug)]
pub(crate) struct ScratchFile {
    file: File,
    bytes: u64,
    scratch: Arc<Scratch>,
}

impl Scratch {
    /// Returns that of a store in this directory; files of one without a directory are where the
    /// system has temporary files.
    pub(crate) fn new(directory: &str) -> Arc<Self> {
        let directory = match directory {
            "" => std::env::temp_dir(),
            directory => Path::new(directory).to_owned(),
        };
        Arc::new(Self {
            directory,
            sort_bytes: AtomicUsize::new(SORT_BYTES_MAX),
            files: AtomicUsize::new(0),
            bytes: Arc::default(),
        })
    }

    /// Returns another one in the same directory, whose bytes count together with those of this
    /// one, and whose files count by themselves: whoever holds all of one leaves the other alone.
    pub(crate) fn beside(&self) -> Arc<Self> {
        Arc::new(Self {
            directory: self.directory.clone(),
            sort_bytes: AtomicUsize::new(self.sort_bytes()),
            files: AtomicUsize::new(0),
            bytes: self.bytes.clone(),
        })
    }

    /// Sets the memory that each sort takes which begins from here on.
    pub(crate) fn set_sort_bytes(&self, bytes: usize) {
        // Relaxed: nothing is told by it.
        self.sort_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Memory that a sort takes which begins now.
    pub(crate) fn sort_bytes(&self) -> usize {
        self.sort_bytes.load(Ordering::Relaxed)
    }

    /// Makes a file. Blocks.
    pub(crate) fn file(self: &Arc<Self>) -> Result<ScratchFile, String> {
        // Relaxed: nothing is told by it.
        let open = self.files.fetch_add(1, Ordering::Relaxed);
        let made = match open < FILES_MAX {
            true => {
                tempfile::tempfile_in(&self.directory).map_err(|error| self.failed("make", &error))
            }
            false => {
                let reason = format!("{FILES_MAX} of them are open");
                Err(self.failed("make", &reason))
            }
        };
        match made {
            Ok(file) => Ok(ScratchFile {
                file,
                bytes: 0,
                scratch: self.clone(),
            }),
            Err(error) => {
                self.files.fetch_sub(1, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    /// Bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        // Relaxed: nothing is told by it.
        self.bytes.load(Ordering::Relaxed)
    }

    fn failed(&self, what: &str, error: &dyn std::fmt::Display) -> String {
        let directory = self.directory.display();
        format!("cannot {what} a temporary file in {directory}: {error}")
    }
}

impl ScratchFile {
    /// Number of its bytes.
    pub(crate) fn len(&self) -> u64 {
        self.bytes
    }

    /// Writes `bytes` behind those that it has. All files together may take half of what would be
    /// free without them: the rest is the store's. Blocks.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), String> {
        let scratch = &self.scratch;
        let failed = |error: &dyn std::fmt::Display| scratch.failed("write", error);
        let disk = fstatvfs(&self.file).map_err(|error| failed(&error))?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let added = bytes.len() as u64;
        if !has_room(scratch.bytes(), added, free) {
            let most = "all of them take half of the free space";
            return Err(failed(&most));
        }
        let written = self.file.write_all_at(bytes, self.bytes);
        written.map_err(|error| failed(&error))?;
        // Relaxed: nothing is told by it.
        scratch.bytes.fetch_add(added, Ordering::Relaxed);
        self.bytes += added;
        Ok(())
    }

    /// Fills `bytes` with those at `place`. Blocks.
    pub(crate) fn read_at(&self, place: u64, bytes: &mut [u8]) -> Result<(), String> {
        let read = self.file.read_exact_at(bytes, place);
        read.map_err(|error| self.scratch.failed("read", &error))
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        // Relaxed: nothing is told by them.
        self.scratch.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.scratch.files.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns true if files that have `bytes` bytes may have `added` more on a disk that has `free`.
fn has_room(bytes: u64, added: u64, free: u64) -> bool {
    bytes.saturating_add(added) <= free.saturating_add(bytes) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_are_not_in_the_way_of_the_other() {
        let replies = Scratch::new("");
        let rows = replies.beside();
        let mut files: Vec<_> = (0..FILES_MAX).map(|_| replies.file().unwrap()).collect();
        let refused = replies.file().unwrap_err();
        assert!(refused.ends_with(": 64 of them are open"), "{refused}");
        let mut other = rows.file().unwrap();
        other.append(b"12345").unwrap();
        files[0].append(b"123").unwrap();
        assert_eq!((replies.bytes(), rows.bytes()), (8, 8));
        drop((files, other));
        assert_eq!((replies.bytes(), rows.bytes()), (0, 0));
    }

    #[test]
    fn files_take_half_of_what_is_free() {
        assert!(has_room(0, 50, 100));
        assert!(!has_room(0, 51, 100));
        assert!(has_room(40, 10, 60));
        assert!(!has_room(40, 11, 60));
        assert!(!has_room(u64::MAX, u64::MAX, u64::MAX));
    }

    #[test]
    fn bytes_come_back_and_are_counted_while_the_file_is_open() {
        let directory = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(directory.path().to_str().unwrap());
        let mut file = scratch.file().unwrap();
        file.append(b"one").unwrap();
        file.append(b"two").unwrap();
        let mut bytes = [0; 4];
        file.read_at(1, &mut bytes).unwrap();
        assert_eq!((&bytes, file.len(), scratch.bytes()), (b"netw", 6, 6));
        assert!(file.read_at(3, &mut bytes).is_err());
        assert_eq!(directory.path().read_dir().unwrap().count(), 0);
        drop(file);
        assert_eq!(scratch.bytes(), 0);
        let files: Vec<_> = (0..FILES_MAX).map(|_| scratch.file().unwrap()).collect();
        let error = scratch.file().unwrap_err();
        assert!(error.contains("64 of them are open"), "{error}");
        drop(files);
        scratch.file().unwrap();
        let gone = Scratch::new("/there/is/no/such/directory").file();
        let error = gone.unwrap_err();
        assert!(error.contains("/there/is/no/such/directory"), "{error}");
    }
}
