//! What a checkpoint is compared with before it is written, and before anything is freed for it.

use std::collections::HashMap;

use pando_format::mapping::Group;
use pando_format::superblock::Superblock;
use pando_format::{Extent, PageId, StoredPage};

/// What only grows from one superblock to the next, and what never changes.
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

/// Where the pages lie that a group names: of several words of one the last. Debug builds only; the
/// others know of none.
#[derive(Debug)]
pub(crate) struct LastWords(HashMap<PageId, Extent>);

impl LastWords {
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

    /// The data file of a checkpoint has all that it names.
    pub(crate) fn assert_within(&self, blocks: u64) {
        for (page, extent) in &self.0 {
            let end = u64::from(extent.block) + u64::from(extent.blocks);
            debug_assert!(end <= blocks, "{page} at {extent:?}, of {blocks} blocks");
        }
    }

    /// What is freed for the checkpoint is named by no page of it, and no two of them lie in the
    /// same place.
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
