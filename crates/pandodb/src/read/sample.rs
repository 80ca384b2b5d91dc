//! Reads of entries at random.

use crate::engine::Engine;
use crate::read::point::{no_such_table, on_tree};
use crate::tables::state::TableState;
use crate::wait::reason::Step;

impl Engine {
    /// Makes one attempt to find the key of an entry at random. Never blocks.
    pub(crate) fn try_sample(
        &self,
        table: &TableState,
        draw: &mut dyn FnMut(usize) -> usize,
        key: &mut Vec<u8>,
    ) -> Step<bool> {
        let Some(tree) = table.tree() else {
            return Err(no_such_table(table));
        };
        let found = tree.try_sample(&self.store.pool, draw, key);
        Ok(on_tree(table, tree, found)?)
    }
}
