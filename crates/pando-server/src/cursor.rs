//! SCAN cursors: numbers that name where an iteration stopped.
//!
//! A bounded ring remembers the last places. A number the ring no longer knows, or never knew,
//! starts over: keys may come twice, none is left out.

/// Places remembered at a time.
const RING: u64 = 4096;

/// Where an iteration goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) database: usize,
    /// The last stored key that was looked at: go on behind it.
    pub(crate) last: Vec<u8>,
}

/// The last [`RING`] places.
#[derive(Debug)]
pub(crate) struct CursorRing {
    next: u64,
    places: Vec<Option<(u64, Place)>>,
}

impl CursorRing {
    /// A ring whose numbers begin at a place that depends on `seed`, so that those of an earlier
    /// run are unknown to this one.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            next: (seed & 0x3fff_ffff_ffff_ffff).max(1),
            places: Vec::new(),
        }
    }

    /// A number below 2^63, never 0, for `place`.
    pub(crate) fn insert(&mut self, place: Place) -> u64 {
        if self.places.is_empty() {
            self.places.resize(usize::try_from(RING).unwrap_or(1), None);
        }
        let id = self.next;
        self.next += 1;
        let slot = usize::try_from(id % RING).unwrap_or(0);
        self.places[slot] = Some((id, place));
        id
    }

    /// Where cursor `id` of `database` stopped.
    pub(crate) fn find(&self, id: u64, database: usize) -> Option<&Place> {
        let slot = usize::try_from(id % RING).unwrap_or(0);
        match self.places.get(slot) {
            Some(Some((known, place))) if *known == id && place.database == database => Some(place),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_unknown_numbers_are_not_known() {
        let mut ring = CursorRing::new(u64::MAX);
        let place = |n: u64| Place {
            database: 1,
            last: n.to_be_bytes().to_vec(),
        };
        let ids: Vec<u64> = (0..RING + 5).map(|n| ring.insert(place(n))).collect();
        assert!(ids.iter().all(|id| *id > 0 && *id < 1 << 63));
        assert_eq!(ring.find(ids[4], 1), None);
        assert_eq!(ring.find(ids[5], 1), Some(&place(5)));
        assert_eq!(ring.find(ids[5], 2), None);
        assert_eq!(ring.find(12345, 1), None);
        assert_eq!(CursorRing::new(7).find(0, 0), None);
    }
}
