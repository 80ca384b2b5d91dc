//! Removal of a record.

use pando_pool::{ApplyToken, Attempt, Marks, Pool};

use crate::access::OptimisticAccess;
use crate::leaf::{Leaf, LeafChange};
use crate::node::search::Spot;
use crate::place::Place;
use crate::scratch::Scratch;
use crate::tree::{FrameNode, Tree, counted};

/// How full a removal left its leaf. The root never counts as underfull or empty, since nothing can
/// be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeafFill {
    /// Nothing to do, or nothing that an earlier removal has not reported.
    Enough,
    /// Less than a quarter, or an eighth, of the page is used for the first time: see
    /// [`Tree::try_merge`].
    Underfull,
    /// The leaf has no records: see [`Tree::try_remove_empty`].
    Empty,
}

/// Result of a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    /// True when there was a record, which is now removed.
    pub existed: bool,
    /// How full its leaf is now.
    pub leaf_fill: LeafFill,
}

impl Tree {
    /// Removes the record of `key`. Without such a record nothing changes, not even the marks.
    ///
    /// # Errors
    /// [`pando_pool::Restart`]; the record is unchanged then.
    pub fn try_remove(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        key: &[u8],
        scratch: &mut Scratch,
    ) -> Attempt<Removed> {
        let place = Place::default();
        self.try_remove_at(pool, token, marks, (key, &place), scratch)
    }

    /// Like [`Tree::try_remove`], without a search if the leaf of the place, which is that of the
    /// key, has not changed.
    ///
    /// # Errors
    /// As [`Tree::try_remove`].
    pub fn try_remove_at(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        at: (&[u8], &Place),
        scratch: &mut Scratch,
    ) -> Attempt<Removed> {
        let attempt = self.remove(pool, token, marks, at, scratch);
        counted(pool, attempt)
    }

    fn remove(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        (key, place): (&[u8], &Place),
        scratch: &mut Scratch,
    ) -> Attempt<Removed> {
        if self.id.is_counted() {
            return self.remove_counted(pool, token, marks, (key, place), scratch);
        }
        let (leaf, spot) = match place.reach(*self, pool, key) {
            Some(found) => found,
            None => {
                let leaf = self.descend(pool, &mut OptimisticAccess, 0, |_, node| {
                    node.child_for(key)
                })?;
                let leaf = Leaf::at(leaf);
                (leaf, leaf.find(key))
            }
        };
        self.remove_at(pool, token, marks, (leaf, spot, key), scratch)
    }

    /// Removes the record at `spot`, if it is that of `key`.
    pub(crate) fn remove_at(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        (leaf, spot, key): (Leaf<'_>, Spot, &[u8]),
        scratch: &mut Scratch,
    ) -> Attempt<Removed> {
        if !spot.exact {
            leaf.here.validate()?;
            scratch.old.clear();
            scratch.end_old();
            return Ok(Removed {
                existed: false,
                leaf_fill: LeafFill::Enough,
            });
        }
        scratch.old.clear();
        self.collect_old(pool, &leaf, spot, &mut scratch.old)?;
        let leaf_fill = {
            let mut latch = leaf.latch()?;
            let mut change = LeafChange::begin(&mut latch, token)?;
            change.remove(spot);
            change.end(marks);
            let left = Leaf::at(leaf.here);
            debug_assert_eq!(left.count() + 1, leaf.count(), "a removal takes one record");
            debug_assert!(!left.find(key).exact, "a key that was removed is there");
            self.fill_left(&leaf, &left)
        };
        scratch.free_old(pool, token);
        Ok(Removed {
            existed: true,
            leaf_fill,
        })
    }

    /// Returns what to report of a leaf that removals found as `before` and have left as `left`.
    pub(crate) fn fill_left(&self, before: &Leaf<'_>, left: &Leaf<'_>) -> LeafFill {
        if left.node.is_underfull() && left.here.page() != self.root {
            fill_below(&before.node, &left.node)
        } else {
            LeafFill::Enough
        }
    }
}

/// Returns what to report of an underfull leaf that was `before` and is now `left`. Falling below
/// each eighth of the page is reported once; otherwise every removal from a leaf with full
/// neighbours would be reported.
#[cold]
fn fill_below(before: &FrameNode<'_>, left: &FrameNode<'_>) -> LeafFill {
    let eighths = |used_bytes: usize| used_bytes / left.words().len();
    match left.count() {
        0 => LeafFill::Empty,
        _ if eighths(left.used_bytes()) < eighths(before.used_bytes()) => LeafFill::Underfull,
        _ => LeafFill::Enough,
    }
}
