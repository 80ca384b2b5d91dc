//! Random elements of a collection: which ones HRANDFIELD, SRANDMEMBER and their like return.

use crate::context::{Context, Interrupted, replies};

/// Returns argument `at` as the number of elements: of different ones, or if it is negative of any.
pub(crate) fn parse_count(context: &Context<'_>, at: usize) -> Result<i64, Interrupted> {
    match context.integer_at(at)? {
        i64::MIN => Err(replies::COUNT_OUT_OF_RANGE.into()),
        count => Ok(count),
    }
}

/// The places of random elements.
pub(crate) struct Places {
    chosen: Chosen,
    length: usize,
}

enum Chosen {
    /// All of so many elements.
    All(usize),
    /// These, all different.
    These(std::vec::IntoIter<usize>),
    /// Any of so many elements, perhaps often.
    Any(usize),
}

/// Chooses among `elements` elements: `count` different ones, or all if there are not so many; if
/// `count` is negative as many as it says, which may repeat themselves.
pub(crate) fn places(elements: usize, count: i64) -> Places {
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    if elements == 0 {
        return Places {
            chosen: Chosen::All(0),
            length: 0,
        };
    }
    if count < 0 {
        return Places {
            chosen: Chosen::Any(elements),
            length: wanted,
        };
    }
    if wanted >= elements {
        return Places {
            chosen: Chosen::All(elements),
            length: elements,
        };
    }
    let chosen = fastrand::choose_multiple(0..elements, wanted);
    Places {
        chosen: Chosen::These(chosen.into_iter()),
        length: wanted,
    }
}

impl Places {
    /// Number of places that are left.
    pub(crate) fn len(&self) -> usize {
        self.length
    }
}

impl Iterator for Places {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.length == 0 {
            return None;
        }
        self.length -= 1;
        match &mut self.chosen {
            Chosen::All(elements) => Some(*elements - 1 - self.length),
            Chosen::These(chosen) => chosen.next(),
            Chosen::Any(elements) => Some(fastrand::usize(..*elements)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_as_were_asked_for() {
        assert_eq!(places(3, 5).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(places(3, 0).count(), 0);
        assert_eq!(places(0, -4).count(), 0);
        assert_eq!(places(2, -9).count(), 9);
        assert_eq!(places(2, i64::MIN + 1).len(), usize::MAX / 2);
        let mut four: Vec<_> = places(9, 4).collect();
        four.sort_unstable();
        four.dedup();
        assert_eq!(four.len(), 4);
    }

    /// The bound is passed by chance once in a million runs: 9 degrees of freedom, chi-squared 44.
    #[test]
    fn each_is_as_likely_as_the_others() {
        for count in [-1, 1, 3, 7] {
            let mut seen = [0_u32; 10];
            let mut draws = 0;
            while draws < 20_000 {
                for place in places(10, count) {
                    seen[place] += 1;
                    draws += 1;
                }
            }
            let expected = f64::from(draws) / 10.0;
            let square = |seen: &u32| (f64::from(*seen) - expected).powi(2) / expected;
            let chi: f64 = seen.iter().map(square).sum();
            assert!(chi < 44.0, "{count}: {seen:?}");
        }
    }
}
