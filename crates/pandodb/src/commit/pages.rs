//! Upper bound of the number of pages that a batch dirties: blocks for that many pages are reserved
//! before its record is written. Debug builds compare the bound with the actual number
//! (`section.rs`).
//!
//! A write changes its leaf, and may split it. An inner node changes when a child is split, and is
//! split itself when it is full. After a load all nodes are full: a batch whose keys lie apart may
//! split one node on each level per write, as long as the level has that many nodes.
//!
//! Of a large batch it is counted in how many leaves its keys belong (decision 122): many of them
//! lie together, and a bound for each write would ask for hundreds of times the disk that it takes.

use pando_tree::Tree;

use crate::engine::Engine;
use crate::space::urgency::Urgency;
use crate::writes::set::WriteSet;

/// Pages that a split makes: a leaf, and its share of the inner nodes that are made for new
/// children. After a split a node takes at least two more children before it is split again, so the
/// share is at most a half, a quarter, an eighth of a node for each leaf on the levels above.
const PAGES_PER_SPLIT: u64 = 2;
/// Further pages that a batch may dirty: splits up to the root. A single write needs no more.
const PAGES_PER_BATCH: u64 = 8;
/// Pages that a put of one value may dirty that lies in its leaf, besides those for garbage rows.
pub(crate) const PAGES_OF_PUT: u64 = 1 + PAGES_PER_SPLIT + PAGES_PER_BATCH;
/// Number of writes of a batch from which on its leaves are counted.
pub(crate) const COUNTED_FROM: usize = 2048;
/// Leaves that others may make by splits while a batch waits, at least; and as one of so many of
/// its own.
const SPLIT_MEANWHILE: (u64, u64) = (64, 4);
/// Bytes of a record in a leaf besides key and value: slot, lengths, the rest of its last word.
const RECORD_OVERHEAD: usize = 24;
/// Assumed number of levels of a tree whose root is not in memory.
const LEVELS_UNKNOWN: u64 = 4;

/// Returns the most leaves that the keys of a batch may have, after others have split some, if they
/// had `leaves` when these were counted.
pub(crate) fn leaves_at_most(writes: u64, leaves: u64) -> u64 {
    let (least, share) = SPLIT_MEANWHILE;
    writes.min(leaves + (leaves / share).max(least))
}

impl Engine {
    /// Returns the most pages that the batch dirties, `garbage` of them for garbage rows. `leaves`
    /// is the number of leaves that its keys belong to, if they have been counted.
    pub(crate) fn pages_of(&self, set: &WriteSet, garbage: u64, leaves: Option<u64>) -> u64 {
        let page = self.store.pool.page_size().bytes();
        let piece = pando_tree::overflow::payload_bytes_max(self.store.pool.page_size());
        let overflow: usize = set
            .values_beyond(page / 4)
            .map(|bytes| bytes.div_ceil(piece) + 4)
            .sum();
        let writes = set.len() as u64;
        let puts = match set.urgency() {
            Urgency::Deletes => 0,
            Urgency::FreesRoom => set.puts(),
            Urgency::No => writes,
        };
        let (leaves, splits) = match leaves {
            None => (writes, puts),
            Some(leaves) => {
                let leaves = leaves_at_most(writes, leaves);
                // Each leaf may be full. After a split both sides have room, so that the next one
                // takes a part of a page of new records.
                let bytes = set.bytes_in_leaves(page / 4, RECORD_OVERHEAD);
                (leaves, puts.min(leaves + (bytes / (page / 4)) as u64))
            }
        };
        let inner = match puts {
            0 => self.counting_pages(set, leaves),
            _ => self.inner_pages(set, writes.min(leaves + splits)),
        };
        let of_writes = leaves + PAGES_PER_SPLIT * splits + inner;
        of_writes + PAGES_PER_BATCH + overflow as u64 + garbage
    }

    /// Returns how many inner nodes a batch that only deletes changes, at most: those above its
    /// `leaves` in counted trees. A single one changes no more than there are levels.
    fn counting_pages(&self, set: &WriteSet, leaves: u64) -> u64 {
        let is_counted = |tree: Tree| tree.id.is_counted();
        match set
            .tables
            .iter()
            .any(|table| table.tree().is_some_and(is_counted))
        {
            true => self.inner_pages(set, leaves),
            false => 0,
        }
    }

    /// Returns how many inner nodes a batch that changes or makes `leaves` changes, or makes by
    /// splits, at most: on each level no more than there are such leaves, and no more than there
    /// can be nodes if each has one on every level below it.
    fn inner_pages(&self, set: &WriteSet, leaves: u64) -> u64 {
        if leaves <= 1 {
            return 0;
        }
        let trees = set.tables.iter().filter_map(|table| table.tree());
        let levels = trees.map(|tree| match tree.try_root_level(&self.store.pool) {
            Ok(level) => u64::from(level),
            Err(_) => LEVELS_UNKNOWN,
        });
        let pages = u64::from(self.store.pool.page_ids().high_water());
        (1..=levels.max().unwrap_or(0))
            .map(|level| 2 * leaves.min(pages / (level + 1)))
            .sum()
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle, pando_audit))))]
mod tests {
    use std::iter::repeat_n;

