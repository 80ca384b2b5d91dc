//! A set of regions of a group: a bitmap with a summary, so that finding the next member takes a
//! few words, however many regions there are (decision 032).

use std::ops::Range;

const WORD_BITS: usize = u64::BITS as usize;

/// A set of numbers below [`RegionSet::len`].
#[derive(Debug, Default)]
pub(crate) struct RegionSet {
    words: Vec<u64>,
    /// One bit for each word, set if the word is not 0.
    summary: Vec<u64>,
    len: usize,
}

impl RegionSet {
    /// Adds room for one more number, which is not a member.
    pub(crate) fn push(&mut self) {
        if self.len.is_multiple_of(WORD_BITS) {
            if self.words.len().is_multiple_of(WORD_BITS) {
                self.summary.push(0);
            }
            self.words.push(0);
        }
        self.len += 1;
    }

    /// Removes the room of the last number.
    pub(crate) fn pop(&mut self) {
        self.remove(self.len - 1);
        self.len -= 1;
        self.words.truncate(self.len.div_ceil(WORD_BITS));
        self.summary.truncate(self.words.len().div_ceil(WORD_BITS));
    }

    /// Adds `number`, for which there is room. Does nothing for a member.
    pub(crate) fn insert(&mut self, number: usize) {
        let word = number / WORD_BITS;
        self.words[word] |= 1 << (number % WORD_BITS);
        self.summary[word / WORD_BITS] |= 1 << (word % WORD_BITS);
    }

    /// Removes `number`, for which there is room. Does nothing for one that is no member.
    pub(crate) fn remove(&mut self, number: usize) {
        let word = number / WORD_BITS;
        self.words[word] &= !(1 << (number % WORD_BITS));
        if self.words[word] == 0 {
            self.summary[word / WORD_BITS] &= !(1 << (word % WORD_BITS));
        }
    }

    /// Returns whether `number`, for which there is room, is a member.
    pub(crate) fn contains(&self, number: usize) -> bool {
        self.words[number / WORD_BITS] >> (number % WORD_BITS) & 1 == 1
    }

    /// Returns the first member in `range`.
    pub(crate) fn first_in(&self, range: Range<usize>) -> Option<usize> {
        if range.is_empty() {
            return None;
        }
        let word = range.start / WORD_BITS;
        let rest = self.words[word] & (u64::MAX << (range.start % WORD_BITS));
        let number = match rest {
            0 => {
                let word = first_one(&self.summary, word + 1)?;
                word * WORD_BITS + self.words[word].trailing_zeros() as usize
            }
            rest => word * WORD_BITS + rest.trailing_zeros() as usize,
        };
        (number < range.end).then_some(number)
    }
}

/// Returns the position of the first one at or after `from`.
fn first_one(words: &[u64], from: usize) -> Option<usize> {
    let first = from / WORD_BITS;
    let rest = words.get(first)? & (u64::MAX << (from % WORD_BITS));
    if rest != 0 {
        return Some(first * WORD_BITS + rest.trailing_zeros() as usize);
    }
    (first + 1..words.len())
        .find(|index| words[*index] != 0)
        .map(|index| index * WORD_BITS + words[index].trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::with_cases(64)
        })]

        #[test]
        fn members_are_those_of_an_ordered_set(
            len in 1usize..20_000,
            changes in proptest::collection::vec((0usize..20_000, any::<bool>()), 0..60),
            asked in proptest::collection::vec((0usize..20_000, 0usize..20_000), 1..40),
            popped in 0usize..20_000,
        ) {
            let (mut set, mut twin) = (RegionSet::default(), BTreeSet::new());
            (0..len).for_each(|_| set.push());
            for (number, member) in changes {
                let number = number % len;
                if member {
                    set.insert(number);
                    twin.insert(number);
                } else {
                    set.remove(number);
                    twin.remove(&number);
                }
                prop_assert_eq!(set.contains(number), member);
            }
            let left = len - popped % len;
            (left..len).for_each(|_| set.pop());
            twin.split_off(&left);
            // New numbers are not members.
            let len = left + 3;
            (left..len).for_each(|_| set.push());
            for (start, end) in asked {
                let range = start.min(len)..end.min(len);
                let first = match range.is_empty() {
                    true => None,
                    false => twin.range(range.clone()).next().copied(),
                };
                prop_assert_eq!(set.first_in(range), first);
            }
        }
    }
}
