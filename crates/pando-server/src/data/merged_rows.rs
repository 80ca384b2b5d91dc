//! The rows of a set or sorted set that combines others, which need not be in memory: all of them
//! are read in the same order, side by side, as sorted runs are merged.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::combination::{Aggregate, Merged, Operation, number_or_0};
use super::elements::{decode_name, name_tail};
use super::merge_source::MergeSource;
use super::new_members::NewMembers;
use super::new_rows::{NewRows, NextRows};

/// Steps, at most, between two looks whether the result is wanted still.
const STEPS: usize = 4096;

/// What a result is made of, and how.
#[derive(Debug)]
pub(crate) struct Merge {
    /// In the order in which scores are added.
    sources: Vec<MergeSource>,
    /// Of a union: where sources have their next members, and the numbers of these.
    places: BinaryHeap<Reverse<(Vec<u8>, usize)>>,
    has_begun: bool,
    operation: Operation,
    aggregate: Aggregate,
}

impl Merge {
    /// Returns that of sources in the order in which scores are added.
    pub(crate) fn new(
        sources: Vec<MergeSource>,
        (operation, aggregate): (Operation, Aggregate),
    ) -> Self {
        Self {
            sources,
            places: BinaryHeap::new(),
            has_begun: false,
            operation,
            aggregate,
        }
    }
}

/// Makes the rows.
#[derive(Debug)]
pub(crate) struct MergedRows {
    merge: Merge,
    made: NewMembers,
}

impl MergedRows {
    /// Returns those of a merge.
    pub(crate) fn new(merge: Merge, made: NewMembers) -> Self {
        Self { merge, made }
    }
}

impl NewRows for MergedRows {
    fn next(&mut self, rows: &mut NextRows) -> Result<bool, String> {
        for _ in 0..STEPS {
            let has_room = match self.merge.step()? {
                Step::Member(name, score) => self.made.add((&name, score), rows)?,
                Step::Passed => true,
                Step::End => return Ok(false),
            };
            if !has_room {
                break;
            }
        }
        Ok(true)
    }

    fn merged(&mut self) -> Option<Merged> {
        Some(self.made.merged())
    }
}

/// What a step of a merge has found.
pub(crate) enum Step {
    /// A member of the result, and its score.
    Member(Vec<u8>, f64),
    /// One of an input that the result has not.
    Passed,
    End,
}

impl Merge {
    /// Makes a step.
    ///
    /// # Errors
    /// A row is damaged, or cannot be read.
    pub(crate) fn step(&mut self) -> Result<Step, String> {
        match self.operation {
            Operation::Union => self.step_of_all(),
            Operation::Intersection => self.step_of_common(),
            Operation::Difference => self.step_of_first(),
        }
    }

    /// Puts the next place of a source into the heap.
    fn wait_for(&mut self, number: usize) -> Result<(), String> {
        if let Some(place) = self.sources[number].place()? {
            self.places.push(Reverse((place.to_vec(), number)));
        }
        Ok(())
    }

    fn step_of_all(&mut self) -> Result<Step, String> {
        if !self.has_begun {
            self.has_begun = true;
            (0..self.sources.len()).try_for_each(|number| self.wait_for(number))?;
        }
        let Some(Reverse((place, first))) = self.places.pop() else {
            return Ok(Step::End);
        };
        let row = self.sources[first].pop()?.ok_or(DAMAGED)?;
        let (name, score) = member_of(&self.sources[first], &row)?;
        let mut sum = number_or_0(score);
        self.wait_for(first)?;
        // Those of one place come in the order of the sources.
        while let Some(Reverse((next, number))) = self.places.peek()
            && *next == place
        {
            let number = *number;
            self.places.pop();
            let row = self.sources[number].pop()?.ok_or(DAMAGED)?;
            let (known, score) = member_of(&self.sources[number], &row)?;
            if known != name {
                return Err(DAMAGED.to_owned());
            }
            sum = self.aggregate.add(sum, number_or_0(score));
            self.wait_for(number)?;
        }
        Ok(Step::Member(name.to_vec(), sum))
    }

    fn step_of_common(&mut self) -> Result<Step, String> {
        let Some((first, others)) = self.sources.split_first_mut() else {
            return Ok(Step::End);
        };
        let Some(row) = first.pop()? else {
            return Ok(Step::End);
        };
        let (name, score) = member_of(first, &row)?;
        let mut sum = number_or_0(score);
        for other in others {
            let Some(row) = other.take(name_tail(&row.0))? else {
                // Nothing before the next one of this input is in all of them.
                return match other.place()? {
                    Some(next) => first.pass(next).map(|()| Step::Passed),
                    None => Ok(Step::End),
                };
            };
            let (known, score) = member_of(other, &row)?;
            if known != name {
                return Err(DAMAGED.to_owned());
            }
            sum = self.aggregate.add(sum, score);
        }
        Ok(Step::Member(name.to_vec(), sum))
    }

    fn step_of_first(&mut self) -> Result<Step, String> {
        let Some((first, others)) = self.sources.split_first_mut() else {
            return Ok(Step::End);
        };
        let Some(row) = first.pop()? else {
            return Ok(Step::End);
        };
        for other in others {
            if other.take(name_tail(&row.0))?.is_some() {
                return Ok(Step::Passed);
            }
        }
        let (name, score) = member_of(first, &row)?;
        Ok(Step::Member(name.to_vec(), score))
    }
}

/// Why a row cannot be used.
const DAMAGED: &str = "the row of a member is damaged";

/// Returns the member of a row, and what its score counts.
fn member_of<'r>(
    source: &MergeSource,
    (key, row): &'r (Vec<u8>, Vec<u8>),
) -> Result<(&'r [u8], f64), String> {
    let row = decode_name(key, row).map_err(|_| DAMAGED)?;
    let score = source.score(row.value).ok_or(DAMAGED)?;
    Ok((row.name, score))
}
