//! Removal of a record.

use pando_pool::{Attempt, Marks, Pool, Stay};

use crate::approach::Freely;
use crate::node::edit;
use crate::node::view::Node;
use crate::scratch::Scratch;
use crate::tree::{Tree, counted, stamp};

/// What a removal did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    /// True when there was a record; it is gone.
    pub existed: bool,
    /// True when its leaf has no records left: see [`Tree::try_remove_empty`].
    pub leaf_emptied: bool,
}

impl Tree {
    /// Removes the record of `key`. A key without one changes nothing, the marks included.
    ///
    /// # Errors
    /// [`pando_pool::Restart`]; the record is then as it was.
    pub fn try_remove(
        &self,
        pool: &Pool,
        stay: &Stay,
        marks: Marks,
        key: &[u8],
        scratch: &mut Scratch,
    ) -> Attempt<Removed> {
        let attempt = self.remove(pool, stay, marks, key, scratch);
        counted(pool, attempt)
    }

    fn remove(
        &self,
        pool: &Pool,
        stay: &Stay,
        marks: Marks,
        key: &[u8],
        scratch: &mut Scratch,
    ) -> Attempt<Removed> {
        let leaf = self.descend(pool, &mut Freely, 0, |_, node| node.child_for(key))?;
        let node = Node::open(leaf.words().slice());
        let spot = node.find(key);
        if !spot.exact {
            leaf.validate()?;
            return Ok(Removed {
                existed: false,
                leaf_emptied: false,
            });
        }
        scratch.doomed.clear();
        self.collect_doomed(pool, &leaf, &node, spot, &mut scratch.doomed)?;
        let leaf_emptied = {
            let mut latch = leaf.upgrade()?;
            let mut page = latch.modify(stay)?;
            edit::remove(&mut page, spot.index);
            stamp(&mut page, marks);
            node.count() == 1
        };
        scratch.free_doomed(pool, stay);
        Ok(Removed {
            existed: true,
            leaf_emptied,
        })
    }
}
