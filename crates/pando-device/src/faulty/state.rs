//! Everything about a faulty directory, under one lock: names, files, counters, plans.
//!
//! Lock order: no other lock is taken under this lock, and no callback runs under it.

use std::collections::BTreeMap;
use std::io;

use super::image::{CrashMode, Image};
use super::plan::{Fault, Operation, Plans};
use super::random::Random;
use crate::device::{Create, OpenOptions};
use crate::error::{Error, Lack, Result};

/// Default alignment of direct files in bytes: the faulty disk's sector, so that misuse is found.
const DIRECT_ALIGNMENT_DEFAULT: usize = 512;
/// Default limit of the sum of all file lengths in bytes.
const CAPACITY_DEFAULT: u64 = 1 << 30;

/// A file that has a name, or had one and is still open or could come back after a crash.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) image: Image,
    /// Number of open handles.
    handles: usize,
}

/// A directory.
#[derive(Debug)]
pub(super) struct DirectoryState {
    pub(super) random: Random,
    pub(super) plans: Plans,
    files: BTreeMap<u64, Entry>,
    file_next: u64,
    /// Names as programs see them.
    seen: BTreeMap<String, u64>,
    /// Names as of the last sync of the directory.
    durable: BTreeMap<String, u64>,
    pub(super) capacity: u64,
    /// Sum of the lengths of files that have a name.
    used: u64,
    pub(super) crashed: bool,
    /// Number of syncs that have begun.
    pub(super) syncs: u64,
    /// Number of writes that have begun.
    pub(super) writes: u64,
    /// Number of operations that have begun and may change something: all except reads and making
    /// channels.
    pub(super) changes: u64,
    pub(super) crash_at_change: Option<u64>,
    pub(super) crash_at_sync: Option<u64>,
    pub(super) crash_after_writes: Option<u64>,
    pub(super) contexts: ContextsSeen,
    /// Alignment of direct files in bytes.
    pub(super) direct_alignment: usize,
}

/// Counts of the read contexts that the device has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ContextsSeen {
    /// Number of all contexts.
    pub seen: u64,
    /// Number of contexts that were not in their initial state.
    pub unclean: u64,
}

