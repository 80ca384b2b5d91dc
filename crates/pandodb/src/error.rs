//! The one error type of the engine.

use std::fmt;
use std::path::{Path, PathBuf};

use pando_device::Error as DeviceError;
use pando_format::{Extent, PageId};
use pando_sync::Arc;

/// Bytes of the longest batch, about, however much memory there is: a buffer of the log has 8 MiB
/// at most.
const BATCH_BYTES_MOST: usize = (32 << 20) - (64 << 10);

/// Result of an engine call.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The device failed, or a file of the store is not what it must be.
    Io {
        /// What was being done.
        during: &'static str,
        /// The error of the device.
        source: Arc<DeviceError>,
    },
    /// Another process has the directory open, or this one has: all handles have to be dropped
    /// before it can be opened again.
    InUse {
        /// The directory.
        directory: PathBuf,
        /// Whether those who have it open only read ([`Builder::open_read_only`]), and keep writers
        /// out.
        ///
        /// [`Builder::open_read_only`]: crate::Builder::open_read_only
        by_readers: bool,
    },
    /// A page on disk is not what was written there, or it cannot be read.
    CorruptPage {
        /// The page.
        page: PageId,
        /// Blocks that it was read from, if known.
        extent: Option<Extent>,
        /// What was expected and what was found.
        what: String,
    },
    /// A file of the store is damaged.
    Corrupt {
        /// The file, and the place in it if known.
        place: String,
        /// Expected and actual.
        what: String,
    },
    /// The store has a format version that this program does not read. Nothing is damaged, and
    /// nothing was changed.
    Version {
        /// The version of the store.
        found: u32,
        /// The newest version that this program reads and writes.
        known: u32,
    },
    /// There is no room for more data; deletes still work.
    Full {
        /// What ran out, and what to do about it.
        what: String,
    },
    /// A write or a sync has failed before: nothing is written until the store is opened again.
    /// Reads still work.
    Poisoned {
        /// The first failure.
        cause: String,
    },
    /// The key is longer than a quarter of a page.
    KeyTooLong {
        /// Its length.
        bytes: usize,
        /// The longest allowed.
        limit: usize,
    },
    /// The value is longer than this store accepts.
    ValueTooLong {
        /// Its length.
        bytes: usize,
        /// The longest allowed.
        limit: usize,
    },
    /// The value is stored in chunks, and the call returns values in one piece only. Read it with
    /// [`Table::get_reader`](crate::Table::get_reader) or its counterpart for event loops.
    InChunks,
    /// A value that is handed over piece by piece cannot be read, or differs from its announcement.
    InvalidValue {
        /// What is wrong with it.
        what: String,
    },
    /// The text is no dump, or not a whole one.
    InvalidDump {
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        what: String,
    },
    /// The batch is larger than what one record of the log may be: a 14th of `max_memory` or so up
    /// to 8 MiB, a 64th of it beyond that, 32 MiB at most (from 2 GiB on), and a little less than
    /// half of a segment, whose size a store has from its creation. Or what a step of a transaction
    /// that goes on on disk reads there takes more memory than it may.
    BatchTooLarge {
        /// Its size in the log.
        bytes: usize,
        /// The largest allowed.
        limit: usize,
    },
    /// A table's name is empty or too long.
    InvalidTableName {
        /// The name.
        name: String,
    },
    /// The table was dropped, or was never made.
    NoSuchTable {
        /// Its name.
        name: String,
    },
    /// The table does not count its entries: it was not created by [`crate::Db::table_with`] with
    /// [`crate::TableOptions::counted`].
    NotCounted {
        /// Its name.
        name: String,
    },
    /// The table has no weights: it was not created by [`crate::Db::table_with`] with
    /// [`crate::TableOptions::weighted`].
    NotWeighted {
        /// Its name.
        name: String,
    },
    /// The store has ended the snapshot: the memory for values that only snapshots read, or the
    /// disk for pages that only it reads, was needed for newer ones. Begin another one. Or the
    /// store was closed.
    SnapshotEnded,
    /// Somebody has written what the transaction depends on, since the moment that it reads. It has
    /// written nothing; run it again from the beginning.
    Conflict {
        /// Name of the table.
        table: String,
        /// A key that was written; None if the table itself was emptied, dropped or replaced. A
        /// transaction that went on on disk, for lack of memory for old versions, takes a key for
        /// written if it cannot know, and each range, of which it names no key.
        key: Option<Vec<u8>>,
        /// How the transaction depends on it.
        kind: ConflictKind,
    },
    /// The transaction, and others, waited for each other's locks: it is the one that gives up. It
    /// holds no locks any longer, and has written nothing; run it again from the beginning.
    Deadlock {
        /// Name of the table of the lock that it waited for.
        table: String,
        /// The key that it waited for; None for the table as a whole.
        key: Option<Vec<u8>>,
    },
    /// Somebody else has locked the key for longer than the caller waits
    /// ([`Builder::lock_timeout`](crate::Builder::lock_timeout)). Nothing was written.
    LockTimeout {
        /// Name of the table.
        table: String,
        /// The key; None for the table as a whole.
        key: Option<Vec<u8>>,
    },
    /// The function of a transaction has given up ([`Error::aborted`]). Nothing was written.
    Aborted {
        /// Why, in its own words.
        why: String,
    },
    /// The savepoint is of another transaction, or was made after one that the transaction has gone
    /// back to.
    NoSuchSavepoint,
    /// A store, or a batch, a snapshot or a transaction of it, was given a table of another one, or
    /// a handle from an earlier opening of this one.
    OtherStore,
    /// A table that is to be loaded is not empty.
    NotEmpty {
        /// Its name.
        name: String,
    },
    /// A key of a load is not greater than the key before it.
    NotAscending {
        /// Number of the entry, from 0. The load may continue without it.
        entry: u64,
    },
    /// An option is out of its range, or does not fit the store.
    InvalidOption {
        /// The option.
        option: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// An operation that runs only once at a time is already running.
    Busy {
        /// The operation.
        what: &'static str,
    },
    /// The store was opened for reading only ([`Builder::open_read_only`]), and this would change
    /// it.
    ///
    /// [`Builder::open_read_only`]: crate::Builder::open_read_only
    ReadOnly,
    /// The store was closed.
    Closed,
}

