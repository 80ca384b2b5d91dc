//! The unsafe part of peers: a safe interface to engines that have none.
//!
//! `table` (Berkeley DB and WiredTiger, each behind a table of C functions of its shim), `lmdb`
//! (opens the memory map). Knows no workload and measures nothing.

#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(any(feature = "berkeleydb", feature = "wiredtiger"))]
mod table;

#[cfg(feature = "lmdb")]
pub use lmdb::{LmdbConfig, open_lmdb};
#[cfg(feature = "berkeleydb")]
pub use table::open_berkeleydb;
#[cfg(feature = "wiredtiger")]
pub use table::open_wiredtiger;
#[cfg(any(feature = "berkeleydb", feature = "wiredtiger"))]
pub use table::{Config, Error, Store, Worker};
