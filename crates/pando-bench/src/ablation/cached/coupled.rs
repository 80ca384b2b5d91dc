//! Shared latches at every level: a node's is taken before its parent's is given back, as most
//! B-trees do. Each is two writes of a line that all readers share.

use pando_format::PageId;
use pando_pool::{Attempt, Optimistic, Pool, Shared};

use super::descent::NodeLookup;

/// The latch of the node that one read stands on; given back with it.
#[derive(Debug, Default)]
pub(super) struct Coupled<'p> {
    here: Option<Shared<'p>>,
}

impl<'p> NodeLookup<'p> for Coupled<'p> {
    #[inline]
    fn look(&mut self, pool: &'p Pool, page: PageId, hint: u32) -> Attempt<Optimistic<'p>> {
        let child = pool.shared(page, hint)?;
        let seen = child.seen();
        // The parent's is given back here.
        self.here = Some(child);
        Ok(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::super::descent::get;
    use super::super::rig::Rig;
    use super::*;

    #[test]
    fn a_read_keeps_the_latch_of_its_leaf_and_no_other() {
        let rig = Rig::filled(2000, 4096, 1).unwrap();
        let (mut key, mut out) = (Vec::new(), Vec::new());
        rig.keys.write(7, &mut key);
        let mut coupled = Coupled::default();
        let found = get(&rig.tree, &rig.pool, &mut coupled, &key, &mut out).unwrap();
        let is_free = |page| rig.pool.optimistic(page, 0).unwrap().upgrade().is_ok();
        assert!(found.found && found.leaf != rig.tree.root);
        assert!(is_free(rig.tree.root) && !is_free(found.leaf));
        drop(coupled);
        assert!(is_free(found.leaf));
    }
}
