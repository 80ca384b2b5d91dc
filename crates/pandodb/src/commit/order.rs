//! The order in which the writes of a batch are logged and applied: by tree and key.
//!
//! Most comparisons are decided by the eight bytes behind what all keys of the table begin with,
//! which are read once for each key: the keys themselves lie apart in memory.
//!
//! Ids of counted trees are higher than all others, so these come last. A reader that has counted
//! or scanned a part of a batch in a counted table finds what the batch has written in other tables
//! marked by then, and its read of that waits for the whole batch. The server's reads of large
//! collections depend on it (decision 085).

use pando_format::TreeId;
use pando_format::cast::u32_of_len;

use crate::writes::set::WriteSet;

/// Bytes of a key that are read for its rank.
const HEAD_BYTES: usize = 8;
/// Most tables of a batch that is looked at for what the keys of each begin with.
const TABLES: usize = 4;

/// What orders the writes of a batch but for those whose heads are the same, as one number, from
/// the highest bit on: tree, head and position of the write in the set.
trait Rank: Copy + Ord {
    /// Bits of the position.
    const POSITION_BITS: u32;
    fn new(tree: TreeId, head: u64, at: usize) -> Self;
    /// The rank without the position.
    fn place(self) -> Self;
    fn position(self) -> usize;
}

/// Of any batch.
impl Rank for u128 {
    const POSITION_BITS: u32 = 32;

    #[inline]
    fn new(tree: TreeId, head: u64, at: usize) -> Self {
        let place = Self::from(tree.0) << 64 | Self::from(head);
        place << Self::POSITION_BITS | Self::from(u32_of_len(at))
    }

    #[inline]
    fn place(self) -> Self {
        self >> Self::POSITION_BITS
    }

    #[inline]
    fn position(self) -> usize {
        let [.., a, b, c, d] = self.to_be_bytes();
        u32::from_be_bytes([a, b, c, d]) as usize
    }
}

/// Of a batch of one table whose positions have 16 bits. It has six bytes of the head, and is
/// sorted in less than half the time.
impl Rank for u64 {
    const POSITION_BITS: u32 = 16;

    #[inline]
    fn new(_only: TreeId, head: u64, at: usize) -> Self {
        debug_assert!(at < SHORT_MAX, "a position of more bits");
        head >> Self::POSITION_BITS << Self::POSITION_BITS | at as Self
    }

    #[inline]
    fn place(self) -> Self {
        self >> Self::POSITION_BITS
    }

    #[inline]
    fn position(self) -> usize {
        let [a, b, ..] = self.to_le_bytes();
        usize::from(u16::from_le_bytes([a, b]))
    }
}

/// Batches of one table with at most as many writes have short ranks.
const SHORT_MAX: usize = 1 << <u64 as Rank>::POSITION_BITS;

/// The order of the writes of one batch.
#[derive(Debug, Default)]
pub(crate) struct WriteOrder {
    /// Positions of the writes in the set, in order.
    positions: Vec<usize>,
    /// Memory for sorting.
    ranks: Vec<u128>,
    short_ranks: Vec<u64>,
}

impl WriteOrder {
    /// Returns the positions of the writes in the set, in order.
    pub(crate) fn positions(&self) -> &[usize] {
        &self.positions
    }

    /// Bytes of the memory that it keeps.
    pub(crate) fn capacity(&self) -> usize {
        let of_ranks = self.ranks.capacity() * size_of::<u128>()
            + self.short_ranks.capacity() * size_of::<u64>();
        self.positions.capacity() * size_of::<usize>() + of_ranks
    }

