//! The memory of all clients together, and its bound: `maxmemory-clients`.
//!
//! What one client can make the server hold is bounded (`connection/state.rs`): some megabytes of a
//! reply, a queue of MULTI, a command that has arrived in part. A thousand of them that do not read
//! are gigabytes. So each loop counts what its connections hold, at the end of each of their turns,
//! as a script thread does at the end of its command: in steps, so that those that hold little,
//! which is nearly all, write nothing that others read. Beyond half of the bound connections read
//! less at once, and stop executing at fewer unsent replies. Beyond the bound those are closed that
//! hold most (`Shared::evict`).
//!
//! Not counted is what has a bound of its own: messages that wait, watches, tracked keys, and what
//! transactions of PANDO BEGIN hold.

use pando_sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// What clients hold is counted in whole steps of so many bytes.
const STEP_BYTES: u64 = 64 << 10;
/// A client that is not counted any more.
const LEFT_OUT: u64 = u64::MAX;
/// A share of the memory is at least that much: some clients may each have a large reply.
const SHARE_BYTES_MIN: u64 = 256 << 20;
/// The share at first, in percent.
const SHARE_AT_START: i64 = 100;
/// Unsent reply bytes at which a connection stops executing while much memory is taken.
const UNSENT_BYTES_MAX: usize = 64 << 10;

/// What one client holds, in bytes.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Memory of its buffers, its command and its queue of MULTI, as of its last turn.
    bytes: AtomicU64,
    /// What of that is counted among what all clients hold.
    counted: AtomicU64,
}

impl Held {
    /// Returns the bytes that it holds.
    pub(crate) fn bytes(&self) -> u64 {
        // Relaxed: a report.
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes that are counted; 0 if it is not counted any more.
    pub(crate) fn counted(&self) -> u64 {
        // Relaxed: others may change it at any time.
        match self.counted.load(Ordering::Relaxed) {
            LEFT_OUT => 0,
            bytes => bytes,
        }
    }
}

/// What all clients hold, and may hold. Relaxed throughout: sums, and a limit of its own.
#[derive(Debug)]
pub(crate) struct ClientMemory {
    /// The sum of what is counted; for a moment it may be too little, or below zero.
    used: AtomicI64,
    /// The bound as it was set: bytes, percent of the memory budget if negative, 0 for none.
    bound: AtomicI64,
    /// The memory budget; 0 before the store is open.
    budget: AtomicU64,
    /// The bound in bytes, for those two.
    bytes_max: AtomicI64,
    /// Number of clients that were closed for it.
    evicted: AtomicU64,
}

impl Default for ClientMemory {
    fn default() -> Self {
        let memory = Self {
            used: AtomicI64::new(0),
            bound: AtomicI64::new(-SHARE_AT_START),
            budget: AtomicU64::new(0),
            bytes_max: AtomicI64::new(0),
            evicted: AtomicU64::new(0),
        };
        memory.set_bytes_max();
        memory
    }
}

impl ClientMemory {
    /// Returns the bound as it was set.
    pub(crate) fn bound(&self) -> i64 {
        self.bound.load(Ordering::Relaxed)
    }

    /// Sets the bound: bytes, percent of the memory budget if negative, or 0 for none.
    pub(crate) fn set_bound(&self, bound: i64) {
        self.bound.store(bound, Ordering::Relaxed);
        self.set_bytes_max();
    }

    /// Tells the memory budget, in bytes.
    pub(crate) fn set_budget(&self, bytes: u64) {
        self.budget.store(bytes, Ordering::Relaxed);
        self.set_bytes_max();
    }

    fn set_bytes_max(&self) {
        let budget = self.budget.load(Ordering::Relaxed);
        let bytes = match self.bound() {
            0 => i64::MAX,
            percent @ ..0 => {
                let share = u128::from(budget) * u128::from(percent.unsigned_abs()) / 100;
                let share = share.max(SHARE_BYTES_MIN.into());
                i64::try_from(share).unwrap_or(i64::MAX)
            }
            bytes => bytes,
        };
        self.bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// Returns the number of clients that were closed.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Returns by how much the bound is exceeded, in bytes; 0 if it is not.
    pub(crate) fn excess(&self) -> u64 {
        let used = self.used.load(Ordering::Relaxed);
        let excess = used.saturating_sub(self.bytes_max.load(Ordering::Relaxed));
        u64::try_from(excess).unwrap_or(0)
    }

    /// Returns the unsent reply bytes at which a connection stops executing, of which there are
    /// `most` while little memory is taken.
    #[inline]
    pub(crate) fn output_bytes_max(&self, most: usize) -> usize {
        match self.is_short() {
            true => most.min(UNSENT_BYTES_MAX),
            false => most,
        }
    }

    /// Returns true if more than half of what clients may hold is taken.
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        let bytes_max = self.bytes_max.load(Ordering::Relaxed);
        self.used.load(Ordering::Relaxed) > bytes_max / 2
    }

    /// Counts that the client holds `bytes` now; called only by its loop, or by the thread that has
    /// its connection. Returns true if that is more than before, and all clients hold more than
    /// they may: then the caller has clients closed.
    #[inline]
    #[must_use = "clients are to be closed"]
    pub(crate) fn count(&self, client: &Held, bytes: usize) -> bool {
        let bytes = bytes as u64;
        client.bytes.store(bytes, Ordering::Relaxed);
        let counted = bytes / STEP_BYTES * STEP_BYTES;
        let before = client.counted.load(Ordering::Relaxed);
        counted != before && self.change(client, before, counted)
    }

    #[cold]
    fn change(&self, client: &Held, before: u64, counted: u64) -> bool {
        let change = || {
            let order = Ordering::Relaxed;
            (client.counted).compare_exchange(before, counted, order, order)
        };
        // The exchange fails if the client is left out at this moment.
        if before == LEFT_OUT || change().is_err() {
            return false;
        }
        self.used.fetch_add(
            counted.wrapping_sub(before).cast_signed(),
            Ordering::Relaxed,
        );
        counted > before && self.excess() > 0
    }

    /// Counts a client that was closed since all hold too much.
    pub(crate) fn count_evicted(&self) {
        self.evicted.fetch_add(1, Ordering::Relaxed);
    }

    /// Leaves a client out, which has gone or is about to.
    pub(crate) fn leave_out(&self, client: &Held) {
        let before = client.counted.swap(LEFT_OUT, Ordering::Relaxed);
        if before != LEFT_OUT {
            self.used.fetch_sub(before.cast_signed(), Ordering::Relaxed);
        }
    }
}
