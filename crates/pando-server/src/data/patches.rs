//! Bytes that lie over those of a string in chunks (`data/piece_head.rs`), in memory.

use std::ops::Range;

/// Memory that a patch takes besides its bytes.
const PATCH_BYTES: usize = size_of::<(u64, usize)>();

/// Patches of one state of a string, by their places.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Patches {
    /// Where each begins in the string, and where its bytes end in `bytes`; ascending.
    list: Vec<(u64, usize)>,
    bytes: Vec<u8>,
}

impl Patches {
    /// Adds one behind all others.
    pub(crate) fn push(&mut self, place: u64, bytes: &[u8]) {
        assert!(self.end() <= place, "patches come in order");
        self.bytes.extend_from_slice(bytes);
        self.list.push((place, self.bytes.len()));
    }

    /// Returns the place behind the last one.
    fn end(&self) -> u64 {
        let last = self
            .list
            .len()
            .checked_sub(1)
            .and_then(|last| self.get(last));
        last.map_or(0, |(place, bytes)| place + bytes.len() as u64)
    }

    /// Number of patches.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns patch `index`: where it begins in the string, and its bytes.
    pub(crate) fn get(&self, index: usize) -> Option<(u64, &[u8])> {
        let (place, end) = *self.list.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.list[before].1);
        Some((place, &self.bytes[start..end]))
    }

    /// Returns all patches, in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &[u8])> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Returns true if one begins at `place`.
    pub(crate) fn begins_at(&self, place: u64) -> bool {
        self.list
            .binary_search_by_key(&place, |(start, _)| *start)
            .is_ok()
    }

    /// Returns the index of the first one that has a byte at `place` or behind it.
    pub(crate) fn first_from(&self, place: u64) -> usize {
        let behind = self.list.partition_point(|(start, _)| *start <= place);
        let covers = |index: &usize| {
            let patch = self.get(*index);
            patch.is_some_and(|(start, bytes)| place < start + bytes.len() as u64)
        };
        behind.checked_sub(1).filter(covers).unwrap_or(behind)
    }

    /// Returns those that have a byte in `range`.
    pub(crate) fn within(&self, range: &Range<u64>) -> Self {
        let mut some = Self::default();
        let overlap = |(place, bytes): &(u64, &[u8])| {
            *place < range.end && range.start < *place + bytes.len() as u64
        };
        for (place, bytes) in self.iter().filter(overlap) {
            some.push(place, bytes);
        }
        some
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity() + self.list.capacity() * PATCH_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn patches_are_found_by_place(
            sizes in prop::collection::vec((0..4_u64, 1..4_usize), 0..8),
            place in 0..40_u64,
        ) {
            let (mut patches, mut all, mut end) = (Patches::default(), Vec::new(), 0);
            for (number, (gap, size)) in (0..).zip(&sizes) {
                let bytes = vec![number; *size];
                patches.push(end + gap, &bytes);
                all.push((end + gap, bytes));
                end += gap + *size as u64;
            }
            let listed: Vec<_> = patches.iter().map(|(at, bytes)| (at, bytes.to_vec())).collect();
            prop_assert_eq!(&listed, &all);
            let first = all.iter().position(|(at, bytes)| place < at + bytes.len() as u64);
            prop_assert_eq!(patches.first_from(place), first.unwrap_or(all.len()));
            let begins = all.iter().any(|(at, _)| *at == place);
            prop_assert_eq!(patches.begins_at(place), begins);
        }
    }
}
