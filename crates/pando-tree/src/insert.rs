//! Insertion and replacement.

use pando_format::PageId;
use pando_format::page::{SLOT_CHUNKED, SLOT_OVERFLOW};
use pando_pool::{ApplyToken, Attempt, Marks, Optimistic, Pool, Restart};

use crate::access::OptimisticAccess;
use crate::descent::Path;
use crate::finger::Finger;
use crate::leaf::{Leaf, LeafChange};
use crate::node::course::{Course, course_at};
use crate::node::cut::is_inline;
use crate::node::edit::Fit;
use crate::node::list::Record;
use crate::node::search::Spot;
use crate::node::view::ChildWord;
use crate::overflow::{OverflowHeader, VALUE_BYTES_MAX, collect_ids, read_index};
use crate::place::Place;
use crate::scratch::{Nearby, OldValue, Scratch, Work};
use crate::split::{LeafSplit, ParentStep, SplitEnd};
use crate::tree::{Tree, counted, damaged};

/// Number of parents that are split for one insertion before its caller starts it again.
const ROUNDS_MAX: usize = 64;

/// Result of an insertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inserted {
    /// True when the key existed and its value was replaced.
    pub replaced: bool,
}

/// Where a record belongs.
pub(crate) struct Seat<'p> {
    pub(crate) leaf: Leaf<'p>,
    pub(crate) spot: Spot,
    /// No leaf lies to the right of this one.
    pub(crate) is_rightmost: bool,
    way: LeafFoundBy<'p>,
}

/// How the leaf was found.
enum LeafFoundBy<'p> {
    /// By the place that was known, or by the finger of the last change.
    Near,
    /// By a descent: the parent of the leaf and the leaf's index there, None if the leaf is the
    /// root.
    Down(Option<ParentStep<'p>>),
}

