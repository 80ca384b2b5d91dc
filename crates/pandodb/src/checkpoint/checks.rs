//! Checks of a checkpoint before it is written, and before anything is freed for it.

use std::collections::HashMap;

use pando_format::mapping::Group;
use pando_format::superblock::Superblock;
use pando_format::{Extent, PageId, StoredPage};

/// Asserts that numbers only grow from one superblock to the next, and that constants are equal.
pub(crate) fn assert_grown(old: &Superblock, new: &Superblock) {
    assert!(new.incarnation >= old.incarnation, "incarnations grow");
    assert!(
        new.incarnation <= new.generation.0,
        "a life begins with a checkpoint"
    );
    assert!(
        new.next_tree >= old.next_tree,
        "tree ids are given out once"
    );
    assert!(new.mapping >= old.mapping, "mappings are numbered in order");
    assert!(
        new.mapping > old.mapping || new.journal_bytes > old.journal_bytes,
        "each checkpoint adds a group to the journal"
    );
    assert_eq!(
        (new.identity, new.hash_key),
        (old.identity, old.hash_key),
        "it is the same store"
    );
    assert_eq!(
        (new.page_bytes, new.block_bytes, new.segment_bytes),
        (old.page_bytes, old.block_bytes, old.segment_bytes),
        "what is laid out stays"
    );
}

/// The extents of the pages that a group names; if a group names a page several times, the last
/// word counts. Empty in release builds.
#[derive(Debug)]
pub(crate) struct LastWords(HashMap<PageId, Extent>);

impl LastWords {
    /// Returns the last words of `group`.
    pub(crate) fn of(group: &Group) -> Self {
        let mut words = HashMap::new();
        if cfg!(debug_assertions) {
            words.extend(group.pairs.iter().copied());
        }
        let places = words.into_iter().filter_map(|(page, word)| {
            let stored = StoredPage::decode(word)?;
            Some((page, stored.extent))
        });
        Self(places.collect())
    }

    /// Asserts that all extents are inside the data file of the checkpoint.
    pub(crate) fn assert_within(&self, blocks: u64) {
        for (page, extent) in &self.0 {
            let end = u64::from(extent.block) + u64::from(extent.blocks);
            debug_assert!(end <= blocks, "{page} at {extent:?}, of {blocks} blocks");
        }
    }

    /// Asserts that no page of the checkpoint names an extent that is freed for it, and that no two
    /// extents overlap.
    pub(crate) fn assert_not_named(&self, retired: &[Extent]) {
        if !cfg!(debug_assertions) {
            return;
        }
        let mut all: Vec<Extent> = self.0.values().chain(retired).copied().collect();
        all.sort_unstable_by_key(|extent| extent.block);
        for pair in all.windows(2) {
            let end = u64::from(pair[0].block) + u64::from(pair[0].blocks);
            assert!(
                end <= u64::from(pair[1].block),
                "{:?} and {:?} are freed, or of two pages",
                pair[0],
                pair[1]
            );
        }
    }
}
