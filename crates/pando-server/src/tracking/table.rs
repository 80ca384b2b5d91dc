//! Who has read which key: keys of all databases, as Redis does it, each with the clients that must
//! forget it when it changes.
//!
//! Keys lie in shards by their hash, each with a lock of its own, which is held for one key. When
//! there are too many, keys are taken out at random, and their clients are told to forget them.
//! Clients that stopped tracking stay in the entries until somebody meets them there: a writer, or
//! [`Table::sweep`], which looks at some entries at a time.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use pando_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use pando_sync::{Arc, Mutex, Rank};

use super::tracker::Tracker;

const SHARDS: usize = 64;
/// Memory of a key besides its bytes: its places in the shard, and its allocations.
const KEY_BYTES: u64 = 128;
/// Memory of a client in the entry of a key.
const ITEM_BYTES: u64 = 8;

/// A key, and the clients that have read it, by id.
#[derive(Debug)]
struct Entry {
    key: Arc<[u8]>,
    readers: Vec<Arc<Tracker>>,
}

impl Entry {
    fn bytes(&self) -> u64 {
        KEY_BYTES + self.key.len() as u64 + self.readers.len() as u64 * ITEM_BYTES
    }
}

/// Entries in any order, so that one can be chosen at random; and the place of each key.
#[derive(Debug, Default)]
struct Shard {
    entries: Vec<Entry>,
    places: HashMap<Arc<[u8]>, usize>,
}

impl Shard {
    /// Adds a client to a key. Returns whether key and client are new.
    fn add(&mut self, key: &[u8], reader: &Arc<Tracker>) -> (bool, bool) {
        if let Some(place) = self.places.get(key) {
            let readers = &mut self.entries[*place].readers;
            let at = readers.binary_search_by_key(&reader.id, |of| of.id);
            match at {
                // After a RESET the client has another one, and the old one tells nobody.
                Ok(at) if !Arc::ptr_eq(&readers[at], reader) => readers[at] = Arc::clone(reader),
                Ok(_) => {}
                Err(at) => readers.insert(at, Arc::clone(reader)),
            }
            return (false, at.is_err());
        }
        let key: Arc<[u8]> = key.into();
        self.places.insert(Arc::clone(&key), self.entries.len());
        self.entries.push(Entry {
            key,
            readers: vec![Arc::clone(reader)],
        });
        (true, true)
    }

    fn remove_at(&mut self, place: usize) -> Entry {
        let entry = self.entries.swap_remove(place);
        self.places.remove(&entry.key);
        if let Some(moved) = self.entries.get(place) {
            let known = self.places.get_mut(&moved.key);
            *known.expect("each entry has its place") = place;
        }
        if self.entries.len() < self.entries.capacity() / 8 {
            self.entries.shrink_to(self.entries.len() * 2);
            self.places.shrink_to(self.entries.len() * 2);
        }
        entry
    }
}

/// A key that was taken out, and who has to be told.
pub(super) type Taken = (Arc<[u8]>, Vec<Arc<Tracker>>);

/// All keys that somebody tracks. The counts are relaxed: they order nothing.
#[derive(Debug)]
pub(super) struct Table {
    shards: Vec<Mutex<Shard>>,
    /// Shards that were emptied, and are freed one by one. Held for a push or a pop.
    emptied: Mutex<Vec<Shard>>,
    hasher: RandomState,
    keys: AtomicUsize,
    items: AtomicUsize,
    bytes: AtomicU64,
    /// Where the next sweep begins: a shard, and a place in it.
    swept: Mutex<(usize, usize)>,
}

impl Default for Table {
    fn default() -> Self {
        let shard = |_| Mutex::new(Rank::Leaf, Shard::default());
        Self {
            shards: (0..SHARDS).map(shard).collect(),
            emptied: Mutex::new(Rank::Leaf, Vec::new()),
            hasher: RandomState::new(),
            keys: AtomicUsize::new(0),
            items: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            swept: Mutex::new(Rank::Leaf, (0, 0)),
        }
    }
}

