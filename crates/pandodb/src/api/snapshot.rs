//! Snapshots: one moment of a store, to read from.

use std::cell::RefCell;

use pando_format::Lsn;
use pando_sync::{Arc, thread};
use pando_tree::Tree;
use pando_versions::Registration;

use crate::api::db::Db;
use crate::api::table::Table;
use crate::engine::{Engine, Shared};
use crate::error::{Error, Result};
use crate::kept::cuts::YoungList;
use crate::kept::settled::Settled;
use crate::kept::young::Young;
use crate::read::at::ReadAt;
use crate::read::buffers::{KEPT_BYTES_MAX, lend};
use crate::wait::reason::{Step, WaitReason};

/// How often a snapshot that begins looks whether the batches before it are applied, until it gets
/// ready to sleep: most are within a few microseconds, and to sleep and be woken takes 50.
const APPLY_SPINS: u32 = if cfg!(any(pando_loom, pando_shuttle)) {
    1
} else {
    128
};

thread_local! {
    /// Working memory of reads at snapshots of this thread.
    static WORK: RefCell<ReadAt> = RefCell::default();
}

/// The state of a store after all commits up to [`Snapshot::lsn`], whatever is committed since.
/// Clones are handles of the same snapshot, which ends with the last of them; iterators count. It
/// may be used by several threads at once, and keeps the store open.
///
/// While a snapshot of [`Db::snapshot`] is young, each commit keeps in memory what it replaces, if
/// the snapshot still reads it, and dropped tables and replaced long values keep their space on
/// disk. The memory is a 32nd of `max_memory`. When half of it is taken, or after a minute
/// ([`crate::Builder::settle_snapshots_after`]), the snapshot goes on on disk, as one of
/// [`Db::snapshot_settled`] does from its beginning. If that is not possible, and commits need the
/// memory, or if a transaction is committed that needs more than all of it, it ends: its reads
/// return [`Error::SnapshotEnded`] from then on, and never anything wrong.
///
/// ```
/// # fn main() -> Result<(), pandodb::Error> {
/// let db = pandodb::Db::builder().open_in_memory()?;
/// let accounts = db.table("accounts")?;
/// accounts.put(b"alice", b"10")?;
/// let snapshot = db.snapshot()?;
/// accounts.put(b"alice", b"0")?;
/// accounts.put(b"bob", b"10")?;
/// assert_eq!(snapshot.get(&accounts, b"alice")?.as_deref(), Some(&b"10"[..]));
/// assert_eq!(snapshot.iter(&accounts).count(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Snapshot {
    // Ends before the rows of the garbage table are told.
    moment: Moment,
    db: RowsAwait,
}

/// What keeps the state that a snapshot reads. Its clones share it.
#[derive(Debug, Clone)]
enum Moment {
    /// The pages of the store, and old versions in memory, until it is settled; and the list that
    /// it is in.
    Young(Arc<Young>, Arc<YoungList>),
    /// A checkpoint that is kept.
    Settled(Arc<Settled>),
}

impl Moment {
    fn lsn(&self) -> Lsn {
        match self {
            Self::Young(young, _) => young.lsn(),
            Self::Settled(settled) => settled.lsn(),
        }
    }

    /// What it reads on disk, if it is settled.
    fn settled(&self) -> Option<Arc<Settled>> {
        match self {
            Self::Young(young, _) if !young.registration().is_ended() => None,
            Self::Young(young, _) => young.settled(),
            Self::Settled(settled) => Some(settled.clone()),
        }
    }

    /// True if it can be read no longer.
    fn is_ended(&self) -> bool {
        match self {
            Self::Young(young, _) if !young.registration().is_ended() => false,
            _ => self.settled().is_none_or(|settled| settled.is_ended()),
        }
    }
}

impl Clone for Snapshot {
    fn clone(&self) -> Self {
        if let Moment::Young(young, _) = &self.moment {
            young.add_handle();
        }
        Self {
            moment: self.moment.clone(),
            db: RowsAwait(self.db().clone()),
        }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if let Moment::Young(young, list) = &self.moment
            && young.remove_handle()
            && self.db().engine().store.check_process().is_ok()
        {
            list.remove(young);
        }
    }
}

/// A handle of the store, which has rows of the garbage table looked at on drop: they may have
/// waited for the snapshot.
#[derive(Debug)]
struct RowsAwait(Db);

impl Drop for RowsAwait {
    fn drop(&mut self) {
        let registry = &self.0.engine().store.registry;
        if registry.keeps_rows() {
            registry.want();
        }
    }
}

