//! Keys that are about to be read, looked for together.
//!
//! A descent waits for memory at its lower levels. Where the next keys are known, as those of the
//! commands of a pipeline are, they descend as a group, so that their misses overlap (see
//! `pando-tree/src/get_group.rs`); each read then goes to its leaf at once. A place is a hint: it
//! counts only while its leaf has the version at which it was seen.

use std::ptr;

use pando_pool::Pool;
use pando_sync::Arc;
use pando_tree::{GROUP_MAX, Place, Tree, ValueReader, Ways};

use crate::api::table::Table;
use crate::read::buffers::KEPT_BYTES_MAX;
use crate::tables::state::TableState;

/// Keys of one table that were looked for together, and where each is or would be. A read of one
/// of them goes there at once ([`crate::nonblocking::Reads::get_foreseen`]), as long as nobody has
/// changed its leaf: what it finds is as of the moment of the read.
#[derive(Debug, Default)]
pub struct Foreseen {
    /// The table, and the tree that it had.
    of: Option<(Arc<TableState>, Tree)>,
    /// The keys, concatenated, and where each ends.
    keys: Vec<u8>,
    places: Vec<(usize, Place)>,
    /// Number of those that were asked for, or passed.
    taken: usize,
    /// For values that do not lie in their leaf.
    pub(crate) reader: ValueReader,
}

impl Foreseen {
    /// Maximum number of keys.
    pub const KEYS_MAX: usize = GROUP_MAX;

    /// Looks for `keys`, which are about to be read from `table` in this order. Those that were
    /// foreseen before are forgotten. What is not in memory is left to the reads. Never waits.
    ///
    /// # Panics
    /// When there are more than [`Foreseen::KEYS_MAX`] keys.
    pub fn look_for(&mut self, table: &Table, keys: &[&[u8]]) {
        self.clear();
        if let Some(tree) = table.state.tree() {
            self.look(&table.db.engine().store.pool, (&table.state, tree), keys);
        }
    }

    /// Forgets all keys, and keeps the memory.
    pub fn clear(&mut self) {
        self.places.clear();
        self.keys.clear();
        self.taken = 0;
        self.reader.shorten(KEPT_BYTES_MAX);
    }

    /// Looks for `keys` of a table that has this tree.
    pub(crate) fn look(
        &mut self,
        pool: &Pool,
        (state, tree): (&Arc<TableState>, Tree),
        keys: &[&[u8]],
    ) {
        self.clear();
        if !self.is_of(state, tree) {
            self.of = Some((state.clone(), tree));
        }
        let mut ways = Ways::default();
        for (key, found) in keys.iter().zip(tree.locate_group(pool, keys, &mut ways)) {
            let place = found.map_or(Place::NONE, |(place, _)| place);
            self.keys.extend_from_slice(key);
            self.places.push((self.keys.len(), place));
        }
    }

    fn is_of(&self, state: &TableState, tree: Tree) -> bool {
        let of = self.of.as_ref();
        of.is_some_and(|(table, of)| *of == tree && ptr::eq(&raw const **table, state))
    }