    /// Orders the writes of `set` by tree and key; `tree_of` returns the tree of a table.
    pub(crate) fn arrange(&mut self, set: &WriteSet, tree_of: impl Fn(usize) -> TreeId) {
        self.positions.clear();
        if set.len() == 1 {
            self.positions.push(0);
        } else if set.is_in_order() {
            self.positions.extend(0..set.len());
        } else if set.tables.len() == 1 && set.len() <= SHORT_MAX {
            sort(set, &tree_of, &mut self.short_ranks, &mut self.positions);
        } else {
            sort(set, &tree_of, &mut self.ranks, &mut self.positions);
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
}

/// Fills `positions`, which is empty, with the positions of the writes in order.
fn sort<R: Rank>(
    set: &WriteSet,
    tree_of: impl Fn(usize) -> TreeId,
    ranks: &mut Vec<R>,
    positions: &mut Vec<usize>,
) {
    let shared = shared_bytes(set, &tree_of);
    ranks.clear();
    ranks.extend(set.written_keys().enumerate().map(|(at, (table, key))| {
        let shared = shared.get(table).map_or(0, |bytes| *bytes);
        R::new(tree_of(table), head(&key[shared..]), at)
    }));
    // Elements that are pushed in front of each other descend, which costs a short sort most.
    if ranks.get(ranks.len() / 2) > ranks.last() {
        ranks.reverse();
    }
    ranks.sort_unstable();
    positions.extend(ranks.iter().map(|rank| rank.position()));
    let mut from = 0;
    for same in ranks.chunk_by(|one, other| one.place() == other.place()) {
        let to = from + same.len();
        if same.len() > 1 {
            let key = |at: &usize| set.write_at(*at).1;
            positions[from..to].sort_unstable_by(|one, other| key(one).cmp(key(other)));
        }
        from = to;
    }
}

/// Returns how many bytes all keys of a table begin with: those of one tree are compared with each
/// other only. Nothing of batches of many tables.
fn shared_bytes(set: &WriteSet, tree_of: impl Fn(usize) -> TreeId) -> [usize; TABLES] {
    if set.tables.len() > TABLES {
        return [0; TABLES];
    }
    let mut shared: [Option<&[u8]>; TABLES] = [None; TABLES];
    for (table, key) in set.written_keys() {
        let first = shared[table].get_or_insert(key);
        if !key.starts_with(first) {
            let same = first
                .iter()
                .zip(key)
                .take_while(|(one, other)| one == other);
            *first = &first[..same.count()];
        }
    }
    // A table without writes may be gone.
    let is_written = |table: &usize| shared[*table].is_some();
    let is_of_one_tree = |table| {
        let mut others = (0..table).filter(is_written);
        others.any(|other| tree_of(other) == tree_of(table))
    };
    // Of two tables if they were swapped while the set was made.
    if (1..TABLES).filter(is_written).any(is_of_one_tree) {
        return [0; TABLES];
    }
    shared.map(|bytes| bytes.map_or(0, <[u8]>::len))
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

    /// Keys of all lengths, many of which differ only behind their heads, in up to six trees whose
    /// order is not that of their tables.
    #[test]
    fn writes_are_ordered_by_tree_and_key() {
        let tables = Tables::new(0);
        let states: [_; 6] = std::array::from_fn(|at| tables.absent(&format!("{at}")));
        let mut random = fastrand::Rng::with_seed(1);
        let mut order = WriteOrder::default();
        for round in 0..2_000 {
            let mut set = WriteSet::default();
            // One table has ranks of its own.
            let count = random.usize(1..=6);
            let tables: Vec<_> = states[..count]
                .iter()
                .map(|state| set.table(state))
                .collect();
            let mut trees = [2, 3, 5, 7, 11, 13].map(TreeId);
            random.shuffle(&mut trees);
            // Two tables that were swapped meanwhile.
            let is_swapped = round % 8 == 0;
            if is_swapped {
                trees[0] = trees[random.usize(..6)];
            }
            let begins: [_; 6] = std::array::from_fn(|_| vec![0; random.usize(..12)]);
            for _ in 0..random.usize(..40) {
                let table = random.usize(..count);
                let mut key = begins[table].clone();
                key.extend((0..random.usize(..12)).map(|_| random.u8(..2)));
                // No key is there twice.
                key.extend(is_swapped.then_some(table as u8));
                set.write(tables[table], &key, Some(b"value"));
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
