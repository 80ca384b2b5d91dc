//! Keeping a checkpoint for settled snapshots (decision 071).
//!
//! The checkpoint is durable, and the thread that made it does this before the next one begins: so
//! nothing that it uses has been freed yet. Its mapping is merged into a base of its own; the
//! store goes on with that base, and never changes it. The set of its blocks is read from the base.

use pando_format::Lsn;
use pando_format::cast::usize_of;
use pando_pool::pool::FRAMES_MIN;
use pando_space::BlockSet;

use crate::engine::Engine;
use crate::error::Result;
use crate::kept::cut::{KeptCut, KeptHandle};
use crate::kept::mapping::KeptMapping;
use crate::kept::pages::CutSource;
use crate::options::Budget;
use crate::pages::layout::Layout;
use crate::state::checkpoint::Files;

/// The pool of a kept checkpoint is this fraction of the memory for all of them, unless that is
/// too little for a pool. Its page table takes half as much.
const POOL_SHARE: u64 = 24;
/// Image buffers of its pool, which writes nothing: as few as there can be.
const IMAGES: usize = 2;

impl Engine {
    /// Keeps the checkpoint at `lsn`, which `files` name. Blocks while the mapping is written and
    /// read: 8 bytes for each page of the store.
    ///
    /// # Errors
    /// [`Error::Full`] without room in memory or on disk.
    pub(super) fn keep_checkpoint(&self, files: &mut Files, lsn: Lsn) -> Result<KeptHandle> {
        assert_eq!(
            files.superblock.checkpoint_lsn, lsn,
            "the checkpoint that is kept is the last one"
        );
        if let Some(kept) = self.kept.find(lsn) {
            return Ok(kept);
        }
        let store = &self.store;
        let page_size = store.pool.page_size();
        let page_bytes = page_size.bytes() as u64;
        let frames = (self.budget.kept_bytes / POOL_SHARE / page_bytes).max(FRAMES_MIN as u64);
        let pool_bytes = frames * page_bytes;
        // Before the mapping is written.
        self.kept
            .check_room(KeptCut::bytes_of(pool_bytes, &BlockSet::new()))?;
        let size = store.mapping_size();
        let mapping = &mut files.mapping;
        mapping.merge(size.pages, size.tables, &store.mapping_reserve)?;
        mapping.keep_base();
        let kept = KeptMapping::open(&store.device, mapping.number, mapping.base_pages)?;
        let blocks = kept.blocks()?;
        self.kept
            .check_room(KeptCut::bytes_of(pool_bytes, &blocks))?;
        let budget = Budget {
            frames: usize_of(frames),
            images: IMAGES,
            ..self.budget
        };
        let source = CutSource {
            device: store.device.clone(),
            data: store.data.clone(),
            layout: Layout {
                page_size,
                block_bytes: store.space.block_bytes(),
            },
            mapping: kept,
            budget,
        };
        let cut = KeptCut::keep(
            lsn,
            blocks,
            (&store.held_blocks, &store.space),
            source,
            pool_bytes,
        )?;
        tracing::info!(%lsn, "a checkpoint is kept for a settled snapshot");
        Ok(cut)
    }

    /// Has a checkpoint made that is kept, with everything that was committed before the call.
    /// Blocks until it is durable.
    ///
    /// # Errors
    /// As [`Engine::keep_checkpoint`]; [`Error::Closed`], [`Error::Poisoned`].
    pub(crate) fn next_checkpoint_kept(&self) -> Result<KeptHandle> {
        let request = self.kept.request();
        let made = self.checkpoint_if_room();
        self.kept.withdraw(&request);
        match request.take() {
            Some(kept) => kept,
            None if made? => unreachable!("a checkpoint serves all requests before it"),
            None => Err(self.store.shortage_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use pando_sync::Arc;

    use crate::error::Error;
    use crate::kept::settled::Settled;
    use crate::{Db, Durability};

    /// From the cut on, the trees of tables are remembered for the snapshot.
    #[test]
    fn a_table_that_is_dropped_while_its_checkpoint_is_written_is_read() {
        let options = Db::builder().durability(Durability::None);
        let db = options.max_memory(16 << 20).open_in_memory().unwrap();
        let table = db.table("t").unwrap();
        table.put(b"key", b"value").unwrap();
        let engine = db.engine();
        let mut files = engine.checkpoint.lock_files();
        let cut = engine.cut(files.mapping.is_empty(), true).unwrap();
        let lsn = cut.lsn;
        db.drop_table("t").unwrap();
        engine
            .write_cut(&mut files, cut, |lsn| engine.wait_durable(lsn))
            .unwrap();
        let kept = engine.keep_checkpoint(&mut files, lsn);
        let kept = engine.kept.add(kept);
        drop(files);
        let settled = Settled::at_checkpoint(kept.unwrap());
        let tree = engine.store.tables.tree_at(&table.state, lsn).unwrap();
        let mut value = Vec::new();
        assert!(settled.get(tree, b"key", &mut value).unwrap());
        assert_eq!(value, b"value");
    }

    /// What it has read may be what others have written there.
    #[test]
    fn a_reader_that_is_overtaken_by_the_end_shows_nothing() {
        let db = Db::builder().open_in_memory().unwrap();
        db.table("t").unwrap().put(b"key", b"value").unwrap();
        let kept = db.engine().next_checkpoint_kept().unwrap();
        let cut = Arc::clone(kept.cut());
        assert_eq!(kept.read(cut.lsn(), |_, _| Ok(7)).unwrap(), 7);
        let read = kept.read(cut.lsn(), |_, _| {
            assert!(cut.end(), "ended once");
            Ok(7)
        });
        assert!(matches!(read, Err(Error::SnapshotEnded)), "{read:?}");
        let damage = kept.read(cut.lsn(), |_, _| {
            Err::<(), _>(Error::corrupt("data", "overwritten"))
        });
        assert!(matches!(damage, Err(Error::SnapshotEnded)), "{damage:?}");
    }
}