    /// Returns the place of `key` in a table that has this tree now, if it is foreseen and none
    /// behind it was taken before.
    #[inline]
    pub(crate) fn take(&mut self, (state, tree): (&TableState, Tree), key: &[u8]) -> Option<Place> {
        if self.taken == self.places.len() || !self.is_of(state, tree) {
            return None;
        }
        let mut start = match self.taken {
            0 => 0,
            taken => self.places.get(taken - 1)?.0,
        };
        for (at, (end, place)) in self.places.iter().enumerate().skip(self.taken) {
            if self.keys[start..*end] == *key {
                self.taken = at + 1;
                return Some(*place);
            }
            start = *end;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use pando_tree::ValueReader;

    use super::Foreseen;
    use crate::api::db::Db;
    use crate::api::table::Table;
    use crate::event_loop::polled::Polled;
    use crate::event_loop::table::Reads;
    use crate::event_loop::validated_batch::ValidatedBatch;

    #[test]
    fn places_are_taken_in_their_order_by_their_keys() {
        let db = Db::builder().open_in_memory().unwrap();
        let [table, other] = ["t", "other"].map(|name| db.table(name).unwrap());
        let tree = table.state.tree().unwrap();
        let mut foreseen = Foreseen::default();
        assert_eq!(foreseen.take((&table.state, tree), b""), None);
        foreseen.look_for(&table, &["a", "bc", "", "bc", "d"].map(str::as_bytes));
        let mut takes = |table: &Table, tree, key: &str| {
            let place = foreseen.take((&table.state, tree), key.as_bytes());
            place.is_some()
        };
        assert!(!takes(&other, other.state.tree().unwrap(), "a"));
        assert!(!takes(&other, tree, "a"), "of another store, maybe");
        assert!(!takes(&table, tree, "b") && !takes(&table, tree, "abc"));
        assert!(takes(&table, tree, "a") && !takes(&table, tree, "a"));
        // One is left out.
        assert!(takes(&table, tree, "") && takes(&table, tree, "bc") && !takes(&table, tree, "bc"));
        assert!(takes(&table, tree, "d") && !takes(&table, tree, "d"));
    }

    #[test]
    fn reads_without_a_batch_go_there_while_their_leaf_is_the_same() {
        let db = Db::builder().open_in_memory().unwrap();
        let table = db.table("t").unwrap();
        let key = |number: u32| number.to_be_bytes();
        for number in 0..5000 {
            table.put(&key(number), b"old").unwrap();
        }
        table.put(&key(4500), &[7; 3000]).unwrap();
        let keys = [7, 3000, 4000, 4500, 9999].map(key);
        let mut foreseen = Foreseen::default();
        foreseen.look_for(&table, &keys.each_ref().map(|key| &key[..]));
        let mut out = Vec::new();
        let mut get = |key: u32| {
            let (reads, key) = (Reads::of(&table), key.to_be_bytes());
            let found = reads.get_foreseen(&mut foreseen, (&key, 24), &mut out, &mut None);
            found.map(|found| found.map(|len| (len, out.clone())))
        };
        assert_eq!(get(8), None);
        assert_eq!(get(7), Some(Some((3, b"old".to_vec()))));
        // Its leaf is another one now.
        table.put(&key(3001), b"new").unwrap();
        assert_eq!(get(3000), None);
        assert_eq!(get(4000), Some(Some((3, b"old".to_vec()))));
        // It does not lie in its leaf, but in memory.
        assert_eq!(get(4500), Some(Some((3000, vec![7; 24]))));
        assert_eq!(get(9999), Some(None));
        foreseen.look_for(&table, &[&key(7)]);
        drop(db);
        // A table of the same name in another store.
        let db = Db::builder().open_in_memory().unwrap();
        let table = db.table("t").unwrap();
        let what = (&key(7)[..], 24);
        let found = Reads::of(&table).get_foreseen(&mut foreseen, what, &mut out, &mut None);
        assert_eq!(found, None);
    }

    #[test]
    fn reads_go_to_the_leaves_that_were_foreseen() {
        let db = Db::builder().open_in_memory().unwrap();
        let table = db.table("t").unwrap();
        let key = |number: u32| number.to_be_bytes();
        for number in 0..5000 {
            table.put(&key(number), b"old").unwrap();
        }
        let mut batch = ValidatedBatch::new(&db);
        let keys = [7, 4000, 9999].map(key);
        batch.foresee(&table, &keys.each_ref().map(|key| &key[..]));
        let (tree, pool) = (table.state.tree().unwrap(), &db.engine().store.pool);
        let places: Vec<_> = batch
            .foreseen
            .places
            .iter()
            .map(|(_, place)| *place)
            .collect();
        let mut out = Vec::new();
        let mut reader = ValueReader::new();
        let mut found = |at: usize| {
            let what = (&keys[at][..], 2);
            tree.get_head_at(pool, &places[at], what, &mut reader, &mut out)
        };
        assert!(found(0).is_some_and(|(lookup, bytes)| lookup.found && bytes == 3));
        assert!(found(1).is_some_and(|(lookup, _)| lookup.found));
        assert!(found(2).is_some_and(|(lookup, _)| !lookup.found));
        // Its leaf is another one now; the others are not.
        table.put(&key(8), b"new").unwrap();
        assert!(found(0).is_none() && found(1).is_some());
        let mut value = Vec::new();
        assert!(batch.get(&table, &keys[0], &mut value).is_ok() && value == b"old");
        assert_eq!(batch.foreseen.taken, 1);
        // A head goes there, too, and tells the commit.
        let head = batch.get_head(&table, &keys[1], 2, &mut value).unwrap();
        assert!(matches!(head, Polled::Ready(Some(3))) && value == b"old");
        assert_eq!(batch.foreseen.taken, 2);
        batch.put(&table, &keys[1], b"new").unwrap();
        assert_eq!(batch.set.places()[0].place, places[1]);
        batch.reset();
        // A value that does not lie in its leaf.
        table.put(&key(4000), &[7; 3000]).unwrap();
        batch.foresee(&table, &[&keys[1]]);
        let head = batch.get_head(&table, &keys[1], 24, &mut value).unwrap();
        assert!(matches!(head, Polled::Ready(Some(3000))) && value == [7; 24]);
        assert_eq!(batch.foreseen.taken, 1);
        batch.reset();
        batch.foresee(&table, &[&keys[1]]);
        assert!(batch.get(&table, &keys[1], &mut value).is_ok() && value == [7; 3000]);
    }
}
