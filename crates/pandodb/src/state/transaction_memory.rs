//! Memory of open transactions: what they have written, locked and read. Each counts its own, in
//! steps; those of a few keys write nothing that others read.

use pando_sync::Arc;
use pando_sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::memory_share::MemoryShare;

/// A transaction that takes less than this is not counted.
const UNCOUNTED_BYTES: u64 = 4 << 10;
/// What a transaction takes is counted in steps of this many bytes.
const STEP_BYTES: u64 = 16 << 10;

/// The memory of all open transactions.
#[derive(Debug)]
pub(crate) struct TransactionMemory {
    used: AtomicU64,
    /// Bytes that a transaction leaves to the others.
    bytes_max: u64,
}

impl TransactionMemory {
    /// Returns the memory of no transactions: none goes on growing while others take more than
    /// `bytes_max` bytes.
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            used: AtomicU64::new(0),
            bytes_max,
        }
    }

    /// Returns what is taken, and what may be.
    pub(crate) fn share(&self) -> MemoryShare {
        MemoryShare {
            budget_bytes: self.bytes_max,
            used_bytes: self.used.load(Ordering::Relaxed),
        }
    }
}

/// What one transaction takes of it; given back on drop.
#[derive(Debug, Default)]
pub(crate) struct CountedMemory {
    /// None while it is not counted.
    of: Option<Arc<TransactionMemory>>,
    bytes: u64,
}

impl CountedMemory {
    /// Counts that the transaction takes `bytes` bytes of `of`, or is about to.
    ///
    /// # Errors
    /// [`Error::Full`] if others take too much; then nothing has changed.
    #[inline]
    pub(crate) fn count(&mut self, of: &Arc<TransactionMemory>, bytes: usize) -> Result<()> {
        match bytes as u64 <= self.bytes.max(UNCOUNTED_BYTES) {
            true => Ok(()),
            false => self.grow(of, bytes as u64),
        }
    }

    #[cold]
    fn grow(&mut self, of: &Arc<TransactionMemory>, bytes: u64) -> Result<()> {
        let of = self.of.get_or_insert_with(|| of.clone());
        let bytes = bytes.next_multiple_of(STEP_BYTES);
        let more = bytes - self.bytes;
        // Relaxed: a figure, which guards nothing.
        let used = of.used.fetch_add(more, Ordering::Relaxed);
        assert!(used >= self.bytes, "what the transaction takes is counted");
        let others = used - self.bytes;
        if others > of.bytes_max {
            of.used.fetch_sub(more, Ordering::Relaxed);
            let what = format!(
                "other open transactions take {others} bytes of memory, more than the {} that they \
                 may: end some, or open the store with a larger max_memory",
                of.bytes_max
            );
            return Err(Error::Full { what });
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for CountedMemory {
    fn drop(&mut self) {
        if let Some(of) = &self.of {
            let used = of.used.fetch_sub(self.bytes, Ordering::Relaxed);
            assert!(used >= self.bytes, "memory is given back once");
        }
    }
}
