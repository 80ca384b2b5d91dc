//! Reading a part of a large collection.

use std::collections::HashSet;
use std::ops::Bound;

use pando_sync::Arc;
use pandodb::Table;
use pandodb::nonblocking::{Pending, Polled, Reads, ValidatedBatch};

use super::part::{Goal, Load, Loaded, Part, kind_of};
use crate::context::{Context, Interrupted, Run, replies};
use crate::data::elements::{self, Kind};
use crate::data::keyspace::{RowError, ValueType};
use crate::data::packed::{Strings, strings_of_one};
use crate::data::tree_head::TreeHead;

/// Number of single elements that are read before others get a turn.
const PLACES_PER_TURN: usize = 512;
/// Number of names that are looked for behind one whose page is missing.
const NAMES_AHEAD: usize = 128;
/// Bytes that an element takes in memory besides its own, about.
const ELEMENT_BYTES: usize = 32;

/// Returns the bounds of the rows of a collection.
fn ends(head: &TreeHead) -> (Bound<[u8; 8]>, Bound<[u8; 8]>) {
    let (id, next) = (head.id.to_be_bytes(), (head.id + 1).to_be_bytes());
    (Bound::Included(id), Bound::Excluded(next))
}

/// Returns a bound of a slice.
fn slice(bound: &Bound<[u8; 8]>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &key[..])
}

