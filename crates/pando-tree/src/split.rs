//! Splits of a leaf for a new record, of an inner node for a new separator, and of the root.
//!
//! The left side stays in its page, and so do the marks and the child words of entries that are not
//! moved. The root keeps its page id: both sides move to new pages, and the root becomes their
//! parent. A parent without room is split first, as a change of its own, and the insertion starts
//! over.

use pando_format::TreeId;
use pando_format::page::PageKind;
use pando_pool::{ApplyToken, Attempt, Exclusive, Marks, Optimistic, Pool, Restart};
use pando_stats::Ticker;

use crate::access::OptimisticAccess;
use crate::descent::Path;
use crate::node::course::Course;
use crate::node::edit::{self, Fit};
use crate::node::list::{Count, Record, RecordList};
use crate::node::search::Spot;
use crate::node::view::{self, ChildWord, LEVEL_MAX, Node};
use crate::node::{cut, text};
use crate::postcondition::{assert_apart, assert_inherits, assert_parent};
use crate::scratch::{Nearby, Work};
use crate::tree::{Tree, allocate, damaged, free, marks_of, opened, stamp};
use crate::word::Store;

/// A parent and the index of the child that is split.
pub(crate) type ParentStep<'p> = (Optimistic<'p>, usize);

/// A leaf to split, and the record for which it is split.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeafSplit<'a, 'p> {
    /// The leaf at the version at which `fit` and `spot` were found.
    pub(crate) leaf: Optimistic<'p>,
    /// None for a leaf that is the root.
    pub(crate) parent: Option<ParentStep<'p>>,
    /// In a counted tree, all inner nodes above the leaf.
    pub(crate) path: Option<&'a Path<'p>>,
    /// [`Fit::Split`] or [`Fit::Alone`].
    pub(crate) fit: Fit,
    /// Where the record belongs in the leaf as it is now.
    pub(crate) spot: Spot,
    /// What the record adds to the counts of the nodes above.
    pub(crate) added: i64,
    /// The record that has to be in one of the halves afterwards.
    pub(crate) record: &'a Record<'a>,
    /// The course of a run of insertions that the record continues.
    pub(crate) course: Option<Course>,
}

/// Entries that one page will hold.
#[derive(Debug, Clone, Copy)]
struct Side<'a> {
    list: &'a RecordList,
    from: usize,
    to: usize,
    /// Maximum length of the prefix in bytes.
    prefix_bytes_max: usize,
}

impl<'a> Side<'a> {
    fn all(list: &'a RecordList) -> Self {
        Self {
            list,
            from: 0,
            to: list.len(),
            prefix_bytes_max: usize::MAX,
        }
    }

    fn halves(list: &'a RecordList, cut: usize) -> (Self, Self) {
        assert!((1..list.len()).contains(&cut), "a side without entries");
        let left = Self {
            list,
            to: cut,
            ..Self::all(list)
        };
        let right = Self {
            list,
            from: cut,
            ..Self::all(list)
        };
        (left, right)
    }

    /// Number of records in, or below, the entries, which are of the counted tree `tree`.
    fn records(self, tree: TreeId) -> u64 {
        self.list.records(tree, self.from, self.to)
    }

    fn build<P: Store + ?Sized>(self, page: &mut P) {
        let prefix_bytes = self
            .list
            .prefix_to_fit(self.from, self.to)
            .expect("a cut is chosen such that both sides fit");
        let prefix_bytes = prefix_bytes.min(self.prefix_bytes_max);
        self.list.build(page, self.from, self.to, prefix_bytes);
    }
}

/// A split that has been decided.
#[derive(Debug, Clone, Copy)]
struct Plan<'a, 'p> {
    node: Optimistic<'p>,
    parent: Option<ParentStep<'p>>,
    /// In a counted tree, if the change adds to the counts: all inner nodes above the leaf.
    path: Option<&'a Path<'p>>,
    /// What it adds to them.
    added: i64,
    /// None if the left side stays as it is.
    left: Option<Side<'a>>,
    right: Side<'a>,
    /// Number of entries of both sides together.
    entries: usize,
    separator: &'a [u8],
    /// Marks of the change; only for leaves.
    marks: Option<Marks>,
}

/// How a split ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SplitEnd {
    /// Done.
    Done,
    /// The parent has to be split first.
    ParentFull,
}