impl Table {
    fn shard(&self, key: &[u8]) -> &Mutex<Shard> {
        let hash = self.hasher.hash_one(key);
        let index = usize::try_from(hash % self.shards.len() as u64);
        &self.shards[index.expect("it is smaller than their number")]
    }

    /// Notes that a client reads a key.
    pub(super) fn add(&self, key: &[u8], reader: &Arc<Tracker>) {
        // Counted under the lock: nobody takes out what was not counted.
        let mut shard = self.shard(key).lock();
        let (is_new_key, is_new_item) = shard.add(key, reader);
        let mut bytes = 0;
        if is_new_key {
            self.keys.fetch_add(1, Ordering::Relaxed);
            bytes += KEY_BYTES + key.len() as u64;
        }
        if is_new_item {
            self.items.fetch_add(1, Ordering::Relaxed);
            bytes += ITEM_BYTES;
        }
        if bytes > 0 {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Counts entries that are out of a shard.
    fn count_out(&self, entry: &Entry) {
        self.keys.fetch_sub(1, Ordering::Relaxed);
        let items = entry.readers.len();
        self.items.fetch_sub(items, Ordering::Relaxed);
        self.bytes.fetch_sub(entry.bytes(), Ordering::Relaxed);
    }

    /// Takes a key out, as its value has changed. Client `kept` stays in it: it has read the value
    /// that it has written itself.
    pub(super) fn take(&self, key: &[u8], kept: Option<u64>) -> Option<Taken> {
        let mut shard = self.shard(key).lock();
        let place = *shard.places.get(key)?;
        let entry = shard.remove_at(place);
        self.count_out(&entry);
        let stays = kept.and_then(|id| entry.readers.iter().find(|of| of.id == id));
        if let Some(reader) = stays {
            shard.add(key, reader);
            self.keys.fetch_add(1, Ordering::Relaxed);
            self.items.fetch_add(1, Ordering::Relaxed);
            let bytes = KEY_BYTES + key.len() as u64 + ITEM_BYTES;
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        drop(shard);
        Some((entry.key, entry.readers))
    }

    /// Takes a key out at random, for there are too many.
    pub(super) fn take_any(&self) -> Option<Taken> {
        let first = fastrand::usize(..SHARDS);
        let mut order = (first..SHARDS).chain(0..first);
        let entry = order.find_map(|index| {
            let mut shard = self.shards[index].lock();
            let place = shard.entries.len().checked_sub(1)?;
            let entry = shard.remove_at(fastrand::usize(..=place));
            self.count_out(&entry);
            Some(entry)
        })?;
        Some((entry.key, entry.readers))
    }

    /// Removes all keys. Their memory is freed later.
    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            if shard.entries.is_empty() {
                continue;
            }
            let emptied = std::mem::take(&mut *shard);
            let items = emptied.entries.iter().map(|of| of.readers.len()).sum();
            self.keys
                .fetch_sub(emptied.entries.len(), Ordering::Relaxed);
            self.items.fetch_sub(items, Ordering::Relaxed);
            drop(shard);
            self.emptied.lock().push(emptied);
        }
    }

    /// Frees memory of keys that are gone, and looks at `count` entries, from which it removes
    /// clients that do not track any more.
    pub(super) fn sweep(&self, count: usize) {
        let emptied = self.emptied.lock().pop();
        if let Some(mut shard) = emptied {
            let from = shard.entries.len().saturating_sub(count);
            let bytes = shard.entries.drain(from..).map(|entry| {
                shard.places.remove(&entry.key);
                entry.bytes()
            });
            self.bytes.fetch_sub(bytes.sum(), Ordering::Relaxed);
            if from > 0 {
                self.emptied.lock().push(shard);
            }
            return;
        }
        let (mut index, mut place) = *self.swept.lock();
        let mut left = count;
        for _ in 0..=SHARDS {
            place = self.sweep_shard(index, place, &mut left);
            if left == 0 {
                break;
            }
            (index, place) = ((index + 1) % SHARDS, 0);
        }
        *self.swept.lock() = (index, place);
    }

    /// Looks at `left` entries of a shard, from `place` on; returns where it has stopped.
    fn sweep_shard(&self, index: usize, mut place: usize, left: &mut usize) -> usize {
        let mut shard = self.shards[index].lock();
        while *left > 0
            && let Some(entry) = shard.entries.get_mut(place)
        {
            *left -= 1;
            let before = entry.readers.len();
            entry.readers.retain(|reader| reader.listens());
            let gone = before - entry.readers.len();
            self.items.fetch_sub(gone, Ordering::Relaxed);
            let bytes = gone as u64 * ITEM_BYTES;
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            match entry.readers.is_empty() {
                true => {
                    let entry = shard.remove_at(place);
                    self.count_out(&entry);
                }
                false => place += 1,
            }
        }
        place
    }

    /// Returns the number of keys.
    pub(super) fn keys(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// Returns the number of pairs of a key and a client.
    pub(super) fn items(&self) -> usize {
        self.items.load(Ordering::Relaxed)
    }

    /// Returns the memory that it takes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pubsub::mailbox::Mailbox;
    use std::task::Waker;

    fn tracker(id: u64) -> Arc<Tracker> {
        let mailbox = Arc::new(Mailbox::new(Waker::noop().clone()));
        let tracker = Tracker::new(id, mailbox);
        tracker.set(true, None, false);
        Arc::new(tracker)
    }

    fn counts(table: &Table) -> (usize, usize) {
        (table.keys(), table.items())
    }

    #[test]
    fn a_key_is_taken_with_its_readers_and_counts_stay_right() {
        let table = Table::default();
        let (one, two) = (tracker(1), tracker(2));
        for number in 0..1000_u32 {
            for reader in [&two, &one, &two] {
                table.add(&number.to_be_bytes(), reader);
            }
        }
        assert_eq!(counts(&table), (1000, 2000));
        let key = 7_u32.to_be_bytes();
        let (taken, readers) = table.take(&key, Some(2)).unwrap();
        let ids: Vec<_> = readers.iter().map(|of| of.id).collect();
        assert_eq!((&taken[..], &ids[..]), (&key[..], &[1, 2][..]));
        assert_eq!(counts(&table), (1000, 1999));
        assert_eq!(table.take(&key, None).unwrap().1.len(), 1);
        assert!(table.take(&key, Some(2)).is_none());
        for left in (0..999).rev() {
            assert_eq!(table.take_any().unwrap().1.len(), 2);
            assert_eq!(counts(&table), (left, left * 2));
        }
        assert!(table.take_any().is_none());
        assert_eq!(table.bytes(), 0);
        let mut shards = table.shards.iter();
        assert!(shards.all(|shard| shard.lock().entries.capacity() < 8));
    }

    #[test]
    fn who_has_stopped_leaves_in_steps() {
        let table = Table::default();
        let (one, two) = (tracker(1), tracker(2));
        for number in 0..500_u32 {
            table.add(&number.to_be_bytes(), &one);
            table.add(&(number * 2).to_be_bytes(), &two);
        }
        let mut before = (750, 1000);
        assert_eq!(counts(&table), before);
        two.set(false, None, false);
        for _ in 0..1000 {
            table.sweep(3);
            let now = counts(&table);
            assert!(before.1 - now.1 <= 3, "{now:?} after {before:?}");
            before = now;
        }
        assert_eq!(before, (500, 500));
        table.clear();
        assert_eq!(counts(&table), (0, 0));
        assert!(table.bytes() > 0, "it is not freed at once");
        while table.bytes() > 0 {
            table.sweep(100);
        }
        assert!(table.emptied.lock().is_empty());
    }
}
