//! What a part of a store takes of its memory budget.

/// A part of the memory budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryShare {
    /// What it may take.
    pub budget_bytes: u64,
    /// What it has taken.
    pub used_bytes: u64,
}

impl MemoryShare {
    /// All of it is taken from the beginning.
    pub(crate) fn full(bytes: u64) -> Self {
        Self {
            budget_bytes: bytes,
            used_bytes: bytes,
        }
    }
}
