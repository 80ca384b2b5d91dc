//! The rows of a set or sorted set that combines others, which need not be in memory: all of them
//! are read in the same order, side by side, as sorted runs are merged.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::combination::{Aggregate, Merged, Operation, number_or_0};
use super::elements::{decode_name, name_tail};
use super::keyspace::RowError;
use super::merge_source::MergeSource;
use super::new_members::NewMembers;
use super::new_rows::{NewRows, NextRows};
use super::shown_rows::Broken;

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
            let has_room = match self.merge.step().map_err(Broken::text)? {
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
    pub(crate) fn step(&mut self) -> Result<Step, Broken> {
        match self.operation {
            Operation::Union => self.step_of_all(),
            Operation::Intersection => self.step_of_common(),
            Operation::Difference => self.step_of_first(),
        }
    }

    /// Forgets what was read of large inputs in advance, as of a snapshot: see
    /// [`MergeSource::forget_ahead`].
    pub(crate) fn forget_ahead(&mut self) {
        self.sources.iter_mut().for_each(MergeSource::forget_ahead);
    }

    /// Number of members that were read in advance.
    #[cfg(test)]
    pub(crate) fn ahead(&self) -> usize {
        self.sources.iter().map(MergeSource::ahead).sum()
    }

    /// Puts the next place of a source into the heap.
    fn wait_for(&mut self, number: usize) -> Result<(), Broken> {
        if let Some(place) = self.sources[number].place()? {
            self.places.push(Reverse((place.to_vec(), number)));
        }
        Ok(())
    }

    fn step_of_all(&mut self) -> Result<Step, Broken> {
        if !self.has_begun {
            self.has_begun = true;
            (0..self.sources.len()).try_for_each(|number| self.wait_for(number))?;
        }
        let Some(Reverse((place, first))) = self.places.pop() else {
            return Ok(Step::End);
        };
        let row = self.sources[first].pop()?.ok_or(RowError::Damaged)?;
        let (name, score) = member_of(&self.sources[first], &row)?;
        let mut sum = number_or_0(score);
        self.wait_for(first)?;
        // Those of one place come in the order of the sources.
        while let Some(Reverse((next, number))) = self.places.peek()
            && *next == place
        {
            let number = *number;
            self.places.pop();
            let row = self.sources[number].pop()?.ok_or(RowError::Damaged)?;
            let (known, score) = member_of(&self.sources[number], &row)?;
            if known != name {
                return Err(RowError::Damaged.into());
            }
            sum = self.aggregate.add(sum, number_or_0(score));
            self.wait_for(number)?;
        }
        Ok(Step::Member(name.to_vec(), sum))
    }

    fn step_of_common(&mut self) -> Result<Step, Broken> {
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
                return Err(RowError::Damaged.into());
            }
            sum = self.aggregate.add(sum, score);
        }
        Ok(Step::Member(name.to_vec(), sum))
    }

    fn step_of_first(&mut self) -> Result<Step, Broken> {
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

/// Returns the member of a row, and what its score counts.
fn member_of<'r>(
    source: &MergeSource,
    (key, row): &'r (Vec<u8>, Vec<u8>),
) -> Result<(&'r [u8], f64), RowError> {
    let row = decode_name(key, row)?;
    Ok((row.name, source.score(row.value)?))
}

#[cfg(test)]
mod tests {
    use pando_sync::time::Duration;
    use pandodb::{Db, Error};

    use super::*;
    use crate::data::elements::ElementKeys;

    /// A reply whose moment has ended begins anew, so it has to know that it has.
    #[test]
    fn a_merge_tells_that_its_snapshot_has_ended() {
        let options = Db::builder().settle_snapshots_after(Duration::MAX);
        let db = options.max_memory(8 << 20).open_in_memory().unwrap();
        let members = db.table("members").unwrap();
        let keys = ElementKeys::new(db.hash_key(), db.key_bytes_max());
        let (mut key, mut row) = (Vec::new(), Vec::new());
        for number in 0..1000_u32 {
            keys.name(1, &number.to_be_bytes(), &mut key);
            keys.value(&number.to_be_bytes(), (b"", None), &mut row);
            members.put(&key, &row).unwrap();
        }
        let other = db.table("other").unwrap();
        let fill = |byte: u8| {
            for number in 0..5000_u32 {
                other.put(&number.to_be_bytes(), &[byte; 200]).unwrap();
            }
        };
        fill(1);
        let snapshot = db.snapshot().unwrap();
        let source = MergeSource::of_rows((members, 1), 512, (false, 1.0)).at(snapshot);
        let mut merge = Merge::new(vec![source], (Operation::Union, Aggregate::Sum));
        assert!(matches!(merge.step(), Ok(Step::Member(..))));
        fill(2);
        let ended = (0..1000).find_map(|_| merge.step().err());
        assert!(
            matches!(ended, Some(Broken::Engine(Error::SnapshotEnded))),
            "{ended:?}"
        );
    }
}
