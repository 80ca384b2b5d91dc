//! Table of a longest common subsequence, which is filled in several runs of a command.
//!
//! Of each pair of beginnings only one bit is kept, in which direction the way back goes; lengths
//! are kept of one row. This is the way back that Redis takes, so of several longest subsequences
//! it is the same one.

/// Number of cells that are filled in one turn.
const CELLS_PER_TURN: usize = 4 << 20;

/// The table of two strings.
#[derive(Debug)]
pub(crate) struct Table {
    first: Vec<u8>,
    second: Vec<u8>,
    /// Lengths for the beginnings of `first` of `done` bytes, with each beginning of `second`.
    row: Vec<u32>,
    /// A bit for each pair of bytes: the way back drops the last byte of `first`. Row by row.
    drops_first: Vec<u64>,
    /// Number of bytes of `first` whose rows are filled.
    done: usize,
}

/// Bytes that both strings have, one behind the other: where they begin, and how many they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Match {
    pub(crate) first: usize,
    pub(crate) second: usize,
    pub(crate) length: usize,
}

impl Table {
    /// Returns the memory that it takes.
    pub(crate) fn memory(&self) -> usize {
        let strings = self.first.len() + self.second.len();
        strings + size_of_val(&self.row[..]) + size_of_val(&self.drops_first[..])
    }

    pub(crate) fn new(first: Vec<u8>, second: Vec<u8>) -> Self {
        let words = (first.len() * second.len()).div_ceil(64);
        Self {
            row: vec![0; second.len() + 1],
            drops_first: vec![0; words],
            done: 0,
            first,
            second,
        }
    }

    /// Returns true if it is the table of these strings.
    pub(crate) fn is_of(&self, first: &[u8], second: &[u8]) -> bool {
        self.first == first && self.second == second
    }

    /// Fills some rows. Returns true if all are filled.
    pub(crate) fn fill(&mut self) -> bool {
        let rows = (CELLS_PER_TURN / self.row.len()).max(1);
        let end = self.first.len().min(self.done + rows);
        while self.done < end {
            self.fill_row();
        }
        self.done == self.first.len()
    }

    fn fill_row(&mut self) {
        let byte = self.first[self.done];
        let start = self.done * self.second.len();
        let (mut left, mut diagonal) = (0, 0);
        for (column, other) in self.second.iter().enumerate() {
            let above = self.row[column + 1];
            let here = match () {
                () if byte == *other => diagonal + 1,
                () if above > left => {
                    let cell = start + column;
                    self.drops_first[cell / 64] |= 1 << (cell % 64);
                    above
                }
                () => left,
            };
            self.row[column + 1] = here;
            (left, diagonal) = (here, above);
        }
        self.done += 1;
    }

    /// Returns the length of the longest common subsequence of what was filled.
    pub(crate) fn length(&self) -> usize {
        self.row.last().map_or(0, |length| *length as usize)
    }

    /// Returns the bytes of matches of which the last one comes first.
    pub(crate) fn text(&self, matches: &[Match]) -> Vec<u8> {
        let in_order = matches.iter().rev();
        let bytes = in_order.map(|found| &self.first[found.first..found.first + found.length]);
        bytes.collect::<Vec<_>>().concat()
    }

    /// Returns the longest common subsequence in matches, the last one first.
    pub(crate) fn matches(&self) -> Vec<Match> {
        let (mut matches, mut i, mut j) =
            (Vec::<Match>::new(), self.first.len(), self.second.len());
        let mut goes_on = false;
        while i > 0 && j > 0 {
            if self.first[i - 1] == self.second[j - 1] {
                (i, j) = (i - 1, j - 1);
                match matches.last_mut().filter(|_| goes_on) {
                    Some(last) => {
                        (last.first, last.second) = (i, j);
                        last.length += 1;
                    }
                    None => matches.push(Match {
                        first: i,
                        second: j,
                        length: 1,
                    }),
                }
                goes_on = true;
                continue;
            }
            goes_on = false;
            let cell = (i - 1) * self.second.len() + j - 1;
            match self.drops_first[cell / 64] >> (cell % 64) & 1 {
                0 => j -= 1,
                _ => i -= 1,
            }
        }
        matches
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filled(first: &[u8], second: &[u8]) -> Table {
        let mut table = Table::new(first.to_vec(), second.to_vec());
        while !table.fill() {}
        table
    }

    /// The length, by its definition.
    fn length(first: &[u8], second: &[u8]) -> usize {
        match (first.split_last(), second.split_last()) {
            (Some((a, before)), Some((b, beginning))) if a == b => length(before, beginning) + 1,
            (Some((_, before)), Some((_, beginning))) => {
                length(before, second).max(length(first, beginning))
            }
            _ => 0,
        }
    }

    #[test]
    fn the_last_match_comes_first() {
        let table = filled(b"ohmytext", b"mynewtext");
        assert_eq!(table.length(), 6);
        let found = |first, second, length| Match {
            first,
            second,
            length,
        };
        assert_eq!(table.matches(), [found(4, 5, 4), found(2, 0, 2)]);
        assert_eq!(filled(b"", b"abc").matches(), []);
    }

    proptest! {
        #[test]
        fn matches_are_a_longest_subsequence(
            first in prop::collection::vec(0..3_u8, 0..9),
            second in prop::collection::vec(0..3_u8, 0..9),
        ) {
            let table = filled(&first, &second);
            prop_assert_eq!(table.length(), length(&first, &second));
            let matches = table.matches();
            let total: usize = matches.iter().map(|found| found.length).sum();
            prop_assert_eq!(total, table.length());
            let mut ends = (first.len(), second.len());
            for found in matches {
                let (a, b) = (found.first + found.length, found.second + found.length);
                prop_assert!(a <= ends.0 && b <= ends.1);
                prop_assert_eq!(&first[found.first..a], &second[found.second..b]);
                ends = (found.first, found.second);
            }
        }
    }
}