impl DirectoryState {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            plans: Plans::default(),
            files: BTreeMap::new(),
            file_next: 0,
            seen: BTreeMap::new(),
            durable: BTreeMap::new(),
            capacity: CAPACITY_DEFAULT,
            used: 0,
            crashed: false,
            syncs: 0,
            writes: 0,
            changes: 0,
            crash_at_change: None,
            crash_at_sync: None,
            crash_after_writes: None,
            contexts: ContextsSeen::default(),
            direct_alignment: DIRECT_ALIGNMENT_DEFAULT,
        }
    }

    pub(super) fn check_alive(&self) -> Result<()> {
        if self.crashed {
            Err(Error::Crashed)
        } else {
            Ok(())
        }
    }

    /// Counts an operation. Returns the error with which it fails, or what else happens to it.
    pub(super) fn begin(&mut self, operation: Operation, name: &str) -> Result<Option<Fault>> {
        self.check_alive()?;
        if !matches!(operation, Operation::Read | Operation::Channel) {
            self.changes += 1;
            if self.crash_at_change == Some(self.changes) {
                self.crashed = true;
                return Err(Error::Crashed);
            }
        }
        if matches!(operation, Operation::Sync | Operation::SyncDirectory) {
            self.syncs += 1;
            if self.crash_at_sync == Some(self.syncs) {
                self.crashed = true;
                return Err(Error::Crashed);
            }
        }
        if operation == Operation::Write {
            self.writes += 1;
        }
        let fault = self.plans.strike(operation, name);
        let verb = operation.verb();
        match (fault, operation) {
            (Some(Fault::Crash), _) => {
                self.crashed = true;
                Err(Error::Crashed)
            }
            (Some(Fault::Full), _) => Err(Error::Full {
                operation: verb,
                name: name.to_owned(),
                lack: Lack::Space,
            }),
            (Some(Fault::Denied), _) => Err(Error::from_kind(
                operation.verb(),
                name,
                io::ErrorKind::PermissionDenied,
            )),
            (Some(Fault::Short(_)), Operation::Read | Operation::Write) => Ok(fault),
            (Some(Fault::Io | Fault::Short(_)), _) => Err(io_error(operation, name)),
            _ => Ok(fault),
        }
    }

    /// Ends a write, and crashes if it was the last one allowed.
    pub(super) fn end_write(&mut self) -> Result<()> {
        let last = self
            .crash_after_writes
            .is_some_and(|writes| self.writes >= writes);
        if last {
            self.crashed = true;
        }
        self.check_alive()
    }

    /// Opens or makes a file and counts the handle.
    pub(super) fn open(&mut self, name: &str, options: OpenOptions) -> Result<u64> {
        let fail = |kind| Err(Error::from_kind("open", name, kind));
        let id = match (self.seen.get(name), options.create) {
            (Some(_), Create::New) => return fail(io::ErrorKind::AlreadyExists),
            (Some(id), _) => *id,
            (None, Create::Never) => return fail(io::ErrorKind::NotFound),
            (None, _) => self.insert(name, Image::default()),
        };
        self.entry(id).handles += 1;
        Ok(id)
    }

    fn insert(&mut self, name: &str, image: Image) -> u64 {
        let id = self.file_next;
        self.file_next += 1;
        self.used += image.len();
        self.files.insert(id, Entry { image, handles: 0 });
        self.seen.insert(name.to_owned(), id);
        id
    }

    pub(super) fn close(&mut self, id: u64) {
        self.entry(id).handles -= 1;
        self.forget_unreachable();
    }

    pub(super) fn remove(&mut self, name: &str) -> Result<()> {
        match self.seen.remove(name) {
            Some(id) => {
                self.used -= self.entry(id).image.len();
                self.forget_unreachable();
                Ok(())
            }
            None => Err(Error::from_kind("remove", name, io::ErrorKind::NotFound)),
        }
    }

    pub(super) fn rename(&mut self, name: &str, to: &str) -> Result<()> {
        let Some(id) = self.seen.remove(name) else {
            return Err(Error::from_kind("rename", name, io::ErrorKind::NotFound));
        };
        if let Some(replaced) = self.seen.insert(to.to_owned(), id)
            && replaced != id
        {
            self.used -= self.entry(replaced).image.len();
            self.forget_unreachable();
        }
        Ok(())
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.seen.keys().cloned().collect()
    }

    pub(super) fn sync_directory(&mut self) {
        self.durable = self.seen.clone();
        self.forget_unreachable();
    }

    fn forget_unreachable(&mut self) {
        let named = |names: &BTreeMap<String, u64>, id| names.values().any(|named| *named == id);
        let (seen, durable) = (&self.seen, &self.durable);
        self.files
            .retain(|id, entry| entry.handles > 0 || named(seen, *id) || named(durable, *id));
    }

    fn entry(&mut self, id: u64) -> &mut Entry {
        self.files
            .get_mut(&id)
            .expect("a file with a handle or a name stays")
    }

    /// Returns the content of an open file.
    pub(super) fn image(&mut self, id: u64) -> &mut Image {
        &mut self.entry(id).image
    }

    /// Returns the content of a file by name.
    pub(super) fn image_named(&mut self, name: &str) -> Option<&mut Image> {
        let id = *self.seen.get(name)?;
        Some(self.image(id))
    }

    pub(super) fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.used)
    }

    /// Changes the used bytes for an open file that is to have `len` bytes, more or fewer than
    /// before.
    pub(super) fn reserve(&mut self, operation: Operation, id: u64, len: u64) -> Result<()> {
        let before = self.image(id).len();
        let Some((name, _)) = self.seen.iter().find(|(_, named)| **named == id) else {
            return if len > self.capacity {
                Err(Error::Full {
                    operation: operation.verb(),
                    name: "a removed file".into(),
                    lack: Lack::Space,
                })
            } else {
                Ok(())
            };
        };
        if len > before && len - before > self.free() {
            return Err(Error::Full {
                operation: operation.verb(),
                name: name.clone(),
                lack: Lack::Space,
            });
        }
        self.used = self.used - before + len;
        Ok(())
    }

    pub(super) fn fail_sync(&mut self, id: u64) {
        let Self { random, files, .. } = self;
        let entry = files.get_mut(&id).expect("an open file has an entry");
        entry.image.fail_sync(random);
    }

    /// Returns what the next process finds, as a directory of its own: names, content and their
    /// durable parts are the same. For some files the kernel has dropped cached content that it
    /// considers clean.
    pub(super) fn as_found(&self, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut after = Self::new(random.number());
        after.capacity = self.capacity;
        after.direct_alignment = self.direct_alignment;
        after.seen = self.seen.clone();
        after.durable = self.durable.clone();
        after.file_next = self.file_next;
        for (id, entry) in &self.files {
            let mut image = entry.image.clone();
            if random.once_in(4) {
                image.drop_clean();
            }
            after.files.insert(*id, Entry { image, handles: 0 });
        }
        after.forget_unreachable();
        let named = after.seen.values().map(|id| after.files[id].image.len());
        after.used = named.sum();
        after
    }

    /// Returns what a crash at this moment leaves, as a directory of its own.
    pub(super) fn survivors(&self, seed: u64, mode: CrashMode) -> Self {
        let mut random = Random::new(seed);
        let mut after = Self::new(random.number());
        after.capacity = self.capacity;
        let names: BTreeMap<&String, ()> = self
            .seen
            .keys()
            .chain(self.durable.keys())
            .map(|name| (name, ()))
            .collect();
        for name in names.into_keys() {
            let (seen, durable) = (self.seen.get(name), self.durable.get(name));
            let keeps_seen = match mode {
                CrashMode::AllLost => false,
                CrashMode::AllSurvive => true,
                _ => random.once_in(2),
            };
            if let Some(id) = if keeps_seen { seen } else { durable } {
                let content = self.files[id].image.survivors(&mut random, mode);
                after.insert(name, Image::durable(content));
            }
        }
        after.durable = after.seen.clone();
        after
    }
}

/// Makes an EIO error.
pub(super) fn io_error(operation: Operation, name: &str) -> Error {
    let source = io::Error::from_raw_os_error(libc::EIO);
    Error::from_io(operation.verb(), name, source)
}
