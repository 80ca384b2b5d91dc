//! Sets of blocks, with one bit for each block. Long stretches of which all blocks or none are in
//! the set take no memory.

use pando_format::Extent;
use pando_format::cast::{u32_of, usize_of};

/// Words of a piece.
const WORDS: usize = 512;
/// Blocks of a piece: 128 MiB of blocks of 4 KiB.
const BLOCKS: u64 = WORDS as u64 * 64;
/// Longest extent that [`BlockSet::take_shared`] returns.
const RUN_MAX: u32 = 1 << 20;

/// The blocks of one piece.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Piece {
    #[default]
    None,
    All,
    Some {
        words: Box<[u64; WORDS]>,
        count: u64,
    },
}

impl Piece {
    fn count(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::All => BLOCKS,
            Self::Some { count, .. } => *count,
        }
    }

    fn word(&self, index: usize) -> u64 {
        match self {
            Self::None => 0,
            Self::All => u64::MAX,
            Self::Some { words, .. } => words[index],
        }
    }

    /// Changes a word. Returns the number of its bits before and after.
    fn change(&mut self, index: usize, change: impl FnOnce(u64) -> u64) -> (u64, u64) {
        let before = self.word(index);
        let after = change(before);
        let (were, are) = (before.count_ones().into(), after.count_ones().into());
        if before == after {
            return (were, are);
        }
        if !matches!(self, Self::Some { .. }) {
            let words = Box::new([self.word(0); WORDS]);
            let count = self.count();
            *self = Self::Some { words, count };
        }
        if let Self::Some { words, count } = self {
            words[index] = after;
            *count = *count - were + are;
            match *count {
                0 => *self = Self::None,
                BLOCKS => *self = Self::All,
                _ => {}
            }
        }
        (were, are)
    }
}

/// A set of blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockSet {
    pieces: Vec<Piece>,
    len: u64,
}

/// Place of a block: its piece, the word in it, the bit in that.
fn place(block: u64) -> (usize, usize, u32) {
    let word = usize_of(block % BLOCKS / 64);
    (usize_of(block / BLOCKS), word, u32_of(block % 64))
}

impl BlockSet {
    /// Returns an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of blocks in the set.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether no block is in the set.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes of memory that the set takes.
    pub fn bytes(&self) -> u64 {
        let some = |piece: &&Piece| matches!(piece, Piece::Some { .. });
        let some = self.pieces.iter().filter(some).count();
        (size_of::<Self>() + self.pieces.len() * size_of::<Piece>() + some * WORDS * 8) as u64
    }

    /// Returns whether `block` is in the set.
    pub fn contains(&self, block: u32) -> bool {
        let (piece, word, bit) = place(block.into());
        let piece = self.pieces.get(piece);
        piece.is_some_and(|piece| piece.word(word) >> bit & 1 == 1)
    }

    /// Adds the blocks of `extent`; those that are in the set stay there.
    pub fn insert(&mut self, extent: Extent) {
        let end = u64::from(extent.block) + u64::from(extent.blocks);
        let pieces = usize_of(end.div_ceil(BLOCKS));
        if self.pieces.len() < pieces {
            self.pieces.resize(pieces, Piece::None);
        }
        let mut block = u64::from(extent.block);
        while block < end {
            let (piece, word, bit) = place(block);
            let count = (64 - u64::from(bit)).min(end - block);
            let mask = (u64::MAX >> (64 - count)) << bit;
            let (were, are) = self.pieces[piece].change(word, |word| word | mask);
            self.len += are - were;
            block += count;
        }
    }

    /// Removes the blocks that are in `others`, too, but in none of `kept`. Returns them as
    /// extents, in ascending order.
    pub fn take_shared(&mut self, others: &Self, kept: &[&Self]) -> Vec<Extent> {
        let mut taken: Vec<Extent> = Vec::new();
        let word_of = |set: &Self, piece: usize, word| {
            set.pieces.get(piece).map_or(0, |piece| piece.word(word))
        };
        for index in 0..self.pieces.len().min(others.pieces.len()) {
            let has_none = |set: &Self| set.pieces[index] == Piece::None;
            if has_none(self) || has_none(others) {
                continue;
            }
            for word in 0..WORDS {
                let both = self.pieces[index].word(word) & others.pieces[index].word(word);
                let needed = kept.iter().map(|set| word_of(set, index, word));
                let free = needed.fold(both, |free, needed| free & !needed);
                let (were, are) = self.pieces[index].change(word, |word| word & !free);
                self.len -= were - are;
                push_runs(index as u64 * BLOCKS + word as u64 * 64, free, &mut taken);
            }
        }
        taken
    }
}

