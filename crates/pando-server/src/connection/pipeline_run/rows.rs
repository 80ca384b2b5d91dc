//! Keys of rows that are looked for together.

use pandodb::nonblocking::ValidatedBatch;

const ROWS_MAX: usize = ValidatedBatch::FORESEEN_MAX;

/// Keys of rows.
#[derive(Default)]
pub(super) struct Rows {
    /// One behind the other.
    pub(super) bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Memory for one of them.
    pub(super) one: Vec<u8>,
}

impl Rows {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Ends the key that was appended to `bytes`.
    pub(super) fn end_one(&mut self) {
        self.ends.push(self.bytes.len());
    }

    pub(super) fn are_full(&self) -> bool {
        self.ends.len() == ROWS_MAX
    }

    /// Has `look` look for them, unless there is only one.
    pub(super) fn give(&self, look: impl FnOnce(&[&[u8]])) {
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
