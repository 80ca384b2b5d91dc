//! Atomics, from `std`, loom, shuttle or the coherence audit.

#[cfg(not(any(pando_loom, pando_shuttle, pando_audit)))]
pub use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

#[cfg(pando_loom)]
pub use loom::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

#[cfg(all(pando_shuttle, not(pando_loom)))]
pub use shuttle::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

#[cfg(all(pando_audit, not(any(pando_loom, pando_shuttle))))]
pub use crate::audit::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
