//! The order in which the writes of a batch are logged and applied: by tree and key.
//!
//! Most comparisons are decided by the eight bytes behind what all keys begin with, which are read
//! once for each key: the keys themselves lie apart in memory.
//!
//! Ids of counted trees are higher than all others, so these come last. A reader that has counted
//! or scanned a part of a batch in a counted table finds what the batch has written in other tables
//! marked by then, and its read of that waits for the whole batch. The server's reads of large
//! collections depend on it (decision 085).

use pando_format::TreeId;
use pando_format::cast::u32_of_len;

use crate::writes::set::WriteSet;

/// Bytes of a key that its rank has.
const HEAD_BYTES: usize = 8;
/// Bits of the position of a write in its rank.
const POSITION_BITS: u32 = 32;

/// The order of the writes of one batch.
#[derive(Debug, Default)]
pub(crate) struct WriteOrder {
    /// Positions of the writes in the set, in order.
    positions: Vec<usize>,
    /// Memory for sorting: tree, head and position of each write, from the highest bit on.
    ranks: Vec<u128>,
}

impl WriteOrder {
    /// Returns the positions of the writes in the set, in order.
    pub(crate) fn positions(&self) -> &[usize] {
        &self.positions
    }

    /// Bytes of the memory that it keeps.
    pub(crate) fn capacity(&self) -> usize {
        self.positions.capacity() * size_of::<usize>() + self.ranks.capacity() * size_of::<u128>()
    }

    /// Orders the writes of `set` by tree and key; `tree_of` returns the tree of a table.
    pub(crate) fn arrange(&mut self, set: &WriteSet, tree_of: impl Fn(usize) -> TreeId) {
        self.positions.clear();
        if set.len() == 1 {
            self.positions.push(0);
        } else if set.is_in_order() {
            self.positions.extend(0..set.len());
        } else {
            self.sort(set, &tree_of);
        }
        // Places, runs and replay proceed from one key to the next; a key that occurred twice
        // would be applied in an undefined order.
        let place_of = |at: usize| {
            let (table, key, _) = set.write_at(at);
            (tree_of(table), key)
        };
        let ascends = |one: &usize, other: &usize| place_of(*one) < place_of(*other);
        // Two tables that the set touches have one tree if they were swapped while it was made.
        // Such a batch conflicts.
        debug_assert!(
            self.positions.is_sorted_by(ascends) || !set.trees_unchanged(),
            "keys ascend, each once"
        );
    }

    fn sort(&mut self, set: &WriteSet, tree_of: impl Fn(usize) -> TreeId) {
        let shared = shared_bytes(set);
        self.ranks.clear();
        self.ranks
            .extend(set.writes().enumerate().map(|(at, write)| {
                let (table, key, _) = write;
                let place = u128::from(tree_of(table).0) << 64 | u128::from(head(&key[shared..]));
                place << POSITION_BITS | u128::from(u32_of_len(at))
            }));
        self.ranks.sort_unstable();
        self.positions.extend(self.ranks.iter().map(position));
        let mut from = 0;
        let is_same = |one: &u128, other: &u128| one >> POSITION_BITS == other >> POSITION_BITS;
        for same in self.ranks.chunk_by(is_same) {
            let to = from + same.len();
            if same.len() > 1 {
                let key = |at: &usize| set.write_at(*at).1;
                self.positions[from..to].sort_unstable_by(|one, other| key(one).cmp(key(other)));
            }
            from = to;
        }
    }
}

/// Returns the position in a rank.
fn position(rank: &u128) -> usize {
    let [.., a, b, c, d] = rank.to_be_bytes();
    u32::from_be_bytes([a, b, c, d]) as usize
}

/// Returns how many bytes all keys of the set begin with.
fn shared_bytes(set: &WriteSet) -> usize {
    let mut keys = set.writes().map(|(_, key, _)| key);
    let Some(mut shared) = keys.next() else {
        return 0;
    };
    for key in keys {
        if !key.starts_with(shared) {
            let same = shared
                .iter()
                .zip(key)
                .take_while(|(one, other)| one == other);
            shared = &shared[..same.count()];
        }
    }
    shared.len()
}

/// Returns the first bytes of `key` as a number; a key that is shorter is filled up with zeros.
/// Where two of them differ, the keys are in the same order.
#[inline]
fn head(key: &[u8]) -> u64 {
    if let Some(first) = key.first_chunk() {
        return u64::from_be_bytes(*first);
    }
    let mut bytes = [0; HEAD_BYTES];
    bytes[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(bytes)
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests {
    use super::*;
    use crate::tables::state::Tables;

    /// Keys of all lengths, many of which differ only behind their heads, in two trees whose order
    /// is not that of their tables.
    #[test]
    fn writes_are_ordered_by_tree_and_key() {
        let tables = Tables::new(0);
        let states: [_; 2] = std::array::from_fn(|at| tables.absent(&format!("{at}")));
        let mut random = fastrand::Rng::with_seed(1);
        let mut order = WriteOrder::default();
        for round in 0..2_000 {
            let mut set = WriteSet::default();
            let tables = states.each_ref().map(|state| set.table(state));
            let trees = if round % 2 == 0 { [5, 7] } else { [7, 5] }.map(TreeId);
            let begin = vec![0; random.usize(..12)];
            for _ in 0..random.usize(..40) {
                let mut key = begin.clone();
                key.extend((0..random.usize(..12)).map(|_| random.u8(..2)));
                set.write(tables[random.usize(..2)], &key, Some(b"value"));
            }
            order.arrange(&set, |table| trees[table]);
            let place_of = |at: &usize| {
                let (table, key, _) = set.write_at(*at);
                (trees[table], key)
            };
            let mut expected: Vec<usize> = (0..set.len()).collect();
            expected.sort_by(|one, other| place_of(one).cmp(&place_of(other)));
            assert_eq!(order.positions(), expected, "round {round}");
        }
    }
}
