//! A rank that its caller keeps for the next read.
//!
//! Who counts from the beginning of a range, or looks for the nth record behind it, needs the rank
//! of that beginning, and often comes again with the same one. Each change of a count changes the
//! root (`counted.rs`), so the rank holds as long as the root has the version at which it was
//! counted: a frame gets a new version when it gets another page, too.

use pando_format::PageId;
use pando_pool::Optimistic;

/// Longest key whose rank is kept, in bytes.
const KEY_BYTES_MAX: usize = 64;

/// The rank of one key in one tree of one pool. The caller does not use it with another pool, and
/// has one for each thread.
#[derive(Debug, Clone, Copy)]
pub struct KnownRank {
    seen: RootSeen,
    key: [u8; KEY_BYTES_MAX],
    /// Length of the key.
    len: usize,
    /// The number of records, or units, whose keys are smaller.
    below: u64,
}

/// A root as it was: equal ones have the same content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RootSeen {
    page: PageId,
    /// The frame; 0 for none.
    hint: u32,
    version: u64,
}

impl RootSeen {
    fn of(root: &Optimistic<'_>) -> Self {
        Self {
            page: root.page(),
            hint: root.hint(),
            version: root.version(),
        }
    }
}

impl KnownRank {
    /// Knows nothing.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            seen: RootSeen {
                page: PageId(0),
                hint: 0,
                version: 0,
            },
            key: [0; KEY_BYTES_MAX],
            len: 0,
            below: 0,
        }
    }

    /// Returns the rank of `key` in the tree of `root`, if it is known as of the version of that.
    #[inline]
    pub(crate) fn of(&self, root: &Optimistic<'_>, key: &[u8]) -> Option<u64> {
        let is_known = self.seen == RootSeen::of(root) && self.key.get(..self.len) == Some(key);
        is_known.then_some(self.below)
    }

    /// Keeps the rank of `key`, as of the version of `root`.
    #[inline]
    pub(crate) fn keep(&mut self, root: &Optimistic<'_>, key: &[u8], below: u64) {
        if let Some(place) = self.key.get_mut(..key.len()) {
            place.copy_from_slice(key);
            self.len = key.len();
            self.seen = RootSeen::of(root);
            self.below = below;
        }
    }
}