/// How a transaction depends on a key that somebody else has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConflictKind {
    /// It writes the key.
    Written,
    /// It has read the key.
    Read,
    /// It has read a range that the key lies in.
    Range,
    /// It has read the table, or writes to it, and that has other contents as a whole now.
    Table,
}

impl fmt::Display for ConflictKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Written => "writes it",
            Self::Read => "has read it",
            Self::Range => "has read a range around it",
            Self::Table => "depends on it",
        })
    }
}

impl Error {
    /// Returns the error with which a function ends its transaction, for a reason of its own: see
    /// [`Db::transact`](crate::Db::transact).
    pub fn aborted(why: impl fmt::Display) -> Self {
        Self::Aborted {
            why: why.to_string(),
        }
    }

    /// True if the same may succeed later: a write once there is room again, or a transaction that
    /// is run again from its beginning.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::LockTimeout { .. }) || self.is_conflict()
    }

    /// True if a transaction, or the reads of a snapshot, may succeed when they are run again from
    /// the beginning, at once.
    pub fn is_conflict(&self) -> bool {
        matches!(
            self,
            Self::Conflict { .. } | Self::SnapshotEnded | Self::Deadlock { .. }
        )
    }

    /// True if something on disk is damaged or cannot be read.
    pub fn is_corruption(&self) -> bool {
        matches!(self, Self::CorruptPage { .. } | Self::Corrupt { .. })
    }

    /// True if a file did not get the room that was asked for, on a full disk or for another
    /// reason. Nothing was changed, and the same may succeed later.
    pub(crate) fn is_want_of_room(&self) -> bool {
        match self {
            Self::Full { .. } => true,
            Self::Io { source, .. } => source.is_allocation(),
            _ => false,
        }
    }

    /// True if another process has the directory open, or a handle in this one.
    pub fn is_in_use(&self) -> bool {
        matches!(self, Self::InUse { .. })
    }

    /// Converts an error of the device; `during` says what was being done. A full disk becomes
    /// [`Error::Full`], which may be retried.
    pub(crate) fn io(during: &'static str) -> impl Fn(DeviceError) -> Self {
        move |source| match source {
            DeviceError::InUse {
                directory,
                by_readers,
            } => Self::InUse {
                directory: directory.into(),
                by_readers,
            },
            source if source.is_full() => Self::Full {
                what: format!("{source}; make room and try again"),
            },
            source => Self::Io {
                during,
                source: Arc::new(source),
            },
        }
    }

    /// As [`Error::io`], for operations that cannot be retried after a failure: a full disk is an
    /// [`Error::Io`] like any other.
    pub(crate) fn io_fatal(during: &'static str) -> impl Fn(DeviceError) -> Self {
        move |source| Self::Io {
            during,
            source: Arc::new(source),
        }
    }

    /// Returns the error of memory for `what` that cannot be mapped. Much more is mapped than is
    /// used, so that there is rarely too little of it, but often a limit.
    pub(crate) fn unmapped(what: &str, error: impl fmt::Display) -> Self {
        Self::InvalidOption {
            option: "max_memory",
            what: format!(
                "no addresses for {what}: {error}; choose less, or raise the limits of the process \
                 (ulimit -v and -d) or of the system (vm.overcommit_memory)"
            ),
        }
    }

    /// Returns an error for damage at `place` in a file of the store.
    pub(crate) fn corrupt(place: impl Into<String>, what: impl fmt::Display) -> Self {
        Self::Corrupt {
            place: place.into(),
            what: what.to_string(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { during, source } => write!(f, "{during}: {source}"),
            Self::InUse {
                directory,
                by_readers,
            } => write_in_use(f, directory, *by_readers),
            Self::CorruptPage { page, extent, what } => write_page(f, *page, *extent, what),
            Self::Corrupt { place, what } => write!(f, "{place} is damaged: {what}"),
            Self::Version { found, known } => write_version(f, *found, *known),
            Self::Full { what } => write!(f, "no room for writes: {what}"),
            Self::Poisoned { cause } => write!(
                f,
                "writes are refused since a write or sync failed ({cause}); reads go on; \
                 open the store again once the cause is removed"
            ),
            Self::KeyTooLong { bytes, limit } => {
                write!(
                    f,
                    "key of {bytes} bytes; the longest is {limit} (a quarter of a page)"
                )
            }
            Self::ValueTooLong { bytes, limit } => {
                write!(f, "value of {bytes} bytes; the longest here is {limit}")
            }
            Self::InChunks => {
                f.write_str("the value lies in chunks; read it piece by piece (get_reader)")
            }
            Self::InvalidValue { what } => write!(f, "value handed over piece by piece: {what}"),
            Self::InvalidDump { line, what } => write!(f, "line {line} of the dump: {what}"),
            Self::BatchTooLarge { bytes, limit } => write_too_large(f, *bytes, *limit),
            Self::InvalidTableName { name } => {
                write!(
                    f,
                    "table name of {} bytes; 1 to 255 are allowed",
                    name.len()
                )
            }
            Self::NoSuchTable { name } => write!(f, "there is no table '{name}' (any more)"),
            Self::NotCounted { name } => write_other_kind(f, name, "counted"),
            Self::NotWeighted { name } => write_other_kind(f, name, "weighted"),
            Self::SnapshotEnded => f.write_str(
                "the snapshot was ended: commits needed the memory or the disk for what it reads \
                 (or the store was closed); begin another one, or raise max_memory",
            ),
            Self::Conflict { table, key, .. }
            | Self::Deadlock { table, key }
            | Self::LockTimeout { table, key } => write_lost(f, self, table, key.as_deref()),
            Self::Aborted { why } => write!(f, "the transaction gave up: {why}"),
            Self::NoSuchSavepoint => f.write_str(
                "the savepoint is of another transaction, or later than one that was gone back to",
            ),
            Self::OtherStore => f.write_str("the table belongs to another store"),
            Self::NotEmpty { name } => write!(f, "table '{name}' is not empty"),
            Self::NotAscending { entry } => {
                write!(
                    f,
                    "the key of entry {entry} is not greater than the one before it"
                )
            }
            Self::InvalidOption { option, what } => write!(f, "option {option}: {what}"),
            Self::Busy { what } => write!(f, "{what} already; wait for its end"),
            Self::ReadOnly => f.write_str(
                "the store is open for reading only; close it and open it with `open` to write",
            ),
            Self::Closed => f.write_str("the store was closed"),
        }
    }
}

