//! Keys that a batch is about to read, looked for together.
//!
//! A descent waits for memory at its lower levels. Where the next keys are known, as those of the
//! commands of a pipeline are, they descend as a group, so that their misses overlap (see
//! `pando-tree/src/get_group.rs`); each read then goes to its leaf at once. A place is a hint: it
//! counts only while its leaf has the version at which it was seen.

use pando_pool::Pool;
use pando_tree::{Place, Tree, Ways};

/// The places of keys of one table.
#[derive(Debug, Default)]
pub(crate) struct Foreseen {
    /// Index of the table in the batch.
    table: usize,
    /// The keys, concatenated, and where each ends.
    keys: Vec<u8>,
    places: Vec<(usize, Place)>,
    /// Number of those that were asked for, or passed.
    taken: usize,
}

impl Foreseen {
    pub(crate) fn clear(&mut self) {
        self.places.clear();
        self.keys.clear();
        self.taken = 0;
    }

    /// Looks for `keys` of `tree`, that of the table with this index in the batch.
    pub(crate) fn look(&mut self, pool: &Pool, (table, tree): (usize, Tree), keys: &[&[u8]]) {
        self.clear();
        self.table = table;
        let mut ways = Ways::default();
        for (key, found) in keys.iter().zip(tree.locate_group(pool, keys, &mut ways)) {
            let place = found.map_or(Place::NONE, |(place, _)| place);
            self.keys.extend_from_slice(key);
            self.places.push((self.keys.len(), place));
        }
    }

    /// Returns the place of `key`, if it is foreseen and none behind it was taken before.
    #[inline]
    pub(crate) fn take(&mut self, table: usize, key: &[u8]) -> Option<Place> {
        if table != self.table {
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
    use pando_tree::Place;

    use super::Foreseen;
    use crate::api::db::Db;
    use crate::event_loop::validated_batch::ValidatedBatch;

    #[test]
    fn places_are_taken_in_their_order_by_their_keys() {
        let mut foreseen = Foreseen::default();
        assert_eq!(foreseen.take(0, b""), None);
        foreseen.table = 1;
        for key in ["a", "bc", "", "bc", "d"] {
            foreseen.keys.extend(key.as_bytes());
            foreseen.places.push((foreseen.keys.len(), Place::NONE));
        }
        let mut takes = |table, key: &str| foreseen.take(table, key.as_bytes()).is_some();
        assert!(!takes(0, "a"), "of another table");
        assert!(!takes(1, "b") && !takes(1, "abc"));
        assert!(takes(1, "a") && !takes(1, "a"));
        // One is left out.
        assert!(takes(1, "") && takes(1, "bc") && !takes(1, "bc"));
        assert!(takes(1, "d") && !takes(1, "d"));
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
        let mut found = |at: usize| tree.get_short_at(pool, &places[at], &keys[at], &mut out);
        assert!(found(0).is_some_and(|lookup| lookup.found));
        assert!(found(1).is_some_and(|lookup| lookup.found));
        assert!(found(2).is_some_and(|lookup| !lookup.found));
        // Its leaf is another one now; the others are not.
        table.put(&key(8), b"new").unwrap();
        assert!(found(0).is_none() && found(1).is_some());
        let mut value = Vec::new();
        assert!(batch.get(&table, &keys[0], &mut value).is_ok() && value == b"old");
        assert_eq!(batch.foreseen.taken, 1);
        // A value that does not lie in its leaf.
        table.put(&key(4000), &[7; 3000]).unwrap();
        batch.foresee(&table, &[&keys[1]]);
        let (_, place) = batch.foreseen.places[0];
        assert!(
            tree.get_short_at(pool, &place, &keys[1], &mut out)
                .is_none()
        );
        assert!(batch.get(&table, &keys[1], &mut value).is_ok() && value == [7; 3000]);
    }
}
