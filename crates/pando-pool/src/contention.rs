//! Counts how often changes of a page had to give way to each other, so that the page can be cut
//! between them.
//!
//! After Alhomssi and Leis (Contention and Space Management in B-Trees, CIDR 2021): a page that
//! many writers want at the same time, for different entries, is split between these entries,
//! whether it is full or not. Only a writer that has met another writer updates the count, under
//! the exclusive latch, so pages without contention pay nothing.
//!
//! ```text
//! bits 0..8   contended changes of this window
//! bits 8..20  entry of the first one, modulo 4,096
//! bits 20..32 version of the page then, in exclusive releases, modulo 4,096
//! ```

use pando_format::cast::low_u32;

/// Number of contended changes in one window at which the page is cut.
const CHANGES_MAX: u32 = 32;
/// Length of a window, in changes of all kinds: a page is cut if at least one change in 32 is
/// contended.
const WINDOW: u32 = 1024;
const MASK: u32 = 0xFFF;

/// The contended changes of a page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Contention(pub(crate) u32);

impl Contention {
    /// Counts a contended change of `entry` at `version`. Returns the entry before which the page
    /// should be cut, if it should.
    pub(crate) fn count(self, entry: usize, version: u64) -> (Self, Option<usize>) {
        let (entry, now) = (low_u32(entry as u64) & MASK, low_u32(version / 2) & MASK);
        let (count, first, begun) = (self.0 & 0xFF, self.0 >> 8 & MASK, self.0 >> 20);
        if count == 0 || now.wrapping_sub(begun) & MASK >= WINDOW {
            return (Self(1 | entry << 8 | now << 20), None);
        }
        if count + 1 < CHANGES_MAX {
            return (Self(self.0 + 1), None);
        }
        // If all changes are of one entry, no cut separates them.
        let cut = (entry != first).then_some(entry.max(first) as usize);
        (Self::default(), cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts contended changes of the given entries, each `apart` changes after the previous one.
    /// Returns the cuts that result.
    fn cuts(entries: impl Iterator<Item = usize>, apart: u64) -> Vec<usize> {
        let mut contention = Contention::default();
        let mut cuts = Vec::new();
        for (entry, at) in entries.zip(1_u64..) {
            let cut;
            (contention, cut) = contention.count(entry, 2 * apart * at);
            cuts.extend(cut);
        }
        cuts
    }

    #[test]
    fn a_page_is_cut_between_entries_that_are_changed_at_the_same_time() {
        assert_eq!(cuts([3, 9].into_iter().cycle().take(32), 1), [9]);
        assert_eq!(cuts([9, 3].into_iter().cycle().take(32), 30), [9]);
        assert_eq!(cuts([3, 9].into_iter().cycle().take(31), 1), []);
    }

    #[test]
    fn one_entry_alone_is_no_reason() {
        assert_eq!(cuts(std::iter::repeat_n(7, 1000), 1), []);
    }

    #[test]
    fn contention_that_is_rare_is_forgotten() {
        assert_eq!(cuts([3, 9].into_iter().cycle().take(1000), 40), []);
    }
}
