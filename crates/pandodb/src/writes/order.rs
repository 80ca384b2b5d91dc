//! The writes of a batch in the order of their tables and keys, for reads of ranges. It costs
//! nothing until the first such read, and then what each write takes to be inserted.

use std::cmp::Ordering;
use std::ops::Range;

/// Beyond this many new writes, all are sorted anew.
const INSERTED_MAX: usize = 32;

/// Positions of writes in order; of the first `len` of them.
#[derive(Debug, Default)]
pub(super) struct KeyOrder {
    positions: Vec<u32>,
}

impl KeyOrder {
    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.positions.clear();
    }

    /// Bytes that are kept for the next use.
    pub(super) fn capacity(&self) -> usize {
        self.positions.capacity() * size_of::<u32>()
    }

    /// Forgets the writes from position `len` on.
    pub(super) fn truncate(&mut self, len: usize) {
        if self.positions.len() > len {
            self.positions.retain(|position| (*position as usize) < len);
        }
    }

    /// Takes in all of `len` writes, which `compare` compares by their positions.
    pub(super) fn catch_up(&mut self, len: usize, compare: impl Fn(usize, usize) -> Ordering) {
        let known = self.positions.len();
        if known == len {
            return;
        }
        let position = |at: usize| u32::try_from(at).expect("a batch has fewer writes");
        let of = |one: &u32, other: &u32| compare(*one as usize, *other as usize);
        if len - known > INSERTED_MAX {
            self.positions.extend((known..len).map(position));
            self.positions.sort_unstable_by(of);
            return;
        }
        for new in known..len {
            let is_before = |other: &u32| compare(*other as usize, new).is_lt();
            let place = self.positions.partition_point(is_before);
            self.positions.insert(place, position(new));
        }
    }

    /// Returns the places in the order of those that lie neither before nor behind a range.
    pub(super) fn between(
        &self,
        is_before: impl Fn(usize) -> bool,
        is_behind: impl Fn(usize) -> bool,
    ) -> Range<usize> {
        let start = self.positions.partition_point(|at| is_before(*at as usize));
        let rest = &self.positions[start..];
        start..start + rest.partition_point(|at| !is_behind(*at as usize))
    }

    /// Returns the position of the write at a place in the order.
    pub(super) fn at(&self, place: usize) -> usize {
        self.positions[place] as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Write(Vec<u16>),
        GoBack(usize),
        Read(u16, u16),
    }

    fn steps() -> impl Strategy<Value = Step> {
        prop_oneof![
            prop::collection::vec(any::<u16>(), 1..60).prop_map(Step::Write),
            (0..200_usize).prop_map(Step::GoBack),
            (any::<u16>(), any::<u16>()).prop_map(|(from, to)| Step::Read(from, to)),
        ]
    }

    proptest! {
        #[test]
        fn ranges_are_those_of_a_sorted_list(steps in prop::collection::vec(steps(), 0..40)) {
            let (mut order, mut writes) = (KeyOrder::default(), Vec::<u16>::new());
            for step in steps {
                match step {
                    Step::Write(keys) => {
                        for key in keys {
                            if !writes.contains(&key) {
                                writes.push(key);
                            }
                        }
                    }
                    Step::GoBack(len) => {
                        writes.truncate(len);
                        order.truncate(writes.len());
                    }
                    Step::Read(from, to) => {
                        let compare = |one: usize, other: usize| writes[one].cmp(&writes[other]);
                        order.catch_up(writes.len(), compare);
                        let found: Vec<u16> = order
                            .between(|at| writes[at] < from, |at| writes[at] >= to)
                            .map(|place| writes[order.at(place)])
                            .collect();
                        let within = |key: &u16| from <= *key && *key < to;
                        let mut wanted: Vec<u16> = writes.iter().copied().filter(within).collect();
                        wanted.sort_unstable();
                        prop_assert_eq!(found, wanted);
                    }
                }
            }
        }
    }
}
