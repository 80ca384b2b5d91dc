//! Counted trees (decision 079): each inner entry tells how many records lie below it. So the tree
//! answers how many keys are smaller than one, and which key has a given number, by one descent
//! each. (Knuth, The Art of Computer Programming, volume 3, 6.2.3, has this for binary trees.) In a
//! weighted tree (decision 117) a record counts as often as its weight says: it stands for so many
//! units, which have numbers in its place.
//!
//! A change that adds or removes a record, or gives one another weight, takes the latches of all
//! nodes from the root to the leaf, at the versions at which it has seen them, changes the leaf,
//! and goes back up: each node is counted and then released, so no latch is released before that of
//! the node below it. Latches are only ever tried, so no order of them can deadlock. Several
//! records of one leaf are one change (`run`, `remove_run`). A value that is replaced by one of the
//! same weight changes its leaf alone; what it weighs was read at the version at which the leaf is
//! latched. Changes of the structure move records between neighbours and add none: they write what
//! they know of both sides to the parent, and leave the nodes above alone.
//!
//! **Why a descent without latches counts right.** It takes the version of a child while the parent
//! is not latched, and unchanged since its own version was taken: that is checked afterwards.
//! Consider a change that passes through both. It holds the parent's latch from before it takes the
//! child's until it has released that. So it lies wholly before both versions, or after both: one
//! that had released the child when the child's version was taken had released the parent, too,
//! which was not latched; had it not when the parent's version was taken, the parent would have
//! changed in between. So down from the root, each node shows those changes through it that the
//! root shows, and a change that does not pass through a node counts in the entries of nodes above
//! it only. The result is that of the moment at which the root's version was taken.
//!
//! For the same reason what the parent's entry tells is what all entries of the child make up
//! together, and a reader may add up the entries behind its place instead of those before it.

use pando_pool::{ApplyToken, Attempt, Marks, Optimistic, Pool};

use crate::access::{Access, OptimisticAccess, SharedAccess, retry_then_latch};
use crate::descent::{Path, Start, Step};
use crate::finger::Finger;
use crate::insert::Round;
use crate::known_rank::KnownRank;
use crate::leaf::{Leaf, Lookup};
use crate::node::edit::Fit;
use crate::node::list::Record;
use crate::node::search::Spot;
use crate::node::view::{self, Node};
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

/// What a descent to a record by its number has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selected {
    /// There are not that many records.
    None,
    /// The key has been copied, and the value: what is to be said of that, and where the key is. So
    /// many units of the record lie before the one that was looked for.
    Record(Lookup, Place, u64),
    /// The key has been copied, and so many units lie before. The value does not lie in the leaf.
    Key(u64),
}

