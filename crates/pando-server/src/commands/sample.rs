//! Random elements of a collection: which ones HRANDFIELD, SRANDMEMBER and their like return.

use std::collections::HashSet;

use fastrand::Rng;
use pandodb::nonblocking::EntryFrom;

use crate::context::draw::{Draw, DrawGoal};
use crate::context::{Collection, Context, Found, Interrupted, Part, replies};
use crate::data::keyspace::ValueType;
use crate::data::tree_head::TreeHead;

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
    random: Rng,
}

enum Chosen {
    /// All of so many elements.
    All(usize),
    /// These.
    These(std::vec::IntoIter<usize>),
    /// Any of so many elements, perhaps often.
    Any(usize),
}

/// Chooses among `elements` elements: `count` different ones, or all if there are not so many; if
/// `count` is negative as many as it says, which may repeat themselves.
pub(crate) fn places(elements: usize, count: i64, mut random: Rng) -> Places {
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    let (chosen, length) = match elements {
        0 => (Chosen::All(0), 0),
        _ if count < 0 => (Chosen::Any(elements), wanted),
        _ if wanted >= elements => (Chosen::All(elements), elements),
        _ => {
            let chosen = different(elements, wanted, &mut random);
            (Chosen::These(chosen.into_iter()), wanted)
        }
    };
    Places {
        chosen,
        length,
        random,
    }
}

/// Chooses `wanted` different ones of `elements` places, which are more, in random order. Takes as
/// long as there are wanted ones. (Robert Floyd's algorithm: Bentley, Programming Pearls, 1987.)
fn different(elements: usize, wanted: usize, random: &mut Rng) -> Vec<usize> {
    let mut seen = HashSet::with_capacity(wanted);
    let mut chosen = Vec::with_capacity(wanted);
    for last in elements - wanted..elements {
        let place = random.usize(..=last);
        let place = if seen.insert(place) { place } else { last };
        seen.insert(place);
        chosen.push(place);
    }
    random.shuffle(&mut chosen);
    chosen
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
            Chosen::Any(elements) => Some(self.random.usize(..*elements)),
        }
    }
}

