//! How much of its memory budget a part of a store uses.

/// A part of the memory budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryShare {
    /// Bytes that it may take.
    pub budget_bytes: u64,
    /// Bytes that it has taken.
    pub used_bytes: u64,
}

impl MemoryShare {
    /// Returns a share that takes all of its budget from the beginning.
    pub(crate) fn full(bytes: u64) -> Self {
        Self {
            budget_bytes: bytes,
            used_bytes: bytes,
        }
    }
}
