//! Working memory of a put of one value (`single_put`).

use pando_format::log::BatchWriter;
use pando_tree::Scratch;

/// Working memory of single puts.
#[derive(Debug, Default)]
pub(crate) struct PutScratch {
    pub(super) payload: BatchWriter,
    pub(super) tree: Scratch,
}

impl PutScratch {
    /// Empties it. Returns false if it has grown beyond `bytes_max`, or if a change was left
    /// unfinished: then it must not be kept.
    #[inline]
    pub(crate) fn empty(&mut self, bytes_max: usize) -> bool {
        self.tree.forget_leaf();
        self.tree.is_finished() && self.payload.capacity_bytes() <= bytes_max
    }
}
