//! Keys of rows that are looked for together, before commands read them one after the other.

use pandodb::nonblocking::ValidatedBatch;

/// Maximum number of them.
pub(super) const ROWS_MAX: usize = ValidatedBatch::FORESEEN_MAX;

/// Stored keys of rows.
#[derive(Default)]
pub(crate) struct ForeseenRows {
    /// One behind the other.
    pub(crate) bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Memory for one of them.
    pub(crate) one: Vec<u8>,
}

impl ForeseenRows {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Ends the key that was appended to `bytes`.
    pub(crate) fn end_one(&mut self) {
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn are_full(&self) -> bool {
        self.ends.len() == ROWS_MAX
    }

    /// Has `look` look for them, unless there is only one.
    pub(crate) fn give(&self, look: impl FnOnce(&[&[u8]])) {
        if self.ends.len() < 2 {
            return;
        }
        let mut keys: [&[u8]; ROWS_MAX] = [&[]; ROWS_MAX];
        let mut start = 0;
        for (key, end) in keys.iter_mut().zip(&self.ends) {
            *key = &self.bytes[start..*end];
            start = *end;
        }
        look(&keys[..self.ends.len()]);
    }
}
