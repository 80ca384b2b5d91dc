//! The only source of atomics, locks, threads, shared words and the clock.
//!
//! Every other crate takes its synchronisation from here, so that one `--cfg` in `RUSTFLAGS`
//! replaces the real implementation by a model checker or an instrument:
//!
//! | cfg             | what atomics, locks and threads are                                    |
//! |-----------------|------------------------------------------------------------------------|
//! | none            | `std`                                                                  |
//! | `pando_loom`    | loom: every interleaving and every value the memory model allows       |
//! | `pando_shuttle` | shuttle: random schedules, sequentially consistent                     |
//! | `pando_audit`   | `std`, and every access is reported to the cache-line model of `audit` |
//!
//! Reading order: [`atomic`], [`lock`], [`rank`], [`thread`], [`waiting`], [`marked_count`],
//! [`queue`], [`gate`], [`stamp_lock`], [`held`], [`words`], [`core_local`], `rseq` (the number of
//! the processor, additions without a lock prefix), [`core_words`], [`audit`], [`time`],
//! `background_priority` (background threads let others run first), `free_memory` (what the
//! allocator keeps).

#![cfg_attr(
    test,
    expect(
        clippy::cast_possible_truncation,
        reason = "tests count in small numbers"
    )
)]

pub mod atomic;
pub mod audit;
mod background_priority;
pub mod core_local;
pub mod core_words;
#[cfg(all(test, not(any(pando_loom, pando_shuttle, pando_audit))))]
mod core_words_tests;
mod free_memory;
pub mod gate;
pub mod held;
pub mod lock;
pub mod marked_count;
pub mod queue;
pub mod rank;
mod rseq;
pub mod stamp_lock;
pub mod thread;
pub mod time;
pub mod waiting;
pub mod words;

pub use background_priority::BackgroundPriority;
pub use core_local::{CachePadded, CoreLocal, core_count, core_id};
pub use core_words::{Addition, CoreWords};
pub use free_memory::give_back_free_memory;
pub use gate::Gate;
pub use lock::{Arc, Condvar, Mutex, MutexGuard, RwLock, WakerArc};
pub use marked_count::MarkedCount;
pub use queue::SignalQueue;
pub use rank::Rank;
pub use stamp_lock::StampLock;
/// A value that is set once. No model of loom or shuttle sees it.
pub use std::sync::OnceLock;
pub use waiting::{SequenceWaiters, WaitList, Woken, park, thread_waker, wake};
pub use words::WordArena;
