//! Lengths of values: all equal, or each derived from its key and version.

use pando_format::cast::usize_of;

use crate::random::Random;
use crate::zipf::Zipf;

/// Number of bytes that tell which key and version a value belongs to.
pub(crate) const HEAD_BYTES: usize = 12;

/// Exponent of Zipf's law for lengths that are mostly short.
const EXPONENT: f64 = 0.99;

/// Lengths of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueSizes {
    /// All equal.
    Fixed(usize),
    /// From `min` to `max`, all equally often.
    Uniform {
        /// Bytes of the shortest.
        min: usize,
        /// Bytes of the longest.
        max: usize,
    },
    /// From `min` to `max` by Zipf's law (exponent 0.99): `min` is the most frequent.
    Zipf {
        /// Bytes of the shortest.
        min: usize,
        /// Bytes of the longest.
        max: usize,
    },
}

impl ValueSizes {
    /// Returns the lengths of the shortest and of the longest value.
    pub fn bounds(self) -> (usize, usize) {
        match self {
            Self::Fixed(bytes) => (bytes, bytes),
            Self::Uniform { min, max } | Self::Zipf { min, max } => (min, max),
        }
    }

    /// Returns its name in records; `None` if all are equal.
    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            Self::Fixed(_) => None,
            Self::Uniform { .. } => Some("uniform"),
            Self::Zipf { .. } => Some("zipf:0.99"),
        }
    }

    /// Returns why these lengths make no sense, if they do not.
    pub(crate) fn check(self) -> Option<String> {
        let (min, max) = self.bounds();
        if self.name().is_none() || (HEAD_BYTES <= min && min <= max) {
            return None;
        }
        Some(format!(
            "{min}-{max} is no range from {HEAD_BYTES} bytes up (its version is in a value, and \
             says how long it is)"
        ))
    }
}

/// Lengths, ready to be drawn.
#[derive(Debug)]
pub(crate) struct Sizes {
    sizes: ValueSizes,
    zipf: Option<Zipf>,
}

impl Sizes {
    /// Prepares the distribution; `sizes` has been checked.
    pub(crate) fn new(sizes: ValueSizes) -> Self {
        let zipf = match sizes {
            ValueSizes::Zipf { min, max } => {
                let count = max.saturating_sub(min) as u64 + 1;
                Some(Zipf::new(count, EXPONENT))
            }
            _ => None,
        };
        Self { sizes, zipf }
    }

    /// Returns the length of the longest value.
    pub(crate) fn max(&self) -> usize {
        self.sizes.bounds().1
    }

    /// Returns the length that is derived from `seed`.
    pub(crate) fn size(&self, seed: u64) -> usize {
        let (min, max) = self.sizes.bounds();
        if min >= max {
            return max;
        }
        let mut random = Random::new(seed, 0);
        let more = match &self.zipf {
            Some(zipf) => zipf.rank(&mut random),
            None => random.below((max - min) as u64 + 1),
        };
        min + usize_of(more)
    }
}

#[cfg(test)]
mod tests {
    use super::{Sizes, ValueSizes};

    fn drawn(sizes: ValueSizes) -> Vec<usize> {
        let sizes = Sizes::new(sizes);
        let mut all: Vec<_> = (0..20_000).map(|seed| sizes.size(seed)).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn sizes_keep_their_bounds_and_their_law() {
        let (min, max) = (64, 163);
        assert!(drawn(ValueSizes::Fixed(9)).iter().all(|size| *size == 9));
        let uniform = drawn(ValueSizes::Uniform { min, max });
        assert_eq!((uniform[0], uniform[19_999]), (min, max));
        assert!(
            (112..=115).contains(&uniform[10_000]),
            "{}",
            uniform[10_000]
        );
        let zipf = drawn(ValueSizes::Zipf { min, max });
        assert_eq!((zipf[0], zipf[19_999]), (min, max));
        let shortest = zipf.iter().filter(|size| **size == min).count() as f64;
        // The expected share is 1 / (the sum of k^-0.99 for k from 1 to 100) = 0.189.
        assert!((shortest / 20_000.0 - 0.189).abs() < 0.02, "{shortest}");
    }

    #[test]
    fn ranges_that_make_no_sense_are_refused() {
        assert_eq!(ValueSizes::Fixed(0).check(), None);
        assert_eq!(ValueSizes::Zipf { min: 12, max: 12 }.check(), None);
        assert!(ValueSizes::Uniform { min: 11, max: 20 }.check().is_some());
        assert!(ValueSizes::Zipf { min: 20, max: 19 }.check().is_some());
    }
}
