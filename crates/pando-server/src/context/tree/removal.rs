//! Elements that are removed from a large list wherever they are.
//!
//! A walk over the list (`list_walk.rs`) gathers what is to be written: the rows that change.
//! Nothing is written before it has ended, and then all of it, with the head, as one change of the
//! list. Neighbours are joined as those of a part that was loaded (`blocks.rs`). If little is left
//! of the list, that is gathered as well, as the list may be packed again.

use super::block_cut::{Cut, are_small, block_row, short_ones};
use super::list_end::ListEnd;
use super::list_row::RowOf;
use crate::context::interrupted::{Interrupted, Run};
use crate::data::keyspace::RowError;
use crate::data::list_block::Elements;
use crate::data::packed::Strings;
use crate::data::tree_head::TreeHead;

/// Bytes that a string takes in memory besides its own.
const SPAN_BYTES: usize = 8;

/// Rows that follow each other, and the elements that they are to have together.
#[derive(Debug, Default)]
struct Section {
    /// The positions of the rows.
    positions: Vec<Vec<u8>>,
    /// The row itself, if it is one and has not changed. Empty if that was not read.
    row: Vec<u8>,
    /// What is left of the elements, as far as somebody has asked for them.
    elements: Option<Strings>,
    has_changed: bool,
}

impl Section {
    fn elements(&mut self) -> Result<&Strings, RowError> {
        if self.elements.is_none() {
            let mut strings = Strings::default();
            if !self.row.is_empty() {
                let mut elements = Elements::of(&self.row)?;
                while let Some(element) = elements.next()? {
                    strings.push(element);
                }
            }
            self.elements = Some(strings);
        }
        Ok(self.elements.get_or_insert_default())
    }

    /// Returns true if the next row is to share its block, as [`are_small`].
    fn takes(&mut self, next: &mut Self) -> Result<bool, RowError> {
        if !self.has_changed && !next.has_changed {
            return Ok(false);
        }
        let (own, others) = (self.elements()?, next.elements()?);
        Ok(are_small(
            short_ones(own, (0..own.len()).rev()),
            short_ones(others, 0..others.len()),
        ))
    }

    fn append(&mut self, mut next: Self) -> Result<(), RowError> {
        self.elements()?;
        let others = next.elements()?;
        let own = self.elements.get_or_insert_default();
        others.iter().for_each(|element| own.push(element));
        self.positions.append(&mut next.positions);
        self.has_changed = true;
        Ok(())
    }
}

/// Rows at an end of the list that go.
#[derive(Debug, Default)]
pub(super) struct Gone {
    count: u64,
    /// The position of the innermost one.
    inner: Vec<u8>,
}

impl Gone {
    /// Adds rows, of which the one at `inner` is the innermost.
    pub(super) fn add(&mut self, count: u64, inner: &[u8]) {
        self.count += count;
        self.inner.clear();
        self.inner.extend_from_slice(inner);
    }

    /// Has the head of the list follow rows that go at `end`; `was_dense`: all rows of the list had
    /// numbers.
    pub(super) fn narrow(&self, end: ListEnd, head: &mut TreeHead, was_dense: bool) {
        if self.count == 0 {
            return;
        }
        match end {
            _ if head.is_blocks => head.narrow(end, &self.inner),
            ListEnd::Head => head.low += u64::from(was_dense) * self.count,
            ListEnd::Tail => head.high -= u64::from(was_dense) * self.count,
        }
    }
}

/// What is removed from a list, and what is to be written for it.
#[derive(Debug)]
pub(crate) struct Removal {
    head: TreeHead,
    /// Matches before this place stay.
    from: usize,
    /// Number of matches that are still to go.
    left: usize,
    /// Place of the first element of the next row.
    passed: usize,
    removed: usize,
    /// Positions of rows, each with what the row gets; nothing: it goes.
    edits: Strings,
    /// What the last rows become, if no other is joined to them.
    last: Option<Section>,
    /// A row that stays was passed.
    has_kept: bool,
    /// Rows that go, before all that stay, and behind them.
    gone: [Gone; 2],
    begins_at_head: bool,
    is_at_end: bool,
    /// What is left of the list so far, unless that is more than so many bytes.
    rest: Option<Strings>,
    rest_bytes_max: usize,
}

impl Removal {
    /// Begins at the place `passed` of the list with this head: up to `most` matches go, but for
    /// those before the place `from`. What is left may be told if it has no more than about so many
    /// bytes.
    pub(super) fn new(
        head: TreeHead,
        passed: usize,
        (from, most): (usize, usize),
        rest_bytes_max: usize,
    ) -> Self {
        Self {
            head,
            from,
            left: most,
            passed,
            removed: 0,
            edits: Strings::default(),
            last: None,
            has_kept: false,
            gone: Default::default(),
            begins_at_head: passed == 0,
            is_at_end: false,
            rest: (passed == 0 && most > 0).then(Strings::default),
            rest_bytes_max,
        }
    }

    /// Returns the number of elements that go.
    pub(super) fn removed(&self) -> usize {
        self.removed
    }

    /// Returns what is to be written: positions of rows, each with what the row gets; nothing: it
    /// goes.
    pub(super) fn edits(&self) -> &Strings {
        &self.edits
    }

