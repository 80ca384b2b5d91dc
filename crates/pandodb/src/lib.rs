//! A transactional, ordered key-value engine for data larger than memory.
//!
//! A [`Db`] is a directory with named [`Table`]s, which map byte keys to byte values in the order
//! of the keys. Reads of data in memory write nothing that another core reads. Writes are batches:
//! a batch is one record of the log, so after a crash either all of it is there or nothing of it,
//! and an acknowledged batch is there (see [`Durability`]).
//!
//! ```
//! # fn main() -> Result<(), pandodb::Error> {
//! # let directory = tempfile::tempdir().map_err(|_| pandodb::Error::Closed)?;
//! # let path = directory.path();
//! let db = pandodb::Db::open(path)?;
//! let fruit = db.table("fruit")?;
//! fruit.put(b"apple", b"red")?;
//! fruit.put(b"banana", b"yellow")?;
//! assert_eq!(fruit.get(b"apple")?.as_deref(), Some(&b"red"[..]));
//! for entry in fruit.range(&b"b"[..]..) {
//!     let (key, value) = entry?;
//!     assert_eq!((&key[..], &value[..]), (&b"banana"[..], &b"yellow"[..]));
//! }
//! db.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Visibility
//!
//! A commit is applied before it is durable; its acknowledgement waits for durability, and so do
//! reads of a durable store that have found it (see [`Builder::durable_reads`]). Point reads are
//! linearizable: a read of a leaf that a batch is being applied to waits until the batch is
//! applied, so whoever has seen one write of a batch sees the others from then on. Iterators return
//! committed entries, each as of some moment during the iteration, and may so show a batch in part;
//! a [`Snapshot`] shows all tables as of one moment. A [`Transaction`] reads such a moment, too,
//! and by default commits only if what it has read is still so ([`Isolation`]).
//!
//! # Three ways to call
//!
//! Methods of [`Db`], [`Table`], [`Snapshot`] and [`Transaction`] block until pages are read and
//! commits are durable. Those that end with `_async` are futures, for any executor: see
//! [`futures`]. An event loop that is its own executor uses the types of [`nonblocking`], whose
//! calls return at once.
//!
//! # Limits
//!
//! Keys are at most a quarter of a page ([`Db::key_bytes_max`]), and values [`VALUE_BYTES_MAX`].
//! Values that are longer than the log buffer takes ([`Db::plain_bytes_max`]) are stored in chunks.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap,
        reason = "tests count in small numbers"
    )
)]

mod api;
mod background;
mod blobs;
mod changes;
mod checkpoint;
mod commit;
mod compact;
mod dump;
mod engine;
mod error;
mod event_loop;
mod figures;
mod files;
pub mod futures;
mod io_backend;
mod kept;
mod load;
mod locks;
mod memory_share;
pub mod nonblocking;
mod options;
mod pages;
mod profile;
mod read;
mod recovery;
mod recovery_progress;
mod salvage;
mod space;
mod state;
#[cfg(test)]
mod statistics_tests;
mod streams;
mod tables;
mod transaction;
mod verify;
mod wait;
mod writes;

pub use api::batch::Batch;
pub use api::db::Db;
pub use api::iter::{Entry, Iter};
pub use api::prefetch::FetchedLeaves;
pub use api::snapshot::Snapshot;
pub use api::table::Table;
pub use api::table_options::TableOptions;
pub use blobs::value::LargeValue;
pub use commit::outcome::Outcome;
pub use compact::{CompactPhase, CompactProgress, CompactReport};
pub use dump::{DumpFile, DumpProgress, DumpReport, DumpedTable, load_dump};
pub use error::{ConflictKind, Error, Result};
pub use figures::memory::MemoryReport;
pub use figures::occupancy::Occupancy;
pub use figures::report::Report;
pub use figures::snapshots::SnapshotStat;
pub use io_backend::IoBackend;
pub use load::Loader;
pub use memory_share::MemoryShare;
pub use options::{
    Builder, Durability, LOG_BYTES_MAX, MAX_MEMORY_DEFAULT, MAX_MEMORY_MIN, VALUE_BYTES_MAX,
    WriteOptions,
};
pub use profile::{CommitStep, Profile, Spent, Wait, profiled};
pub use recovery_progress::RecoveryProgress;
pub use salvage::{LostRange, SalvageReport, SalvagedTable, salvage};
pub use state::checkpoint_progress::CheckpointProgress;
pub use streams::stream::ValueStream;
pub use streams::writer::ValueWriter;
pub use transaction::handle::{Savepoint, Transaction};
pub use transaction::iter::TransactionIter;
pub use transaction::options::{Isolation, TransactionOptions};
pub use verify::run::{VerifyReport, stat, verify};
pub use verify::stat::{StoreStat, StoredStat, TableStat};
pub use verify::tree_stat::{FILL_STEPS, LevelStat};
pub use verify::walk::Damage;

pub use pando_device as device;
pub use pando_format::weight::{WEIGHT_MAX, weight_byte};
pub use pando_format::{Compression, Lsn};
pub use pando_stats as statistics;