impl Context<'_> {
    /// Returns random numbers that are the same in each run of the command, so that a run after a
    /// wait reads what the one before it has waited for.
    fn random(&mut self) -> Rng {
        let seed = self.progress.seed();
        let place = self.exec_index.map_or(0, |index| index as u64 + 1);
        Rng::with_seed(seed.wrapping_add(place))
    }

    /// As [`Context::random`], other numbers, for draws that may be in vain: what is drawn after
    /// these does not depend on them.
    fn random_before(&mut self) -> Rng {
        let of_draws = self.random().u64(..);
        Rng::with_seed(!of_draws)
    }

    /// Chooses among the elements of the collection that was read last, as [`places`], and reads
    /// the chosen ones. Returns the places that they have in what was read.
    pub(crate) fn choose(
        &mut self,
        found: Found,
        value_type: ValueType,
        count: i64,
    ) -> Result<(Collection, Places), Interrupted> {
        let elements = self.length(&found)?;
        let Some(head) = self.tree_head(&found)? else {
            let all = self.decoded(found, value_type, &Part::All)?;
            let chosen = places(all.in_memory(), count, self.random());
            return Ok((all, chosen));
        };
        if head.len() != elements {
            return self.choose_living(found, (head, elements), count);
        }
        let wanted = self.wanted(elements, count)?;
        let removed = self.removals(value_type, &head)?.unwrap_or(0);
        if removed > 0
            && count > 0
            && wanted < elements
            && self.may_draw_left(&head)
            && let Some(left) = self.choose_left(&found, (value_type, &head), (wanted, removed))?
        {
            return Ok(left);
        }
        if wanted >= DRAWS_MANY {
            return self.choose_many(found, value_type, (elements, count));
        }
        let chosen: Vec<usize> = places(elements, count, self.random()).collect();
        let collection = self.decoded(found, value_type, &Part::Each(&chosen))?;
        Ok(in_order(collection))
    }

    /// As [`Context::choose`], many of so many elements of a large collection: they are read in
    /// their order, whatever the order in which they were drawn.
    fn choose_many(
        &mut self,
        found: Found,
        value_type: ValueType,
        (elements, count): (usize, i64),
    ) -> Result<(Collection, Places), Interrupted> {
        let goal = DrawGoal {
            exec_index: self.exec_index,
            seed: self.progress.seed(),
            elements,
            count,
        };
        let kept = self.progress.long_read.as_mut();
        let kept = kept.and_then(|read| read.draw.take());
        let kept = kept.filter(|draw| draw.goal == goal);
        let draw = kept.unwrap_or_else(|| {
            let drawn: Vec<usize> = places(elements, count, self.random()).collect();
            Draw::new(goal, &drawn)
        });
        self.progress.long_read.get_or_insert_default().draw = Some(draw.clone());
        let collection = self.decoded(found, value_type, &Part::Each(&draw.places))?;
        let order = draw.order.clone();
        let places = Places {
            length: order.len(),
            chosen: Chosen::These(order.into_iter()),
            random: self.random(),
        };
        Ok((collection, places))
    }

    /// Chooses one member of the large set with this head, of which the transaction has removed so
    /// many, and added none, and reads its row into the scratch: without a part of the set in
    /// memory, the one that [`Context::choose`] would choose. False if that has to do it.
    pub(crate) fn choose_one(
        &mut self,
        head: &TreeHead,
        removed: usize,
    ) -> Result<bool, Interrupted> {
        if removed == 0 {
            let place = self.random().usize(..head.len());
            return match self.read_entry(head, place)? {
                EntryFrom::Whole(_) => Ok(true),
                EntryFrom::Key(_) => Ok(false),
                EntryFrom::None | EntryFrom::Removed(_) => Err(Interrupted::Torn),
            };
        }
        if !self.may_draw_left(head) {
            return Ok(false);
        }
        let mut random = self.random_before();
        for _ in 0..DRAWS_OF_ONE.unsigned_abs() {
            let place = random.usize(..head.len() + removed);
            match self.read_entry(head, place)? {
                EntryFrom::Whole(_) => return Ok(true),
                EntryFrom::Key(_) => return Ok(false),
                EntryFrom::None | EntryFrom::Removed(_) => {}
            }
        }
        Ok(false)
    }

    /// As [`Context::choose`], of a large collection with this head of which the transaction has
    /// removed elements, and added none: ranks are those of before. So places are drawn among all
    /// that there were, or `removed` more than there are, which may be more than that, and those
    /// without an element passed over. What is left of random places in random order is as random.
    /// `None` if too few are left of the draws.
    fn choose_left(
        &mut self,
        found: &Found,
        (value_type, head): (ValueType, &TreeHead),
        (wanted, removed): (usize, usize),
    ) -> Result<Option<(Collection, Places)>, Interrupted> {
        // Of different places, `removed` more than are wanted are always enough.
        let draws = match wanted {
            1 => -DRAWS_OF_ONE,
            _ => i64::try_from(wanted + removed).unwrap_or(i64::MAX),
        };
        // Fewer than all, so they are in random order.
        let drawn = places(head.len() + removed, draws, self.random_before());
        let drawn: Vec<usize> = drawn.collect();
        let row = Found {
            row: found.row,
            former: found.former,
            ..Found::default()
        };
        let some = self.decoded(row, value_type, &Part::Left(&drawn, wanted))?;
        Ok((some.in_memory() == wanted).then(|| in_order(some)))
    }

    /// Returns whether what is drawn beside removals of the same transaction may be what the
    /// command gives. One that leaves a pipeline run since a page is missing draws anew when it
    /// runs alone, and so would prefer what is in memory: members of a collection that takes a
    /// good part of that are drawn alone.
    fn may_draw_left(&self, head: &TreeHead) -> bool {
        !self.is_together || head.len() <= self.engine().drawn_together_max
    }

    /// Returns how many of so many elements are to be chosen.
    fn wanted(&self, elements: usize, count: i64) -> Result<usize, Interrupted> {
        let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
        let wanted = match count < 0 {
            true => wanted,
            false => wanted.min(elements),
        };
        // Each takes more bytes of the reply.
        match wanted > self.engine().reply_bytes_max / size_of::<usize>() {
            true => Err(Interrupted::ReplyTooLong),
            false => Ok(wanted),
        }
    }

    /// As [`Context::choose`], among the fields of a large hash with this head of which `living`
    /// live: the places of those that have expired are not known. So places are drawn among all,
    /// and those of expired fields passed over. What is left of random places in random order is
    /// as random. If nearly all have expired, all of them are looked at.
    fn choose_living(
        &mut self,
        found: Found,
        (head, living): (TreeHead, usize),
        count: i64,
    ) -> Result<(Collection, Places), Interrupted> {
        let wanted = self.wanted(living, count)?;
        let has_spare = count < 0 || wanted < living;
        if has_spare && self.may_rank(&head)? {
            let draws = i64::try_from(wanted * 2 + DRAWS).unwrap_or(i64::MAX);
            let drawn = places(head.len(), draws * count.signum(), self.random_before());
            let mut drawn: Vec<usize> = drawn.collect();
            if count > 0 && drawn.len() == head.len() {
                // They may be all, in their order.
                self.random_before().shuffle(&mut drawn);
            }
            let row = Found {
                row: found.row,
                former: found.former,
                ..Found::default()
            };
            let part = Part::Drawn(&drawn, wanted);
            let some = self.decoded(row, ValueType::Hash, &part)?;
            if some.in_memory() == wanted {
                return Ok(in_order(some));
            }
        }
        let all = self.decoded(found, ValueType::Hash, &Part::Living)?;
        let chosen = places(all.in_memory(), count, self.random());
        Ok((all, chosen))
    }
}

