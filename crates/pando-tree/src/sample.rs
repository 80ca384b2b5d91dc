//! Records at random: each node on the way down takes one of its children.
//!
//! All children of a node have the same chance, and all records of a leaf. So the chance of a
//! record differs from that of another one as the fillings of their nodes do, about by a factor of
//! two at each level.

use pando_pool::{Attempt, Pool};

use crate::access::{Access, OptimisticAccess, retry_then_latch};
use crate::descent::Start;
use crate::tree::Tree;

impl Tree {
    /// Replaces `key` by the key of a record at random; false if it came to a leaf without records,
    /// though there may be others. `draw` returns a number below its argument.
    ///
    /// # Errors
    /// [`pando_pool::Restart`]; what `key` holds then has no meaning.
    pub fn try_sample(
        &self,
        pool: &Pool,
        draw: &mut dyn FnMut(usize) -> usize,
        key: &mut Vec<u8>,
    ) -> Attempt<bool> {
        retry_then_latch(pool, |latched| match latched {
            None => self.sample(pool, &mut OptimisticAccess, draw, key),
            Some(latched) => self.sample(pool, latched, draw, key),
        })
    }

    fn sample<'p>(
        &self,
        pool: &'p Pool,
        access: &mut impl Access<'p>,
        draw: &mut dyn FnMut(usize) -> usize,
        key: &mut Vec<u8>,
    ) -> Attempt<bool> {
        key.clear();
        let start = Start {
            node: self.root(pool, access)?,
            level: None,
        };
        // What is read of a node that changes meanwhile may be any number.
        let mut below = |count: usize| draw(count.max(1)).min(count.saturating_sub(1));
        let (leaf, node) =
            self.descend_from(pool, access, start, 0, |_, node| below(node.count()))?;
        let is_there = node.count() > 0;
        if is_there {
            node.copy_key(below(node.count()), key);
        }
        leaf.validate()?;
        Ok(is_there)
    }
}
