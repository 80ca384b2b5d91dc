//! Blocks that stay allocated although the newest checkpoint does not use them: a kept checkpoint
//! does (decision 071).
//!
//! Pages are never overwritten. So a checkpoint stays readable as long as none of its blocks is
//! given to something else. A kept checkpoint has the set of its blocks; what is retired later is
//! free unless one of these sets has it. What is not free is *held*, and is freed with the last
//! checkpoint that has it.

use pando_format::Extent;
use pando_space::BlockSet;
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::{Arc, Mutex, Rank};

/// Names the blocks of one kept checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeptId(u64);

/// The blocks of kept checkpoints.
#[derive(Debug)]
pub(crate) struct HeldBlocks {
    state: Mutex<Held>,
    /// Number of blocks that are held.
    held: AtomicU64,
    /// Number of kept checkpoints. Changed under the lock.
    kept: AtomicU64,
}

#[derive(Debug, Default)]
struct Held {
    /// The blocks that each kept checkpoint uses.
    kept: Vec<(KeptId, Arc<BlockSet>)>,
    /// Blocks that were retired while a kept checkpoint used them.
    held: BlockSet,
    next: u64,
}

impl Default for HeldBlocks {
    fn default() -> Self {
        Self {
            state: Mutex::new(Rank::Leaf, Held::default()),
            held: AtomicU64::new(0),
            kept: AtomicU64::new(0),
        }
    }
}

impl HeldBlocks {
    /// Keeps `blocks`, which a durable checkpoint uses, until they are given to
    /// [`HeldBlocks::release`]. The caller is the thread that frees what checkpoints retire.
    pub(crate) fn keep(&self, blocks: BlockSet) -> KeptId {
        let mut state = self.state.lock();
        let id = KeptId(state.next);
        state.next += 1;
        state.kept.push((id, Arc::new(blocks)));
        self.note(&state);
        id
    }

    /// Returns those of the `retired` extents that may be freed, and holds the others.
    pub(crate) fn hold(&self, retired: Vec<Extent>) -> Vec<Extent> {
        // Relaxed: only the caller's thread makes it larger.
        if self.kept.load(Ordering::Relaxed) == 0 {
            return retired;
        }
        let mut state = self.state.lock();
        let mut free = Vec::with_capacity(retired.len());
        for extent in retired {
            state.hold(extent, &mut free);
        }
        self.note(&state);
        free
    }

    /// Ends the keeping of `id`. Returns what no other kept checkpoint uses and may be freed;
    /// nothing if it has ended before.
    #[must_use = "the blocks would never be used again"]
    pub(crate) fn release(&self, id: KeptId) -> Vec<Extent> {
        let mut state = self.state.lock();
        let Some(at) = state.kept.iter().position(|(kept, _)| *kept == id) else {
            return Vec::new();
        };
        let (_, blocks) = state.kept.swap_remove(at);
        let Held { kept, held, .. } = &mut *state;
        let others: Vec<&BlockSet> = kept.iter().map(|(_, blocks)| &**blocks).collect();
        let free = held.take_shared(&blocks, &others);
        assert!(
            !state.kept.is_empty() || state.held.is_empty(),
            "blocks are held for nobody"
        );
        self.note(&state);
        free
    }

    /// Number of blocks that are held: only kept checkpoints use them.
    pub(crate) fn blocks(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    fn note(&self, state: &Held) {
        self.held.store(state.held.len(), Ordering::Relaxed);
        self.kept.store(state.kept.len() as u64, Ordering::Relaxed);
    }
}

impl Held {
    /// Holds the blocks of `extent` that a kept checkpoint uses, and appends the others to `free`.
    fn hold(&mut self, extent: Extent, free: &mut Vec<Extent>) {
        let is_kept = |block| self.kept.iter().any(|(_, blocks)| blocks.contains(block));
        let end = extent.block + extent.blocks;
        let mut start = extent.block;
        while start < end {
            let kept = is_kept(start);
            let differs = |block: &u32| is_kept(*block) != kept;
            let next = (start + 1..end).find(differs).unwrap_or(end);
            let run = Extent {
                block: start,
                blocks: next - start,
            };
            match kept {
                true => self.held.insert(run),
                false => free.push(run),
            }
            start = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(block: u32, blocks: u32) -> Extent {
        Extent { block, blocks }
    }

    fn set(extents: &[Extent]) -> BlockSet {
        let mut set = BlockSet::new();
        for extent in extents {
            set.insert(*extent);
        }
        set
    }

    #[test]
    fn a_block_is_held_until_the_last_checkpoint_that_uses_it_is_released() {
        let blocks = HeldBlocks::default();
        assert_eq!(blocks.hold(vec![extent(0, 4)]), [extent(0, 4)]);
        let first = blocks.keep(set(&[extent(10, 10)]));
        let second = blocks.keep(set(&[extent(15, 10)]));
        let third = blocks.keep(set(&[extent(100, 1)]));
        let freed = blocks.hold(vec![extent(8, 10), extent(18, 5), extent(40, 2)]);
        assert_eq!(freed, [extent(8, 2), extent(40, 2)]);
        assert_eq!(blocks.blocks(), 13);
        assert_eq!(blocks.release(first), [extent(10, 5)]);
        assert_eq!(blocks.release(first), [], "once only");
        assert_eq!(blocks.release(third), []);
        assert_eq!(blocks.release(second), [extent(15, 8)]);
        assert_eq!(blocks.blocks(), 0);
        assert_eq!(blocks.hold(vec![extent(10, 1)]), [extent(10, 1)]);
    }
}
