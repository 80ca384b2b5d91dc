//! The hidden tree of a load: created with a row in the garbage table, grown leaf by leaf, and
//! finally taken by its table, or given up.
//!
//! One apply section attaches leaves to the tree and has the pool adopt their pages, so each
//! checkpoint contains a whole tree. The search for garbage leaves rows of hidden trees of this
//! life alone: a load reports itself when it gives its tree up. Rows of an earlier life, whose
//! loads ended with it, are ordinary garbage.

use std::collections::VecDeque;

use pando_format::catalogue::{TreeRow, filled_garbage_key};
use pando_format::{Lsn, PageId, StoredPage, TreeId};
use pando_pool::ApplyToken;
use pando_sync::Arc;
use pando_tree::{Scratch, Tree};

use crate::api::db::Db;
use crate::blobs::staged::StagedBlob;
use crate::engine::{Engine, Shared};
use crate::error::{Error, Result};
use crate::space::id_turns::IdWait;
use crate::space::reservations::BlockReservation;
use crate::space::urgency::Urgency;
use crate::state::loads::Filled;
use crate::tables::kind::TreeKind;
use crate::tables::state::{GARBAGE, TableState};
use crate::wait::reason::{Step, WaitReason};
use crate::writes::jobs::JobEnd;
use crate::writes::set::{TableChange, WriteSet};

/// Most leaves that one apply section attaches.
const LEAVES_PER_SECTION: usize = 32;
/// Most pages that one apply section dirties: the last ones of all levels, and new ones. A
/// separator takes at most a quarter of a page, so a node that has been split off is not full
/// before three more: the number of new nodes, over all levels, is at most half the number of
/// leaves.
const PAGES_PER_SECTION: u64 = 16 + LEAVES_PER_SECTION as u64 / 2 + 8;
/// Pages and chunks that one apply section has the pool adopt, apart from those of its last leaf.
const ADOPTED_PER_SECTION: usize = 512;
/// A load waits for a checkpoint when the epoch has this many times the mapping changes that make
/// one due.
const EPOCHS_LONG: usize = 2;

/// A value in chunks that a leaf names, and that no checkpoint contains yet. Dropping it returns
/// its ids.
#[derive(Debug)]
pub(super) struct NewChunks {
    pub(super) engine: Shared,
    pub(super) staged: StagedBlob,
    pub(super) ids: Vec<PageId>,
}

impl NewChunks {
    /// Returns each chunk with its place.
    fn stored(&self) -> impl Iterator<Item = (PageId, StoredPage)> {
        self.ids.iter().copied().zip(self.staged.stored())
    }
}

impl Drop for NewChunks {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            self.engine.store.pool.return_id(id);
        }
    }
}

/// A leaf that waits to be attached to the tree.
#[derive(Debug)]
pub(super) struct Leaf {
    /// The least key that it covers.
    pub(super) separator: Vec<u8>,
    /// Its page, the last one of its pages in the stream.
    pub(super) page: PageId,
    /// Number of its records; in a weighted tree, the sum of their weights.
    pub(super) records: u64,
    /// Number of its pages, including those of long values.
    pub(super) pages: usize,
    /// Some of these pages that nothing names.
    pub(super) lost: Vec<PageId>,
    pub(super) chunks: Vec<NewChunks>,
}

/// The tree of a running load. If it is dropped without a table, it becomes garbage.
#[derive(Debug)]
pub(super) struct HiddenTree {
    engine: Shared,
    tree: Tree,
    scratch: Scratch,
    taken: bool,
}

impl HiddenTree {
    /// Creates an empty tree with its row in the garbage table. Blocks.
    pub(super) fn begin(engine: &Shared, kind: TreeKind) -> Result<Self> {
        let id = engine.new_tree(kind)?;
        assert!(
            engine.loads.is_of_this_life(id),
            "its row would be taken for one of an earlier life"
        );
        let mut scratch = Scratch::new();
        let _reservation = engine.block_for_pages()?;
        let tree = engine.in_open_gate(|engine, token| {
            let tree = Tree::create(&engine.store.pool, token, id)?;
            // From here on something has changed: finish all of it before the apply section ends.
            let row = TreeRow {
                tree: id,
                root: tree.root,
            };
            let marks = engine.background_marks();
            let (key, row) = (filled_garbage_key(id), row.encode_garbage());
            let noted = engine.store.wire_root(tree).and_then(|()| {
                engine
                    .store
                    .apply(token, GARBAGE, marks, &key, Some(&row), &mut scratch)
            });
            if let Err(error) = noted {
                engine.poison(error);
            }
            Ok(tree)
        })?;
        engine.store.check_poison()?;
        Ok(Self {
            engine: engine.clone(),
            tree,
            scratch,
            taken: false,
        })
    }

    pub(super) fn id(&self) -> TreeId {
        self.tree.id
    }

