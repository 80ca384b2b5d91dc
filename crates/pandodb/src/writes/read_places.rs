//! Where the keys are that a batch has read last: they need not be looked for again to be written
//! (decision 109).

use crate::writes::keys::Told;

/// A look-up among the writes that has found none to its key.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Unwritten {
    /// The calls that had written by then: it is of use until the next one.
    pub(super) write_calls: u64,
    /// The hash of the key, if hashes were in use.
    pub(super) hash: Option<u64>,
}

/// What a read of a key has told.
#[derive(Debug, Default)]
pub(super) struct ReadPlace {
    /// [`Told::default`] if it was taken.
    pub(super) seen: Told,
    table: usize,
    key: Vec<u8>,
    /// What the look-up of the key among the writes has told.
    pub(super) unwritten: Unwritten,
}

impl ReadPlace {
    #[inline]
    fn is_of(&self, table: usize, key: &[u8]) -> bool {
        self.seen.place.is_known() && self.table == table && self.key == key
    }
}

/// The last two keys of which reads have told where they are. Most that are read are written next;
/// and who changes an element of something larger reads the row of that, too, and writes it last.
#[derive(Debug, Default)]
pub(super) struct ReadPlaces {
    places: [ReadPlace; 2],
    /// The second one was noted last.
    is_second: bool,
}

impl ReadPlaces {
    /// Forgets all, and keeps the memory.
    pub(super) fn clear(&mut self) {
        for place in &mut self.places {
            place.seen = Told::default();
        }
    }

    /// Notes where a key is, which was not found among the writes.
    #[inline]
    pub(super) fn note(&mut self, table: usize, key: &[u8], (seen, unwritten): (Told, Unwritten)) {
        let last = &mut self.places[usize::from(self.is_second)];
        // One that was taken makes room before one that may still be written.
        let place = match last.seen.place.is_known() {
            false => last,
            true => {
                self.is_second = !self.is_second;
                &mut self.places[usize::from(self.is_second)]
            }
        };
        (place.seen, place.table, place.unwritten) = (seen, table, unwritten);
        place.key.clear();
        place.key.extend_from_slice(key);
    }

    /// Returns what a read of this key has told, if it is still known. Who uses it takes `seen`.
    #[inline]
    pub(super) fn of(&mut self, table: usize, key: &[u8]) -> Option<&mut ReadPlace> {
        let [first, second] = &mut self.places;
        let (last, other) = match self.is_second {
            false => (first, second),
            true => (second, first),
        };
        if last.is_of(table, key) {
            return Some(last);
        }
        other.is_of(table, key).then_some(other)
    }
}

#[cfg(test)]
mod tests {
    use crate::Db;
    use crate::nonblocking::{Polled, ValidatedBatch};

    /// The places of what a batch writes are known, though it has read other keys in between.
    #[test]
    fn an_element_and_what_it_belongs_to_are_not_looked_for_again() {
        let directory = tempfile::tempdir().unwrap();
        let db = Db::builder()
            .max_memory(8 << 20)
            .open(directory.path())
            .unwrap();
        let (heads, elements) = (db.table("heads").unwrap(), db.table("elements").unwrap());
        heads.put(b"a", b"2").unwrap();
        elements.put(b"b", b"1").unwrap();
        elements.put(b"c", b"1").unwrap();

        let mut batch = ValidatedBatch::new(&db);
        let mut out = Vec::new();
        let found = batch.get(&heads, b"a", &mut out).unwrap();
        assert!(matches!(found, Polled::Ready(true)));
        for key in [b"b", b"c"] {
            let found = batch.get(&elements, key, &mut out).unwrap();
            assert!(matches!(found, Polled::Ready(true)));
            batch.put(&elements, key, b"3").unwrap();
        }
        batch.put(&heads, b"a", b"4").unwrap();
        let places = batch.set.places();
        assert_eq!(places.len(), 3);
        assert!(places.iter().all(|told| told.place.is_known()));
    }
}