/// Appends the blocks of `bits`, the first of which is `block`, to ascending extents.
fn push_runs(block: u64, mut bits: u64, extents: &mut Vec<Extent>) {
    let mut at = block;
    while bits != 0 {
        let skipped = bits.trailing_zeros();
        bits >>= skipped;
        at += u64::from(skipped);
        let run = bits.trailing_ones();
        let start = u32_of(at);
        match extents.last_mut() {
            Some(last) if last.block + last.blocks == start && last.blocks + run <= RUN_MAX => {
                last.blocks += run;
            }
            _ => extents.push(Extent {
                block: start,
                blocks: run,
            }),
        }
        bits = bits.checked_shr(run).unwrap_or(0);
        at += u64::from(run);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn extent(block: u32, blocks: u32) -> Extent {
        Extent { block, blocks }
    }

    fn set_of(extents: &[Extent]) -> BlockSet {
        let mut set = BlockSet::new();
        for extent in extents {
            set.insert(*extent);
        }
        set
    }

    fn blocks_of(extents: &[Extent]) -> BTreeSet<u32> {
        let blocks = |extent: &Extent| extent.block..extent.block + extent.blocks;
        extents.iter().flat_map(blocks).collect()
    }

    #[test]
    fn stretches_of_all_or_no_blocks_take_no_memory() {
        let piece = u32_of(BLOCKS);
        let mut set = set_of(&[extent(piece, piece), extent(3 * piece, 2 * piece)]);
        assert_eq!(set.len(), 3 * BLOCKS);
        assert!(set.bytes() < 1000, "{}", set.bytes());
        set.insert(extent(0, 1));
        assert!(set.bytes() > 4096);
        let others = set_of(&[extent(0, 5 * piece)]);
        let taken = set.take_shared(&others, &[]);
        assert_eq!(
            taken,
            [
                extent(0, 1),
                extent(piece, piece),
                extent(3 * piece, 2 * piece)
            ]
        );
        assert!(set.is_empty());
        assert!(set.bytes() < 1000, "{}", set.bytes());
    }

    #[test]
    fn what_is_taken_in_runs_is_not_too_long() {
        let mut set = set_of(&[extent(5, 3 << 20)]);
        let taken = set.take_shared(&set.clone(), &[]);
        assert!(taken.iter().all(|extent| extent.blocks <= RUN_MAX));
        assert_eq!(
            taken.iter().map(|extent| extent.blocks).sum::<u32>(),
            3 << 20
        );
    }

    /// Extents near the borders of words and pieces.
    fn extents() -> impl Strategy<Value = Vec<Extent>> {
        let block = prop_oneof![0_u32..200, 32_600_u32..32_900, 65_400_u32..65_700];
        let one = (block, 1_u32..150).prop_map(|(block, blocks)| extent(block, blocks));
        prop::collection::vec(one, 0..12)
    }

    proptest! {
        #[test]
        fn a_set_is_a_set(of in extents(), others in extents(), kept in extents()) {
            let mut set = set_of(&of);
            let blocks = blocks_of(&of);
            prop_assert_eq!(set.len(), blocks.len() as u64);
            for block in (0..70_000).step_by(7).chain(blocks.iter().copied()) {
                prop_assert_eq!(set.contains(block), blocks.contains(&block));
            }
            let expected: BTreeSet<u32> = &(&blocks & &blocks_of(&others)) - &blocks_of(&kept);
            let taken = set.take_shared(&set_of(&others), &[&set_of(&kept)]);
            let count: u64 = taken.iter().map(|extent| u64::from(extent.blocks)).sum();
            prop_assert_eq!(count, expected.len() as u64);
            prop_assert_eq!(&blocks_of(&taken), &expected);
            let left: Vec<Extent> = (&blocks - &expected).iter().map(|at| extent(*at, 1)).collect();
            prop_assert_eq!(set.len(), left.len() as u64);
            for one in &left {
                prop_assert!(set.contains(one.block));
            }
        }
    }
}
