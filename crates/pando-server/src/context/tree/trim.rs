//! Elements at an end of a large list that go, however many they are: their rows are not decoded,
//! and what lies beside its leaf is not read.

use super::block_cut::block_row;
use super::list_end::ListEnd;
use super::list_row::RowOf;
use super::removal::Gone;
use crate::context::interrupted::Interrupted;
use crate::data::packed::Strings;

/// What goes at an end of a list, as far as it was walked over.
#[derive(Debug)]
pub(crate) struct Trim {
    end: ListEnd,
    /// Number of elements that are still to go.
    left: usize,
    /// Number of elements of the rows so far.
    passed: usize,
    /// Positions of rows, each with what the row gets; nothing: it goes.
    edits: Strings,
    gone: Gone,
}

impl Trim {
    pub(super) fn new(end: ListEnd, count: usize) -> Self {
        Self {
            end,
            left: count,
            passed: 0,
            edits: Strings::default(),
            gone: Gone::default(),
        }
    }

    pub(super) fn passed(&self) -> usize {
        self.passed
    }

    pub(super) fn edits(&self) -> &Strings {
        &self.edits
    }

    /// Returns the rows that go whole.
    pub(super) fn gone(&self) -> &Gone {
        &self.gone
    }

    /// Passes a row. Returns true if no other one is needed.
    pub(super) fn pass(&mut self, position: &[u8], row: &RowOf<'_>) -> Result<bool, Interrupted> {
        let count = row.count();
        self.passed += count;
        self.edits.push(position);
        if count <= self.left {
            self.edits.push(b"");
            self.gone.add(1, position);
            self.left -= count;
            return Ok(self.left == 0);
        }
        let RowOf::Read(_, elements) = row else {
            return Err(Interrupted::Torn);
        };
        let kept = match self.end {
            ListEnd::Head => self.left..count,
            ListEnd::Tail => 0..count - self.left,
        };
        let (mut elements, mut strings) = (elements.clone(), Strings::default());
        while let Some(element) = elements.next()? {
            strings.push(element);
        }
        let mut cut = Vec::new();
        block_row((&strings, kept), &mut cut);
        self.edits.push(&cut);
        self.left = 0;
        Ok(true)
    }
}
