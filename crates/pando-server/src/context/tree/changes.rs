//! Writing what has changed in a part of a large collection.

use std::collections::HashMap;

use pando_sync::Arc;
use pandodb::Table;
use pandodb::nonblocking::ValidatedBatch;

use super::edition::Edition;
use super::part::{Load, Loaded, kind_of};
use crate::context::collection::Collection;
use crate::context::{Context, Flags, Former, Interrupted, Run};
use crate::data::deadlines::Deadlines;
use crate::data::elements::{self, ElementKeys};
use crate::data::keyspace::{Times, ValueType, has_ended};
use crate::data::list_block;
use crate::data::new_rows::MadeRows;
use crate::data::packed::{Encoding, Strings, strings_of_one};
use crate::data::tree_head::TreeHead;
use crate::notifications::classes::Class;

impl Context<'_> {
    /// Gives the elements of a packed collection rows of their own.
    pub(in crate::context) fn put_new_tree(&mut self, key: &[u8], collection: &Collection) -> Run {
        let members = self.make_members()?;
        if self.is_to_be_built(collection) {
            return self.put_built((key, members), collection);
        }
        let id = self.database().members.new_id();
        let loaded = nothing_of(members, collection, id);
        let former = collection.found.former;
        self.put_changes(key, collection, (&loaded, former))
    }

    /// Writes what was changed of the part of `collection` that was loaded.
    pub(in crate::context) fn put_tree(
        &mut self,
        key: &[u8],
        collection: &Collection,
        loaded: &Loaded,
    ) -> Run {
        let former = collection.found.former.but_tree();
        self.put_changes(key, collection, (loaded, former))
    }

    fn put_changes(
        &mut self,
        key: &[u8],
        collection: &Collection,
        (loaded, former): (&Loaded, Former),
    ) -> Run {
        let mut head = loaded.head;
        let is_packed = self.is_small(collection);
        let (none, untimed) = (Strings::default(), Deadlines::default());
        let (new, deadlines) = match is_packed {
            true => (&none, &untimed),
            false => (&collection.strings, &collection.deadlines),
        };
        let of = (collection.value_type, &mut head);
        self.put_rows(of, loaded, (new, deadlines))?;
        if new.len() == 0
            && let Some(ahead) = &mut self.progress.ahead
        {
            ahead.note_removed(loaded, &head);
        }
        if head.count == 0 && !is_packed {
            self.event(Class::Generic, "del", key);
            return self.remove_row(key, former);
        }
        if is_packed {
            return self.put_packed(key, collection, former);
        }
        self.put_new_head((key, collection), &head, former)
    }

    /// Writes the rows in which the elements of a collection differ from the part of it that was
    /// loaded.
    pub(super) fn put_rows(
        &mut self,
        (value_type, head): (ValueType, &mut TreeHead),
        loaded: &Loaded,
        new: Hashed<'_>,
    ) -> Run {
        if value_type == ValueType::List {
            return self.put_list(head, loaded, new.0);
        }
        let mut changes = self.changes(head)?;
        let old = (&loaded.load.strings, &loaded.load.deadlines);
        changes.named(value_type, head, (old, new))?;
        let lent = changes.finish(head);
        self.give_back(lent);
        Ok(())
    }

    /// Writes the row of the key of a collection whose rows were written, and that has this head.
    pub(super) fn put_new_head(
        &mut self,
        (key, collection): (&[u8], &Collection),
        head: &TreeHead,
        former: Former,
    ) -> Run {
        let fields = self.field_times(collection, head)?;
        if fields.is_some_and(|times| has_ended(times.last, self.now_ms)) {
            // No field is left that lives.
            if !collection.has_dropped {
                self.event(Class::Hash, "hexpired", key);
            }
            self.event(Class::Generic, "del", key);
            self.give_up(head.id)?;
            return self.remove_row(key, former);
        }
        let what = (collection.value_type, collection.encoding);
        self.put_tree_head(key, (what, head), collection.times(fields), former)
    }

    /// Writes the row of the key of a large collection.
    pub(super) fn put_tree_head(
        &mut self,
        key: &[u8],
        ((value_type, encoding), head): ((ValueType, Encoding), &TreeHead),
        times: Times,
        former: Former,
    ) -> Run {
        let mut payload = std::mem::take(&mut self.data().scratch.value);
        head.encode(encoding, &mut payload);
        let result = self.put_row(key, (value_type, &payload), times, former);
        self.data().scratch.value = payload;
        result
    }

    /// Takes back what [`Context::changes`] has lent.
    pub(super) fn give_back(&mut self, lent: Lent) {
        if lent.rows.is_some() {
            self.progress.builds.rows = lent.rows;
        }
        self.give_back_buffers((lent.key, lent.row));
    }

    /// Takes back the buffers for a key and a row of an element.
    pub(super) fn give_back_buffers(&mut self, (key, row): (Vec<u8>, Vec<u8>)) {
        let scratch = &mut self.data().scratch;
        (scratch.element_key, scratch.element_row) = (key, row);
    }

    /// Begins to write rows of the collection with this head.
    pub(super) fn changes(&mut self, head: &TreeHead) -> Result<Changes<'_>, Interrupted> {
        let (members, keys) = (self.members()?, self.engine().element_keys);
        let seed = self.progress.seed();
        let frees_room = self.command.flags.has(Flags::REMOVES);
        let rows = self.progress.builds.rows.take();
        let data = self.data();
        let batch = data.batch.as_deref_mut();
        Ok(Changes {
            members,
            keys,
            to: match rows {
                Some(rows) => To::NewRows(rows),
                None => To::Batch(batch.expect("commands that write have a transaction")),
            },
            frees_room,
            key: std::mem::take(&mut data.scratch.element_key),
            row: std::mem::take(&mut data.scratch.element_row),
            edition: Edition::behind(head.edition, seed),
        })
    }
}