impl Tree {
    /// Splits a leaf and puts the record where it belongs.
    pub(crate) fn split_leaf(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        split: &LeafSplit<'_, '_>,
        work: &mut Work,
    ) -> Attempt<SplitEnd> {
        let page_words = pool.page_size().words();
        let record = split.record;
        let list = &work.list;
        let sides = if split.fit == Fit::Alone {
            work.alone.load_one(record, false, page_words);
            let (old, new) = (Side::all(list), Side::all(&work.alone));
            let first = split.spot.index == 0;
            let neighbour = if first { 0 } else { list.len() - 1 };
            list.copy_key(neighbour, &mut work.key);
            let (smaller, greater): (&[u8], &[u8]) = if first {
                (record.key, &work.key)
            } else {
                (&work.key, record.key)
            };
            text::separate(smaller, greater, &mut work.separator);
            if first { (new, old) } else { (old, new) }
        } else {
            let beside = split
                .course
                .and_then(|course| cut::beside(list, split.spot.index, course));
            let Some(cut) = beside.or_else(|| cut::balanced(list)) else {
                return damaged(&split.leaf, "holds a record that is too long");
            };
            list.copy_separator(cut, &mut work.separator);
            Side::halves(list, cut)
        };
        let plan = Plan {
            node: split.leaf,
            parent: split.parent,
            path: split.path.filter(|_| split.added != 0),
            added: split.added,
            left: Some(sides.0),
            right: sides.1,
            entries: list.len() + usize::from(split.fit == Fit::Alone),
            separator: &work.separator,
            marks: Some(marks),
        };
        self.carry_out(pool, token, &plan, &mut work.parent_list)
    }

