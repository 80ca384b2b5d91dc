//! The order of elements in the result of SORT.

use std::cmp::Ordering;

use super::pattern::Pattern;
use crate::data::packed::Strings;

/// How elements are ordered.
pub(super) enum Order<'a> {
    /// As the value has them.
    AsIs,
    /// As the value has them, the last one first.
    Reversed,
    Sorted {
        /// Where the weights are; `None`: the elements are their own.
        by: Option<Pattern<'a>>,
        /// Weights are texts, else numbers.
        is_alpha: bool,
    },
}

/// What elements are sorted by: one weight for each.
pub(super) enum Weights {
    /// By the elements, as texts.
    None,
    /// And elements of the same weight by their texts.
    Numbers(Vec<f64>),
    /// Elements without a weight come first.
    Texts(Vec<Option<Vec<u8>>>),
}

impl Weights {
    /// Sorts `places`, of which number `n` has weight `n`.
    pub(super) fn sort(&self, strings: &Strings, places: &mut Vec<usize>, is_descending: bool) {
        let compare = |a: &usize, b: &usize| {
            let elements = || strings.at(places[*a]).cmp(strings.at(places[*b]));
            let ordering = match self {
                Self::None => elements(),
                Self::Numbers(of) => {
                    let numbers = of[*a].partial_cmp(&of[*b]).unwrap_or(Ordering::Equal);
                    numbers.then_with(elements)
                }
                Self::Texts(of) => of[*a].cmp(&of[*b]),
            };
            match is_descending {
                true => ordering.reverse(),
                false => ordering,
            }
        };
        let mut numbers: Vec<usize> = (0..places.len()).collect();
        numbers.sort_by(compare);
        *places = numbers.into_iter().map(|number| places[number]).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(weights: &Weights, is_descending: bool) -> Vec<usize> {
        let mut strings = Strings::default();
        ["b", "10", "a", "9"]
            .iter()
            .for_each(|of| strings.push(of.as_bytes()));
        let mut places = vec![0, 1, 2, 3];
        weights.sort(&strings, &mut places, is_descending);
        places
    }

    #[test]
    fn weights_decide_and_then_elements() {
        assert_eq!(sorted(&Weights::None, false), [1, 3, 2, 0]);
        assert_eq!(sorted(&Weights::None, true), [0, 2, 3, 1]);
        let numbers = Weights::Numbers(vec![1.0, f64::INFINITY, 1.0, -2.5]);
        assert_eq!(sorted(&numbers, false), [3, 2, 0, 1]);
        assert_eq!(sorted(&numbers, true), [1, 0, 2, 3]);
        let text = |text: &str| Some(text.as_bytes().to_vec());
        let texts = Weights::Texts(vec![text("y"), text(""), None, text("x")]);
        assert_eq!(sorted(&texts, false), [2, 1, 3, 0]);
    }
}