    /// Attaches the first `count` of `leaves`; their pages are the first of `written`. Removes
    /// attached ones from both queues, even if it fails. Blocks.
    pub(super) fn attach(
        &mut self,
        leaves: &mut VecDeque<Leaf>,
        written: &mut VecDeque<(PageId, StoredPage)>,
        count: usize,
    ) -> Result<()> {
        assert!(count <= leaves.len(), "leaves that are not there");
        let mut left = count;
        while left > 0 {
            let Self {
                engine,
                tree,
                scratch,
                ..
            } = self;
            engine.wait_for_short_epoch()?;
            let _reservation = engine.block_for_pages()?;
            let (mut adopted, mut room) = (0, left.min(LEAVES_PER_SECTION));
            engine.in_open_gate(|engine, token| {
                while room > 0 && adopted < ADOPTED_PER_SECTION {
                    let leaf = &leaves[0];
                    let (separator, page) = (&leaf.separator, (leaf.page, leaf.records));
                    tree.try_append_leaf(&engine.store.pool, token, separator, page, scratch)?;
                    // Nothing can fail from here to the end of the leaf.
                    let leaf = leaves.pop_front().expect("it was read above");
                    let pages = written.drain(..leaf.pages);
                    adopted += leaf.adopt(engine, token, pages);
                    left -= 1;
                    room -= 1;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Makes the tree, which has `entries` entries, that of the table, all or nothing: durably so
    /// when the log is durable up to the LSN that this returns. Blocks.
    ///
    /// # Errors
    /// [`Error::Full`]: the call may be repeated.
    pub(super) fn become_table(
        &mut self,
        db: &Db,
        table: &Arc<TableState>,
        entries: u64,
    ) -> Result<Lsn> {
        assert!(!self.taken, "it is a table's already");
        // The record names the tree, so the tree must be durable before the record.
        if !self.engine.checkpoint_if_room()? {
            return Err(self.engine.store.shortage_error());
        }
        let filled = Filled {
            tree: self.tree,
            entries,
        };
        let lsn = db.take_tree(table, filled)?;
        self.taken = true;
        Ok(lsn)
    }
}

impl Drop for HiddenTree {
    fn drop(&mut self) {
        if !self.taken {
            self.engine.loads.give_up(self.tree);
            self.engine.garbage_wanted();
        }
    }
}

impl Leaf {
    /// Notes that the leaf is attached: its pages and chunks, which were private to the load,
    /// become part of the store. Returns their number.
    fn adopt(
        mut self,
        engine: &Engine,
        token: &ApplyToken<'_>,
        written: impl Iterator<Item = (PageId, StoredPage)>,
    ) -> usize {
        assert!(
            self.lost.len() < self.pages && !self.lost.contains(&self.page),
            "the leaf itself is attached to the tree"
        );
        let mut count = 0;
        let mut last = PageId::NONE;
        for (page, stored) in written {
            last = page;
            count += 1;
            if self.lost.contains(&page) {
                engine.store.pool.return_id(page);
                engine.store.space.free_all([stored.extent]);
            } else {
                engine.store.pool.adopt(token, page, stored);
            }
        }
        assert_eq!(
            (last, count),
            (self.page, self.pages),
            "pages of another leaf"
        );
        for value in &mut self.chunks {
            for (page, stored) in value.stored() {
                engine.store.pool.adopt(token, page, stored);
            }
            count += value.ids.len();
            let named = value.staged.name();
            assert!(named, "the chunks of a load are named once");
            value.ids.clear();
        }
        count
    }
}

impl Engine {
    /// Reserves blocks for the pages that an apply section of a load dirties. Blocks.
    fn block_for_pages(&self) -> Result<BlockReservation<'_>> {
        let mut wait = IdWait::default();
        self.block(|_| self.reserve_pages(&mut wait))
    }

    /// As [`Engine::block_for_pages`], one attempt of it.
    fn reserve_pages(&self, wait: &mut IdWait) -> Step<BlockReservation<'_>> {
        self.check_writable()?;
        if self.store.life.is_short() {
            return Err(self.store.shortage_error().into());
        }
        self.look_for_page_ids(PAGES_PER_SECTION, Urgency::No, wait)?;
        let blocks = PAGES_PER_SECTION * u64::from(self.store.page_blocks());
        let committed = || self.store.committed_blocks();
        let Some(reservation) = self.store.space.try_reserve(blocks, committed, Urgency::No) else {
            if self.is_disk_full() {
                self.checkpoint.request();
                return Err(self.store.space.full_error().into());
            }
            return Err(WaitReason::Blocks(blocks).into());
        };
        if !self.store.dirty_room(PAGES_PER_SECTION) {
            return Err(WaitReason::Dirty.into());
        }
        self.reserve_page_ids((PAGES_PER_SECTION, 0), false, wait)?;
        Ok(reservation)
    }

    /// As [`Engine::in_gate`], for a store that may be closed meanwhile.
    fn in_open_gate<T>(
        &self,
        mut step: impl FnMut(&Self, &ApplyToken<'_>) -> pando_pool::Attempt<T>,
    ) -> Result<T> {
        let done = self.in_gate(PAGES_PER_SECTION, |engine, token| {
            // Checked inside the gate: closing a store checks for dirty pages after that.
            if engine.store.life.is_closing() {
                return Ok(None);
            }
            step(engine, token).map(Some)
        })?;
        done.ok_or(Error::Closed)
    }

    /// Waits for checkpoints: a load changes the mapping faster than anything else.
    fn wait_for_short_epoch(&self) -> Result<()> {
        while self.store.pool.epochs().current_lengths().0 > EPOCHS_LONG * self.pairs_max() {
            if !self.checkpoint_if_room()? {
                return Err(self.store.shortage_error());
            }
        }
        Ok(())
    }
}

impl Db {
    /// Gives a table, which must be empty, a filled tree; returns the LSN of that record.
    fn take_tree(&self, table: &Arc<TableState>, filled: Filled) -> Result<Lsn> {
        loop {
            let mut set = WriteSet::default();
            let index = set.table(table);
            set.change_table(index, TableChange::Take(filled));
            if let JobEnd::Committed(lsn) = self.end_of_job(set)? {
                return Ok(lsn);
            }
        }
    }
}
