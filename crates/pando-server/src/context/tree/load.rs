//! Reading a part of a large collection.

use std::ops::Bound;

use pando_sync::Arc;
use pandodb::nonblocking::{Polled, Reads, ValidatedBatch};
use pandodb::{Lsn, Table};

use super::names::NAMED_BYTES;
use super::part::{Goal, Load, Loaded, Part, kind_of};
use super::source::Source;
use crate::context::{Context, Interrupted, Run, replies};
use crate::data::elements::{self, Kind};
use crate::data::keyspace::{Row, RowError, ValueType, has_ended};
use crate::data::packed::{Encoding, Form, Strings, encode, strings_of_one};
use crate::data::piece_head::PieceHead;
use crate::data::tree_head::TreeHead;

/// Number of single elements that are read before others get a turn.
const PLACES_PER_TURN: usize = 512;

/// Returns the head in the value of a row, if it is that of a large collection or of a string in
/// pieces.
pub(super) fn head_of(row: &Row, value: &[u8]) -> Result<Option<TreeHead>, RowError> {
    let payload = &value[row.payload..];
    match row.value_type {
        ValueType::Pieces => PieceHead::decode(payload).map(|head| Some(head.as_tree())),
        ValueType::Patched => PieceHead::decode_patched(payload).map(|head| Some(head.as_tree())),
        ValueType::String => Ok(None),
        _ if !TreeHead::is_of(payload) => Ok(None),
        _ => TreeHead::decode(payload).map(Some),
    }
}

/// Passes over a place at which there is no element.
fn pass_removed(load: &mut Load) -> Run {
    if !load.goal.passes_removed {
        return Err(Interrupted::Torn);
    }
    load.left -= 1;
    Ok(())
}

