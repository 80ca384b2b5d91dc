//! The ledger: the numbers of free and reserved blocks that all cores share, on cache lines of
//! their own (decision 015).
//!
//! `available` = free blocks - reserved. A reservation lowers it, and an allocation on that
//! reservation does not change it, so that reserved blocks can be allocated whatever others do. It
//! is lowered before bits are taken and raised after bits are given back, so the bitmap always has
//! at least `available` + reserved ones.

use pando_sync::CachePadded;
use pando_sync::atomic::{AtomicU64, Ordering};

/// Tells whether a reservation may use the delete reserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Urgency {
    /// Stops at the delete reserve. For puts.
    #[default]
    Normal,
    /// May use the delete reserve. For deletes, and the engine's own needs.
    Urgent,
}

#[derive(Debug)]
struct Numbers {
    /// Free blocks that are neither reserved nor in magazines.
    available: AtomicU64,
    /// Blocks that are reserved and not yet allocated.
    reserved: AtomicU64,
    /// Blocks that only urgent reservations may use.
    delete_reserve: AtomicU64,
    /// Number of frees so far: the result of a search that found nothing stays true until this
    /// changes.
    frees: AtomicU64,
}

/// The numbers of a space. All accesses are relaxed: each number is independent, and the locks of
/// the groups publish the bits.
#[derive(Debug)]
pub(crate) struct Ledger(CachePadded<Numbers>);

impl Ledger {
    /// Starts with `available` free blocks, of which `delete_reserve` are for urgent reservations
    /// only, and with none reserved.
    pub(crate) fn new(available: u64, delete_reserve: u64) -> Self {
        let ledger = Self(CachePadded(Numbers {
            available: AtomicU64::new(available),
            reserved: AtomicU64::new(0),
            delete_reserve: AtomicU64::new(delete_reserve),
            frees: AtomicU64::new(0),
        }));
        pando_sync::audit::name("space ledger", &ledger.0);
        ledger
    }

    /// Number of free blocks that are neither reserved nor in magazines.
    pub(crate) fn available(&self) -> u64 {
        self.0.available.load(Ordering::Relaxed)
    }

    /// Number of blocks that are reserved and not allocated yet.
    pub(crate) fn reserved(&self) -> u64 {
        self.0.reserved.load(Ordering::Relaxed)
    }

    /// Number of blocks that only urgent reservations may use.
    pub(crate) fn delete_reserve(&self) -> u64 {
        self.0.delete_reserve.load(Ordering::Relaxed)
    }

    /// Sets the number of blocks that only urgent reservations may use; takes none back.
    pub(crate) fn set_delete_reserve(&self, blocks: u64) {
        self.0.delete_reserve.store(blocks, Ordering::Relaxed);
    }

    /// Number of frees so far. While it stays the same, a search that found nothing would again.
    pub(crate) fn frees(&self) -> u64 {
        self.0.frees.load(Ordering::Relaxed)
    }

    /// Takes `blocks` out of the available blocks. Returns false if fewer than `floor` would be
    /// left.
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

    /// Makes `blocks` blocks available, which are free in the bitmap already.
    pub(crate) fn deposit(&self, blocks: u64) {
        self.0.available.fetch_add(blocks, Ordering::Relaxed);
    }

    /// Counts a free of `blocks` blocks.
    pub(crate) fn freed(&self, blocks: u64) {
        self.0.frees.fetch_add(1, Ordering::Relaxed);
        self.deposit(blocks);
    }

    /// Reserves `blocks` blocks. Returns false, and changes nothing, if too few are available.
    pub(crate) fn reserve(&self, blocks: u64, urgency: Urgency) -> bool {
        let floor = match urgency {
            Urgency::Normal => self.delete_reserve(),
            Urgency::Urgent => 0,
        };
        let granted = self.withdraw(blocks, floor);
        if granted {
            self.0.reserved.fetch_add(blocks, Ordering::Relaxed);
        }
        granted
    }

    /// Lowers the reserved blocks, for a reservation that was used or is about to be released.
    pub(crate) fn use_reserved(&self, blocks: u64) {
        let before = self.0.reserved.fetch_sub(blocks, Ordering::Relaxed);
        assert!(
            before >= blocks,
            "{blocks} blocks are used or released of {before} that were reserved"
        );
    }

    /// Makes reserved blocks, which were not allocated, available again.
    pub(crate) fn release(&self, blocks: u64) {
        self.use_reserved(blocks);
        self.deposit(blocks);
    }
}
