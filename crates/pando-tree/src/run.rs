//! Records that come in order, put into one leaf under one latch.
//!
//! The leaf is that of the last insertion, as its finger remembers it: the latch is taken at the
//! version that the finger saw, so the leaf covers what it covered. What does not belong there, or
//! needs more than free words of the leaf, ends the run and is put by an insertion of its own.

use pando_pool::{ApplyToken, Marks, Pool};

use crate::finger::Finger;
use crate::node::cut::is_inline;
use crate::node::edit;
use crate::node::list::Record;
use crate::node::search::Spot;
use crate::node::view::{ChildWord, Node};
use crate::scratch::Scratch;
use crate::tree::{Tree, stamp};
use crate::word::{Store, Word};

/// What a run has put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Run {
    /// Records.
    pub records: usize,
    /// Those whose keys did not exist.
    pub new: usize,
}

impl Tree {
    /// Puts the first of `entries`, whose keys ascend, as far as they go into the leaf of the last
    /// insertion of `scratch` without a split and replace nothing but values that lie there. None,
    /// if anything is in the way: then nothing has changed, and [`Tree::try_insert`] finds out.
    ///
    /// The lengths of keys and values are those that [`Tree::try_insert`] takes.
    pub fn put_run<'e>(
        &self,
        pool: &Pool,
        token: &ApplyToken<'_>,
        marks: Marks,
        entries: impl Iterator<Item = (&'e [u8], &'e [u8])>,
        scratch: &mut Scratch,
    ) -> Run {
        let work = &mut scratch.work;
        let mut run = Run::default();
        let mut entries =
            entries.take_while(|(key, value)| is_inline(pool.page_size(), key.len(), value.len()));
        // Where writers meet, each of them counts and parts the leaf.
        if !work.nearby.is_likely || work.lost.is_some() {
            return run;
        }
        let Some((key, value)) = entries.next() else {
            return run;
        };
        let finger = work.nearby.finger;
        let Some((leaf, spot)) = finger.reach(*self, pool, key) else {
            return run;
        };
        let mut record = Record {
            key,
            value,
            flags: 0,
            child: ChildWord(0),
        };
        if !is_put_here(&Node::open(leaf.words().slice()), spot, &record) {
            return run;
        }
        let Ok(mut latch) = leaf.upgrade() else {
            return run;
        };
        let Ok(mut page) = latch.modify(token) else {
            return run;
        };
        let mut spot = spot;
        loop {
            edit::put_in_place(&mut page, spot, &record);
            run.records += 1;
            run.new += usize::from(!spot.exact);
            let Some((key, value)) = entries.next() else {
                break;
            };
            debug_assert!(record.key < key, "keys that do not ascend");
            let node = Node::open(Store::words(&page));
            let count = node.count();
            // Behind what was the last one there is nothing to search.
            spot = match spot.index + 1 == count {
                true => Spot {
                    index: count,
                    exact: false,
                },
                false => node.find_in_leaf(key),
            };
            (record.key, record.value) = (key, value);
            let is_covered = spot.exact || spot.index < count || finger.is_rightmost();
            if !is_covered || !is_put_here(&node, spot, &record) {
                break;
            }
        }
        stamp(&mut page, marks);
        debug_assert!(run.new <= run.records, "more new keys than records");
        drop(latch);
        work.nearby.finger = Finger::behind(*self, leaf, finger.is_rightmost());
        run
    }
}

/// True if the record fits in place, and takes the place of nothing that lies elsewhere.
fn is_put_here<W: Word>(node: &Node<'_, W>, spot: Spot, record: &Record<'_>) -> bool {
    if spot.exact {
        let slot = node.slot(spot.index);
        if slot.is_overflow() || slot.is_chunked() {
            return false;
        }
    }
    edit::fits_in_place(node, spot, record)
}
