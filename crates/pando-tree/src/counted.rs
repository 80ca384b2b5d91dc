//! Counted trees (decision 079): each inner entry tells how many records lie below it. So the tree
//! answers how many keys are smaller than one, and which key has a given number, by one descent
//! each. (Knuth, The Art of Computer Programming, volume 3, 6.2.3, has this for binary trees.)
//!
//! A change that adds or removes a record takes the latches of all nodes from the root to the leaf,
//! at the versions at which it has seen them, and changes their counts before it releases any.
//! Latches are only ever tried, so no order of them can deadlock. Changes of the structure move
//! records between neighbours and add none: they write what they know of both sides to the parent,
//! and leave the nodes above alone.
//!
//! **Why a descent without latches counts right.** It takes the version of a child while the parent
//! is unchanged since its own version was taken: that is checked afterwards. Consider a change that
//! passes through both. It holds both latches at once, so it lies wholly before both versions, or
//! after both: a change that was over when the child's version was taken, and was not when the
//! parent's was, would have changed the parent in between. So down from the root, each node shows
//! those changes through it that the root shows, and a change that does not pass through a node
//! counts in the entries of nodes above it only. The result is that of the moment at which the
//! root's version was taken.

use pando_pool::{ApplyToken, Attempt, Exclusive, Marks, PageMut, Pool};

use crate::access::{Access, OptimisticAccess, SharedAccess, retry_then_latch};
use crate::descent::{Path, Start, Step};
use crate::insert::Round;
use crate::leaf::Leaf;
use crate::node::edit::Fit;
use crate::node::list::Record;
use crate::node::search::Spot;
use crate::node::view::{self, LEVEL_MAX, Node};
use crate::place::Place;
use crate::remove::Removed;
use crate::scratch::{OldValue, Scratch, Work};
use crate::tree::{FrameNode, Tree, damaged};