impl Context<'_> {
    /// Returns the transaction of the command.
    pub(super) fn batch(&mut self) -> Result<&mut ValidatedBatch, Interrupted> {
        match self.data().batch.as_deref_mut() {
            Some(batch) => Ok(batch),
            None => Err(Interrupted::ReadsMany),
        }
    }

    /// Loads a part of the collection with this head. Also returns the strings, and where an
    /// iteration goes on.
    pub(in crate::context) fn load(
        &mut self,
        value_type: ValueType,
        head: TreeHead,
        part: &Part<'_>,
    ) -> Result<(Loaded, Strings, u64), Interrupted> {
        let (members, is_together) = (self.members()?, self.is_together);
        match (part, &self.data().batch) {
            (_, Some(_)) => return self.load_part(members, (value_type, head), part),
            // Commands that run together have one head for all that they read.
            (Part::Named(_), None) if is_together => {}
            (Part::Named([name]), None) => return self.load_one(members, value_type, head, name),
            (Part::Named(_), None) => return Err(Interrupted::ReadsMany),
            (_, None) => {}
        }
        let loaded = self.load_part(members, (value_type, head), part);
        self.confirmed(head, loaded)
    }

    /// Returns `read`, which was read of the collection with this head, whose row was read last. If
    /// the command has no transaction, the head must be the same still, and whatever is in the way
    /// is left to a run with a transaction. The head is that of the key: RENAME moves it, and
    /// elements may be changed under the new name then.
    ///
    /// Ranks and scans may show a part of a batch. A batch is applied in the order of its tables,
    /// that of the keys first, since counted tables have the higher numbers; and a read of the head
    /// waits for the whole batch. So whoever has seen a part of one sees its head here.
    ///
    /// If SWAPDB has come in between, the same head is not enough: a second one may have brought it
    /// back. It does not come without its elements, so looking at one of the tables will do.
    pub(super) fn confirmed<T>(
        &mut self,
        head: TreeHead,
        read: Result<T, Interrupted>,
    ) -> Result<T, Interrupted> {
        if self.data().batch.is_some() {
            return read;
        }
        let read = match read {
            Err(Interrupted::Pending(_) | Interrupted::Yield | Interrupted::Torn) => {
                return Err(Interrupted::ReadsMany);
            }
            read => read?,
        };
        if self.goes_on_in_stretch(&head) {
            return Ok(read);
        }
        let first = *self.progress.beside.get_or_insert(head);
        let database = self.database();
        let swapped_before = self.progress.beside_swap;
        let scratch = &mut *self.data().scratch;
        let (stored, row) = (&scratch.stored, &mut scratch.head_row);
        row.clear();
        let mut shown_from = None;
        let found = Reads::of(&database.keys).get(stored, row, &mut shown_from)?;
        if !matches!(found, Polled::Ready(true)) {
            return Err(Interrupted::ReadsMany);
        }
        if head_of(&Row::decode(stored, row)?, row)? != Some(head)
            || first != head
            || swapped_before != Some(self.last_swap())
        {
            return Err(Interrupted::ReadsMany);
        }
        self.progress.show_from(shown_from);
        Ok(read)
    }

    /// Returns where the command reads elements.
    pub(super) fn source(&mut self) -> Source<'_> {
        Source::new(self.data().batch.as_deref_mut())
    }

    /// As [`Context::load`], without the check that a command without a transaction makes.
    fn load_part(
        &mut self,
        members: &Table,
        (value_type, head): (ValueType, TreeHead),
        part: &Part<'_>,
    ) -> Result<(Loaded, Strings, u64), Interrupted> {
        let goal = self.goal(value_type, head);
        let is_blocks = goal.kind == Kind::Position && head.is_blocks;
        let (first, load) = match part {
            Part::All if is_blocks => self.load_blocks(members, goal, 0..head.len())?,
            Part::Places(places) if is_blocks => {
                self.load_blocks(members, goal, places(head.len()))?
            }
            Part::Beside(spot, is_behind) if is_blocks => {
                self.load_block(members, goal, (spot, *is_behind))?
            }
            Part::Beside(spot, _) => {
                // What is put before an element has its position between that and the one before.
                let places = spot.place.saturating_sub(1)..spot.place + 1;
                (places.start, self.load_places(members, goal, places)?)
            }
            Part::Named(names) => (0, self.load_named(members, goal, names)?),
            Part::Each(places) => (0, self.load_each(members, goal, places)?),
            Part::Drawn(places, enough) => {
                let living = Some(*enough);
                let goal = Goal { living, ..goal };
                (0, self.load_places_of(members, goal, places)?)
            }
            Part::Left(places, enough) => {
                let goal = Goal {
                    living: Some(*enough),
                    passes_removed: true,
                    ..goal
                };
                (0, self.load_places_of(members, goal, places)?)
            }
            Part::Living => (0, self.load_living(members, goal)?),
            Part::Iterated(cursor, count) => {
                (0, self.load_iterated(members, goal, (*cursor, *count))?)
            }
            Part::All => (0, self.load_places(members, goal, 0..head.len())?),
            Part::Places(places) => {
                let places = places(head.len());
                (places.start, self.load_places(members, goal, places)?)
            }
        };
        let loaded = Loaded::of(value_type, (head, first), load);
        // More than there are: they are of a later moment than the head.
        let may_repeat = matches!(part, Part::Each(_) | Part::Drawn(..) | Part::Left(..));
        if loaded.count > head.len() && !may_repeat {
            return Err(Interrupted::Torn);
        }
        let (strings, cursor) = (loaded.load.strings.to_be_edited(), loaded.load.cursor);
        Ok((loaded, strings, cursor))
    }

    /// Returns the last swap of the table of elements, if there is one.
    pub(crate) fn last_swap(&self) -> Lsn {
        let members = self.database().members.table();
        members.map_or_else(Lsn::default, Table::last_swap)
    }

    /// Returns the goal to load nothing, from the first element on.
    pub(super) fn goal(&self, value_type: ValueType, head: TreeHead) -> Goal {
        Goal {
            exec_index: self.exec_index,
            database: self.session.database,
            last_swap: self.last_swap(),
            head,
            kind: kind_of(value_type),
            has_values: value_type != ValueType::Set,
            from: Bound::Unbounded,
            until: None,
            is_backwards: false,
            skipped: 0,
            count: 0,
            living: None,
            passes_removed: false,
            pending: None,
            around: None,
            window: None,
            names: None,
        }
    }

    /// Loads an element by its name without a transaction. If it finds none, the command begins
    /// again with one.
    fn load_one(
        &mut self,
        members: &Table,
        value_type: ValueType,
        head: TreeHead,
        name: &[u8],
    ) -> Result<(Loaded, Strings, u64), Interrupted> {
        let has_values = value_type != ValueType::Set;
        let mut load = Load::empty(head, Kind::Name, has_values);
        let read = self.read_one(members, head.id, name);
        if !self.confirmed(head, read)? {
            return Err(Interrupted::ReadsMany);
        }
        let scratch = &*self.data().scratch;
        load.strings.reserve(2, NAMED_BYTES);
        load.add(&scratch.element_key, &scratch.element_row)?;
        load.strings.seal();
        let strings = load.strings.clone();
        let loaded = Loaded::of(value_type, (head, 0), Arc::new(load));
        Ok((loaded, strings, 0))
    }

    /// Reads the element `name` of the collection `id` without a transaction into the scratch;
    /// false if there is none. If its page is missing, the command begins again with a transaction,
    /// which keeps what was read.
    pub(in crate::context) fn read_one(
        &mut self,
        members: &Table,
        id: u64,
        name: &[u8],
    ) -> Result<bool, Interrupted> {
        let keys = self.engine().element_keys;
        let scratch = &mut *self.data().scratch;
        let (key, row) = (&mut scratch.element_key, &mut scratch.element_row);
        keys.name(id, name, key);
        row.clear();
        let mut shown_from = None;
        let (reads, foreseen) = (Reads::of(members), &mut scratch.foreseen);
        let what = (&key[..], usize::MAX);
        let found = match reads.get_foreseen(foreseen, what, row, &mut shown_from) {
            Some(found) => Polled::Ready(found.is_some()),
            None => reads.get(key, row, &mut shown_from)?,
        };
        let Polled::Ready(found) = found else {
            return Err(Interrupted::ReadsMany);
        };
        if found && elements::decode_name(key, row)?.name != name {
            return Err(RowError::OtherKey.into());
        }
        self.progress.show_from(shown_from);
        Ok(found)
    }

    /// Replaces the value in the scratch by the payload of a collection of only the element `name`
    /// of a large one, whose row was read last, or of none; without a transaction.
    pub(in crate::context) fn read_one_packed(
        &mut self,
        (value_type, head): (ValueType, TreeHead),
        name: &[u8],
    ) -> Run {
        let members = self.members()?;
        let read = self.read_one(members, head.id, name);
        let mut is_there = self.confirmed(head, read)?;
        let now_ms = self.now_ms;
        let scratch = &mut *self.data().scratch;
        let mut strings = [&[][..]; 2];
        if is_there {
            let row = elements::decode_name(&scratch.element_key, &scratch.element_row)?;
            is_there = row.deadline.is_none_or(|of| !has_ended(of, now_ms));
            strings = [row.name, row.value];
        }
        let count = usize::from(is_there) * strings_of_one(value_type);
        let strings = strings[..count].iter().copied();
        let form = (Encoding::of_new(value_type), Form::Plain);
        encode(form, strings, &mut scratch.value);
        Ok(())
    }

    /// Returns true if the table of elements can be asked for ranks of this collection: this
    /// transaction has not changed it, and sees the present.
    pub(super) fn may_rank_in(
        &mut self,
        members: &Table,
        head: &TreeHead,
    ) -> Result<bool, Interrupted> {
        Ok(self.is_as_stored(members, head.id))
    }

    /// Returns true if the rows of the collection `id` are in the table as this command has them:
    /// its transaction has not changed them, and sees the present.
    pub(super) fn is_as_stored(&mut self, members: &Table, id: u64) -> bool {
        let Some(batch) = self.data().batch.as_deref_mut() else {
            return true;
        };
        let (from, to) = (id.to_be_bytes(), (id + 1).to_be_bytes());
        let (from, to) = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
        batch.transaction().is_none() && !batch.writes_between(members, from, to)
    }

    /// Returns how many elements of the large collection with this head the command's
    /// transaction has removed at most; `None` if it may have added some, or does not see the
    /// present. Then, and if they are 0, [`Part::Left`] is of no use.
    pub(crate) fn removals(
        &mut self,
        value_type: ValueType,
        head: &TreeHead,
    ) -> Result<Option<usize>, Interrupted> {
        let members = self.members()?;
        let Some(batch) = self.data().batch.as_deref_mut() else {
            return Ok(Some(0));
        };
        if batch.transaction().is_some() {
            return Ok(None);
        }
        let kind = kind_of(value_type);
        let (from, to) = (
            elements::start(head.id, kind),
            elements::behind(head.id, kind),
        );
        let (from, to) = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
        Ok(batch.removals_between(members, from, to))
    }

    fn load_each(
        &mut self,
        members: &Table,
        goal: Goal,
        places: &[usize],
    ) -> Result<Arc<Load>, Interrupted> {
        let is_all = places.len() == goal.head.len() && places.is_sorted_by(|one, next| one < next);
        if is_all && places.first().is_none_or(|first| *first == 0) {
            return self.load_places(members, goal, 0..places.len());
        }
        if !self.may_rank_in(members, &goal.head)? {
            // The commit of the commands before it is cheaper than all elements.
            if self.is_together {
                return Err(Interrupted::Yield);
            }
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
        self.load_places_of(members, goal, places)
    }

    /// Loads the elements at these places, one by one.
    fn load_places_of(
        &mut self,
        members: &Table,
        goal: Goal,
        places: &[usize],
    ) -> Result<Arc<Load>, Interrupted> {
        let count = places.len();
        let goal = Goal { count, ..goal };
        if self.is_together {
            // Who would have to wait here leaves the run: nothing is kept for a next one.
            let mut load = Load::new(goal);
            self.load_more_of_each(members, &mut load, places)?;
            load.strings.seal();
            return Ok(Arc::new(load));
        }
        if let Some(done) = self.finished(&goal) {
            return Ok(done);
        }
        let mut load = self.take_load(goal);
        let result = self.load_more_of_each(members, &mut load, places);
        let load = self.unless_interrupted(load, result)?;
        Ok(self.finish(load))
    }

    fn load_more_of_each(&mut self, members: &Table, load: &mut Load, places: &[usize]) -> Run {
        let scratch = &mut self.data().scratch;
        let mut key = std::mem::take(&mut scratch.element_key);
        let mut row = std::mem::take(&mut scratch.element_row);
        let result = self.load_each_with(members, (load, places), (&mut key, &mut row));
        self.give_back_buffers((key, row));
        result
    }

    fn load_each_with(
        &mut self,
        members: &Table,
        (load, places): (&mut Load, &[usize]),
        (key, row): (&mut Vec<u8>, &mut Vec<u8>),
    ) -> Run {
        let (prefix, before) = (load.goal.prefix(), self.loaded_bytes());
        for _ in 0..PLACES_PER_TURN {
            if load.is_complete() {
                return Ok(());
            }
            let place = places[places.len() - load.left];
            let from = (&prefix[..], place);
            match self.source().key_from(members, from, key)? {
                Polled::Pending(pending) => return Err(Interrupted::Pending(pending)),
                Polled::Ready(found) if found.is_none() || !key.starts_with(&prefix) => {
                    pass_removed(load)?;
                    continue;
                }
                Polled::Ready(_) => {}
            }
            let mut source = self.source();
            match source.get(members, key, row)? {
                Polled::Pending(pending) => return Err(Interrupted::Pending(pending)),
                Polled::Ready(false) => {
                    pass_removed(load)?;
                    continue;
                }
                Polled::Ready(true) => {}
            }
            let shown_from = source.shown_from;
            load.add_living((&key[..], &row[..]), self.now_ms)?;
            self.progress.show_from(shown_from);
            self.check_load(before, load)?;
        }
        match load.is_complete() {
            true => Ok(()),
            false => Err(Interrupted::Yield),
        }
    }

    /// Returns the bytes of all that the command has loaded before.
    pub(super) fn loaded_bytes(&self) -> usize {
        self.progress.loaded_bytes()
    }

    /// Refuses the command if it has loaded more than a reply may have: `load`, and `before` that
    /// so many bytes.
    pub(super) fn check_load(&self, before: usize, load: &Load) -> Run {
        match before + load.bytes() > self.engine().reply_bytes_max {
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
            let state = |of: &Goal| (of.head, of.last_swap);
            place(old) == place(new) && state(old) != state(new)
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
                // Without a transaction, the run with one goes on from here.
                if matches!(interrupted, Interrupted::Pending(_) | Interrupted::Yield) {
                    self.progress.loads.push(load);
                }
                Err(interrupted)
            }
        }
    }
}
