//! The table of the elements of large collections, and the ids of these.
//!
//! All databases have one counter of ids, so that an id that was given for one of them is not in
//! use where the database finds itself after SWAPDB.

use std::collections::BTreeSet;
use std::ops::Bound;

use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::{Arc, Mutex, OnceLock, Rank};
use pandodb::{Db, Table, TableOptions};

use super::elements::{END_OF_GIVEN_UP, decode_given_up, id_of};
use super::slots::Slots;

/// The table `db/N/members`, which is made when the first collection needs it: from then on the
/// store is of version 3 of the format, and older programs refuse it.
///
/// It is a weighted table, in which lists lie in blocks (`data/list_block.rs`). A store in which an
/// earlier program has made a counted one for any database has counted ones for all, since SWAPDB
/// exchanges them.
#[derive(Debug, Clone)]
pub(crate) struct Members(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    table: OnceLock<Table>,
    /// Set before the table is.
    is_made: Arc<AtomicBool>,
    common: Arc<Common>,
}

/// What the tables of all databases have in common.
#[derive(Debug)]
pub(crate) struct Common {
    /// The id of the next collection: larger than all that any of the tables has.
    next_id: AtomicU64,
    /// One of them counts rows, and no weights.
    has_counted: AtomicBool,
    /// Ids of collections whose rows are being written, while they count as given up. Guarded by
    /// its lock, held for a change or a copy.
    leased: Mutex<BTreeSet<u64>>,
    /// For commands whose rows are being written: they are in memory twice.
    slots: Slots,
}

/// Number of commands that have their rows written at a time.
const WRITERS: usize = 4;

impl Common {
    /// Returns that of a store whose tables were not looked at yet.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            next_id: AtomicU64::new(1),
            has_counted: AtomicBool::new(false),
            leased: Mutex::new(Rank::Leaf, BTreeSet::new()),
            slots: Slots::new(WRITERS),
        })
    }
}

/// The id of a collection whose rows are being written, while they count as given up. The cleaner
/// spares it until this is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    id: u64,
    common: Arc<Common>,
}

impl Lease {
    /// Returns the id.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.common.leased.lock().remove(&self.id);
    }
}

/// What the cleaner spares of the collections that were given up, as of one moment. Rows that say
/// that a collection was given up are to be read after it: a collection that is not spared, and
/// counts as given up even then, stays so.
#[derive(Debug)]
pub(crate) struct Spared {
    leased: BTreeSet<u64>,
    /// Ids from this one on have been given later.
    next_id: u64,
}

impl Spared {
    /// Returns true if the collection `id` is to be left alone.
    pub(crate) fn has(&self, id: u64) -> bool {
        id >= self.next_id || self.leased.contains(&id)
    }
}

impl Members {
    /// Opens the table of database `number`, if there is one. `common` is that of all databases,
    /// which are opened before the first table is made. Blocks.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn open(db: &Db, number: usize, common: &Arc<Common>) -> pandodb::Result<Self> {
        let members = Self(Arc::new(Inner {
            name: format!("db/{number}/members"),
            table: OnceLock::new(),
            is_made: Arc::new(AtomicBool::new(false)),
            common: common.clone(),
        }));
        if let Some(table) = db.existing_table(&members.0.name) {
            members.use_table(table)?;
        }
        Ok(members)
    }

    /// Makes the table if there is none. Blocks.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn make(&self, db: &Db) -> pandodb::Result<()> {
        // Relaxed: set before the store was open.
        let is_weighted = !self.0.common.has_counted.load(Ordering::Relaxed);
        let options = TableOptions::new().counted(true).weighted(is_weighted);
        self.use_table(db.table_with(&self.0.name, options)?)
    }

    fn use_table(&self, table: Table) -> pandodb::Result<()> {
        let largest = |range: (Bound<&[u8]>, Bound<&[u8]>)| {
            let entry = table.range(range).next_back().transpose()?;
            pandodb::Result::Ok(entry.map(|(key, _)| key))
        };
        // No collection has the greatest id.
        let no_id = u64::MAX.to_be_bytes();
        let last = largest((Bound::Unbounded, Bound::Excluded(&no_id)))?;
        let given_up = largest((Bound::Unbounded, Bound::Excluded(&END_OF_GIVEN_UP)))?;
        let given_up = given_up.and_then(|key| decode_given_up(&key));
        let given_up = given_up.filter(|id| *id < u64::MAX);
        let used = last.map_or(0, |key| id_of(&key)).max(given_up.unwrap_or(0));
        // Relaxed: who gets the table below gets it, too.
        let common = &self.0.common;
        common.next_id.fetch_max(used + 1, Ordering::Relaxed);
        common
            .has_counted
            .fetch_or(!table.is_weighted(), Ordering::Relaxed);
        // Release: pairs with the Acquire of commits that expect it not to be set.
        self.0.is_made.store(true, Ordering::Release);
        let _others = self.0.table.set(table);
        Ok(())
    }

    /// Returns its name, whether there is one or not.
    pub(crate) fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the table, if there is one.
    #[inline]
    pub(crate) fn table(&self) -> Option<&Table> {
        self.0.table.get()
    }

    /// Returns the flag that is set before anybody gets the table.
    pub(crate) fn is_made(&self) -> &Arc<AtomicBool> {
        &self.0.is_made
    }

    /// Returns the slots of commands that have their rows written.
    pub(crate) fn slots(&self) -> &Slots {
        &self.0.common.slots
    }

    /// Returns the id of a collection whose rows are to be written before its head.
    pub(crate) fn lease(&self) -> Lease {
        let common = self.0.common.clone();
        let id = {
            // Under the lock, so that whoever has a later id as the next one has this one, too.
            let mut leased = common.leased.lock();
            let id = self.new_id();
            leased.insert(id);
            id
        };
        Lease { id, common }
    }

    /// Returns what is to be left alone of what is read from now on.
    pub(crate) fn spared(&self) -> Spared {
        let leased = self.0.common.leased.lock();
        Spared {
            leased: leased.clone(),
            // Relaxed: leases are given under the lock.
            next_id: self.0.common.next_id.load(Ordering::Relaxed),
        }
    }

    /// Returns an id that no collection has had since the store was opened, nor has now.
    pub(crate) fn new_id(&self) -> u64 {
        // Relaxed: the ids differ, and that is all.
        self.0.common.next_id.fetch_add(1, Ordering::Relaxed)
    }
}
