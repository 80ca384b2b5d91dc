//! The engine through its public API, compared with naive twins.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "tests count in small numbers"
)]
#![cfg(not(any(pando_loom, pando_shuttle)))]
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod at_once;
mod basics;
mod chunks;
mod compact;
mod compression;
mod concurrency;
mod counted;
mod crowds;
mod damage;
mod data_size;
mod delete_range;
mod devices;
mod dropped;
mod dump_files;
mod dumps;
mod durable_reads;
mod ended_transactions;
mod ends;
mod exits;
mod fixture;
mod forged;
mod freed_pages;
mod freed_room;
mod freeing;
mod futures;
mod golden;
mod handles;
mod hermitage;
mod joined_reads;
mod limits;
mod load;
mod lock_ends;
mod lock_mix;
mod locks;
mod log_size;
mod long_batches;
mod many;
mod mapping;
mod merges;
mod mixed_files;
mod moved_chunks;
mod nonblocking;
mod other_stores;
mod poisoned;
mod profile;
mod progress;
mod queue;
mod read_only;
mod read_places;
mod reads;
mod restart;
mod salvage;
mod scan_resistance;
mod seals;
mod second_look;
mod serial;
mod settled;
mod settled_transactions;
mod settling;
mod snapshots;
mod steps;
mod stored;
mod swaps;
mod tables;
mod task_reads;
mod tasks;
mod thousand;
mod thread_ends;
mod transaction_memory;
mod transactions;
mod twin;
mod unread;
mod value_parts;