/// A leaf, a spot in it, and whether no leaf lies to its right.
type CountedSeat<'p> = (Leaf<'p>, Spot, bool);

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
    /// All records of `from` are among `to`. The rank of `from` is kept in `known`.
    ///
    /// # Errors
    /// As [`Tree::try_rank`].
    ///
    /// # Panics
    /// When the tree is not counted.
    pub fn try_count(
        &self,
        pool: &Pool,
        from: Option<Ranked<'_>>,
        to: Ranked<'_>,
        known: &mut KnownRank,
    ) -> Attempt<u64> {
        let Some(from) = from else {
            return self.try_rank(pool, to);
        };
        assert!(self.id.is_counted(), "{} does not count", self.id);
        retry_then_latch(pool, |latched| match latched {
            None => {
                let both = [&mut OptimisticAccess, &mut OptimisticAccess];
                self.count(pool, both, (from, to), known)
            }
            Some(latched) => {
                let mut again = SharedAccess::default();
                self.count(pool, [latched, &mut again], (from, to), known)
            }
        })
    }

    fn count<'p>(
        &self,
        pool: &'p Pool,
        [first, second]: [&mut impl Access<'p>; 2],
        (from, to): (Ranked<'_>, Ranked<'_>),
        known: &mut KnownRank,
    ) -> Attempt<u64> {
        let root = self.root(pool, first)?;
        let before = match from {
            Ranked::Below(key) => self.rank_below(pool, first, (&root, key), known)?,
            Ranked::UpTo(_) | Ranked::All => self.rank(pool, first, from)?,
        };
        let all = self.rank(pool, second, to)?;
        // Each change of a count changes the root, too.
        root.validate()?;
        Ok(all.wrapping_sub(before))
    }

    /// Returns the number of records below `key`, as of the version of `root` if that still holds,
    /// and keeps it.
    #[inline]
    fn rank_below<'p>(
        &self,
        pool: &'p Pool,
        access: &mut impl Access<'p>,
        (root, key): (&Optimistic<'p>, &[u8]),
        known: &mut KnownRank,
    ) -> Attempt<u64> {
        if let Some(below) = known.of(root, key) {
            return Ok(below);
        }
        let below = self.rank(pool, access, Ranked::Below(key))?;
        // If the root has changed meanwhile, this is of no use, and does no harm: no root has its
        // old version again.
        known.keep(root, key, below);
        Ok(below)
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
        let mut all = None;
        let (leaf, node) = self.descend_from(pool, access, start, 0, |_, node| {
            let index = node.child_for(key);
            let before = match all {
                Some(all) => node.records_before_of(index, all),
                None => node.records_before(index),
            };
            smaller = smaller.wrapping_add(before);
            all = Some(node.records_below(index));
            index
        })?;
        let spot = node.find_in_leaf(key);
        let itself = spot.exact && matches!(ranked, Ranked::UpTo(_));
        let entries = spot.index + usize::from(itself);
        let before = match all.filter(|_| self.id.is_weighted()) {
            Some(all) => node.records_before_of(entries, all),
            None => node.records_before(entries),
        };
        leaf.validate()?;
        Ok(smaller.wrapping_add(before))
    }

    /// Replaces `key` by the key of record `number`, counted from 0, in order. Returns None if
    /// there are not that many. In a weighted tree it is the record that has unit `number`, and so
    /// many of its units as are returned lie before that one; else that is 0.
    ///
    /// # Errors
    /// [`pando_pool::Restart`]; what `key` holds then has no meaning.
    ///
    /// # Panics
    /// When the tree is not counted.
    pub fn try_select(&self, pool: &Pool, number: u64, key: &mut Vec<u8>) -> Attempt<Option<u64>> {
        assert!(self.id.is_counted(), "{} does not count", self.id);
        retry_then_latch(pool, |latched| match latched {
            None => self.select(pool, &mut OptimisticAccess, number, key),
            Some(latched) => self.select(pool, latched, number, key),
        })
    }

    /// As [`Tree::try_select`], but counted from the first record whose key is not below `from`, as
    /// of one moment. The rank of `from` is kept in `known`.
    ///
    /// # Errors
    /// As [`Tree::try_select`].
    ///
    /// # Panics
    /// When the tree is not counted.
    pub fn try_select_from(
        &self,
        pool: &Pool,
        (from, number): (&[u8], u64),
        key: &mut Vec<u8>,
        known: &mut KnownRank,
    ) -> Attempt<Option<u64>> {
        assert!(self.id.is_counted(), "{} does not count", self.id);
        retry_then_latch(pool, |latched| match latched {
            None => {
                let both = [&mut OptimisticAccess, &mut OptimisticAccess];
                self.select_from(pool, both, (from, number), key, known)
            }
            Some(latched) => {
                let mut again = SharedAccess::default();
                self.select_from(pool, [latched, &mut again], (from, number), key, known)
            }
        })
    }

    /// As [`Tree::try_select_from`], and replaces `value` by the value of the record, if it lies in
    /// the leaf: another descent to the key is left out.
    ///
    /// # Errors
    /// As [`Tree::try_select`].
    ///
    /// # Panics
    /// When the tree is not counted.
    pub fn try_select_record(
        &self,
        pool: &Pool,
        (from, number): (&[u8], u64),
        (key, value): (&mut Vec<u8>, &mut Vec<u8>),
        known: &mut KnownRank,
    ) -> Attempt<Selected> {
        assert!(self.id.is_counted(), "{} does not count", self.id);
        retry_then_latch(pool, |latched| match latched {
            None => {
                let both = [&mut OptimisticAccess, &mut OptimisticAccess];
                self.select_record(pool, both, (from, number), (&mut *key, &mut *value), known)
            }
            Some(latched) => {
                let mut again = SharedAccess::default();
                let both = [latched, &mut again];
                self.select_record(pool, both, (from, number), (&mut *key, &mut *value), known)
            }
        })
    }

    fn select_record<'p>(
        &self,
        pool: &'p Pool,
        [first, second]: [&mut impl Access<'p>; 2],
        (from, number): (&[u8], u64),
        (key, value): (&mut Vec<u8>, &mut Vec<u8>),
        known: &mut KnownRank,
    ) -> Attempt<Selected> {
        value.clear();
        let root = self.root(pool, first)?;
        let before = self.rank_below(pool, first, (&root, from), known)?;
        let seat = self.select_seat(pool, second, before.saturating_add(number), key)?;
        let selected = match seat {
            None => Selected::None,
            Some(((leaf, spot, is_rightmost), offset)) => match leaf.read_short(spot, value)? {
                None => Selected::Key(offset),
                Some(lookup) => {
                    let finger = Finger::at(*self, leaf.here, is_rightmost);
                    Selected::Record(lookup, Place::at(finger, spot), offset)
                }
            },
        };
        // Each change of a count changes the root, too.
        root.validate()?;
        Ok(selected)
    }

    fn select_from<'p>(
        &self,
        pool: &'p Pool,
        [first, second]: [&mut impl Access<'p>; 2],
        (from, number): (&[u8], u64),
        key: &mut Vec<u8>,
        known: &mut KnownRank,
    ) -> Attempt<Option<u64>> {
        let root = self.root(pool, first)?;
        let before = self.rank_below(pool, first, (&root, from), known)?;
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
    ) -> Attempt<Option<u64>> {
        let seat = self.select_seat(pool, access, number, key)?;
        Ok(seat.map(|(_, offset)| offset))
    }

    /// Replaces `key` by the key of record `number`, and returns where it is, if there are so many,
    /// and the number of its units that lie before.
    #[inline]
    fn select_seat<'p>(
        &self,
        pool: &'p Pool,
        access: &mut impl Access<'p>,
        number: u64,
        key: &mut Vec<u8>,
    ) -> Attempt<Option<(CountedSeat<'p>, u64)>> {
        key.clear();
        let mut behind = number;
        let (mut is_behind_all, mut is_rightmost) = (false, true);
        let root = self.root(pool, access)?;
        let start = Start {
            node: root,
            level: None,
        };
        let mut all = None;
        let (leaf, node) = self.descend_from(pool, access, start, 0, |_, node| {
            let (index, rest) = entry_of(node, behind, all);
            is_behind_all |= index == node.count();
            behind = rest;
            let index = index.min(node.count() - 1);
            is_rightmost &= index + 1 == node.count();
            all = Some(node.records_below(index));
            index
        })?;
        let (index, offset) = match self.id.is_weighted() {
            true => entry_of(&node, behind, all),
            false => (usize::try_from(behind).unwrap_or(usize::MAX), 0),
        };
        if is_behind_all || index >= node.count() {
            leaf.validate()?;
            if root.page() == leaf.page() || is_behind_all {
                return Ok(None);
            }
            return damaged(&leaf, "has fewer records than the nodes above it count");
        }
        node.copy_key(index, key);
        leaf.validate()?;
        let spot = Spot { index, exact: true };
        let seat = (Leaf { here: leaf, node }, spot, is_rightmost);
        Ok(Some((seat, offset)))
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
        let near = near.map(|(leaf, spot)| (leaf, spot, place.finger().is_rightmost()));
        if let Some(seat @ (leaf, spot, _)) = near.filter(|(_, spot, _)| spot.exact)
            && record.adds(&leaf.node, spot) == 0
            && leaf.room_here(spot, record).is_some()
        {
            old.clear();
            return self.put_in_leaf(pool, token, marks, seat, (Fit::InPlace, record), work);
        }
        let mut path = Path::new();
        let seat = self.counted_seat(pool, record.key, near, &mut path)?;
        let (leaf, spot, is_rightmost) = seat;
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

    /// Puts the record into its leaf, which has room, and counts what it adds.
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
        let (_, record) = change;
        // Of the version at which the leaf is latched then.
        let added = record.adds(&leaf.node, spot);
        if added == 0 {
            return self.put_in_leaf(pool, token, marks, seat, change, work);
        }
        let mut end = Round::ParentSplit;
        path.count_above(0, token, || {
            end = self.put_in_leaf(pool, token, marks, seat, change, work)?;
            Ok(added)
        })?;
        Ok(end)
    }

    /// Removes the record of `key`, which was found at `place`, from a counted tree.
    pub(crate) fn remove_counted(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        (key, place): (&[u8], &Place),
        scratch: &mut Scratch,
    ) -> Attempt<Removed> {
        let near = place.reach(*self, pool, key);
        let near = near.map(|(leaf, spot)| (leaf, spot, false));
        let mut path = Path::new();
        let (leaf, spot, _) = self.counted_seat(pool, key, near, &mut path)?;
        if !spot.exact {
            return self.remove_at(pool, token, marks, (leaf, spot, key), scratch);
        }
        let mut removed = None;
        let weight = leaf.node.weight(leaf.node.slot(spot.index));
        path.count_above(0, token, || {
            let at = (leaf, spot, key);
            removed = Some(self.remove_at(pool, token, marks, at, scratch)?);
            Ok(-weight.cast_signed())
        })?;
        Ok(removed.expect("removed, or an error"))
    }

    /// Finds the leaf of `key` in a counted tree, the spot of the key there, and whether no leaf
    /// lies to its right, and fills `path` with the nodes above it. If the leaf is known as `near`,
    /// it is not searched: it covers the key for as long as its version is the same, and the path
    /// is that to it if the lowest node of the path names it.
    #[inline]
    pub(crate) fn counted_seat<'p>(
        &self,
        pool: &'p Pool,
        key: &[u8],
        near: Option<CountedSeat<'p>>,
        path: &mut Path<'p>,
    ) -> Attempt<CountedSeat<'p>> {
        if let Some(seat) = near {
            let (leaf, ..) = seat;
            if self.path_above(pool, path, (key, leaf.here.page()))? {
                return Ok(seat);
            }
        }
        let mut is_rightmost = true;
        let leaf = self.descend_with_path(pool, &mut OptimisticAccess, path, |node| {
            let index = node.child_for(key);
            is_rightmost &= index + 1 == node.count();
            index
        })?;
        let leaf = Leaf::at(leaf);
        Ok((leaf, leaf.find(key), is_rightmost))
    }
}

