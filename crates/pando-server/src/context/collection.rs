//! Collections that commands read and write.

use pando_resp::Writer;

use super::{Context, Found, Interrupted, Run};
use crate::data::keyspace::{RowError, ValueType, plain_string_bytes_max};
use crate::data::limits::Limits;
use crate::data::packed::{Encoding, Reader, Strings};

/// Longest packed collection, in bytes: each change writes all of it.
const PACKED_BYTES_MAX: u64 = 1 << 20;

/// A hash, list, set or sorted set; an empty one if the key has none.
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
}

/// Returns the number of strings of an element.
pub(crate) fn strings_of_one(value_type: ValueType) -> usize {
    match value_type {
        ValueType::Hash | ValueType::SortedSet => 2,
        _ => 1,
    }
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
        }
    }

    /// Returns true if the key has it.
    pub(crate) fn exists(&self) -> bool {
        self.found.row.is_some()
    }

    /// Returns the number of elements.
    pub(crate) fn len(&self) -> usize {
        self.strings.len() / strings_of_one(self.value_type)
    }
}

impl Context<'_> {
    /// Returns the type of the collections of the command.
    fn value_type(&self) -> ValueType {
        let value_type = self.command.value_type;
        value_type.expect("a command of collections has a type")
    }

    /// Reads the collection at `key`, of the command's type, to be changed.
    pub(crate) fn collection(&mut self, key: &[u8]) -> Result<Collection, Interrupted> {
        let found = self.find(key)?;
        self.decoded(found, self.value_type())
    }

    /// Reads the collection at `key`, of the command's type, for a reply: counts hits and misses.
    pub(crate) fn read_collection(&mut self, key: &[u8]) -> Result<Collection, Interrupted> {
        let found = self.read(key)?;
        self.decoded(found, self.value_type())
    }

    /// Decodes the row that was read last.
    pub(crate) fn decoded(
        &mut self,
        found: Found,
        value_type: ValueType,
    ) -> Result<Collection, Interrupted> {
        let limits = self.shared.settings.encoding_limits.of(value_type);
        let Some(row) = found.row else {
            return Ok(Collection::new(found, value_type, limits));
        };
        let payload = self.payload(row);
        Ok(Collection {
            encoding: Encoding::of_payload(payload)?,
            strings: Strings::decode(payload, strings_of_one(value_type))?,
            found,
            value_type,
            limits,
        })
    }

    /// Returns an empty collection that replaces what `found` describes: that gives it nothing but
    /// the expiry entry that has to go.
    pub(crate) fn replacement(&self, found: &Found, value_type: ValueType) -> Collection {
        let found = Found {
            entry: found.entry,
            ..Found::default()
        };
        let limits = self.shared.settings.encoding_limits.of(value_type);
        Collection::new(found, value_type, limits)
    }

    /// Reads the collection at `key`, of the command's type, and has `show` write the reply from
    /// its strings, which are not copied; `None` if there is none.
    pub(crate) fn show_collection(
        &mut self,
        key: &[u8],
        show: impl FnOnce(Option<Reader<'_>>, &mut Writer<'_>) -> Result<(), RowError>,
    ) -> Run {
        let row = self.read(key)?.row;
        let value = std::mem::take(&mut self.data().scratch.value);
        let reader = row
            .map(|row| Reader::new(&value[row.payload..]))
            .transpose();
        let shown = reader.and_then(|reader| show(reader, &mut self.reply()));
        self.data().scratch.value = value;
        shown?;
        self.check_reply()
    }

    /// Replies with the number of elements at `key`.
    pub(crate) fn reply_length(&mut self, key: &[u8]) -> Run {
        let of_one = strings_of_one(self.value_type());
        self.show_collection(key, |reader, reply| {
            let length = reader.map_or(0, |reader| reader.left) / of_one;
            reply.integer(i64::try_from(length).unwrap_or(i64::MAX));
            Ok(())
        })
    }

    /// Refuses the command if the collection is too long for a row. To be asked for all
    /// collections of a command before it writes the first one.
    pub(crate) fn check_room(&mut self, key: &[u8], collection: &Collection) -> Run {
        self.check_packed(key, collection.value_type, collection.payload_bytes())
    }

    /// As [`Context::check_room`], of a collection whose payload has `bytes` bytes.
    pub(crate) fn check_packed(&self, key: &[u8], value_type: ValueType, bytes: u64) -> Run {
        if bytes <= PACKED_BYTES_MAX && self.lies_in_pages(key, bytes) {
            return Ok(());
        }
        let of_rows = plain_string_bytes_max(self.engine().row_bytes_max) as u64;
        let most = PACKED_BYTES_MAX.min(of_rows);
        Err(Interrupted::from(format!(
            "ERR the {} would take {bytes} bytes: larger collections than about {most} bytes are \
             not there yet",
            value_type.name()
        )))
    }

    /// Writes the collection; an empty one is removed. It keeps its deadline.
    pub(crate) fn put_collection(&mut self, key: &[u8], collection: &Collection) -> Run {
        if collection.strings.len() == 0 {
            return match collection.found.row.is_some() || collection.found.entry.is_some() {
                true => self.remove(key, &collection.found),
                false => Ok(()),
            };
        }
        self.check_room(key, collection)?;
        let mut payload = std::mem::take(&mut self.data().scratch.value);
        collection.strings.encode(collection.encoding, &mut payload);
        let value = (collection.value_type, payload.as_slice());
        let (deadline, entry) = (collection.found.deadline(), collection.found.entry);
        let result = self.put_value(key, value, deadline, entry);
        self.data().scratch.value = payload;
        result
    }
}

impl Collection {
    /// Returns the length of its payload.
    fn payload_bytes(&self) -> u64 {
        let varint = |value: u64| u64::from(value.max(1).ilog2()) / 7 + 1;
        let of_one = |string: &[u8]| string.len() as u64 + varint(string.len() as u64 * 2);
        2 + varint(self.strings.len() as u64) + self.strings.iter().map(of_one).sum::<u64>()
    }
}
