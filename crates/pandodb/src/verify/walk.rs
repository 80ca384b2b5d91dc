//! The walk over a store: the pages that it has met, and the damage that it has found.

use std::collections::{BTreeMap, BTreeSet};

use pando_format::superblock::Superblock;
use pando_format::{PageId, TreeId};

use crate::pages::store::Store;

/// Something in a store that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The page, table or file.
    pub place: String,
    /// What is wrong.
    pub what: String,
}

/// A walk over all pages.
pub(crate) struct Walk<'a, P> {
    /// As of its newest checkpoint; the walk writes nothing.
    pub(crate) store: &'a Store,
    /// The one that `store` was loaded from.
    pub(crate) superblock: Superblock,
    /// Pages met, with the names of their owners.
    pub(crate) seen: BTreeMap<PageId, String>,
    /// The tree that is walked over is that of a table. One that was dropped is taken apart from
    /// its left end, and what its nodes count stays as it was.
    pub(crate) is_table: bool,
    /// Trees of which pages have leaked.
    pub(crate) leaks: BTreeSet<TreeId>,
    /// As [`VerifyReport::leaked`](crate::VerifyReport::leaked).
    pub(crate) leaked: u64,
    /// As [`VerifyReport::writes_aside`](crate::VerifyReport::writes_aside).
    pub(crate) writes_aside: u64,
    /// In the order in which they were found.
    pub(crate) damages: Vec<Damage>,
    /// Called with the number of pages done, and that of all pages.
    pub(crate) progress: P,
    /// Number of pages met; for `progress`.
    pub(crate) done: u64,
}

/// Bounds of the keys of a node, as its parent gives them: from `low` on, below `high`.
#[derive(Clone, Default)]
pub(crate) struct KeyBounds {
    /// Inclusive; None: no bound.
    pub(crate) low: Option<Vec<u8>>,
    /// Exclusive; None: no bound.
    pub(crate) high: Option<Vec<u8>>,
}

impl<P: FnMut(u64, u64)> Walk<'_, P> {
    /// Adds damage to the result.
    pub(crate) fn damage(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.damages.push(Damage {
            place: place.into(),
            what: what.into(),
        });
    }
}