impl Db {
    /// Begins a snapshot: everything that was committed before this call is in it. Blocks until
    /// batches that are being applied at this moment are applied.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Poisoned`]; [`Error::Full`] if there is no memory for what
    /// commits replace.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.begin_and_wait(false)
    }

    /// As [`Db::snapshot`], for a transaction: it is settled only when old versions have no room,
    /// since the commit needs them to know exactly what it conflicts with.
    pub(crate) fn snapshot_of_transaction(&self) -> Result<Snapshot> {
        self.begin_and_wait(true)
    }

    fn begin_and_wait(&self, is_of_transaction: bool) -> Result<Snapshot> {
        let snapshot = self.begin_young(is_of_transaction)?;
        let engine = self.engine();
        if engine.check_applied(snapshot.lsn()).is_err() {
            engine.block(|_| engine.check_applied(snapshot.lsn()))?;
        }
        Ok(snapshot)
    }

    /// Begins the snapshot of a transaction, which may be read once all batches up to its LSN are
    /// applied. Closes the apply gate for a moment if there was no snapshot for a while.
    ///
    /// # Errors
    /// As [`Db::snapshot`].
    pub(crate) fn begin_snapshot(&self) -> Result<Snapshot> {
        self.begin_young(true)
    }

    fn begin_young(&self, is_of_transaction: bool) -> Result<Snapshot> {
        let engine = self.engine();
        engine.store.check_process()?;
        if engine.store.life.is_closing() {
            return Err(Error::Closed);
        }
        let snapshots = &engine.old_versions.snapshots;
        let beginning = snapshots.begin(engine.log.reserved_end());
        // It is registered, so the mode is not turned off from here on. It may still look off for a
        // moment, while the maintenance thread finds out that it is needed.
        if !snapshots.is_on() {
            engine.turn_snapshots_on()?;
        }
        let registration = beginning.at(engine.log.reserved_end());
        let young = Arc::new(Young::new(registration, is_of_transaction));
        let list = engine.kept.young_here();
        list.add(&young);
        Ok(Snapshot::new(self, Moment::Young(young, list)))
    }

    /// Begins a snapshot that takes room on disk and next to none in memory, however long it is
    /// open: for reports and copies of a whole store. Everything that was committed before this
    /// call is in it. Blocks for a checkpoint.
    ///
    /// Commits save nothing for it. What they replace stays on disk until it ends, at most
    /// as much as the store had when it began. Its reads have a cache of their own, which is small:
    /// what it reads twice it may read from disk twice.
    ///
    /// When the disk is full, the oldest settled snapshot is ended to make room, unless
    /// [`crate::Builder::keep_settled_snapshots`] asks for writes to be refused: its reads return
    /// [`Error::SnapshotEnded`] from then on. It ends with the process; nothing of it is left after
    /// a restart.
    ///
    /// In a store that was opened for reading only ([`crate::Builder::open_read_only`]) this is
    /// [`Db::snapshot`].
    ///
    /// ```
    /// # fn main() -> Result<(), pandodb::Error> {
    /// let db = pandodb::Db::builder().open_in_memory()?;
    /// let orders = db.table("orders")?;
    /// orders.put(b"1", b"open")?;
    /// let report = db.snapshot_settled()?;
    /// orders.put(b"1", b"paid")?;
    /// assert_eq!(report.get(&orders, b"1")?.as_deref(), Some(&b"open"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Full`] if there is no room on disk for the mapping of its pages, or if there are 16
    /// of them or as many as a 64th of `max_memory` has room for; [`Error::Closed`];
    /// [`Error::Poisoned`].
    pub fn snapshot_settled(&self) -> Result<Snapshot> {
        let engine = self.engine();
        engine.store.check_process()?;
        if engine.options.read_only {
            // Nothing is replaced, so it takes no memory either.
            return self.snapshot();
        }
        let kept = engine.next_checkpoint_kept()?;
        let settled = Arc::new(Settled::at_checkpoint(kept));
        Ok(Snapshot::new(self, Moment::Settled(settled)))
    }
}

impl Engine {
    /// Checks that all batches up to `lsn` are applied, or are within a few microseconds.
    pub(crate) fn check_applied(&self, lsn: Lsn) -> Step<()> {
        for _ in 0..APPLY_SPINS {
            if self.log.applied() >= lsn {
                return Ok(());
            }
            thread::spin_loop();
        }
        Err(WaitReason::Applied(lsn).into())
    }
}

impl Snapshot {
    fn new(db: &Db, moment: Moment) -> Self {
        let db = RowsAwait(db.clone());
        Self { moment, db }
    }

    /// The LSN that it reads at: it shows the commits up to this one.
    pub fn lsn(&self) -> Lsn {
        self.moment.lsn()
    }

    /// Whether it is on disk: one of [`Db::snapshot_settled`], or one of [`Db::snapshot`] that has
    /// become old or was in the way of commits.
    pub fn is_settled(&self) -> bool {
        self.settled().is_some()
    }

    /// The store that it is of.
    pub fn db(&self) -> &Db {
        &self.db.0
    }

    /// Returns the table that was called `name` at this moment, even if it has been dropped since.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], [`Error::SnapshotEnded`].
    pub fn table(&self, name: &str) -> Result<Table> {
        let tables = &self.db().engine().store.tables;
        let found = tables.get_at(name, self.lsn());
        if self.moment.is_ended() {
            return Err(Error::SnapshotEnded);
        }
        match found {
            Some(state) => Ok(Table {
                db: self.db().clone(),
                state,
            }),
            None => Err(Error::NoSuchTable {
                name: name.to_owned(),
            }),
        }
    }

