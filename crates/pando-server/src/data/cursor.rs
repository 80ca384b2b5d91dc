//! SCAN cursors: numbers below 2^53 that name where an iteration stopped (decision 053).
//!
//! Places are kept within a budget of bytes. Iterations that stop at the same key share a place, so
//! the number of places is also bounded by that of keys. When there is no room, the place that was
//! unused for the longest time is dropped, beginning with the places that all iterations have left:
//! these are needed only if a client repeats a request. So a fast iteration pushes out its own
//! trail, and not the places where slow iterations are.
//!
//! A number that is unknown, or no longer known, starts the iteration over: keys may be returned
//! twice, but none is left out.

use std::hash::{BuildHasher as _, RandomState};

use hashbrown::HashTable;

/// Bits of a cursor that hold the slot of its place; the other bits hold the slot's generation.
const SLOT_BITS: u32 = 24;
const GENERATION_BITS: u32 = 29;
const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;
const SLOTS_MAX: usize = 1 << SLOT_BITS;
/// Longest stored key that is kept inside the slot, without an allocation.
const SHORT_BYTES_MAX: usize = 22;
/// Overhead of an allocation.
const ALLOCATION_BYTES: u64 = 16;
/// Memory of a place in the index, which may have just grown.
const INDEX_BYTES: u64 = 16;
const NONE: u32 = u32::MAX;

const _: () = assert!(SLOT_BITS + GENERATION_BITS == 53);

/// A stored key.
#[derive(Debug)]
enum Key {
    Short(u8, [u8; SHORT_BYTES_MAX]),
    Long(Box<[u8]>),
}

impl Key {
    fn new(bytes: &[u8]) -> Self {
        let mut short = [0; SHORT_BYTES_MAX];
        match (short.get_mut(..bytes.len()), u8::try_from(bytes.len())) {
            (Some(place), Ok(length)) => {
                place.copy_from_slice(bytes);
                Self::Short(length, short)
            }
            _ => Self::Long(Box::from(bytes)),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Short(length, bytes) => &bytes[..usize::from(*length)],
            Self::Long(bytes) => bytes,
        }
    }
}

/// A place where iterations have stopped.
#[derive(Debug)]
struct Slot {
    /// The last stored key that was examined: iterations continue after it.
    key: Key,
    generation: u32,
    /// Neighbours in the list that contains the place.
    older: u32,
    newer: u32,
    /// Number of cursors that were returned for the place and not used yet.
    open: u16,
    database: u8,
    is_taken: bool,
}

const _: () = assert!(size_of::<Slot>() == 40);

impl Slot {
    /// Returns the memory that it takes, including the spare capacity of the list of slots.
    fn bytes(&self) -> u64 {
        let own = match &self.key {
            Key::Short(..) => 0,
            Key::Long(bytes) => bytes.len() as u64 + ALLOCATION_BYTES,
        };
        size_of::<Self>() as u64 * 9 / 8 + INDEX_BYTES + own
    }
}

/// Slots ordered by their last use.
#[derive(Debug, Clone, Copy)]
struct List {
    oldest: u32,
    newest: u32,
}

const EMPTY: List = List {
    oldest: NONE,
    newest: NONE,
};

/// The places that cursors name.
#[derive(Debug)]
pub(crate) struct Cursors {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Slots by database and key.
    index: HashTable<u32>,
    hasher: RandomState,
    /// Places that all iterations which stopped there have left.
    left: List,
    /// Places where an iteration may still be.
    open: List,
    bytes: u64,
}

