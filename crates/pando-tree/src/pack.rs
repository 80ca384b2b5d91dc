//! Packing: a node takes entries of its right neighbour until it is full.
//!
//! ```text
//!   parent   .. | k1 A | k2 B | ..          .. | k1 A | k3 B | ..
//!                   |      |         ->            |      |
//!                 [a b]  [c d e]                [a b c]  [d e]
//! ```
//! When this is done for one node after the other from the left, a level becomes as dense as
//! possible, and each page of it is written about once. A right neighbour that loses all its
//! entries is freed, as in a merge. Parent, left and right are latched together, and none is
//! released before all are changed. A reader that has copied either page continues at a key, and
//! finds there the entries that it has not seen.
//!
//! A node takes only a part of its neighbour's entries if that saves a page soon, because the next
//! few nodes together have enough room. Otherwise one underfull leaf in a dense tree would shift
//! the records of all leaves after it. So a tree that is packed already is only read.

use pando_pool::{ApplyToken, Attempt, Exclusive, Marks, Optimistic, Pool, Restart};
use pando_stats::Ticker;

use crate::access::OptimisticAccess;
use crate::merge::Pair;
use crate::node::list::{Count, Record, RecordList};
use crate::node::search::Spot;
use crate::node::view::{self, Node};
use crate::postcondition::{assert_apart, assert_inherits, assert_parent};
use crate::scratch::{Scratch, Work};
use crate::tree::{FrameNode, Tree, counted, damaged, marks_of, opened, stamp};

/// A packed node keeps one in this many parts of its page free, so that a record that becomes a
/// little longer does not split it.
const KEPT_FREE: usize = 16;
/// A node that has less than one in this many parts of its page free is not changed.
const ROOM_LEAST: usize = 8;
/// Packing must save one node out of this many, or fewer.
const SPARED_OF: usize = 17;

/// Result of packing one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packed {
    /// The node took all entries of its neighbour, which is gone. The same node may take more.
    Merged,
    /// The node took some entries, or none. The node at the returned key comes next.
    Next,
    /// The node is the last one of its level.
    Last,
    /// The root is not above this level.
    Top,
}