/// Returns none of a new collection.
pub(super) fn nothing_of(members: &Table, collection: &Collection, id: u64) -> Loaded {
    let is_list = collection.value_type == ValueType::List;
    let head = match is_list && members.is_weighted() {
        true => TreeHead::new_blocks(id),
        false => TreeHead::new(id),
    };
    Loaded {
        head,
        first: 0,
        count: 0,
        load: Arc::new(Load::empty(head, kind_of(collection.value_type), false)),
    }
}

/// Elements of a hash, set or sorted set, and the deadlines of fields.
type Hashed<'s> = (&'s Strings, &'s Deadlines);

/// Where rows go.
enum To<'c> {
    Batch(&'c mut ValidatedBatch),
    /// All rows are of a new collection, and a thread is to write them.
    NewRows(Box<MadeRows>),
}

/// What is lent to [`Changes`].
pub(super) struct Lent {
    key: Vec<u8>,
    row: Vec<u8>,
    rows: Option<Box<MadeRows>>,
}

/// Writes rows of elements.
pub(super) struct Changes<'c> {
    pub(super) members: &'c Table,
    keys: ElementKeys,
    to: To<'c>,
    /// The command takes elements out: what it writes is what is left.
    frees_room: bool,
    pub(super) key: Vec<u8>,
    pub(super) row: Vec<u8>,
    /// Of all that was written, from the edition before and the seed of the command on. It becomes
    /// the edition: no other command gives the same one, and another run of this one only if that
    /// writes the same.
    edition: Edition,
}

/// Number of elements from which on a table finds those that a part has had.
const OLD_OF_TABLE: usize = 8;

/// The elements that a part has had, by their names.
struct Old<'o> {
    strings: &'o Strings,
    of_one: usize,
    /// Where each is, if they are many.
    table: HashMap<&'o [u8], usize>,
    /// Whether the element has not been found yet.
    is_gone: Vec<bool>,
}

