//! Taking a dropped tree apart, leaf by leaf from the left, so that it stays a whole, smaller tree
//! for readers in flight and after a crash.

use pando_pool::{Attempt, Optimistic, Pool, Stay};

use crate::approach::Freely;
use crate::node::edit;
use crate::node::search::Spot;
use crate::node::view::Node;
use crate::remove_empty::Chain;
use crate::scratch::Scratch;
use crate::tree::{Tree, counted};

/// What one step freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dismantled {
    /// Pages freed, overflow pages included.
    pub pages_freed: u32,
    /// True when nothing is left, the root included.
    pub done: bool,
}

impl Tree {
    /// Frees the leftmost leaf, what it names, and inner nodes that lose their last child; with
    /// the last leaf the root. Nobody changes the tree any more. As after every change,
    /// [`Scratch::try_finish`] ends the stay.
    ///
    /// A leaf with values in chunks loses one of them in each step instead, until it has none:
    /// [`Scratch::take_chunk_list`] has its chunks.
    ///
    /// # Errors
    /// [`pando_pool::Restart`]; nothing was freed then.
    pub fn try_dismantle(
        &self,
        pool: &Pool,
        stay: &Stay,
        scratch: &mut Scratch,
    ) -> Attempt<Dismantled> {
        let attempt = self.dismantle(pool, stay, scratch);
        counted(pool, attempt)
    }

    fn dismantle(&self, pool: &Pool, stay: &Stay, scratch: &mut Scratch) -> Attempt<Dismantled> {
        let (path, leaf) = self.descend_with_path(pool, &mut Freely, |_| 0)?;
        let node = Node::open(leaf.words().slice());
        scratch.old.clear();
        if let Some(index) = (0..node.count()).find(|index| node.slot(*index).is_chunked()) {
            return self.remove_chunked(pool, stay, leaf, index, scratch);
        }
        for index in 0..node.count() {
            let spot = Spot { index, exact: true };
            self.collect_old(pool, &leaf, &node, spot, &mut scratch.old)?;
        }
        let fork = path.fork();
        let freed = if let Some((depth, fork)) = fork {
            let mut fork_latch = fork.node.upgrade()?;
            let chain = Chain::latch(&path, depth + 1, leaf, stay)?;
            let mut fork_page = fork_latch.modify(stay)?;
            edit::remove(&mut fork_page, fork.index);
            chain.free(pool, stay)
        } else {
            Chain::latch(&path, 0, leaf, stay)?.free(pool, stay)
        };
        let pages_freed = freed + scratch.old.doomed.len() as u32;
        scratch.free_doomed(pool, stay);
        Ok(Dismantled {
            pages_freed,
            done: fork.is_none(),
        })
    }

    /// Removes a value in chunks from a leaf.
    fn remove_chunked(
        &self,
        pool: &Pool,
        stay: &Stay,
        leaf: Optimistic<'_>,
        index: usize,
        scratch: &mut Scratch,
    ) -> Attempt<Dismantled> {
        let node = Node::open(leaf.words().slice());
        let spot = Spot { index, exact: true };
        self.collect_old(pool, &leaf, &node, spot, &mut scratch.old)?;
        edit::remove(&mut leaf.upgrade()?.modify(stay)?, index);
        let pages_freed = scratch.old.doomed.len() as u32;
        scratch.free_doomed(pool, stay);
        Ok(Dismantled {
            pages_freed,
            done: false,
        })
    }
}