fn write_in_use(f: &mut fmt::Formatter<'_>, directory: &Path, by_readers: bool) -> fmt::Result {
    let directory = directory.display();
    match by_readers {
        true => write!(
            f,
            "{directory} is open for reading only in another process, or by a handle in this one; \
             close it there before you write, or choose another directory"
        ),
        false => write!(
            f,
            "{directory} is in use by another process, or by a handle in this one; stop it, or \
             choose another directory"
        ),
    }
}

fn write_too_large(f: &mut fmt::Formatter<'_>, bytes: usize, limit: usize) -> fmt::Result {
    write!(
        f,
        "batch of {bytes} bytes; the largest is {limit}: split it"
    )?;
    if limit < BATCH_BYTES_MOST {
        f.write_str(
            ", or raise max_memory (up to 32 MiB are possible; less in a store that was created \
             with little memory)",
        )?;
    }
    Ok(())
}

/// Writes that a table is of another kind than this one.
fn write_other_kind(f: &mut fmt::Formatter<'_>, name: &str, kind: &str) -> fmt::Result {
    write!(f, "table '{name}' was not created as a {kind} one")
}

/// Writes what came between a transaction and others.
fn write_lost(
    f: &mut fmt::Formatter<'_>,
    error: &Error,
    table: &str,
    key: Option<&[u8]>,
) -> fmt::Result {
    match key {
        Some(key) => write!(f, "key {} of table '{table}' ", key.escape_ascii())?,
        None => write!(f, "table '{table}' ")?,
    }
    match error {
        Error::Conflict { kind, .. } => write!(
            f,
            "was changed since the transaction began, which {kind}; run it again"
        ),
        Error::Deadlock { .. } => f.write_str(
            "is locked by a transaction that waits for this one; this one gave up: run it again",
        ),
        _ => f.write_str("is locked by a transaction; try again later"),
    }
}

fn write_page(
    f: &mut fmt::Formatter<'_>,
    page: PageId,
    extent: Option<Extent>,
    what: &str,
) -> fmt::Result {
    match extent {
        Some(extent) => write!(
            f,
            "{page} at blocks {}..{} is damaged: {what}",
            extent.block,
            u64::from(extent.block) + u64::from(extent.blocks)
        ),
        None => write!(f, "{page} is damaged: {what}"),
    }
}

fn write_version(f: &mut fmt::Formatter<'_>, found: u32, known: u32) -> fmt::Result {
    let advice = if found > known {
        "open it with a newer PandoDB"
    } else {
        "open it with the PandoDB that wrote it, and move its data over"
    };
    write!(
        f,
        "the store has format version {found}; this program reads up to version {known}: {advice}"
    )
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(&**source),
            _ => None,
        }
    }
}