impl Cursors {
    /// Knows no place. Generations begin at random, so that numbers of an earlier run of the server
    /// are unknown to this one.
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
            hasher: RandomState::new(),
            left: EMPTY,
            open: EMPTY,
            bytes: 0,
        }
    }

    /// Returns the memory that the places take, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns a number below 2^53, never 0, for the place after `key`. All places together are
    /// kept to about `most` bytes.
    pub(crate) fn insert(&mut self, database: usize, key: &[u8], most: u64) -> u64 {
        let database = u8::try_from(database).expect("databases are few");
        let hash = self.hasher.hash_one((database, key));
        let is_same = |slot: &u32| {
            let slot = &self.slots[*slot as usize];
            slot.database == database && slot.key.bytes() == key
        };
        let place = match self.index.find(hash, is_same).copied() {
            Some(place) => {
                self.unlink(place);
                place
            }
            None => self.take(hash, database, key),
        };
        let slot = &mut self.slots[place as usize];
        slot.open = slot.open.saturating_add(1);
        let id = u64::from(slot.generation) << SLOT_BITS | u64::from(place);
        self.link(place);
        while self.bytes > most && self.forget_oldest(place) {}
        id
    }

    /// Returns the key after which cursor `id` of `database` continues, and counts the cursor as
    /// used.
    pub(crate) fn find(&mut self, id: u64, database: usize) -> Option<Vec<u8>> {
        let place = u32::try_from(id & (SLOTS_MAX as u64 - 1)).ok()?;
        let slot = self.slots.get_mut(place as usize)?;
        let is_known = u64::from(slot.generation) == id >> SLOT_BITS;
        if !slot.is_taken || !is_known || usize::from(slot.database) != database {
            return None;
        }
        let key = slot.key.bytes().to_vec();
        self.unlink(place);
        let slot = &mut self.slots[place as usize];
        slot.open = slot.open.saturating_sub(1);
        self.link(place);
        Some(key)
    }

    /// Returns a slot that has the key, and is in no list.
    fn take(&mut self, hash: u64, database: u8, key: &[u8]) -> u32 {
        if self.free.is_empty() && self.slots.len() == SLOTS_MAX {
            self.forget_oldest(NONE);
        }
        let place = self.free.pop().unwrap_or_else(|| {
            let place = u32::try_from(self.slots.len()).expect("slots are bounded");
            if self.slots.len() == self.slots.capacity() {
                // Not doubled: the slots may already fill the budget.
                self.slots.reserve_exact(self.slots.len() / 8 + 64);
            }
            self.slots.push(Slot {
                key: Key::new(&[]),
                // Unpredictable enough: the system seeds the hashers.
                generation: u32::try_from(self.hasher.hash_one(place) >> 32).unwrap_or(0),
                older: NONE,
                newer: NONE,
                open: 0,
                database,
                is_taken: false,
            });
            place
        });
        let slot = &mut self.slots[place as usize];
        slot.generation = (slot.generation.wrapping_add(1) & GENERATION_MASK).max(1);
        slot.key = Key::new(key);
        slot.database = database;
        slot.open = 0;
        slot.is_taken = true;
        self.bytes += slot.bytes();
        let (slots, hasher) = (&self.slots, &self.hasher);
        let again = |place: &u32| {
            let slot = &slots[*place as usize];
            hasher.hash_one((slot.database, slot.key.bytes()))
        };
        self.index.insert_unique(hash, place, again);
        place
    }

    /// Drops the place that is needed least, unless it is `but`. Returns true if it has dropped
    /// one.
    fn forget_oldest(&mut self, but: u32) -> bool {
        let oldest = [self.left.oldest, self.open.oldest];
        let oldest = oldest
            .into_iter()
            .find(|place| ![NONE, but].contains(place));
        let Some(place) = oldest else { return false };
        self.unlink(place);
        let slot = &mut self.slots[place as usize];
        let hash = self.hasher.hash_one((slot.database, slot.key.bytes()));
        if let Ok(found) = self.index.find_entry(hash, |other| *other == place) {
            found.remove();
        }
        self.bytes -= slot.bytes();
        slot.key = Key::new(&[]);
        slot.is_taken = false;
        self.free.push(place);
        true
    }

    fn list_of(&mut self, place: u32) -> &mut List {
        match self.slots[place as usize].open {
            0 => &mut self.left,
            _ => &mut self.open,
        }
    }

    /// Makes the place the newest of its list.
    fn link(&mut self, place: u32) {
        let list = self.list_of(place);
        let before = std::mem::replace(&mut list.newest, place);
        if before == NONE {
            list.oldest = place;
        } else {
            self.slots[before as usize].newer = place;
        }
        let slot = &mut self.slots[place as usize];
        (slot.older, slot.newer) = (before, NONE);
    }

    /// Removes the place from its list.
    fn unlink(&mut self, place: u32) {
        let Slot { older, newer, .. } = self.slots[place as usize];
        match older {
            NONE => self.list_of(place).oldest = newer,
            _ => self.slots[older as usize].newer = newer,
        }
        match newer {
            NONE => self.list_of(place).newest = older,
            _ => self.slots[newer as usize].older = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The budget of a server with 64 MiB of memory.
    const MOST: u64 = 6 << 20;

    fn key(number: u32) -> Vec<u8> {
        format!("key:{number:010}").into_bytes()
    }

    #[test]
    fn numbers_are_below_2_to_the_53_and_known_to_their_database_only() {
        let mut cursors = Cursors::new();
        let long = [b'x'; 300];
        for key in [&b""[..], b"short", &long[..22], &long[..23], &long] {
            let id = cursors.insert(1, key, MOST);
            assert!(id > 0 && id < 1 << 53, "{id}");
            assert_eq!(
                cursors.insert(1, key, MOST),
                id,
                "iterations at one key share a place"
            );
            assert_eq!(cursors.find(id, 2), None);
            assert_eq!(cursors.find(id, 1).as_deref(), Some(key));
            let id = cursors.insert(2, key, MOST);
            assert_eq!(cursors.find(id, 1), None);
        }
        for id in [0, 1, 12345, (1 << 53) - 1, 1 << 53, u64::MAX] {
            assert_eq!(cursors.find(id, 1), None);
        }
    }

    #[test]
    fn the_places_of_another_run_are_not_known() {
        let (mut one, mut other) = (Cursors::new(), Cursors::new());
        for number in 0..1000 {
            let id = one.insert(0, &key(number), MOST);
            other.insert(0, &key(number), MOST);
            assert_eq!(other.find(id, 0), None);
        }
    }

    #[test]
    fn a_hundred_thousand_iterations_stand_while_others_run() {
        let mut cursors = Cursors::new();
        let open: Vec<u64> = (0..100_000)
            .map(|number| cursors.insert(0, &key(number), MOST))
            .collect();
        // One iteration leaves ten times as many places as there is room for, in the same database.
        let mut at = cursors.insert(0, &key(1_000_000), MOST);
        for number in 1_000_001..2_000_000 {
            assert_eq!(cursors.find(at, 0), Some(key(number - 1)));
            at = cursors.insert(0, &key(number), MOST);
        }
        for (number, id) in (0..).zip(&open) {
            assert_eq!(cursors.find(*id, 0), Some(key(number)), "{number}");
        }
        assert!(cursors.bytes() <= MOST);
        let capacity = cursors.slots.capacity() * size_of::<Slot>();
        let index = cursors.index.allocation_size();
        assert!(
            capacity as u64 + index as u64 <= MOST,
            "{capacity} and {index}"
        );
    }

    #[test]
    fn the_oldest_unused_goes_first_and_slots_are_used_again() {
        let mut cursors = Cursors::new();
        let one = cursors.insert(0, &[b'k'; 100], MOST);
        let each = cursors.bytes();
        assert!(each > 100);
        let most = 3 * each;
        let mut insert = |number: u8| cursors.insert(0, &[number; 100], most);
        let (two, three) = (insert(2), insert(3));
        let mut known = |id| cursors.find(id, 0).is_some();
        // `two` and then `one` are used.
        assert!(known(two) && known(one));
        let mut insert = |number: u8| cursors.insert(0, &[number; 100], most);
        let four = insert(4);
        let five = insert(5);
        let six = insert(6);
        let mut known = |id| cursors.find(id, 0).is_some();
        assert_eq!(
            [one, two, three, four, five, six].map(&mut known),
            [false, false, false, true, true, true]
        );
        // A place that two iterations share counts as left only after both have moved on.
        let mut cursors = Cursors::new();
        let shared = cursors.insert(0, &[1; 100], most);
        cursors.insert(0, &[1; 100], most);
        assert!(cursors.find(shared, 0).is_some());
        let left = cursors.insert(0, &[2; 100], most);
        assert!(cursors.find(left, 0).is_some());
        cursors.insert(0, &[3; 100], most);
        cursors.insert(0, &[4; 100], most);
        assert!(cursors.find(left, 0).is_none());
        assert!(cursors.find(shared, 0).is_some());
        assert_eq!(cursors.slots.len(), 4);
        assert!(cursors.bytes() <= most);
    }
}