/// Returns the entry of `node` that has the record of `number` in, or below, `node`, and the
/// record's number there; the number of entries if there is none. `all` is the number of all
/// records of `node`, if it is known: the search begins at the nearer end then.
fn entry_of(node: &FrameNode<'_>, number: u64, all: Option<u64>) -> (usize, u64) {
    if let Some(all) = all.filter(|all| number < *all && number >= *all / 2) {
        let mut behind = all - number;
        for index in (0..node.count()).rev() {
            let records = node.records_at(index);
            if behind <= records {
                return (index, records - behind);
            }
            behind -= records;
        }
        // The node has changed since its parent was read, which will be found out.
    }
    let mut rest = number;
    for index in 0..node.count() {
        let records = node.records_at(index);
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
        let above = self.len().saturating_sub(lowest);
        count_through(self.first(above), token, change).map(drop)
    }
}

/// Latches the nodes of `steps` from the first one on, makes `change`, and counts it from the last
/// one up. Returns the number that it has added.
fn count_through(
    steps: &[Option<Step<'_>>],
    token: &ApplyToken<'_>,
    change: impl FnOnce() -> Attempt<i64>,
) -> Attempt<i64> {
    let Some((Some(Step { node, index, .. }), below)) = steps.split_first() else {
        return change();
    };
    let mut latch = node.upgrade()?;
    // Before anything changes below: it may have to wait for an image of the page.
    let mut page = latch.modify(token)?;
    let records = count_through(below, token, change)?;
    let before = Node::open(page.words().slice()).records_below(*index);
    view::set_records_below(&mut page, *index, before.wrapping_add_signed(records));
    Ok(records)
}
