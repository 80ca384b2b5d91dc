//! The walk over a store: what it has met, and what is wrong with it.

use std::collections::{BTreeMap, BTreeSet};

use pando_format::superblock::Superblock;
use pando_format::{PageId, TreeId};

use crate::pages::store::Store;

/// Something that is not as it must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Page, table or file.
    pub place: String,
    /// What is wrong.
    pub what: String,
}

/// A walk over all pages.
pub(crate) struct Walk<'a, P> {
    pub(crate) store: &'a Store,
    pub(crate) superblock: Superblock,
    /// Pages met, with the tree that owns them.
    pub(crate) seen: BTreeMap<PageId, String>,
    /// Trees of which something was leaked.
    pub(crate) leaks: BTreeSet<TreeId>,
    pub(crate) leaked: u64,
    pub(crate) writes_aside: u64,
    pub(crate) damages: Vec<Damage>,
    pub(crate) progress: P,
    pub(crate) done: u64,
}

/// The keys that a node may hold.
#[derive(Clone, Default)]
pub(crate) struct Limits {
    pub(crate) low: Option<Vec<u8>>,
    pub(crate) high: Option<Vec<u8>>,
}

impl<P: FnMut(u64, u64)> Walk<'_, P> {
    pub(crate) fn damage(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.damages.push(Damage {
            place: place.into(),
            what: what.into(),
        });
    }
}
