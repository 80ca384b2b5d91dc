//! A line of sampled heads for each frame, beside the pages: what nodes with hints in their headers
//! have. They are made once, for a tree that does not change any more.

use pando_format::PageId;
use pando_pool::Pool;
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::words::prefetch;
use pando_tree::Tree;
use pando_tree::node::view::Node;
use pando_tree::word::Word;

use super::rig::retry;
use crate::error::Result;

/// Hints of a line.
pub(super) const HINTS: usize = 16;
/// Two to a word.
const WORDS: usize = HINTS / 2;

/// A cache line: the heads of evenly spaced entries of a node, the smallest first.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line([AtomicU64; WORDS]);

/// The lines of all frames.
#[derive(Debug)]
pub(super) struct HintLines(Vec<Line>);

/// Where hint `number` points among `size` entries.
#[inline]
fn place(number: usize, size: usize) -> usize {
    (number + 1) * size / (HINTS + 1)
}

impl HintLines {
    /// Lines of all zeros: no hints.
    fn none(frames: usize) -> Self {
        Self((0..frames).map(|_| Line::default()).collect())
    }

    /// The lines of all nodes of `tree`.
    pub(super) fn of(pool: &Pool, tree: &Tree) -> Result<Self> {
        let lines = Self::none(pool.frames());
        lines.add(pool, tree.root)?;
        Ok(lines)
    }

    fn add(&self, pool: &Pool, page: PageId) -> Result<()> {
        let seen = retry(|| pool.optimistic(page, 0))?;
        let node = Node::open(seen.words().slice());
        self.set(seen.hint(), &node);
        if node.is_inner() {
            for index in 0..node.count() {
                self.add(pool, node.child(index).page())?;
            }
        }
        Ok(())
    }

    /// Makes the line of the frame of `hint` that of `node`.
    fn set<W: Word>(&self, hint: u32, node: &Node<'_, W>) {
        let Some(line) = self.line(hint) else { return };
        let (from, size) = (node.first_key(), node.count() - node.first_key());
        let head = |number| u64::from(node.slot(from + place(number, size)).head());
        for (at, word) in line.0.iter().enumerate() {
            // Relaxed, here and below: nothing is read before all of it is written.
            word.store(head(2 * at) | head(2 * at + 1) << 32, Ordering::Relaxed);
        }
    }

    #[inline]
    fn line(&self, hint: u32) -> Option<&Line> {
        self.0.get((hint as usize).wrapping_sub(1))
    }

    #[inline]
    pub(super) fn prefetch(&self, hint: u32) {
        if let Some(line) = self.line(hint) {
            prefetch(&line.0[0]);
        }
    }

    /// The part of the entries `from .. to` of the node in the frame of `hint` within or just
    /// behind which the first lies whose head is not below `head`.
    #[inline]
    pub(super) fn narrow(&self, hint: u32, from: usize, to: usize, head: u32) -> (usize, usize) {
        let size = to - from;
        let Some(line) = self.line(hint).filter(|_| size > HINTS) else {
            return (from, to);
        };
        let below: u32 = line
            .0
            .iter()
            .map(|word| {
                let pair = word.load(Ordering::Relaxed);
                u32::from((pair as u32) < head) + u32::from(((pair >> 32) as u32) < head)
            })
            .sum();
        let below = below as usize;
        let low = match below {
            0 => from,
            some => from + place(some - 1, size) + 1,
        };
        let high = if below == HINTS {
            to
        } else {
            from + place(below, size)
        };
        (low, high)
    }

    #[cfg(test)]
    pub(super) fn of_node<W: Word>(node: &Node<'_, W>) -> Self {
        let lines = Self::none(1);
        lines.set(1, node);
        lines
    }
}
