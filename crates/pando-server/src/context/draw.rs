//! Many random places of a large collection, which are drawn once for all runs of a command.

use pando_sync::Arc;

/// What places were drawn for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DrawGoal {
    /// The place of the command in its EXEC.
    pub(crate) exec_index: Option<usize>,
    /// The seed, the number of elements, and how many of them were to be chosen.
    pub(crate) seed: u64,
    pub(crate) elements: usize,
    pub(crate) count: i64,
}

/// Random places.
#[derive(Debug)]
pub(crate) struct Draw {
    pub(crate) goal: DrawGoal,
    /// The places that were drawn, ascending and each once: they are read as neighbours.
    pub(crate) places: Vec<usize>,
    /// For each draw, in random order, where its place is among these.
    pub(crate) order: Vec<usize>,
}

impl Draw {
    /// Returns the memory that it takes.
    pub(super) fn memory(&self) -> usize {
        (self.places.capacity() + self.order.capacity()) * size_of::<usize>()
    }

    /// Returns the draw of these places.
    pub(crate) fn new(goal: DrawGoal, drawn: &[usize]) -> Arc<Self> {
        let is_dense = goal.elements / 64 <= drawn.len();
        let (places, order) = match is_dense {
            true => of_dense(goal.elements, drawn),
            false => of_sparse(drawn),
        };
        Arc::new(Self {
            goal,
            places,
            order,
        })
    }
}

/// Returns the places that were drawn, and where each draw is among these.
fn of_sparse(drawn: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let mut places = drawn.to_vec();
    places.sort_unstable();
    places.dedup();
    let number = |place| places.binary_search(place).expect("it is one of them");
    let order = drawn.iter().map(number).collect();
    (places, order)
}

/// The same in time that grows with the draws alone, with a bit for each of the `elements`: there
/// are not many more of these.
fn of_dense(elements: usize, drawn: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let mut words = vec![0_u64; elements / 64 + 1];
    for place in drawn {
        words[place / 64] |= 1 << (place % 64);
    }
    let mut places = Vec::new();
    let mut before = Vec::with_capacity(words.len());
    for (index, word) in words.iter().enumerate() {
        before.push(places.len());
        let mut left = *word;
        while left > 0 {
            places.push(index * 64 + left.trailing_zeros() as usize);
            left &= left - 1;
        }
    }
    let number = |place: &usize| {
        let below = words[place / 64] & ((1 << (place % 64)) - 1);
        before[place / 64] + below.count_ones() as usize
    };
    let order = drawn.iter().map(number).collect();
    (places, order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_draw_finds_its_place() {
        let goal = DrawGoal {
            exec_index: None,
            seed: 1,
            elements: 9,
            count: -6,
        };
        let drawn = [7, 2, 7, 0, 8, 2];
        let draw = Draw::new(goal, &drawn);
        assert_eq!(draw.places, [0, 2, 7, 8]);
        let found = draw.order.iter().map(|number| draw.places[*number]);
        assert!(found.eq(drawn));
    }

    #[test]
    fn both_ways_find_the_same_places() {
        let mut random = fastrand::Rng::with_seed(1);
        for elements in [1, 2, 63, 64, 65, 1000] {
            for draws in [0, 1, 5, 64, 3000] {
                let drawn: Vec<_> = (0..draws).map(|_| random.usize(..elements)).collect();
                let (places, order) = of_dense(elements, &drawn);
                assert_eq!((places.clone(), order.clone()), of_sparse(&drawn));
                let shown = order.iter().map(|at| places[*at]);
                assert!(shown.eq(drawn), "{draws} of {elements}");
            }
        }
    }
}