/// The parent of a leaf and the leaf's index there, None if the leaf is the root; and in a counted
/// tree, all inner nodes above it.
pub(crate) type Above<'a, 'p> = (Option<ParentStep<'p>>, Option<&'a Path<'p>>);

/// Result of one round.
pub(crate) enum Round {
    Done { replaced: bool },
    ParentSplit,
}

impl Tree {
    /// Sets the value of `key`. After an `Err` the caller calls it again with the same value, or
    /// calls [`Scratch::abandon`]. After success [`Scratch::take_blob_ref`] returns the chunks of
    /// the old value.
    ///
    /// # Errors
    /// [`Restart`]; the record is unchanged then.
    ///
    /// # Panics
    /// When the key is longer than a quarter of a page or the value than [`VALUE_BYTES_MAX`].
    pub fn try_insert(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        key: &[u8],
        value: &[u8],
        scratch: &mut Scratch,
    ) -> Attempt<Inserted> {
        let place = Place::default();
        self.try_insert_at(pool, token, marks, (key, &place), value, scratch)
    }

    /// Like [`Tree::try_insert`], without a search if the leaf of the place, which is that of the
    /// key, has not changed.
    ///
    /// # Errors
    /// As [`Tree::try_insert`].
    ///
    /// # Panics
    /// As [`Tree::try_insert`].
    pub fn try_insert_at(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        at: (&[u8], &Place),
        value: &[u8],
        scratch: &mut Scratch,
    ) -> Attempt<Inserted> {
        self.try_insert_flagged(pool, token, marks, at, (value, 0), scratch)
    }

    /// Like [`Tree::try_insert`], for a value that lies in the chunks of `list`.
    ///
    /// # Errors
    /// As [`Tree::try_insert`].
    ///
    /// # Panics
    /// As [`Tree::try_insert`].
    pub fn try_insert_chunked(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        key: &[u8],
        list: &[u8],
        scratch: &mut Scratch,
    ) -> Attempt<Inserted> {
        let at = (key, &Place::default());
        self.try_insert_flagged(pool, token, marks, at, (list, SLOT_CHUNKED), scratch)
    }

    /// Inserts a value whose slot gets `flag`, which tells what kind of value it is.
    fn try_insert_flagged(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        (key, place): (&[u8], &Place),
        (value, flag): (&[u8], u64),
        scratch: &mut Scratch,
    ) -> Attempt<Inserted> {
        assert!(key.len() <= pool.page_size().key_bytes_max(), "key length");
        assert!(value.len() <= VALUE_BYTES_MAX, "value length");
        let attempt = self.insert(pool, token, marks, (key, place), (value, flag), scratch);
        counted(pool, attempt)
    }

    fn insert(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        (key, place): (&[u8], &Place),
        (value, flag): (&[u8], u64),
        scratch: &mut Scratch,
    ) -> Attempt<Inserted> {
        let inline = is_inline(pool.page_size(), key.len(), value.len());
        if !inline {
            scratch.staged.write(pool, token, self.id, value)?;
        }
        for _ in 0..ROUNDS_MAX {
            let Scratch {
                work, staged, old, ..
            } = scratch;
            let record = Record {
                key,
                value: if inline { value } else { staged.header() },
                flags: flag | if inline { 0 } else { SLOT_OVERFLOW },
                child: ChildWord(0),
            };
            debug_assert!(
                inline || !record.value.is_empty(),
                "a long value that is nowhere"
            );
            let round = self.insert_once(pool, token, marks, (&record, place), work, old)?;
            if let Round::Done { replaced } = round {
                staged.finish();
                scratch.free_old(pool, token);
                return Ok(Inserted { replaced });
            }
        }
        Err(Restart::Conflict)
    }

    fn insert_once(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        (record, place): (&Record<'_>, &Place),
        work: &mut Work,
        old: &mut OldValue,
    ) -> Attempt<Round> {
        if self.id.is_counted() {
            return self.insert_counted(pool, token, marks, (record, place), work, old);
        }
        let Seat {
            leaf,
            spot,
            is_rightmost,
            way,
        } = match self.seat_near(pool, (record.key, place), &mut work.nearby) {
            Some(seat) => seat,
            None => self.seat(pool, record.key, &mut work.nearby)?,
        };
        old.clear();
        if spot.exact {
            self.collect_old(pool, &leaf, spot, old)?;
        }
        let seat = (leaf, spot, is_rightmost);
        if leaf.fits_in_place(spot, record) {
            return self.put_in_leaf(pool, token, marks, seat, (Fit::InPlace, record), work);
        }
        match way {
            LeafFoundBy::Down(parent) => {
                self.insert_anew(pool, token, marks, (seat, (parent, None)), record, work)
            }
            // Begins again with a descent, since a split needs the parent.
            LeafFoundBy::Near => {
                work.nearby.finger = Finger::default();
                let record = (record, &Place::default());
                self.insert_once(pool, token, marks, record, work, old)
            }
        }
    }

    /// Puts a record that does not fit in place: rebuilds its leaf, or splits it.
    pub(crate) fn insert_anew<'p>(
        &self,
        pool: &'p Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        (seat, (parent, path)): ((Leaf<'p>, Spot, bool), Above<'_, 'p>),
        record: &Record<'_>,
        work: &mut Work,
    ) -> Attempt<Round> {
        let (leaf, spot, is_rightmost) = seat;
        let is_last = is_rightmost && spot.index == leaf.count();
        // If the root is a leaf, it is split into two leaves.
        if let Some(parent) = parent
            && is_last
            && leaf.is_full(record)
        {
            work.nearby.finger = Finger::default();
            let seat = (leaf.here, parent, path);
            let end = self.begin_leaf(pool, token, marks, seat, record, work)?;
            return self.after_split(pool, token, end, (false, Some(Course::Up)), work);
        }
        let added = record.adds(&leaf.node, spot);
        let fit = leaf.fit_anew(spot, record, &mut work.list)?;
        if fit == Fit::Rebuild {
            let change = (fit, record);
            return match path {
                Some(path) => self.put_counted(pool, token, marks, (seat, path), change, work),
                None => self.put_in_leaf(pool, token, marks, seat, change, work),
            };
        }
        // A torn list would be split at a meaningless place.
        leaf.here.validate()?;
        work.nearby.finger = Finger::default();
        let course = match spot.exact {
            true => None,
            false if is_last => Some(Course::Up),
            false => course_at(&leaf.node, spot.index),
        };
        let split = LeafSplit {
            leaf: leaf.here,
            parent,
            path,
            added,
            fit,
            spot,
            record,
            course,
        };
        self.insert_by_split(pool, token, marks, &split, work)
    }

    /// Puts the record into its leaf, and cuts the leaf if writers contend for it.
    #[inline]
    pub(crate) fn put_in_leaf(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        (leaf, spot, is_rightmost): (Leaf<'_>, Spot, bool),
        (fit, record): (Fit, &Record<'_>),
        work: &mut Work,
    ) -> Attempt<Round> {
        let mut latch = leaf.latch().inspect_err(|_| {
            work.lost = Some(leaf.here.page());
        })?;
        let mut change = LeafChange::begin(&mut latch, token)?;
        change.put(fit, spot, record, &work.list);
        change.end(marks);
        let cut = match work.lost.take() {
            Some(page) if page == leaf.here.page() => latch.count_contention(spot.index),
            _ => None,
        };
        drop(latch);
        work.nearby.finger = Finger::behind(*self, leaf.here, is_rightmost);
        // Writers of a counted tree contend for its root anyway.
        if let Some(cut) = cut.filter(|_| !work.is_frugal && !self.id.is_counted()) {
            self.part(pool, token, marks, record.key, cut, work);
        }
        Ok(Round::Done {
            replaced: spot.exact,
        })
    }

    /// Returns the seat at the place that is known for the key, or at the leaf of the last change,
    /// if the key belongs there, too.
    #[expect(
        clippy::inline_always,
        reason = "else a leaf goes through memory on the way to a put"
    )]
    #[inline(always)]
    pub(crate) fn seat_near<'p>(
        &self,
        pool: &'p Pool,
        (key, place): (&[u8], &Place),
        nearby: &mut Nearby,
    ) -> Option<Seat<'p>> {
        let (found, is_rightmost) = match place.reach(*self, pool, key) {
            Some(found) => {
                // The key after it may be near, too.
                nearby.is_likely = true;
                (found, place.finger().is_rightmost())
            }
            None if nearby.is_likely => {
                let found = nearby.finger.reach(*self, pool, key)?;
                (found, nearby.finger.is_rightmost())
            }
            None => return None,
        };
        let (leaf, spot) = found;
        Some(Seat {
            leaf,
            spot,
            is_rightmost,
            way: LeafFoundBy::Near,
        })
    }

    /// Finds the seat of the key by a descent from the root.
    fn seat<'p>(&self, pool: &'p Pool, key: &[u8], nearby: &mut Nearby) -> Attempt<Seat<'p>> {
        let mut parent = None;
        let mut is_rightmost = true;
        let leaf = self.descend(pool, &mut OptimisticAccess, 0, |here, node| {
            let index = node.child_for(key);
            is_rightmost &= index + 1 == node.count();
            parent = Some((here, index));
            index
        })?;
        nearby.came_to(leaf.page());
        let leaf = Leaf::at(leaf);
        Ok(Seat {
            leaf,
            spot: leaf.find(key),
            is_rightmost,
            way: LeafFoundBy::Down(parent),
        })
    }

    fn insert_by_split(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        split: &LeafSplit<'_, '_>,
        work: &mut Work,
    ) -> Attempt<Round> {
        let end = self.split_leaf(pool, token, marks, split, work)?;
        self.after_split(pool, token, end, (split.spot.exact, split.course), work)
    }

    /// Does what remains after a split that ended with `end`.
    fn after_split(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        end: SplitEnd,
        (replaced, course): (bool, Option<Course>),
        work: &mut Work,
    ) -> Attempt<Round> {
        match end {
            SplitEnd::Done => Ok(Round::Done { replaced }),
            SplitEnd::ParentFull => {
                std::mem::swap(&mut work.pending, &mut work.separator);
                self.make_room(pool, token, 1, course, work)?;
                Ok(Round::ParentSplit)
            }
        }
    }

    /// Adds the pages and chunks of the value at `spot` to `old`, if it has any.
    pub(crate) fn collect_old(
        &self,
        pool: &Pool,
        leaf: &Leaf<'_>,
        spot: Spot,
        old: &mut OldValue,
    ) -> Attempt<()> {
        let Leaf { here: leaf, node } = leaf;
        let slot = node.slot(spot.index);
        if !slot.is_overflow() {
            if slot.is_chunked() {
                node.append_value(slot, &mut old.list);
            }
            return Ok(());
        }
        let Some(header) = OverflowHeader::read(node, slot) else {
            return damaged(leaf, "describes no overflow pages");
        };
        if slot.is_chunked() {
            let OldValue { reader, list, .. } = &mut *old;
            let read = reader.read(pool, self.id, leaf, &header, list);
            if old.is_known(read)?.is_none() {
                old.list.clear();
            }
        }
        self.collect_pages(pool, leaf, &header, old)
    }

    /// Adds the pages of the value that `header` describes, including index pages, except for lost
    /// pages and pages that only lost ones name.
    fn collect_pages(
        &self,
        pool: &Pool,
        leaf: &Optimistic<'_>,
        header: &OverflowHeader,
        old: &mut OldValue,
    ) -> Attempt<()> {
        if old.lost.is_empty() {
            let collected = collect_ids(pool, self.id, header, &mut old.to_free);
            let collected = collected.or_else(|restart| {
                leaf.validate()?;
                Err(restart)
            });
            return old.is_known(collected).map(drop);
        }
        let begin = old.to_free.len();
        old.to_free.extend_from_slice(header.ids());
        if header.is_indexed() {
            for index in header.ids() {
                let read = read_index(pool, self.id, *index, &mut old.to_free);
                old.is_known(read)?;
            }
        }
        leaf.validate()?;
        let OldValue { to_free, lost, .. } = old;
        let behind: Vec<PageId> = to_free.drain(begin..).collect();
        to_free.extend(behind.into_iter().filter(|page| !lost.contains(page)));
        Ok(())
    }
}