impl<'o> Old<'o> {
    fn new(strings: &'o Strings, of_one: usize) -> Self {
        let count = strings.len() / of_one;
        let mut table = HashMap::new();
        if count >= OLD_OF_TABLE {
            let places = (0..strings.len()).step_by(of_one);
            table.extend(places.map(|place| (strings.at(place), place)));
        }
        Self {
            strings,
            of_one,
            table,
            is_gone: vec![true; count],
        }
    }

    /// Returns the place of the element `name`, if it was there, and was not taken before.
    fn take(&mut self, name: &[u8]) -> Option<usize> {
        let place = match self.is_gone.len() < OLD_OF_TABLE {
            true => self.strings.find(name, self.of_one),
            false => self.table.get(name).copied(),
        }?;
        let is_gone = &mut self.is_gone[place / self.of_one];
        std::mem::replace(is_gone, false).then_some(place)
    }

    /// Returns the places of those that were not taken.
    fn left(&self) -> impl Iterator<Item = usize> {
        let places = self.is_gone.iter().enumerate();
        places.filter_map(|(number, is_gone)| is_gone.then_some(number * self.of_one))
    }
}

/// Returns what belongs to the name at `place`.
fn value_at(strings: &Strings, of_one: usize, place: usize) -> &[u8] {
    match of_one {
        1 => &[],
        _ => strings.at(place + 1),
    }
}

