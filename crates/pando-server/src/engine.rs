//! The engine as the loops see it: the store, its sixteen databases, and limits that follow from
//! its memory.

use pandodb::{Db, Table};

use crate::keyspace::{DATABASES, KeyFolder, string_bytes_max};

const MIB: u64 = 1024 * 1024;

/// A count of bytes of the engine's report.
pub(crate) fn bytes<T: TryInto<u64>>(count: T) -> u64 {
    count.try_into().unwrap_or(u64::MAX)
}

/// The two tables of a database.
#[derive(Clone)]
pub(crate) struct Database {
    pub(crate) keys: Table,
    pub(crate) elements: Table,
}

impl Database {
    /// How many expiry entries there are.
    #[inline]
    pub(crate) fn entries(&self) -> u64 {
        self.elements.len()
    }
}

/// An open store.
pub(crate) struct Engine {
    pub(crate) db: Db,
    pub(crate) databases: Vec<Database>,
    pub(crate) folder: KeyFolder,
    /// Longest string.
    pub(crate) string_bytes_max: usize,
    /// Longest argument, request and reply that are taken.
    pub(crate) bulk_bytes_max: usize,
    pub(crate) request_bytes_max: usize,
    pub(crate) reply_bytes_max: usize,
}

impl Engine {
    /// Opens the tables; blocks, so never on a loop.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn new(db: Db) -> pandodb::Result<Self> {
        let mut databases = Vec::with_capacity(DATABASES);
        for number in 0..DATABASES {
            databases.push(Database {
                keys: db.table(&format!("db/{number}/keys"))?,
                elements: db.table(&format!("db/{number}/elements"))?,
            });
        }
        let quarter = bytes(db.report().max_memory) / 4;
        let share = usize::try_from(quarter.clamp(16 * MIB, 512 * MIB)).unwrap_or(usize::MAX);
        let value_bytes_max = db.plain_bytes_max();
        // One byte more than a value may have is taken, to be refused by name and not by protocol.
        let bulk_bytes_max = value_bytes_max.max(1024 * 1024).saturating_add(1);
        Ok(Self {
            folder: KeyFolder::new(db.hash_key(), db.key_bytes_max()),
            string_bytes_max: string_bytes_max(value_bytes_max),
            bulk_bytes_max,
            request_bytes_max: share.max(bulk_bytes_max.saturating_mul(2)).min(1 << 31),
            reply_bytes_max: share.max(value_bytes_max.saturating_mul(2)),
            databases,
            db,
        })
    }
}