/// Places that are drawn besides twice as many as are wanted, if fields have expired.
const DRAWS: usize = 1024;

/// Draws from which on they are read in the order of their places.
const DRAWS_MANY: usize = 64;

/// Draws of one element if others were removed: each finds one unless most of them were.
const DRAWS_OF_ONE: i64 = 4;

/// Returns the places of all elements of the collection that were loaded.
fn in_order(collection: Collection) -> (Collection, Places) {
    let elements = collection.in_memory();
    let all = i64::try_from(elements).unwrap_or(i64::MAX);
    let places = places(elements, all, Rng::with_seed(0));
    (collection, places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_as_were_asked_for() {
        let chosen = |elements, count| places(elements, count, Rng::new());
        assert_eq!(chosen(3, 5).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(chosen(3, 0).count(), 0);
        assert_eq!(chosen(0, -4).count(), 0);
        assert_eq!(chosen(2, -9).count(), 9);
        assert_eq!(chosen(2, i64::MIN + 1).len(), usize::MAX / 2);
        let mut four: Vec<_> = chosen(9, 4).collect();
        four.sort_unstable();
        four.dedup();
        assert_eq!(four.len(), 4);
    }

    /// One member is chosen in a shorter way, which is to be the same one.
    #[test]
    fn one_is_the_first_number() {
        for seed in 0..1000 {
            for elements in [2, 17, 200_000] {
                let one = Rng::with_seed(seed).usize(..elements);
                let chosen = places(elements, 1, Rng::with_seed(seed));
                assert_eq!(chosen.collect::<Vec<_>>(), [one]);
                let mut draws = Rng::with_seed(seed);
                let drawn = places(elements, -DRAWS_OF_ONE, Rng::with_seed(seed));
                drawn.for_each(|place| assert_eq!(place, draws.usize(..elements)));
            }
        }
    }

    /// The bound is passed by chance once in a million runs: 9 degrees of freedom, chi-squared 44.
    #[test]
    fn each_is_as_likely_as_the_others() {
        for count in [-1, 1, 3, 7] {
            let mut seen = [0_u32; 10];
            let mut draws = 0;
            while draws < 20_000 {
                for place in places(10, count, Rng::new()) {
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
