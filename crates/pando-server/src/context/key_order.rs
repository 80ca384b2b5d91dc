//! How far a command that reads its keys in the order of their rows has come (`ordered_reads.rs`).

/// The keys of the running command, and how many were read.
#[derive(Debug)]
pub(crate) struct KeyOrder {
    /// Their numbers, in the order of their rows.
    pub(super) order: Vec<u32>,
    pub(super) done: usize,
}

impl KeyOrder {
    /// Returns true if some of them are still to be read.
    pub(crate) fn goes_on(&self) -> bool {
        self.done < self.order.len()
    }
}
