//! Sorted keys of one leaf of a counted tree that are removed under one latch of its path.
//!
//! Each removal changes the counts of all nodes above its leaf (`counted`). Those of neighbours, as
//! of the first elements of a collection, would change the same counts one after the other. Here
//! the path is latched once, and each count changes once, by all of them. A key that is not in the
//! leaf, or whose value lies elsewhere, ends the run, and the caller removes it by itself.

use pando_pool::{ApplyToken, Attempt, Marks, Pool};

use crate::descent::Path;
use crate::leaf::{Leaf, LeafChange};
use crate::node::search::Spot;
use crate::place::Place;
use crate::remove::LeafFill;
use crate::tree::Tree;

/// What a run has removed from the leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemovedRun {
    /// Number of records.
    pub records: usize,
    /// Bytes of their keys.
    pub bytes: usize,
    /// How full the leaf is now.
    pub leaf_fill: LeafFill,
}

impl RemovedRun {
    /// Nothing was removed.
    const NONE: Self = Self {
        records: 0,
        bytes: 0,
        leaf_fill: LeafFill::Enough,
    };
}

impl Tree {
    /// Removes the record of `first`, which was found at `place`, and those of the rest, whose keys
    /// ascend, for as long as they are in the same leaf, with values that lie there. Removes no
    /// record if anything is in the way: then nothing has changed, and the caller uses
    /// [`Tree::try_remove_at`].
    ///
    /// # Panics
    /// When the tree is not counted.
    pub fn remove_run<'k>(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        (place, first, rest): (&Place, &'k [u8], impl Iterator<Item = &'k [u8]>),
    ) -> RemovedRun {
        assert!(self.id.is_counted(), "{} does not count", self.id);
        let near = place.reach(*self, pool, first);
        let near = near.map(|(leaf, spot)| (leaf, spot, false));
        let mut path = Path::new();
        let Ok((leaf, spot, _)) = self.counted_seat(pool, first, near, &mut path) else {
            return RemovedRun::NONE;
        };
        if !spot.exact || !leaf.node.slot(spot.index).is_plain() {
            return RemovedRun::NONE;
        }
        let mut run = RemovedRun::NONE;
        let counted = path.count_above(0, token, || {
            let weight;
            (run, weight) = self.remove_from(&leaf, (token, marks), (spot, first, rest))?;
            Ok(-weight.cast_signed())
        });
        match counted {
            Ok(()) => run,
            Err(_) => RemovedRun::NONE,
        }
    }

    /// Removes the record at `spot`, that of `first`, and those of the rest. Also returns what they
    /// have counted for.
    fn remove_from<'k>(
        &self,
        leaf: &Leaf<'_>,
        (token, marks): (&ApplyToken<'_>, Marks),
        (spot, first, rest): (Spot, &'k [u8], impl Iterator<Item = &'k [u8]>),
    ) -> Attempt<(RemovedRun, u64)> {
        let mut latch = leaf.latch()?;
        let mut change = LeafChange::begin(&mut latch, token)?;
        let mut weight = change.weight(spot);
        change.remove(spot);
        let (mut records, mut bytes) = (1, first.len());
        let mut last = first;
        for key in rest {
            debug_assert!(last < key, "keys that do not ascend");
            last = key;
            let Some(spot) = change.plain_spot(key) else {
                break;
            };
            weight += change.weight(spot);
            change.remove(spot);
            (records, bytes) = (records + 1, bytes + key.len());
        }
        change.end(marks);
        let left = Leaf::at(leaf.here);
        assert_eq!(
            left.count() + records,
            leaf.count(),
            "each takes one record"
        );
        debug_assert!(!left.find(first).exact, "a key that was removed is there");
        let run = RemovedRun {
            records,
            bytes,
            leaf_fill: self.fill_left(leaf, &left),
        };
        Ok((run, weight))
    }
}
