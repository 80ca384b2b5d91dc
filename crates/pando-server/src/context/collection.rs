//! Collections that commands read and write.

use pando_resp::Writer;

use super::tree::part::{Loaded, Part};
use super::{Context, Former, Found, Interrupted, Run, is_too_long, replies};
use crate::data::deadlines::{self, Deadlines};
use crate::data::keyspace::{FIELD_TIMES_BYTES, FieldTimes, RowError, Times, ValueType};
use crate::data::limits::Limits;
use crate::data::packed::{Encoding, Form, Reader, Strings, strings_of_one};
use crate::data::shown_rows::Shown;
use crate::data::tree_head::TreeHead;
use crate::notifications::classes::Class;

/// A hash, list, set or sorted set; an empty one if the key has none. Of a large one it has the
/// part that the command has asked for.
#[derive(Debug)]
pub(crate) struct Collection {
    /// The row that it was read from.
    pub(crate) found: Found,
    pub(crate) value_type: ValueType,
    pub(crate) encoding: Encoding,
    /// Up to which sizes it has a compact encoding.
    pub(crate) limits: Limits,
    /// Its strings, as `data/packed.rs` says for each type.
    pub(crate) strings: Strings,
    /// The deadlines of fields of a hash that have one.
    pub(crate) deadlines: Deadlines,
    /// Fields that have expired were left out when it was read.
    pub(crate) has_dropped: bool,
    /// What was loaded, if its elements have rows of their own.
    loaded: Option<Box<Loaded>>,
}

impl Collection {
    /// Returns an empty one, of a key that has the row `found`, or none.
    pub(crate) fn new(found: Found, value_type: ValueType, limits: Limits) -> Self {
        Self {
            found,
            value_type,
            encoding: Encoding::of_new(value_type),
            limits,
            strings: Strings::default(),
            deadlines: Deadlines::default(),
            has_dropped: false,
            loaded: None,
        }
    }

    /// Returns true if the key has it.
    pub(crate) fn exists(&self) -> bool {
        self.found.row.is_some()
    }

    /// Returns the number of elements.
    pub(crate) fn len(&self) -> usize {
        self.in_memory() + self.elsewhere()
    }

    /// Returns the number of elements that `strings` has.
    pub(crate) fn in_memory(&self) -> usize {
        self.strings.len() / strings_of_one(self.value_type)
    }

    /// Returns the number of elements that were not loaded.
    pub(crate) fn elsewhere(&self) -> usize {
        let loaded = self.loaded.as_ref();
        loaded.map_or(0, |loaded| loaded.head.len().saturating_sub(loaded.count))
    }

    /// Returns the place of the first element that `strings` has, if these are neighbours.
    pub(crate) fn first(&self) -> usize {
        self.loaded.as_ref().map_or(0, |loaded| loaded.first)
    }

    /// Returns true if its elements have rows of their own.
    pub(crate) fn is_tree(&self) -> bool {
        self.loaded.is_some()
    }

    /// Returns its head, if its elements have rows of their own.
    pub(crate) fn loaded_head(&self) -> Option<TreeHead> {
        self.loaded.as_ref().map(|loaded| loaded.head)
    }

    /// Orders an intset, whose rows are in no such order.
    fn sort_numbers(&mut self) {
        let mut members: Vec<Vec<u8>> = self.strings.iter().map(<[u8]>::to_vec).collect();
        members.sort_by_key(|member| pando_resp::parse_integer(member));
        self.strings.keep(0..0);
        members.iter().for_each(|member| self.strings.push(member));
    }

    /// Becomes the new value of what `old` was read from.
    pub(crate) fn replace(&mut self, old: Self) {
        self.found = old.found;
        self.loaded = old.loaded;
    }
}