impl Context<'_> {
    /// Returns the transaction of the command.
    pub(super) fn batch(&mut self) -> Result<&mut ValidatedBatch, Interrupted> {
        let batch = self.data().batch.as_deref_mut();
        batch.ok_or(Interrupted::ReadsMany)
    }

    /// Loads a part of the collection with this head. Also returns the strings, and where an
    /// iteration goes on.
    pub(in crate::context) fn load(
        &mut self,
        value_type: ValueType,
        head: TreeHead,
        part: &Part<'_>,
    ) -> Result<(Loaded, Strings, u64), Interrupted> {
        let members = self.members()?;
        self.batch()?;
        let goal = self.goal(members, value_type, head)?;
        let (first, load) = match part {
            Part::Named(names) => (0, self.load_named(members, goal, names)?),
            Part::Each(places) => (0, self.load_each(members, goal, places)?),
            Part::Iterated(cursor, count) => {
                (0, self.load_iterated(members, goal, (*cursor, *count))?)
            }
            Part::All => (0, self.load_places(members, goal, 0..head.len())?),
            Part::Places(places) => {
                let places = places(head.len());
                (places.start, self.load_places(members, goal, places)?)
            }
        };
        let (strings, cursor) = (load.strings.clone(), load.cursor);
        let count = strings.len() / strings_of_one(value_type);
        // More than there are: they are of a later moment than the head.
        if count > head.len() && !matches!(part, Part::Each(_)) {
            return Err(Interrupted::Torn);
        }
        let loaded = Loaded {
            head,
            first,
            count,
            load,
        };
        Ok((loaded, strings, cursor))
    }

    /// Returns the goal to load nothing, from the first element on.
    fn goal(
        &mut self,
        members: &Table,
        value_type: ValueType,
        head: TreeHead,
    ) -> Result<Goal, Interrupted> {
        let ends = ends(&head);
        let own = self
            .batch()?
            .hash_between(members, slice(&ends.0), slice(&ends.1));
        let kind = kind_of(value_type);
        let mut from = Vec::new();
        elements::start(head.id, kind, &mut from);
        Ok(Goal {
            exec_index: self.exec_index,
            database: self.session.database,
            head,
            own,
            kind,
            has_values: value_type != ValueType::Set,
            from: Bound::Included(from),
            is_backwards: false,
            skipped: 0,
            count: 0,
        })
    }

    fn load_named(
        &mut self,
        members: &Table,
        goal: Goal,
        names: &[&[u8]],
    ) -> Result<Arc<Load>, Interrupted> {
        let id = goal.head.id;
        let mut load = Load::new(Goal {
            kind: Kind::Name,
            ..goal
        });
        let (mut missing, mut ahead) = (None::<Pending>, 0);
        let mut seen = HashSet::new();
        let keys = self.engine().element_keys;
        let (mut key, mut row) = (Vec::new(), Vec::new());
        for name in names {
            if names.len() > 1 && !seen.insert(*name) {
                continue;
            }
            keys.name(id, name, &mut key);
            if let Some(pending) = &mut missing {
                // The pages of further names are read at the same time.
                if ahead == NAMES_AHEAD {
                    break;
                }
                ahead += 1;
                let looked = Reads::of(members).prefetch(&key, usize::MAX, &mut row)?;
                if let Polled::Pending(other) = looked {
                    pending.beside(other);
                }
                continue;
            }
            match self.batch()?.get(members, &key, &mut row)? {
                Polled::Pending(pending) => {
                    missing = Some(pending);
                    continue;
                }
                Polled::Ready(false) => continue,
                Polled::Ready(true) => load.add(&key, &row)?,
            }
            let (whole, _) = elements::decode_name(&key, &row)?;
            if whole != *name {
                return Err(RowError::OtherKey.into());
            }
            self.check_load(&load)?;
        }
        if let Some(pending) = missing {
            return Err(Interrupted::Pending(pending));
        }
        load.strings.seal();
        Ok(Arc::new(load))
    }

    /// Returns true if the table of elements can be asked for ranks of this collection: this
    /// transaction has not changed it, and sees the present.
    pub(super) fn may_rank_in(
        &mut self,
        members: &Table,
        head: &TreeHead,
    ) -> Result<bool, Interrupted> {
        let batch = self.batch()?;
        let (from, to) = ends(head);
        let (from, to) = (slice(&from), slice(&to));
        Ok(batch.transaction().is_none() && !batch.writes_between(members, from, to))
    }

    fn load_each(
        &mut self,
        members: &Table,
        goal: Goal,
        places: &[usize],
    ) -> Result<Arc<Load>, Interrupted> {
        let is_all = places.len() == goal.head.len() && places.is_sorted();
        if is_all && places.first().is_none_or(|first| *first == 0) {
            return self.load_places(members, goal, 0..places.len());
        }
        if !self.may_rank_in(members, &goal.head)? {
            let of_one = goal.strings_of_one();
            let all = 0..goal.head.len();
            let all = self.load_places(members, goal, all)?;
            let mut strings = Strings::default();
            for place in places {
                let of = place * of_one..(place + 1) * of_one;
                of.for_each(|at| strings.push(all.strings.at(at)));
            }
            strings.seal();
            return Ok(Arc::new(Load::of(strings, &all)));
        }
        let count = places.len();
        let goal = Goal { count, ..goal };
        if let Some(done) = self.finished(&goal) {
            return Ok(done);
        }
        let mut load = self.take_load(goal);
        let result = self.load_more_of_each(members, &mut load, places);
        let load = self.unless_interrupted(load, result)?;
        Ok(self.finish(load))
    }

    fn load_more_of_each(&mut self, members: &Table, load: &mut Load, places: &[usize]) -> Run {
        let prefix = load.goal.prefix();
        let (mut key, mut row) = (Vec::new(), Vec::new());
        for _ in 0..PLACES_PER_TURN {
            let Some(place) = places.get(places.len() - load.left) else {
                return Ok(());
            };
            match Reads::of(members).key_from(&prefix, *place as u64, &mut key)? {
                Polled::Pending(pending) => return Err(Interrupted::Pending(pending)),
                Polled::Ready(found) if !found || !key.starts_with(&prefix) => {
                    return Err(Interrupted::Torn);
                }
                Polled::Ready(_) => {}
            }
            match self.batch()?.get(members, &key, &mut row)? {
                Polled::Pending(pending) => return Err(Interrupted::Pending(pending)),
                Polled::Ready(false) => return Err(Interrupted::Torn),
                Polled::Ready(true) => load.add(&key, &row)?,
            }
            self.check_load(load)?;
        }
        match load.left {
            0 => Ok(()),
            _ => Err(Interrupted::Yield),
        }
    }

    /// Refuses the command if it has loaded more than a reply may have.
    pub(super) fn check_load(&self, load: &Load) -> Run {
        let all = self.progress.loaded.iter().map(|load| &**load);
        let all = all.chain([load]).map(|load| &load.strings);
        let bytes: usize = all
            .map(|strings| strings.bytes() + strings.len() * ELEMENT_BYTES)
            .sum();
        match bytes > self.engine().reply_bytes_max {
            true => Err(replies::TOO_LONG_TO_LOAD.into()),
            false => Ok(()),
        }
    }

    /// Returns what an earlier run has loaded for `goal`, if it was complete.
    pub(super) fn finished(&self, goal: &Goal) -> Option<Arc<Load>> {
        let mut done = self.progress.loaded.iter();
        done.find(|load| load.goal == *goal).cloned()
    }

    /// Keeps what was loaded for further runs.
    pub(super) fn finish(&mut self, mut load: Load) -> Arc<Load> {
        load.strings.seal();
        let load = Arc::new(load);
        self.progress.loaded.push(load.clone());
        load
    }

    /// Returns what an earlier run has loaded for `goal`; else nothing of it.
    pub(super) fn take_load(&mut self, goal: Goal) -> Load {
        let loads = &mut self.progress.loads;
        let load = match loads.iter().position(|load| load.goal == goal) {
            Some(place) => return loads.swap_remove(place),
            None => Load::new(goal),
        };
        let is_stale = |of: &Load| {
            let (old, new) = (&of.goal, &load.goal);
            let place = |of: &Goal| (of.exec_index, of.database, of.head.id);
            place(old) == place(new) && old.head != new.head
        };
        let before = loads.len();
        loads.retain(|of| !is_stale(of));
        self.progress.restarts += u32::from(loads.len() < before);
        load
    }

    /// Keeps what was loaded for the next run if this one is interrupted.
    pub(super) fn unless_interrupted(
        &mut self,
        load: Load,
        result: Run,
    ) -> Result<Load, Interrupted> {
        match result {
            Ok(()) => Ok(load),
            Err(interrupted) => {
                if matches!(interrupted, Interrupted::Pending(_) | Interrupted::Yield) {
                    self.progress.loads.push(load);
                }
                Err(interrupted)
            }
        }
    }
}
