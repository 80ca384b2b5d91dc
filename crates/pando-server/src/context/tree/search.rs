//! Where an element is in a large list.

use super::list_row::RowOf;
use crate::context::interrupted::Interrupted;
use crate::data::packed::Strings;

/// Bytes of a place in memory, and at least of the reply that shows it.
const PLACE_BYTES: usize = size_of::<usize>();

/// Which of the elements that are equal to one are looked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sought<'s> {
    pub(crate) element: &'s [u8],
    /// From the last one on.
    pub(crate) is_backwards: bool,
    /// Number of matches that are passed over.
    pub(crate) skipped: usize,
    /// So many matches are enough.
    pub(crate) most: usize,
    /// Number of elements that are compared.
    pub(crate) compared: usize,
}

impl<'s> Sought<'s> {
    /// The first one.
    pub(crate) fn first(element: &'s [u8]) -> Self {
        Self {
            element,
            is_backwards: false,
            skipped: 0,
            most: 1,
            compared: usize::MAX,
        }
    }
}

/// Where an element lies.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spot {
    /// Its place in the list.
    pub(crate) place: usize,
    /// The place of the first element of its row.
    pub(in crate::context) first: usize,
    /// The position of its row.
    pub(in crate::context) position: Vec<u8>,
    /// It has a row of its own.
    is_alone: bool,
    /// The place of the first element of the row before, and its position, if there is one and the
    /// search has come from there.
    before: Option<(usize, Vec<u8>)>,
}

impl Spot {
    /// Returns what has to be loaded to put something beside the element in a list of blocks of so
    /// many elements: the place of the first element, the position of its row, and the number of
    /// elements. What is put beside a long element shares the block of its other neighbour.
    pub(super) fn part(&self, is_behind: bool, length: usize) -> (usize, &[u8], usize) {
        match (self.is_alone, is_behind, &self.before) {
            (true, false, Some((first, position))) => (*first, position, self.place - first + 1),
            (true, true, _) => (self.first, &self.position, 2.min(length - self.first)),
            _ => (self.first, &self.position, 1),
        }
    }

    /// Returns where it is among strings that were loaded from the place `first` on, if it is there
    /// still: others may have changed its block since it was found.
    pub(crate) fn place_among(
        &self,
        first: usize,
        strings: &Strings,
        element: &[u8],
    ) -> Result<usize, Interrupted> {
        let place = self.place.checked_sub(first);
        let is_it = |place: &usize| *place < strings.len() && strings.at(*place) == element;
        place.filter(is_it).ok_or(Interrupted::Torn)
    }
}

/// The places of elements that are equal to one.
#[derive(Debug)]
pub(crate) struct Search {
    /// Number of elements of the list.
    length: usize,
    is_backwards: bool,
    /// Numbers of matches that are passed over, and that are missing.
    skipped: usize,
    left: usize,
    /// Number of elements that are compared.
    compared: usize,
    /// Number of elements of the rows so far.
    passed: usize,
    /// Number of matches so far, with those that were passed over.
    seen: usize,
    /// In the order in which they were found.
    places: Vec<usize>,
    /// Where the last one is.
    last: Option<Spot>,
    /// The place of the first element of the row that was passed last, and its position.
    row: Option<(usize, Vec<u8>)>,
}

impl Search {
    pub(super) fn new(sought: &Sought<'_>, length: usize) -> Self {
        Self {
            length,
            is_backwards: sought.is_backwards,
            skipped: sought.skipped,
            left: sought.most,
            compared: sought.compared,
            passed: 0,
            seen: 0,
            places: Vec::new(),
            last: None,
            row: None,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.places.len() * PLACE_BYTES
    }

    pub(super) fn passed(&self) -> usize {
        self.passed
    }

    /// Passes a row. Returns true if no other one is needed.
    pub(super) fn pass(
        &mut self,
        position: &[u8],
        row: &RowOf<'_>,
        element: &[u8],
    ) -> Result<bool, Interrupted> {
        let (count, mut matches) = (row.count(), row.matches(element)?);
        let before = self.passed;
        self.passed += count;
        if self.passed > self.length {
            return Err(Interrupted::Torn);
        }
        let first = match self.is_backwards {
            false => before,
            true => self.length - self.passed,
        };
        if self.is_backwards {
            matches.reverse();
        }
        for offset in matches {
            let distance = match self.is_backwards {
                false => before + offset,
                true => before + count - 1 - offset,
            };
            if distance >= self.compared {
                break;
            }
            self.seen += 1;
            if self.skipped > 0 {
                self.skipped -= 1;
                continue;
            }
            let place = first + offset;
            self.places.push(place);
            self.left -= 1;
            let last = self.last.get_or_insert_default();
            (last.place, last.first, last.is_alone) = (place, first, count == 1);
            last.position.clear();
            last.position.extend_from_slice(position);
            if self.left == 0 {
                last.before = self.row.take().filter(|_| !self.is_backwards);
                return Ok(true);
            }
        }
        let (last, of) = self.row.get_or_insert_default();
        *last = first;
        of.clear();
        of.extend_from_slice(position);
        Ok(self.passed >= self.compared)
    }

    /// Returns the number of matches, with those that were passed over.
    pub(super) fn seen(&self) -> usize {
        self.seen
    }

    /// Returns where the last match is.
    pub(super) fn last(&self) -> Option<&Spot> {
        self.last.as_ref()
    }

    /// Returns the places, in the order in which they were found.
    pub(super) fn places(&self) -> &[usize] {
        &self.places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_looked_for_where_it_was() {
        let mut strings = Strings::default();
        [b"a", b"b"].iter().for_each(|of| strings.push(*of));
        let place = |place: usize, element: &[u8]| {
            let spot = Spot {
                place,
                ..Spot::default()
            };
            spot.place_among(7, &strings, element)
        };
        assert!(matches!(place(7, b"a"), Ok(0)));
        assert!(matches!(place(8, b"b"), Ok(1)));
        // Its block is shorter, or has others; the list begins elsewhere.
        for (at, element) in [(9, b"b"), (7, b"b"), (6, b"a")] {
            assert!(matches!(place(at, element), Err(Interrupted::Torn)));
        }
    }
}
