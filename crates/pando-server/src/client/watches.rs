//! What a connection watches, and the memory that all connections may take for it.
//!
//! The engine detects changes per stripe, so one watch covers all keys of a stripe. The oldest is
//! kept, since it fails whenever a later one would. So a connection keeps a few bytes for each
//! stripe, whatever the number and length of the keys, and finds a stripe in a hash table.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::data::keyspace::has_ended;
use pando_sync::Arc;
use pando_sync::atomic::{AtomicU64, Ordering};
use pandodb::nonblocking::{Polled, ValidatedBatch, Watch, WatchPlace};

/// Memory that a place takes: in a table that has just grown, and in the batch of EXEC.
const PLACE_BYTES: u64 = (2 * size_of::<(WatchPlace, Watched)>() + size_of::<Watch>()) as u64;

/// Memory that the watches of all connections take. Relaxed throughout: the count orders nothing.
#[derive(Debug, Default)]
pub(crate) struct WatchBytes(AtomicU64);

impl WatchBytes {
    /// Returns the memory taken now, in bytes.
    pub(crate) fn used(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn try_take(&self, most: u64) -> bool {
        let taken = self.0.fetch_add(PLACE_BYTES, Ordering::Relaxed) + PLACE_BYTES;
        if taken > most {
            self.0.fetch_sub(PLACE_BYTES, Ordering::Relaxed);
        }
        taken <= most
    }
}

/// Error: all memory for watches is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMany;

/// A watched place.
#[derive(Debug)]
struct Watched {
    watch: Watch,
    /// None of its watched keys existed: FLUSHALL does not change them.
    is_absent: bool,
}

/// The keys that a connection watches.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// The watched places, each with its oldest watch.
    places: HashMap<WatchPlace, Watched>,
    /// The counter of its memory, once it has taken some.
    bytes: Option<Arc<WatchBytes>>,
    /// Earliest expiry of the watched values that existed: expiry counts as a change.
    deadline: Option<u64>,
}

impl Watches {
    /// Returns the number of watched places.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns the memory that they take, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.places.len() as u64 * PLACE_BYTES
    }

    /// Returns true if the place of `watch` is watched, since an earlier or the same moment.
    pub(crate) fn has(&self, watch: &Watch) -> bool {
        self.places.contains_key(&watch.place())
    }

    /// Watches the place of `watch`, unless it is watched already.
    ///
    /// # Errors
    /// All connections together would take more than `most`.
    pub(crate) fn add(
        &mut self,
        watch: Watch,
        bytes: &Arc<WatchBytes>,
        most: u64,
    ) -> Result<(), TooMany> {
        if self.has(&watch) {
            return Ok(());
        }
        if !bytes.try_take(most) {
            return Err(TooMany);
        }
        self.bytes.get_or_insert_with(|| bytes.clone());
        let place = watch.place();
        let is_absent = true;
        self.places.insert(place, Watched { watch, is_absent });
        Ok(())
    }

    /// Records that a key of this place existed when it was looked at, once it was watched.
    pub(crate) fn is_there(&mut self, place: WatchPlace) {
        if let Some(watched) = self.places.get_mut(&place) {
            watched.is_absent = false;
        }
    }

    /// Records that a watched value expires at `deadline`.
    pub(crate) fn ends_at(&mut self, deadline: u64) {
        let first = self.deadline.unwrap_or(u64::MAX);
        self.deadline = Some(first.min(deadline));
    }

    /// Returns true if a watched value has expired.
    pub(crate) fn is_over(&self, now_ms: u64) -> bool {
        self.deadline
            .is_some_and(|deadline| has_ended(deadline, now_ms))
    }

    /// Adds what `later` watches; where both watch a place, the older watch stays.
    pub(crate) fn append(&mut self, mut later: Self) {
        if let Some(deadline) = later.deadline {
            self.ends_at(deadline);
        }
        if self.places.is_empty() {
            std::mem::swap(&mut self.places, &mut later.places);
            std::mem::swap(&mut self.bytes, &mut later.bytes);
            return;
        }
        for (place, watched) in std::mem::take(&mut later.places) {
            match self.places.entry(place) {
                Entry::Occupied(mut older) => {
                    older.get_mut().is_absent &= watched.is_absent;
                    release(later.bytes.as_ref(), 1);
                }
                Entry::Vacant(vacant) => {
                    vacant.insert(watched);
                }
            }
        }
    }

    /// Makes `batch` commit only if nothing that is watched has changed.
    /// Pending while somebody writes one: what `batch` depends on then is not complete.
    pub(crate) fn expect(&self, batch: &mut ValidatedBatch) -> Polled<()> {
        for Watched { watch, is_absent } in self.places.values() {
            if !is_absent {
                batch.expect(watch);
            } else if let Polled::Pending(pending) = batch.expect_absent(watch) {
                return Polled::Pending(pending);
            }
        }
        Polled::Ready(())
    }
}

fn release(bytes: Option<&Arc<WatchBytes>>, places: usize) {
    if let Some(bytes) = bytes {
        let count = places as u64 * PLACE_BYTES;
        let before = bytes.0.fetch_sub(count, Ordering::Relaxed);
        assert!(before >= count, "what is given back was taken");
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        release(self.bytes.as_ref(), self.places.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pandodb::{Db, Table};

    fn look(table: &Table, db: &Db, key: &[u8]) -> Watch {
        match ValidatedBatch::new(db).watch(table, key) {
            Polled::Ready(watch) => watch,
            Polled::Pending(_) => panic!("no other thread writes"),
        }
    }

    #[test]
    fn each_place_is_counted_once_and_until_it_is_dropped() {
        let db = Db::builder()
            .max_memory(16 << 20)
            .open_in_memory()
            .expect("a store in memory");
        let table = db.table("t").expect("a table");
        let bytes = Arc::new(WatchBytes::default());
        let most = 3 * PLACE_BYTES;
        let (mut first, mut second) = (Watches::default(), Watches::default());
        for key in [&b"a"[..], b"b", b"a", b"b"] {
            assert_eq!(first.add(look(&table, &db, key), &bytes, most), Ok(()));
        }
        assert_eq!((first.len(), bytes.used()), (2, 2 * PLACE_BYTES));
        // There are more keys than the engine has places, so keys share them.
        for number in 0..100_000_u32 {
            let watch = look(&table, &db, &number.to_be_bytes());
            let place = watch.place();
            let known = second.places.contains_key(&place);
            let is_first = second.len() == 0;
            let expected = if known || is_first {
                Ok(())
            } else {
                Err(TooMany)
            };
            assert_eq!(second.add(watch, &bytes, most), expected);
        }
        assert_eq!((second.len(), bytes.used()), (1, most));
        assert_eq!(
            second.add(look(&table, &db, b"a"), &bytes, u64::MAX),
            Ok(())
        );
        first.ends_at(9);
        second.ends_at(7);
        first.append(second);
        assert_eq!((first.len(), bytes.used()), (3, most));
        assert!(first.is_over(8) && !first.is_over(7));
        drop(first);
        assert_eq!(bytes.used(), 0);
    }
}
