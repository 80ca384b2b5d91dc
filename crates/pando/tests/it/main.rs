//! The binary as people and scripts use it: exit codes, reports, signals and files.

#![cfg(not(any(pando_loom, pando_shuttle)))]
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod compact;
mod crowd;
mod dump;
mod export;
mod import;
mod import_long;
mod log;
mod redis_conf;
mod running;
mod salvage;
mod store_dump;
mod terminal;
mod tools;
mod top;
mod usage;
