//! The engine as the loops see it: the store, its sixteen databases, and the limits that follow
//! from its memory.

use pandodb::nonblocking::{Opened, Polled, Reads, ValidatedBatch};
use pandodb::{Db, Error, Lsn, Table};

use crate::data::elements::ElementKeys;
#[cfg(feature = "scripts")]
use crate::data::function_table::FunctionTable;
use crate::data::keyspace::{DATABASES, KeyFolder, head_bytes_of, plain_string_bytes_max};
use crate::data::members::{self, Members};
use crate::data::piece_head::STRING_BYTES_MAX;
use crate::data::scratch::SORT_BYTES_MAX;

const MIB: u64 = 1024 * 1024;

/// Converts a count of bytes from the engine's report.
pub(crate) fn bytes<T: TryInto<u64>>(count: T) -> u64 {
    count.try_into().unwrap_or(u64::MAX)
}

/// The tables of a database.
#[derive(Clone)]
pub(crate) struct Database {
    /// The rows, by stored key.
    pub(crate) keys: Table,
    /// The expiry entries, by time and stored key.
    pub(crate) elements: Table,
    /// The elements of large collections.
    pub(crate) members: Members,
}

impl Database {
    /// Returns true if something may belong to a row that is not in it: an expiry entry, or the
    /// elements of a large collection.
    #[inline]
    pub(crate) fn has_more_than_rows(&self) -> bool {
        self.members.table().is_some() || self.entries() > 0
    }

    /// Returns the number of expiry entries.
    #[inline]
    pub(crate) fn entries(&self) -> u64 {
        self.elements.len()
    }

    /// Reads the head of the row at `stored` into `out`, and as much of its string as comes with
    /// it. `shown_from` as in [`Reads::get`].
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn look(
        &self,
        stored: &[u8],
        out: &mut Vec<u8>,
        shown_from: &mut Option<Lsn>,
    ) -> pandodb::Result<Polled<bool>> {
        let head = head_bytes_of(stored);
        let attempt = Reads::of(&self.keys).get_head(stored, head, out, shown_from);
        Ok(match attempt.map(|found| found.map(|len| len.is_some())) {
            Err(Error::InChunks) => match Reads::of(&self.keys).open(stored, out, shown_from)? {
                Polled::Ready(opened) => Polled::Ready(!matches!(opened, Opened::Absent)),
                Polled::Pending(pending) => Polled::Pending(pending),
            },
            other => other?,
        })
    }

    /// As [`Database::look`], as `batch` sees the row. Also returns how many bytes of the row were
    /// not read.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn look_in(
        &self,
        batch: &mut ValidatedBatch,
        stored: &[u8],
        out: &mut Vec<u8>,
    ) -> pandodb::Result<Polled<(Opened, usize)>> {
        match batch.get_head(&self.keys, stored, head_bytes_of(stored), out) {
            Err(Error::InChunks) => {
                let opened = batch.open(&self.keys, stored, out)?;
                Ok(opened.map(|opened| (opened, 0)))
            }
            found => Ok(found?.map(|len| match len {
                Some(len) => (Opened::Value, len - out.len()),
                None => (Opened::Absent, 0),
            })),
        }
    }
}

/// An open store.
pub(crate) struct Engine {
    pub(crate) db: Db,
    /// By number.
    pub(crate) databases: Vec<Database>,
    /// Converts user keys to stored keys.
    pub(crate) folder: KeyFolder,
    /// Makes the keys of elements.
    pub(crate) element_keys: ElementKeys,
    /// Longest string, in bytes.
    pub(crate) string_bytes_max: u64,
    /// Longest row that is stored in pages.
    pub(crate) row_bytes_max: usize,
    /// Longest string that is kept in pieces, and so is read into memory whole.
    pub(crate) piece_string_bytes_max: u64,
    /// Longest argument that is held in memory; longer ones are staged as they arrive.
    pub(crate) whole_bytes_max: usize,
    /// Longest request, without its staged arguments.
    pub(crate) request_bytes_max: usize,
    /// Longest reply, without its streamed values.
    pub(crate) reply_bytes_max: usize,
    /// Bytes that are read at a time of a reply that is read while it is sent.
    pub(crate) row_piece_bytes: usize,
    /// Memory that a sort takes whose result is sent or stored: see `scratch.rs`.
    pub(crate) sort_bytes: usize,
    /// Most elements of a collection of which random ones are drawn in a pipeline run behind
    /// removals: with 256 bytes each they take an eighth of all memory.
    pub(crate) drawn_together_max: usize,
    /// Memory for the places of SCAN cursors.
    pub(crate) cursor_bytes_max: u64,
    /// Memory in which a transaction of PANDO BEGIN remembers what it has read.
    pub(crate) read_set_bytes_max: usize,
    /// Memory for the scripts that are known by name; and for the state of Lua of each loop.
    #[cfg(feature = "scripts")]
    pub(crate) script_bytes_max: usize,
    /// The libraries of functions, and the bytes that all of them may take.
    #[cfg(feature = "scripts")]
    pub(crate) functions: FunctionTable,
    #[cfg(feature = "scripts")]
    pub(crate) function_bytes_max: usize,
    /// Memory that the watches of all connections may take together.
    pub(crate) watch_bytes_max: u64,
    /// Memory that the keys of all clients that wait may take together.
    pub(crate) awaited_bytes_max: u64,
}