/// Which records a rank counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ranked<'k> {
    /// Those with smaller keys.
    Below(&'k [u8]),
    /// Those whose keys are not greater.
    UpTo(&'k [u8]),
    /// All.
    All,
}

impl Tree {
    /// Returns the number of records of `ranked`.
    ///
    /// # Errors
    /// [`pando_pool::Restart`].
    ///
    /// # Panics
    /// When the tree is not counted.
    pub fn try_rank(&self, pool: &Pool, ranked: Ranked<'_>) -> Attempt<u64> {
        assert!(self.id.is_counted(), "{} does not count", self.id);
        retry_then_latch(pool, |latched| match latched {
            None => self.rank(pool, &mut OptimisticAccess, ranked),
            Some(latched) => self.rank(pool, latched, ranked),
        })
    }

    /// Returns the number of records that are among `to` and not among `from`, as of one moment.
    /// All records of `from` are among `to`.
    ///
    /// # Errors
    /// As [`Tree::try_rank`].
    ///
    /// # Panics
    /// When the tree is not counted.
    pub fn try_count(&self, pool: &Pool, from: Option<Ranked<'_>>, to: Ranked<'_>) -> Attempt<u64> {
        let Some(from) = from else {
            return self.try_rank(pool, to);
        };
        assert!(self.id.is_counted(), "{} does not count", self.id);
        retry_then_latch(pool, |latched| match latched {
            None => {
                let both = [&mut OptimisticAccess, &mut OptimisticAccess];
                self.count(pool, both, (from, to))
            }
            Some(latched) => {
                let mut again = SharedAccess::default();
                self.count(pool, [latched, &mut again], (from, to))
            }
        })
    }

    fn count<'p>(
        &self,
        pool: &'p Pool,
        [first, second]: [&mut impl Access<'p>; 2],
        (from, to): (Ranked<'_>, Ranked<'_>),
    ) -> Attempt<u64> {
        let root = self.root(pool, first)?;
        let before = self.rank(pool, first, from)?;
        let all = self.rank(pool, second, to)?;
        // Each change of a count changes the root, too.
        root.validate()?;
        Ok(all.wrapping_sub(before))
    }

    fn rank<'p>(
        &self,
        pool: &'p Pool,
        access: &mut impl Access<'p>,
        ranked: Ranked<'_>,
    ) -> Attempt<u64> {
        let mut smaller = 0_u64;
        let root = self.root(pool, access)?;
        if ranked == Ranked::All {
            let records = self.node_at(root, None)?.records();
            root.validate()?;
            return Ok(records);
        }
        let start = Start {
            node: root,
            level: None,
        };
        let (Ranked::Below(key) | Ranked::UpTo(key)) = ranked else {
            return Ok(0);
        };
        let (leaf, node) = self.descend_from(pool, access, start, 0, |_, node| {
            let index = node.child_for(key);
            smaller = smaller.wrapping_add(node.records_before(index));
            index
        })?;
        let spot = node.find_in_leaf(key);
        leaf.validate()?;
        let itself = spot.exact && matches!(ranked, Ranked::UpTo(_));
        Ok(smaller + spot.index as u64 + u64::from(itself))
    }

    /// Replaces `key` by the key of record `number`, counted from 0, in order. Returns false if
    /// there are not that many.
    ///
    /// # Errors
    /// [`pando_pool::Restart`]; what `key` holds then has no meaning.
    ///
    /// # Panics
    /// When the tree is not counted.
    pub fn try_select(&self, pool: &Pool, number: u64, key: &mut Vec<u8>) -> Attempt<bool> {
        assert!(self.id.is_counted(), "{} does not count", self.id);
        retry_then_latch(pool, |latched| match latched {
            None => self.select(pool, &mut OptimisticAccess, number, key),
            Some(latched) => self.select(pool, latched, number, key),
        })
    }

    /// As [`Tree::try_select`], but counted from the first record whose key is not below `from`, as
    /// of one moment.
    ///
    /// # Errors
    /// As [`Tree::try_select`].
    ///
    /// # Panics
    /// When the tree is not counted.
    pub fn try_select_from(
        &self,
        pool: &Pool,
        from: &[u8],
        number: u64,
        key: &mut Vec<u8>,
    ) -> Attempt<bool> {
        assert!(self.id.is_counted(), "{} does not count", self.id);
        retry_then_latch(pool, |latched| match latched {
            None => {
                let both = [&mut OptimisticAccess, &mut OptimisticAccess];
                self.select_from(pool, both, (from, number), key)
            }
            Some(latched) => {
                let mut again = SharedAccess::default();
                self.select_from(pool, [latched, &mut again], (from, number), key)
            }
        })
    }

    fn select_from<'p>(
        &self,
        pool: &'p Pool,
        [first, second]: [&mut impl Access<'p>; 2],
        (from, number): (&[u8], u64),
        key: &mut Vec<u8>,
    ) -> Attempt<bool> {
        let root = self.root(pool, first)?;
        let before = self.rank(pool, first, Ranked::Below(from))?;
        let found = self.select(pool, second, before.saturating_add(number), key)?;
        // Each change of a count changes the root, too.
        root.validate()?;
        Ok(found)
    }

    fn select<'p>(
        &self,
        pool: &'p Pool,
        access: &mut impl Access<'p>,
        number: u64,
        key: &mut Vec<u8>,
    ) -> Attempt<bool> {
        key.clear();
        let mut behind = number;
        let mut is_behind_all = false;
        let root = self.root(pool, access)?;
        let start = Start {
            node: root,
            level: None,
        };
        let (leaf, node) = self.descend_from(pool, access, start, 0, |_, node| {
            let (index, rest) = child_of(node, behind);
            is_behind_all |= index == node.count();
            behind = rest;
            index.min(node.count() - 1)
        })?;
        let index = usize::try_from(behind).unwrap_or(usize::MAX);
        if is_behind_all || index >= node.count() {
            leaf.validate()?;
            if root.page() == leaf.page() || is_behind_all {
                return Ok(false);
            }
            return damaged(&leaf, "has fewer records than the nodes above it count");
        }
        node.copy_key(index, key);
        leaf.validate()?;
        Ok(true)
    }

    /// Inserts a record into a counted tree.
    pub(crate) fn insert_counted(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        (record, place): (&Record<'_>, &Place),
        work: &mut Work,
        old: &mut OldValue,
    ) -> Attempt<Round> {
        let near = place.reach(*self, pool, record.key);
        if let Some((leaf, spot)) = near.filter(|(_, spot)| spot.exact)
            && leaf.room_here(spot, record).is_some()
        {
            old.clear();
            let is_rightmost = place.finger().is_rightmost();
            let seat = (leaf, spot, is_rightmost);
            return self.put_in_leaf(pool, token, marks, seat, (Fit::InPlace, record), work);
        }
        let mut is_rightmost = true;
        let (path, leaf) = self.descend_with_path(pool, &mut OptimisticAccess, |node| {
            let index = node.child_for(record.key);
            is_rightmost &= index + 1 == node.count();
            index
        })?;
        let leaf = Leaf::at(leaf);
        let spot = leaf.find(record.key);
        let seat = (leaf, spot, is_rightmost);
        old.clear();
        if spot.exact {
            self.collect_old(pool, &leaf, spot, old)?;
        }
        if leaf.fits_in_place(spot, record) {
            let change = (Fit::InPlace, record);
            return self.put_counted(pool, token, marks, (seat, &path), change, work);
        }
        let parent = path.steps().next_back().map(|step| (step.node, step.index));
        let above = (parent, Some(&path));
        self.insert_anew(pool, token, marks, (seat, above), record, work)
    }

    /// Puts the record into its leaf, which has room, and counts it if it is new.
    pub(crate) fn put_counted(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        ((leaf, spot, is_rightmost), path): ((Leaf<'_>, Spot, bool), &Path<'_>),
        change: (Fit, &Record<'_>),
        work: &mut Work,
    ) -> Attempt<Round> {
        let seat = (leaf, spot, is_rightmost);
        if spot.exact {
            return self.put_in_leaf(pool, token, marks, seat, change, work);
        }
        let mut end = Round::ParentSplit;
        path.count_above(0, token, || {
            end = self.put_in_leaf(pool, token, marks, seat, change, work)?;
            Ok(1)
        })?;
        Ok(end)
    }

    /// Removes the record of `key` from a counted tree.
    pub(crate) fn remove_counted(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        key: &[u8],
        scratch: &mut Scratch,
    ) -> Attempt<Removed> {
        let (path, leaf) =
            self.descend_with_path(pool, &mut OptimisticAccess, |node| node.child_for(key))?;
        let leaf = Leaf::at(leaf);
        let spot = leaf.find(key);
        if !spot.exact {
            return self.remove_at(pool, token, marks, (leaf, spot, key), scratch);
        }
        let mut removed = None;
        path.count_above(0, token, || {
            let at = (leaf, spot, key);
            removed = Some(self.remove_at(pool, token, marks, at, scratch)?);
            Ok(-1)
        })?;
        Ok(removed.expect("removed, or an error"))
    }
}

/// Returns the child of `node` that has the record of `number` below `node`, and the record's
/// number below that child; the number of entries if there is none.
fn child_of(node: &FrameNode<'_>, number: u64) -> (usize, u64) {
    let mut rest = number;
    for index in 0..node.count() {
        let records = node.records_below(index);
        if rest < records {
            return (index, rest);
        }
        rest -= records;
    }
    (node.count(), rest)
}

impl Path<'_> {
    /// Latches all nodes of the path but the `lowest` last ones, makes `change`, and adds the
    /// number of records that it returns to the counts of these nodes.
    ///
    /// # Errors
    /// [`pando_pool::Restart`], also that of `change`; no count has changed then.
    pub(crate) fn count_above(
        &self,
        lowest: usize,
        token: &ApplyToken<'_>,
        change: impl FnOnce() -> Attempt<i64>,
    ) -> Attempt<()> {
        let mut latches: [Option<(Exclusive<'_>, usize)>; LEVEL_MAX as usize + 1] =
            std::array::from_fn(|_| None);
        let above = self.len().saturating_sub(lowest);
        for (place, Step { node, index, .. }) in latches.iter_mut().zip(self.steps().take(above)) {
            *place = Some((node.upgrade()?, index));
        }
        let mut pages: [Option<(PageMut<'_>, usize)>; LEVEL_MAX as usize + 1] =
            std::array::from_fn(|_| None);
        for (page, latch) in pages.iter_mut().zip(latches.iter_mut().flatten()) {
            let (latch, index) = latch;
            *page = Some((latch.modify(token)?, *index));
        }
        let records = change()?;
        for (page, index) in pages.iter_mut().flatten() {
            let before = Node::open(page.words().slice()).records_below(*index);
            view::set_records_below(page, *index, before.wrapping_add_signed(records));
        }
        Ok(())
    }
}
