//! The engines: a file each, a line each in [`ENGINES`].

#[cfg(feature = "berkeleydb")]
mod berkeleydb;
#[cfg(feature = "bf-tree")]
mod bf_tree;
#[cfg(feature = "fjall")]
mod fjall;
mod kind;
#[cfg(feature = "lmdb")]
mod lmdb;
mod pandodb;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "rocksdb")]
mod rocksdb_transactions;
#[cfg(any(feature = "berkeleydb", feature = "wiredtiger"))]
mod table;
#[cfg(feature = "wiredtiger")]
mod wiredtiger;

pub use kind::{ENGINES, EngineKind};