    /// Returns the names of the tables that there are at this moment, sorted.
    ///
    /// # Errors
    /// [`Error::SnapshotEnded`].
    pub fn tables(&self) -> Result<Vec<String>> {
        let names = self.db().engine().store.tables.names_at(self.lsn());
        match self.moment.is_ended() {
            true => Err(Error::SnapshotEnded),
            false => Ok(names),
        }
    }

    /// Returns the tree that `table` has at this moment.
    pub(crate) fn tree_of(&self, table: &Table) -> Result<Tree> {
        let tree = self
            .engine_of(table)?
            .store
            .tables
            .tree_at(&table.state, self.lsn());
        match tree {
            _ if self.moment.is_ended() => Err(Error::SnapshotEnded),
            Some(tree) => Ok(tree),
            None => Err(Error::NoSuchTable {
                name: table.state.name.to_string(),
            }),
        }
    }

    /// What it reads in memory, unless it was settled from its beginning.
    pub(crate) fn young(&self) -> Option<&Young> {
        match &self.moment {
            Moment::Young(young, _) => Some(young),
            Moment::Settled(_) => None,
        }
    }

    /// What it reads on disk, if it is settled. A read in memory that finds the snapshot ended asks
    /// this, and begins again if there is something.
    pub(crate) fn settled(&self) -> Option<Arc<Settled>> {
        self.moment.settled()
    }

    /// Its registration.
    ///
    /// # Panics
    /// If it was settled from its beginning.
    pub(crate) fn registration(&self) -> &Registration {
        match &self.moment {
            Moment::Young(young, _) => young.registration(),
            Moment::Settled(_) => unreachable!("a settled snapshot is not registered"),
        }
    }

    /// Returns what it reads in memory; it was begun by a transaction.
    ///
    /// # Panics
    /// If it was settled from the beginning.
    pub(crate) fn of_transaction(&self) -> &Arc<Young> {
        match &self.moment {
            Moment::Young(young, _) => young,
            Moment::Settled(_) => unreachable!("transactions begin with a snapshot in memory"),
        }
    }

    /// Returns whether it can be read no longer.
    pub(crate) fn is_ended(&self) -> bool {
        self.moment.is_ended()
    }

    /// Returns another registration of the same moment, which has no handle of the store; None if
    /// it is settled.
    ///
    /// # Errors
    /// [`Error::SnapshotEnded`].
    pub(crate) fn register_again(&self) -> Result<Option<Registration>> {
        let Some(young) = self.young() else {
            return Ok(None);
        };
        let lsn = self.lsn();
        let snapshots = &self.db().engine().old_versions.snapshots;
        let again = snapshots.begin(lsn).at(lsn);
        // If it has not ended by now, nothing of its moment was freed before the other registered.
        if !young.registration().is_ended() {
            return Ok(Some(again));
        }
        match young.is_settled() {
            true => Ok(None),
            false => Err(Error::SnapshotEnded),
        }
    }

    /// Returns the engine of `table`, which is that of the snapshot.
    pub(crate) fn engine_of<'t>(&self, table: &'t Table) -> Result<&'t Shared> {
        let engine = table.db.engine();
        match Arc::ptr_eq(engine, self.db().engine()) {
            true => Ok(engine),
            false => Err(Error::OtherStore),
        }
    }

    /// Reads `key` of `table` into `out`, which is cleared first; returns true if the key exists at
    /// this moment. Blocks for pages that are not in memory, and until what it has found is durable
    /// ([`crate::Builder::durable_reads`]).
    ///
    /// # Errors
    /// [`Error::SnapshotEnded`]; [`Error::NoSuchTable`] for a table that did not exist;
    /// [`Error::OtherStore`]; [`Error::CorruptPage`] for a damaged page.
    pub fn get_into(&self, table: &Table, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let engine = self.engine_of(table)?;
        if let Some(young) = self.young() {
            let registration = young.registration();
            if let Some(found) = engine.read_cached_at(registration, &table.state, key, out) {
                return Ok(found);
            }
            let found = lend(&WORK, |work| match work {
                Some(work) => {
                    let found = engine.read_at(registration, &table.state, key, work, out);
                    work.shorten(KEPT_BYTES_MAX);
                    found
                }
                // This call is nested in the closure of another one, or the thread ends.
                None => {
                    let mut work = ReadAt::default();
                    engine.read_at(registration, &table.state, key, &mut work, out)
                }
            });
            if !matches!(found, Err(Error::SnapshotEnded)) {
                return found;
            }
        }
        let settled = self.settled().ok_or(Error::SnapshotEnded)?;
        let found = settled.get(self.tree_of(table)?, key, out)?;
        engine.count_get();
        Ok(found)
    }

    /// Returns the value that `key` of `table` has at this moment, if it exists.
    ///
    /// # Errors
    /// As [`Snapshot::get_into`].
    pub fn get(&self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(table, key, &mut value)?.then_some(value))
    }

    /// True if `key` of `table` exists at this moment.
    ///
    /// # Errors
    /// As [`Snapshot::get_into`].
    pub fn contains(&self, table: &Table, key: &[u8]) -> Result<bool> {
        self.get_into(table, key, &mut Vec::new())
    }
}