impl Context<'_> {
    /// Returns the type of the collections of the command.
    pub(crate) fn value_type(&self) -> ValueType {
        let value_type = self.command.value_type;
        value_type.expect("a command of collections has a type")
    }

    /// Reads the collection at `key`, of the command's type, to be changed; no more than a part of
    /// it if it is large.
    pub(crate) fn find_part(
        &mut self,
        key: &[u8],
        part: &Part<'_>,
    ) -> Result<Collection, Interrupted> {
        let found = self.find(key)?;
        self.decoded(found, self.value_type(), part)
    }

    /// Reads the collection at `key`, of the command's type, for a reply; of a large one a part.
    /// Counts hits and misses.
    pub(crate) fn read_part(
        &mut self,
        key: &[u8],
        part: &Part<'_>,
    ) -> Result<Collection, Interrupted> {
        let found = self.read(key)?;
        self.decoded(found, self.value_type(), part)
    }

    /// Decodes the row that was read last, and reads the part if it is large.
    pub(crate) fn decoded(
        &mut self,
        found: Found,
        value_type: ValueType,
        part: &Part<'_>,
    ) -> Result<Collection, Interrupted> {
        let (collection, _) = self.iterated(found, value_type, part)?;
        Ok(collection)
    }

    /// As [`Context::decoded`]. Also returns where an iteration goes on; 0: it is complete.
    pub(crate) fn iterated(
        &mut self,
        found: Found,
        value_type: ValueType,
        part: &Part<'_>,
    ) -> Result<(Collection, u64), Interrupted> {
        let limits = self.shared.settings.encoding_limits.of(value_type);
        let Some(row) = found.row else {
            return Ok((Collection::new(found, value_type, limits), 0));
        };
        let payload = self.payload(row);
        let encoding = Encoding::of_payload(payload)?;
        let (mut strings, mut deadlines, loaded, cursor) = match TreeHead::is_of(payload) {
            true => {
                let head = TreeHead::decode(payload)?;
                if head.timed > 0 && value_type != ValueType::Hash {
                    return Err(RowError::Damaged.into());
                }
                let (loaded, strings, cursor) = self.load(value_type, head, part)?;
                let deadlines = loaded.load.deadlines.clone();
                (strings, deadlines, Some(Box::new(loaded)), cursor)
            }
            false => {
                let (strings, deadlines) = match value_type {
                    ValueType::Hash => deadlines::decode(payload)?,
                    _ => {
                        let strings = Strings::decode(payload, strings_of_one(value_type))?;
                        (strings, Deadlines::default())
                    }
                };
                (strings, deadlines, None, 0)
            }
        };
        // What has expired is not there; whoever writes the hash removes it.
        let has_dropped =
            !deadlines.is_empty() && deadlines.drop_expired(&mut strings, self.now_ms);
        let mut collection = Collection {
            encoding,
            strings,
            deadlines,
            has_dropped,
            loaded,
            found,
            value_type,
            limits,
        };
        let is_chosen = matches!(part, Part::Each(_) | Part::Left(..));
        if collection.is_tree() && encoding == Encoding::Intset && !is_chosen {
            collection.sort_numbers();
        }
        Ok((collection, cursor))
    }

    /// Returns the head of the large collection that was read last; `None` if it is not large.
    pub(crate) fn tree_head(&mut self, found: &Found) -> Result<Option<TreeHead>, Interrupted> {
        let Some(row) = found.row.filter(|_| found.former.tree.is_some()) else {
            return Ok(None);
        };
        let head = TreeHead::decode(self.payload(row))?;
        match head.is_blocks && row.value_type != ValueType::List {
            true => Err(RowError::Damaged.into()),
            false => Ok(Some(head)),
        }
    }

    /// Returns the number of elements of the collection that was read last.
    pub(crate) fn length(&mut self, found: &Found) -> Result<usize, Interrupted> {
        let Some(row) = found.row else {
            return Ok(0);
        };
        let now_ms = self.now_ms;
        let has_expired = row.times().has_expired_fields(now_ms);
        if let Some(head) = self.tree_head(found)? {
            return match has_expired {
                true => Ok(head.len().saturating_sub(self.expired_fields(head)?)),
                false => Ok(head.len()),
            };
        }
        let payload = self.payload(row);
        if Form::Timed.is_of(payload) && row.value_type == ValueType::Hash {
            let (mut strings, mut deadlines) = deadlines::decode(payload)?;
            deadlines.drop_expired(&mut strings, now_ms);
            return Ok(strings.len() / strings_of_one(row.value_type));
        }
        Ok(Reader::new(payload)?.left / strings_of_one(row.value_type))
    }

    /// Returns an empty collection that replaces what `found` describes: that gives it nothing but
    /// what has to go.
    pub(crate) fn replacement(&self, found: &Found, value_type: ValueType) -> Collection {
        let found = Found {
            former: found.former,
            ..Found::default()
        };
        let limits = self.shared.settings.encoding_limits.of(value_type);
        Collection::new(found, value_type, limits)
    }

    /// Returns an empty collection that takes the place of what `found` describes, with its times.
    pub(crate) fn remade(&self, found: &Found, value_type: ValueType) -> Collection {
        let found = Found {
            former: found.former,
            row: found.row,
            ..Found::default()
        };
        let limits = self.shared.settings.encoding_limits.of(value_type);
        Collection::new(found, value_type, limits)
    }

    /// Reads the collection at `key`, of the command's type, and has `show` write the reply from
    /// its strings, which are not copied if it is packed; `None` if there is none. Of a large one
    /// it reads a part.
    pub(crate) fn show_collection(
        &mut self,
        key: &[u8],
        part: &Part<'_>,
        show: impl FnOnce(Option<Reader<'_>>, &mut Writer<'_>) -> Result<(), RowError>,
    ) -> Run {
        let found = self.read(key)?;
        self.show_found(found, part, show)
    }

    /// As [`Context::show_collection`], with all of it: a large one is read while it is sent, and
    /// of each element is shown what `shown` says.
    pub(crate) fn show_whole(
        &mut self,
        key: &[u8],
        shown: Shown,
        show: impl FnOnce(Option<Reader<'_>>, &mut Writer<'_>) -> Result<(), RowError>,
    ) -> Run {
        if self.goes_on_large()? {
            return Ok(());
        }
        let found = self.read(key)?;
        let Some(head) = self.tree_head(&found)? else {
            return self.show_found(found, &Part::All, show);
        };
        self.ask_for_all(key, head, (shown, false), false)?;
        match self.show_found(found, &Part::All, show) {
            Err(interrupted) if is_too_long(&interrupted) => {
                self.ask_for_all(key, head, (shown, false), true)?;
                Err(interrupted)
            }
            shown => shown,
        }
    }

    /// Shows the collection whose row was read last.
    fn show_found(
        &mut self,
        found: Found,
        part: &Part<'_>,
        show: impl FnOnce(Option<Reader<'_>>, &mut Writer<'_>) -> Result<(), RowError>,
    ) -> Run {
        let head = self.tree_head(&found)?;
        let has_deadlines = found.row.is_some_and(|row| row.times().fields.is_some());
        let (value, payload) =
            if let (Some(head), Part::Named([name]), None) = (head, part, &self.data().batch) {
                self.read_one_packed((self.value_type(), head), name)?;
                (std::mem::take(&mut self.data().scratch.value), Some(0))
            } else if has_deadlines || head.is_some() {
                let collection = self.decoded(found, self.value_type(), part)?;
                let mut value = std::mem::take(&mut self.data().scratch.value);
                collection.strings.encode(collection.encoding, &mut value);
                (value, Some(0))
            } else {
                let payload = found.row.map(|row| row.payload);
                (std::mem::take(&mut self.data().scratch.value), payload)
            };
        let reader = payload.map(|at| Reader::new(&value[at..])).transpose();
        let shown = reader.and_then(|reader| show(reader, &mut self.reply()));
        self.data().scratch.value = value;
        shown?;
        self.check_reply()
    }

    /// Replies with the number of elements at `key`.
    pub(crate) fn reply_length(&mut self, key: &[u8]) -> Run {
        let found = self.read(key)?;
        let length = self.length(&found)?;
        self.integer(i64::try_from(length).unwrap_or(i64::MAX))
    }

    /// Refuses the command if an element of the collection is too long for its row. To be asked for
    /// all collections of a command before it writes the first one.
    pub(crate) fn check_room(&mut self, collection: &Collection) -> Run {
        let packed = self.packed_bytes_max(collection.encoding);
        if !collection.is_tree() && collection.payload_bytes() <= packed {
            return Ok(());
        }
        self.check_elements(collection)
    }

    /// Refuses the command if an element is too long for a row of its own.
    fn check_elements(&self, collection: &Collection) -> Run {
        let of_one = strings_of_one(collection.value_type);
        for place in (0..collection.strings.len()).step_by(of_one) {
            let bytes: usize = (place..place + of_one)
                .map(|place| collection.strings.at(place).len())
                .sum();
            self.check_element(collection.value_type, bytes)?;
        }
        Ok(())
    }

    /// Returns the bytes of the longest element that has a row of its own.
    pub(super) fn element_bytes_max(&self) -> usize {
        self.engine().row_bytes_max.saturating_sub(ROW_BYTES)
    }

    /// Refuses the command if an element of so many bytes is too long for a row of its own.
    pub(super) fn check_element(&self, value_type: ValueType, bytes: usize) -> Run {
        let most = self.element_bytes_max();
        if bytes > most {
            let what = format!("an element of a {}", value_type.name());
            return Err(replies::too_long(&what, bytes, most).into());
        }
        Ok(())
    }

    /// Returns the longest payload of a packed collection of this encoding, in bytes.
    fn packed_bytes_max(&self, encoding: Encoding) -> u64 {
        let most = self.shared.settings.packed_bytes_max();
        match encoding {
            // Redis shows such a collection in its order, as long as it keeps that encoding.
            Encoding::Listpack | Encoding::Intset => most * COMPACT,
            _ => most,
        }
    }

    /// Writes the collection; an empty one is removed. It keeps its deadline.
    pub(crate) fn put_collection(&mut self, key: &[u8], collection: &Collection) -> Run {
        self.event_of_fields(key, collection);
        self.put_noted(key, collection)
    }

    /// As [`Context::put_collection`]; what has happened to it is recorded.
    pub(super) fn put_noted(&mut self, key: &[u8], collection: &Collection) -> Run {
        if let Some(loaded) = &collection.loaded {
            self.check_elements(collection)?;
            return self.put_tree(key, collection, loaded);
        }
        if collection.strings.len() == 0 {
            if collection.found.row.is_some() {
                self.event(Class::Generic, "del", key);
            }
            return match collection.found.is_written() {
                true => self.remove(key, &collection.found),
                false => Ok(()),
            };
        }
        let packed = self.packed_bytes_max(collection.encoding);
        let mut bytes = collection.payload_bytes();
        if bytes > packed {
            self.check_elements(collection)?;
        }
        if !collection.deadlines.is_empty() {
            let fields = collection.in_memory() as u64;
            bytes += FIELD_TIMES_BYTES as u64 + fields * DEADLINE_BYTES;
        }
        if bytes > packed || !self.lies_in_pages(key, bytes) {
            return self.put_new_tree(key, collection);
        }
        self.put_packed(key, collection, collection.found.former)
    }

    /// Writes the collection, all of which is in memory, as its row.
    pub(super) fn put_packed(
        &mut self,
        key: &[u8],
        collection: &Collection,
        former: Former,
    ) -> Run {
        let mut payload = std::mem::take(&mut self.data().scratch.value);
        let fields = match collection.value_type {
            ValueType::Hash => {
                let hash = (&collection.strings, &collection.deadlines);
                deadlines::encode(hash, collection.encoding, &mut payload)
            }
            _ => {
                collection.strings.encode(collection.encoding, &mut payload);
                None
            }
        };
        let value = (collection.value_type, payload.as_slice());
        let result = self.put_row(key, value, collection.times(fields), former);
        self.data().scratch.value = payload;
        result
    }

    /// Returns true if a large collection is all in memory, and has become so small that it is
    /// packed again: much smaller than what is not packed, so that few changes make it neither.
    pub(super) fn is_small(&self, collection: &Collection) -> bool {
        collection.is_tree()
            && collection.elsewhere() == 0
            && collection.in_memory() > 0
            && self.is_little(collection)
    }

    /// Returns true if a large collection that has become this one, all of which is in memory, is
    /// not large any more.
    pub(crate) fn is_little(&self, collection: &Collection) -> bool {
        let most = self.packed_bytes_max(collection.encoding) / 4;
        collection.payload_bytes() <= most
    }

    /// Returns the bytes of the elements up to which a large list that loses some may get another
    /// encoding, or may be packed.
    pub(crate) fn little_bytes(&self, value_type: ValueType) -> usize {
        let (_, listpack) = self
            .shared
            .settings
            .encoding_limits
            .of(value_type)
            .of_list();
        let packed = self.packed_bytes_max(Encoding::Listpack);
        usize::try_from((packed / 4).max(listpack)).unwrap_or(usize::MAX)
    }
}

/// How many times as long a packed collection may be if Redis keeps it in a compact encoding.
const COMPACT: u64 = 9;
/// Bytes of the row of an element besides the element, at most.
const ROW_BYTES: usize = 24;
/// Bytes of the string of a deadline in a packed hash, at most.
const DEADLINE_BYTES: u64 = 9;

impl Collection {
    /// Returns its times, if its fields have these.
    pub(super) fn times(&self, fields: Option<FieldTimes>) -> Times {
        let deadline = self.found.deadline();
        Times { deadline, fields }
    }

    /// Returns the length of its payload.
    fn payload_bytes(&self) -> u64 {
        self.strings.payload_bytes()
    }
}