impl Engine {
    /// Opens the tables. Blocks, so it is never called on a loop.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn new(db: Db) -> pandodb::Result<Self> {
        let mut databases = Vec::with_capacity(DATABASES);
        let common = members::Common::new();
        for number in 0..DATABASES {
            databases.push(Database {
                keys: db.table(&format!("db/{number}/keys"))?,
                elements: db.table(&format!("db/{number}/elements"))?,
                members: Members::open(&db, number, &common)?,
            });
        }
        let max_memory = bytes(db.report().max_memory);
        let quarter = max_memory / 4;
        let sixteenth_or_more = (max_memory / 16).max((6 * MIB).min(max_memory / 8));
        let share = usize::try_from(quarter.clamp(16 * MIB, 512 * MIB)).unwrap_or(usize::MAX);
        let row_bytes_max = db.plain_bytes_max();
        let whole_bytes_max = plain_string_bytes_max(row_bytes_max).max(1024 * 1024);
        let reply_bytes_max = share.max(whole_bytes_max.saturating_mul(2));
        #[cfg(feature = "scripts")]
        let script_bytes_max = usize::try_from(max_memory / 32)
            .unwrap_or(usize::MAX)
            .clamp(4 * 1024 * 1024, 64 * 1024 * 1024);
        Ok(Self {
            folder: KeyFolder::new(db.hash_key(), db.key_bytes_max()),
            element_keys: ElementKeys::new(db.hash_key(), db.key_bytes_max()),
            string_bytes_max: db.value_bytes_max() as u64,
            row_bytes_max,
            piece_string_bytes_max: piece_string_bytes_max(row_bytes_max, reply_bytes_max),
            whole_bytes_max,
            request_bytes_max: share.max(whole_bytes_max.saturating_mul(2)).min(1 << 31),
            reply_bytes_max,
            row_piece_bytes: usize::try_from(max_memory >> 14)
                .unwrap_or(usize::MAX)
                .clamp(16 << 10, 64 << 10),
            sort_bytes: usize::try_from(max_memory / 64)
                .unwrap_or(usize::MAX)
                .clamp(256 << 10, SORT_BYTES_MAX),
            drawn_together_max: usize::try_from(max_memory / (8 * 256)).unwrap_or(usize::MAX),
            // Enough for a hundred thousand iterations, if the memory allows that.
            cursor_bytes_max: sixteenth_or_more,
            read_set_bytes_max: usize::try_from(max_memory / 1024)
                .unwrap_or(usize::MAX)
                .clamp(64 * 1024, 1024 * 1024),
            #[cfg(feature = "scripts")]
            script_bytes_max,
            #[cfg(feature = "scripts")]
            functions: FunctionTable::open(&db),
            // One batch may remove all of them and store as much. A loop that has compiled all has
            // room for what they do.
            #[cfg(feature = "scripts")]
            function_bytes_max: (row_bytes_max / 2).min(script_bytes_max / 8),
            watch_bytes_max: max_memory / 16,
            // Enough for ten thousand keys, if the memory allows that.
            awaited_bytes_max: sixteenth_or_more,
            databases,
            db,
        })
    }
}

/// Returns the length of the longest string in pieces: what one in pages may be, or a sixteenth of
/// the longest reply, as it is read into memory whole.
fn piece_string_bytes_max(row_bytes_max: usize, reply_bytes_max: usize) -> u64 {
    let plain = plain_string_bytes_max(row_bytes_max) as u64;
    (reply_bytes_max as u64 / 16)
        .max(plain)
        .min(STRING_BYTES_MAX)
}
