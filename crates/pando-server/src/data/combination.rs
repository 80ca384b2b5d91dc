//! How sets and sorted sets are combined.

use super::packed::Strings;

/// Which members the result has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    Union,
    Intersection,
    /// Those of the first one that no other has.
    Difference,
}

/// How the scores of a member become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Aggregate {
    Sum,
    Least,
    Greatest,
}

impl Aggregate {
    /// Adds a score. Infinities of both signs add up to 0.
    pub(crate) fn add(self, sum: f64, score: f64) -> f64 {
        match self {
            Self::Sum => number_or_0(sum + score),
            Self::Least if score < sum => score,
            Self::Greatest if score > sum => score,
            _ => sum,
        }
    }
}

/// Returns 0 for what is not a number, as infinity times 0.
pub(crate) fn number_or_0(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// What is known of a result when its rows are written.
#[derive(Debug, Clone, Default)]
pub(crate) struct Merged {
    pub(crate) count: u64,
    /// Bytes of the longest member.
    pub(crate) longest: usize,
    /// Rows of a list.
    pub(crate) rows: u64,
    /// A member is not an integer.
    pub(crate) has_others: bool,
    /// All of it, as a collection has its strings, if it is little; then it has no rows.
    pub(crate) little: Option<Strings>,
    /// The moment that was read has ended before all was. What was made does not count.
    pub(crate) is_lost: bool,
    /// What was read is not what the head says: of another moment than that, or damaged. Nor does
    /// this count.
    pub(crate) is_torn: bool,
}
