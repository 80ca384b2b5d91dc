//! The numbers of reads in flight: which are free, and the next one.

/// Bits of a word.
const BITS: usize = 64;

/// The tags `0 .. depth`, each free or taken. They are given out in a circle, so that those that
/// are taken one after the other are neighbours, as long as the older ones come back first.
#[derive(Debug)]
pub(crate) struct Tags {
    /// A bit for each tag; set if it is free.
    words: Vec<u64>,
    free: usize,
    /// Where the search begins.
    next: usize,
}

impl Tags {
    /// Makes `depth` free tags.
    pub(crate) fn new(depth: usize) -> Self {
        let word = |word: usize| match depth - word * BITS {
            BITS.. => u64::MAX,
            rest => (1 << rest) - 1,
        };
        Self {
            words: (0..depth.div_ceil(BITS)).map(word).collect(),
            free: depth,
            next: 0,
        }
    }

    /// Number of free tags.
    pub(crate) fn free(&self) -> usize {
        self.free
    }

    /// Takes the next free tag in the circle.
    pub(crate) fn take_next(&mut self) -> Option<usize> {
        let (word, bit) = (self.next / BITS, self.next % BITS);
        let count = self.words.len();
        // The last look is at what lies before `next` in its own word.
        let at = (0..=count).find_map(|step| {
            let index = (word + step) % count.max(1);
            let mut bits = *self.words.get(index)?;
            if step == 0 {
                bits &= u64::MAX << bit;
            }
            (bits != 0).then(|| index * BITS + bits.trailing_zeros() as usize)
        })?;
        self.take(at).then_some(at)
    }

    /// Takes `tag`. Returns false if it is taken, or there is none of this number.
    pub(crate) fn take(&mut self, tag: usize) -> bool {
        let Some(word) = self.words.get_mut(tag / BITS) else {
            return false;
        };
        let bit = 1 << (tag % BITS);
        if *word & bit == 0 {
            return false;
        }
        *word &= !bit;
        self.free -= 1;
        self.next = match tag + 1 < self.words.len() * BITS {
            true => tag + 1,
            false => 0,
        };
        true
    }

    /// Gives a tag back.
    pub(crate) fn give_back(&mut self, tag: usize) {
        let bit = 1 << (tag % BITS);
        let word = &mut self.words[tag / BITS];
        assert_eq!(*word & bit, 0, "a tag came back twice");
        *word |= bit;
        self.free += 1;
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle, pando_audit))))]
mod tests {
    use std::collections::BTreeSet;

    use fastrand::Rng;

    use super::*;

    #[test]
    fn tags_are_taken_in_a_circle() {
        let mut tags = Tags::new(3);
        let next = |tags: &mut Tags| tags.take_next();
        assert_eq!([0; 3].map(|_| next(&mut tags)), [Some(0), Some(1), Some(2)]);
        assert_eq!(next(&mut tags), None);
        tags.give_back(1);
        tags.give_back(0);
        assert_eq!([0; 3].map(|_| next(&mut tags)), [Some(0), Some(1), None]);
        assert!(!tags.take(1) && !tags.take(3) && !tags.take(64));
        assert_eq!(Tags::new(0).take_next(), None);
    }

    #[test]
    fn tags_are_those_of_a_naive_twin() {
        let mut random = Rng::with_seed(7);
        for depth in [1, 2, 63, 64, 65, 128, 200] {
            let (mut tags, mut taken) = (Tags::new(depth), BTreeSet::new());
            let mut next = 0;
            for _ in 0..4_000 {
                let any = random.usize(0..depth);
                match random.u8(0..3) {
                    0 => {
                        let free = |tag: &usize| !taken.contains(tag);
                        let found = (next..depth).chain(0..next).find(free);
                        assert_eq!(tags.take_next(), found);
                        if let Some(tag) = found {
                            taken.insert(tag);
                            next = (tag + 1) % depth;
                        }
                    }
                    1 => {
                        let is_new = taken.insert(any);
                        assert_eq!(tags.take(any), is_new);
                        if is_new {
                            next = (any + 1) % depth;
                        }
                    }
                    _ => {
                        if taken.remove(&any) {
                            tags.give_back(any);
                        }
                    }
                }
                assert_eq!(tags.free(), depth - taken.len());
            }
        }
    }
}