    /// Returns all that is left of the list, if it is little.
    pub(super) fn rest(&self) -> Option<&Strings> {
        self.rest.as_ref()
    }

    pub(super) fn bytes_of(strings: &Strings) -> usize {
        strings.bytes() + strings.len() * SPAN_BYTES
    }

    pub(super) fn bytes(&self) -> usize {
        Self::bytes_of(&self.edits) + self.rest.as_ref().map_or(0, Self::bytes_of)
    }

    /// Returns true if a long element of so many bytes belongs to what is left.
    pub(super) fn keeps_rest(&self, bytes: usize) -> bool {
        let rest = self.rest.as_ref();
        rest.is_some_and(|rest| rest.bytes() + bytes <= self.rest_bytes_max)
    }

    /// Passes a row. Returns true if no other one is needed.
    pub(super) fn pass(
        &mut self,
        position: &[u8],
        row: &RowOf<'_>,
        element: &[u8],
    ) -> Result<bool, Interrupted> {
        let mut gone = match self.left {
            0 => Vec::new(),
            _ => row.matches(element)?,
        };
        let before = self.passed;
        self.passed += row.count();
        gone.retain(|offset| before + offset >= self.from);
        gone.truncate(self.left);
        self.left -= gone.len();
        self.removed += gone.len();
        let mut next = Section {
            positions: vec![position.to_vec()],
            has_changed: !gone.is_empty(),
            ..Section::default()
        };
        self.read(row, &gone, &mut next)?;
        let mut last = self.last.take();
        if self.head.is_blocks
            && let Some(last) = &mut last
            && last.takes(&mut next)?
        {
            last.append(next)?;
        } else {
            if let Some(last) = last {
                self.close(last)?;
            }
            last = Some(next);
        }
        self.last = last;
        let awaits_neighbour = self.last.as_ref().is_some_and(|last| last.has_changed);
        Ok(self.left == 0 && self.rest.is_none() && !awaits_neighbour)
    }

    /// Gives `next` what is left of a row, and adds that to what is left of the list.
    fn read(&mut self, row: &RowOf<'_>, gone: &[usize], next: &mut Section) -> Run {
        let RowOf::Read(whole, elements) = row else {
            self.rest = None;
            return Ok(());
        };
        if gone.is_empty() && self.rest.is_none() {
            next.row.extend_from_slice(whole);
            return Ok(());
        }
        let (mut left, mut place) = (Strings::default(), 0);
        let mut elements = elements.clone();
        while let Some(element) = elements.next()? {
            if gone.binary_search(&place).is_err() {
                left.push(element);
            }
            place += 1;
        }
        if let Some(rest) = &mut self.rest {
            left.iter().for_each(|element| rest.push(element));
            if Self::bytes_of(rest) > self.rest_bytes_max {
                self.rest = None;
            }
        }
        next.elements = Some(left);
        Ok(())
    }

    /// Notes what is to be written of rows to which no other is joined.
    fn close(&mut self, mut section: Section) -> Result<(), RowError> {
        if !section.has_changed {
            self.keep();
            return Ok(());
        }
        section.elements()?;
        let Section {
            positions,
            elements,
            ..
        } = &section;
        let elements = elements.as_ref().ok_or(RowError::Damaged)?;
        let blocks = Cut::even(elements, 0..elements.len());
        // What is left of blocks fits into as many. If not, something would be lost.
        if blocks.len() > positions.len() {
            return Err(RowError::Damaged);
        }
        let mut row = Vec::new();
        for (number, position) in positions.iter().enumerate() {
            row.clear();
            if let Some(places) = blocks.get(number) {
                block_row((elements, places.clone()), &mut row);
            }
            self.edits.push(position);
            self.edits.push(&row);
        }
        if elements.len() > 0 {
            self.keep();
            return Ok(());
        }
        let count = positions.len() as u64;
        let (first, last) = (positions.first(), positions.last());
        if let (Some(first), Some(last)) = (first, last) {
            let [before, behind] = &mut self.gone;
            if !self.has_kept && self.begins_at_head {
                before.add(count, last);
            }
            if behind.count == 0 {
                behind.inner.clone_from(first);
            }
            behind.count += count;
        }
        Ok(())
    }

    /// Notes that a row stays.
    fn keep(&mut self) {
        self.has_kept = true;
        self.gone[1] = Gone::default();
    }

    /// Ends it behind the last row that was needed. Returns the number of elements that were
    /// passed.
    pub(super) fn end(&mut self, is_at_end: bool) -> Result<usize, RowError> {
        self.is_at_end = is_at_end;
        if let Some(last) = self.last.take() {
            self.close(last)?;
        }
        Ok(self.passed)
    }

    /// Has the head follow what goes.
    pub(super) fn lower(&self, head: &mut TreeHead) -> Run {
        let [before, behind] = &self.gone;
        let was_dense = head.is_dense();
        let removed = self.removed as u64;
        head.count = head.count.checked_sub(removed).ok_or(Interrupted::Torn)?;
        before.narrow(ListEnd::Head, head, was_dense);
        if self.is_at_end {
            behind.narrow(ListEnd::Tail, head, was_dense);
        }
        Ok(())
    }
}