    use super::COUNTED_FROM;
    use crate::commit::scratch::CommitScratch;
    use crate::{Batch, Db, Table, WriteOptions};

    /// Number of keys that are loaded; leaves are full then.
    const LOADED: u32 = 60_000;

    /// Memory in which some of the leaves of these batches are pinned, and in which all are.
    const LITTLE: u64 = 64 << 20;
    const MUCH: u64 = 512 << 20;

    /// A loaded key: a beginning that all share, so that leaves have a long prefix, and a number.
    fn key(number: u32) -> Vec<u8> {
        [&[b'k'; 100][..], &number.to_be_bytes()].concat()
    }

    /// Commits a large batch that `fill` makes, in so much memory, over values of so many bytes.
    /// Returns how many pages are reserved for each thousand writes: of those for as many leaves as
    /// writes, of those for the leaves that were counted, and how many became dirty.
    fn pages((memory, value_bytes): (u64, usize), fill: impl Fn(&Table, &mut Batch)) -> [u64; 3] {
        let options = Db::builder().max_memory(memory).page_size(4096);
        let db = options.open_in_memory().expect("it opens");
        let table = db.table("t").expect("it is made");
        let entries = (0..LOADED).map(|number| (key(2 * number), vec![7; value_bytes]));
        table.load_sorted(entries).expect("ascending keys");
        let mut batch = Batch::new();
        fill(&table, &mut batch);
        assert!(batch.len() >= COUNTED_FROM);
        let engine = db.engine();
        db.checkpoint().expect("a sound store");
        let mut scratch = CommitScratch::default();
        let leaves = engine.block(|_| {
            scratch.prepare(engine, &batch.set)?;
            engine.pin_shared(&batch.set, &mut scratch, None)?;
            Ok(scratch.leaves())
        });
        let leaves = leaves.expect("a sound store");
        let reserved = [None, Some(leaves)].map(|leaves| engine.pages_of(&batch.set, 0, leaves));
        let writes = batch.len() as u64;
        let dirty = || engine.store.pool.epochs().dirty_total();
        let before = dirty();
        db.write(&mut batch, WriteOptions::default())
            .expect("there is room");
        let spent = dirty() - before;
        let [of_writes, of_leaves] = reserved;
        assert!(spent <= of_leaves, "{spent} of {of_leaves} pages");
        [of_writes, of_leaves, spent].map(|pages| pages * 1000 / writes)
    }

    #[test]
    fn neighbours_take_few_pages() {
        let begin = |number: u32| key(2 * number + 1);
        let puts = |table: &Table, batch: &mut Batch| {
            for number in 0..10_000_u32 {
                let key = [&begin(500)[..], &number.to_be_bytes()].concat();
                batch.put(table, &key, b"new");
            }
        };
        let deletes = |table: &Table, batch: &mut Batch| {
            (1000..11_000).for_each(|number| batch.delete(table, &key(2 * number)));
        };
        let longer = |table: &Table, batch: &mut Batch| {
            (1000..11_000).for_each(|number| batch.put(table, &key(2 * number), &[8; 300]));
        };
        for (most, [of_writes, of_leaves, _]) in [
            (400, pages((LITTLE, 20), puts)),
            (120, pages((LITTLE, 20), deletes)),
            (1200, pages((LITTLE, 20), longer)),
        ] {
            assert!(of_writes >= 1000, "{of_writes}");
            assert!(of_leaves <= most, "{of_leaves} of {most}");
        }
    }

    /// Where each write has a leaf of its own, as many are reserved as if they were not counted.
    #[test]
    fn keys_that_lie_apart_take_a_leaf_each_and_split_it() {
        for memory in [LITTLE, MUCH] {
            let [of_writes, of_leaves, spent] = pages((memory, 440), |table, batch| {
                for number in (0..LOADED).step_by(25) {
                    batch.put(table, &key(2 * number + 1), &[8; 440]);
                }
            });
            assert!(of_writes >= 3000 && spent >= 2000, "{of_writes}, {spent}");
            assert!(of_leaves * 10 >= of_writes * 9, "{of_leaves}");
        }
    }

    /// Records of all lengths, and keys each of which shares more with the one that follows them:
    /// splits leave little on one of their sides.
    #[test]
    fn splits_of_all_kinds_are_within_the_reservation() {
        let [_, of_leaves, spent] = pages((LITTLE, 20), |table, batch| {
            for number in 0..3000_u32 {
                let random = number.wrapping_mul(2_654_435_761);
                let place = key(2 * (random % 40) + 1);
                let long = repeat_n(b'x', random as usize / 7 % 700);
                let key: Vec<u8> = place.into_iter().chain(long).collect();
                let value = vec![8; random as usize / 11 % 900];
                batch.put(table, &[&key[..], &number.to_be_bytes()].concat(), &value);
            }
        });
        assert!(of_leaves < 3000 && spent > 100, "{of_leaves}, {spent}");
        pages((LITTLE, 20), |table, batch| {
            for number in 0..COUNTED_FROM as u32 {
                // Below the first key, each above the separator of the last one.
                let (of, shared) = (number / 90, number % 90);
                let mut between = key(0);
                between.truncate(10 + shared as usize);
                between.push(b'a');
                between.extend(of.to_be_bytes());
                batch.put(table, &between, b"");
            }
        });
    }
}
