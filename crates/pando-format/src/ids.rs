//! Stored identifiers, as newtypes, so that a page is never confused with a block.

use std::fmt;

use crate::{VERSION_BASE, VERSION_COUNTED, VERSION_WEIGHTED};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $inner:ty, $label:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($label, " {}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($label, " {}"), self.0)
            }
        }
    };
}

id!(
    /// Id of a page for its whole life: a dense number, reused after the page is freed.
    PageId, u32, "page"
);
/// Id of a B+tree. Never reused in the life of a store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TreeId(pub u32);

impl fmt::Display for TreeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match (self.is_weighted(), self.is_counted()) {
            (true, _) => "weighted ",
            (_, true) => "counted ",
            _ => "",
        };
        write!(f, "{kind}tree {}", self.number())
    }
}

impl fmt::Debug for TreeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

id!(
    /// A frame of the pool. Exists only in memory, also in the hint half of child words there.
    FrameIndex, u32, "frame"
);
id!(
    /// Log position right after the record of a batch, and also the commit timestamp. 0 means
    /// "before everything".
    Lsn, u64, "LSN"
);
id!(
    /// The generation of the checkpoint that will close it: pages changed between two checkpoints
    /// share an epoch. Continues across restarts; 0 is never current.
    Epoch, u64, "epoch"
);

impl Lsn {
    /// No position of a log is as large: 32 PiB will never have been written. A larger one on disk
    /// is damage. Sums of positions and lengths below it never overflow, and stamps of keys hold
    /// them.
    pub const LIMIT: Self = Self(1 << 55);
}

impl Epoch {
    /// No store has had as many checkpoints; a larger number on disk is damage.
    pub const LIMIT: Self = Self(1 << 55);
}

impl TreeId {
    /// Bit of the id of a counted tree.
    const COUNTED: u32 = 1 << 31;
    /// Bit of the id of a weighted tree, which is counted, too.
    const WEIGHTED: u32 = 1 << 30;
    /// Number of the last id that is given out.
    pub const NUMBER_MAX: u32 = Self::WEIGHTED - 1;

    /// Returns the id of a counted tree with the number of this one: see `page`.
    #[must_use]
    pub fn counted(self) -> Self {
        Self(self.0 | Self::COUNTED)
    }

    /// Returns the id of a weighted tree with the number of this one: see [`crate::weight`].
    #[must_use]
    pub fn weighted(self) -> Self {
        Self(self.0 | Self::COUNTED | Self::WEIGHTED)
    }

    /// Returns whether the tree is counted: its inner entries tell how many records are below.
    #[inline]
    pub fn is_counted(self) -> bool {
        self.0 & Self::COUNTED != 0
    }

    /// Returns whether the tree is counted, and each record counts as often as its weight says.
    #[inline]
    pub fn is_weighted(self) -> bool {
        self.0 & (Self::COUNTED | Self::WEIGHTED) == Self::COUNTED | Self::WEIGHTED
    }

    /// Returns the first version of the format that has trees of this kind; None if no version that
    /// is known has any.
    pub fn version(self) -> Option<u32> {
        match (self.is_counted(), self.0 & Self::WEIGHTED != 0) {
            (false, false) => Some(VERSION_BASE),
            (true, false) => Some(VERSION_COUNTED),
            (true, true) => Some(VERSION_WEIGHTED),
            (false, true) => None,
        }
    }

    /// Returns its number, of which no other tree has the same, of whatever kind.
    pub fn number(self) -> u32 {
        self.0 & Self::NUMBER_MAX
    }
}

impl PageId {
    /// No page: the largest number is never assigned.
    pub const NONE: Self = Self(u32::MAX);

    /// Returns the number as an index.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl FrameIndex {
    /// Returns the number as an index.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_its_number_and_its_kind_in_its_id() {
        for number in [0, 1, 70_000, TreeId::NUMBER_MAX] {
            let plain = TreeId(number);
            let kinds = [plain, plain.counted(), plain.weighted()];
            assert_eq!(kinds.map(TreeId::number), [number; 3]);
            assert_eq!(kinds.map(TreeId::is_counted), [false, true, true]);
            assert_eq!(kinds.map(TreeId::is_weighted), [false, false, true]);
            assert_eq!(kinds.map(TreeId::version), [Some(1), Some(2), Some(3)]);
        }
        assert_eq!(TreeId(1 << 30 | 7).version(), None, "no version has it");
        assert!(!TreeId(1 << 30 | 7).is_weighted(), "what counts is counted");
        assert_eq!(TreeId(7).weighted().to_string(), "weighted tree 7");
    }
}
