//! Sorted records that are put into one leaf under one latch; often it is only one.
//!
//! The leaf is that of the place at which the first record was found, or that of the last
//! insertion, as its finger remembers it. The latch is taken at the version that was seen then, so
//! the leaf still covers the same keys. A record that does not belong there, or needs more than the
//! free words of the leaf, ends the run, and the caller inserts it by itself.

use pando_pool::{ApplyToken, Marks, Pool};

use crate::finger::Finger;
use crate::leaf::LeafChange;
use crate::node::cut::is_inline;
use crate::node::list::Record;
use crate::node::search::Spot;
use crate::node::view::ChildWord;
use crate::place::Place;
use crate::scratch::Scratch;
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
    /// Puts the first of `entries`, whose keys ascend, into the leaf of `place`, which is that of
    /// the first key, or else into that of the last insertion of `scratch`: as far as they fit
    /// without a split and replace only values that lie in the leaf. Puts no record if anything is
    /// in the way: then nothing has changed, and the caller uses [`Tree::try_insert_at`].
    ///
    /// Keys and values have lengths that [`Tree::try_insert`] accepts.
    pub fn put_run<'e>(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        (place, entries): (&Place, impl Iterator<Item = (&'e [u8], &'e [u8])>),
        scratch: &mut Scratch,
    ) -> Run {
        let work = &mut scratch.work;
        let mut run = Run::default();
        let mut entries =
            entries.take_while(|(key, value)| is_inline(pool.page_size(), key.len(), value.len()));
        // After contention, single insertions count it and cut the leaf.
        if work.lost.is_some() {
            return run;
        }
        let Some((key, value)) = entries.next() else {
            return run;
        };
        let Some(seat) = self.seat_near(pool, (key, place), &mut work.nearby) else {
            return run;
        };
        let (leaf, mut spot) = (seat.leaf, seat.spot);
        let mut record = Record {
            key,
            value,
            flags: 0,
            child: ChildWord(0),
        };
        // A new record of a counted tree is counted in the nodes above, too.
        let is_put = |spot: Spot| spot.exact || !self.id.is_counted();
        if !is_put(spot) || !leaf.is_put_here(spot, &record) {
            return run;
        }
        let Ok(mut latch) = leaf.latch() else {
            work.lost = Some(leaf.here.page());
            return run;
        };
        let Ok(mut change) = LeafChange::begin(&mut latch, token) else {
            return run;
        };
        loop {
            change.put_in_place(spot, &record);
            run.records += 1;
            run.bytes += record.key.len() + record.value.len();
            run.new += usize::from(!spot.exact);
            let Some((key, value)) = entries.next() else {
                break;
            };
            debug_assert!(record.key < key, "keys that do not ascend");
            (record.key, record.value) = (key, value);
            match change.next_spot(spot, &record, seat.is_rightmost) {
                Some(next) if is_put(next) => spot = next,
                _ => break,
            }
        }
        change.end(marks);
        debug_assert!(run.new <= run.records, "more new keys than records");
        drop(latch);
        work.nearby.finger = Finger::behind(*self, leaf.here, seat.is_rightmost);
        run
    }
}