    /// Begins a leaf with `record` after `leaf`, which is full, the last one below `parent`, and
    /// stays as it is. So keys that arrive in order are never moved.
    pub(crate) fn begin_leaf(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        (leaf, parent, path): (Optimistic<'_>, ParentStep<'_>, Option<&Path<'_>>),
        record: &Record<'_>,
        work: &mut Work,
    ) -> Attempt<SplitEnd> {
        let node = Node::open(leaf.words().slice());
        node.copy_key(node.count().saturating_sub(1), &mut work.key);
        text::separate(&work.key, record.key, &mut work.separator);
        work.alone.load_one(record, false, pool.page_size().words());
        let right = Side {
            // The following keys probably share the prefix of these, so the leaf need not be
            // written again with a shorter prefix.
            prefix_bytes_max: node.prefix_bytes(),
            ..Side::all(&work.alone)
        };
        let plan = Plan {
            node: leaf,
            parent: Some(parent),
            path,
            added: record.weight(self.id).cast_signed(),
            left: None,
            right,
            entries: node.count() + 1,
            separator: &work.separator,
            marks: Some(marks),
        };
        self.carry_out(pool, token, &plan, &mut work.parent_list)
    }

    /// Splits the leaf of `key` before entry `index`, because writers contend for both sides. The
    /// split is optional: it is skipped if anything is in the way.
    #[cold]
    pub(crate) fn part(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        key: &[u8],
        index: usize,
        work: &mut Work,
    ) {
        let _left_out = self.try_part(pool, token, marks, key, index, work);
    }

    fn try_part(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        key: &[u8],
        index: usize,
        work: &mut Work,
    ) -> Attempt<()> {
        let mut parent = None;
        let leaf = self.descend(pool, &mut OptimisticAccess, 0, |here, node| {
            let index = node.child_for(key);
            parent = Some((here, index));
            index
        })?;
        let list = &mut work.list;
        let is_whole = list.load(&Node::open(leaf.words().slice()));
        // A torn list would be cut at a meaningless place.
        leaf.validate()?;
        let Some(cut) = is_whole.then(|| cut::in_front_of(list, index)).flatten() else {
            return Ok(());
        };
        list.copy_separator(cut, &mut work.separator);
        let (left, right) = Side::halves(list, cut);
        let plan = Plan {
            node: leaf,
            parent,
            path: None,
            added: 0,
            left: Some(left),
            right,
            entries: list.len(),
            separator: &work.separator,
            marks: Some(marks),
        };
        // If the parent has no room, nothing is split.
        let end = self.carry_out(pool, token, &plan, &mut work.parent_list)?;
        if end == SplitEnd::Done {
            work.nearby = Nearby::default();
        }
        Ok(())
    }

    /// Makes room in the inner node of `level` for the separator in `work.pending`.
    pub(crate) fn make_room(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        level: u8,
        course: Option<Course>,
        work: &mut Work,
    ) -> Attempt<()> {
        for level in level..=LEVEL_MAX {
            match self.split_inner(pool, token, level, course, work)? {
                SplitEnd::Done => return Ok(()),
                SplitEnd::ParentFull => std::mem::swap(&mut work.pending, &mut work.separator),
            }
        }
        Err(Restart::Damaged(self.root, "is too tall"))
    }

    fn split_inner(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        level: u8,
        course: Option<Course>,
        work: &mut Work,
    ) -> Attempt<SplitEnd> {
        let key = &work.pending;
        let mut parent = None;
        let here = self.descend(pool, &mut OptimisticAccess, level, |here, node| {
            let index = node.child_for(key);
            parent = Some((here, index));
            index
        })?;
        let node = Node::open(here.words().slice());
        if node.level() != level || node.count() < 2 || !work.list.load(&node) {
            // The tree has changed since there was no room.
            return Err(Restart::Conflict);
        }
        let list = &work.list;
        let index = node.child_for(key);
        let cut = if !node.shares_prefix(key) {
            // The separator needs a node with another prefix.
            let at_end = index + 1 == node.count();
            Some(if at_end { index } else { 1 })
        } else {
            course.and_then(|course| cut::behind_run(list, index, course))
        };
        let Some(cut) = cut.or_else(|| cut::balanced(list)) else {
            return damaged(&here, "holds a separator that is too long");
        };
        list.copy_separator(cut, &mut work.separator);
        let (left, right) = Side::halves(list, cut);
        let plan = Plan {
            node: here,
            parent,
            path: None,
            added: 0,
            left: Some(left),
            right,
            entries: list.len(),
            separator: &work.separator,
            marks: None,
        };
        self.carry_out(pool, token, &plan, &mut work.parent_list)
    }

    /// Carries a plan out. In a counted tree, what its record adds is counted on the way from the
    /// root.
    fn carry_out(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        plan: &Plan<'_, '_>,
        parent_list: &mut RecordList,
    ) -> Attempt<SplitEnd> {
        let Some((parent, index)) = plan.parent else {
            return self.split_root(pool, token, plan, parent_list);
        };
        let parent = (parent, index);
        let Some(path) = plan.path else {
            return self.split_below(pool, token, plan, parent, parent_list);
        };
        let mut end = SplitEnd::ParentFull;
        path.count_above(1, token, || {
            end = self.split_below(pool, token, plan, parent, parent_list)?;
            Ok(match end {
                SplitEnd::Done => plan.added,
                SplitEnd::ParentFull => 0,
            })
        })?;
        Ok(end)
    }

    fn split_below(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        plan: &Plan<'_, '_>,
        (parent, index): ParentStep<'_>,
        parent_list: &mut RecordList,
    ) -> Attempt<SplitEnd> {
        let parent_node = Node::open(parent.words().slice());
        let spot = Spot {
            index: index + 1,
            exact: false,
        };
        let (left_count, right_count) = self.counts(plan);
        let unknown = Record::separator(plan.separator, ChildWord(0), &right_count);
        let fit = edit::prepare(&parent_node, spot, &unknown, parent_list);
        if parent_node.find(plan.separator) != spot {
            plan.node.validate()?;
            return damaged(&parent, "has a child whose keys are not between its own");
        }
        match fit {
            Fit::Split | Fit::Alone => {
                parent.validate()?;
                return Ok(SplitEnd::ParentFull);
            }
            Fit::Torn => return damaged(&parent, "holds records longer than a page"),
            Fit::InPlace | Fit::Rebuild => {}
        }
        let node = Node::open(plan.node.words().slice());
        let (kind, level) = (kind_of(&node), node.level());
        let inherited = marks_of(&node);
        let mut parent_latch = parent.upgrade()?;
        let mut node_latch = plan.node.upgrade()?;
        let mut parent_page = parent_latch.rebuild(token)?;
        let mut node_page = match plan.left {
            Some(side) => Some((side, node_latch.rebuild(token)?)),
            None => None,
        };
        let mut right = allocate(pool, token, self.id, kind, level)?;
        let child = ChildWord::new(right.page(), right.hint());

        write_side(&mut right, token, plan, plan.right)?;
        if let Some((side, page)) = &mut node_page {
            side.build(page);
            if let Some(marks) = plan.marks {
                stamp(page, marks);
            }
        }
        if fit == Fit::Rebuild {
            parent_list.set_child(spot.index, child);
        }
        let record = Record::separator(plan.separator, child, &right_count);
        edit::put(&mut parent_page, fit, spot, &record, parent_list);
        if let Some(records) = left_count.records() {
            view::set_records_below(&mut parent_page, index, records);
        }
        let (left, right_node) = (opened(&node_latch), opened(&right));
        assert_apart(&left, &right_node, plan.separator, plan.entries);
        let children = (node_latch.page(), right.page());
        let parent_node = opened(&parent_latch);
        assert_parent(&parent_node, spot.index, children, plan.separator, level);
        if plan.marks.is_some() {
            assert_inherits(&left, inherited);
            assert_inherits(&right_node, inherited);
        }
        pool.statistics().tick(Ticker::Splits, 1);
        Ok(SplitEnd::Done)
    }

    /// Returns what the parent will tell of both sides.
    fn counts(&self, plan: &Plan<'_, '_>) -> (Count, Count) {
        let left = match plan.left {
            Some(side) => side.records(self.id),
            None => Node::open(plan.node.words().slice()).records(),
        };
        (
            Count::of(self.id, left),
            Count::of(self.id, plan.right.records(self.id)),
        )
    }

    fn split_root(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        plan: &Plan<'_, '_>,
        list: &mut RecordList,
    ) -> Attempt<SplitEnd> {
        let sides = plan.left.zip(Some(plan.right));
        let (left_side, right_side) = sides.expect("a root has nothing that stays as it is");
        let node = Node::open(plan.node.words().slice());
        let (kind, level, inherited) = (kind_of(&node), node.level(), marks_of(&node));
        if level >= LEVEL_MAX {
            return damaged(&plan.node, "is too tall");
        }
        let mut root = plan.node.upgrade()?;
        let mut root_page = root.rebuild(token)?;
        let mut left = allocate(pool, token, self.id, kind, level)?;
        let mut right = match allocate(pool, token, self.id, kind, level) {
            Ok(right) => right,
            Err(restart) => {
                free(left, token);
                return Err(restart);
            }
        };
        let (left_count, right_count) = self.counts(plan);
        let left_child = ChildWord::new(left.page(), left.hint());
        let right_child = ChildWord::new(right.page(), right.hint());
        write_side(&mut left, token, plan, left_side)?;
        write_side(&mut right, token, plan, right_side)?;
        view::reset(&mut root_page, PageKind::Inner, level + 1);
        let left_entry = Record::separator(&[], left_child, &left_count);
        let right_entry = Record::separator(plan.separator, right_child, &right_count);
        edit::build_root(&mut root_page, &left_entry, &right_entry, list);
        let (left_node, right_node, root_node) = (opened(&left), opened(&right), opened(&root));
        assert_apart(&left_node, &right_node, plan.separator, plan.entries);
        let children = (left.page(), right.page());
        assert_parent(&root_node, 1, children, plan.separator, level);
        assert_eq!(root_node.count(), 2, "a new root has two children");
        if plan.marks.is_some() {
            assert_inherits(&left_node, inherited);
            assert_inherits(&right_node, inherited);
        }
        pool.statistics().tick(Ticker::Splits, 1);
        Ok(SplitEnd::Done)
    }
}

fn kind_of(node: &crate::tree::FrameNode<'_>) -> PageKind {
    if node.is_inner() {
        PageKind::Inner
    } else {
        PageKind::Leaf
    }
}

/// Fills a new page, which is already dirty in this apply section, and lets it inherit the marks.
fn write_side(
    latch: &mut Exclusive<'_>,
    token: &ApplyToken<'_>,
    plan: &Plan<'_, '_>,
    side: Side<'_>,
) -> Attempt<()> {
    let mut page = latch.rebuild(token)?;
    side.build(&mut page);
    if let Some(marks) = plan.marks {
        let (lsn_max, multi_lsn) = marks_of(&Node::open(plan.node.words().slice()));
        view::raise_marks(&mut page, lsn_max, multi_lsn);
        stamp(&mut page, marks);
    }
    Ok(())
}