impl Tree {
    /// Packs the node of `level` that covers `key`. `next` receives the least key of the node after
    /// it, if there is one.
    ///
    /// # Errors
    /// [`pando_pool::Restart`]; nothing has changed then.
    #[expect(
        clippy::too_many_arguments,
        reason = "what every change takes, and a place"
    )]
    pub fn try_pack(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        key: &[u8],
        level: u8,
        next: &mut Vec<u8>,
        scratch: &mut Scratch,
    ) -> Attempt<Packed> {
        let place = (key, level);
        let attempt = self.pack(pool, token, marks, place, next, &mut scratch.work);
        counted(pool, attempt)
    }

    fn pack(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        (key, level): (&[u8], u8),
        next: &mut Vec<u8>,
        work: &mut Work,
    ) -> Attempt<Packed> {
        let mut parent = None;
        let mut has_next = false;
        let here = self.descend(pool, &mut OptimisticAccess, level, |here, node| {
            let index = node.child_for(key);
            if index + 1 < node.count() {
                node.copy_key(index + 1, next);
                has_next = true;
            }
            parent = Some((here, index));
            index
        })?;
        let Some((parent, index)) = parent else {
            here.validate()?;
            return Ok(Packed::Top);
        };
        let room = Node::open(here.words().slice()).free_bytes();
        here.validate()?;
        parent.validate()?;
        let end = if has_next { Packed::Next } else { Packed::Last };
        let node = Node::open(parent.words().slice());
        if room < pool.page_size().bytes() / ROOM_LEAST || index + 1 >= node.count() {
            return Ok(end);
        }
        let pair = Pair {
            parent,
            index: index + 1,
            left: self.child(pool, parent, &node, index)?,
            right: self.child(pool, parent, &node, index + 1)?,
        };
        let words_max = pool.page_size().words() / KEPT_FREE * (KEPT_FREE - 1);
        if pair.merge_within(pool, token, marks, work, words_max)? {
            return Ok(Packed::Merged);
        }
        if self.is_worth_it(pool, parent, index, words_max * 8)?
            && pair.fill_left(pool, token, marks, work, words_max)?
        {
            next.clone_from(&work.separator);
        }
        Ok(end)
    }

    /// Returns whether packing child `index` of `parent` and the children after it, to `bytes_max`
    /// bytes each, saves a node. Children that are not in memory count as full.
    fn is_worth_it(
        &self,
        pool: &Pool,
        parent: Optimistic<'_>,
        index: usize,
        bytes_max: usize,
    ) -> Attempt<bool> {
        let node = Node::open(parent.words().slice());
        let mut room = 0;
        for index in index..node.count().min(index + SPARED_OF) {
            let child = match self.child(pool, parent, &node, index) {
                Err(Restart::Fault(_)) => break,
                child => child?,
            };
            let node = Node::open(child.words().slice());
            let used = node.used_bytes();
            // A full node has less than one record left free.
            let record = used / node.count().max(1);
            child.validate()?;
            room += bytes_max.saturating_sub(used + record);
            if room >= bytes_max {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the level of the root: 0 for a tree of one leaf.
    ///
    /// # Errors
    /// [`pando_pool::Restart`].
    pub fn try_root_level(&self, pool: &Pool) -> Attempt<u8> {
        let root: Optimistic<'_> = pool.optimistic(self.root, 0)?;
        let level = self.node_at(root, None)?.level();
        root.validate()?;
        Ok(level)
    }

    /// Lists the children, of the node of level 1 that covers `key`, that are not in memory, for
    /// reading ahead. `next` receives the least key after that node, or is emptied if there is
    /// none.
    ///
    /// # Errors
    /// [`pando_pool::Restart`].
    pub fn try_leaves(
        &self,
        pool: &Pool,
        key: &[u8],
        next: &mut Vec<u8>,
        out: &mut Vec<pando_format::PageId>,
    ) -> Attempt<()> {
        out.clear();
        next.clear();
        let here = self.descend(pool, &mut OptimisticAccess, 1, |_, node| {
            let index = node.child_for(key);
            if index + 1 < node.count() {
                node.copy_key(index + 1, next);
            }
            index
        })?;
        let node = Node::open(here.words().slice());
        if node.is_inner() {
            let first = node.child_for(key);
            out.extend((first..node.count()).map(|index| node.child(index).page()));
        }
        here.validate()
    }
}

impl Pair<'_> {
    /// Moves entries of the right node to the left one until it has `words_max` words, and updates
    /// their parent. `work` holds the joined entries of both. Returns false if no entry fits.
    fn fill_left(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        work: &mut Work,
        words_max: usize,
    ) -> Attempt<bool> {
        let (left, parent) = (
            Node::open(self.left.words().slice()),
            Node::open(self.parent.words().slice()),
        );
        let before = left.count();
        let Work {
            list,
            separator,
            parent_list,
            ..
        } = work;
        let Some((cut, prefixes)) = cut_behind(list, before, words_max) else {
            // If nothing fits, the entries may be torn, so validate. If something fits, the
            // versions prove that they were not.
            self.validate()?;
            return Ok(false);
        };
        list.copy_separator(cut, separator);
        let behind = Spot {
            index: self.index + 1,
            exact: false,
        };
        if parent.find(separator) != behind {
            self.validate()?;
            return damaged(
                &self.parent,
                "has a child whose keys are not between its own",
            );
        }
        let tree = parent.tree();
        let counts = [(0, cut), (cut, list.len())]
            .map(|(from, to)| Count::of(tree, list.records(tree, from, to)));
        let parent_prefix = self.replace_separator(&parent, parent_list, separator, &counts)?;
        let Some(parent_prefix) = parent_prefix else {
            // The new separator is too long for its parent.
            self.validate()?;
            return Ok(false);
        };
        let mut parent_latch = self.parent.upgrade()?;
        let mut left_latch = self.left.upgrade()?;
        let mut right_latch = self.right.upgrade()?;
        let mut parent_page = parent_latch.rebuild(token)?;
        let mut left_page = left_latch.rebuild(token)?;
        let mut right_page = right_latch.rebuild(token)?;
        let inherited = marks_of(&Node::open(self.right.words().slice()));
        list.build(&mut left_page, 0, cut, prefixes.0);
        list.build(&mut right_page, cut, list.len(), prefixes.1);
        if !list.is_inner() {
            view::raise_marks(&mut left_page, inherited.0, inherited.1);
            stamp(&mut left_page, marks);
            stamp(&mut right_page, marks);
            assert_inherits(&opened(&left_latch), inherited);
            assert_inherits(&opened(&right_latch), inherited);
        }
        parent_list.build(&mut parent_page, 0, parent_list.len(), parent_prefix);
        assert!(opened(&left_latch).count() > before, "nothing was moved");
        self.assert_packed([&parent_latch, &left_latch, &right_latch], list, separator);
        assert_eq!(
            opened(&parent_latch).count(),
            parent_list.len(),
            "a parent keeps its children"
        );
        pool.statistics().tick(Ticker::PagesPacked, 1);
        Ok(true)
    }

    /// Puts the entries of the parent into `list`, with another separator of the two children, and
    /// with what is counted below them. Returns the length of the prefix with which they fit.
    fn replace_separator(
        &self,
        parent: &FrameNode<'_>,
        list: &mut RecordList,
        separator: &[u8],
        [left, right]: &[Count; 2],
    ) -> Attempt<Option<usize>> {
        if !list.load(parent) {
            return damaged(&self.parent, "holds records longer than a page");
        }
        let spot = Spot {
            index: self.index,
            exact: true,
        };
        let child = parent.child(self.index);
        if !list.put(spot, &Record::separator(separator, child, right)) {
            return Ok(None);
        }
        list.set_count(self.index - 1, left);
        Ok(list.prefix_to_fit(0, list.len()))
    }

    /// Checks what [`Pair::fill_left`] has written.
    fn assert_packed(
        &self,
        [parent, left, right]: [&Exclusive<'_>; 3],
        list: &RecordList,
        separator: &[u8],
    ) {
        let children = (left.page(), right.page());
        let (parent, left, right) = (opened(parent), opened(left), opened(right));
        assert_apart(&left, &right, separator, list.len());
        assert_parent(&parent, self.index, children, separator, left.level());
    }
}

/// Returns the largest cut after more than `before` entries whose left side has at most `words_max`
/// words, and the prefix lengths of both sides.
fn cut_behind(
    list: &RecordList,
    before: usize,
    words_max: usize,
) -> Option<(usize, (usize, usize))> {
    let fits = |cut: &usize| list.prefix_within(0, *cut, words_max).is_some();
    // More entries need more words, apart from what a shorter prefix costs.
    if list.len() <= before {
        return None;
    }
    let (mut low, mut high) = (before, list.len());
    while low + 1 < high {
        let middle = low.midpoint(high);
        if fits(&middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    let left = list.prefix_within(0, low, words_max)?;
    let right = list.prefix_to_fit(low, list.len())?;
    (low > before).then_some((low, (left, right)))
}
