//! What is free and what of it is promised: the numbers that all cores share, on lines of their
//! own (decision 015).
//!
//! `available` = free blocks - credits. A promise lowers it and an allocation on that promise does
//! not touch it, so that what was promised can be allocated whatever others do. It is lowered
//! before bits are taken and raised after bits are given back: the bits have always at least as
//! many ones as `available` + credits says.

use pando_sync::CachePadded;
use pando_sync::atomic::{AtomicU64, Ordering};

/// Whether a promise may use the reserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Urgency {
    /// Stops at the reserve: puts.
    #[default]
    Normal,
    /// May use the reserve: deletes, and the engine's own needs.
    Urgent,
}

#[derive(Debug)]
struct Numbers {
    available: AtomicU64,
    credits: AtomicU64,
    reserve: AtomicU64,
    /// Frees so far: what a fruitless search has seen is true until this changes.
    frees: AtomicU64,
}

/// The tallies of a space. All accesses are relaxed: each number stands for itself, and the bits
/// are published by the locks of their groups.
#[derive(Debug)]
pub(crate) struct Ledger(CachePadded<Numbers>);

impl Ledger {
    pub(crate) fn new(available: u64, reserve: u64) -> Self {
        let ledger = Self(CachePadded(Numbers {
            available: AtomicU64::new(available),
            credits: AtomicU64::new(0),
            reserve: AtomicU64::new(reserve),
            frees: AtomicU64::new(0),
        }));
        pando_sync::audit::name("space ledger", &ledger.0);
        ledger
    }

    pub(crate) fn available(&self) -> u64 {
        self.0.available.load(Ordering::Relaxed)
    }

    pub(crate) fn credits(&self) -> u64 {
        self.0.credits.load(Ordering::Relaxed)
    }

    pub(crate) fn reserve(&self) -> u64 {
        self.0.reserve.load(Ordering::Relaxed)
    }

    pub(crate) fn set_reserve(&self, blocks: u64) {
        self.0.reserve.store(blocks, Ordering::Relaxed);
    }

    pub(crate) fn frees(&self) -> u64 {
        self.0.frees.load(Ordering::Relaxed)
    }

    /// Takes blocks out of what is available, down to `floor`.
    pub(crate) fn withdraw(&self, blocks: u64, floor: u64) -> bool {
        self.0
            .available
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |available| {
                available
                    .checked_sub(blocks)
                    .filter(|rest| *rest >= floor || blocks == 0)
            })
            .is_ok()
    }

    pub(crate) fn deposit(&self, blocks: u64) {
        self.0.available.fetch_add(blocks, Ordering::Relaxed);
    }

    /// Blocks were freed.
    pub(crate) fn freed(&self, blocks: u64) {
        self.0.frees.fetch_add(1, Ordering::Relaxed);
        self.deposit(blocks);
    }

    pub(crate) fn promise(&self, blocks: u64, urgency: Urgency) -> bool {
        let floor = match urgency {
            Urgency::Normal => self.reserve(),
            Urgency::Urgent => 0,
        };
        let granted = self.withdraw(blocks, floor);
        if granted {
            self.0.credits.fetch_add(blocks, Ordering::Relaxed);
        }
        granted
    }

    /// Credits that were used up, or are about to be given back.
    pub(crate) fn use_credits(&self, blocks: u64) {
        let before = self.0.credits.fetch_sub(blocks, Ordering::Relaxed);
        assert!(
            before >= blocks,
            "{blocks} blocks are used or released of {before} that were promised"
        );
    }

    pub(crate) fn release(&self, blocks: u64) {
        self.use_credits(blocks);
        self.deposit(blocks);
    }
}