impl Changes<'_> {
    /// Gives `head` the edition of all that was written. Returns what was lent.
    pub(super) fn finish(self, head: &mut TreeHead) -> Lent {
        head.edition = self.edition.finish();
        self.give_up()
    }

    /// Returns what was lent; the edition stays as it was.
    pub(super) fn give_up(self) -> Lent {
        Lent {
            key: self.key,
            row: self.row,
            rows: match self.to {
                To::NewRows(rows) => Some(rows),
                To::Batch(_) => None,
            },
        }
    }

    /// Adds what a row gets or loses that is written with [`Changes::put_unnoted`].
    pub(super) fn add_to_edition(&mut self, bytes: &[u8]) {
        self.edition.add(bytes, None);
    }

    /// Writes `self.row` at `self.key`; the edition was told what it gets.
    pub(super) fn put_unnoted(&mut self) -> pandodb::Result<()> {
        match &mut self.to {
            To::NewRows(rows) => {
                rows.push(&self.key, &self.row);
                Ok(())
            }
            To::Batch(batch) if self.frees_room => {
                batch.put_freeing(self.members, &self.key, (&self.row, b""))
            }
            To::Batch(batch) => batch.put(self.members, &self.key, &self.row),
        }
    }

    /// Writes `self.row` at `self.key`.
    fn put(&mut self) -> pandodb::Result<()> {
        self.edition.add(&self.key, Some(&self.row));
        self.put_unnoted()
    }

    /// Deletes the row at `self.key`.
    fn delete(&mut self) {
        self.edition.add(&self.key, None);
        match &mut self.to {
            To::Batch(batch) => batch.delete(self.members, &self.key),
            To::NewRows(_) => unreachable!("a new collection loses no rows"),
        }
    }

    /// Writes the fields of a hash or the members of a set or sorted set that differ from the old
    /// ones.
    fn named(
        &mut self,
        value_type: ValueType,
        head: &mut TreeHead,
        ((old, old_times), (new, new_times)): (Hashed<'_>, Hashed<'_>),
    ) -> Run {
        let of_one = strings_of_one(value_type);
        let mut olds = Old::new(old, of_one);
        for place in (0..new.len()).step_by(of_one) {
            let (name, new_value) = (new.at(place), value_at(new, of_one, place));
            let was = olds.take(name).map(|place| value_at(old, of_one, place));
            let old_deadline = was.and_then(|_| old_times.of(name));
            let deadline = new_times.of(name);
            if was == Some(new_value) && old_deadline == deadline {
                continue;
            }
            head.count += u64::from(was.is_none());
            self.keys.name(head.id, name, &mut self.key);
            self.keys.value(name, (new_value, deadline), &mut self.row);
            self.put()?;
            self.deadline(head, name, (old_deadline, deadline))?;
            if value_type == ValueType::SortedSet {
                if let Some(was) = was {
                    self.delete_score(head.id, name, was);
                }
                self.put_score(head.id, name, score_of(new_value))?;
            }
        }
        for place in olds.left() {
            let name = old.at(place);
            head.count = less(head.count, 1)?;
            self.keys.name(head.id, name, &mut self.key);
            self.delete();
            self.deadline(head, name, (old_times.of(name), None))?;
            if value_type == ValueType::SortedSet {
                self.delete_score(head.id, name, value_at(old, of_one, place));
            }
        }
        Ok(())
    }

    /// Writes the row of the deadline of a field, whose own row has the key that was made last.
    fn deadline(
        &mut self,
        head: &mut TreeHead,
        name: &[u8],
        (old, new): (Option<u64>, Option<u64>),
    ) -> Run {
        if old == new {
            return Ok(());
        }
        let tail = elements::name_tail(&self.key).to_vec();
        if let Some(old) = old {
            self.keys.time(head.id, old, name, &mut self.key);
            self.delete();
            head.timed = less(head.timed, 1)?;
        }
        if let Some(new) = new {
            self.keys.time(head.id, new, name, &mut self.key);
            elements::time_row(&tail, self.members.is_weighted(), &mut self.row);
            self.put()?;
            head.timed += 1;
        }
        Ok(())
    }

    /// Writes the row of the score of a member.
    pub(super) fn put_score(&mut self, id: u64, member: &[u8], score: f64) -> pandodb::Result<()> {
        self.keys.score(id, score, member, &mut self.key);
        self.keys.score_value(score, member, &mut self.row);
        self.put()
    }

    /// Deletes the row of the score that a member has had.
    pub(super) fn delete_score(&mut self, id: u64, member: &[u8], score: &[u8]) {
        self.keys.score(id, score_of(score), member, &mut self.key);
        self.delete();
    }

    /// Writes the element `name` without a deadline, whose key is the one that was made last.
    pub(super) fn put_found(&mut self, name: &[u8], value: &[u8]) -> pandodb::Result<()> {
        self.keys.value(name, (value, None), &mut self.row);
        self.put()
    }

    /// Deletes the row of the name of an element.
    pub(super) fn delete_name(&mut self, id: u64, name: &[u8]) {
        self.keys.name(id, name, &mut self.key);
        self.delete();
    }

    /// Deletes the element whose key is the one that was read last.
    pub(super) fn delete_found(&mut self) {
        self.delete();
    }

    /// Writes an element of a list.
    pub(super) fn put_element(&mut self, id: u64, position: &[u8], element: &[u8]) -> Run {
        elements::position_key(id, position, &mut self.key);
        list_block::encode_long(element, &mut self.row);
        self.put_at_position()
    }

    /// As [`Changes::put`], at the key of a position.
    pub(super) fn put_at_position(&mut self) -> Run {
        Ok(self.put()?)
    }

    /// Deletes an element of a list.
    pub(super) fn delete_element(&mut self, id: u64, position: &[u8]) {
        elements::position_key(id, position, &mut self.key);
        self.delete();
    }
}

/// Returns `count` less `by`. If it is too small, the elements are of a later moment than the head.
pub(super) fn less(count: u64, by: u64) -> Result<u64, Interrupted> {
    count.checked_sub(by).ok_or(Interrupted::Torn)
}

fn score_of(bytes: &[u8]) -> f64 {
    let bytes = bytes.try_into();
    f64::from_le_bytes(bytes.expect("scores were checked when they were read"))
}
