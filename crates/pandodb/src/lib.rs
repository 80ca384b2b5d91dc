//! A transactional, ordered key-value engine for data larger than memory.
//!
//! A [`Db`] is a directory with named [`Table`]s of byte keys and byte values, in the order of the
//! keys. Reads of what is in memory write nothing that another core reads. Writes are batches: a
//! batch is in the log as one record, so after a crash all of it is there or nothing, and an
//! acknowledged one is there (see [`Durability`]).
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
//! A commit may be read before it is durable; only its acknowledgement waits. Point reads are
//! linearizable. Nobody sees a batch in part, key by key: a read of a leaf that a batch is being
//! applied to waits for its end. Iterators return committed entries, each as of some moment during
//! the iteration: they are no snapshot.
//!
//! # Limits
//!
//! Keys are at most a quarter of a page ([`Db::key_bytes_max`]), values at most
//! [`VALUE_BYTES_MAX`] or what the log buffer takes ([`Db::value_bytes_max`]).

#![forbid(unsafe_code)]

mod aside;
mod batch;
mod batch_pages;
mod blocked;
mod checkpoint;
mod checkpoint_checks;
mod checkpoint_progress;
mod chunks;
mod commit;
mod compact;
mod data_sync;
mod db;
mod delete_room;
mod discards;
mod engine;
mod error;
mod failures;
mod fetcher;
pub mod futures;
mod garbage;
mod halt;
mod io_backend;
mod iter;
mod jobs;
mod kept_rows;
mod layout;
mod leaf_checks;
mod leaf_holds;
mod lending;
mod load;
mod maintenance;
mod many;
mod mapping_files;
mod memory;
pub mod nonblocking;
mod occupancy;
mod open;
mod options;
mod profile;
mod promises;
mod reactor;
mod read_ahead;
mod read_bounds;
mod read_context;
mod read_group;
mod read_log;
mod reads;
mod recovery_progress;
mod replay;
mod report;
mod salvage;
mod second_look;
mod space_keeper;
mod spending;
#[cfg(test)]
mod statistics_tests;
mod store;
mod stripes;
mod structure;
mod table;
mod table_counts;
mod tables;
mod tree_stat;
mod verify;
mod verify_chunks;
mod write_buffers;
mod write_set;
mod writeback;

pub use batch::{Batch, WriteOptions};
pub use checkpoint_progress::CheckpointProgress;
pub use chunks::{LargeValue, ValueStream, ValueWriter};
pub use commit::Outcome;
pub use compact::{CompactPhase, CompactProgress, CompactReport};
pub use db::Db;
pub use error::{Error, Result};
pub use io_backend::IoBackend;
pub use iter::{Entry, Iter};
pub use load::Loader;
pub use memory::{MemoryReport, MemoryShare};
pub use occupancy::Occupancy;
pub use options::{Builder, Durability, MAX_MEMORY_DEFAULT, MAX_MEMORY_MIN, VALUE_BYTES_MAX};
pub use profile::{CommitStep, Profile, Spent, Wait, profiled};
pub use recovery_progress::RecoveryProgress;
pub use report::{Report, StoreStat, StoredStat, TableStat};
pub use salvage::{LostRange, SalvageReport, SalvagedTable, salvage};
pub use table::Table;
pub use tree_stat::{FILL_STEPS, LevelStat};
pub use verify::{Damage, VerifyReport, stat, verify};

pub use pando_device as device;
pub use pando_format::{Compression, Lsn};
pub use pando_stats as statistics;
