//! Stored identifiers, as newtypes, so that a page is never confused with a block.

use std::fmt;

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
        let kind = if self.is_counted() { "counted " } else { "" };
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
    /// Number of the last id that is given out.
    pub const NUMBER_MAX: u32 = Self::COUNTED - 1;

    /// Returns the id of a counted tree with the number of this one: see `page`.
    #[must_use]
    pub fn counted(self) -> Self {
        Self(self.0 | Self::COUNTED)
    }

    /// Returns whether the tree is counted: its inner entries tell how many records are below.
    #[inline]
    pub fn is_counted(self) -> bool {
        self.0 & Self::COUNTED != 0
    }

    /// Returns its number, of which no other tree has the same, counted or not.
    pub fn number(self) -> u32 {
        self.0 & !Self::COUNTED
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
