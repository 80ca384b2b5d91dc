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
        let mut places = drawn.to_vec();
        places.sort_unstable();
        places.dedup();
        let number = |place| places.binary_search(place).expect("it is one of them");
        let order = drawn.iter().map(number).collect();
        Arc::new(Self {
            goal,
            places,
            order,
        })
    }
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
}
