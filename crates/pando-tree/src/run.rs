//! Sorted records that are put into one leaf under one latch; often it is only one.
//!
//! The leaf is that of the place at which the first record was found, or that of the last
//! insertion, as its finger remembers it. The latch is taken at the version that was seen then, so
//! the leaf still covers the same keys. A record that does not belong there, or needs more than the
//! free words of the leaf, ends the run, and the caller inserts it by itself.

use pando_pool::{ApplyToken, Marks, Pool};

use crate::descent::Path;
use crate::finger::Finger;
use crate::insert::Seat;
use crate::leaf::LeafChange;
use crate::node::cut::is_inline;
use crate::node::edit::Room;
use crate::node::list::Record;
use crate::node::search::Spot;
use crate::node::view::ChildWord;
use crate::place::Place;
use crate::scratch::{Scratch, Work};
use crate::tree::Tree;

/// What a run has put into the leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Run {
    /// Number of records.
    pub records: usize,
    /// Number of records whose keys did not exist.
    pub new: usize,
    /// Bytes of their keys and values.
    pub bytes: usize,
}

impl Tree {
    /// Puts an entry, and the rest, whose keys ascend, into the leaf of `place`, which is that of
    /// the first key, or else into that of the last insertion of `scratch`: as far as they fit
    /// without a split and replace only values that lie in the leaf. Puts no record if anything is
    /// in the way: then nothing has changed, and the caller uses [`Tree::try_insert_at`].
    ///
    /// Keys and values have lengths that [`Tree::try_insert`] accepts.
    #[inline]
    pub fn put_run<'e>(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        (place, (key, value), rest): (
            &Place,
            (&'e [u8], &'e [u8]),
            impl Iterator<Item = (&'e [u8], &'e [u8])>,
        ),
        scratch: &mut Scratch,
    ) -> Run {
        let work = &mut scratch.work;
        let mut run = Run::default();
        let is_inline =
            |key: &[u8], value: &[u8]| is_inline(pool.page_size(), key.len(), value.len());
        // After contention, single insertions count it and cut the leaf.
        if work.lost.is_some() || !is_inline(key, value) {
            return run;
        }
        let entries = rest.take_while(|(key, value)| is_inline(key, value));
        let mut record = Record {
            key,
            value,
            flags: 0,
            child: ChildWord(0),
        };
        let seat = self.seat_near(pool, (key, place), &mut work.nearby);
        let adds_none = |seat: &Seat<'_>| record.adds(&seat.leaf.node, seat.spot) == 0;
        if self.id.is_counted() && !seat.as_ref().is_some_and(adds_none) {
            let records = (&mut record, entries);
            return self.put_counted_run(pool, token, marks, seat, records, work);
        }
        let Some(seat) = seat else {
            return run;
        };
        let (leaf, spot) = (seat.leaf, seat.spot);
        let Some(room) = &leaf.room_here(spot, &record) else {
            return run;
        };
        let Ok(mut latch) = leaf.latch() else {
            work.lost = Some(leaf.here.page());
            return run;
        };
        let Ok(mut change) = LeafChange::begin(&mut latch, token) else {
            return run;
        };
        // What a record adds to a counted tree is counted in the nodes above, too.
        let is_put = |change: &LeafChange<'_>, spot: Spot, record: &Record<'_>| {
            !self.id.is_counted() || change.adds(spot, record) == 0
        };
        let here = (spot, room, seat.is_rightmost);
        run.put(&mut change, here, (&mut record, entries), is_put);
        change.end(marks);
        drop(latch);
        work.nearby.finger = Finger::behind(*self, leaf.here, seat.is_rightmost);
        run
    }

    /// As [`Tree::put_run`] in a counted tree, to whose counts the first record adds: the path to
    /// its leaf is latched once for all. `near` is where the record belongs, if that is known.
    fn put_counted_run<'e>(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        near: Option<Seat<'_>>,
        (record, entries): (&mut Record<'e>, impl Iterator<Item = (&'e [u8], &'e [u8])>),
        work: &mut Work,
    ) -> Run {
        let near = near.map(|seat| (seat.leaf, seat.spot, seat.is_rightmost));
        let mut path = Path::new();
        let Ok(seat) = self.counted_seat(pool, record.key, near, &mut path) else {
            return Run::default();
        };
        let (leaf, spot, is_rightmost) = seat;
        let Some(room) = &leaf.room_here(spot, record) else {
            return Run::default();
        };
        let mut run = Run::default();
        let counted = path.count_above(0, token, || {
            let mut latch = leaf.latch().inspect_err(|_| {
                work.lost = Some(leaf.here.page());
            })?;
            let mut change = LeafChange::begin(&mut latch, token)?;
            let here = (spot, room, is_rightmost);
            let mut added = change.adds(spot, record);
            run.put(
                &mut change,
                here,
                (record, entries),
                |change, spot, record| {
                    added += change.adds(spot, record);
                    true
                },
            );
            change.end(marks);
            Ok(added)
        });
        if counted.is_err() {
            return Run::default();
        }
        work.nearby.finger = Finger::behind(*self, leaf.here, is_rightmost);
        run
    }
}

impl Run {
    /// Adds what another run has put.
    #[inline]
    pub fn add(&mut self, other: &Self) {
        self.records += other.records;
        self.new += other.new;
        self.bytes += other.bytes;
    }

    /// Puts `record`, which has room at the spot, and of `entries`, whose keys are greater, as many
    /// as fit where `is_put`, which is asked for each of those, allows it.
    #[inline]
    fn put<'e>(
        &mut self,
        change: &mut LeafChange<'_>,
        (mut spot, room, is_rightmost): (Spot, &Room, bool),
        (record, entries): (&mut Record<'e>, impl Iterator<Item = (&'e [u8], &'e [u8])>),
        mut is_put: impl FnMut(&LeafChange<'_>, Spot, &Record<'_>) -> bool,
    ) {
        self.put_one(change, (spot, room), record);
        for (key, value) in entries {
            debug_assert!(record.key < key, "keys that do not ascend");
            (record.key, record.value) = (key, value);
            let Some((next, room)) = change.next_spot(spot, record, is_rightmost) else {
                break;
            };
            if !is_put(change, next, record) {
                break;
            }
            spot = next;
            self.put_one(change, (spot, &room), record);
        }
        debug_assert!(self.new <= self.records, "more new keys than records");
    }

    #[inline]
    fn put_one(
        &mut self,
        change: &mut LeafChange<'_>,
        (spot, room): (Spot, &Room),
        record: &Record<'_>,
    ) {
        change.put_in_place(spot, room, record);
        self.records += 1;
        self.bytes += record.key.len() + record.value.len();
        self.new += usize::from(!spot.exact);
    }
}
